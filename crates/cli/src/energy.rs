//! What the command line says of energy: its flags, one line for a run, one for `doctor`. What
//! a meter and a profile are is in `bothends_energy`.

use std::path::Path;

use bothends_energy::{EnergyError, MeterSpec, Places, Profile, survey};
use bothends_runtime::{Energy, EnergyConfig};
use clap::ArgAction;

use crate::run::{seconds, wrong};
use crate::{Failed, file};

/// Most bytes of a profile: far more than one with the longest notes has.
const MOST_PROFILE_BYTES: u64 = 1 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct EnergyArgs {
    /// A meter of energy (may repeat): auto (all that may be read here), rapl, perf, nvml, hwmon,
    /// hwmon:CHIP, or command:PROGRAM ARGS, which prints watts
    #[arg(long = "energy", value_name = "SPEC", action = ArgAction::Append, default_value = "auto")]
    meters: Vec<String>,
    /// What models energy that nobody meters: a built-in profile or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "default")]
    energy_profile: String,
    /// Meter the idle machine for so many seconds first; gives figures net of idle
    #[arg(long, value_name = "SECONDS")]
    energy_idle: Option<f64>,
}

impl EnergyArgs {
    pub(crate) fn config(&self) -> Result<EnergyConfig, Failed> {
        let meters: Result<Vec<MeterSpec>, EnergyError> =
            self.meters.iter().map(|spec| spec.parse()).collect();
        let idle =
            self.energy_idle.map(|value| seconds("--energy-idle", value)).transpose()?;
        let profile = profile(&self.energy_profile)?;
        Ok(EnergyConfig { meters: meters.map_err(wrong)?, profile, idle })
    }
}

/// A built-in profile by name, else a file.
fn profile(text: &str) -> Result<Profile, Failed> {
    if let Some(profile) = Profile::builtin(text) {
        return Ok(profile);
    }
    let json = file::read(Path::new(text), MOST_PROFILE_BYTES).map_err(|e| {
        let names: Vec<_> = Profile::builtin_names().collect();
        wrong(format!(
            "`{text}` is neither a built-in energy profile ({}) nor a file that can be read ({e})",
            names.join(", ")
        ))
    })?;
    Profile::from_json(text, &String::from_utf8_lossy(&json)).map_err(wrong)
}

/// A run's energy on one line.
pub(crate) fn line(energy: &Energy) -> String {
    let figure = energy.joules_per_sample.zip(energy.joules_per_sample_source.as_ref());
    let Some((joules, source)) = figure else {
        let why = energy.remarks.last().map_or("nothing was delivered", String::as_str);
        return format!("energy: not known ({why})");
    };
    let ends = energy.joules_per_sample_low.zip(energy.joules_per_sample_high);
    let ends = ends.filter(|(low, high)| low < high);
    let ends =
        ends.map_or(String::new(), |(low, high)| format!(" ({low:.3} to {high:.3})"));
    let is_modelled = source.starts_with("modelled(");
    let hint =
        if is_modelled { "; `bothends doctor` says why nothing is metered" } else { "" };
    format!("energy: {joules:.3} J/image{ends}, {source}{hint}")
}

/// Which meters can be read here, and why the others cannot.
pub(crate) fn here() -> String {
    let found = survey(&Places::default());
    let readable: Vec<String> = found
        .iter()
        .filter_map(|(name, found)| Some((name, found.as_ref().ok()?)))
        .map(|(name, domains)| format!("{name} ({})", domains.join(", ")))
        .collect();
    let absent: Vec<String> = found
        .iter()
        .filter_map(|(_, found)| Some(found.as_ref().err()?.to_string()))
        .collect();
    let readable = match readable.as_slice() {
        [] => format!(
            "no meter can be read here; figures are {}",
            Profile::default().source()
        ),
        some => format!("readable: {}", some.join(", ")),
    };
    match absent.as_slice() {
        [] => readable,
        some => format!("{readable}; {}", some.join("; ")),
    }
}
