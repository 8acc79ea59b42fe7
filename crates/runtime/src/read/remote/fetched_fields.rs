//! Values of further fields that came with the records of a batch, until the batch is finished.
//!
//! The thread that fetches keeps them before it hands the row to the workers, and whoever finishes the batch takes them.
//! Of what is not here, as of a batch that a device makes, the values are read then.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bothends_core::ids::SampleId;
use bothends_storage::Bytes;

use crate::read::wanted::{BatchKey, FetchedValue};

/// The values of a batch, by sample and the number of the field.
pub(crate) type OfBatch = HashMap<(SampleId, usize), Bytes>;

/// The values of batches under way.
#[derive(Debug, Default)]
pub(crate) struct FetchedFields(Mutex<HashMap<BatchKey, OfBatch>>);

impl FetchedFields {
    /// Keeps the values of a row, without the rest of what their requests brought.
    pub(crate) fn keep(
        &self,
        batch: BatchKey,
        sample: SampleId,
        values: Vec<FetchedValue>,
    ) {
        if values.is_empty() {
            return;
        }
        let mut batches = self.batches();
        if !batches.contains_key(&batch) {
            // Of a cancelled epoch nobody takes any.
            batches.retain(|(epoch, _), _| epoch.0.abs_diff(batch.0.0) <= 1);
        }
        let of_batch = batches.entry(batch).or_default();
        for FetchedValue { field, bytes, .. } in values {
            let value = bytes
                .and_then(|(all, range)| Some(Bytes::copy_from_slice(all.get(range)?)));
            of_batch.extend(value.map(|value| ((sample, field), value)));
        }
    }

    /// The values of a batch that is finished.
    pub(crate) fn take(&self, batch: BatchKey) -> OfBatch {
        self.batches().remove(&batch).unwrap_or_default()
    }

    fn batches(&self) -> MutexGuard<'_, HashMap<BatchKey, OfBatch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
