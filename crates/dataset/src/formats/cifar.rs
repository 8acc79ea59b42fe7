//! CIFAR-10 (<https://www.cs.toronto.edu/~kriz/cifar.html>) in its two versions: which files are batches,
//! and in which order.
//!
//! `cifar/binary.rs` and `cifar/python.rs` know what is in a batch.

mod binary;
mod pickle;
mod python;

use bothends_core::sample::Encoding;

use crate::error::DatasetError;
use crate::formats::{Format, Found};
use crate::path;
use crate::storage::{Kind, Storage, kind, list};
use crate::table::TableBuilder;

const PIXELS_BYTES: u32 = 3 * 32 * 32;

const CLASSES: [&str; 10] = [
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

/// `data_batch_1.bin` … and `test_batch.bin`.
pub(crate) const BINARY: Version = Version {
    format: Format::Cifar10,
    is_training: |name| name.starts_with("data_batch_") && name.ends_with(".bin"),
    rank: |_| 0,
    test: "test_batch.bin",
    note: "read the training batches; name test_batch.bin itself for the test set",
    add_batch: binary::add_batch,
};

/// `data_batch_1` … and `test_batch`. The order is torchvision's: batches by number.
pub(crate) const PYTHON: Version = Version {
    format: Format::Cifar10Python,
    is_training: |name| {
        let number = name.strip_prefix("data_batch_");
        number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    },
    rank: str::len,
    test: "test_batch",
    note: "read the training batches; name test_batch itself for the test set",
    add_batch: python::add_batch,
};

/// How one version is told and read.
pub(crate) struct Version {
    format: Format,
    is_training: fn(&str) -> bool,
    /// Training batches come by this, then by name.
    rank: fn(&str) -> usize,
    /// The name of the test batch.
    test: &'static str,
    /// Reported if the test batch is next to those that are read.
    note: &'static str,
    add_batch: fn(&dyn Storage, &str, &mut TableBuilder) -> Result<(), DatasetError>,
}

impl Version {
    /// Whether the path's name is one of the batches'.
    pub(crate) fn is_batch(&self, path: &str) -> bool {
        let (_, name) = path::split(path);
        (self.is_training)(name) || name == self.test
    }

    /// Reads a folder's training batches (else its test batch), or the one file `target`.
    pub(crate) fn parse(
        &self,
        storage: &dyn Storage,
        target: &str,
    ) -> Result<Found, DatasetError> {
        let (files, n_ignored, note) = match kind(storage, target)? {
            Kind::File { .. } => (vec![target.to_owned()], 0, None),
            Kind::Folder => self.batches(storage, target)?,
        };
        let encoding = Encoding::Planar { height: 32, width: 32, channels: 3 };
        let mut builder = TableBuilder::new(encoding);
        for class in CLASSES {
            builder.class(class)?;
        }
        for batch in &files {
            (self.add_batch)(storage, batch, &mut builder)?;
        }
        Ok(Found::new(self.format, builder.build()?, n_ignored, note))
    }

    /// The batches to read, how many files are not read, and what is to be said of it.
    fn batches(
        &self,
        storage: &dyn Storage,
        folder: &str,
    ) -> Result<(Vec<String>, u64, Option<&'static str>), DatasetError> {
        let entries = list(storage, folder)?;
        let names = || entries.iter().map(|entry| entry.name.as_str());
        let test: Vec<_> = names().filter(|name| *name == self.test).collect();
        let mut training: Vec<_> =
            names().filter(|name| (self.is_training)(name)).collect();
        training.sort_by_key(|name| (self.rank)(name));
        let is_passed_over = !test.is_empty() && !training.is_empty();
        let chosen = if training.is_empty() { test } else { training };
        if chosen.is_empty() {
            return Err(DatasetError::Unrecognised { path: storage.shown(folder) });
        }
        let files = chosen.iter().map(|name| path::join(folder, name)).collect();
        let n_ignored = (entries.len() - chosen.len()) as u64;
        Ok((files, n_ignored, is_passed_over.then_some(self.note)))
    }
}

/// A record's label, held against the classes.
fn class_of(label: i64, record: u64, batch: &str) -> Result<u32, DatasetError> {
    let class = u32::try_from(label).ok().filter(|n| (*n as usize) < CLASSES.len());
    class.ok_or_else(|| DatasetError::LabelOutOfRange {
        path: batch.to_owned(),
        record,
        label: u64::try_from(label).unwrap_or(u64::MAX),
        n_classes: CLASSES.len() as u64,
    })
}
