//! CIFAR-10's Python version, which torchvision downloads: pickled batches `data_batch_1` …
//! and `test_batch`, each a dictionary with `data` (a NumPy array, records × 3072 bytes,
//! planar) and `labels` (<https://www.cs.toronto.edu/~kriz/cifar.html>, "CIFAR-10 python
//! version").
//!
//! A record is 3072 bytes in the middle of the pickle: nothing is unpacked or copied. The
//! order is torchvision's: batches by number. The binary version is `cifar.rs`.

use bothends_core::sample::{Encoding, Extent};

use crate::cifar::{CLASSES, PIXELS_BYTES};
use crate::pickle::{self, Text, Value};
use crate::storage::{Entry, Kind, Storage, kind, list};
use crate::table::TableBuilder;
use crate::{DatasetError, Format, Found, path};

/// Whether the path's name is one of the batches'.
pub(crate) fn is_batch(path: &str) -> bool {
    let (_, name) = path::split(path);
    is_training(name) || name == "test_batch"
}

fn is_training(name: &str) -> bool {
    let number = name.strip_prefix("data_batch_");
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Reads a folder's training batches (else its test batch), or the one file `target`.
pub(crate) fn parse(storage: &dyn Storage, target: &str) -> Result<Found, DatasetError> {
    let (files, n_ignored, note) = match kind(storage, target)? {
        Kind::File { .. } => (vec![target.to_owned()], 0, None),
        Kind::Folder => batches(&list(storage, target)?, target),
    };
    let encoding = Encoding::Planar { height: 32, width: 32, channels: 3 };
    let mut builder = TableBuilder::new(encoding);
    for class in CLASSES {
        builder.class(class)?;
    }
    for batch in &files {
        add_batch(storage, batch, &mut builder)?;
    }
    Ok(Found { table: builder.build()?, format: Format::Cifar10Python, n_ignored, note })
}

fn batches(entries: &[Entry], folder: &str) -> (Vec<String>, u64, Option<&'static str>) {
    let names = || entries.iter().map(|entry| entry.name.as_str());
    let mut training: Vec<_> = names().filter(|name| is_training(name)).collect();
    training.sort_by_key(|name| (name.len(), *name));
    let has_test = names().any(|name| name == "test_batch");
    let note = (has_test && !training.is_empty())
        .then_some("read the training batches; name test_batch itself for the test set");
    let chosen = if training.is_empty() { vec!["test_batch"] } else { training };
    let files: Vec<_> = chosen.into_iter().map(|name| path::join(folder, name)).collect();
    let n_ignored = entries.len().saturating_sub(files.len()) as u64;
    (files, n_ignored, note)
}

fn add_batch(
    storage: &dyn Storage,
    batch: &str,
    builder: &mut TableBuilder,
) -> Result<(), DatasetError> {
    let wrong = |offset, why| {
        let path = storage.shown(batch);
        DatasetError::Pickle { path, offset, why }
    };
    let pickle = pickle::load(storage, batch)?;
    let labels = pickle.get("labels").and_then(Value::items);
    let labels = labels.ok_or_else(|| wrong(0, "has no list `labels`"))?;
    let data = pickle.get("data").and_then(pixels);
    let data = data.ok_or_else(|| wrong(0, "has no array `data` of bytes"))?;
    if data.len != labels.len() as u64 * u64::from(PIXELS_BYTES) {
        return Err(wrong(data.offset, "has other than 3072 bytes for each label"));
    }
    let file = builder.file(batch)?;
    for (record, label) in (0..).zip(labels) {
        let label =
            label.int().ok_or_else(|| wrong(0, "has a label that is no number"))?;
        let class = u32::try_from(label).ok().filter(|n| (*n as usize) < CLASSES.len());
        let class = class.ok_or_else(|| DatasetError::LabelOutOfRange {
            path: storage.shown(batch),
            record,
            label: u64::try_from(label).unwrap_or(u64::MAX),
            n_classes: CLASSES.len() as u64,
        })?;
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
            (Vec::new(), "byte 0: it ends in the middle of something"),
            (good[..good.len() - 1].to_vec(), "it ends in the middle of something"),
            (good[..good.len() - 200].to_vec(), "a text that is longer than the file"),
            (b"{\"a\": 1}".to_vec(), "has an opcode that no batch has"),
            (changed(b"labels", b"lebals"), "has no list `labels`"),
            (changed(b"\x04data", b"\x04date"), "has no array `data` of bytes"),
            (changed(b"K\x01K\x02e", b"K\x01e"), "has other than 3072 bytes for each"),
            (changed(b"K\x01K\x02e", b"K\x01K\x0ae"), "record 1 has label 10"),
            (changed(b"K\x01K\x02e", b"K\x01Ne"), "a label that is no number"),
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
