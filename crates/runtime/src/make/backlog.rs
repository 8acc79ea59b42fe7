//! The backlog: what workers have been handed of long records, in bytes. Threads that bring records hand on no more than
//! memory has room for; without that, sixteen records for each worker may wait, however long they are.
//!
//! Only long records count. Others are bounded by their number, and have buffers of their own where they are read from files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Records for each worker that may be handed on whatever they take: the one that it makes, and the next.
const EACH: u64 = 2;

/// How much may be handed on, and how much is.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// Records of no more bytes do not count.
    short_bytes: usize,
    most_bytes: u64,
    least_records: u64,
    /// These counters stand alone: no other memory is published through them. Only one thread adds to them.
    n_records: AtomicU64,
    bytes: AtomicU64,
}

/// A long record that workers have. It counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Handed {
    bytes: u64,
    backlog: Arc<Backlog>,
}

impl Backlog {
    /// For so many workers: at most so many bytes, except for what keeps them busy; records of up to `short_bytes` do not
    /// count.
    pub(crate) fn new(n_workers: u32, short_bytes: u32, most_bytes: u64) -> Self {
        Self {
            short_bytes: short_bytes as usize,
            most_bytes,
            least_records: EACH * u64::from(n_workers),
            n_records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Whether a record of so many bytes may be handed on. As long as workers have none there is room, whatever it takes.
    pub(crate) fn has_room(&self, n_bytes: usize) -> bool {
        n_bytes <= self.short_bytes
            || self.n_records.load(Ordering::Relaxed) < self.least_records
            || self.bytes.load(Ordering::Relaxed).saturating_add(n_bytes as u64)
                <= self.most_bytes
    }

    /// A record of so many bytes is being handed on; `None` where it does not count.
    pub(crate) fn hand(self: &Arc<Self>, n_bytes: usize) -> Option<Handed> {
        if n_bytes <= self.short_bytes {
            return None;
        }
        let bytes = n_bytes as u64;
        self.n_records.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Some(Handed { bytes, backlog: Arc::clone(self) })
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        self.backlog.n_records.fetch_sub(1, Ordering::Relaxed);
        self.backlog.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_records_are_handed_on_within_the_bound_and_two_for_each_worker() {
        let backlog = Arc::new(Backlog::new(2, 100, 1000));
        let mut handed = Vec::new();
        while backlog.has_room(300) {
            handed.extend(backlog.hand(300));
        }
        assert_eq!(handed.len(), 4, "1,200 bytes keep two workers busy");
        assert!(backlog.has_room(100) && backlog.hand(100).is_none(), "short");
        handed.pop();
        assert!(backlog.has_room(5000), "whatever it takes");
        let small = Arc::new(Backlog::new(1, 100, 1000));
        let mut handed = Vec::new();
        while small.has_room(200) {
            handed.extend(small.hand(200));
        }
        assert_eq!(handed.len(), 5);
        drop(handed);
        assert!(small.has_room(1 << 40));
    }
}
