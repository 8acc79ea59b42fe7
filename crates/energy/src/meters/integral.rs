//! Turns readings into energy that never decreases: power over time, and registers that wrap
//! around. Pure arithmetic, without a clock.

use std::time::Duration;

/// Power over time: readings joined by straight lines.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Integral {
    last: Option<(Duration, f64)>,
    energy_uj: f64,
}

impl Integral {
    /// Adds a reading of `watts` at `at`, measured from any fixed moment; returns the microjoules
    /// since the first reading. `watts` is not negative.
    pub(crate) fn add(&mut self, at: Duration, watts: f64) -> u64 {
        if let Some((before, watts_before)) = self.last {
            let seconds = at.saturating_sub(before).as_secs_f64();
            self.energy_uj += (watts_before + watts) / 2.0 * seconds * 1e6;
        }
        self.last = Some((at, watts));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative; 2^64 microjoules are 5 GWh"
        )]
        let whole = self.energy_uj as u64;
        whole
    }
}

/// A register that counts up to `range` and then wraps around to 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Register {
    /// Its largest value.
    pub(crate) range: u64,
    last: u64,
    total: u64,
}

impl Register {
    /// A register that reads `now`; its total starts at 0.
    pub(crate) fn new(range: u64, now: u64) -> Self {
        Self { range, last: now, total: 0 }
    }

    /// The total, now that the register reads `now`. Correct as long as it did not wrap around twice
    /// since the last reading.
    pub(crate) fn add(&mut self, now: u64) -> u64 {
        let step = match now.checked_sub(self.last) {
            Some(step) => step,
            None => self.range.saturating_sub(self.last).saturating_add(now),
        };
        self.last = now;
        self.total = self.total.saturating_add(step);
        self.total
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn power_over_time_is_the_area_below_the_readings() {
        let mut integral = Integral::default();
        assert_eq!(integral.add(Duration::from_secs(5), 10.0), 0, "nothing yet");
        assert_eq!(integral.add(Duration::from_secs(6), 30.0), 20_000_000);
        assert_eq!(integral.add(Duration::from_secs(8), 30.0), 80_000_000);
        assert_eq!(integral.add(Duration::from_secs(7), 30.0), 80_000_000, "never falls");
    }

    proptest! {
        /// Whatever the register's range and however often it wrapped around, nothing is lost.
        #[test]
        fn a_register_that_begins_anew_loses_nothing(
            range in 2_u64..1 << 40,
            start in 0_u64..1 << 40,
            steps in prop::collection::vec(0_u64..1 << 40, 1..60),
        ) {
            let mut says = start % range;
            let mut register = Register::new(range, says);
            let mut used = 0;
            for step in steps {
                // It wraps around at most once between two readings.
                let step = step % range;
                says = (says + step) % range;
                used += step;
                prop_assert_eq!(register.add(says), used);
            }
        }

        /// However a constant power is split into readings, the energy is power times time.
        #[test]
        fn power_is_conserved(
            watts in 0_u32..1000,
            steps in prop::collection::vec(1_u64..100_000, 1..50),
        ) {
            let mut integral = Integral::default();
            let mut at = Duration::ZERO;
            let mut energy_uj = integral.add(at, f64::from(watts));
            for step_us in steps {
                at += Duration::from_micros(step_us);
                let now = integral.add(at, f64::from(watts));
                prop_assert!(now >= energy_uj);
                energy_uj = now;
            }
            let exact = f64::from(watts) * at.as_secs_f64() * 1e6;
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let got = energy_uj as f64;
            prop_assert!((got - exact).abs() <= 1.0 + exact * 1e-9);
        }
    }
}
