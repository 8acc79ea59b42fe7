//! What a feed counts, for the summary of its epoch.

use bothends_core::ids::DeviceIdx;
use bothends_figures::Skipped;

/// What happened to batches on their last way.
#[derive(Debug, Default)]
pub(crate) struct FeedAccount {
    /// Seconds in which a finished batch waited for the consumer.
    pub(crate) backpressure_s: f64,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) redecoded: Vec<Skipped>,
    /// Device batches that were made again, in whole or in part, and were equal; and how long
    /// batches waited for that, in seconds.
    pub(crate) audited: u64,
    pub(crate) audit_s: f64,
    /// Batches of devices that lied, which the host made again.
    pub(crate) made_again: Vec<DeviceIdx>,
}
