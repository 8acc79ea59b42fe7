//! Models of the compute units: how long a sample takes from the record to the finished sample.
//!
//! These are pure functions of state, request and time, in integer nanoseconds. Nothing here computes a
//! pixel. Read `compute/cores.rs` for CPU cores and `compute/fixed.rs` for fixed-function logic, and
//! `compute/work.rs` for programs, which are described by the work that they took.

mod cores;
mod fixed;
mod work;

pub use cores::CoresConfig;
pub use fixed::FixedConfig;
pub use work::{Effort, WorkConfig};

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

impl ComputeConfig {
    /// How many samples are worked on side by side; `None` when no model says so.
    #[must_use]
    pub fn n_units(&self) -> Option<u32> {
        match self {
            Self::Measured => None,
            Self::Cores(cores) => Some(cores.n_cores),
            Self::Fixed(lanes) => Some(lanes.n_lanes),
        }
    }
}

/// A compute model in use.
#[derive(Debug)]
pub struct Compute {
    config: ComputeConfig,
    /// From when on each of the equal units is free.
    free_ns: Vec<u64>,
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
        let n_units = config.n_units().unwrap_or(1).max(1);
        Self { config, free_ns: vec![0; n_units as usize] }
    }

    /// Whether no model says how long work takes.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.config == ComputeConfig::Measured
    }

    /// Works on a sample whose record is there at `ready_ns`, at `slowdown_milli` thousandths
    /// of its usual time.
    pub fn run(
        &mut self,
        ready_ns: u64,
        sample: &SampleWork,
        slowdown_milli: u64,
    ) -> Turn {
        let ns = match &self.config {
            ComputeConfig::Measured => {
                return Turn { start_ns: ready_ns, end_ns: ready_ns };
            }
            ComputeConfig::Cores(cores) => cores.work_ns(sample),
            ComputeConfig::Fixed(lanes) => lanes.work_ns(sample),
        };
        self.take(ready_ns, scaled(ns, slowdown_milli))
    }

    /// Runs a program whose ranges are there at `ready_ns`. `work` says what its work costs a core;
    /// without it, or without a model of the compute, it takes the time that it took here. So does one whose work
    /// nobody has counted, because it failed.
    pub fn execute(
        &mut self,
        ready_ns: u64,
        effort: Effort,
        work: Option<&WorkConfig>,
        slowdown_milli: u64,
    ) -> Turn {
        let work = work.filter(|_| !effort.is_uncounted());
        let ns = match (&self.config, work) {
            (ComputeConfig::Measured, _) => effort.took_ns,
            (ComputeConfig::Cores(_) | ComputeConfig::Fixed(_), Some(work)) => {
                work.work_ns(effort)
            }
            (ComputeConfig::Cores(cores), None) => {
                scaled(effort.cpu_ns, cores.relative_time_milli)
            }
            (ComputeConfig::Fixed(_), None) => effort.cpu_ns,
        };
        self.take(ready_ns, scaled(ns, slowdown_milli))
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
