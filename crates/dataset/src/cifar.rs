//! CIFAR-10's binary version: `data_batch_1.bin` … and `test_batch.bin`, records of one
//! label byte and 3 × 32 × 32 planar bytes (<https://www.cs.toronto.edu/~kriz/cifar.html>,
//! "Binary version").
//!
//! The extent of a sample leaves its label byte out. Reads every byte once, because the
//! labels lie between the pixels. CIFAR-100 (two label bytes) is another format.

use bothends_core::sample::{Encoding, Extent};

use crate::storage::{Kind, Storage, kind, list, read};
use crate::table::TableBuilder;
use crate::{DatasetError, Format, Found, path};

pub(crate) const PIXELS_BYTES: u32 = 3 * 32 * 32;
const RECORD_BYTES: usize = 1 + PIXELS_BYTES as usize;
/// Records read at a time: 3 MB.
const CHUNK_RECORDS: usize = 1024;

pub(crate) const CLASSES: [&str; 10] = [
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
];

/// Whether the path's name is one of CIFAR-10's.
pub(crate) fn is_batch(path: &str) -> bool {
    let (_, name) = path::split(path);
    is_training(name) || name == "test_batch.bin"
}

fn is_training(name: &str) -> bool {
    name.starts_with("data_batch_") && name.ends_with(".bin")
}

/// Reads a folder's training batches (else its test batch), or the one file `target`.
pub(crate) fn parse(storage: &dyn Storage, target: &str) -> Result<Found, DatasetError> {
    let batches = batches(storage, target)?;
    let encoding = Encoding::Planar { height: 32, width: 32, channels: 3 };
    let mut builder = TableBuilder::new(encoding);
    for class in CLASSES {
        builder.class(class)?;
    }
    for batch in &batches.files {
        add_batch(storage, batch, &mut builder)?;
    }
    Ok(Found {
        table: builder.build()?,
        format: Format::Cifar10,
        n_ignored: batches.n_ignored,
        note: batches.note,
    })
}

struct Batches {
    files: Vec<String>,
    n_ignored: u64,
    note: Option<&'static str>,
}

fn batches(storage: &dyn Storage, target: &str) -> Result<Batches, DatasetError> {
    if let Kind::File { .. } = kind(storage, target)? {
        return Ok(Batches { files: vec![target.to_owned()], n_ignored: 0, note: None });
    }
    let entries = list(storage, target)?;
    let named = |wanted: &dyn Fn(&str) -> bool| -> Vec<String> {
        let names = entries.iter().map(|entry| entry.name.as_str());
        names.filter(|name| wanted(name)).map(|name| path::join(target, name)).collect()
    };
    let training = named(&is_training);
    let test = named(&|name| name == "test_batch.bin");
    let (files, note) = match (training.is_empty(), test.is_empty()) {
        (false, false) => (
            training,
            Some(
                "read the training batches; name test_batch.bin itself for the test set",
            ),
        ),
        (false, true) => (training, None),
        (true, _) => (test, None),
    };
    if files.is_empty() {
        return Err(DatasetError::Unrecognised { path: storage.shown(target) });
    }
    let n_ignored = (entries.len() - files.len()) as u64;
    Ok(Batches { files, n_ignored, note })
}

fn add_batch(
    storage: &dyn Storage,
    batch: &str,
    builder: &mut TableBuilder,
) -> Result<(), DatasetError> {
    let Kind::File { len } = kind(storage, batch)? else {
        return Err(DatasetError::Unrecognised { path: storage.shown(batch) });
    };
    let record_bytes = RECORD_BYTES as u64;
    if len == 0 || len % record_bytes != 0 {
        let path = storage.shown(batch);
        return Err(DatasetError::CifarLength { path, len_bytes: len });
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
            if usize::from(label) >= CLASSES.len() {
                return Err(DatasetError::LabelOutOfRange {
                    path: storage.shown(batch),
                    record,
                    label: u64::from(label),
                    n_classes: CLASSES.len() as u64,
                });
            }
            let offset = record * record_bytes + 1;
            let extent = Extent { file, offset, len: PIXELS_BYTES };
            builder.sample(extent, u32::from(label));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bothends_core::ids::{Label, SampleId};

    use super::*;
    use crate::conformance::{self, MemoryStorage};

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
