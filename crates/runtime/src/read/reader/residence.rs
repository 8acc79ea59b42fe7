//! Whether the page cache has the data, in which case workers read their records themselves.
//!
//! One thread that reads for all of them copies 4 to 7 GB/s out of the page cache, into memory that each worker then
//! has to bring from the other's cache. A worker copies into memory of its own, which stays in its cache, and there
//! are as many of them as cores. But it must not wait for a disk: what the page cache does not have goes
//! back to the reader, which keeps many reads in flight. [`Guess`] says, without asking anybody, who is to read the next
//! record; [`Residence`] is where workers tell what they have found.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bothends_core::sample::SampleKey;
use bothends_dataset::Piece;
use bothends_io::OpenFile;

use crate::read::blocks::CachedPiece;
use crate::read::opener::{self, Open};
use crate::read::source::Source;

/// Records that the reader reads after a miss, before a worker tries one again; twice as many after each further
/// miss, up to the second. A try that fails costs a microsecond and the record's turn.
const PAUSES: (u32, u32) = (16, 1024);

/// As many records in succession that were there: a miss after them is the first one again.
const LONG_RUN: u32 = 256;

/// Records that the reader reads while it waits to hear of a try: the batch may have been revoked.
const PATIENCE: u32 = 256;

/// Bytes of memory that most records fit into.
const LEAST_MEMORY: usize = 256 << 10;

/// What the workers have found, and how much they have read. Each number stands alone: no other memory is published
/// through it.
#[derive(Debug, Default)]
pub(crate) struct Residence {
    hits: AtomicU32,
    misses: AtomicU32,
    /// Bytes read by the reader and the workers, for whoever asks.
    pub(crate) read_bytes: Arc<AtomicU64>,
}

/// How many records the page cache had and had not, modulo 2^32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) hits: u32,
    pub(crate) misses: u32,
}

/// A record that the page cache had.
#[derive(Debug)]
pub(crate) struct Resident {
    pub(crate) file: Arc<OpenFile>,
    /// Where it is row groups of the block cache.
    pub(crate) cached: Option<Box<CachedPiece>>,
    pub(crate) len: usize,
}

impl Residence {
    /// Counts in `read_bytes`.
    pub(crate) fn counting(read_bytes: Arc<AtomicU64>) -> Self {
        Self { read_bytes, ..Self::default() }
    }

    /// What has been found so far.
    pub(crate) fn tally(&self) -> Tally {
        let of = |count: &AtomicU32| count.load(Ordering::Relaxed);
        Tally { hits: of(&self.hits), misses: of(&self.misses) }
    }

    /// Reads what the sample of `key` is made of to the start of `memory`, which grows to hold it, if the page
    /// cache has all of it. Opens its file, and does not wait for its bytes.
    pub(crate) fn read(
        &self,
        source: &Source,
        (key, piece): (SampleKey, Piece),
        memory: &mut Vec<u8>,
    ) -> Option<Resident> {
        let file = self.open(source, piece)?;
        let blocks = source.blocks().and_then(|_| source.cached(key, &file));
        let (from, offset, len) = match &blocks {
            Some(CachedPiece { file, offset, len, .. }) => (file, *offset, *len),
            None => (&file, piece.extent.offset, piece.extent.len),
        };
        let len = len as usize;
        if memory.len() < len {
            // In few steps, however many lengths there are.
            *memory = vec![0; len.next_power_of_two().max(LEAST_MEMORY)];
        }
        self.read_cached(from, offset, &mut memory[..len]).then(|| Resident {
            file,
            cached: blocks.map(Box::new),
            len,
        })
    }

    /// The same of a record that is delivered as it is: all of it into its row, and whether it is there.
    pub(crate) fn read_into(
        &self,
        source: &Source,
        piece: Piece,
        row: &mut [u8],
    ) -> bool {
        let is_whole = row.len() == piece.extent.len as usize;
        let Some(file) = self.open(source, piece).filter(|_| is_whole) else {
            return false;
        };
        self.read_cached(&file, piece.extent.offset, row)
    }

    /// The file of a piece, unless it cannot be opened, or only by waiting: that is for the reader, too.
    fn open(&self, source: &Source, piece: Piece) -> Option<Arc<OpenFile>> {
        let file = piece.extent.file;
        if let Some(open) = source.known(file) {
            return Some(open);
        }
        let (opened, is_slow) = opener::open_timed(source, file);
        let file = opened.ok();
        if file.is_none() || is_slow {
            self.misses.fetch_add(1, Ordering::Relaxed);
        }
        file
    }

