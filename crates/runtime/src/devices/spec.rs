//! The devices of a run: what `--csd` says. How an emulated device is started is
//! `devices/emulator.rs`; what is done with a connected one `devices/thread.rs`.

use std::fmt;
use std::str::FromStr;

use bothends_core::nearest::did_you_mean;
use bothends_csd::address::Address;
use bothends_csd::pool::Pool;

use crate::error::RuntimeError;

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
    /// Devices that come and go, of which a source says which there are.
    Pool(Pool),
    /// A GPU of this machine, as a producer that decodes and crops.
    Gpu {
        /// As given, for messages and results.
        text: String,
        /// Which, counted from 0 among those that its driver shows.
        ordinal: u32,
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
    /// Faults, in words that the emulator alone reads.
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
            Self::Pool(pool) => &pool.text,
            Self::At { text, .. } | Self::Gpu { text, .. } => text,
        }
    }

    /// The faults that it is to have, as given.
    pub(crate) fn faults(&self) -> &[String] {
        match self {
            Self::Sim(sim) => &sim.faults,
            Self::At { .. } | Self::Pool(_) | Self::Gpu { .. } => &[],
        }
    }

    /// The device's rate as a part of the host's, where it was given so. The host's own rate
    /// must then be known before the device can start.
    #[must_use]
    pub fn rate_of_host(&self) -> Option<f64> {
        match self {
            Self::Sim(SimSpec { rate: Some(SimRate::OfHost(part)), .. }) => Some(*part),
            Self::Sim(_) | Self::At { .. } | Self::Pool(_) | Self::Gpu { .. } => None,
        }
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// What a device's text may begin with, and what is said of any other.
const SCHEMES: [&str; 7] =
    ["tcp+noise://", "tls://", "tcp://", "unix://", "spool://", "nvme-tcp://", "nvme://"];
const EXPECTED: &str = "expected sim:PRESET, tcp+noise://HOST:PORT, tls://HOST:PORT, \
                        tcp://HOST:PORT, unix:///PATH, spool:///DIRECTORY, nvme-tcp://HOST:PORT[/NQN], \
                        nvme:///dev/ngXnY, pool://HOST:PORT,... or cuda:N";

/// What begins with it is a GPU, by the number that follows.
const GPU: &str = "cuda:";
/// A device that people may have meant whose text begins with none of these.
const LIKELY: [&str; 1] = ["cuda:0"];
const KEYS: [&str; 6] = ["rate", "cores", "time", "pin", "via", "fault"];

impl FromStr for DeviceSpec {
    type Err = RuntimeError;

    fn from_str(text: &str) -> Result<Self, RuntimeError> {
        if let Some(rest) = text.strip_prefix("sim:") {
            return SimSpec::parse(text, rest).map(Self::Sim);
        }
        let wrong = |why: String| RuntimeError::DeviceSpec { spec: text.to_owned(), why };
        if let Some(ordinal) = text.strip_prefix(GPU).and_then(number) {
            return Ok(Self::Gpu { text: text.to_owned(), ordinal });
        }
        if Pool::is_meant(text) {
            let pool = text.parse::<Pool>();
            return pool.map(Self::Pool).map_err(|source| wrong(source.to_string()));
        }
        let is_address = SCHEMES.iter().any(|scheme| text.starts_with(scheme));
        if !is_address {
            return Err(wrong(format!("{EXPECTED}{}", meant(text))));
        }
        let address =
            text.parse::<Address>().map_err(|source| wrong(source.to_string()))?;
        Ok(Self::At { text: text.to_owned(), address })
    }
}

/// A number in digits alone.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// A word that begins like no device: nearly a GPU's, or a preset that lacks its `sim:`.
fn meant(text: &str) -> String {
    let gpu = did_you_mean(text, LIKELY);
    let is_word = !text.is_empty() && !text.contains([':', '/', '.']);
    if gpu.is_empty() && is_word { format!("; did you mean `sim:{text}`?") } else { gpu }
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
        if spec.rate.is_some() && spec.time == "functional" {
            let why = "`time=functional` models no time, so `rate` has no effect; leave out one of them";
            return Err(wrong(why.into()));
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
                let meant = did_you_mean(key, KEYS);
                return Err(format!(
                    "`{key}` is not a key of a sim device; \
                     the keys are rate, cores, time, pin, via and fault{meant}"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sim_spec_keeps_every_key() {
        let text = "sim:newport,rate=0.235x,cores=2,fault=die@50%,fault=late@3%,\
                    time=paced,pin=1,via=spool";
        let DeviceSpec::Sim(sim) = text.parse().expect("it is well formed") else {
            panic!("not a sim device");
        };
        assert_eq!(sim.preset, "newport");
        assert_eq!(sim.rate, Some(SimRate::OfHost(0.235)));
        assert_eq!((sim.cores, sim.pin, sim.via), (Some(2), Some(1), Via::Spool));
        assert_eq!(sim.time, "paced");
        assert_eq!(sim.faults, ["die@50%", "late@3%"]);
    }

    #[test]
    fn a_rate_without_time_is_refused() {
        let error = "sim:newport,rate=2x,time=functional".parse::<DeviceSpec>();
        assert!(error.unwrap_err().to_string().contains("models no time"));
    }

    #[test]
    fn a_gpu_is_named_by_its_number() {
        for (text, ordinal) in [("cuda:0", 0), ("cuda:13", 13)] {
            let expected = DeviceSpec::Gpu { text: text.to_owned(), ordinal };
            assert_eq!(text.parse::<DeviceSpec>().unwrap(), expected);
        }
        for text in ["cuda:x", "cuda:", "cuda", "cuda:+1", "CUDA:0", "gpu", "gpu:0"] {
            let error = text.parse::<DeviceSpec>().expect_err(text).to_string();
            let meant = "or cuda:N; did you mean `cuda:0`?";
            assert!(error.contains(meant), "{text}: {error}");
        }
    }

    #[test]
    fn a_wrong_key_is_named_with_the_right_ones() {
        for (text, part) in [
            ("sim:newport,speed=3", "`speed` is not a key"),
            ("sim:", "name a preset"),
            ("sim:newport,rate=-1x", "give a rate"),
            ("sim:newport,time=virtual", "functional and paced"),
            ("nas:7070", "nas:7070"),
            ("newport", "did you mean `sim:newport`?"),
            ("newport,rate=3", "did you mean `sim:newport,rate=3`?"),
        ] {
            let error = text.parse::<DeviceSpec>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
