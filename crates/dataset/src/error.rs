//! What can be wrong with a data set or a manifest: each case names the place and the remedy.
//!
//! Read `storage.rs` next.

use bothends_core::setting::{Names, NamesSettings, Setting, advice};

use crate::store::Refusal;

/// What can be wrong with a data set or a manifest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// The storage could not be listed or read.
    #[error("cannot {doing} `{path}`; check that it exists and may be read")]
    Storage {
        /// The step that failed.
        doing: &'static str,
        /// The place, as the storage shows it.
        path: String,
        /// What the storage said.
        source: std::io::Error,
    },
    /// The folder has nothing in it.
    #[error(
        "`{path}` is empty; give a folder of class folders with images, shards of WebDataset, \
         MDS, TFRecord, Parquet, Arrow, LitData, datadings, HDF5 or FFCV, a CIFAR-10 folder, or a \
         .jsonl list"
    )]
    Empty {
        /// The folder.
        path: String,
    },
    /// No format fits.
    #[error(
        "cannot tell what data `{path}` holds; give a folder of class folders with images, \
         shards (.tar, .mds, .tfrecord, .parquet, .arrow, chunk-*.bin, .msgpack, .h5, .beton), \
         CIFAR-10's .bin batches, or a .jsonl list"
    )]
    Unrecognised {
        /// The file or folder.
        path: String,
    },
    /// Class folders without one image.
    #[error(
        "no image in `{path}` ({n_ignored} other files); images end in .jpg, .jpeg, .png, .bmp, \
         .ppm, .pgm, .tif, .tiff or .webp"
    )]
    NoImages {
        /// The folder.
        path: String,
        /// Files that are something else.
        n_ignored: u64,
    },
    /// One class folder has no image: labels would not mean what the user thinks.
    #[error("no image in the class folder `{path}`; remove the folder or fill it")]
    EmptyClass {
        /// The class folder.
        path: String,
    },
    /// Data sets that cannot be one.
    #[error("data set `{name}` {why}")]
    Join {
        /// The one that does not go with the others.
        name: String,
        /// Why, and what to do.
        why: &'static str,
    },
    /// Data sets whose labels cannot be merged by the classes' names.
    #[error("{}", self.with_names(Setting::key))]
    Labels {
        /// The one that does not go with the others.
        name: String,
        /// Why.
        why: &'static str,
    },
    /// The class folders lie one level deeper (`train/`, `val/`).
    #[error(
        "`{path}` holds folders but no image, so it is not a class; \
         is it the data set you mean?"
    )]
    Nested {
        /// The first folder that looks like a whole data set.
        path: String,
    },
    /// Folders below each other without end, or a link that leads back.
    #[error(
        "folders in `{path}` are more than {max} levels deep; is there a link that leads back? \
        Move them up if not"
    )]
    TooDeep {
        /// Where the search stopped.
        path: String,
        /// Levels that are searched.
        max: u32,
    },
    /// A line of a list cannot be used.
    #[error("`{path}` line {line}: {why}")]
    Line {
        /// The list.
        path: String,
        /// Counted from 1.
        line: u64,
        /// What is wrong and what is expected.
        why: String,
    },
    /// A list is longer than is read into memory.
    #[error(
        "the list `{path}` has {len_bytes} bytes; at most {max} are read, so split it"
    )]
    ListTooLong {
        /// The list.
        path: String,
        /// Its length.
        len_bytes: u64,
        /// The bound.
        max: u64,
    },
    /// A CIFAR-10 batch that does not consist of whole records.
    #[error(
        "`{path}` has {len_bytes} bytes, which is not a number of 3073-byte records; \
         the file is cut short or is not CIFAR-10's binary version"
    )]
    CifarLength {
        /// The batch file.
        path: String,
        /// Its length.
        len_bytes: u64,
    },
    /// A pickle that is not one of CIFAR-10's.
    #[error(
        "`{path}` byte {offset}: it {why}; it is damaged, or not CIFAR-10's Python version"
    )]
    Pickle {
        /// The batch file.
        path: String,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        why: &'static str,
    },
    /// A shard that cannot be read.
    #[error("`{path}` byte {offset}: {why}")]
    Shard {
        /// The shard, or the index of shards.
        path: String,
        /// Where in it.
        offset: u64,
        /// What is wrong there, and what to do.
        why: String,
    },
    /// A field that cannot be had.
    #[error("the field `{name}` {why}")]
    Field {
        /// Its name.
        name: String,
        /// Why, and what to do.
        why: String,
    },
    /// A shard in which images are compressed, so that none can be read alone: [`Decompression`] helps.
    ///
    /// [`Decompression`]: crate::Decompression
    #[error("`{path}` byte {offset}: {why}")]
    Compressed {
        /// The shard, or the index of shards.
        path: String,
        /// Where in it.
        offset: u64,
        /// What is compressed, and what to do.
        why: String,
    },
    /// Shards that are compressed as a whole: no sample in them can be read alone.
    #[error(
        "`{path}` is compressed as a whole, so that no sample in it can be read alone; \
         decompress the shards"
    )]
    CompressedShard {
        /// One of them.
        path: String,
    },
    /// A label beyond the classes.
    #[error(
        "`{path}` record {record} has label {label}, but there are {n_classes} classes"
    )]
    LabelOutOfRange {
        /// The file, or `the table`.
        path: String,
        /// Counted from 0.
        record: u64,
        /// The label found.
        label: u64,
        /// Labels are below this.
        n_classes: u64,
    },
    /// A record longer than an extent can say.
    #[error("`{path}` has {len_bytes} bytes; a record may have at most 4294967295")]
    RecordTooLong {
        /// The file.
        path: String,
        /// Its length.
        len_bytes: u64,
    },
    /// A file of a store that cannot be used.
    #[error("`{path}`: {refusal}")]
    Store {
        /// The file.
        path: String,
        /// What is wrong with it, and what to do.
        refusal: Refusal,
    },
    /// A path that a table does not take.
    #[error("the path `{path}` {why}; paths are relative to the data folder")]
    Path {
        /// The path.
        path: String,
        /// The rule it breaks.
        why: &'static str,
    },
    /// The table's own bounds.
    #[error("the data set has more {what} than a table holds ({max}); split it")]
    TooMany {
        /// `files`, `classes`, `bytes of names`.
        what: &'static str,
        /// The bound.
        max: u64,
    },
    /// Opaque records of several lengths have no common shape.
    #[error(
        "records of {first} and {other} bytes (`{path}`) cannot make one batch; \
         use a recipe that decodes, or records of one length"
    )]
    UnequalLengths {
        /// Length of the first record.
        first: u32,
        /// Another record's length.
        other: u32,
        /// That record's file.
        path: String,
    },
    /// A manifest of another version.
    #[error(
        "the manifest has version {theirs}, this build reads {ours}; \
         use the same release on both sides"
    )]
    Version {
        /// This build's.
        ours: u32,
        /// The manifest's.
        theirs: u32,
    },
    /// Bytes that are not a manifest.
    #[error("not a manifest: {what} (byte {at}); send it again from a matching release")]
    Malformed {
        /// The field or rule that failed.
        what: &'static str,
        /// Where in the bytes; for a rule about the whole, their number.
        at: usize,
    },
}

impl NamesSettings for DatasetError {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others name no setting")]
    fn with_names(&self, name: Names) -> String {
        match self {
            Self::Labels { name: of, why } => {
                let remedy =
                    advice(name, &[(Setting::MixLabels, "use keep or offset for {}")])
                        .unwrap_or_else(|| "keep or offset the labels".to_owned());
                format!("data set `{of}` {why}; {remedy}")
            }
            other => other.to_string(),
        }
    }
}

impl DatasetError {
    /// Whether it says that shards are compressed: they can be read once they have been decompressed.
    #[must_use]
    pub fn is_compressed(&self) -> bool {
        matches!(self, Self::CompressedShard { .. } | Self::Compressed { .. })
    }

    /// A number that four bytes are kept for.
    pub(crate) fn count(number: usize, what: &'static str) -> Result<u32, Self> {
        let max = u64::from(u32::MAX);
        u32::try_from(number).map_err(|_| Self::TooMany { what, max })
    }
}
