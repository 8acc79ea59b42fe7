//! Results that several sessions want: made once, and handed out to each of them.
//!
//! A sample is known by what it is made of ([`RowKey`]): table, recipe, seed, epoch and number, and whose
//! hosts may see it. The first session that wants one has it made. Others that want it meanwhile wait
//! without a worker, and get a copy when it is done. Whoever makes it and cannot gives them back.
//!
//! A result stays until all sessions that are equal to its maker's have had it, or the last of these has
//! left. Where memory is short those go first that have had their use: with a recipe that draws nothing
//! every epoch makes the same samples, so they are kept as long as there is room. Then go those that
//! nobody has wanted for [`STALE_NS`]. Others are not replaced: of two jobs that are further apart than
//! there is memory for, the second then still finds a part.
//!
//! It decides and stores, and makes nothing. A copy is checked before it is handed out (`Made::copy_to`).

use std::collections::{HashMap, VecDeque};
use std::hash::Hasher as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bothends_core::sample::FileIdx;
use twox_hash::XxHash3_64;

use crate::session::{RowKey, Work};
use crate::store::Identity;

/// A result that was not wanted for so long makes room for others.
const STALE_NS: u64 = 30_000_000_000;

/// What an entry takes besides its bytes, rounded up.
const ENTRY_BYTES: u64 = 256;

/// So much is copied and hashed at a time: the second finds it in the first-level cache.
const PART_BYTES: usize = 8 << 10;

/// A sample that was made, for others.
#[derive(Debug)]
pub(crate) struct Made {
    bytes: Box<[u8]>,
    checksum: u64,
    source: (FileIdx, Identity),
    is_damaged: bool,
}

/// What a sample is copied from: one that has just been made, or one that was kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Original<'a> {
    pub(crate) bytes: &'a [u8],
    /// Of one that was kept.
    pub(crate) checksum: Option<u64>,
    /// The file that it was made of: a session that has begun with another one makes its own.
    pub(crate) source: (FileIdx, Identity),
    pub(crate) is_damaged: bool,
}

/// The results of all sessions; rows that wait for one are `W`s.
#[derive(Debug)]
pub(crate) struct Results<W>(Mutex<Kept<W>>);

impl<W> Default for Results<W> {
    fn default() -> Self {
        Self(Mutex::new(Kept {
            entries: HashMap::new(),
            fresh: VecDeque::new(),
            used: VecDeque::new(),
            orphans: Vec::new(),
            counts: ResultCounts::default(),
        }))
    }
}

/// What came of asking for a result.
#[derive(Debug)]
pub(crate) enum Asked<'a, W> {
    /// It is here.
    Here(Arc<Made>, W),
    /// Somebody makes it, and will hand it out.
    Waits,
    /// Whoever asked is to make it.
    Yours(Flight<'a, W>, W),
}

/// The promise to make a result. Dropped without one, it gives back who waits for it
/// ([`Results::orphan`]).
#[derive(Debug)]
pub(crate) struct Flight<'a, W> {
    results: &'a Results<W>,
    key: RowKey,
    /// Where workers hear of rows that are given back.
    news: &'a Condvar,
    is_landed: bool,
}

/// What has been counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ResultCounts {
    /// Bytes that are kept, and that may be.
    pub(crate) held_bytes: u64,
    pub(crate) limit_bytes: u64,
    /// Results for which there was no room.
    pub(crate) n_left_out: u64,
    /// Copies that were not what was made.
    pub(crate) n_corrupt: u64,
}

#[derive(Debug)]
struct Kept<W> {
    entries: HashMap<RowKey, Entry<W>>,
    /// Those that sessions are expected to want, the oldest first, and when they were made. Some may have
    /// gone.
    fresh: VecDeque<(u64, RowKey)>,
    /// Those that have had their use. Some may have gone.
    used: VecDeque<RowKey>,
    orphans: Vec<W>,
    counts: ResultCounts,
}

#[derive(Debug)]
enum Entry<W> {
    Making(Vec<W>),
    /// Made, and wanted so many times more.
    Here(Arc<Made>, u32),
}

impl Original<'_> {
    /// Copies it to where it is wanted; `None` where it is not what was made any more, and the place means nothing.
    pub(crate) fn copy_to(&self, place: &mut [u8]) -> Option<()> {
        if place.len() != self.bytes.len() {
            return None;
        }
        let Some(checksum) = self.checksum else {
            place.copy_from_slice(self.bytes);
            return Some(());
        };
        let mut hash = XxHash3_64::new();
        for (to, from) in place.chunks_mut(PART_BYTES).zip(self.bytes.chunks(PART_BYTES))
        {
            to.copy_from_slice(from);
            hash.write(to);
        }
        (hash.finish() == checksum).then_some(())
    }

    /// What it takes where it is kept.
    fn len_bytes(&self) -> u64 {
        self.bytes.len() as u64 + ENTRY_BYTES
    }
}

