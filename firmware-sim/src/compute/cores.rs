//! Processor cores: a sample takes the CPU time that it took here, times the relative time.
//!
//! CPU time, not wall time: it does not change when this machine is busy with other things.

use bothends_agent::SampleWork;

use super::{Turn, Units, scaled};

/// The constants of a processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoresConfig {
    /// Cores.
    pub n_cores: u32,
    /// Time of one of its cores for the work of one of this machine's, in thousandths.
    pub relative_time_milli: u64,
}

/// A processor in use.
#[derive(Debug)]
pub struct Cores {
    config: CoresConfig,
    units: Units,
}

impl Cores {
    /// A processor that has done nothing yet.
    #[must_use]
    pub fn new(config: CoresConfig) -> Self {
        let units = Units::new(config.n_cores);
        Self { config, units }
    }

    /// See [`super::Compute::run`].
    pub fn run(
        &mut self,
        ready_ns: u64,
        sample: &SampleWork,
        slowdown_milli: u64,
    ) -> Turn {
        let ns = scaled(sample.cpu_ns, self.config.relative_time_milli);
        self.units.take(ready_ns, scaled(ns, slowdown_milli))
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::sample::{Extent, FileIdx};

    use super::*;

    fn sample(cpu_ns: u64) -> SampleWork {
        let extent = Extent { file: FileIdx(0), offset: 0, len: 0 };
        SampleWork { extent, source_pixels: 0, cpu_ns, output_bytes: 0 }
    }

    #[test]
    fn work_is_scaled_and_spread_over_the_cores() {
        let mut cores = Cores::new(CoresConfig { n_cores: 2, relative_time_milli: 8500 });
        assert_eq!(cores.run(0, &sample(100), 1000), Turn { start_ns: 0, end_ns: 850 });
        assert_eq!(cores.run(0, &sample(200), 1000), Turn { start_ns: 0, end_ns: 1700 });
        assert_eq!(
            cores.run(10, &sample(100), 2000),
            Turn { start_ns: 850, end_ns: 2550 }
        );
        assert_eq!(
            cores.run(9000, &sample(2), 1000),
            Turn { start_ns: 9000, end_ns: 9017 }
        );
    }

    #[test]
    fn a_busy_pool_delivers_cores_over_time_per_second() {
        let mut cores =
            Cores::new(CoresConfig { n_cores: 4, relative_time_milli: 10_000 });
        let end = (0..400).map(|_| cores.run(0, &sample(1_000_000), 1000).end_ns).max();
        assert_eq!(end, Some(1_000_000_000), "400 images of 10 ms on 4 cores");
    }
}
