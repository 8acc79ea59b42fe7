//! What was agreed with a host before its first job: recipe, extent table, seed.
//!
//! Every reason to refuse is found here, before any job, and reported in one line for the user of the
//! host. The ranks of a job send the same table and recipe, of which one copy serves all of them
//! ([`Tables`]). Nothing here makes a sample; `work.rs` does.

pub(crate) mod limits;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::one_line;
use bothends_core::recipe::Recipe;
use bothends_core::sample::Extent;
use bothends_csd::{Inquiry, RecordDigest, Session};
use bothends_dataset::Table;
use bothends_ops::{Pipeline, Room};
use dashmap::DashMap;
use twox_hash::XxHash3_128;

use crate::store::{Seen, Store, Wanted};

/// A session that was accepted.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) known: Arc<Known>,
    pub(crate) seed: u64,
    pub(crate) max_batch: u32,
    /// Whose results it may take, and give.
    pub(crate) equals: Equals,
    /// Of this session alone: another one may be over files that took these ones' names.
    pub(crate) seen: Seen,
    /// Bytes of its list of samples, unless another session had the same.
    pub(crate) new_list_bytes: u64,
}

/// What the sessions are called whose equal samples are the same bytes: they may take them from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Work {
    /// The number of what their hosts have proved.
    pub(crate) owner: u64,
    /// The number of their table and recipe.
    known: u64,
    /// `None` where the recipe draws nothing.
    seed: Option<u64>,
}

impl Work {
    /// Whether every epoch makes the same samples.
    pub(crate) fn is_fixed(self) -> bool {
        self.seed.is_none()
    }
}

/// One sample of such sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RowKey {
    pub(crate) work: Work,
    epoch: u32,
    sample: u64,
}

/// The sessions that are equal to one and have had a job, itself among them.
#[derive(Debug, Default)]
pub(crate) struct Equals {
    /// `None` where it shares with nobody.
    owner: Option<u64>,
    n_asking: AtomicU32,
}

impl Equals {
    /// So many there are, itself among them; 0 once it has ended.
    pub(crate) fn are(&self, n_asking: u32) {
        // A number alone; nothing else is published with it.
        self.n_asking.store(n_asking, Ordering::Relaxed);
    }

