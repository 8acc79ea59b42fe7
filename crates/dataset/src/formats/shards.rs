//! Shards: files that hold many records each, as WebDataset, MosaicML Streaming and TensorFlow write them,
//! and in `columns/` those that hold tables.
//!
//! A format here walks the headers of its shards once and tells where each image lies. Payloads are skipped,
//! so opening reads a small part of the data. Nothing is copied or converted: samples are read from the
//! shards themselves, in any order. Read `tar.rs` first; the others follow the same plan. `walk.rs` walks
//! through several shards at the same time.

pub(crate) mod beton;
pub(crate) mod columns;
pub(crate) mod compressed;
pub(crate) mod datadings;
pub(crate) mod example;
pub(crate) mod hdf5;
pub(crate) mod mds;
pub(crate) mod tar;
pub(crate) mod tfrecord;
mod walk;

use std::borrow::Cow;

use crate::error::DatasetError;
use crate::fields::FieldsBuilder;
use crate::formats::{Format, Found};
use crate::path;
use crate::storage::{Entry, Kind, Storage, kind, list, read};
use crate::table::TableBuilder;

/// Reads grow up to so many bytes where records are small, because calls then cost more than bytes.
const MAX_AHEAD: usize = 1 << 16;

/// Words in a file's name that say which split of a data set it is of.
const SPLITS: [&str; 8] =
    ["train", "training", "validation", "valid", "val", "dev", "test", "eval"];

/// What is asked for next is near if at most so many times the last read lie between.
const NEAR: usize = 4;

/// A file that is read in small parts, front to back.
pub(crate) struct Window<'a> {
    storage: &'a dyn Storage,
    path: Cow<'a, str>,
    /// Bytes of the file.
    len: u64,
    /// Bytes that one read brings at least.
    step: usize,
    /// Bytes that the next one brings.
    ahead: usize,
    /// Where in the file `bytes` begin.
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    /// The file at `path`, of which at least `step` bytes are read at a time.
    pub(crate) fn open(
        storage: &'a dyn Storage,
        path: impl Into<Cow<'a, str>>,
        step: usize,
    ) -> Result<Self, DatasetError> {
        let path = path.into();
        let Kind::File { len } = kind(storage, &path)? else {
            return Err(DatasetError::Unrecognised { path: storage.shown(&path) });
        };
        let (start, bytes) = (0, Vec::new());
        Ok(Self { storage, path, len, step, ahead: step, start, bytes })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// `n` bytes of the file from `at`.
    ///
    /// # Errors
    /// [`DatasetError::Shard`] where the file ends before.
    pub(crate) fn bytes(&mut self, at: u64, n: usize) -> Result<&[u8], DatasetError> {
        let end = at.checked_add(n as u64).filter(|end| *end <= self.len);
        let Some(end) = end else {
            return Err(self.broken(at, "the file ends too early"));
        };
        let have = self.start.saturating_add(self.bytes.len() as u64);
        if at < self.start || end > have {
            // Nothing has been read yet where there are no bytes.
            let is_near = !self.bytes.is_empty()
                && at >= self.start
                && at.saturating_sub(have) <= (NEAR * self.ahead) as u64;
            self.ahead = match is_near {
                true => (2 * self.ahead).min(self.step.max(MAX_AHEAD)),
                false => self.step,
            };
            let left = usize::try_from(self.len - at).unwrap_or(usize::MAX);
            self.bytes.resize(n.max(self.ahead).min(left), 0);
            // A failed read must not leave bytes of another place.
            self.start = u64::MAX;
            read(self.storage, &self.path, at, &mut self.bytes)?;
            self.start = at;
        }
        let first = usize::try_from(at - self.start).unwrap_or(usize::MAX);
        Ok(&self.bytes[first..][..n])
    }

    /// Four bytes from `at`, least significant first.
    pub(crate) fn u32(&mut self, at: u64) -> Result<u32, DatasetError> {
        let bytes = self.bytes(at, 4)?;
        Ok(bytes.iter().rev().fold(0, |sum, &byte| (sum << 8) | u32::from(byte)))
    }

    /// What is wrong with this file, and where.
    pub(crate) fn broken(&self, at: u64, why: impl Into<String>) -> DatasetError {
        DatasetError::Shard {
            path: self.storage.shown(&self.path),
            offset: at,
            why: why.into(),
        }
    }

    /// What is compressed in this file, and where.
    pub(crate) fn compressed(&self, at: u64, why: impl Into<String>) -> DatasetError {
        DatasetError::Compressed {
            path: self.storage.shown(&self.path),
            offset: at,
            why: why.into(),
        }
    }

    /// The length of a record that begins at `at`, held against the file's and an extent's bounds.
    pub(crate) fn record_len(&self, at: u64, len: u64) -> Result<u32, DatasetError> {
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(self.broken(at, "a record reaches beyond the end of the file"));
        }
        u32::try_from(len).map_err(|_| DatasetError::RecordTooLong {
            path: self.storage.shown(&self.path),
            len_bytes: len,
        })
    }
}

