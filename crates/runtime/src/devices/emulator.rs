//! An emulated device's process: how `firmware-sim` is found, started and ended.
//!
//! The only place that spawns a process, and the only one that knows the emulator's flags. Faults
//! are passed on in the words that they were given in. An emulated device (`sim:`) is a child reached over a socket or a spool
//! directory like any other device; it holds none of the host's state. It ends by itself when
//! its standard input closes, which the kernel does for us if this process is killed.

use std::fs::FileType;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bothends_csd::address::Address;
use bothends_io::Roots;
use nix::unistd::geteuid;

use crate::config::run::RunConfig;
use crate::devices::spec::{SimRate, SimSpec, Via};
use crate::error::RuntimeError;

/// How long a device process may take until it listens, and to end once it is told to.
const START_TIMEOUT: Duration = Duration::from_secs(20);
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// What an emulated device is told besides its specification.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting<'a> {
    /// The run.
    pub(crate) run: &'a RunConfig,
    /// The device's number in it.
    pub(crate) nth: usize,
    /// The folders that the device's media hold.
    pub(crate) media: &'a Roots,
    /// Samples of an epoch of all ranks.
    pub(crate) n_in_epoch: u64,
    /// The host's own rate, where it has been measured.
    pub(crate) host_images_per_s: Option<f64>,
}

/// The child process of an emulated device. Dropping it ends the process: first by closing
/// its standard input, after two seconds by a kill. What a process that died could not remove
/// is then removed for it: its address was made by us and is nobody else's.
#[derive(Debug)]
pub(crate) struct DeviceProcess {
    child: Child,
    /// Where it listens.
    pub(crate) address: Address,
}

impl DeviceProcess {
    /// Starts firmware-sim and waits until it listens.
    pub(crate) fn spawn(
        spec: &SimSpec,
        setting: &Setting<'_>,
    ) -> Result<Self, RuntimeError> {
        let failed = |why: String| RuntimeError::Spawn { spec: spec.text.clone(), why };
        let program = firmware_sim().map_err(failed)?;
        let mut command = Command::new(&program);
        command.args(arguments(spec, setting)).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // A terminal's Ctrl-C goes to a whole group: this process decides when its devices end.
        command.process_group(0);
        let mut child = command.spawn().map_err(|e| {
            failed(format!(
                "{} did not start ({e}); is it executable?",
                program.display()
            ))
        })?;
        match wait_until_listening(&mut child) {
            Ok(address) => Ok(Self { child, address }),
            Err(silence) => {
                // It is of no use whether or not it still runs.
                let _ = child.kill();
                let _ = child.wait();
                Err(failed(last_words(&mut child).unwrap_or(silence)))
            }
        }
    }

    /// How the process ended, if it has; does not wait.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    fn end(&mut self) {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + END_TIMEOUT;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // It did not end by itself: a stalled or broken device must not outlive the run.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Removes what a device that died could not remove itself.
    fn clear_away(&self) {
        match &self.address {
            Address::Unix(path) if is_own(path, FileType::is_socket) => {
                drop(std::fs::remove_file(path));
            }
            Address::Spool(path) if is_own(path, FileType::is_dir) => {
                drop(std::fs::remove_dir_all(path));
            }
            Address::Unix(_)
            | Address::Spool(_)
            | Address::Tcp { .. }
            | Address::Noise { .. }
            | Address::Tls { .. }
            | Address::Nvme(_)
            | Address::Drive(_) => {}
        }
    }
}

impl Drop for DeviceProcess {
    fn drop(&mut self) {
        self.end();
        self.clear_away();
    }
}

/// The program that the environment names, as the Python package does with its own, else the one next to the
/// running one (or one folder up, where test binaries live), else the one on the PATH.
pub(crate) fn firmware_sim() -> Result<PathBuf, String> {
    // First: in the package the running program is Python's, and another version may lie next to it.
    if let Some(path) = std::env::var_os("BOTHENDS_FIRMWARE_SIM") {
        return Ok(PathBuf::from(path));
    }
    let beside = std::env::current_exe().ok().and_then(|exe| {
        exe.ancestors()
            .skip(1)
            .take(2)
            .map(|d| d.join("firmware-sim"))
            .find(|p| p.is_file())
    });
    if let Some(path) = beside {
        return Ok(path);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|d| d.join("firmware-sim"))
        .find(|p| p.is_file())
        .ok_or_else(|| {
            "the program firmware-sim is neither next to this one nor on the PATH; \
             build it with `cargo build --release` or name it in BOTHENDS_FIRMWARE_SIM"
                .to_owned()
        })
}

