//! What devices say of their own energy, as figures of a run. `energy.rs` has all others; these are in
//! none of its sums.

use bothends_csd::{DeviceStats, EnergyReading};
use bothends_energy::{DeviceMeter, EnergyError, Figure, Meter, Reported};
use bothends_figures::EnergyDomain;

/// What the devices say that they used since the run began. One that says nothing now is
/// remarked, and gives no figure.
pub(super) fn said_by_devices(
    devices: Vec<Option<DeviceMeter>>,
    after: &[Option<DeviceStats>],
    remarks: &mut Vec<String>,
) -> Vec<EnergyDomain> {
    let mut domains = Vec::new();
    for (meter, stats) in devices.into_iter().zip(after) {
        let Some(mut meter) = meter else { continue };
        let Some(stats) = stats else {
            remarks.push(format!("{} did not report what it has used", meter.name()));
            continue;
        };
        match used_by(&mut meter, &reported(&stats.energy)) {
            Ok(used) => domains.extend(used),
            Err(error) => remarks.push(error.to_string()),
        }
    }
    domains
}

fn used_by(
    meter: &mut DeviceMeter,
    newest: &[Reported],
) -> Result<Vec<EnergyDomain>, EnergyError> {
    let before = meter.read()?;
    meter.report(newest)?;
    let after = meter.read()?;
    let used = meter.domains().iter().zip(after.iter().zip(&before));
    let used = used.map(|(domain, (after, before))| {
        let name = format!("{} {}", meter.name(), domain.name);
        let used = joules(after.energy_uj - before.energy_uj);
        exact(name, used, domain.source.clone()).into()
    });
    Ok(used.collect())
}

pub(super) fn reported(readings: &[EnergyReading]) -> Vec<Reported> {
    let reported = |reading: &EnergyReading| Reported {
        domain: reading.domain.clone(),
        energy_uj: reading.energy_uj,
        source: reading.source.clone(),
    };
    readings.iter().map(reported).collect()
}

#[expect(clippy::cast_precision_loss, reason = "2^53 microjoules are 9 GJ")]
pub(super) fn joules(energy_uj: u64) -> f64 {
    energy_uj as f64 / 1e6
}

/// A figure that may be no other.
pub(super) fn exact(name: String, joules: f64, source: String) -> Figure {
    Figure { name, joules, low: joules, high: joules, source }
}

#[cfg(test)]
mod tests {
    use bothends_energy::DeviceKind;

    use super::*;

    fn says(energy_uj: u64) -> Reported {
        let source = "modelled(state power × time)".to_owned();
        Reported { domain: "device".to_owned(), energy_uj, source }
    }

    #[test]
    fn a_device_is_charged_for_the_run_and_not_for_what_was_before() {
        let mut meter =
            DeviceMeter::new("device 0", DeviceKind::Emulated, vec![says(4_000_000)]);
        let used = used_by(&mut meter, &[says(9_500_000)]).unwrap();
        assert_eq!(used.len(), 1);
        assert_eq!(used[0].name, "device 0 device");
        assert!((used[0].joules - 5.5).abs() < 1e-9, "{used:?}");
        assert!(used_by(&mut meter, &[says(1)]).is_err(), "a device that started anew");
    }

    #[test]
    fn a_device_that_is_lost_is_remarked_and_gives_no_figure() {
        let meter = DeviceMeter::new("device 0", DeviceKind::Real, vec![says(4_000_000)]);
        let mut remarks = Vec::new();
        assert!(said_by_devices(vec![Some(meter)], &[None], &mut remarks).is_empty());
        assert_eq!(remarks, ["device 0 did not report what it has used"]);
    }
}
