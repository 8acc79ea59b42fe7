//! Models of what does the work: how long a sample takes from read record to made sample.
//!
//! Pure functions of state, request and time, in integer nanoseconds. Nothing here computes a
//! pixel. Read `compute/cores.rs` for processors, `compute/fixed.rs` for fixed-function logic.

mod cores;
mod fixed;

pub use cores::{Cores, CoresConfig};
pub use fixed::{Fixed, FixedConfig};

use bothends_agent::SampleWork;

/// Which compute, with its constants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ComputeConfig {
    /// No model: a job takes as long as this machine took for it.
    Measured,
    /// Processor cores of a relative speed.
    Cores(CoresConfig),
    /// Fixed-function lanes.
    Fixed(FixedConfig),
}

/// A compute model in use.
#[derive(Debug)]
pub enum Compute {
    /// See [`ComputeConfig::Measured`].
    Measured,
    /// See [`ComputeConfig::Cores`].
    Cores(Cores),
    /// See [`ComputeConfig::Fixed`].
    Fixed(Fixed),
}

/// When a sample was worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// First nanosecond.
    pub start_ns: u64,
    /// When the sample was made.
    pub end_ns: u64,
}

impl Compute {
    /// A compute model that has not been used yet.
    #[must_use]
    pub fn new(config: ComputeConfig) -> Self {
        match config {
            ComputeConfig::Measured => Self::Measured,
            ComputeConfig::Cores(config) => Self::Cores(Cores::new(config)),
            ComputeConfig::Fixed(config) => Self::Fixed(Fixed::new(config)),
        }
    }

    /// Works on a sample whose record is there at `ready_ns`, at `slowdown_milli` thousandths
    /// of its usual time.
    pub fn run(
        &mut self,
        ready_ns: u64,
        sample: &SampleWork,
        slowdown_milli: u64,
    ) -> Turn {
        match self {
            Self::Measured => Turn { start_ns: ready_ns, end_ns: ready_ns },
            Self::Cores(cores) => cores.run(ready_ns, sample, slowdown_milli),
            Self::Fixed(fixed) => fixed.run(ready_ns, sample, slowdown_milli),
        }
    }
}

/// Equal units, each free from some time on: work goes to the one that is free first.
#[derive(Debug)]
struct Units {
    free_ns: Vec<u64>,
}

impl Units {
    fn new(n: u32) -> Self {
        Self { free_ns: vec![0; n.max(1) as usize] }
    }

    /// Takes a unit for `len_ns` from `ready_ns` or, if all are busy, from when one is free.
    fn take(&mut self, ready_ns: u64, len_ns: u64) -> Turn {
        // There is at least one unit; of equals the first is taken, so replays are identical.
        let free = self.free_ns.iter_mut().min_by_key(|free| **free);
        let start_ns = free.as_ref().map_or(ready_ns, |free| (**free).max(ready_ns));
        let end_ns = start_ns.saturating_add(len_ns);
        if let Some(free) = free {
            *free = end_ns;
        }
        Turn { start_ns, end_ns }
    }
}

/// `ns` times `milli` thousandths.
fn scaled(ns: u64, milli: u64) -> u64 {
    u64::try_from(u128::from(ns) * u128::from(milli) / 1000).unwrap_or(u64::MAX)
}
