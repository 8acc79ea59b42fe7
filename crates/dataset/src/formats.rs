//! The ways in which samples are stored in files. Formats are recognised by names alone and read into a
//! table.
//!
//! Read `formats/list.rs` first, then `class_folders.rs`; a packed data set is `store.rs`, and the shards of
//! other tools are in `shards/`; `kept.rs` says how what was found in those may be kept.

mod cifar;
mod class_folders;
mod decompression;
mod kept;
mod list;
mod rows;
mod shards;
mod store;

pub use self::list::is_listed_image;
use self::shards::columns;
pub use self::shards::compressed::{Codec, Decompression, Step, Treatment};
use bothends_core::ids::SampleId;

use crate::error::DatasetError;
use crate::fields::{Ask, Fields, FieldsBuilder, NamedField};
use crate::path;
use crate::storage::{self, Entry, Kind, Storage};
use crate::table::Table;

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
    /// Tar archives of WebDataset: members of one name are a sample.
    WebDataset,
    /// Shards of MosaicML Streaming: a folder with `index.json`.
    Mds,
    /// TFRecord files of `tf.train.Example`.
    TfRecord,
    /// A file of MessagePack maps with files about it next to it, as datadings writes them.
    Datadings,
    /// Files of FFCV, whose images are JPEGs.
    Beton,
    /// HDF5 files, as h5py writes images: a dataset of them and one of their classes.
    Hdf5,
    /// Parquet files with the images' bytes in a column, as Hugging Face's libraries write them.
    Parquet,
    /// Arrow streams and files: the cache of `datasets`, `save_to_disk`.
    Arrow,
    /// Chunks of LitData: a folder with `index.json`.
    LitData,
    /// A `.jsonl` file, one `{"path": "a/b.jpg", "label": 3}` per line.
    List,
    /// The rows of a database's table.
    Rows,
}

/// Whether an entry makes its folder look like a format.
type Recognises<'a> = &'a dyn Fn(&Entry) -> bool;

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
    /// The first sample whose file does not exist, where a list names such files.
    pub missing: Option<SampleId>,
    /// The further fields that were asked for.
    pub fields: Fields,
    /// All further fields that there are, where any or their names were asked for.
    pub names: Vec<NamedField>,
}

impl Found {
    /// A data set without further fields.
    pub(crate) fn new(
        format: Format,
        table: Table,
        n_ignored: u64,
        note: Option<&'static str>,
    ) -> Self {
        let (fields, names) = (Fields::default(), Vec::new());
        Self { table, format, n_ignored, note, missing: None, fields, names }
    }
}

/// Recognises and reads the data set at `target` (`""` is the storage's root; else a file
/// or folder in it). Blocks on the storage: class folders are listed, a CIFAR batch is read.
///
/// # Errors
/// As [`Format::detect`] and [`Format::parse`].
pub fn find(storage: &dyn Storage, target: &str) -> Result<Found, DatasetError> {
    Format::detect(storage, target)?.parse(storage, target)
}

