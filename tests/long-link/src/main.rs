//! A long link on one machine: two network namespaces joined by a delay line, for tests of remote data
//! with the kernel's own TCP: slow start, retransmissions, windows.
//!
//! It does not model a network: one link, one rate, one delay, and losses that are independent of
//! each other. Reading order: `options` is what can be asked for, `line` decides what happens to a packet,
//! `forward` carries packets, `tun` and `ends` make what the kernel has to do with it, and `measure`
//! checks the whole.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of the command line"
)]

mod ends;
mod forward;
mod line;
mod measure;
mod options;
mod tun;

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, ExitStatus};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use ends::{End, FAR, Interface, NEAR};
use forward::Link;
use line::{Counts, Line};
use options::{HELP, Options, Task};

/// The link itself failed, or the server.
const FAILED: u8 = 125;
/// The machine does not let us try.
const SKIPPED: u8 = 77;
/// How often files and children are looked at, should a signal be missed.
const GLANCE: Duration = Duration::from_millis(50);

/// What can go wrong with a link.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error("{name} {value}: it takes {wants} (--help)")]
    Option { name: String, value: String, wants: &'static str },
    #[error("there is no option {name} (--help)")]
    Unknown { name: String },
    #[error("no command: write it after `--`, or --self-test (--help)")]
    NoCommand,
    #[error("cannot {doing} a network namespace: {source}")]
    Namespace { doing: &'static str, source: io::Error },
    #[error("{path}: {0}", path = tun::PATH)]
    Tun(io::Error),
    #[error("`ip {words}` failed: {why}")]
    Ip { words: String, why: String },
    #[error("cannot set net.ipv4.{name} to `{value}`: {source}")]
    Sysctl { name: String, value: String, source: io::Error },
    #[error("cannot run {name}: {source}")]
    Program { name: String, source: io::Error },
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} exists already: --ready must name a file that the server makes", .0.display())]
    ReadyTooSoon(PathBuf),
    #[error("the server has not made {} within {patience:?}: see what it printed, or raise --patience", path.display())]
    NotReady { path: PathBuf, patience: Duration },
    #[error("the server ended before the command did: {0}")]
    ServerEnded(ExitStatus),
    #[error("carrying packets: {0}")]
    Carry(io::Error),
    #[error("a measurement through the link: {0}")]
    Probe(io::Error),
    #[error("the link is not as asked for: {0}")]
    NotAsAsked(String),
}

impl LinkError {
    /// Whether this machine cannot do it at all.
    fn is_lacking(&self) -> bool {
        use io::ErrorKind::{NotFound, PermissionDenied, Unsupported};
        if let Self::Namespace { source, .. } | Self::Tun(source) = self {
            return [PermissionDenied, NotFound, Unsupported].contains(&source.kind());
        }
        matches!(self, Self::Program { source, .. } if source.kind() == NotFound)
    }
}

fn main() -> ExitCode {
    let done = Options::parse(std::env::args().skip(1)).and_then(|options| run(&options));
    match done {
        Ok(code) => ExitCode::from(code),
        Err(e) if e.is_lacking() => {
            eprintln!(
                "skipped: a long link takes root, /dev/net/tun, iproute2 and util-linux: {e}"
            );
            ExitCode::from(SKIPPED)
        }
        Err(e) => {
            eprintln!("long-link: {e}");
            ExitCode::from(FAILED)
        }
    }
}

fn run(options: &Options) -> Result<u8, LinkError> {
    if options.task == Task::Help {
        print!("{HELP}");
        return Ok(0);
    }
    let interface =
        Interface { mtu: options.mtu, congestion: options.congestion.as_deref() };
    let (near, near_device) = End::make(NEAR, FAR, &interface)?;
    let (far, far_device) = End::make(FAR, NEAR, &interface)?;
    announce(options, &near);
    let lines = [0, 1]
        .map(|n| Line::new(options.direction(), options.seed.wrapping_add(n << 32)));
    let link = Link::new(near_device, far_device, lines);
    let ends = [&near, &far];
    match &options.task {
        Task::Run(words) => Session::start(options, ends, link)?.run(words),
        Task::SelfTest => self_test(options, ends, link),
        Task::Help => Ok(0),
    }
}

