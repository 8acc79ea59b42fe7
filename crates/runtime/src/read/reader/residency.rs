//! Whether the page cache has the data, in which case workers read their records themselves.
//!
//! One thread that reads for all of them copies 4 to 7 GB/s out of the page cache, into memory that each worker then
//! has to bring from the other's cache. A worker copies into memory of its own, which stays in its cache, and there
//! are as many of them as cores. But it must not wait for a disk: what the page cache does not have goes
//! back to the reader, which keeps many reads in flight. [`Guess`] says, without asking anybody, who is to read the next
//! record; [`Residency`] is where workers tell what they have found.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bothends_core::sample::SampleKey;
use bothends_dataset::Piece;
use bothends_io::OpenFile;
use bothends_side_index::Wait;

use crate::read::blocks::CachedPiece;
use crate::read::opener::{self, Open};
use crate::read::source::{Note, Source};

/// Records that the reader reads after a miss, before a worker tries one again; twice as many after each further
/// miss, up to the second. A try that fails has the kernel begin to read, and costs the record's turn.
const PAUSES: (u32, u32) = (16, 1024);

/// As many records in succession that were there: a miss after them is the first one again.
const LONG_RUN: u32 = 256;

/// Records that the reader reads while it waits to hear of a try: the batch may have been revoked.
const PATIENCE: u32 = 256;

/// Longer records are for the reader: a worker keeps as much memory as its longest record takes.
pub(crate) const MOST_BYTES: u32 = 1 << 20;

/// Bytes of memory that most records fit into.
const LEAST_MEMORY: usize = 256 << 10;

/// What the workers have found, and how much they have read. Each number stands alone: no other memory is published
/// through it.
#[derive(Debug, Default)]
pub(crate) struct Residency {
    /// The turn whose finds are counted.
    turn: AtomicU32,
    hits: AtomicU32,
    misses: AtomicU32,
    /// A sliding mean of what opening a file takes, in ns.
    opening_ns: AtomicU64,
    /// Bytes read by the reader and the workers, for whoever asks.
    pub(crate) read_bytes: Arc<AtomicU64>,
}

/// When a record was handed out. Hundreds may wait for workers, and what is heard of those from an earlier turn says
/// nothing new.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Turn(u32);

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
    /// The part of the record that was read, or all of it.
    pub(crate) piece: Piece,
    pub(crate) len: usize,
}

impl Residency {
    /// Counts in `read_bytes`.
    pub(crate) fn counting(read_bytes: Arc<AtomicU64>) -> Self {
        Self { read_bytes, ..Self::default() }
    }

    /// What has been found so far of records that were handed out in their own turn.
    pub(crate) fn tally(&self) -> Tally {
        let of = |count: &AtomicU32| count.load(Ordering::Relaxed);
        Tally { hits: of(&self.hits), misses: of(&self.misses) }
    }

    /// Only what is found in this turn counts from now on.
    pub(crate) fn begin(&self, turn: Turn) {
        self.turn.store(turn.0, Ordering::Relaxed);
    }

    /// Reads what the sample of `key` is made of to the start of `memory`, which grows to hold it, if the page
    /// cache has all of it. Opens its file, and does not wait for its bytes. Leaves to `note` what says how to
    /// decode a part of it.
    pub(crate) fn read(
        &self,
        source: &Source,
        (key, piece, turn): (SampleKey, Piece, Turn),
        memory: &mut Vec<u8>,
        note: &mut Note,
    ) -> Option<Resident> {
        let file = self.open(source, piece, turn)?;
        let blocks = source.blocks().and_then(|_| source.cached(key, &file));
        let piece = match &blocks {
            Some(_) => piece,
            None => source.narrowed((key, piece), &file, note, Wait::ForDisk),
        };
        let (from, offset, len) = match &blocks {
            Some(CachedPiece { file, offset, len, .. }) => (file, *offset, *len),
            None => (&file, piece.extent.offset, piece.extent.len),
        };
        let len = len as usize;
        if memory.len() < len {
            // In few steps, however many lengths there are.
            *memory = vec![0; len.next_power_of_two().max(LEAST_MEMORY)];
        }
        self.read_cached((from, offset, turn), &mut memory[..len]).then(|| Resident {
            file,
            cached: blocks.map(Box::new),
            piece,
            len,
        })
    }

