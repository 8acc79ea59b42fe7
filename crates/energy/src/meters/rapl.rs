//! RAPL through powercap: the processors' own counters, one file for each domain
//! (`/sys/class/powercap/intel-rapl:0/energy_uj`; AMD's have the same names).
//!
//! A counter wraps around at `max_energy_range_uj`. Under load, most processors reach it every few
//! minutes, so a `Session` reads it far more often. By default only root may read it
//! (docs/energy.md).

use std::path::{Path, PathBuf};

use crate::error::EnergyError;
use crate::meters::integral::Register;
use crate::meters::sysfs::{Files, Tree};
use crate::{Counter, Domain, Meter, Part};

const NAME: &str = "rapl";
const REMEDY: &str = "let it be read with `sudo chmod a+r \
    /sys/class/powercap/intel-rapl:*/energy_uj` (until the next start; docs/energy.md has a \
    rule that lasts)";

/// The processors' counters.
#[derive(Debug)]
pub struct Rapl {
    files: Files,
    domains: Vec<Domain>,
    zones: Vec<Zone>,
}

#[derive(Debug)]
struct Zone {
    file: PathBuf,
    register: Register,
}

impl Rapl {
    /// Finds the counters and reads each once.
    ///
    /// # Errors
    /// There are none, or this user may not read one of them.
    pub fn open(tree: &Tree) -> Result<Self, EnergyError> {
        let files = Files::new(tree, NAME, REMEDY);
        let mut domains = Vec::new();
        let mut zones = Vec::new();
        let mut parent = String::new();
        for folder in files.list("sys/class/powercap")? {
            // `intel-rapl:0` is a zone, `intel-rapl:0:1` a part of it. `intel-rapl-mmio:0`
            // duplicates `intel-rapl:0`.
            let name = folder.file_name().and_then(|name| name.to_str());
            let Some(numbers) = name.and_then(|name| name.strip_prefix("intel-rapl:"))
            else {
                continue;
            };
            let kind = files.text(&folder.join("name"))?;
            let is_part = numbers.contains(':');
            let name = if is_part { format!("{parent}/{kind}") } else { kind.clone() };
            if !is_part {
                parent.clone_from(&name);
            }
            domains.push(Domain::measured(NAME, name, part(&kind)));
            zones.push(zone(&files, &folder)?);
        }
        if zones.is_empty() {
            return Err(files.absent("no intel-rapl zone in /sys/class/powercap"));
        }
        Ok(Self { files, domains, zones })
    }
}

fn zone(files: &Files, folder: &Path) -> Result<Zone, EnergyError> {
    let file = folder.join("energy_uj");
    let limit = folder.join("max_energy_range_uj");
    let range = files.number(&limit)?;
    if range == 0 {
        return Err(files.garbage(&limit, "0", "the range of a counter"));
    }
    let now = files.number(&file)?;
    Ok(Zone { file, register: Register::new(range, now) })
}

/// What a zone of this kind includes. For `psys` it depends on who built the machine; `core` and
/// `uncore` are parts of the package.
fn part(kind: &str) -> Part {
    match kind {
        "dram" => Part::Memory,
        kind if kind.starts_with("package") => Part::Processors,
        _ => Part::Other,
    }
}

impl Meter for Rapl {
    fn name(&self) -> &str {
        NAME
    }

    fn domains(&self) -> &[Domain] {
        &self.domains
    }

    fn read(&mut self) -> Result<Vec<Counter>, EnergyError> {
        let Self { files, zones, .. } = self;
        let mut counters = Vec::with_capacity(zones.len());
        for Zone { file, register } in zones {
            let now = files.number(file)?;
            if now > register.range {
                let said = now.to_string();
                return Err(files.garbage(file, &said, "within the counter's range"));
            }
            counters.push(Counter { energy_uj: register.add(now) });
        }
        Ok(counters)
    }
}