fn announce(options: &Options, near: &End) {
    let Options { rtt, bits_per_s, loss, queue_bytes, mtu, seed, .. } = options;
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let (mbit, megabytes) = (*bits_per_s as f64 / 1e6, *queue_bytes as f64 / 1e6);
    eprintln!(
        "long-link: round trip {rtt:?}, {mbit} Mb/s, loss {:.4} % each way, queue {megabytes:.2} MB, MTU {mtu}, \
         congestion control {}, seed {seed}",
        loss * 100.0,
        near.congestion
    );
}

/// Carries packets in this thread while another one measures.
fn self_test(
    options: &Options,
    ends: [&End; 2],
    mut link: Link,
) -> Result<u8, LinkError> {
    let counts = Mutex::new(Counts::default());
    let measured = std::thread::scope(|scope| {
        let measuring = scope.spawn(|| measure::measure(ends, options, &counts));
        while !measuring.is_finished() {
            link.step(&[], GLANCE / 5).map_err(LinkError::Carry)?;
            if let Ok(mut counts) = counts.lock() {
                *counts = link.counts()[0];
            }
        }
        measuring
            .join()
            .unwrap_or_else(|_| Err(LinkError::Probe(io::Error::other("a panic"))))
    })?;
    println!(
        "round trip {:.2} ms, {:.2} Mb/s, {} of 2000 packets missing, {} counted as lost",
        measured.rtt.as_secs_f64() * 1e3,
        measured.bits_per_s / 1e6,
        measured.missing,
        measured.counted
    );
    let complaints = measured.complaints(options);
    if complaints.is_empty() {
        Ok(0)
    } else {
        Err(LinkError::NotAsAsked(complaints.join("; ")))
    }
}

/// A server at the far end, a command at the near end, and the link between them.
struct Session<'a> {
    options: &'a Options,
    near: &'a End,
    far: &'a End,
    link: Link,
    signals: SignalFd,
    control: Option<Control>,
    server: Option<Kept>,
}

impl<'a> Session<'a> {
    fn start(
        options: &'a Options,
        [near, far]: [&'a End; 2],
        link: Link,
    ) -> Result<Self, LinkError> {
        if let Some(ready) = options.ready.as_ref().filter(|ready| ready.exists()) {
            return Err(LinkError::ReadyTooSoon(ready.clone()));
        }
        let signals = signals().map_err(LinkError::Carry)?;
        let control = options.control.as_deref().map(Control::open).transpose()?;
        let shell = |line: &String| ["sh".to_owned(), "-c".to_owned(), line.clone()];
        let server =
            options.server.as_ref().map(|line| far.start(&shell(line)).map(Kept));
        let server = server.transpose()?;
        Ok(Self { options, near, far, link, signals, control, server })
    }

    /// Runs the command to its end; all that runs at both ends is gone afterwards.
    fn run(mut self, words: &[String]) -> Result<u8, LinkError> {
        let done = self.ready().and_then(|stopped| match stopped {
            Some(signal) => Ok(signal),
            None => self.command(words),
        });
        self.report()?;
        done
    }

    /// Waits for the server; returns the status to end with if a signal came first.
    fn ready(&mut self) -> Result<Option<u8>, LinkError> {
        let Some(path) = &self.options.ready else { return Ok(None) };
        let patience = self.options.patience;
        let until = Instant::now() + patience;
        while !path.exists() {
            if Instant::now() > until {
                return Err(LinkError::NotReady { path: path.clone(), patience });
            }
            if let Some(signal) = self.step()? {
                return Ok(Some(signal));
            }
        }
        Ok(None)
    }

    fn command(&mut self, words: &[String]) -> Result<u8, LinkError> {
        let mut command = Kept(self.near.start(words)?);
        loop {
            if let Some(signal) = self.step()? {
                return Ok(signal);
            }
            // `unshare` ends as its child did: a status, or 128 + the signal.
            if let Some(status) = command.ended() {
                return Ok(status
                    .code()
                    .and_then(|code| u8::try_from(code).ok())
                    .unwrap_or(FAILED));
            }
        }
    }

    /// Carries packets for a moment; returns a status if a signal asks to end.
    fn step(&mut self) -> Result<Option<u8>, LinkError> {
        let mut others = vec![self.signals.as_fd()];
        others.extend(self.control.as_ref().map(|control| control.socket.as_fd()));
        self.link.step(&others, GLANCE).map_err(LinkError::Carry)?;
        for order in self.control.iter().flat_map(Control::orders) {
            self.link.order(order);
        }
        if let Some(status) = self.server.as_mut().and_then(Kept::ended) {
            return Err(LinkError::ServerEnded(status));
        }
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let number = signal.ssi_signo;
            if number != Signal::SIGCHLD as u32 {
                return Ok(Some(128 + u8::try_from(number).unwrap_or(0)));
            }
        }
        Ok(None)
    }

