//! What a run does beyond its data, recipe and devices.

use std::path::PathBuf;
use std::time::Duration;

use bothends_accel::AccelConfig;
use bothends_core::select::StrategyConfig;

use crate::config::energy::EnergyConfig;

/// Whether the stream is digested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Digesting {
    /// Both digests are computed.
    On,
    /// No byte is looked at.
    Off,
}

/// What a run does beyond its configuration.
#[derive(Debug, Clone)]
pub struct DriveConfig {
    /// The first epoch, and how many.
    pub epochs: u32,
    /// The strategy of each epoch in turn instead of the run's own, for comparisons: every
    /// one runs epoch 0 again.
    pub compare: Vec<StrategyConfig>,
    /// What consumes batches.
    pub accelerator: AccelConfig,
    /// Whether the stream is digested.
    pub digest: Digesting,
    /// End the run after so many batches of the first epoch.
    pub stop_after: Option<u32>,
    /// Where the state is written when the run stops or an epoch ends.
    pub checkpoint: Option<PathBuf>,
    /// A state to go on from.
    pub resume: Option<PathBuf>,
    /// How long each prong is measured alone; `None` measures only what a device needs.
    pub measure: Option<Duration>,
    /// How energy is metered and modelled.
    pub energy: EnergyConfig,
}
