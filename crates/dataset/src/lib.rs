//! Where a sample's bytes lie, and what a record's bytes mean.
//!
//! Every source reduces to a [`Table`] of extents: file, offset, length, label. The table,
//! encoded, is the manifest, and the manifest is the only thing a device sees. This crate
//! never opens a file (its callers bring a [`Storage`]) and never decodes a pixel (`ops`
//! does).
//!
//! Reading order: `table` is the product; `names`, `columns` and `path` are what it is made of;
//! `manifest` its bytes; `storage` the seam to the caller's files; then one file per
//! format, `store` with the parts that it is made of; `conformance` holds what every format
//! must keep. `side_index` is the form of what an earlier epoch left to know about the images.
//!
//! A new format is one file with a `parse` function, one line in [`Format`], and one call
//! of `conformance::check`.

mod columns;
mod error;
mod names;
mod path;

mod manifest;
mod storage;
mod table;

mod cifar;
mod cifar_python;
mod class_folders;
mod list;
mod pickle;

pub mod conformance;
pub mod side_index;
pub mod store;

pub use bothends_core::recipe::RecordShape;
pub use error::DatasetError;
pub use manifest::MANIFEST_VERSION;
pub use storage::{Entry, Kind, Storage};
pub use table::{Piece, Table, TableBuilder, WrongChecksum};

/// A way in which samples lie in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One folder per class, images in it: torchvision's `ImageFolder`. A folder of images
    /// without class folders is read too; all its labels are 0.
    ClassFolders,
    /// CIFAR-10's binary version: `data_batch_*.bin`, `test_batch.bin`.
    Cifar10,
    /// CIFAR-10's Python version, which torchvision downloads: `data_batch_1` …, `test_batch`.
    Cifar10Python,
    /// A data set packed for reading: a folder with `store.json` and shards.
    Store,
    /// A `.jsonl` file, one `{"path": "a/b.jpg", "label": 3}` per line.
    List,
}

/// A data set that was found, with what the user should hear about it.
#[derive(Debug, Clone)]
pub struct Found {
    /// Where the samples are.
    pub table: Table,
    /// How it was read.
    pub format: Format,
    /// Files that belong to no sample.
    pub n_ignored: u64,
    /// One line for the user when the format had to be read in a way that may surprise.
    pub note: Option<&'static str>,
}

/// Recognises and reads the data set at `target` (`""` is the storage's root; else a file
/// or folder in it). Blocks on the storage: class folders are listed, a CIFAR batch is read.
///
/// # Errors
/// As [`Format::detect`] and [`Format::parse`].
pub fn find(storage: &dyn Storage, target: &str) -> Result<Found, DatasetError> {
    Format::detect(storage, target)?.parse(storage, target)
}

impl Format {
    /// Says which format lies at `target`, from names alone.
    ///
    /// # Errors
    /// [`DatasetError::Storage`] when the target is missing or unreadable,
    /// [`DatasetError::Empty`], [`DatasetError::Unrecognised`].
    pub fn detect(storage: &dyn Storage, target: &str) -> Result<Self, DatasetError> {
        let unrecognised = || DatasetError::Unrecognised { path: storage.shown(target) };
        match storage::kind(storage, target)? {
            Kind::File { .. } if list::is_list(target) => Ok(Self::List),
            Kind::File { .. } if cifar::is_batch(target) => Ok(Self::Cifar10),
            Kind::File { .. } if cifar_python::is_batch(target) => {
                Ok(Self::Cifar10Python)
            }
            Kind::File { .. } => Err(unrecognised()),
            Kind::Folder => {
                let entries = storage::list(storage, target)?;
                if entries.iter().any(store::is_manifest) {
                    Ok(Self::Store)
                } else if entries.iter().any(|entry| cifar::is_batch(&entry.name)) {
                    Ok(Self::Cifar10)
                } else if entries.iter().any(|entry| cifar_python::is_batch(&entry.name))
                {
                    Ok(Self::Cifar10Python)
                } else if entries.iter().any(class_folders::is_class_or_image) {
                    Ok(Self::ClassFolders)
                } else if entries.is_empty() {
                    Err(DatasetError::Empty { path: storage.shown(target) })
                } else {
                    Err(unrecognised())
                }
            }
        }
    }

    /// Reads the data set at `target` as this format.
    ///
    /// # Errors
    /// What the format's file says is wrong with the data, by file and line where there is
    /// one; [`DatasetError::Storage`].
    pub fn parse(
        self,
        storage: &dyn Storage,
        target: &str,
    ) -> Result<Found, DatasetError> {
        match self {
            Self::ClassFolders => class_folders::parse(storage, target),
            Self::Cifar10 => cifar::parse(storage, target),
            Self::Cifar10Python => cifar_python::parse(storage, target),
            Self::Store => store::parse(storage, target),
            Self::List => list::parse(storage, target),
        }
    }
}
