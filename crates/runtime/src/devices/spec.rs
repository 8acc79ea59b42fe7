//! The devices of a run: what `--csd` says, and the emulated device's process.
//!
//! The only place that spawns a process. An emulated device (`sim:`) is a child reached over
//! a socket or a spool directory like any other device; it holds none of the host's state.
//! It ends by itself when its standard input closes, which the kernel does for us if this
//! process is killed. What is done with a connected device is in `devices/thread.rs`.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bothends_csd::address::Address;

use crate::error::RuntimeError;

/// How long a device process may take until it listens, and to end once it is told to.
const START_TIMEOUT: Duration = Duration::from_secs(20);
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// One `--csd` flag.
#[derive(Debug, Clone, PartialEq)]
pub enum DeviceSpec {
    /// An emulated device in a child process of this run.
    Sim(SimSpec),
    /// A device that is already there.
    At {
        /// As given, for messages and results.
        text: String,
        /// Where it listens.
        address: Address,
    },
}

/// `sim:PRESET[,key=value...]`.
#[derive(Debug, Clone, PartialEq)]
pub struct SimSpec {
    /// As given, for messages and results.
    pub text: String,
    /// A preset's name, or a file.
    pub preset: String,
    /// Its speed, if not the preset's own.
    pub rate: Option<SimRate>,
    /// Cores of the device, if not the preset's.
    pub cores: Option<u32>,
    /// `functional` or `paced`.
    pub time: String,
    /// The CPU of this machine on which it computes.
    pub pin: Option<u32>,
    /// How the host reaches it: `unix`, `tcp` or `spool`.
    pub via: Via,
    /// Fault specifications, as firmware-sim reads them.
    pub faults: Vec<String>,
}

/// The rate of an emulated device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SimRate {
    /// So many images per second.
    Absolute(f64),
    /// This fraction of the host's rate, measured at the start of the run.
    OfHost(f64),
}

/// How an emulated device is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// A Unix socket.
    Unix,
    /// TCP on the loopback interface.
    Tcp,
    /// A spool directory.
    Spool,
}

impl DeviceSpec {
    /// As given on the command line.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Sim(sim) => &sim.text,
            Self::At { text, .. } => text,
        }
    }

    /// The device's rate as a part of the host's, where it was given so. The host's own rate
    /// must then be known before the device can start.
    #[must_use]
    pub fn rate_of_host(&self) -> Option<f64> {
        match self {
            Self::Sim(SimSpec { rate: Some(SimRate::OfHost(part)), .. }) => Some(*part),
            Self::Sim(_) | Self::At { .. } => None,
        }
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// What a device's text may begin with, and what is said of any other.
const SCHEMES: [&str; 3] = ["tcp://", "unix://", "spool://"];
const EXPECTED: &str =
    "expected sim:PRESET, tcp://HOST:PORT, unix:///PATH or spool:///DIRECTORY";

impl FromStr for DeviceSpec {
    type Err = RuntimeError;

    fn from_str(text: &str) -> Result<Self, RuntimeError> {
        if let Some(rest) = text.strip_prefix("sim:") {
            return SimSpec::parse(text, rest).map(Self::Sim);
        }
        let wrong = |why: String| RuntimeError::DeviceSpec { spec: text.to_owned(), why };
        let is_address = SCHEMES.iter().any(|scheme| text.starts_with(scheme));
        if !is_address {
            return Err(wrong(EXPECTED.to_owned()));
        }
        let address =
            text.parse::<Address>().map_err(|source| wrong(source.to_string()))?;
        Ok(Self::At { text: text.to_owned(), address })
    }
}

impl SimSpec {
    fn parse(text: &str, rest: &str) -> Result<Self, RuntimeError> {
        let wrong = |why: String| RuntimeError::DeviceSpec { spec: text.to_owned(), why };
        let mut parts = rest.split(',');
        let preset = parts.next().unwrap_or_default().to_owned();
        if preset.is_empty() {
            return Err(wrong(
                "name a preset: sim:PRESET, for example sim:newport".into(),
            ));
        }
        let mut spec = Self {
            text: text.to_owned(),
            preset,
            rate: None,
            cores: None,
            time: "paced".to_owned(),
            pin: None,
            via: Via::Unix,
            faults: Vec::new(),
        };
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            spec.set(key, value).map_err(wrong)?;
        }
        Ok(spec)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let number = |what: &str| format!("`{key}={value}`: {what}");
        match key {
            "rate" => {
                self.rate = Some(SimRate::parse(value).ok_or_else(|| {
                    number("give a rate like 0.235x (of the host's) or 150 (images per second)")
                })?);
            }
            "cores" => {
                let cores = value.parse().ok().filter(|n| *n > 0);
                self.cores = Some(cores.ok_or_else(|| number("give a number from 1"))?);
            }
            "time" if matches!(value, "functional" | "paced") => {
                self.time = value.to_owned();
            }
            "time" => return Err(number("the modes are functional and paced")),
            "pin" => {
                self.pin = Some(value.parse().map_err(|_| number("give a CPU number"))?);
            }
            "via" => {
                self.via = match value {
                    "unix" => Via::Unix,
                    "tcp" => Via::Tcp,
                    "spool" => Via::Spool,
                    _ => return Err(number("the ways are unix, tcp and spool")),
                };
            }
            "fault" if !value.is_empty() => self.faults.push(value.to_owned()),
            "fault" => return Err(number("give a fault, for example die@50%")),
            _ => {
                return Err(format!(
                    "`{key}` is no key of a sim device; \
                     the keys are rate, cores, time, pin, via and fault"
                ));
            }
        }
        Ok(())
    }
}

