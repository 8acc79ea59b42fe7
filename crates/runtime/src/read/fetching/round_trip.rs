//! How long it takes to a store and back: now and then a byte is requested, which has no bytes of its own to
//! wait for.
//!
//! Requests of records do not tell it: most of their time goes by in the queue that they themselves make. When a
//! byte is requested, `core::link` decides: at the start, and whenever that queue has run empty.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bothends_core::link::Asked;
use bothends_core::sample::FileIdx;
use bothends_storage::Fetch;

/// The name of such a request; the queue counts its own upwards from 1.
pub(crate) const TAG: u64 = u64::MAX;

/// One that takes longer says nothing that would help.
const PATIENCE: Duration = Duration::from_secs(4);

/// Requests of a byte.
#[derive(Debug, Default)]
pub(crate) struct RoundTrip {
    /// Where the byte is: the first one of the record that was last requested.
    at: Option<(FileIdx, u64)>,
    /// The request whose answer is waited for, and since when.
    under_way: Option<(Asked, Instant)>,
}

impl RoundTrip {
    /// A record that begins there is requested.
    pub(crate) fn requested(&mut self, file: FileIdx, offset: u64) {
        self.at = Some((file, offset));
    }

    /// Where the next byte is, if one may be requested: one at a time.
    pub(crate) fn place(&self) -> Option<(FileIdx, u64)> {
        self.at.filter(|_| self.under_way.is_none())
    }

    /// The request, which is sent now.
    pub(crate) fn ask(&mut self, asked: Asked, object: Arc<str>, offset: u64) -> Fetch {
        self.under_way = Some((asked, Instant::now()));
        let range = offset..offset.saturating_add(1);
        Fetch { tag: TAG, object, range, expected: None, timeout: PATIENCE }
    }

    /// Whether an answer is waited for.
    #[cfg(test)]
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// It has ended; which one it was, and how long it took.
    pub(crate) fn ended(&mut self) -> Option<(Asked, u64)> {
        let (asked, at) = self.under_way.take()?;
        let ns = u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Some((asked, ns))
    }
}