    /// The same of a record that is delivered as it is: all of it into its row, and whether it is there. Such records
    /// have no checksum of their own.
    pub(crate) fn read_into(
        &self,
        source: &Source,
        (piece, turn): (Piece, Turn),
        row: &mut [u8],
    ) -> bool {
        let is_whole = row.len() == piece.extent.len as usize;
        let Some(file) = self.open(source, piece, turn).filter(|_| is_whole) else {
            return false;
        };
        self.read_cached((&file, piece.extent.offset, turn), row)
    }

    /// The file of a piece. Where opening files takes long, that is a miss: the reader has threads for it. Of a file that
    /// cannot be opened it says why.
    fn open(&self, source: &Source, piece: Piece, turn: Turn) -> Option<Arc<OpenFile>> {
        let file = piece.extent.file;
        if let Some(open) = source.known(file) {
            return Some(open);
        }
        let (opened, took) = opener::timed(source, file);
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let before_ns = self.opening_ns.load(Ordering::Relaxed);
        let mean_ns = before_ns - before_ns / 8 + took_ns / 8;
        let is_slow = u128::from(mean_ns) > opener::SLOW.as_nanos();
        self.opening_ns.store(if is_slow { 0 } else { mean_ns }, Ordering::Relaxed);
        if is_slow {
            self.count(&self.misses, turn);
        }
        opened.ok()
    }