/// As [`find`], with the fields that are asked for.
///
/// # Errors
/// As [`find`]; [`DatasetError::Field`] and [`DatasetError::Shard`] where a field cannot be had.
pub fn find_fields(
    storage: &dyn Storage,
    target: &str,
    ask: Ask,
) -> Result<Found, DatasetError> {
    Format::detect(storage, target)?.parse_fields(storage, target, ask)
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
            Kind::File { .. } if cifar::BINARY.is_batch(target) => Ok(Self::Cifar10),
            Kind::File { .. } if cifar::PYTHON.is_batch(target) => {
                Ok(Self::Cifar10Python)
            }
            Kind::File { .. } if shards::tar::is_archive(target) => Ok(Self::WebDataset),
            Kind::File { .. } if decompression::is_compressed(target) => {
                Err(DatasetError::CompressedShard { path: storage.shown(target) })
            }
            Kind::File { .. } if shards::tfrecord::is_shard(path::split(target).1) => {
                Ok(Self::TfRecord)
            }
            Kind::File { .. } if shards::datadings::is_shard(target) => {
                Ok(Self::Datadings)
            }
            Kind::File { .. } if shards::beton::is_shard(target) => Ok(Self::Beton),
            Kind::File { .. } if shards::hdf5::is_shard(target) => Ok(Self::Hdf5),
            Kind::File { .. } if columns::parquet::is_shard(path::split(target).1) => {
                Ok(Self::Parquet)
            }
            Kind::File { .. } if columns::arrow::is_shard(path::split(target).1) => {
                Ok(Self::Arrow)
            }
            Kind::File { .. } => Err(unrecognised()),
            Kind::Folder => {
                let entries = storage::list(storage, target)?;
                if target.is_empty() && storage.has_labels() {
                    return Ok(Self::Rows);
                }
                let format = match Self::of_folder(&entries) {
                    Some(Self::ClassFolders)
                        if shards::mds::is_merged(storage, target, &entries)? =>
                    {
                        Some(Self::Mds)
                    }
                    format => format,
                };
                match (format, compressed(&entries)) {
                    (Some(format), _) => Ok(format),
                    (None, Some(name)) => {
                        let path = storage.shown(&path::join(target, name));
                        Err(DatasetError::CompressedShard { path })
                    }
                    (None, None) if entries.is_empty() => {
                        Err(DatasetError::Empty { path: storage.shown(target) })
                    }
                    (None, None) => Err(unrecognised()),
                }
            }
        }
    }

    /// The format of a folder that holds these.
    fn of_folder(entries: &[Entry]) -> Option<Self> {
        // Files of these kinds may also hold what is known about the images next to them.
        let may_be_about_images =
            [Self::Datadings, Self::Beton, Self::Hdf5, Self::Parquet, Self::Arrow];
        let has_images = entries.iter().any(class_folders::is_class_or_image);
        if entries.iter().any(columns::arrow::is_splits) {
            return Some(Self::Arrow);
        }
        // The manifest of a packed data set comes first: its shards may have any names.
        let formats: [(Self, Recognises<'_>); 13] = [
            (Self::Store, &store::is_manifest),
            (Self::Cifar10, &|entry| cifar::BINARY.is_batch(&entry.name)),
            (Self::Cifar10Python, &|entry| cifar::PYTHON.is_batch(&entry.name)),
            (Self::Mds, &|it| shards::is_shard_in(it, shards::mds::is_shard)),
            (Self::WebDataset, &|it| shards::is_shard_in(it, shards::tar::is_archive)),
            (Self::TfRecord, &|it| shards::is_shard_in(it, shards::tfrecord::is_shard)),
            (Self::Datadings, &|it| shards::is_shard_in(it, shards::datadings::is_shard)),
            (Self::Beton, &|it| shards::is_shard_in(it, shards::beton::is_shard)),
            (Self::Hdf5, &|it| shards::is_shard_in(it, shards::hdf5::is_shard)),
            (Self::Parquet, &|it| shards::is_shard_in(it, columns::parquet::is_shard)),
            (Self::Arrow, &|it| shards::is_shard_in(it, columns::arrow::is_shard)),
            (Self::LitData, &|it| shards::is_shard_in(it, columns::litdata::is_shard)),
            (Self::ClassFolders, &class_folders::is_class_or_image),
        ];
        formats
            .into_iter()
            .filter(|(format, _)| !has_images || !may_be_about_images.contains(format))
            .find(|(_, is)| entries.iter().any(is))
            .map(|(format, _)| format)
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
        self.parse_fields(storage, target, Ask::Nothing)
    }

    /// As [`Self::parse`], with the fields that are asked for.
    ///
    /// # Errors
    /// As [`find_fields`].
    pub fn parse_fields(
        self,
        storage: &dyn Storage,
        target: &str,
        ask: Ask,
    ) -> Result<Found, DatasetError> {
        let fields = FieldsBuilder::new(ask)?;
        if !self.has_fields() {
            fields.none_of(self.name())?;
        }
        match self {
            Self::ClassFolders => class_folders::parse(storage, target),
            Self::Cifar10 => cifar::BINARY.parse(storage, target),
            Self::Cifar10Python => cifar::PYTHON.parse(storage, target),
            Self::Store => store::parse(storage, target),
            Self::WebDataset => shards::tar::parse(storage, target, fields),
            Self::Mds => shards::mds::parse(storage, target, fields),
            Self::TfRecord => shards::tfrecord::parse(storage, target, fields),
            Self::Datadings => shards::datadings::parse(storage, target),
            Self::Beton => shards::beton::parse(storage, target),
            Self::Hdf5 => shards::hdf5::parse(storage, target),
            Self::Parquet => columns::parquet::parse(storage, target, fields),
            Self::Arrow => columns::arrow::parse(storage, target, fields),
            Self::LitData => columns::litdata::parse(storage, target),
            Self::List => list::parse(storage, target),
            Self::Rows => rows::parse(storage),
        }
    }

    /// Whether further fields of samples are read.
    #[must_use]
    pub fn has_fields(self) -> bool {
        let formats =
            [Self::WebDataset, Self::Mds, Self::TfRecord, Self::Parquet, Self::Arrow];
        formats.contains(&self)
    }

    /// What the format is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ClassFolders => "class folders",
            Self::Cifar10 | Self::Cifar10Python => "CIFAR-10",
            Self::Store => "a store",
            Self::WebDataset => "WebDataset",
            Self::Mds => "MDS",
            Self::TfRecord => "TFRecord",
            Self::Datadings => "datadings",
            Self::Beton => "FFCV",
            Self::Hdf5 => "HDF5",
            Self::Parquet => "Parquet",
            Self::Arrow => "Arrow",
            Self::LitData => "LitData",
            Self::List => "a list",
            Self::Rows => "a table of rows",
        }
    }
}

/// A compressed shard in a folder: where nothing else can be read, it was meant.
fn compressed(entries: &[Entry]) -> Option<&str> {
    let is_compressed =
        |entry: &&Entry| shards::is_shard_in(entry, decompression::is_compressed);
    entries.iter().find(is_compressed).map(|entry| entry.name.as_str())
}
