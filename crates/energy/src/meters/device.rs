//! The energy that a device says it has used. The host does not measure it: the device's figures
//! are passed on with their source, and those of an emulated device are never called measured.

use crate::error::EnergyError;
use crate::meters::risen;
use crate::{Counter, Domain, Meter, Part};

/// One figure of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reported {
    /// `device`, `compute`, …
    pub domain: String,
    /// Microjoules since the device started.
    pub energy_uj: u64,
    /// `measured(…)` or `modelled(…)`, as the device says.
    pub source: String,
}

/// A device's figures as last reported.
#[derive(Debug)]
pub struct DeviceMeter {
    name: String,
    domains: Vec<Domain>,
    counters: Vec<Counter>,
}

/// Whether models stand in for a device's hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// It is hardware.
    Real,
    /// Models stand in.
    Emulated,
}

impl DeviceMeter {
    /// A device with its first figures.
    #[must_use]
    pub fn new(name: &str, kind: DeviceKind, first: Vec<Reported>) -> Self {
        let (domains, counters) = first
            .into_iter()
            .map(|reported| {
                let source = source(kind, &reported.source);
                let domain = Domain { name: reported.domain, part: Part::Other, source };
                (domain, Counter { energy_uj: reported.energy_uj })
            })
            .unzip();
        Self { name: name.to_owned(), domains, counters }
    }

    /// Takes the device's newest figures.
    ///
    /// # Errors
    /// One of them decreased or is missing, because the device was restarted.
    pub fn report(&mut self, newest: &[Reported]) -> Result<(), EnergyError> {
        let mut counters = Vec::with_capacity(self.counters.len());
        for (domain, before) in self.domains.iter().zip(&self.counters) {
            let reported = newest.iter().find(|reported| reported.domain == domain.name);
            let Some(reported) = reported else {
                let place = format!("its domain {}", domain.name);
                return Err(EnergyError::Gone { meter: self.name.clone(), place });
            };
            let mut last_uj = before.energy_uj;
            let energy_uj = risen(&self.name, domain, &mut last_uj, reported.energy_uj)?;
            counters.push(Counter { energy_uj });
        }
        self.counters = counters;
        Ok(())
    }
}

/// The source of a device's figure. A figure counts as measured only if the device says so, and
/// never if the device is emulated.
fn source(kind: DeviceKind, said: &str) -> String {
    let is_measured = said.starts_with("measured(") && said.ends_with(')');
    let is_modelled = said.starts_with("modelled(") && said.ends_with(')');
    match kind {
        DeviceKind::Real if is_measured => said.to_owned(),
        DeviceKind::Emulated if is_measured => {
            format!("modelled(an emulated device says {said})")
        }
        DeviceKind::Real | DeviceKind::Emulated if is_modelled => said.to_owned(),
        DeviceKind::Real | DeviceKind::Emulated => {
            format!("modelled(the device says: {said})")
        }
    }
}

impl Meter for DeviceMeter {
    fn name(&self) -> &str {
        &self.name
    }

    fn domains(&self) -> &[Domain] {
        &self.domains
    }

    fn read(&mut self) -> Result<Vec<Counter>, EnergyError> {
        Ok(self.counters.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(energy_uj: u64) -> Vec<Reported> {
        let source = "modelled(state power × time)".to_owned();
        vec![Reported { domain: "device".to_owned(), energy_uj, source }]
    }

    #[test]
    fn a_device_that_starts_anew_is_noticed() {
        let mut meter = DeviceMeter::new("device 0", DeviceKind::Emulated, says(500));
        meter.report(&says(700)).unwrap();
        assert_eq!(meter.read().unwrap(), [Counter { energy_uj: 700 }]);
        let fell = meter.report(&says(20)).unwrap_err().to_string();
        assert!(fell.contains("device fell from 700 to 20"), "{fell}");
        let gone = meter.report(&[]).unwrap_err();
        assert!(matches!(gone, EnergyError::Gone { .. }), "{gone}");
    }

    #[test]
    fn an_emulated_device_measures_nothing() {
        let table = [
            (DeviceKind::Real, "measured(ina3221)", "measured(ina3221)"),
            (DeviceKind::Real, "modelled(x)", "modelled(x)"),
            (DeviceKind::Real, "guess", "modelled(the device says: guess)"),
            (DeviceKind::Emulated, "modelled(x)", "modelled(x)"),
            (
                DeviceKind::Emulated,
                "measured(ina3221)",
                "modelled(an emulated device says measured(ina3221))",
            ),
        ];
        for (kind, said, expected) in table {
            assert_eq!(source(kind, said), expected);
        }
    }
}
