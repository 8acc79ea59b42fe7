//! Energy: the power of each state times the time spent in it, exact to the last picojoule.
//!
//! Milliwatts times nanoseconds are picojoules, so sums are exact integers; they are converted to
//! microjoules only when read. Idle power is drawn as long as the device runs. Media, cores and link add
//! their active power while they work. Everything here is modelled. `power/spread.rs` says when work uses its
//! energy, `power/thermal.rs` turns energy into heat, and `power/sleep.rs` says when an idle device sleeps.

mod sleep;
mod spread;
mod thermal;

pub use sleep::{Sleep, SleepConfig};
pub use spread::Spread;
pub use thermal::{COOL_K, HOT_K, Thermal, ThermalConfig};

use bothends_csd::EnergyReading;

/// Where these figures come from, as results print it.
const SOURCE: &str = "modelled(state power × time)";

const PJ_PER_UJ: u128 = 1_000_000;

/// Power of each state above idle, in milliwatts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PowerConfig {
    /// The device with nothing to do.
    pub idle_mw: u64,
    /// More for each busy part of the medium (die).
    pub media_mw: u64,
    /// The same while it programs, where that is not the same.
    pub program_mw: Option<u64>,
    /// The same while it erases, where that is not the same.
    pub erase_mw: Option<u64>,
    /// More for each busy core or lane.
    pub compute_mw: u64,
    /// More while the link sends.
    pub link_mw: u64,
}

/// Time for which parts of the device were busy, summed over the parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Busy {
    /// Parts of the medium, as they read.
    pub media_ns: u64,
    /// Parts of the medium, as they program.
    pub program_ns: u64,
    /// Parts of the medium, as they erase.
    pub erase_ns: u64,
    /// Cores or lanes.
    pub compute_ns: u64,
    /// The link.
    pub link_ns: u64,
}

/// The active energy of some work, by domain.
struct Active {
    media_pj: u128,
    compute_pj: u128,
    link_pj: u128,
}

/// The integrator.
#[derive(Debug)]
pub struct Power {
    config: PowerConfig,
    media_pj: u128,
    compute_pj: u128,
    link_pj: u128,
    /// What sleeping has saved.
    saved_pj: u128,
}

impl Power {
    /// Nothing used yet.
    #[must_use]
    pub fn new(config: PowerConfig) -> Self {
        Self { config, media_pj: 0, compute_pj: 0, link_pj: 0, saved_pj: 0 }
    }

    /// Adds the active energy of some work.
    pub fn add(&mut self, busy: Busy) {
        let active = self.active(busy);
        self.media_pj += active.media_pj;
        self.compute_pj += active.compute_pj;
        self.link_pj += active.link_pj;
    }

    /// The active energy of some work, in picojoules. Nothing is added.
    #[must_use]
    pub fn active_pj(&self, busy: Busy) -> u128 {
        let active = self.active(busy);
        active.media_pj + active.compute_pj + active.link_pj
    }

    fn active(&self, busy: Busy) -> Active {
        let config = &self.config;
        let program_mw = config.program_mw.unwrap_or(config.media_mw);
        let erase_mw = config.erase_mw.unwrap_or(config.media_mw);
        Active {
            media_pj: energy_pj(config.media_mw, busy.media_ns)
                + energy_pj(program_mw, busy.program_ns)
                + energy_pj(erase_mw, busy.erase_ns),
            compute_pj: energy_pj(config.compute_mw, busy.compute_ns),
            link_pj: energy_pj(config.link_mw, busy.link_ns),
        }
    }

    /// All energy from the start until `now_ns`, in picojoules.
    #[must_use]
    pub fn total_pj(&self, now_ns: u64) -> u128 {
        self.idle_pj(now_ns) + self.media_pj + self.compute_pj + self.link_pj
    }

    /// It has slept for `for_ns` at `power_mw`, instead of being idle.
    pub fn slept(&mut self, for_ns: u64, power_mw: u64) {
        self.saved_pj += energy_pj(self.config.idle_mw.saturating_sub(power_mw), for_ns);
    }

    fn idle_pj(&self, now_ns: u64) -> u128 {
        energy_pj(self.config.idle_mw, now_ns).saturating_sub(self.saved_pj)
    }

    /// The figures by domain until `now_ns`; `device` is the sum of the others.
    #[must_use]
    pub fn readings(&self, now_ns: u64) -> Vec<EnergyReading> {
        [
            ("device", self.total_pj(now_ns)),
            ("idle", self.idle_pj(now_ns)),
            ("media", self.media_pj),
            ("compute", self.compute_pj),
            ("link", self.link_pj),
        ]
        .map(|(domain, pj)| EnergyReading {
            domain: domain.to_owned(),
            energy_uj: u64::try_from(pj / PJ_PER_UJ).unwrap_or(u64::MAX),
            source: SOURCE.to_owned(),
        })
        .into()
    }
}

/// Milliwatts times nanoseconds.
fn energy_pj(power_mw: u64, time_ns: u64) -> u128 {
    u128::from(power_mw) * u128::from(time_ns)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONFIG: PowerConfig = PowerConfig {
        idle_mw: 5000,
        media_mw: 35,
        program_mw: Some(60),
        erase_mw: None,
        compute_mw: 700,
        link_mw: 1100,
    };

    #[test]
    fn an_idle_device_uses_idle_power_times_time() {
        let readings = Power::new(CONFIG).readings(3_600_000_000_000);
        assert_eq!(readings[0].energy_uj, 5 * 3600 * 1_000_000, "5 W for an hour");
        assert_eq!(readings[1].energy_uj, readings[0].energy_uj);
        assert!(readings[2..].iter().all(|reading| reading.energy_uj == 0));
    }

    proptest! {
        /// However work is cut into pieces, the sum is the same integer.
        #[test]
        fn energy_is_conserved(pieces in prop::collection::vec((0_u64..1 << 40, 0_u64..1 << 40, 0_u64..1 << 40), 0..50), now in 0_u64..1 << 50) {
            let mut power = Power::new(CONFIG);
            let (mut media, mut compute, mut link) = (0_u128, 0_u128, 0_u128);
            for (media_ns, compute_ns, link_ns) in pieces {
                power.add(Busy { media_ns, compute_ns, link_ns, program_ns: media_ns, erase_ns: link_ns });
                media += u128::from(media_ns);
                compute += u128::from(compute_ns);
                link += u128::from(link_ns);
            }
            let expected = 5000 * u128::from(now) + (35 + 60) * media + 700 * compute + (1100 + 35) * link;
            prop_assert_eq!(power.total_pj(now), expected);
        }
    }
}
