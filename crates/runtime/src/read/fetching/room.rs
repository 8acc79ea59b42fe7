//! How the memory for fetched data is divided: what is on its way or waits for workers, and the values of further fields
//! that wait until their batch is finished.
//!
//! A value is kept from when its row goes to the workers until its batch is finished, which may be all slots later. One for
//! which there is no memory by then has to be fetched a second time. So fields for whose values there is no memory for two
//! batches are not fetched ahead at all, but when a batch is finished.

use bothends_dataset::{Field, FieldPlace};

use crate::read::source::{Source, lens};

/// So many batches there must be memory for, or a field is not fetched ahead.
const BATCHES: u64 = 2;
/// Values of a batch may be longer than those of most: half as much again, and so much more.
const MORE: u64 = 1 << 20;
/// The most for values where nobody says how much memory there is, nor the machine.
const MOST_UNKNOWN: u64 = 256 << 20;

/// Bytes of the samples of a batch, as a mean.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BatchBytes {
    /// Of their records.
    records: u64,
    /// Of each further field, by its number: what of it has to be read.
    fields: Vec<u64>,
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
            per_batch(lens.fold(0, u64::saturating_add))
        };
        let records = lens(&source.table).fold(0, u64::saturating_add);
        Self {
            records: per_batch(records).max(1),
            fields: source.fields.iter().map(of_field).collect(),
        }
    }

    /// Of a batch with these fields.
    fn with(&self, fields: &[usize]) -> u64 {
        self.records.saturating_add(self.of_fields(fields))
    }

    fn of_fields(&self, fields: &[usize]) -> u64 {
        let each = fields.iter().filter_map(|&nth| self.fields.get(nth));
        each.fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Fields of which anything has to be read, those with the fewest bytes first.
    fn ascending(&self) -> Vec<usize> {
        let mut fields: Vec<usize> =
            (0..self.fields.len()).filter(|&nth| self.fields[nth] > 0).collect();
        fields.sort_by_key(|&nth| self.fields[nth]);
        fields
    }
}

/// The memory for fetched data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FetchRoom {
    /// Bytes that may be requested and not yet be with the workers.
    pub(crate) queue: u64,
    /// Bytes of values that may wait until their batch is finished.
    pub(crate) values: u64,
    /// Fields that are fetched ahead, by their numbers.
    pub(crate) ahead: Vec<usize>,
    /// Those that are not.
    left: Vec<usize>,
    /// Bytes of a batch with the fields that are fetched ahead, as a mean.
    pub(crate) batch: u64,
}

impl FetchRoom {
    /// So many bytes altogether: values have their part of a sample's bytes, between a sixteenth and half of them.
    pub(crate) fn within(total: u64, bytes: &BatchBytes) -> Self {
        let part = |fields: &[usize]| {
            if fields.is_empty() {
                return 0;
            }
            let (values, all) = (bytes.of_fields(fields), bytes.with(fields).max(1));
            let part = u128::from(total) * u128::from(values) / u128::from(all);
            u64::try_from(part).unwrap_or(u64::MAX).clamp(total / 16, total / 2)
        };
        let (ahead, left) = fitting(bytes, part);
        let (values, batch) = (part(&ahead), bytes.with(&ahead));
        Self { queue: total - values, values, ahead, left, batch }
    }

    /// So many bytes for the queue, and what the values of `n_batches` take besides: a part of the `available` memory
    /// at most, as the queue does.
    pub(crate) fn besides(
        queue: u64,
        available: Option<u64>,
        (bytes, n_batches): (&BatchBytes, u32),
    ) -> Self {
        let most = available.map_or(MOST_UNKNOWN, |bytes| bytes / 32);
        let part = |fields: &[usize]| {
            let all = bytes.of_fields(fields).saturating_mul(n_batches.into());
            let all = all.saturating_add(all / 2).saturating_add(MORE);
            if fields.is_empty() { 0 } else { all.min(most) }
        };
        let (ahead, left) = fitting(bytes, part);
        let (values, batch) = (part(&ahead), bytes.with(&ahead));
        Self { queue, values, ahead, left, batch }
    }

    /// All of it.
    pub(crate) fn total(&self) -> u64 {
        self.queue.saturating_add(self.values)
    }

