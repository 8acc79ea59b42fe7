//! What a program costs: the work that an execution took, at the rates of one core or lane of the device.
//!
//! Work is counted in a measure that is the same on every machine, so that a device takes the same time wherever
//! it is emulated: instructions of a program that was loaded (fuel), bytes, or coded bytes and pixels.

use crate::media::transfer_ns;

/// Rates of one core or lane, per second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkConfig {
    /// Instructions of a loaded program.
    pub fuel_per_s: u64,
    /// Bytes of a program that passes over bytes.
    pub bytes_per_s: u64,
    /// Coded bytes of images.
    pub coded_bytes_per_s: u64,
    /// Pixels of images.
    pub pixels_per_s: u64,
}

/// What an execution took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effort {
    /// Instructions.
    pub fuel: u64,
    /// Bytes.
    pub bytes: u64,
    /// Coded bytes of images.
    pub coded_bytes: u64,
    /// Pixels of images.
    pub pixels: u64,
    /// CPU time on this machine, in nanoseconds.
    pub cpu_ns: u64,
    /// Time on this machine, in nanoseconds.
    pub took_ns: u64,
}

impl Effort {
    /// Whether nothing is counted, as of a program that failed.
    pub(super) fn is_uncounted(&self) -> bool {
        let Self { fuel, bytes, coded_bytes, pixels, .. } = self;
        [fuel, bytes, coded_bytes, pixels].iter().all(|n| **n == 0)
    }
}

impl WorkConfig {
    /// How long a core works: for instructions, and for bytes, and for images by whichever of coded bytes and
    /// pixels takes longer.
    pub(super) fn work_ns(&self, effort: Effort) -> u64 {
        let images_ns = transfer_ns(effort.coded_bytes, self.coded_bytes_per_s)
            .max(transfer_ns(effort.pixels, self.pixels_per_s));
        transfer_ns(effort.fuel, self.fuel_per_s)
            .saturating_add(transfer_ns(effort.bytes, self.bytes_per_s))
            .saturating_add(images_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::{Compute, ComputeConfig, CoresConfig, Turn};

    const WORK: WorkConfig = WorkConfig {
        fuel_per_s: 1_000_000_000,
        bytes_per_s: 500_000_000,
        coded_bytes_per_s: 6_250_000,
        pixels_per_s: 100_000_000,
    };

    #[test]
    fn work_takes_its_amount_at_the_rate_of_its_measure() {
        let none = Effort::default();
        for (effort, expected) in [
            (Effort { fuel: 52_363_729, ..none }, 52_363_729),
            (Effort { bytes: 1000, ..none }, 2000),
            (Effort { coded_bytes: 1000, pixels: 1, ..none }, 160_000),
            (Effort { coded_bytes: 1, pixels: 1000, ..none }, 10_000),
            (none, 0),
            (Effort { fuel: u64::MAX, bytes: u64::MAX, ..none }, u64::MAX),
        ] {
            assert_eq!(WORK.work_ns(effort), expected, "{effort:?}");
        }
    }

    /// Or a device would run programs that fail for nothing.
    #[test]
    fn what_failed_is_the_time_that_it_took_here() {
        let failed = Effort { cpu_ns: 100, took_ns: 300, ..Effort::default() };
        let cores = CoresConfig { n_cores: 1, relative_time_milli: 4000 };
        let mut cores = Compute::new(ComputeConfig::Cores(cores));
        assert_eq!(cores.execute(0, failed, Some(&WORK), 1000).end_ns, 400);
    }

    #[test]
    fn without_rates_it_is_the_time_that_it_took_here() {
        let effort = Effort { fuel: 5, cpu_ns: 100, took_ns: 300, ..Effort::default() };
        let cores = CoresConfig { n_cores: 1, relative_time_milli: 4000 };
        let mut cores = Compute::new(ComputeConfig::Cores(cores));
        let first = cores.execute(10, effort, None, 1000);
        assert_eq!(first, Turn { start_ns: 10, end_ns: 410 });
        let second = cores.execute(10, effort, Some(&WORK), 2000);
        assert_eq!(second, Turn { start_ns: 410, end_ns: 420 });
        let mut here = Compute::new(ComputeConfig::Measured);
        assert_eq!(here.execute(0, effort, None, 1000).end_ns, 300);
    }
}
