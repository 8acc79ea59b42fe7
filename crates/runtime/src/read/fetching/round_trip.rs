//! How long the way to a store and back takes: now and then a byte is requested, which has no bytes of its own to
//! wait for.
//!
//! Requests of records do not tell it: most of their time goes by in the queue that they themselves make. When a
//! byte is requested, `core::link` decides: at the start, and whenever that queue has run empty.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bothends_core::sample::FileIdx;
use bothends_storage::Fetch;

/// The name of such a request; the queue counts its own upwards from 1.
pub(crate) const TAG: u64 = u64::MAX;

/// The least time from one to the next.
const EVERY: Duration = Duration::from_secs(2);

/// One that takes longer says nothing that would help.
const PATIENCE: Duration = Duration::from_secs(4);

/// Requests of a byte.
#[derive(Debug, Default)]
pub(crate) struct RoundTrip {
    /// Where the byte is: the first one of the record that was last requested.
    at: Option<(FileIdx, u64)>,
    asked: Option<Instant>,
    is_under_way: bool,
}

impl RoundTrip {
    /// A record that begins there is requested.
    pub(crate) fn requested(&mut self, file: FileIdx, offset: u64) {
        self.at = Some((file, offset));
    }

    /// Where the next byte is, if it is time for one.
    pub(crate) fn due(&self) -> Option<(FileIdx, u64)> {
        let is_due = self.asked.is_none_or(|at| at.elapsed() >= EVERY);
        self.at.filter(|_| is_due && !self.is_under_way)
    }

    /// The request, which is sent now.
    pub(crate) fn ask(&mut self, object: Arc<str>, offset: u64) -> Fetch {
        (self.asked, self.is_under_way) = (Some(Instant::now()), true);
        let range = offset..offset.saturating_add(1);
        Fetch { tag: TAG, object, range, expected: None, timeout: PATIENCE }
    }

    /// Whether an answer is waited for.
    #[cfg(test)]
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// It has ended; how long it took.
    pub(crate) fn ended(&mut self) -> u64 {
        self.is_under_way = false;
        let took = self.asked.map_or(PATIENCE, |at| at.elapsed());
        u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
    }
}