fn arguments(spec: &SimSpec, setting: &Setting<'_>) -> Vec<String> {
    let mut args = vec!["--preset".to_owned(), spec.preset.clone()];
    let mut put = |key: &str, value: String| args.extend([format!("--{key}"), value]);
    for (name, folder) in setting.media.named() {
        let folder = match name {
            Some(name) => format!("{name}={}", folder.display()),
            // One with an `=` in its name must not look like a named one.
            None if folder.is_relative() => format!("./{}", folder.display()),
            None => folder.display().to_string(),
        };
        put("media", folder);
    }
    put("listen", listen_url(spec.via));
    put("time", spec.time.clone());
    put("seed", setting.run.seed.wrapping_add(setting.nth as u64).to_string());
    match (spec.rate, setting.host_images_per_s) {
        (Some(SimRate::Absolute(rate)), _) => put("rate", rate.to_string()),
        (Some(SimRate::OfHost(part)), Some(host)) => {
            put("rate", (part * host).to_string());
        }
        (Some(SimRate::OfHost(_)), None) | (None, _) => {}
    }
    if let Some(cores) = spec.cores {
        put("cores", cores.to_string());
    }
    if let Some(cpu) = spec.pin {
        put("pin", cpu.to_string());
    }
    for fault in &spec.faults {
        put("fault", fault.clone());
    }
    if !spec.faults.is_empty() {
        // A device cannot work it out: a session's list has each sample once, however often an epoch repeats it, and
        // says nothing of a mix's length or of the other ranks. As by default, a device makes half of an epoch.
        let RunConfig { rank, batch_size, .. } = setting.run;
        let n_rows = u64::from(rank.world) * u64::from(*batch_size);
        let n_batches = setting.n_in_epoch.div_ceil(n_rows.max(1));
        put("fault-batches", (n_batches / 2).max(1).to_string());
    }
    args.extend(["--once".to_owned(), "--die-with-stdin".to_owned()]);
    args
}

/// Whether what has this name is this user's, and of this kind: a temporary folder is everybody's.
fn is_own(path: &Path, is_of_kind: impl FnOnce(&FileType) -> bool) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| {
        found.uid() == geteuid().as_raw() && is_of_kind(&found.file_type())
    })
}

/// A place that nobody else uses, nor can guess and take before the device does: the standard
/// library's hashers begin with random numbers of the system.
fn listen_url(via: Via) -> String {
    let process = std::process::id();
    let random = RandomState::new().hash_one(process);
    let place = std::env::temp_dir().join(format!("bothends-{process}-{random:016x}"));
    match via {
        Via::Unix => format!("unix://{}.sock", place.display()),
        Via::Spool => format!("spool://{}.spool", place.display()),
        Via::Tcp => "tcp://127.0.0.1:0".to_owned(),
    }
}

/// Waits for the line `listening on URL`. The line is read on a thread of its own so that a
/// silent child cannot hold the run up.
fn wait_until_listening(child: &mut Child) -> Result<Address, String> {
    let stdout = child.stdout.take().ok_or("its output cannot be read")?;
    let (tell, told) = mpsc::channel();
    let reader = std::thread::Builder::new().name("be-device-start".to_owned());
    reader
        .spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(stdout).read_line(&mut line);
            let _ = tell.send(line);
        })
        .map_err(|e| format!("cannot start a thread: {e}"))?;
    let line = told.recv_timeout(START_TIMEOUT).map_err(|_| {
        format!("it did not say where it listens within {} s", START_TIMEOUT.as_secs())
    })?;
    let url = line.trim().strip_prefix("listening on ").unwrap_or_default();
    url.parse::<Address>().map_err(|_| match line.trim() {
        "" => "it ended before it listened".to_owned(),
        other => format!("it said `{other}` where `listening on URL` was expected"),
    })
}

/// What the child wrote to its standard error before it ended: its own one-line error.
fn last_words(child: &mut Child) -> Option<String> {
    let mut words = String::new();
    child.stderr.take()?.take(4096).read_to_string(&mut words).ok()?;
    let said = |line: &&str| line.starts_with("error: ");
    let line =
        words.lines().find(said).or(words.lines().rfind(|line| !line.is_empty()))?;
    Some(line.trim().trim_start_matches("error: ").to_owned())
}