    fn read_cached(
        &self,
        (file, offset, turn): (&OpenFile, u64, Turn),
        bytes: &mut [u8],
    ) -> bool {
        let is_there = file.read_cached(bytes, offset);
        self.count(if is_there { &self.hits } else { &self.misses }, turn);
        if is_there {
            self.read_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        is_there
    }

    /// As if a worker had found a record.
    #[cfg(test)]
    pub(super) fn found_for_test(&self, turn: Turn) {
        self.count(&self.hits, turn);
    }

    fn count(&self, counter: &AtomicU32, turn: Turn) {
        if self.turn.load(Ordering::Relaxed) == turn.0 {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Who is to read the next record.
#[derive(Debug)]
pub(crate) struct Guess {
    state: State,
    turn: Turn,
    /// Records that the reader reads after the next miss.
    pause: u32,
    /// What workers had found when it was last asked.
    known: Tally,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Workers are never to read.
    Never,
    /// The page cache has what is read, as far as is known: so many records that workers have found.
    Resident { found: u32 },
    /// It has not: the reader reads so many more records.
    Absent { left: u32 },
    /// A worker tries one, and the reader reads so many behind it before another is tried.
    Tried { left: u32 },
}

impl Guess {
    /// Nothing is known yet: the first record is a try.
    pub(crate) fn new() -> Self {
        let (turn, known) = (Turn::default(), Tally::default());
        Self { state: State::Absent { left: 0 }, turn, pause: PAUSES.0, known }
    }

    /// Workers never read.
    pub(crate) fn never() -> Self {
        Self { state: State::Never, ..Self::new() }
    }

    /// Whether a worker is to read the next record, after what they have found, and in which turn that is.
    pub(crate) fn resident(&mut self, found: Tally) -> Option<Turn> {
        self.learn(found);
        match &mut self.state {
            State::Never => None,
            State::Resident { .. } => Some(self.turn),
            State::Absent { left: 0 } => {
                self.turn = Turn(self.turn.0.wrapping_add(1));
                self.state = State::Tried { left: PATIENCE };
                Some(self.turn)
            }
            State::Tried { left: left @ 0 } => {
                *left = PATIENCE;
                Some(self.turn)
            }
            State::Absent { left } | State::Tried { left } => {
                *left -= 1;
                None
            }
        }
    }

    fn learn(&mut self, found: Tally) {
        let is_miss = found.misses != self.known.misses;
        let n_hits = found.hits.wrapping_sub(self.known.hits);
        self.known = found;
        match &mut self.state {
            State::Resident { .. } | State::Tried { .. } if is_miss => {
                self.state = State::Absent { left: self.pause };
                self.pause = (2 * self.pause).min(PAUSES.1);
            }
            State::Resident { found } => {
                *found = found.saturating_add(n_hits);
                if *found >= LONG_RUN {
                    self.pause = PAUSES.0;
                }
            }
            State::Tried { .. } if n_hits > 0 => {
                self.state = State::Resident { found: n_hits };
            }
            State::Never | State::Absent { .. } | State::Tried { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// Asks for so many records, of which workers find what `has` says, `delay` records later.
    fn ask(n: u32, delay: usize, has: impl Fn(u32) -> bool) -> Vec<bool> {
        let (mut guess, found) = (Guess::new(), Residency::default());
        let mut under_way = VecDeque::new();
        let ask = |record| {
            let turn = guess.resident(found.tally());
            turn.into_iter().for_each(|turn| found.begin(turn));
            under_way.push_back(turn.map(|turn| (has(record), turn)));
            if under_way.len() > delay
                && let Some((is_there, turn)) = under_way.pop_front().flatten()
            {
                found.count(if is_there { &found.hits } else { &found.misses }, turn);
            }
            turn.is_some()
        };
        (0..n).map(ask).collect()
    }

    fn count(asked: &[bool]) -> usize {
        asked.iter().filter(|by_worker| **by_worker).count()
    }

    /// Tries of 20,000 records that are not there: one after each pause, and others while nothing is heard of it.
    fn tries(delay: usize) -> usize {
        27 * (1 + delay / 256)
    }

    proptest! {
        #[test]
        fn workers_read_all_of_what_is_there_and_little_of_what_is_not(delay in 0..1024_usize) {
            let there = ask(20_000, delay, |_| true);
            prop_assert!(count(&there) >= 19_999 - delay);
            let absent = ask(20_000, delay, |_| false);
            prop_assert!(count(&absent) <= tries(delay), "{}", count(&absent));
        }

        #[test]
        fn what_comes_into_the_page_cache_is_found_and_what_leaves_it_too(
            (delay, turn) in (0..1024_usize, 3000..5000_u32),
        ) {
            let came = ask(20_000, delay, |record| record >= turn);
            let late = 20_000 - turn as usize - count(&came[turn as usize..]);
            prop_assert!(late <= 2 * (1024 + delay + 256), "{late}");
            let left = ask(20_000, delay, |record| record < turn);
            // All that were under way, and from then on tries.
            let tried = count(&left[turn as usize..]);
            prop_assert!(tried <= delay + 1 + tries(delay), "{tried}");
        }
    }

    #[test]
    fn a_record_here_and_there_that_is_missing_does_not_end_it() {
        for delay in [8, 300] {
            let asked = ask(100_000, delay, |record| record % 2000 != 1999);
            let least = 100_000 - 50 * (16 + 2 * delay + 300);
            assert!(count(&asked) > least, "{delay}: {}", count(&asked));
            let asked = ask(100_000, delay, |record| record % 10 != 0);
            assert!(count(&asked) < 40_000, "{delay}: {}", count(&asked));
        }
    }

    #[test]
    fn a_try_of_which_nobody_hears_is_followed_by_another() {
        let mut guess = Guess::new();
        let nothing = Tally::default();
        let asked: Vec<_> = (0..600).map(|_| guess.resident(nothing).is_some()).collect();
        assert_eq!(count(&asked), 3);
        let mut never = Guess::never();
        let hits = |hits| Tally { hits, misses: 0 };
        assert!((0..600).all(|n| never.resident(hits(n)).is_none()));
    }
}
