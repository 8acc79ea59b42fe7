//! Whether there is time to transcode, and for which records: decided from counts, without a clock, a
//! thread or a lock. Read `transcode.rs` for who acts on it.
//!
//! Time to spare is where workers are without a sample: all slots are full and the consumer is behind,
//! or storage is. As many threads transcode as there are such workers, so workers and transcoding
//! threads together are never more than the workers that the user asked for. A record is offered where a
//! worker has just decoded it and its bytes are at hand: nothing is read for this. Records are offered once
//! time to spare has been seen, and while the bytes that wait are within a bound. The bound begins small and
//! doubles whenever everything that waited has been transcoded: a run that is never idle copies little.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The most bytes of files that wait to be transcoded: some 600 photographs of ImageNet.
pub(crate) const WAITING_BYTES: u64 = 64 << 20;

/// The first bound of the bytes that wait. Copying up to 64 MiB into memory that is touched for the first time
/// took 3 % of an epoch of 5,000 photographs with no time to spare.
const FIRST_BYTES: u64 = 2 << 20;

/// Whether one more thread may begin a record, where so many workers have a sample and so many
/// threads transcode.
pub(crate) fn may_begin(n_workers: u32, n_busy: u32, n_transcoding: u32) -> bool {
    n_busy.saturating_add(n_transcoding) < n_workers
}

/// What workers and transcoding threads tell each other. All of it stands alone: no other memory is
/// published through it, and nobody waits.
#[derive(Debug)]
pub(crate) struct Counts {
    n_workers: u32,
    n_transcoding: AtomicU32,
    waiting_bytes: AtomicU64,
    /// The bound of these, at most `WAITING_BYTES`.
    room_bytes: AtomicU64,
    /// Whether there has been time to spare since so much waited that no more was taken.
    has_idled: AtomicBool,
}

impl Counts {
    pub(crate) fn new(n_workers: u32) -> Self {
        Self {
            n_workers,
            n_transcoding: AtomicU32::new(0),
            waiting_bytes: AtomicU64::new(0),
            room_bytes: AtomicU64::new(FIRST_BYTES),
            has_idled: AtomicBool::new(false),
        }
    }

    /// A worker has nothing to do.
    pub(crate) fn idles(&self) {
        if !self.has_idled.load(Ordering::Relaxed) {
            self.has_idled.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a record may be offered, before it is known how long it is.
    pub(crate) fn wants(&self) -> bool {
        self.has_idled.load(Ordering::Relaxed)
    }

    /// Takes room for so many bytes that wait from now on; false if there is none. One record may be larger than
    /// the bound is by now.
    pub(crate) fn take_room(&self, n_bytes: u64) -> bool {
        let before = self.waiting_bytes.fetch_add(n_bytes, Ordering::Relaxed);
        let room = match before {
            0 => WAITING_BYTES,
            _ => self.room_bytes.load(Ordering::Relaxed),
        };
        let has_room = before.saturating_add(n_bytes) <= room;
        if !has_room {
            self.waiting_bytes.fetch_sub(n_bytes, Ordering::Relaxed);
            self.has_idled.store(false, Ordering::Relaxed);
        }
        has_room
    }

    /// So many bytes wait no more: there is time for them. If they were the last, more may wait from now on.
    pub(crate) fn give_room(&self, n_bytes: u64) {
        let before = self.waiting_bytes.fetch_sub(n_bytes, Ordering::Relaxed);
        if before == n_bytes {
            let more = self.room_bytes.load(Ordering::Relaxed).saturating_mul(2);
            self.room_bytes.store(more.min(WAITING_BYTES), Ordering::Relaxed);
        }
    }

    /// Begins to transcode, if there is time; [`Self::end`] ends it.
    pub(crate) fn begin(&self, n_busy: u32) -> bool {
        let before = self.n_transcoding.fetch_add(1, Ordering::Relaxed);
        let may = may_begin(self.n_workers, n_busy, before);
        if !may {
            self.end();
        }
        may
    }

    pub(crate) fn end(&self) {
        self.n_transcoding.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever happens in whatever order, the bounds hold and what is taken comes back.
        #[test]
        fn never_more_at_work_than_workers_and_never_more_bytes_than_the_bound(
            n_workers in 1_u32..9,
            events in prop::collection::vec((0_u8..6, 1_u64..20 << 20), 0..200),
        ) {
            let counts = Counts::new(n_workers);
            let (mut n_busy, mut n_transcoding) = (0, 0);
            let mut waiting = Vec::new();
            for (event, n_bytes) in events {
                match event {
                    0 if n_busy < n_workers => n_busy += 1,
                    1 if n_busy > 0 => n_busy -= 1,
                    2 => {
                        let begun = counts.begin(n_busy);
                        prop_assert_eq!(begun, n_busy + n_transcoding < n_workers);
                        n_transcoding += u32::from(begun);
                    }
                    3 if n_transcoding > 0 => {
                        counts.end();
                        n_transcoding -= 1;
                    }
                    4 => {
                        counts.idles();
                        prop_assert!(counts.wants());
                        if counts.take_room(n_bytes) {
                            waiting.push(n_bytes);
                        } else {
                            prop_assert!(!counts.wants(), "until there is time again");
                        }
                    }
                    5 => waiting.pop().into_iter().for_each(|n| counts.give_room(n)),
                    _ => {}
                }
                prop_assert!(waiting.iter().sum::<u64>() <= WAITING_BYTES);
            }
            waiting.drain(..).for_each(|n| counts.give_room(n));
            prop_assert_eq!(counts.waiting_bytes.load(Ordering::Relaxed), 0);
            prop_assert!(counts.take_room(WAITING_BYTES));
        }
    }

    #[test]
    fn little_waits_before_anything_was_transcoded() {
        let counts = Counts::new(2);
        // As large as it may be, one waits; a second does not fit then.
        assert!(counts.take_room(2 * FIRST_BYTES));
        assert!(!counts.take_room(1));
        counts.give_room(2 * FIRST_BYTES);
        // The bound has doubled, and doubles up to the largest.
        assert!(counts.take_room(FIRST_BYTES) && counts.take_room(FIRST_BYTES));
        assert!(!counts.take_room(1));
        counts.give_room(FIRST_BYTES);
        assert!(!counts.take_room(FIRST_BYTES + 1), "some still wait");
        counts.give_room(FIRST_BYTES);
        for _ in 0..8 {
            assert!(counts.take_room(1));
            counts.give_room(1);
        }
        assert!(counts.take_room(1) && counts.take_room(WAITING_BYTES - 1));
        assert!(!counts.take_room(1));
        assert!(!Counts::new(2).take_room(WAITING_BYTES + 1));
    }

    #[test]
    fn nothing_is_offered_before_there_was_time() {
        let counts = Counts::new(2);
        assert!(!counts.wants());
        counts.idles();
        assert!(counts.wants());
    }
}
