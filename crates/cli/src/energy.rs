//! What the command line says of energy: the configuration that its
//! flags mean, one line for a run, one for `doctor`. What
//! a meter and a profile are is in `bothends_energy`.

use bothends_energy::{EnergyError, MeterSpec, Places, Profile, survey};
use bothends_runtime::{Energy, EnergyConfig};

use crate::args::run::EnergyArgs;
use crate::failed::{Failed, wrong};
use crate::typed::{profile, seconds};

/// What the flags mean.
pub(crate) fn config(args: &EnergyArgs) -> Result<EnergyConfig, Failed> {
    let meters: Result<Vec<MeterSpec>, EnergyError> =
        args.meters.iter().map(|spec| spec.parse()).collect();
    let idle =
        args.energy_idle.map(|value| seconds("--energy-idle", value)).transpose()?;
    let profile = profile(&args.energy_profile)?;
    Ok(EnergyConfig { meters: meters.map_err(wrong)?, profile, idle })
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
    let (mut readable, mut absent) = (Vec::new(), Vec::new());
    for (name, found) in survey(&Places::default()) {
        match found {
            Ok(domains) => readable.push(format!("{name} ({})", domains.join(", "))),
            Err(error) => absent.push(error.to_string()),
        }
    }
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