/// The shards to read for `target`, which is one of them or their folder, and how many other files are
/// next to them.
pub(crate) fn find(
    storage: &dyn Storage,
    target: &str,
    is_shard: fn(&str) -> bool,
) -> Result<(Vec<String>, u64), DatasetError> {
    if let Kind::File { .. } = kind(storage, target)? {
        return Ok((vec![target.to_owned()], 0));
    }
    let entries = list(storage, target)?;
    let shards: Vec<_> = entries
        .iter()
        .filter(|entry| is_shard_in(entry, is_shard))
        .map(|entry| path::join(target, &entry.name))
        .collect();
    let n_others = (entries.len() - shards.len()) as u64;
    Ok((shards, n_others))
}

/// Whether the entry is a file with the name of a shard.
pub(crate) fn is_shard_in(entry: &Entry, is_shard: fn(&str) -> bool) -> bool {
    let is_file = matches!(entry.kind, Kind::File { .. });
    is_file && !entry.name.starts_with('.') && is_shard(&entry.name)
}

/// Refuses files of several splits: mixed, a validation set would be trained on.
pub(crate) fn one_split<'a>(
    storage: &dyn Storage,
    folder: &str,
    files: impl IntoIterator<Item = &'a String>,
) -> Result<(), DatasetError> {
    let mut splits: Vec<_> = files.into_iter().filter_map(|file| split(file)).collect();
    splits.sort_unstable();
    splits.dedup();
    match splits.len() {
        0 | 1 => Ok(()),
        _ => Err(DatasetError::Shard {
            path: storage.shown(folder),
            offset: 0,
            why: format!(
                "it holds several splits ({}); give one file, or move or link the files of \
                 each split into a folder of its own",
                splits.join(", ")
            ),
        }),
    }
}

/// The split that a file's name says it is of.
fn split(file: &str) -> Option<&'static str> {
    let name = path::split(file).1.to_ascii_lowercase();
    let words = name.rsplit(['-', '_', '.']);
    words.filter_map(|word| SPLITS.iter().copied().find(|split| *split == word)).next()
}

/// The class that a number stands for: -1 is how Hugging Face's libraries, and others after them, write that a
/// sample has none.
///
/// # Errors
/// That it is no class.
pub(crate) fn class(number: i64) -> Result<Option<u32>, String> {
    match number {
        -1 => Ok(None),
        _ => u32::try_from(number).map(Some).map_err(|_| {
            format!("the class {number} is not a number from 0 to 4294967295")
        }),
    }
}

/// The number that at most eight bytes are, the least significant first, the highest bit of which is its sign.
pub(crate) fn signed(bytes: &[u8]) -> i64 {
    let is_negative = bytes.last().is_some_and(|&byte| byte >= 0x80);
    let above = if is_negative { u64::MAX } else { 0 };
    let value = bytes.iter().rev().fold(above, |sum, &byte| (sum << 8) | u64::from(byte));
    value.cast_signed()
}