    /// How many others there are; `None` where it has ended itself.
    pub(crate) fn n_others(&self) -> Option<u32> {
        self.n_asking.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// Data set and recipe of a session, which others may have, too.
#[derive(Debug)]
pub(crate) struct Known {
    /// No two that are alive at a time have one number.
    number: u64,
    /// Whether the recipe draws nothing.
    is_fixed: bool,
    pub(crate) table: Table,
    pub(crate) pipeline: Pipeline,
    pub(crate) sample_bytes: usize,
    /// As the host says it, and its hash.
    recipe: (String, u128),
    /// Of the table as it came.
    list_bytes: u64,
}

/// What the sessions that are open know, each once: it goes with the last session that has it.
#[derive(Debug, Default)]
pub(crate) struct Tables(DashMap<u128, Weak<Known>>, AtomicU64);

impl Tables {
    /// Bytes of all tables that are in use, as they came.
    pub(crate) fn bytes(&self) -> u64 {
        let alive = self.0.iter().filter_map(|entry| entry.value().upgrade());
        alive.map(|known| known.list_bytes).sum()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().filter(|entry| entry.value().strong_count() > 0).count()
    }

    /// Checks what the host asks for against what this device has. Its images are decoded within
    /// `room`.
    ///
    /// # Errors
    /// One line that says what differs.
    pub(crate) fn agree(
        &self,
        session: &Session,
        store: &dyn Store,
        room: &Room,
    ) -> Result<Agreed, String> {
        // Two tables may have one hash: a hit is compared in full.
        let low_half = session.recipe_hash.to_le_bytes();
        let low_half = low_half.first_chunk().map_or(0, |half| u64::from_le_bytes(*half));
        let hash = XxHash3_128::oneshot_with_seed(low_half, &session.manifest);
        let found = self.0.get(&hash).and_then(|entry| entry.value().upgrade());
        let found = found.filter(|known| known.is_of(session));
        let (known, new_list_bytes) = match found {
            Some(known) => (known, 0),
            None => self.add(hash, session, room)?,
        };
        let sample_bytes = known.sample_bytes;
        if sample_bytes != session.sample_bytes as usize || sample_bytes == 0 {
            return Err(format!(
                "a sample has {} bytes on the host and {sample_bytes} on this device; \
                 use the same release on both sides",
                session.sample_bytes
            ));
        }
        let file = known.table.extent(SampleId(0)).file;
        let first = known.table.file_path(file);
        store.probe(&first).map_err(|e| {
            format!(
                "{}; does the device have the data set at its data root?",
                one_line(&e)
            )
        })?;
        if let Some(mark) = known.table.mark(file) {
            store.compare(&first, mark).map_err(|e| one_line(&e))?;
        }
        let seen = Seen::nothing(known.table.n_files());
        let (seed, max_batch, equals) =
            (session.seed, session.max_batch, Equals::default());
        Ok(Agreed { known, seed, max_batch, equals, seen, new_list_bytes })
    }

    /// What a session knows, with the bytes that this takes: none if another session has added the same meanwhile. The ranks
    /// of a job open theirs at the same moment.
    fn add(
        &self,
        hash: u128,
        session: &Session,
        room: &Room,
    ) -> Result<(Arc<Known>, u64), String> {
        let number = self.1.fetch_add(1, Ordering::Relaxed);
        let known = Arc::new(Known { number, ..Known::new(session, room)? });
        self.0.retain(|_, known| known.strong_count() > 0);
        let first = Arc::clone(&known);
        let first =
            self.0.entry(hash).or_insert_with(|| Arc::downgrade(&first)).upgrade();
        match first {
            Some(first) if !Arc::ptr_eq(&first, &known) && first.is_of(session) => {
                return Ok((first, 0));
            }
            Some(first) if Arc::ptr_eq(&first, &known) => {}
            // Its last session has ended, or two tables have one hash.
            Some(_) | None => drop(self.0.insert(hash, Arc::downgrade(&known))),
        }
        let list_bytes = known.list_bytes;
        Ok((known, list_bytes))
    }
}

impl Known {
    fn new(session: &Session, room: &Room) -> Result<Self, String> {
        let recipe = Recipe::from_json(&session.recipe).map_err(|e| {
            format!("this device cannot read the recipe: {}", one_line(&e))
        })?;
        if recipe.hash() != session.recipe_hash {
            return Err(format!(
                "the recipe `{}` has hash {:032x} on the host and {:032x} on this device; \
                 use the same release on both sides",
                recipe.name(),
                session.recipe_hash,
                recipe.hash()
            ));
        }
        let table = Table::decode(&session.manifest).map_err(|e| {
            format!("this device cannot read the manifest: {}", one_line(&e))
        })?;
        let record = table.record_shape().map_err(|e| one_line(&e))?;
        let views = recipe.views(record).map_err(|e| one_line(&e))?;
        limits::check(&recipe, (&table, record), room.limits())?;
        let pipeline = Pipeline::new(&recipe, views).with_room(room);
        let sample_bytes = pipeline.sample_bytes();
        let list_bytes = session.manifest.len() as u64;
        let is_fixed = recipe.is_fixed();
        let recipe = (session.recipe.clone(), session.recipe_hash);
        let number = 0;
        Ok(Self { number, is_fixed, table, pipeline, sample_bytes, recipe, list_bytes })
    }

    /// How long the sample's file is here, where the host's is that record alone and has another
    /// length.
    fn other_len(&self, sample: SampleId, store: &dyn Store) -> Option<u64> {
        let expected = self.table.file_len(sample)?;
        let file = self.table.extent(sample).file;
        let (path, mark) = (self.table.file_path(file), self.table.mark(file));
        // A read of no bytes still returns the file's length.
        let nothing = Wanted { path: &path, offset: 0, len: 0, mark };
        let (file_len, _) = store.read(nothing, &mut Vec::new()).ok()?.age;
        (file_len != expected).then_some(file_len)
    }

    /// Whether it is what that session is about, byte for byte.
    fn is_of(&self, session: &Session) -> bool {
        self.recipe.0 == session.recipe
            && self.recipe.1 == session.recipe_hash
            && self.list_bytes == session.manifest.len() as u64
            && self.table.encode() == session.manifest
    }
}

impl Agreed {
    /// Sharing results with the sessions of this owner.
    pub(crate) fn shared_with(self, owner: Option<u64>) -> Self {
        Self { equals: Equals { owner, n_asking: AtomicU32::new(1) }, ..self }
    }

    /// What it has in common with those that it may take results from.
    pub(crate) fn work(&self) -> Option<Work> {
        let Known { number, is_fixed, .. } = *self.known;
        let seed = (!is_fixed).then_some(self.seed);
        self.equals.owner.map(|owner| Work { owner, known: number, seed })
    }

    /// What a sample is called among those; `None` where nobody can want its result once more.
    pub(crate) fn row_key(&self, epoch: EpochIdx, sample: SampleId) -> Option<RowKey> {
        let work = self.work()?;
        match self.known.is_fixed {
            // Every pass over the records makes the same.
            true => {
                let sample = sample.0 % self.known.table.n_samples().max(1);
                Some(RowKey { work, epoch: 0, sample })
            }
            false if self.equals.n_others().is_some_and(|n| n > 0) => {
                Some(RowKey { work, epoch: epoch.0, sample: sample.0 })
            }
            false => None,
        }
    }

    /// Bytes that it takes besides batches, lists and whatever else sessions have in common.
    pub(crate) fn own_bytes(&self) -> u64 {
        self.seen.bytes()
    }

    /// Bytes of its largest batch.
    pub(crate) fn batch_bytes(&self) -> u64 {
        u64::from(self.max_batch).saturating_mul(self.known.sample_bytes as u64)
    }

    /// Digests of the records that the host asks about, as they are here.
    ///
    /// # Errors
    /// One line: there is no such sample, or the store on the network does not give it now.
    pub(crate) fn attest(
        &self,
        store: &dyn Store,
        inquiry: &Inquiry,
    ) -> Result<Vec<Option<RecordDigest>>, String> {
        let table = &self.known.table;
        let asked = &inquiry.samples;
        if let Some(none) = asked.iter().find(|sample| sample.0 >= table.n_samples()) {
            return Err(format!("there is no sample {} in this session", none.0));
        }
        let path = |sample: &SampleId| table.file_path(table.extent(*sample).file);
        let paths: Vec<_> = asked.iter().map(path).collect();
        let mut wanted = Vec::with_capacity(asked.len());
        for (sample, path) in asked.iter().zip(&paths) {
            let Extent { file, offset, len } = table.extent(*sample);
            wanted.push(Wanted { path, offset, len, mark: table.mark(file) });
        }
        store.read_all_ahead(&wanted);
        let mut record = Vec::new();
        let digest = |(sample, wanted): (&SampleId, &Wanted<'_>)| {
            let file = table.extent(*sample).file;
            let read = store.read(*wanted, &mut record);
            let file_len = match &read {
                Ok(identity) => table.file_len(*sample).and(Some(identity.age.0)),
                // It says nothing about the copy, and only this machine knows it.
                Err(error) if error.is_of_network() => return Err(one_line(error)),
                Err(_) => self.known.other_len(*sample, store),
            };
            if let Some(len) =
                file_len.filter(|len| Some(*len) != table.file_len(*sample))
            {
                // Whatever is in it, it is another file.
                return Ok(Some(RecordDigest { len, hash: 0 }));
            }
            // From now on samples are made of this very file, or not at all.
            let is_had = read.is_ok_and(|identity| self.seen.is_same(file, &identity));
            Ok(is_had.then(|| RecordDigest::of(&record, inquiry.seed)))
        };
        asked.iter().zip(&wanted).map(digest).collect()
    }
}

/// Batches of one pass over a session's data set, if its manifest can be read: what a part of
/// an epoch is a part of when nobody says otherwise.
#[must_use]
pub fn epoch_batches(session: &Session) -> Option<u64> {
    let table = Table::decode(&session.manifest).ok()?;
    Some(table.n_samples().div_ceil(u64::from(session.max_batch.max(1))))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::FileStore;
    use crate::conformance::Exercise;
    use crate::memory::decode_room;

    #[test]
    fn sessions_that_open_at_the_same_moment_have_one_list() {
        let dir = tempfile::tempdir().unwrap();
        let exercise = Exercise::prepare(dir.path()).unwrap();
        let (session, room) = (exercise.session(), Room::new(decode_room(None, 1)));
        let store = FileStore::new(exercise.root()).unwrap();
        for _ in 0..50 {
            let (tables, barrier) = (Tables::default(), Barrier::new(8));
            let open = || {
                barrier.wait();
                tables.agree(&session, &store, &room).unwrap()
            };
            let all: Vec<_> = std::thread::scope(|scope| {
                let opening: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
                opening.into_iter().map(|it| it.join().unwrap()).collect()
            });
            assert!(all.iter().all(|it| it.known.number == all[0].known.number));
            let list_bytes: u64 = all.iter().map(|it| it.new_list_bytes).sum();
            assert_eq!(list_bytes, tables.bytes());
        }
    }
}
