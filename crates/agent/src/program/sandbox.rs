//! Drops what serving does not need before the first host is served: other files, other programs, new
//! privileges.
//!
//! Landlock restricts the process to reading the data root and writing to its own places, and a seccomp filter
//! rejects system calls that an agent never makes. Both apply to the calling thread and the threads it starts
//! later, so they must be in place before the first worker. `program` decides which places an agent needs.

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus,
    PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
    RulesetStatus, Scope,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// Whether the program confines itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Sandbox {
    /// As far as the kernel can.
    Auto,
    /// Not at all.
    Off,
    /// Completely, or it does not start.
    Required,
}

/// What the program still reaches when it is confined. A place that is not there is no place.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Files and folders that it reads.
    pub(super) read: Vec<PathBuf>,
    /// Folders that it also writes to.
    pub(super) written: Vec<PathBuf>,
    /// Folders from which it removes a file or a folder that it made.
    pub(super) cleared: Vec<PathBuf>,
    /// What it connects to.
    pub(super) network: Network,
}

/// Whether the program opens connections, besides those that hosts open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Network {
    /// It does not.
    #[default]
    Nothing,
    /// To a remote store, its data root, or to registries. Where these are a host name resolves to, so
    /// nothing narrower could be allowed.
    Others,
}

/// How far it went. Keep it as long as the process is to read about itself.
#[derive(Debug)]
pub(super) struct Confined {
    line: String,
    /// `/proc/self`: the Landlock rule applies to this inode, which the kernel would otherwise recreate.
    _process: Option<File>,
}

impl fmt::Display for Confined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

/// The newest interface whose rights are asked for; an older kernel gives what it has.
const LANDLOCK: ABI = ABI::V6;

const REMEDY: &str = "use a kernel that has it, or give --sandbox auto";

impl Confined {
    /// The same where threads run that are not confined.
    pub(super) fn beside(mut self, others: Option<String>) -> Self {
        if let Some(others) = others {
            self.line = format!("{}; {others}", self.line);
        }
        self
    }
}

impl Sandbox {
    /// Other threads of the process, which would not be confined, where that matters.
    ///
    /// # Errors
    /// With [`Sandbox::Required`]: that there are some, and what to do.
    pub(super) fn others(self) -> Result<Option<String>> {
        let n_threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
        match (self, n_threads) {
            (Self::Off, _) | (_, 0 | 1) => Ok(None),
            (Self::Auto, n) => {
                Ok(Some(format!("{} threads that ran before are not confined", n - 1)))
            }
            (Self::Required, n) => bail!(
                "{n} threads run before the agent is confined; remove what starts them (in a Python \
                 environment a .pth file may), or give --sandbox auto or --sandbox off"
            ),
        }
    }

    /// Confines the calling thread, and those that it will start, to `places`.
    ///
    /// # Errors
    /// With [`Sandbox::Required`]: what is missing, and what to do.
    pub(super) fn enforce(self, places: &Places) -> Result<Confined> {
        let process = match self {
            Self::Off => {
                let line = "not confined: --sandbox off".to_owned();
                return Ok(Confined { line, _process: None });
            }
            Self::Auto | Self::Required => File::open("/proc/self").ok(),
        };
        let (mut has, mut lacks) = (Vec::new(), Vec::new());
        match landlock(places) {
            Ok(abi) => has.push(format!("Landlock {abi}")),
            Err(why) => lacks.push(format!("Landlock: {why:#}")),
        }
        match seccomp(places.network) {
            Ok(()) => has.push("seccomp".to_owned()),
            Err(why) => lacks.push(format!("seccomp: {why:#}")),
        }
        // Neither is had without.
        has.extend((!has.is_empty()).then(|| "no new privileges".to_owned()));
        if self == Self::Required && !lacks.is_empty() {
            bail!("cannot confine the agent by {}; {REMEDY}", lacks.join(", nor by "));
        }
        let (has, lacks) = (has.join(", "), lacks.join("; not by "));
        let line = match (has.as_str(), lacks.as_str()) {
            (has, "") => format!("confined: {has}"),
            ("", lacks) => format!("not confined by {lacks}"),
            (has, lacks) => format!("confined in part: {has}; not by {lacks}"),
        };
        Ok(Confined { line, _process: process })
    }
}

