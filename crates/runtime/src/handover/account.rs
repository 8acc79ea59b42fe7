//! What a feed counts, for the summary of its epoch.

use bothends_figures::Skipped;

/// What happened to batches on their last way.
#[derive(Debug, Default)]
pub(crate) struct FeedAccount {
    /// Seconds in which a finished batch waited for the consumer.
    pub(crate) backpressure_s: f64,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) redecoded: Vec<Skipped>,
    pub(crate) audited: u64,
}
