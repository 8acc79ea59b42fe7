//! What a feed counts, for the summary of its epoch.

use bothends_core::ids::DeviceIdx;
use bothends_figures::{Audits, Skipped};

use crate::handover::finish::damages::Damages;

/// What happened to batches on their last way.
#[derive(Debug, Default)]
pub(crate) struct FeedAccount {
    /// Seconds in which a finished batch waited for the consumer.
    pub(crate) backpressure_s: f64,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) redecoded: Vec<Skipped>,
    /// Samples that were made in spite of damage.
    pub(crate) damages: Damages,
    /// Samples handed over, also those that nobody takes: what damaged ones are a part of.
    pub(crate) n_samples: u64,
    /// Device batches of which the host has made samples again, and what came of it.
    pub(crate) audits: Audits,
    /// Batches of devices that lied, which the host made again.
    pub(crate) made_again: Vec<DeviceIdx>,
}
