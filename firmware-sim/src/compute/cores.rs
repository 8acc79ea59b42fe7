//! CPU cores: a sample takes the CPU time that it took on this machine, times the relative time.
//!
//! CPU time is used rather than wall time because it does not change when this machine is busy.

use bothends_agent::SampleWork;

use super::scaled;

/// The constants of a processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoresConfig {
    /// Cores.
    pub n_cores: u32,
    /// Time of one of its cores for the work of one of this machine's, in thousandths.
    pub relative_time_milli: u64,
}

impl CoresConfig {
    /// How long a core works on a sample.
    pub(super) fn work_ns(&self, sample: &SampleWork) -> u64 {
        scaled(sample.cpu_ns, self.relative_time_milli)
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::sample::{Extent, FileIdx};

    use super::*;
    use crate::compute::{Compute, ComputeConfig, Turn};

    fn cores(n_cores: u32, relative_time_milli: u64) -> Compute {
        Compute::new(ComputeConfig::Cores(CoresConfig { n_cores, relative_time_milli }))
    }

    fn sample(cpu_ns: u64) -> SampleWork {
        let extent = Extent { file: FileIdx(0), offset: 0, len: 0 };
        SampleWork { extent, source_pixels: 0, cpu_ns, output_bytes: 0 }
    }

    #[test]
    fn work_is_scaled_and_spread_over_the_cores() {
        let mut cores = cores(2, 8500);
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
        let mut cores = cores(4, 10_000);
        let end = (0..400).map(|_| cores.run(0, &sample(1_000_000), 1000).end_ns).max();
        assert_eq!(end, Some(1_000_000_000), "400 images of 10 ms on 4 cores");
    }
}
