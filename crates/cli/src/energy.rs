//! What the command line says of energy: the configuration that its
//! flags mean, one line for a run, one for `doctor`. What
//! a meter and a profile are is in `bothends_energy`.

use std::time::Duration;

use bothends_energy::{EnergyError, MeterSpec, Places, Profile, survey};
use bothends_runtime::{Energy, EnergyConfig};

use crate::args::run::EnergyArgs;
use crate::failed::{Failed, wrong};
use crate::typed::{profile, seconds};

/// What the flags mean.
pub(crate) fn config(args: &EnergyArgs) -> Result<EnergyConfig, Failed> {
    let meters: Result<Vec<MeterSpec>, EnergyError> =
        args.meters.iter().map(|spec| spec.parse()).collect();
    let idle = args.energy_idle.map(idle).transpose()?;
    let profile = profile(&args.energy_profile)?;
    Ok(EnergyConfig { meters: meters.map_err(wrong)?, profile, idle })
}

/// For how long the idle machine is metered.
fn idle(value: f64) -> Result<Duration, Failed> {
    let lasting = seconds("--energy-idle", value)?;
    // Meters are read once a second, and many of them count no faster: of less, the power of the idle
    // machine would be made of nothing.
    match lasting < Duration::from_secs(1) {
        true => Err(wrong(
            "`--energy-idle` takes at least 1 second; 60 are better".to_owned(),
        )),
        false => Ok(lasting),
    }
}

/// A run's energy on one line.
pub(crate) fn line(energy: &Energy) -> String {
    let figure = energy.joules_per_sample.zip(energy.joules_per_sample_source.as_ref());
    let Some((joules, source)) = figure else {
        // With a sum and a number of ranks, only images are missing.
        let is_counted =
            !energy.totals.is_empty() && energy.quantities.host.ranks.is_some();
        // What the sum lacks is said last.
        let why = energy.remarks.last().filter(|_| !is_counted);
        let why = why.map_or("nothing was delivered", String::as_str);
        return format!("energy: not known ({why})");
    };
    let ends = energy.joules_per_sample_low.zip(energy.joules_per_sample_high);
    let ends = ends.filter(|(low, high)| low < high);
    let ends =
        ends.map_or(String::new(), |(low, high)| format!(" ({low:.3} to {high:.3})"));
    format!("energy: {joules:.3} J/image{ends}, {source}{}", hint(energy, source))
}

/// Why a sum is modelled.
fn hint(energy: &Energy, source: &str) -> &'static str {
    let is_metered = energy.domains.iter().any(|it| it.source.starts_with("measured("));
    if !source.starts_with("modelled(") {
        ""
    } else if is_metered {
        "; there is no meter of the processors"
    } else if energy.failures.is_empty() {
        "; `bothends doctor` says why nothing is metered"
    } else {
        // A note has said it.
        ""
    }
}

/// The meters that failed, for notes.
pub(crate) fn failures(energy: &Energy) -> Vec<String> {
    let without = |failure| format!("{failure}; the run has no figure of this meter");
    energy.failures.iter().map(without).collect()
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn figure(source: &str) -> Value {
        json!({"name": "total", "joules": 8.0, "low": 4.0, "high": 16.0, "source": source})
    }

    /// A run whose figures are a model's, with these keys besides.
    fn energy(more: &Value) -> Energy {
        let mut energy = json!({
            "joules_per_sample": 0.5, "joules_per_sample_low": 0.25,
            "joules_per_sample_high": 1.0, "joules_per_sample_source": "modelled(default@2)",
            "totals": [figure("modelled(default@2)")], "domains": [figure("modelled(default@2)")],
            "remarks": ["no meter `rapl` here"],
        });
        for (key, value) in more.as_object().unwrap() {
            energy[key] = value.clone();
        }
        serde_json::from_value(energy).unwrap()
    }

    #[test]
    fn a_modelled_sum_says_why_it_is_not_measured() {
        let plain = "energy: 0.500 J/image (0.250 to 1.000), modelled(default@2)";
        for (more, hint) in [
            (json!({}), "; `bothends doctor` says why nothing is metered"),
            (
                json!({"domains": [figure("measured(nvml:gpu-0)")]}),
                "; there is no meter of the processors",
            ),
            (json!({"failures": ["`rapl` is gone"]}), ""),
        ] {
            assert_eq!(line(&energy(&more)), format!("{plain}{hint}"));
        }
        let failed = energy(&json!({"failures": ["`rapl` is gone"]}));
        assert_eq!(
            failures(&failed),
            ["`rapl` is gone; the run has no figure of this meter"]
        );
    }

    #[test]
    fn without_a_figure_the_line_says_what_is_missing() {
        let none = json!(null);
        let stopped = energy(&json!({"joules_per_sample": none}));
        assert_eq!(line(&stopped), "energy: not known (nothing was delivered)");
        let why = "not counted here: the host's CPU seconds";
        let unknown =
            json!({"joules_per_sample": none, "totals": [], "remarks": ["x", why]});
        assert_eq!(line(&energy(&unknown)), format!("energy: not known ({why})"));
        let ranks = json!({
            "joules_per_sample": none, "remarks": ["x", why],
            "quantities": {
                "seconds": 1.0, "devices": [], "accelerator": null,
                "host": {"ranks": null, "processors": 2},
                "bytes": {
                    "stored": 0, "storage_read": 0, "device_to_host": 0, "host_to_accelerator": 0,
                },
            },
        });
        assert_eq!(line(&energy(&ranks)), format!("energy: not known ({why})"));
    }

    #[test]
    fn less_than_a_second_of_the_idle_machine_is_refused() {
        for value in [0.0, 0.2, 0.999] {
            let Err(Failed::Arguments(why)) = idle(value) else {
                panic!("{value} s meter nothing")
            };
            assert_eq!(why, "`--energy-idle` takes at least 1 second; 60 are better");
        }
        assert_eq!(idle(1.0).unwrap(), Duration::from_secs(1));
    }
}
