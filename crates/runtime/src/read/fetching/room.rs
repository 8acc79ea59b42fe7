//! How the memory for fetched data is divided: what is on its way or waits for workers, and the values of further fields
//! that wait until their batch is finished.
//!
//! A value has its room from when it is requested until its batch is finished, which may be all slots later
//! (`remote/fetched_fields.rs`). One without room is not requested, but read when the batch is finished.

use bothends_core::setting::{Names, Setting, advice};
use bothends_dataset::{Field, FieldPlace};

use crate::read::source::{Source, lens};

/// Values of a batch may be longer than those of most: a quarter more, and so much.
const MORE: u64 = 1 << 20;
/// The most for values where nobody says how much memory there is, nor the machine.
const MOST_UNKNOWN: u64 = 256 << 20;
/// The part of the memory that is available: one in so many. As much as all else that is fetched may take.
const PART: u64 = 32;

/// Bytes of the samples of a batch, as a mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BatchBytes {
    /// Of their records.
    records: u64,
    /// Of their further fields: what of them has to be read.
    values: u64,
}

impl BatchBytes {
    /// Passes over all samples once for each field.
    pub(crate) fn of(source: &Source, batch_size: u32) -> Self {
        let n = source.n_samples().max(1);
        let per_batch = |sum: u64| {
            let bytes = u128::from(sum) * u128::from(batch_size.max(1));
            u64::try_from(bytes.div_ceil(u128::from(n))).unwrap_or(u64::MAX)
        };
        let of_field = |field: &Field| {
            let lens = (0..source.n_samples()).map(|row| match field.place(row) {
                FieldPlace::Extent(extent) => u64::from(extent.len),
                FieldPlace::Value(_) => 0,
            });
            lens.fold(0, u64::saturating_add)
        };
        let records = lens(&source.table).fold(0, u64::saturating_add);
        let values = source.fields.iter().map(of_field).fold(0, u64::saturating_add);
        Self { records: per_batch(records), values: per_batch(values) }
    }

    fn all(self) -> u64 {
        self.records.saturating_add(self.values)
    }

    /// The values of so many batches.
    fn values_of(self, n_batches: u32) -> u64 {
        let all = self.values.saturating_mul(n_batches.into());
        all.saturating_add(all / 4).saturating_add(MORE)
    }
}

/// The memory for fetched data, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FetchRoom {
    /// What may be requested and not yet be with the workers.
    pub(crate) queue: u64,
    /// Values that may wait until their batch is finished.
    pub(crate) values: u64,
    /// What of both is within the limit for batches.
    pub(crate) limited: u64,
    batch: BatchBytes,
}

impl FetchRoom {
    /// So much altogether: values have what those of `n_batches` take, or their part of a sample's bytes if that is
    /// more, but half of it at most.
    pub(crate) fn within(total: u64, batch: BatchBytes, n_batches: u32) -> Self {
        let part =
            u128::from(total) * u128::from(batch.values) / u128::from(batch.all().max(1));
        let part = u64::try_from(part).unwrap_or(u64::MAX);
        let wanted = part.max(batch.values_of(n_batches));
        let values = if batch.values == 0 { 0 } else { wanted.min(total / 2) };
        Self { queue: total - values, values, limited: total, batch }
    }

    /// So much for the queue, and besides what the values of `n_batches` take: a part of the `available` memory at
    /// most.
    pub(crate) fn besides(
        queue: u64,
        available: Option<u64>,
        (batch, n_batches): (BatchBytes, u32),
    ) -> Self {
        let most = available.map_or(MOST_UNKNOWN, |bytes| bytes / PART);
        let wanted = batch.values_of(n_batches);
        let values = if batch.values == 0 { 0 } else { wanted.min(most) };
        Self { queue, values, limited: queue, batch }
    }

    /// How many batches are to be foretold so that what the queue has room for is known: twice that, as the sizes of
    /// records vary.
    pub(crate) fn batches_ahead(&self) -> u64 {
        self.queue.saturating_mul(2).div_ceil(self.batch.all().max(1))
    }

    /// What the user is told where the values of not even one batch have room.
    pub(crate) fn note(&self, name: Names) -> Option<String> {
        let larger = advice(name, &[(Setting::FetchReorder, ", or a larger `{}`")]);
        let megabytes = |bytes: u64| bytes.div_ceil(1_000_000);
        let is_little = self.batch.values > self.values;
        is_little.then(|| {
            format!(
                "the further fields take {} MB per batch, and there are {} MB to fetch them ahead: \
                 the rest is read when a batch is finished. Smaller batches avoid that{}.",
                megabytes(self.batch.values),
                megabytes(self.values),
                larger.unwrap_or_default()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn batch(records: u64, values: u64) -> BatchBytes {
        BatchBytes { records, values }
    }

    fn note(room: FetchRoom) -> Option<String> {
        room.note(Setting::key)
    }

    #[test]
    fn a_limit_is_for_records_and_values_together() {
        let none = FetchRoom::within(128 * MB, batch(28 * MB, 0), 8);
        assert_eq!((none.queue, none.values, none.limited), (128 * MB, 0, 128 * MB));
        let captions = FetchRoom::within(128 * MB, batch(28 * MB, 25_000), 8);
        assert_eq!(captions.values, MORE + 250_000);
        assert_eq!(captions.queue + captions.values, 128 * MB);
        // 10 kB next to photographs of 110 kB, in large batches.
        let masks = FetchRoom::within(128 * MB, batch(112 * MB, 10 * MB), 5);
        assert_eq!((masks.values, note(masks)), (62_500_000 + MORE, None));
        let long = FetchRoom::within(128 * MB, batch(28 * MB, 51 * MB), 8);
        assert_eq!((long.values, note(long)), (64 * MB, None));
        let longer = FetchRoom::within(64 * MB, batch(28 * MB, 51 * MB), 8);
        let line = note(longer).unwrap();
        assert!(line.contains("take 51 MB per batch, and there are 32 MB to"), "{line}");
        assert!(line.ends_with("avoid that, or a larger `fetch_reorder`."), "{line}");
        let line = longer.note(|_| "").unwrap();
        assert!(line.ends_with("Smaller batches avoid that."), "{line}");
        let endless = FetchRoom::within(MB, batch(u64::MAX, u64::MAX), 8);
        assert_eq!((endless.queue, endless.batches_ahead()), (MB / 2, 1));
    }

    /// Masks of 200 kB, in batches of 256: the values of all slots.
    #[test]
    fn without_a_limit_there_is_memory_for_the_values_of_all_slots() {
        let masks = batch(28 * MB, 51 * MB);
        let room = FetchRoom::besides(128 * MB, Some(64 << 30), (masks, 8));
        assert_eq!((room.queue, room.limited), (128 * MB, 128 * MB));
        assert_eq!(room.values, 8 * 51 * MB * 5 / 4 + MORE);
        assert_eq!((room.batches_ahead(), note(room)), (4, None));
        let small = FetchRoom::besides(8 * MB, Some(1 << 30), (masks, 8));
        assert_eq!(small.values, 32 << 20);
        assert!(note(small).is_some());
        let unknown = FetchRoom::besides(8 * MB, None, (batch(MB, u64::MAX), 8));
        assert_eq!(unknown.values, MOST_UNKNOWN);
        let none = FetchRoom::besides(8 * MB, None, (batch(MB, 0), 8));
        assert_eq!((none.values, note(none)), (0, None));
    }
}
