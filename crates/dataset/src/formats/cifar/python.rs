//! CIFAR-10's Python version, which torchvision downloads. Each batch is a pickle of a dictionary with
//! `data` (a NumPy array, records × 3072 bytes, planar) and `labels` ("CIFAR-10 python version" on the page
//! that `cifar.rs` names).
//!
//! A record is 3072 bytes in the middle of the pickle; nothing is unpacked or copied.

use bothends_core::sample::Extent;

use super::pickle::{self, Text, Value};
use super::{PIXELS_BYTES, class_of};
use crate::error::DatasetError;
use crate::storage::Storage;
use crate::table::TableBuilder;

/// Adds the records of a batch.
pub(super) fn add_batch(
    storage: &dyn Storage,
    batch: &str,
    builder: &mut TableBuilder,
) -> Result<(), DatasetError> {
    let shown = storage.shown(batch);
    let wrong = |offset, why| DatasetError::Pickle { path: shown.clone(), offset, why };
    let pickle = pickle::load(storage, batch)?;
    let labels = pickle.get("labels").and_then(Value::items);
    let labels = labels.ok_or_else(|| wrong(0, "has no list `labels`"))?;
    let data = pickle.get("data").and_then(pixels);
    let data = data.ok_or_else(|| wrong(0, "has no array `data` of bytes"))?;
    if data.len != labels.len() as u64 * u64::from(PIXELS_BYTES) {
        return Err(wrong(data.offset, "does not have 3072 bytes for each label"));
    }
    let file = builder.file(batch)?;
    for (record, label) in (0..).zip(labels) {
        let label =
            label.int().ok_or_else(|| wrong(0, "has a label that is not a number"))?;
        let class = class_of(label, record, &shown)?;
        let offset = data.offset + record * u64::from(PIXELS_BYTES);
        builder.sample(Extent { file, offset, len: PIXELS_BYTES }, class);
    }
    Ok(())
}

