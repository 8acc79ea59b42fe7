//! What was agreed with the host before the first job: recipe, extent table, seed.
//!
//! Every reason to refuse is found here, before any job, and reported in one line for the user of the
//! host. Nothing here makes a sample; `work.rs` does.

pub(crate) mod limits;

use bothends_core::ids::SampleId;
use bothends_core::one_line;
use bothends_core::recipe::Recipe;
use bothends_core::sample::Extent;
use bothends_csd::{Inquiry, RecordDigest, Session};
use bothends_dataset::Table;
use bothends_ops::{DecodeRoom, Pipeline};

use crate::store::{Seen, Store};

/// A session that was accepted.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) table: Table,
    pub(crate) pipeline: Pipeline,
    pub(crate) seed: u64,
    pub(crate) sample_bytes: usize,
    pub(crate) max_batch: u32,
    /// Of this session alone: another one may be over files that took these ones' names.
    pub(crate) seen: Seen,
}

impl Agreed {
    /// Bytes of its largest batch.
    pub(crate) fn batch_bytes(&self) -> u64 {
        u64::from(self.max_batch).saturating_mul(self.sample_bytes as u64)
    }

    /// Digests of the records that the host asks about, as they are here.
    ///
    /// # Errors
    /// One line: there is no such sample.
    pub(crate) fn attest(
        &self,
        store: &dyn Store,
        inquiry: &Inquiry,
    ) -> Result<Vec<Option<RecordDigest>>, String> {
        let mut record = Vec::new();
        let seed = inquiry.seed;
        let mut digest = |sample: SampleId| {
            if sample.0 >= self.table.n_samples() {
                return Err(format!("there is no sample {} in this session", sample.0));
            }
            let Extent { file, offset, len } = self.table.extent(sample);
            let path = self.table.file_path(file);
            if let Some(file_len) = self.other_len(sample, store) {
                // Whatever is in it, it is another file.
                return Ok(Some(RecordDigest { len: file_len, hash: 0 }));
            }
            let read = store.read(&path, offset, len, &mut record);
            // From now on samples are made of this very file, or not at all.
            let is_had = read.is_ok_and(|identity| self.seen.is_same(file, &identity));
            Ok(is_had.then(|| RecordDigest::of(&record, seed)))
        };
        inquiry.samples.iter().map(|sample| digest(*sample)).collect()
    }

    /// How long the sample's file is here, where the host's is that record alone and has another
    /// length.
    fn other_len(&self, sample: SampleId, store: &dyn Store) -> Option<u64> {
        let expected = self.table.file_len(sample)?;
        let path = self.table.file_path(self.table.extent(sample).file);
        // A read of no bytes still returns the file's length.
        let (file_len, _) = store.read(&path, 0, 0, &mut Vec::new()).ok()?.age;
        (file_len != expected).then_some(file_len)
    }

    /// Checks what the host asks for against what this device has. Its images are decoded within
    /// `room`.
    ///
    /// # Errors
    /// One line that says what differs.
    pub(crate) fn new(
        session: &Session,
        store: &dyn Store,
        room: DecodeRoom,
    ) -> Result<Self, String> {
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
        limits::check(&recipe, (&table, record), room)?;
        let pipeline = Pipeline::new(&recipe, views).with_decode_room(room);
        let sample_bytes = pipeline.sample_bytes();
        if sample_bytes != session.sample_bytes as usize || sample_bytes == 0 {
            return Err(format!(
                "a sample has {} bytes on the host and {sample_bytes} on this device; \
                 use the same release on both sides",
                session.sample_bytes
            ));
        }
        let first = table.file_path(table.extent(SampleId(0)).file);
        store.probe(&first).map_err(|e| {
            format!(
                "{}; does the device have the data set at its data root?",
                one_line(&e)
            )
        })?;
        let (seed, max_batch) = (session.seed, session.max_batch);
        let seen = Seen::nothing(table.n_files());
        Ok(Self { table, pipeline, seed, sample_bytes, max_batch, seen })
    }
}

/// Batches of one pass over a session's data set, if its manifest can be read: what a part of
/// an epoch is a part of when nobody says otherwise.
#[must_use]
pub fn epoch_batches(session: &Session) -> Option<u64> {
    let table = Table::decode(&session.manifest).ok()?;
    Some(table.n_samples().div_ceil(u64::from(session.max_batch.max(1))))
}