/// Files below `places` and nothing else, and no TCP connection of its own making unless they say so. The
/// interface that the kernel has.
fn landlock(places: &Places) -> Result<ABI> {
    let write = AccessFs::from_all(LANDLOCK) & !AccessFs::Execute & !special();
    let clear = AccessFs::RemoveFile | AccessFs::RemoveDir;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .handle_access(match places.network {
            Network::Nothing => AccessNet::from_all(LANDLOCK),
            Network::Others => AccessNet::BindTcp.into(),
        })?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    for (paths, access) in
        [(&places.read, read), (&places.written, write), (&places.cleared, clear)]
    {
        for path in paths {
            rules = allow(rules, path, access)?;
        }
    }
    let status = rules.restrict_self()?;
    match (status.landlock, status.ruleset) {
        (LandlockStatus::NotEnabled, _) => bail!("it is not enabled in this kernel"),
        (LandlockStatus::NotImplemented, _) => bail!("this kernel has none"),
        (_, RulesetStatus::NotEnforced) => bail!("this kernel does not enforce it"),
        (LandlockStatus::Available { effective_abi, .. }, _) => Ok(effective_abi),
    }
}

/// Kinds of files that nobody here makes.
fn special() -> BitFlags<AccessFs> {
    AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeFifo | AccessFs::IoctlDev
}

fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated> {
    let Ok(place) = PathFd::new(path) else { return Ok(rules) };
    // A file has no entries.
    let access =
        if path.is_dir() { access } else { access & AccessFs::from_file(LANDLOCK) };
    let rules = rules.add_rule(PathBeneath::new(place, access));
    rules.with_context(|| format!("cannot allow {}", path.display()))
}

/// Refuses, with EPERM, what no agent asks the kernel for.
fn seccomp(network: Network) -> Result<()> {
    let arch = TargetArch::try_from(ARCH).context("no filter for this machine")?;
    let refused = refused(network).into_iter().map(|call| (call, Vec::new()));
    let errno = u32::try_from(libc::EPERM)?;
    let filter = SeccompFilter::new(
        BTreeMap::from_iter(refused),
        SeccompAction::Allow,
        SeccompAction::Errno(errno),
        arch,
    )?;
    let program: BpfProgram = filter.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}

/// System calls that no agent makes once it listens.
fn refused(network: Network) -> Vec<libc::c_long> {
    let mut refused = REFUSED.to_vec();
    if network == Network::Nothing {
        refused.extend(REFUSED_WITHOUT_NETWORK);
    }
    #[cfg(target_arch = "x86_64")]
    {
        // The same calls with pointers of 32 bits, where a kernel has them.
        let as_x32: Vec<_> = refused.iter().map(|call| call | X32).collect();
        refused.extend(as_x32);
        refused.extend(REFUSED_ON_X86);
        refused.extend(REFUSED_ON_X32.map(|call| call | X32));
    }
    refused
}

/// To run something else, to look into others, to gain rights, to change the machine, to get at
/// files or at the network by other ways than those that Landlock watches.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_personality,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_acct,
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// To open connections.
const REFUSED_WITHOUT_NETWORK: [libc::c_long; 2] = [libc::SYS_socket, libc::SYS_connect];

#[cfg(target_arch = "x86_64")]
const REFUSED_ON_X86: [libc::c_long; 3] =
    [libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_kexec_file_load];

/// The bit of a call with pointers of 32 bits (`__X32_SYSCALL_BIT`).
#[cfg(target_arch = "x86_64")]
const X32: libc::c_long = 0x4000_0000;

