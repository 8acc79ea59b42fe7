//! Which meters a run uses (`--energy SPEC`), and which are available.

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;

use crate::Meter;
use crate::error::EnergyError;
use crate::meters::command::CommandMeter;
use crate::meters::hwmon::Hwmon;
use crate::meters::nvml::{self, NvmlMeter};
use crate::meters::perf::Perf;
use crate::meters::rapl::Rapl;
use crate::meters::sysfs::Tree;

/// A meter, as `--energy` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MeterSpec {
    /// Every meter that this user may read, if any.
    Auto,
    /// The processors, through powercap.
    Rapl,
    /// The processors, through perf.
    Perf,
    /// NVIDIA's accelerators.
    Nvml,
    /// Sensors of the board: of one chip, or of all.
    Hwmon(Option<String>),
    /// A program that prints watts.
    Command(String),
}

/// The meters that need no argument.
const PLAIN: [MeterSpec; 4] =
    [MeterSpec::Rapl, MeterSpec::Perf, MeterSpec::Nvml, MeterSpec::Hwmon(None)];

impl FromStr for MeterSpec {
    type Err = EnergyError;

    fn from_str(spec: &str) -> Result<Self, EnergyError> {
        let (kind, argument) = match spec.split_once(':') {
            Some((kind, argument)) => (kind, Some(argument.trim())),
            None => (spec, None),
        };
        match (kind, argument) {
            ("auto", None) => Ok(Self::Auto),
            ("rapl", None) => Ok(Self::Rapl),
            ("perf", None) => Ok(Self::Perf),
            ("nvml", None) => Ok(Self::Nvml),
            ("hwmon", None) => Ok(Self::Hwmon(None)),
            ("hwmon", Some(chip)) if !chip.is_empty() => {
                Ok(Self::Hwmon(Some(chip.to_owned())))
            }
            ("command", Some(command)) if !command.is_empty() => {
                Ok(Self::Command(command.to_owned()))
            }
            _ => Err(EnergyError::Spec { spec: spec.to_owned() }),
        }
    }
}

impl fmt::Display for MeterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Rapl => f.write_str("rapl"),
            Self::Perf => f.write_str("perf"),
            Self::Nvml => f.write_str("nvml"),
            Self::Hwmon(None) => f.write_str("hwmon"),
            Self::Hwmon(Some(chip)) => write!(f, "hwmon:{chip}"),
            Self::Command(command) => write!(f, "command:{command}"),
        }
    }
}

/// Where meters are looked for.
#[derive(Debug, Clone)]
pub struct Places {
    /// The kernel's files.
    pub tree: Tree,
    /// NVIDIA's library.
    pub nvml: OsString,
}

impl Default for Places {
    fn default() -> Self {
        Self { tree: Tree::system(), nvml: OsString::from(nvml::LIBRARY) }
    }
}

/// Meters that can be read, and why others cannot.
#[derive(Debug, Default)]
pub struct Opened {
    /// Each has been read once.
    pub meters: Vec<Box<dyn Meter>>,
    /// Why `auto` left a meter out.
    pub absent: Vec<EnergyError>,
}

/// Opens the requested meters. A meter that is requested twice is opened once.
///
/// # Errors
/// A meter that was requested by name cannot be read. What `auto` cannot read is not an error; it is
/// listed in [`Opened::absent`].
pub fn open(specs: &[MeterSpec], places: &Places) -> Result<Opened, EnergyError> {
    let mut opened = Opened::default();
    let mut seen: Vec<&MeterSpec> = Vec::new();
    for spec in specs {
        if *spec != MeterSpec::Auto && !seen.contains(&spec) {
            opened.meters.push(open_one(spec, places)?);
            seen.push(spec);
        }
    }
    if specs.contains(&MeterSpec::Auto) {
        let mut known: Vec<String> = names(&opened);
        for spec in PLAIN {
            let name = spec.to_string();
            // Perf reads the same registers as RAPL.
            let is_same = spec == MeterSpec::Perf && known.contains(&"rapl".to_owned())
                || spec == MeterSpec::Rapl && known.contains(&"perf".to_owned());
            if known.contains(&name) || is_same {
                continue;
            }
            match open_one(&spec, places) {
                Ok(meter) => {
                    known.push(name);
                    opened.meters.push(meter);
                }
                Err(error) => opened.absent.push(error),
            }
        }
    }
    Ok(opened)
}

fn names(opened: &Opened) -> Vec<String> {
    opened.meters.iter().map(|meter| meter.name().to_owned()).collect()
}

/// Tries every meter that needs no argument: its name with its domains, or why it is unavailable.
#[must_use]
pub fn survey(places: &Places) -> Vec<(String, Result<Vec<String>, EnergyError>)> {
    let found = PLAIN.map(|spec| {
        let found = open_one(&spec, places).map(|meter| {
            meter.domains().iter().map(|domain| domain.name.clone()).collect()
        });
        (spec.to_string(), found)
    });
    found.into()
}

fn open_one(spec: &MeterSpec, places: &Places) -> Result<Box<dyn Meter>, EnergyError> {
    Ok(match spec {
        // The caller has expanded a request for all meters.
        MeterSpec::Auto => return Err(EnergyError::Spec { spec: spec.to_string() }),
        MeterSpec::Rapl => Box::new(Rapl::open(&places.tree)?),
        MeterSpec::Perf => Box::new(Perf::open(&places.tree)?),
        MeterSpec::Nvml => Box::new(NvmlMeter::open(&places.nvml)?),
        MeterSpec::Hwmon(chip) => Box::new(Hwmon::open(&places.tree, chip.as_deref())?),
        MeterSpec::Command(command) => Box::new(CommandMeter::open(command)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_is_read_as_it_is_written() {
        let specs = [
            "auto",
            "rapl",
            "perf",
            "nvml",
            "hwmon",
            "hwmon:ina3221",
            "command:sh -c 'echo 1:2'",
        ];
        for text in specs {
            assert_eq!(text.parse::<MeterSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_names_no_meter_is_told_what_does() {
        for text in ["", "watt", "rapl:0", "hwmon:", "command:", "command", "command: "] {
            let error = text.parse::<MeterSpec>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("`{text}` is not a meter; use auto, rapl")),
                "{error}"
            );
        }
    }

    #[test]
    fn auto_says_what_is_not_there_and_a_name_insists() {
        let nowhere = tempfile::tempdir().unwrap();
        let places = Places {
            tree: Tree::at(nowhere.path()),
            nvml: nowhere.path().join("libnone.so").into(),
        };
        let opened = open(&[MeterSpec::Auto], &places).unwrap();
        assert!(opened.meters.is_empty());
        let why: Vec<String> = opened.absent.iter().map(ToString::to_string).collect();
        assert_eq!(why.len(), 4, "{why:?}");
        for (name, line) in ["rapl", "perf", "nvml", "hwmon"].iter().zip(&why) {
            assert!(line.starts_with(&format!("no meter `{name}` here: ")), "{line}");
        }
        assert!(open(&[MeterSpec::Auto, MeterSpec::Rapl], &places).is_err());
        let command = MeterSpec::Command("echo 5".to_owned());
        let opened = open(&[command.clone(), command, MeterSpec::Auto], &places).unwrap();
        assert_eq!(names(&opened), ["command"]);
    }
}