/// The data set that was read from shards.
pub(crate) fn found(
    format: Format,
    builder: TableBuilder,
    n_ignored: u64,
    labels: Labels,
) -> Result<Found, DatasetError> {
    Ok(Found::new(format, builder.build()?, n_ignored, labels.note()))
}

/// The same with the fields that were found at `target`.
pub(crate) fn with_fields(
    found: Found,
    (storage, target): (&dyn Storage, &str),
    fields: FieldsBuilder,
) -> Result<Found, DatasetError> {
    let (fields, names) = fields.build(storage, target, found.table.n_samples())?;
    Ok(Found { fields, names, ..found })
}

/// What users may hear about shards.
pub(crate) const NOTES: [&str; 2] = [
    "the shards have no labels: every label is 0",
    "some samples have no label; it is taken as 0",
];

/// Which samples came with a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Labels {
    pub(crate) n_given: u64,
    pub(crate) n_missing: u64,
}

impl Labels {
    /// The label to use for a sample that has this one; 0 stands for none.
    pub(crate) fn take(&mut self, label: Option<u32>) -> u32 {
        match label {
            Some(_) => self.n_given += 1,
            None => self.n_missing += 1,
        }
        label.unwrap_or(0)
    }

    fn append(&mut self, later: Self) {
        self.n_given += later.n_given;
        self.n_missing += later.n_missing;
    }

    fn note(self) -> Option<&'static str> {
        match (self.n_given, self.n_missing) {
            (_, 0) => None,
            (0, _) => Some(NOTES[0]),
            _ => Some(NOTES[1]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_are_read_off_the_names() {
        assert_eq!(
            split("d/imagenet-1k-validation-00000-of-00014.arrow"),
            Some("validation")
        );
        assert_eq!(split("train-00000-of-00001.parquet"), Some("train"));
        assert_eq!(split("mnist-test.tfrecord-00000-of-00001"), Some("test"));
        assert_eq!(split("data-00000-of-00003.arrow"), None);
        assert_eq!(split("training/0.parquet"), None);
        assert_eq!(split("latest-0.tar"), None);
    }

    #[test]
    fn minus_one_is_no_class() {
        assert_eq!(class(-1), Ok(None));
        assert_eq!(class(7), Ok(Some(7)));
        assert!(class(-2).is_err() && class(1 << 32).is_err());
        let bytes: [(&[u8], _); 5] = [
            (&[], 0),
            (&[0x7f], 127),
            (&[0xff], -1),
            (&[0xfe, 0xff], -2),
            (&[0xff; 8], -1),
        ];
        for (bytes, expected) in bytes {
            assert_eq!(signed(bytes), expected);
        }
    }

    /// Small records are read many at a time; what is far apart is not read through.
    #[test]
    fn reads_grow_where_records_are_small() {
        use crate::conformance::MemoryStorage;
        let storage = MemoryStorage::new().with("a", &vec![7; 1 << 20]);
        let reads = |gap: usize| {
            let mut window = Window::open(&storage, "a", 512).unwrap();
            let (mut n_reads, mut n_bytes, mut start) = (0, 0, u64::MAX);
            for at in (0..1_u64 << 20).step_by(gap) {
                window.bytes(at, 16).unwrap();
                if window.start != start {
                    start = window.start;
                    n_reads += 1;
                    n_bytes += window.bytes.len();
                }
            }
            (n_reads, n_bytes)
        };
        let (n_reads, n_bytes) = reads(600);
        assert!(n_reads < 40 && n_bytes <= 1 << 20, "{n_reads} reads of {n_bytes} bytes");
        let (n_reads, n_bytes) = reads(1 << 16);
        assert_eq!((n_reads, n_bytes), (16, 16 * 512));
    }
}