/// The bytes of a NumPy array: `ndarray.__setstate__` takes (version, shape, type, whether
/// the order is Fortran's, bytes); from protocol 5 on, `_frombuffer` (bytes, type, shape,
/// order).
fn pixels(array: &Value) -> Option<&Text> {
    let Value::Object(state) = array else { return None };
    let is_text = |item: &&Value| matches!(item, Value::Text(_));
    let mut items = [4, 0].iter().filter_map(|place| state.items()?.get(*place));
    let Some(Value::Text(bytes)) = items.find(is_text) else { return None };
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use bothends_core::ids::{Label, SampleId};
    use bothends_core::sample::FileIdx;

    use super::*;
    use crate::conformance::{self, MemoryStorage};
    use crate::formats::{Format, Found};

    /// A batch with the opcodes of the files that the authors made (Python 2, protocol 2), as
    /// `pickletools.dis` shows them.
    fn batch(labels: &[u8], data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x05batchq\x03".to_vec();
        bytes.extend(b"U\x06labelsq\x04]q\x05(");
        labels.iter().for_each(|label| bytes.extend([b'K', *label]));
        bytes.extend(
            b"eU\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\n",
        );
        bytes.extend(b"ndarray\nq\x08K\x00\x85U\x01b\x87Rq\x09(K\x01M\x10'M\x00\x0c\x86");
        bytes.extend(b"cnumpy\ndtype\nq\x0aU\x02u1K\x00K\x01\x87Rq\x0b(K\x03U\x01|NNN");
        bytes.extend(b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T");
        bytes.extend(u32::try_from(data.len()).unwrap().to_le_bytes());
        bytes.extend(data);
        bytes.extend(b"tbU\x09filenamesq\x0c]q\x0d(U\x05a.pngq\x0eeu.");
        bytes
    }

    fn pixels(fills: &[u8]) -> Vec<u8> {
        fills.iter().flat_map(|fill| [*fill; 3072]).collect()
    }

    fn find(name: &str, bytes: &[u8]) -> Result<Found, DatasetError> {
        let storage = MemoryStorage::new().with(name, bytes);
        let found = crate::find(&storage, name)?;
        conformance::check(&storage, &found);
        Ok(found)
    }

    #[test]
    fn batches_are_read_in_the_order_of_their_numbers() {
        let storage = MemoryStorage::new()
            .with("c/data_batch_10", &batch(&[9], &pixels(&[3])))
            .with("c/data_batch_2", &batch(&[0, 1], &pixels(&[1, 2])))
            .with("c/test_batch", &batch(&[5], &pixels(&[4])))
            .with("c/batches.meta", b"")
            .with("c/readme.html", b"");
        let found = crate::find(&storage, "c").unwrap();
        conformance::check(&storage, &found);
        assert_eq!(found.format, Format::Cifar10Python);
        let labels: Vec<_> = (0..3).map(|id| found.table.label(SampleId(id))).collect();
        assert_eq!(labels, [Label(0), Label(1), Label(9)]);
        assert_eq!(found.table.file_path(FileIdx(0)), "c/data_batch_2");
        assert_eq!(found.table.class_names().nth(9), Some("truck"));
        assert_eq!(found.n_ignored, 3);
        assert!(found.note.is_some_and(|note| note.contains("test_batch")));
        for (id, fill) in [(0, 1), (1, 2), (2, 3)] {
            let Extent { file, offset, len } = found.table.extent(SampleId(id));
            let mut record = vec![0; len as usize];
            storage.read(&found.table.file_path(file), offset, &mut record).unwrap();
            assert_eq!(record, pixels(&[fill]));
        }
    }

    #[test]
    fn the_test_batch_is_read_by_its_name() {
        let found = find("test_batch", &batch(&[5, 6], &pixels(&[4, 4]))).unwrap();
        assert_eq!((found.table.n_samples(), found.note), (2, None));
    }

    #[test]
    fn what_is_no_batch_is_refused_by_name_and_place() {
        let good = batch(&[1, 2], &pixels(&[0, 0]));
        let changed = |old: &[u8], new: &[u8]| {
            let at = good.windows(old.len()).position(|window| window == old).unwrap();
            let mut bytes = good.clone();
            bytes.splice(at..at + old.len(), new.iter().copied());
            bytes
        };
        let table: [(Vec<u8>, &str); 9] = [
            (Vec::new(), "byte 0: it ends in the middle of an object"),
            (good[..good.len() - 1].to_vec(), "it ends in the middle of an object"),
            (good[..good.len() - 200].to_vec(), "a text that is longer than the file"),
            (b"{\"a\": 1}".to_vec(), "has an opcode that no batch has"),
            (changed(b"labels", b"lebals"), "has no list `labels`"),
            (changed(b"\x04data", b"\x04date"), "has no array `data` of bytes"),
            (changed(b"K\x01K\x02e", b"K\x01e"), "does not have 3072 bytes for each"),
            (changed(b"K\x01K\x02e", b"K\x01K\x0ae"), "record 1 has label 10"),
            (changed(b"K\x01K\x02e", b"K\x01Ne"), "a label that is not a number"),
        ];
        for (bytes, part) in table {
            let line = find("data_batch_1", &bytes).unwrap_err().to_string();
            assert!(line.contains("data_batch_1") && line.contains(part), "{line}");
        }
    }

    /// From `tests/bad/pickle`: each file's name is a part of the reason it is refused for.
    #[test]
    fn bad_batches_are_refused_for_their_reason() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/bad/pickle");
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let reason = path.file_stem().unwrap().to_str().unwrap().replace('-', " ");
            let line = find("data_batch_1", &std::fs::read(&path).unwrap()).unwrap_err();
            let line = line.to_string();
            assert!(line.contains(&reason), "{reason}: {line}");
        }
    }

    /// Damage of any one byte is refused or leaves a table that is whole.
    #[test]
    fn a_changed_byte_makes_nothing_panic() {
        let good = batch(&[1, 2], &pixels(&[0, 0]));
        let head = good.iter().position(|byte| *byte == b'T').unwrap() + 8;
        let places = (0..head).chain(good.len() - 40..good.len());
        for at in places {
            for value in 0..=255 {
                let mut bytes = good.clone();
                bytes[at] = value;
                let _ = find("data_batch_1", &bytes);
            }
        }
    }
}