    /// What the user is told where fields are not fetched ahead; `names` are those of all fields.
    pub(crate) fn note(&self, bytes: &BatchBytes, names: &[&str]) -> Option<String> {
        let named = self.left.iter().filter_map(|&nth| names.get(nth));
        let named: Vec<String> = named.map(|name| format!("`{name}`")).collect();
        if named.is_empty() {
            return None;
        }
        let all: Vec<usize> = bytes.ascending();
        let of_batch = bytes.of_fields(&self.left);
        let enough = (2 * BATCHES).saturating_mul(bytes.of_fields(&all));
        let enough = enough.max(BATCHES.saturating_mul(bytes.with(&all)));
        Some(format!(
            "there is no memory to fetch {} ahead: {} MB per batch, which are fetched when \
             the batch is finished. `--fetch-reorder {}M` (`fetch_reorder`) is enough.",
            named.join(", "),
            of_batch.div_ceil(1_000_000),
            enough.div_ceil(64 << 20).saturating_mul(64),
        ))
    }
}

/// As many fields as there is memory for where they have such a part of it, the shortest first; and the others.
fn fitting(
    bytes: &BatchBytes,
    part: impl Fn(&[usize]) -> u64,
) -> (Vec<usize>, Vec<usize>) {
    let ascending = bytes.ascending();
    let fits = |n: &usize| {
        let fields = &ascending[..*n];
        bytes.of_fields(fields).saturating_mul(BATCHES) <= part(fields)
    };
    let n = (1..=ascending.len()).rev().find(fits).unwrap_or(0);
    let (mut ahead, mut left) = (ascending[..n].to_vec(), ascending[n..].to_vec());
    ahead.sort_unstable();
    left.sort_unstable();
    (ahead, left)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn batch(records: u64, fields: &[u64]) -> BatchBytes {
        BatchBytes { records, fields: fields.to_vec() }
    }

    #[test]
    fn a_limit_is_for_records_and_values_together() {
        let none = FetchRoom::within(128 * MB, &batch(28 * MB, &[0]));
        assert_eq!((none.queue, none.values, none.batch), (128 * MB, 0, 28 * MB));
        let captions = FetchRoom::within(128 * MB, &batch(28 * MB, &[25_000, 0]));
        assert_eq!((captions.values, captions.total()), (8 * MB, 128 * MB));
        assert_eq!((&captions.ahead[..], captions.batch), (&[0][..], 28 * MB + 25_000));
        // Masks as long as the photographs, and longer ones.
        let masks = FetchRoom::within(128 * MB, &batch(28 * MB, &[25_000, 28 * MB]));
        assert_eq!((masks.ahead, masks.left), (vec![0, 1], vec![]));
        assert!(masks.values >= 2 * 28 * MB && masks.values <= 64 * MB);
        let bytes = batch(28 * MB, &[51 * MB, 25_000]);
        let long = FetchRoom::within(128 * MB, &bytes);
        assert_eq!((&long.ahead[..], &long.left[..]), (&[1][..], &[0][..]));
        assert_eq!(long.values, 8 * MB, "of the captions alone");
        let note = long.note(&bytes, &["mask", "caption"]).unwrap();
        assert!(note.contains("fetch `mask` ahead: 51 MB per batch"), "{note}");
        assert!(note.contains("`--fetch-reorder 256M`"), "{note}");
        let enough = FetchRoom::within(256 << 20, &bytes);
        assert_eq!((enough.ahead, enough.left), (vec![0, 1], vec![]));
        assert_eq!(captions.note(&bytes, &["mask", "caption"]), None);
    }

    /// Masks of 200 kB, in batches of 256: the values of all slots.
    #[test]
    fn without_a_limit_there_is_memory_for_the_values_of_all_slots() {
        let bytes = batch(28 * MB, &[51 * MB]);
        let room = FetchRoom::besides(128 * MB, Some(64 << 30), (&bytes, 8));
        assert_eq!(room.queue, 128 * MB);
        assert!(room.values >= 8 * 51 * MB && room.values < 13 * 51 * MB);
        assert_eq!(room.ahead, [0]);
        // A small machine, and values without end.
        let small = FetchRoom::besides(8 * MB, Some(2 << 30), (&bytes, 8));
        assert_eq!((small.total(), small.left), (8 * MB, vec![0]));
        let endless = batch(u64::MAX, &[u64::MAX, 5]);
        let room = FetchRoom::besides(8 * MB, None, (&endless, 8));
        assert_eq!((&room.ahead[..], room.total()), (&[1][..], 8 * MB + MORE + 60));
        assert!(room.note(&endless, &["a", "b"]).is_some());
        assert_eq!(FetchRoom::within(MB, &endless).ahead, [1]);
    }
}
