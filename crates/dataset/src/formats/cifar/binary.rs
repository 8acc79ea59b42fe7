//! CIFAR-10's binary version: records of one label byte and 3 × 32 × 32 planar bytes ("Binary version" on
//! the page that `cifar.rs` names).
//!
//! The extent of a sample excludes its label byte. Every byte is read once, because the labels are
//! between the pixels. CIFAR-100 (two label bytes) is a different format.

use bothends_core::sample::Extent;

use super::{PIXELS_BYTES, class_of};
use crate::error::DatasetError;
use crate::storage::{Kind, Storage, kind, read};
use crate::table::TableBuilder;

const RECORD_BYTES: usize = 1 + PIXELS_BYTES as usize;
/// Records read at a time: 3 MB.
const CHUNK_RECORDS: usize = 1024;

/// Adds the records of a batch.
pub(super) fn add_batch(
    storage: &dyn Storage,
    batch: &str,
    builder: &mut TableBuilder,
) -> Result<(), DatasetError> {
    let shown = storage.shown(batch);
    let Kind::File { len } = kind(storage, batch)? else {
        return Err(DatasetError::Unrecognised { path: shown });
    };
    let record_bytes = RECORD_BYTES as u64;
    if len == 0 || len % record_bytes != 0 {
        return Err(DatasetError::CifarLength { path: shown, len_bytes: len });
    }
    let file = builder.file(batch)?;
    let n_records = len / record_bytes;
    let mut buffer = vec![0; RECORD_BYTES * CHUNK_RECORDS];
    for first in (0..n_records).step_by(CHUNK_RECORDS) {
        let left = usize::try_from(n_records - first).unwrap_or(usize::MAX);
        let chunk = &mut buffer[..RECORD_BYTES * left.min(CHUNK_RECORDS)];
        read(storage, batch, first * record_bytes, chunk)?;
        let labels = chunk.iter().step_by(RECORD_BYTES);
        for (record, &label) in (first..).zip(labels) {
            let label = class_of(i64::from(label), record, &shown)?;
            let offset = record * record_bytes + 1;
            builder.sample(Extent { file, offset, len: PIXELS_BYTES }, label);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bothends_core::ids::{Label, SampleId};

    use crate::conformance::{self, MemoryStorage};
    use crate::formats::Format;

    /// Records whose pixels all are `fill`, with those labels.
    fn batch(labels: &[u8], fill: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &label in labels {
            bytes.push(label);
            bytes.extend([fill; 3072]);
        }
        bytes
    }

    #[test]
    fn training_batches_come_in_order_and_without_the_test_batch() {
        let storage = MemoryStorage::new()
            .with("data_batch_2.bin", &batch(&[9], 2))
            .with("data_batch_1.bin", &batch(&[3, 0], 1))
            .with("test_batch.bin", &batch(&[1], 7))
            .with("batches.meta.txt", b"airplane\n");
        let found = crate::find(&storage, "").unwrap();
        conformance::check(&storage, &found);
        assert_eq!(found.format, Format::Cifar10);
        assert_eq!(found.n_ignored, 2);
        assert!(found.note.unwrap().contains("test_batch.bin"));
        let labels: Vec<_> = (0..3).map(|id| found.table.label(SampleId(id))).collect();
        assert_eq!(labels, [Label(3), Label(0), Label(9)]);
        let extent = found.table.extent(SampleId(1));
        assert_eq!((extent.offset, extent.len), (3074, 3072));
        assert_eq!(found.table.class_names().nth(9), Some("truck"));
    }

    #[test]
    fn more_records_than_one_chunk_keep_their_places() {
        let labels: Vec<u8> = (0..2500_u32).map(|n| (n % 10) as u8).collect();
        let storage = MemoryStorage::new().with("test_batch.bin", &batch(&labels, 0));
        let found = crate::find(&storage, "test_batch.bin").unwrap();
        conformance::check(&storage, &found);
        assert_eq!(found.table.n_samples(), 2500);
        assert_eq!(found.table.label(SampleId(2049)), Label(9));
        assert_eq!(found.table.extent(SampleId(2049)).offset, 2049 * 3073 + 1);
    }

    #[test]
    fn a_truncated_batch_is_named_with_its_length() {
        let storage =
            MemoryStorage::new().with("data_batch_1.bin", &batch(&[1, 2], 0)[..6000]);
        let error = crate::find(&storage, "").unwrap_err().to_string();
        assert!(error.contains("`/data/data_batch_1.bin` has 6000 bytes"), "{error}");
        let storage = MemoryStorage::new().with("test_batch.bin", b"");
        assert!(crate::find(&storage, "").is_err());
    }

    #[test]
    fn a_label_beyond_nine_is_named_with_its_record() {
        let storage = MemoryStorage::new().with("test_batch.bin", &batch(&[1, 10], 0));
        let error = crate::find(&storage, "").unwrap_err().to_string();
        assert!(error.contains("record 1 has label 10"), "{error}");
    }
}