    fn read_cached(&self, file: &OpenFile, offset: u64, bytes: &mut [u8]) -> bool {
        let is_there = file.read_cached(bytes, offset);
        let counter = if is_there { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        if is_there {
            self.read_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        is_there
    }
}

/// Who is to read the next record.
#[derive(Debug)]
pub(crate) struct Guess {
    state: State,
    /// Records that the reader reads after the next miss.
    pause: u32,
    /// What workers had found when it was last asked.
    known: Tally,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Workers are never to read.
    Never,
    /// The page cache has what is read, as far as is known, for so many records.
    Resident { run: u32 },
    /// It has not: the reader reads so many more records.
    Absent { left: u32 },
    /// A worker tries one, and the reader reads those behind it.
    Tried { left: u32 },
}

impl Guess {
    /// Nothing is known yet: the first record is a try.
    pub(crate) fn new() -> Self {
        let known = Tally::default();
        Self { state: State::Absent { left: 0 }, pause: PAUSES.0, known }
    }

    /// Workers never read.
    pub(crate) fn never() -> Self {
        Self { state: State::Never, ..Self::new() }
    }

    /// Whether a worker is to read the next record, after what they have found.
    pub(crate) fn is_resident(&mut self, found: Tally) -> bool {
        self.learn(found);
        match &mut self.state {
            State::Never => false,
            State::Resident { run } => {
                *run = run.saturating_add(1);
                if *run == LONG_RUN {
                    self.pause = PAUSES.0;
                }
                true
            }
            State::Absent { left: 0 } | State::Tried { left: 0 } => {
                self.state = State::Tried { left: PATIENCE };
                true
            }
            State::Absent { left } | State::Tried { left } => {
                *left -= 1;
                false
            }
        }
    }

    fn learn(&mut self, found: Tally) {
        let is_miss = found.misses != self.known.misses;
        let is_hit = found.hits != self.known.hits;
        self.known = found;
        self.state = match self.state {
            State::Resident { .. } | State::Tried { .. } if is_miss => {
                let left = self.pause;
                self.pause = (2 * left).min(PAUSES.1);
                State::Absent { left }
            }
            State::Tried { .. } if is_hit => State::Resident { run: 0 },
            // What is still heard of records from before says nothing new.
            same @ (State::Never
            | State::Resident { .. }
            | State::Absent { .. }
            | State::Tried { .. }) => same,
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Asks for so many records, of which workers find what `has` says, `delay` records later.
    fn ask(n: u32, delay: usize, has: impl Fn(u32) -> bool) -> Vec<bool> {
        let (mut guess, mut tally) = (Guess::new(), Tally::default());
        let mut under_way = std::collections::VecDeque::new();
        let ask = |record| {
            let by_worker = guess.is_resident(tally);
            under_way.push_back(by_worker.then(|| has(record)));
            if under_way.len() > delay {
                match under_way.pop_front().flatten() {
                    Some(true) => tally.hits = tally.hits.wrapping_add(1),
                    Some(false) => tally.misses = tally.misses.wrapping_add(1),
                    None => {}
                }
            }
            by_worker
        };
        (0..n).map(ask).collect()
    }

    fn count(asked: &[bool]) -> usize {
        asked.iter().filter(|by_worker| **by_worker).count()
    }

    proptest! {
        #[test]
        fn workers_read_all_of_what_is_there_and_little_of_what_is_not(delay in 0..64_usize) {
            let there = ask(10_000, delay, |_| true);
            prop_assert!(count(&there) >= 9999 - delay);
            let absent = ask(10_000, delay, |_| false);
            prop_assert!(count(&absent) <= 16, "{}", count(&absent));
        }

        #[test]
        fn what_comes_into_the_page_cache_is_found_and_what_leaves_it_too(
            (delay, turn) in (0..64_usize, 1000..5000_u32),
        ) {
            let came = ask(20_000, delay, |record| record >= turn);
            prop_assert!(count(&came[turn as usize + 1200..]) >= 20_000 - turn as usize - 1300);
            let left = ask(20_000, delay, |record| record < turn);
            // All that were under way, and from then on tries.
            let tried = count(&left[turn as usize..]);
            prop_assert!(tried <= delay + 1 + 24, "{tried}");
        }
    }

    #[test]
    fn a_record_here_and_there_that_is_missing_does_not_end_it() {
        let asked = ask(100_000, 8, |record| record % 1000 != 999);
        assert!(count(&asked) > 95_000, "{}", count(&asked));
        let asked = ask(100_000, 8, |record| record % 10 != 0);
        assert!(count(&asked) < 10_000, "{}", count(&asked));
    }

    #[test]
    fn a_try_of_which_nobody_hears_is_followed_by_another() {
        let mut guess = Guess::new();
        let asked: Vec<_> =
            (0..600).map(|_| guess.is_resident(Tally::default())).collect();
        assert_eq!(count(&asked), 3);
        let mut never = Guess::never();
        let hits = |hits| Tally { hits, misses: 0 };
        assert!((0..600).all(|n| !never.is_resident(hits(n))));
    }
}