impl Made {
    /// A copy of its own, to be kept.
    fn of(original: Original<'_>) -> Self {
        let Original { bytes: made, source, is_damaged, .. } = original;
        let (mut bytes, mut hash) = (Vec::with_capacity(made.len()), XxHash3_64::new());
        for part in made.chunks(PART_BYTES) {
            bytes.extend_from_slice(part);
            hash.write(part);
        }
        let (bytes, checksum) = (bytes.into_boxed_slice(), hash.finish());
        Self { bytes, checksum, source, is_damaged }
    }

    pub(crate) fn original(&self) -> Original<'_> {
        let Self { bytes, checksum, source, is_damaged } = self;
        let (checksum, source) = (Some(*checksum), *source);
        Original { bytes, checksum, source, is_damaged: *is_damaged }
    }
}

impl<W> Results<W> {
    /// Whether nothing is ever kept here.
    pub(crate) fn is_off(&self) -> bool {
        self.kept().counts.limit_bytes == 0
    }

    /// So many bytes may be kept from now on.
    pub(crate) fn limit(&self, limit_bytes: u64) {
        let mut kept = self.kept();
        kept.counts.limit_bytes = limit_bytes;
        while kept.counts.held_bytes > limit_bytes && kept.drop_one(u64::MAX) {}
    }

    /// Asks for a result, for the row that waits for it. Workers hear by `news` of rows that are given back.
    pub(crate) fn ask<'a>(
        &'a self,
        key: RowKey,
        waiting: W,
        news: &'a Condvar,
    ) -> Asked<'a, W> {
        let mut kept = self.kept();
        match kept.entries.get_mut(&key) {
            Some(Entry::Making(others)) => {
                others.push(waiting);
                Asked::Waits
            }
            Some(Entry::Here(made, _)) => {
                let made = Arc::clone(made);
                kept.wanted_once_less(key);
                Asked::Here(made, waiting)
            }
            None => {
                kept.entries.insert(key, Entry::Making(Vec::new()));
                Asked::Yours(
                    Flight { results: self, key, news, is_landed: false },
                    waiting,
                )
            }
        }
    }

    /// A copy was not what was made: nobody gets it any more.
    pub(crate) fn corrupt(&self, key: RowKey) {
        let mut kept = self.kept();
        kept.counts.n_corrupt += 1;
        kept.forget(key);
    }

    /// A row whose result came to nothing, to be made by whoever takes it.
    pub(crate) fn orphan(&self) -> Option<W> {
        self.kept().orphans.pop()
    }

    /// The last session that may want these has left.
    pub(crate) fn forget_work(&self, work: Work) {
        let mut kept = self.kept();
        let is_of = |key: &RowKey, entry: &Entry<W>| {
            key.work == work && matches!(entry, Entry::Here(..))
        };
        let gone: Vec<RowKey> =
            kept.entries.iter().filter(|(k, e)| is_of(k, e)).map(|(k, _)| *k).collect();
        gone.into_iter().for_each(|key| kept.forget(key));
        kept.tidy();
    }

    pub(crate) fn counts(&self) -> ResultCounts {
        self.kept().counts
    }

    /// Whoever broke left it as it was before its last step.
    fn kept(&self) -> MutexGuard<'_, Kept<W>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W> Flight<'_, W> {
    /// What is to be made.
    pub(crate) fn key(&self) -> RowKey {
        self.key
    }

    /// It is made, at `now_ns`, and `n_others` sessions may want it besides its own and those that wait; or
    /// it came to nothing, or nobody else can want it. Who waits for it, to be given a copy or to make it.
    pub(crate) fn land(
        mut self,
        made: Option<(Original<'_>, u32)>,
        now_ns: u64,
    ) -> Vec<W> {
        self.is_landed = true;
        let n_left = |waiting: &Vec<W>, n_others: u32| {
            n_others.saturating_sub(u32::try_from(waiting.len()).unwrap_or(u32::MAX))
        };
        // A copy takes a while; who comes meanwhile waits, and is given one, too.
        let mut kept = self.results.kept();
        let n_wanted = match (kept.entries.get(&self.key), made) {
            (Some(Entry::Making(waiting)), Some((_, n_others))) => {
                n_left(waiting, n_others)
            }
            _ => 0,
        };
        let is_kept = made.is_some_and(|(made, _)| {
            let is_of_use = n_wanted > 0 || self.key.work.is_fixed();
            is_of_use && kept.makes_room(made.len_bytes(), n_wanted, now_ns)
        });
        drop(kept);
        let copy = made.filter(|_| is_kept).map(|(it, n)| (Arc::new(Made::of(it)), n));
        let mut kept = self.results.kept();
        let Some(Entry::Making(waiting)) = kept.entries.remove(&self.key) else {
            return Vec::new();
        };
        if let Some((copy, n_others)) = copy {
            kept.keep((self.key, &copy), n_left(&waiting, n_others), now_ns);
        }
        waiting
    }
}

impl<W> Drop for Flight<'_, W> {
    fn drop(&mut self) {
        if self.is_landed {
            return;
        }
        let mut kept = self.results.kept();
        if let Some(Entry::Making(waiting)) = kept.entries.remove(&self.key) {
            kept.orphans.extend(waiting);
        }
        drop(kept);
        self.news.notify_all();
    }
}

