//! Values of further fields that came with the records of a batch, until the batch is finished.
//!
//! A value is only requested once it has room here, which is that of its batch until this is finished or nobody wants it any
//! more. The thread that fetches keeps what has come before it hands the row to the workers, and whoever finishes the batch
//! takes it. What is not here, as of a batch that a device makes or for which there was no room, is read then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_storage::Bytes;

use crate::read::demand::{BatchKey, FetchedValue};

/// The values of a batch, by sample and the number of the field.
pub(crate) type OfBatch = HashMap<(SampleId, usize), Bytes>;

/// The values of batches under way. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct FetchedFields(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    /// Epochs whose batches are finished.
    epochs: Vec<EpochIdx>,
    batches: HashMap<BatchKey, Entry>,
    reserved: u64,
    most_bytes: u64,
}

#[derive(Debug, Default)]
struct Entry {
    values: OfBatch,
    reserved: u64,
}

/// Whether there is room for a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reserved {
    Yes,
    /// Not before others leave theirs.
    Full,
    /// It is longer than all room, or nobody would take it.
    Never,
}

/// An epoch whose batches are finished. Until it is dropped, values wait for them.
#[derive(Debug)]
pub(crate) struct Entered {
    epoch: EpochIdx,
    fields: FetchedFields,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.fields.leave(self.epoch);
    }
}

impl FetchedFields {
    /// So many bytes may be reserved from now on, and nothing is.
    pub(crate) fn begin(&self, most_bytes: u64) {
        let mut held = self.held();
        let epochs = std::mem::take(&mut held.epochs);
        *held = Held { most_bytes, epochs, ..Held::default() };
    }

    /// Batches of an epoch are finished from now on, until the guard is dropped.
    pub(crate) fn enter(&self, epoch: EpochIdx) -> Entered {
        self.held().epochs.push(epoch);
        Entered { epoch, fields: self.clone() }
    }

    /// Reserves room for a value of a batch.
    pub(crate) fn reserve(&self, batch: BatchKey, n_bytes: u64) -> Reserved {
        let mut held = self.held();
        if n_bytes > held.most_bytes || !held.epochs.contains(&batch.0) {
            return Reserved::Never;
        }
        let reserved = held.reserved.saturating_add(n_bytes);
        if reserved > held.most_bytes {
            return Reserved::Full;
        }
        held.reserved = reserved;
        held.batches.entry(batch).or_default().reserved += n_bytes;
        Reserved::Yes
    }

    /// Whether the batch has room for any values.
    pub(crate) fn has(&self, batch: BatchKey) -> bool {
        self.held().batches.contains_key(&batch)
    }

    /// Keeps the values of a row, without the rest of what their requests brought, if they have room.
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
        let Some(entry) = held.batches.get_mut(&batch) else { return };
        for FetchedValue { field, bytes, .. } in values {
            let value = bytes.as_ref().and_then(|(all, range)| all.get(range.clone()));
            let value =
                value.map(|value| ((sample, field), Bytes::copy_from_slice(value)));
            entry.values.extend(value);
        }
    }

    /// The values of a batch that is finished. Their room is free.
    pub(crate) fn take(&self, batch: BatchKey) -> OfBatch {
        self.held().remove(batch).values
    }

    /// Nobody wants the batch of the host any more. Its room is free.
    pub(crate) fn release(&self, batch: BatchKey) {
        self.held().remove(batch);
    }

    /// Nothing of an epoch is finished any more, unless it was entered again.
    fn leave(&self, epoch: EpochIdx) {
        let mut held = self.held();
        if let Some(nth) = held.epochs.iter().position(|entered| *entered == epoch) {
            held.epochs.swap_remove(nth);
        }
        if held.epochs.contains(&epoch) {
            return;
        }
        let left = held.batches.keys().filter(|(of, _)| *of == epoch);
        for batch in left.copied().collect::<Vec<_>>() {
            held.remove(batch);
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn remove(&mut self, batch: BatchKey) -> Entry {
        let entry = self.batches.remove(&batch).unwrap_or_default();
        self.reserved -= entry.reserved;
        entry
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::ids::BatchIdx;
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
    fn what_is_kept_has_room_until_its_batch_is_finished_or_left() {
        let fields = FetchedFields::default();
        fields.begin(50);
        let _first = fields.enter(EpochIdx(0));
        let second = fields.enter(EpochIdx(1));
        let key = |epoch, batch| (EpochIdx(epoch), BatchIdx(batch));
        let reserve = |epoch, batch, n_bytes| fields.reserve(key(epoch, batch), n_bytes);
        assert_eq!([reserve(0, 0, 20), reserve(0, 0, 10)], [Reserved::Yes; 2]);
        assert_eq!(
            [reserve(0, 1, 30), reserve(0, 1, 51)],
            [Reserved::Full, Reserved::Never]
        );
        assert_eq!(
            [reserve(0, 1, 20), reserve(2, 0, 0)],
            [Reserved::Yes, Reserved::Never]
        );
        fields.keep(key(0, 0), SampleId(1), values(&[20, 10]));
        fields.keep(key(0, 2), SampleId(9), values(&[1]));
        assert_eq!(fields.take(key(0, 0)).len(), 2);
        assert!(fields.take(key(0, 0)).is_empty() && fields.take(key(0, 2)).is_empty());
        assert_eq!(
            [reserve(1, 0, 30), reserve(1, 0, 1)],
            [Reserved::Yes, Reserved::Full]
        );
        fields.release(key(0, 1));
        assert_eq!(reserve(1, 1, 20), Reserved::Yes);
        // It is begun again before the first one has ended.
        let again = fields.enter(EpochIdx(1));
        drop(second);
        fields.keep(key(1, 0), SampleId(3), values(&[30]));
        assert!(fields.has(key(1, 0)) && !fields.has(key(0, 1)));
        // It is cancelled, and rows of it come late.
        drop(again);
        fields.keep(key(1, 0), SampleId(3), values(&[30]));
        assert!(fields.held().batches.is_empty());
        assert_eq!(reserve(1, 0, 1), Reserved::Never);
        fields.begin(60);
        assert_eq!(
            [reserve(0, 0, u64::MAX), reserve(0, 0, 60)],
            [Reserved::Never, Reserved::Yes]
        );
    }
}