/// Those that have a number of their own there: execve, ptrace, kexec_load, process_vm_readv,
/// process_vm_writev, execveat.
#[cfg(target_arch = "x86_64")]
const REFUSED_ON_X32: [libc::c_long; 6] = [520, 521, 528, 539, 540, 545];

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::PermissionDenied;
    use std::net::TcpStream;
    use std::process::Command;
    use std::thread;

    use super::*;

    /// A folder with data, a folder to write to, and a file outside both.
    fn ground() -> (tempfile::TempDir, Places) {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["data", "cache", "run"] {
            std::fs::create_dir(at(folder)).unwrap();
        }
        for file in ["data/image", "outside", "run/socket"] {
            std::fs::write(at(file), file).unwrap();
        }
        let places = Places {
            read: vec![at("data"), "/proc/self".into(), at("not-there")],
            written: vec![at("cache")],
            cleared: vec![at("run")],
            network: Network::Nothing,
        };
        (dir, places)
    }

    /// Both hold for the thread that asks for them alone, and what it starts.
    #[test]
    fn a_confined_thread_reaches_its_places_and_runs_nothing() {
        let (dir, places) = ground();
        let root = dir.path().to_owned();
        let confined = thread::spawn(move || {
            let at = |name: &str| root.join(name);
            let confined = Sandbox::Required.enforce(&places);
            let line = match confined {
                Ok(confined) => confined.to_string(),
                Err(why) => return println!("skipped: {why:#}"),
            };
            assert!(line.starts_with("confined: Landlock "), "{line}");
            assert!(line.ends_with(", seccomp, no new privileges"), "{line}");
            let denied = |result: std::io::Result<()>| {
                assert_eq!(result.unwrap_err().kind(), PermissionDenied);
            };
            assert_eq!(std::fs::read_to_string(at("data/image")).unwrap(), "data/image");
            assert!(std::fs::read_to_string("/proc/self/stat").unwrap().contains(") "));
            denied(std::fs::read("/etc/passwd").map(drop));
            denied(std::fs::read(at("outside")).map(drop));
            denied(std::fs::write(at("data/image"), "changed"));
            denied(std::fs::write(at("data/new"), "made"));
            denied(std::fs::write(at("run/new"), "made"));
            std::fs::remove_file(at("run/socket")).unwrap();
            std::fs::create_dir(at("cache/a")).unwrap();
            std::fs::write(at("cache/a/one"), "made").unwrap();
            std::fs::rename(at("cache/a/one"), at("cache/two")).unwrap();
            std::fs::remove_file(at("cache/two")).unwrap();
            denied(Command::new("/bin/true").status().map(drop));
            denied(TcpStream::connect("127.0.0.1:9").map(drop));
            // What it starts is confined, too.
            let child = thread::spawn(|| std::fs::read("/etc/passwd").map(drop));
            denied(child.join().unwrap());
        });
        confined.join().unwrap();
        std::fs::read("/etc/passwd").unwrap();
    }

    #[test]
    fn a_thread_that_need_not_be_confined_says_so() {
        let off = Sandbox::Off.enforce(&Places::default()).unwrap();
        assert_eq!(off.to_string(), "not confined: --sandbox off");
        std::fs::read("/etc/passwd").unwrap();
        // The test program has threads.
        let _other = thread::spawn(thread::park);
        let line = Sandbox::Required.others().unwrap_err().to_string();
        assert!(line.contains("give --sandbox auto"), "{line}");
        let others = Sandbox::Auto.others().unwrap();
        let off = Sandbox::Off.enforce(&Places::default()).unwrap().beside(others);
        let line = off.to_string();
        assert!(line.ends_with("threads that ran before are not confined"), "{line}");
        assert_eq!(Sandbox::Off.others().unwrap(), None);
    }

    #[test]
    fn the_filter_knows_every_call_once() {
        for network in [Network::Nothing, Network::Others] {
            let mut calls = refused(network);
            calls.sort_unstable();
            let n_calls = calls.len();
            calls.dedup();
            assert_eq!(calls.len(), n_calls);
            let connects = !calls.contains(&libc::SYS_connect);
            assert_eq!(connects, network == Network::Others);
        }
    }

    #[test]
    fn with_data_in_a_store_it_connects_and_reaches_no_more_files() {
        let (dir, places) = ground();
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let outside = dir.path().join("outside");
        let confined = thread::spawn(move || {
            let places = Places { network: Network::Others, ..places };
            if let Err(why) = Sandbox::Required.enforce(&places) {
                return println!("skipped: {why:#}");
            }
            TcpStream::connect(address).unwrap();
            let read = std::fs::read(outside);
            assert_eq!(read.unwrap_err().kind(), PermissionDenied);
            let bound = std::net::TcpListener::bind("127.0.0.1:0");
            assert_eq!(bound.unwrap_err().kind(), PermissionDenied);
        });
        confined.join().unwrap();
    }
}