    fn report(&self) -> Result<(), LinkError> {
        let mut dropped = [0; 2];
        for (dropped, end) in dropped.iter_mut().zip([self.near, self.far]) {
            end.enter()?;
            *dropped = ends::dropped_before();
        }
        let counts = self.link.counts();
        for (name, (counts, dropped)) in
            ["there", "back"].iter().zip(counts.iter().zip(dropped))
        {
            eprintln!("long-link: {name}: {}", told(counts, dropped));
        }
        let Some(path) = &self.options.figures else { return Ok(()) };
        let [there, back] = [0, 1].map(|n| json(&counts[n], dropped[n]));
        let congestion = &self.near.congestion;
        let text = format!(
            "{{\"congestion\": \"{congestion}\", \"there\": {there}, \"back\": {back}}}\n"
        );
        fs::write(path, text)
            .map_err(|e| LinkError::File { path: path.clone(), source: e })
    }
}

fn told(counts: &Counts, dropped: u64) -> String {
    let Counts { offered, delivered, delivered_bytes, lost, overflowed, swallowed } =
        counts;
    format!(
        "{offered} packets, {delivered} arrived ({delivered_bytes} bytes), {lost} lost, {overflowed} found the \
         queue full, {swallowed} fell into an outage, {dropped} dropped by the kernel before the link"
    )
}

fn json(counts: &Counts, dropped: u64) -> String {
    let Counts { offered, delivered, delivered_bytes, lost, overflowed, swallowed } =
        counts;
    format!(
        "{{\"offered\": {offered}, \"delivered\": {delivered}, \"delivered_bytes\": {delivered_bytes}, \
         \"lost\": {lost}, \"overflowed\": {overflowed}, \"swallowed\": {swallowed}, \"dropped_before\": {dropped}}}"
    )
}

/// Signals that end the program, and that of a child's end, as something to poll.
fn signals() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGCHLD] {
        set.add(signal);
    }
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}

/// A program that is killed with all that it started when it is dropped.
struct Kept(Child);

impl Kept {
    fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // It is `unshare`, whose end is that of its process namespace; and the first process in there, which is of its group.
        if let Ok(group) = i32::try_from(self.0.id()) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The socket that takes orders while the link runs.
struct Control {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Control {
    fn open(path: &Path) -> Result<Self, LinkError> {
        let open = || {
            let socket = UnixDatagram::bind(path)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket =
            open().map_err(|e| LinkError::File { path: path.to_owned(), source: e })?;
        Ok(Self { socket, path: path.to_owned() })
    }

    fn orders(&self) -> impl Iterator<Item = forward::Order> {
        std::iter::from_fn(|| {
            let mut text = [0; 128];
            self.socket
                .recv(&mut text)
                .ok()
                .map(|len| String::from_utf8_lossy(&text[..len]).into_owned())
        })
        .filter_map(|text| {
            let order = options::order(&text);
            match order {
                Some(order) => eprintln!("long-link: {order:?}"),
                None => eprintln!("long-link: `{}` is no order", text.trim()),
            }
            order
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
