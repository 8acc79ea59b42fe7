//! What a drive tells of its health: temperature, energy, mean power, and how long it was busy.

/// An interval over which mean power is told.
const INTERVAL_NS: u64 = 1_000_000_000;

/// How a drive is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Vitals {
    /// Kelvin.
    pub kelvin: u16,
    /// Whether it is throttled because of it.
    pub is_hot: bool,
    /// Energy since it was started, in microjoules.
    pub microjoules: u64,
    /// Mean power of the last whole interval of about a second, in microwatts; of all the time, until there is one.
    pub microwatts: u64,
    /// Mean power since it was started, in microwatts.
    pub mean_microwatts: u64,
    /// The greatest mean of an interval, in microwatts.
    pub most_microwatts: u64,
    /// Intervals so far.
    pub n_intervals: u32,
    /// For how long at least one command was in it, in nanoseconds.
    pub busy_ns: u64,
}

/// Turns an energy that only grows into means.
#[derive(Debug, Default)]
pub(super) struct Meter {
    begin: (u64, u128),
    last_microwatts: Option<u64>,
    most_microwatts: u64,
    n_intervals: u32,
    busy_ns: u64,
    busy_until_ns: u64,
}

impl Meter {
    /// Takes in the energy until `now_ns`.
    pub(super) fn look(&mut self, now_ns: u64, energy_pj: u128) {
        let (begin_ns, begin_pj) = self.begin;
        if now_ns.saturating_sub(begin_ns) < INTERVAL_NS {
            return;
        }
        let mean = microwatts(energy_pj.saturating_sub(begin_pj), now_ns - begin_ns);
        self.last_microwatts = Some(mean);
        self.most_microwatts = self.most_microwatts.max(mean);
        self.n_intervals = self.n_intervals.saturating_add(1);
        self.begin = (now_ns, energy_pj);
    }

    /// A command was in the drive.
    pub(super) fn worked(&mut self, from_ns: u64, to_ns: u64) {
        let from_ns = from_ns.max(self.busy_until_ns);
        self.busy_ns = self.busy_ns.saturating_add(to_ns.saturating_sub(from_ns));
        self.busy_until_ns = self.busy_until_ns.max(to_ns);
    }

    pub(super) fn vitals(
        &self,
        now_ns: u64,
        energy_pj: u128,
        (kelvin, is_hot): (u16, bool),
    ) -> Vitals {
        let mean_microwatts = microwatts(energy_pj, now_ns);
        Vitals {
            kelvin,
            is_hot,
            microjoules: u64::try_from(energy_pj / 1_000_000).unwrap_or(u64::MAX),
            microwatts: self.last_microwatts.unwrap_or(mean_microwatts),
            mean_microwatts,
            most_microwatts: self.most_microwatts.max(self.last_microwatts.unwrap_or(0)),
            n_intervals: self.n_intervals,
            busy_ns: self.busy_ns,
        }
    }
}

/// Picojoules over nanoseconds are milliwatts.
fn microwatts(energy_pj: u128, time_ns: u64) -> u64 {
    u64::try_from(energy_pj * 1000 / u128::from(time_ns.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_power_is_that_of_the_last_interval() {
        let mut meter = Meter::default();
        let second = 1_000_000_000;
        let joule = 1_000_000_000_000;
        meter.look(second / 2, 3 * joule);
        assert_eq!(
            meter.vitals(second / 2, 3 * joule, (310, false)).microwatts,
            6_000_000
        );
        meter.look(second, 5 * joule);
        meter.look(3 * second, 9 * joule);
        let vitals = meter.vitals(3 * second, 9 * joule, (310, false));
        assert_eq!((vitals.microwatts, vitals.most_microwatts), (2_000_000, 5_000_000));
        assert_eq!((vitals.mean_microwatts, vitals.n_intervals), (3_000_000, 2));
        assert_eq!(vitals.microjoules, 9_000_000);
    }

    #[test]
    fn time_with_two_commands_is_busy_once() {
        let mut meter = Meter::default();
        meter.worked(0, 10);
        meter.worked(5, 12);
        meter.worked(20, 30);
        assert_eq!(meter.vitals(30, 0, (310, false)).busy_ns, 22);
    }
}
