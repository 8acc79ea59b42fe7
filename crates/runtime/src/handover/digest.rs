//! The digests of a finished batch, ahead of the consumer: each sample's own by the workers, a few at
//! a time, and next to them the stream's, which by its definition takes one byte after the other.
//!
//! What a digest is over is `core`'s (`digest.rs` there); the sums of an epoch are its consumer's
//! (`run/digests.rs`).

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bothends_core::digest::{ContentDigest, StreamDigest, sample_digest_of};
use bothends_slots::HostSlot;

use crate::handover::batch::fields::FieldColumn;
use crate::handover::batch::{Row, Sums};
use crate::handover::convert::MOST_RUNS;
use crate::make::chores::Chores;

type Piece = Box<dyn FnOnce() + Send>;

/// What is hashed behind each row's sample; nothing of any where no fields were asked for.
type Beside = Vec<Vec<u8>>;

/// The fields of each row as they are hashed: the length of each value (u64 LE), and the value.
pub(crate) fn fields_digested(fields: &[FieldColumn], n_rows: usize) -> Beside {
    if fields.is_empty() {
        return Vec::new();
    }
    let of_row = |row| {
        let values = fields.iter().map(move |field| field.value(row));
        values.flat_map(|value| {
            let len = (value.len() as u64).to_le_bytes();
            len.into_iter().chain(value.iter().copied())
        })
    };
    (0..n_rows).map(|row| of_row(row).collect()).collect()
}

fn of_row(beside: &[Vec<u8>], row: usize) -> &[u8] {
    beside.get(row).map_or(&[], Vec::as_slice)
}

/// Adds a batch's samples to the stream: the slot again, and the sums. Blocks until it is done. Where
/// a thread panics over it nothing comes of it: that ends the engine.
pub(crate) fn digest(
    chores: &Chores,
    stream: StreamDigest,
    (slot, ranges): (HostSlot, Vec<Range<usize>>),
    (rows, beside): (&[Row], Beside),
) -> Option<(HostSlot, Sums)> {
    let slot = Arc::new(slot);
    let rows = rows.iter().enumerate();
    let samples = rows.filter_map(|(nth, row)| Some((nth, row.sample?, row.label)));
    let (beside, ranges) = (Arc::new(beside), Arc::new(ranges));
    let samples: Arc<[_]> = samples.collect();
    let content = Arc::new(Mutex::new(ContentDigest::default()));
    let stream = Arc::new(Mutex::new(stream));
    let mut pieces: Vec<Piece> = Vec::new();
    {
        let (slot, samples, stream) =
            (Arc::clone(&slot), Arc::clone(&samples), Arc::clone(&stream));
        let (beside, ranges) = (Arc::clone(&beside), Arc::clone(&ranges));
        // The first to be taken up: it is the longest.
        pieces.push(Box::new(move || {
            let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
            for &(nth, id, label) in &*samples {
                stream.add(id, label, &slot[ranges[nth].clone()]);
                stream.update(of_row(&beside, nth));
            }
        }));
    }
    let n_run = samples.len().div_ceil(MOST_RUNS).max(1);
    for first in (0..samples.len()).step_by(n_run) {
        let (slot, samples, content) =
            (Arc::clone(&slot), Arc::clone(&samples), Arc::clone(&content));
        let (beside, ranges) = (Arc::clone(&beside), Arc::clone(&ranges));
        pieces.push(Box::new(move || {
            let mut own = ContentDigest::default();
            for &(nth, id, label) in samples[first..].iter().take(n_run) {
                let bytes = &slot[ranges[nth].clone()];
                own.add(sample_digest_of(id, label, &[bytes, of_row(&beside, nth)]));
            }
            content.lock().unwrap_or_else(PoisonError::into_inner).merge(own);
        }));
    }
    chores.all(pieces);
    let stream = Arc::into_inner(stream)?.into_inner().ok()?;
    let content = Arc::into_inner(content)?.into_inner().ok()?;
    let slot = Arc::into_inner(slot)?;
    Some((slot, Sums { stream, content }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bothends_core::digest::sample_digest;
    use bothends_core::ids::{Label, SampleId};
    use bothends_slots::{Ring, RingConfig};

    use super::*;

    #[test]
    fn the_sums_are_those_of_one_sample_after_the_other() {
        let (sample_bytes, chores) = (301, Chores::default());
        let (mut stream, mut content) = (StreamDigest::new(), ContentDigest::default());
        let mut so_far = StreamDigest::new();
        for n_rows in [1, 2, 15, 16, 17, 40, 100] {
            let config = RingConfig { n_slots: 1, slot_bytes: n_rows * sample_bytes };
            let ring = Ring::new(config).unwrap();
            let mut slot = ring.take(Duration::ZERO).unwrap().host().unwrap();
            for (byte, value) in slot.iter_mut().zip((0..=250).cycle()) {
                *byte = value;
            }
            // Every seventh row holds no sample.
            let rows: Vec<_> = (0..n_rows as u64)
                .map(|n| {
                    let sample = (n % 7 != 6).then_some(SampleId(n << 33));
                    Row { sample, label: Label(3), mixed: None }
                })
                .collect();
            let mut of_batch = ContentDigest::default();
            for (row, bytes) in rows.iter().zip(slot.chunks_exact(sample_bytes)) {
                let Some(sample) = row.sample else { continue };
                stream.add(sample, row.label, bytes);
                of_batch.add(sample_digest(sample, row.label, bytes));
            }
            content.merge(of_batch);
            let ranges = (0..n_rows).map(|n| n * sample_bytes..(n + 1) * sample_bytes);
            let samples = (slot, ranges.collect());
            let (back, sums) =
                digest(&chores, so_far, samples, (&rows, Vec::new())).unwrap();
            assert_eq!(back.len(), n_rows * sample_bytes);
            assert_eq!(sums.stream.to_string(), stream.to_string(), "{n_rows} rows");
            assert_eq!(sums.content, of_batch, "{n_rows} rows");
            so_far = sums.stream;
        }
    }
}
