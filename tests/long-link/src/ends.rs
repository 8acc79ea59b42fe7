//! The two ends of the link: a network namespace each, with one interface that leads to the other.
//!
//! The namespaces have no names. They last as long as a process is in them, and every process that
//! is started here dies with this one, however it ends: there is nothing to clean up.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use nix::sched::{CloneFlags, setns, unshare};

use crate::{LinkError, tun};

/// The near end's address.
pub(crate) const NEAR: &str = "10.9.0.1";
/// The far end's address.
pub(crate) const FAR: &str = "10.9.0.2";

const INTERFACE: &str = "wan0";
/// Packets that the kernel keeps until they are read; at 1 Gb/s a tenth of a second of them.
const QUEUE_LEN: &str = "10000";
/// The largest windows of a TCP connection: three times 1 Gb/s for 150 ms.
const RECEIVE: &str = "4096 131072 67108864";
const SEND: &str = "4096 65536 67108864";

/// What an end is told about its interface.
#[derive(Debug, Clone)]
pub(crate) struct Interface<'a> {
    pub mtu: u32,
    /// The kernel's default where there is none.
    pub congestion: Option<&'a str>,
}

/// One end.
#[derive(Debug)]
pub(crate) struct End {
    namespace: File,
    /// The congestion control in force.
    pub congestion: String,
}

impl End {
    /// Makes a namespace, moves this thread into it, and returns the link's side of its interface, too.
    pub(crate) fn make(
        own: &str,
        peer: &str,
        interface: &Interface<'_>,
    ) -> Result<(Self, File), LinkError> {
        unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|e| LinkError::Namespace { doing: "make", source: e.into() })?;
        let namespace = File::open("/proc/thread-self/ns/net")
            .map_err(|e| LinkError::Namespace { doing: "name", source: e })?;
        let device = tun::open(INTERFACE).map_err(LinkError::Tun)?;
        ip(&["link", "set", "lo", "up"])?;
        // Without IPv6 the only packets are those that somebody sent.
        let _ =
            fs::write(format!("/proc/sys/net/ipv6/conf/{INTERFACE}/disable_ipv6"), "1");
        ip(&["addr", "add", own, "peer", peer, "dev", INTERFACE])?;
        let mtu = interface.mtu.to_string();
        ip(&["link", "set", INTERFACE, "mtu", &mtu, "txqueuelen", QUEUE_LEN, "up"])?;
        set("tcp_rmem", RECEIVE)?;
        set("tcp_wmem", SEND)?;
        if let Some(name) = interface.congestion {
            set("tcp_congestion_control", name)?;
        }
        let congestion = get("tcp_congestion_control")?;
        Ok((Self { namespace, congestion }, device))
    }

    /// Moves this thread to this end.
    pub(crate) fn enter(&self) -> Result<(), LinkError> {
        setns(&self.namespace, CloneFlags::CLONE_NEWNET)
            .map_err(|e| LinkError::Namespace { doing: "enter", source: e.into() })
    }

    /// Starts a program at this end, in a process namespace of its own: nothing that it starts
    /// outlives it, and it does not outlive the thread that calls this.
    pub(crate) fn start(&self, words: &[String]) -> Result<Child, LinkError> {
        self.enter()?;
        // The first process of a namespace ignores signals that it does not handle and is given
        // orphans. The shell does that job, so that the program need not.
        let shell = ["sh", "-c", r#""$@"; exit $?"#, "sh"];
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--pid", "--fork"]);
        command.args(["--kill-child=KILL", "--mount-proc"]).args(shell).args(words);
        command.env("LONG_LINK_NEAR", NEAR).env("LONG_LINK_FAR", FAR);
        // `unshare` that is killed as it begins has not yet said that its child goes with it.
        command.process_group(0);
        command
            .spawn()
            .map_err(|e| LinkError::Program { name: "setpriv".into(), source: e })
    }
}

/// Packets that the kernel dropped before the link saw them, at this thread's end.
pub(crate) fn dropped_before() -> u64 {
    let Ok(text) = fs::read_to_string("/proc/thread-self/net/dev") else { return 0 };
    let line = text.lines().find_map(|line| line.trim().strip_prefix(INTERFACE));
    let fields = line.and_then(|line| line.strip_prefix(':')).unwrap_or_default();
    // Eight columns of what was received, then bytes, packets, errors and drops of what was sent.
    fields.split_whitespace().nth(11).and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn ip(words: &[&str]) -> Result<(), LinkError> {
    let output = Command::new("ip")
        .args(words)
        .output()
        .map_err(|e| LinkError::Program { name: "ip".into(), source: e })?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LinkError::Ip { words: words.join(" "), why })
}

/// Sysctls below `net` are those of the namespace that the calling thread is in.
fn set(name: &str, value: &str) -> Result<(), LinkError> {
    fs::write(format!("/proc/sys/net/ipv4/{name}"), value).map_err(|e| {
        LinkError::Sysctl { name: name.to_owned(), value: value.to_owned(), source: e }
    })
}

fn get(name: &str) -> Result<String, LinkError> {
    let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).map_err(|e| {
        LinkError::Sysctl { name: name.to_owned(), value: String::new(), source: e }
    })?;
    Ok(text.trim().to_owned())
}