impl SimRate {
    fn parse(value: &str) -> Option<Self> {
        let positive =
            |text: &str| text.parse().ok().filter(|n: &f64| n.is_finite() && *n > 0.0);
        match value.strip_suffix('x') {
            Some(fraction) => positive(fraction).map(Self::OfHost),
            None => positive(value).map(Self::Absolute),
        }
    }
}

/// What an emulated device is told beside its specification.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SimSetting<'a> {
    /// The folder its media hold.
    pub(crate) media: &'a Path,
    /// The host's own rate, where it has been measured.
    pub(crate) host_images_per_s: Option<f64>,
    /// Batches the device is expected to make in an epoch: what `@P%` counts in.
    pub(crate) expected_batches: u32,
    /// Seed of its faults.
    pub(crate) seed: u64,
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
        setting: SimSetting<'_>,
    ) -> Result<Self, RuntimeError> {
        let failed = |why: String| RuntimeError::Spawn { spec: spec.text.clone(), why };
        let program = firmware_sim().map_err(failed)?;
        let mut command = Command::new(&program);
        command.args(arguments(spec, setting)).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
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
}

impl DeviceProcess {
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
            Address::Unix(path) => drop(std::fs::remove_file(path)),
            Address::Spool(path) => drop(std::fs::remove_dir_all(path)),
            Address::Tcp { .. } => {}
        }
    }
}

impl Drop for DeviceProcess {
    fn drop(&mut self) {
        self.end();
        self.clear_away();
    }
}

/// The binary beside the running one (or one folder up, where test binaries live), else the
/// one that the environment names, else the one on the PATH.
pub(crate) fn firmware_sim() -> Result<PathBuf, String> {
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
    if let Some(path) = std::env::var_os("BOTHENDS_FIRMWARE_SIM") {
        return Ok(PathBuf::from(path));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|d| d.join("firmware-sim"))
        .find(|p| p.is_file())
        .ok_or_else(|| {
            "the program firmware-sim is neither beside this one nor on the PATH; \
             build it with `cargo build --release` or name it in BOTHENDS_FIRMWARE_SIM"
                .to_owned()
        })
}

fn arguments(spec: &SimSpec, setting: SimSetting<'_>) -> Vec<String> {
    let mut args = vec!["--preset".to_owned(), spec.preset.clone()];
    let mut put = |key: &str, value: String| args.extend([format!("--{key}"), value]);
    put("media", setting.media.display().to_string());
    put("listen", listen_url(spec.via));
    put("time", spec.time.clone());
    put("seed", setting.seed.to_string());
    put("fault-batches", setting.expected_batches.to_string());
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
    args.extend(["--once".to_owned(), "--die-with-stdin".to_owned()]);
    args
}

/// A place nobody else uses: process id and a counter make it unique on this machine.
fn listen_url(via: Via) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // The counter only needs distinct values.
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let place = std::env::temp_dir().join(format!("bothends-{}-{n}", std::process::id()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sim_spec_keeps_every_key() {
        let text = "sim:newport,rate=0.235x,cores=2,fault=die@50%,fault=late@3%,\
                    time=functional,pin=1,via=spool";
        let DeviceSpec::Sim(sim) = text.parse().expect("it is well formed") else {
            panic!("not a sim device");
        };
        assert_eq!(sim.preset, "newport");
        assert_eq!(sim.rate, Some(SimRate::OfHost(0.235)));
        assert_eq!((sim.cores, sim.pin, sim.via), (Some(2), Some(1), Via::Spool));
        assert_eq!(sim.time, "functional");
        assert_eq!(sim.faults, ["die@50%", "late@3%"]);
    }

    #[test]
    fn a_wrong_key_is_named_with_the_right_ones() {
        for (text, part) in [
            ("sim:newport,speed=3", "`speed` is no key"),
            ("sim:", "name a preset"),
            ("sim:newport,rate=-1x", "give a rate"),
            ("sim:newport,time=virtual", "functional and paced"),
            ("nas:7070", "nas:7070"),
        ] {
            let error = text.parse::<DeviceSpec>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