impl<W> Kept<W> {
    /// Keeps a result that so many may want, if there is room for it.
    fn keep(&mut self, (key, made): (RowKey, &Arc<Made>), n_wanted: u32, now_ns: u64) {
        if n_wanted == 0 && !key.work.is_fixed() {
            return;
        }
        let len_bytes = made.original().len_bytes();
        if !self.makes_room(len_bytes, n_wanted, now_ns) {
            return;
        }
        self.counts.held_bytes += len_bytes;
        self.entries.insert(key, Entry::Here(Arc::clone(made), n_wanted));
        match n_wanted {
            0 => self.used.push_back(key),
            _ => self.fresh.push_back((now_ns, key)),
        }
        self.tidy();
    }

    /// Whether there is room for a result that so many may want; one for which there is none is counted.
    fn makes_room(&mut self, len_bytes: u64, n_wanted: u32, now_ns: u64) -> bool {
        let is_room = |kept: &Self| {
            kept.counts.held_bytes.saturating_add(len_bytes) <= kept.counts.limit_bytes
        };
        // What has had its use makes room for what is wanted, and not the other way round.
        while !is_room(self) && n_wanted > 0 && self.drop_one(now_ns) {}
        self.counts.n_left_out += u64::from(!is_room(self));
        is_room(self)
    }

    /// Somebody has had it.
    fn wanted_once_less(&mut self, key: RowKey) {
        let Some(Entry::Here(_, n_wanted)) = self.entries.get_mut(&key) else { return };
        let was_wanted = *n_wanted > 0;
        *n_wanted = n_wanted.saturating_sub(1);
        if *n_wanted > 0 {
            return;
        }
        match key.work.is_fixed() {
            true if was_wanted => self.used.push_back(key),
            true => {}
            false => self.forget(key),
        }
    }

    /// Drops what is of the least use, of what is of little; `false` where there is nothing of that kind.
    fn drop_one(&mut self, now_ns: u64) -> bool {
        while let Some(key) = self.used.pop_front() {
            if let Some(Entry::Here(_, 0)) = self.entries.get(&key) {
                self.forget(key);
                return true;
            }
        }
        while let Some((made_ns, key)) = self.fresh.front().copied() {
            let is_here =
                matches!(self.entries.get(&key), Some(Entry::Here(_, n)) if *n > 0);
            if is_here && now_ns.saturating_sub(made_ns) < STALE_NS {
                return false;
            }
            self.fresh.pop_front();
            if is_here {
                self.forget(key);
                return true;
            }
        }
        false
    }

    fn forget(&mut self, key: RowKey) {
        if let Some(Entry::Here(made, _)) = self.entries.remove(&key) {
            self.counts.held_bytes =
                self.counts.held_bytes.saturating_sub(made.original().len_bytes());
        }
    }

    /// Forgets what has gone from the queues, where that is most of them.
    fn tidy(&mut self) {
        let Self { entries, fresh, used, .. } = self;
        let most = 2 * entries.len() + 64;
        let is_wanted =
            |key: &RowKey| matches!(entries.get(key), Some(Entry::Here(_, n)) if *n > 0);
        let is_used = |key: &RowKey| matches!(entries.get(key), Some(Entry::Here(_, 0)));
        if fresh.len() > most {
            fresh.retain(|(_, key)| is_wanted(key));
        }
        if used.len() > most {
            used.retain(is_used);
        }
    }
}
