//! Values of further fields that came with the records of a batch, until the batch is finished.
//!
//! The thread that fetches keeps them before it hands the row to the workers, and whoever finishes the batch takes them.
//! Of what is not here, as of a batch that a device makes or for which there was no room, the values are read then.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bothends_core::ids::SampleId;
use bothends_storage::Bytes;

use crate::read::wanted::{BatchKey, FetchedValue};

/// The values of a batch, by sample and the number of the field.
pub(crate) type OfBatch = HashMap<(SampleId, usize), Bytes>;

/// The values of batches under way.
#[derive(Debug, Default)]
pub(crate) struct FetchedFields(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    batches: HashMap<BatchKey, OfBatch>,
    n_bytes: u64,
    most_bytes: u64,
}

impl FetchedFields {
    /// So many bytes may be kept from now on.
    pub(crate) fn set_most_bytes(&self, most_bytes: u64) {
        self.held().most_bytes = most_bytes;
    }

    /// Keeps the values of a row, without the rest of what their requests brought, as far as there is room.
    pub(crate) fn keep(
        &self,
        batch: BatchKey,
        sample: SampleId,
        values: Vec<FetchedValue>,
    ) {
        if values.is_empty() {
            return;
        }
        let mut held = self.held();
        if !held.batches.contains_key(&batch) {
            // Of a cancelled epoch nobody takes any.
            held.leave(|(epoch, _)| epoch.0.abs_diff(batch.0.0) > 1);
        }
        for FetchedValue { field, bytes, .. } in values {
            let Some((all, range)) = bytes else { continue };
            let Some(value) = all.get(range) else { continue };
            let n_bytes = held.n_bytes.saturating_add(value.len() as u64);
            if n_bytes <= held.most_bytes {
                let value = Bytes::copy_from_slice(value);
                let of_batch = held.batches.entry(batch).or_default();
                let replaced = of_batch.insert((sample, field), value);
                held.n_bytes = n_bytes - replaced.map_or(0, |it| it.len() as u64);
            }
        }
    }

    /// The values of a batch that is finished.
    pub(crate) fn take(&self, batch: BatchKey) -> OfBatch {
        self.held().take(batch)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn take(&mut self, batch: BatchKey) -> OfBatch {
        let taken = self.batches.remove(&batch).unwrap_or_default();
        self.n_bytes -= taken.values().map(|value| value.len() as u64).sum::<u64>();
        taken
    }

    /// Drops the values of some batches.
    fn leave(&mut self, is_left: impl Fn(BatchKey) -> bool) {
        let left = self.batches.keys().copied().filter(|batch| is_left(*batch));
        for batch in left.collect::<Vec<_>>() {
            self.take(batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::ids::{BatchIdx, EpochIdx};
    use bothends_core::sample::{Extent, FileIdx};

    use super::*;

    fn values(lens: &[usize]) -> Vec<FetchedValue> {
        let extent = Extent { file: FileIdx(0), offset: 0, len: 0 };
        let value = |(field, &len): (usize, &usize)| {
            let bytes = Some((Bytes::from(vec![7; 100]), 0..len));
            FetchedValue { field, position: 0, extent, bytes }
        };
        lens.iter().enumerate().map(value).collect()
    }

    #[test]
    fn what_is_kept_is_bounded_and_counted() {
        let fields = FetchedFields::default();
        fields.set_most_bytes(50);
        let key = |epoch, batch| (EpochIdx(epoch), BatchIdx(batch));
        fields.keep(key(0, 0), SampleId(1), values(&[20, 10]));
        fields.keep(key(0, 0), SampleId(1), values(&[20, 10]));
        fields.keep(key(0, 1), SampleId(2), values(&[30, 20]));
        assert_eq!(fields.held().n_bytes, 50, "and not 80");
        assert_eq!(fields.take(key(0, 0)).len(), 2);
        assert!(fields.take(key(0, 0)).is_empty());
        assert_eq!(fields.held().n_bytes, 20);
        fields.keep(key(1, 0), SampleId(3), values(&[30]));
        assert_eq!(fields.held().n_bytes, 50, "epochs overlap");
        fields.keep(key(2, 0), SampleId(3), values(&[20]));
        assert_eq!(fields.held().n_bytes, 50, "and not by two");
        assert!(fields.take(key(0, 1)).is_empty());
    }
}
