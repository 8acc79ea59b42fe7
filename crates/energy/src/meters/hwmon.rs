//! Sensors of the board: `/sys/class/hwmon/*` with an energy counter (`energy1_input`), a power
//! (`power1_input`, `power1_average`), or, on chips of the INA family, a voltage and a current.
//!
//! Only the board's maker knows what a sensor is soldered to. Its domains are therefore not added
//! to anything, except for the ACPI power meter, which measures the whole machine.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::error::EnergyError;
use crate::meters::integral::Integral;
use crate::meters::risen;
use crate::meters::sysfs::{Files, Tree};
use crate::{Counter, Domain, Meter, Part};

const NAME: &str = "hwmon";
const REMEDY: &str = "let this user read it, or name another chip with hwmon:NAME";

/// Most sensors of one kind on a chip.
const MOST_SENSORS: u32 = 16;

/// The chip that ACPI describes (`Documentation/hwmon/acpi_power_meter.rst` of Linux).
const WHOLE_MACHINE: &str = "power_meter";

/// The sensors that count energy or state power.
#[derive(Debug)]
pub struct Hwmon {
    files: Files,
    began: Instant,
    domains: Vec<Domain>,
    sensors: Vec<Sensor>,
}

#[derive(Debug)]
enum Sensor {
    /// Microjoules.
    Energy { file: PathBuf, last_uj: u64 },
    /// Microwatts.
    Power { file: PathBuf, integral: Integral },
    /// Millivolts and milliamperes.
    VoltageAndCurrent { voltage: PathBuf, current: PathBuf, integral: Integral },
}

impl Hwmon {
    /// Finds the sensors of the chip called `chip`, or of all chips, and reads each once.
    ///
    /// # Errors
    /// There are none, or one of them cannot be read.
    pub fn open(tree: &Tree, chip: Option<&str>) -> Result<Self, EnergyError> {
        let files = Files::new(tree, NAME, REMEDY);
        let (mut domains, mut sensors, mut chips) = (Vec::new(), Vec::new(), Vec::new());
        for folder in files.list("sys/class/hwmon")? {
            let Some(name) = files.text_if_there(&folder.join("name"))? else { continue };
            if chip.is_none_or(|wanted| wanted == name) {
                for (label, sensor) in sensors_of(&files, &folder, &name)? {
                    domains.push(domain(&domains, &name, &label));
                    sensors.push(sensor);
                }
            }
            chips.push(name);
        }
        if sensors.is_empty() {
            let which = chip.map_or(String::new(), |chip| format!(" called `{chip}`"));
            let chips = match chips.as_slice() {
                [] => "no chip at all".to_owned(),
                some => some.join(", "),
            };
            let why =
                format!("no chip{which} has an energy or power sensor; here is {chips}");
            return Err(files.absent(why));
        }
        let mut meter = Self { files, began: Instant::now(), domains, sensors };
        meter.read()?;
        Ok(meter)
    }
}

/// A domain whose name is not among `others`: two chips may have the same name.
fn domain(others: &[Domain], chip: &str, label: &str) -> Domain {
    let part = if chip == WHOLE_MACHINE { Part::Machine } else { Part::Other };
    let plain = format!("{chip}/{label}");
    let mut name = plain.clone();
    let mut n = 1;
    while others.iter().any(|other| other.name == name) {
        n += 1;
        name = format!("{plain}#{n}");
    }
    Domain::measured(NAME, name, part)
}

/// The sensors of a chip with their labels. If it counts energy, its power is not read; if
/// it states power, voltage and current are not.
fn sensors_of(
    files: &Files,
    folder: &Path,
    chip: &str,
) -> Result<Vec<(String, Sensor)>, EnergyError> {
    let mut found = Vec::new();
    let there = |name: String| Some(folder.join(name)).filter(|path| path.exists());
    for n in 0..MOST_SENSORS {
        if let Some(file) = there(format!("energy{n}_input")) {
            let last_uj = files.number(&file)?;
            let label = label(files, folder, &format!("energy{n}"))?;
            found.push((label, Sensor::Energy { file, last_uj }));
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    for n in 0..MOST_SENSORS {
        let file = there(format!("power{n}_input"))
            .or_else(|| there(format!("power{n}_average")));
        if let Some(file) = file {
            let label = label(files, folder, &format!("power{n}"))?;
            found.push((label, Sensor::Power { file, integral: Integral::default() }));
        }
    }
    if !found.is_empty() || !chip.starts_with("ina") {
        return Ok(found);
    }
    for n in 0..MOST_SENSORS {
        let pair = there(format!("in{n}_input")).zip(there(format!("curr{n}_input")));
        if let Some((voltage, current)) = pair {
            let label = label(files, folder, &format!("in{n}"))?;
            let integral = Integral::default();
            found.push((label, Sensor::VoltageAndCurrent { voltage, current, integral }));
        }
    }
    Ok(found)
}

/// The board maker's name for a sensor, or else the name of its file.
fn label(files: &Files, folder: &Path, sensor: &str) -> Result<String, EnergyError> {
    let label = files.text_if_there(&folder.join(format!("{sensor}_label")))?;
    Ok(label.filter(|label| !label.is_empty()).unwrap_or_else(|| sensor.to_owned()))
}

/// A number of millionths or thousandths of something.
#[expect(clippy::cast_precision_loss, reason = "sensors have far less than 53 bits")]
fn amount(files: &Files, file: &Path) -> Result<f64, EnergyError> {
    Ok(files.number(file)? as f64)
}

impl Meter for Hwmon {
    fn name(&self) -> &str {
        NAME
    }

    fn domains(&self) -> &[Domain] {
        &self.domains
    }

    fn read(&mut self) -> Result<Vec<Counter>, EnergyError> {
        let Self { files, began, domains, sensors } = self;
        let mut counters = Vec::with_capacity(sensors.len());
        for (sensor, domain) in sensors.iter_mut().zip(domains) {
            let energy_uj = match sensor {
                Sensor::Energy { file, last_uj } => {
                    risen(NAME, domain, last_uj, files.number(file)?)?
                }
                Sensor::Power { file, integral } => {
                    let watts = amount(files, file)? / 1e6;
                    integral.add(began.elapsed(), watts)
                }
                Sensor::VoltageAndCurrent { voltage, current, integral } => {
                    // Thousandths of volts times thousandths of amperes are millionths of watts.
                    let watts = amount(files, voltage)? * amount(files, current)? / 1e6;
                    integral.add(began.elapsed(), watts)
                }
            };
            counters.push(Counter { energy_uj });
        }
        Ok(counters)
    }
}
