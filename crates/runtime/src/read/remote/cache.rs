//! The record cache of a run: which records of a remote store are read from a local disk, and which are
//! still to be written there.
//!
//! What a cache is on a disk, `side-index` says. A record that is in it is never asked of the network: the
//! thread that fetches finds it by its name and has it brought into the page cache, and a worker reads it.
//! What was fetched is offered to a thread that writes, through a queue that never makes anybody wait: where
//! the disk is slower than the network, records are left out, and another epoch may keep them.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bothends_figures::RecordCacheUse;
use bothends_side_index::{Cache, CachedRecord, Name, RecordCache};
use bothends_storage::Bytes;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::config::run::RunConfig;
use crate::threads::shutdown::{PATIENCE, Stop};

/// The most bytes of records that wait to be written: with those on their way to workers, they hold
/// what requests have brought.
const WAITING_BYTES: u64 = 32 << 20;

/// How often segments of other processes are looked for: what another rank has fetched is not to be fetched again.
const CATCH_UP: Duration = Duration::from_secs(5);

/// The most records that wait.
const MOST_WAITING: usize = 1 << 16;

/// A run's record cache.
#[derive(Debug)]
pub(crate) struct Kept {
    cache: RecordCache,
    offers: (Sender<Offer>, Receiver<Offer>),
    /// These counters stand alone: no other memory is published through them.
    waiting_bytes: AtomicU64,
    left_out: AtomicU64,
    /// Whether the end of an epoch is to be seen to.
    is_epoch_over: AtomicBool,
}

/// A record that was fetched.
#[derive(Debug)]
struct Offer {
    name: Name,
    bytes: Bytes,
    range: Range<usize>,
    /// What it counts among the bytes that wait.
    held_bytes: u64,
}

/// Bytes that wait with a record of an answer: all of it, or a copy of a part that is less than half.
fn held_bytes(bytes: &Bytes, range: &Range<usize>) -> u64 {
    let is_part = range.len() < bytes.len() / 2;
    (if is_part { range.len() } else { bytes.len() }) as u64
}

impl Offer {
    /// Of a small part of a long answer, a copy: the rest of the answer is not kept for it.
    fn of(name: Name, (bytes, range): (&Bytes, &Range<usize>)) -> Self {
        let held_bytes = held_bytes(bytes, range);
        match bytes.get(range.clone()) {
            Some(record) if held_bytes < bytes.len() as u64 => {
                let (bytes, range) = (Bytes::copy_from_slice(record), 0..record.len());
                Self { name, bytes, range, held_bytes }
            }
            _ => Self { name, bytes: bytes.clone(), range: range.clone(), held_bytes },
        }
    }
}

impl Kept {
    /// The cache of what is called `name`, where there is to be one, and one line for the user where it
    /// cannot be. Blocks on the file system.
    pub(crate) fn open(config: &RunConfig, name: &str) -> (Option<Self>, Option<String>) {
        let root = config.cache.clone();
        let limit_bytes = config.read.cache_size.limit_bytes();
        let Some((root, limit_bytes)) = root.zip(limit_bytes) else {
            return (None, None);
        };
        let shown = root.display().to_string();
        let Some(cache) = RecordCache::open(name, Cache { root, limit_bytes }) else {
            let note = format!(
                "no records are kept in {shown}: no key can be written there, or in the user's state directory"
            );
            return (None, Some(note));
        };
        let note = cache.hindrance(config.names).map(|why| {
            cache.stop(why.clone());
            format!("no more records are kept in {shown}: {why}")
        });
        let kept = Self {
            cache,
            offers: bounded(MOST_WAITING),
            waiting_bytes: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            is_epoch_over: AtomicBool::new(false),
        };
        (Some(kept), note)
    }

    /// The record with this name, if it has `len` bytes. Never waits.
    pub(crate) fn find(&self, name: Name, len: u32) -> Option<CachedRecord> {
        self.cache.find(name).filter(|record| record.len_bytes() == len)
    }

    /// Reads a record; `None` where it is damaged, and was forgotten. Blocks on the disk.
    pub(crate) fn read(&self, record: &CachedRecord) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.cache.read(record, &mut bytes).then_some(bytes)
    }

    pub(crate) fn takes_more(&self) -> bool {
        self.cache.takes_more()
    }

    /// Offers what was fetched for a record; does not wait.
    pub(crate) fn offer(&self, name: Name, (bytes, range): (&Bytes, &Range<usize>)) {
        if !self.takes_more() {
            return;
        }
        let n_bytes = held_bytes(bytes, range);
        let before = self.waiting_bytes.fetch_add(n_bytes, Ordering::Relaxed);
        // One that is longer than all that may wait goes alone.
        let has_room = before == 0 || before.saturating_add(n_bytes) <= WAITING_BYTES;
        let offer = || Offer::of(name, (bytes, range));
        if !has_room || self.offers.0.try_send(offer()).is_err() {
            self.waiting_bytes.fetch_sub(n_bytes, Ordering::Relaxed);
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The loop of the thread that writes. It ends behind what was offered before `stop` was set: that is
    /// no more than some megabytes.
    pub(crate) fn run(&self, stop: &Stop) {
        let mut looked = Instant::now();
        loop {
            match self.offers.1.recv_timeout(PATIENCE) {
                Ok(offer) => self.write(&offer),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if stop.is_set() {
                break;
            }
            // Also between offers: over a slow link they come without a pause.
            if self.tidy() {
                looked = Instant::now();
            } else if looked.elapsed() >= CATCH_UP {
                self.cache.catch_up();
                looked = Instant::now();
            }
        }
        while let Ok(offer) = self.offers.1.try_recv() {
            self.write(&offer);
        }
        self.tidy();
    }

    fn write(&self, Offer { name, bytes, range, held_bytes }: &Offer) {
        let record = bytes.get(range.clone()).unwrap_or_default();
        // Why it was not kept is in the figures.
        let _ = self.cache.keep(*name, record);
        self.waiting_bytes.fetch_sub(*held_bytes, Ordering::Relaxed);
    }

    /// An epoch is over: the thread that writes sees to the rest.
    pub(crate) fn epoch_is_over(&self) {
        self.is_epoch_over.store(true, Ordering::Relaxed);
    }

    /// Does what the end of an epoch takes; whether there was one.
    fn tidy(&self) -> bool {
        let is_epoch_over = self.is_epoch_over.swap(false, Ordering::Relaxed);
        if is_epoch_over {
            self.cache.tidy();
        }
        is_epoch_over
    }

    /// What it has, and has done.
    pub(crate) fn used(&self) -> RecordCacheUse {
        let stats = self.cache.stats();
        RecordCacheUse {
            folder: stats.folder,
            records: stats.records,
            bytes: stats.bytes,
            limit_bytes: stats.limit_bytes,
            kept: stats.transcoded,
            left_out: self.left_out.load(Ordering::Relaxed),
            hits: stats.read,
            saved_bytes: stats.read_bytes,
            damaged: stats.damaged,
            off: stats.off,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_to_be_written_keeps_what_is_counted() {
        let name = Name::of_object(1, (100, Some("v1"), None)).unwrap();
        let answer = Bytes::from((0..200).collect::<Vec<u8>>());
        for (range, held) in [(10..20, 10), (0..90, 90), (100..200, 200), (0..200, 200)] {
            let offer = Offer::of(name, (&answer, &range));
            assert_eq!(offer.bytes.len(), held, "{range:?}");
            assert_eq!(offer.held_bytes, held as u64);
            assert_eq!(offer.bytes[offer.range.clone()], answer[range]);
        }
    }
}
