//! What can go wrong with packing and unpacking: each case names the place and the remedy.

use std::io;
use std::path::{Path, PathBuf};

use bothends_dataset::DatasetError;
use bothends_dataset::store::Refusal;
use bothends_decompress::DecompressError;
use bothends_storage::StorageError;

/// What can go wrong with packing and unpacking.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// The path is not a data set, or is a store that cannot be read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// Shards that could not be decompressed.
    #[error(transparent)]
    Decompress(DecompressError),
    /// A remote store.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A file or folder.
    #[error("cannot {doing} `{}`", path.display())]
    Failed {
        /// The step that failed.
        doing: &'static str,
        /// The place.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The number of bytes has changed since the data set was listed.
    #[error(
        "`{}` changed while it was packed; leave the data alone until packing ends", path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A record that does not fit a shard.
    #[error("`{path}`: {refusal}")]
    Refused {
        /// The original file.
        path: String,
        /// The reason.
        refusal: Refusal,
    },
    /// The destination folder is not empty.
    #[error(
        "`{}` is not empty (it contains `{name}`); name a new folder", folder.display()
    )]
    NotEmpty {
        /// The folder.
        folder: PathBuf,
        /// One of the files in it.
        name: String,
    },
    /// The store would be among the data from which it is made.
    #[error(
        "`{}` lies inside `{}`, and the next attempt would treat it as data; name a folder \
        outside", folder.display(), data.display()
    )]
    Inside {
        /// The destination folder.
        folder: PathBuf,
        /// The data set.
        data: PathBuf,
    },
    /// The destination folder is a store.
    #[error(
        "`{}` is already a store; name a new folder, or add to it with `--append`",
        folder.display()
    )]
    AlreadyStore {
        /// The folder.
        folder: PathBuf,
    },
    /// A link that leads back to a folder in which it lies.
    #[error(
        "`{}` leads back to a folder that it lies in, so packing would never end; remove the link, \
        or move it out of the data", path.display()
    )]
    Circle {
        /// The link.
        path: PathBuf,
    },
    /// Another process writes to the folder.
    #[error(
        "another `bothends` is filling `{}`; wait until it ends, or name another folder",
        folder.display()
    )]
    Busy {
        /// The folder.
        folder: PathBuf,
    },
    /// A file that has changed since an earlier attempt packed it.
    #[error(
        "`{path}` changed after an earlier attempt packed it in `{}`; remove that shard and pack \
         again, which makes it and all after it again", shard.display()
    )]
    ChangedSince {
        /// The original file.
        path: String,
        /// The shard.
        shard: PathBuf,
    },
    /// A record of a finished shard that has changed since an earlier attempt wrote it.
    #[error(
        "`{}` record {record} is damaged since an earlier attempt wrote it; remove that shard and \
         pack again, which makes it and all after it again", shard.display()
    )]
    DamagedSince {
        /// The shard.
        shard: PathBuf,
        /// Number in the shard, from 0.
        record: usize,
    },
    /// A shard left by an attempt to pack something else.
    #[error(
        "`{}` does not hold the next records of {source_name}; remove it if it is not needed, or \
        name another folder", path.display()
    )]
    OtherShard {
        /// The shard.
        path: PathBuf,
        /// What was to be packed.
        source_name: String,
    },
    /// Something that must be a store is not one.
    #[error("`{}` is not a store: it has no store.json", folder.display())]
    NotAStore {
        /// The folder.
        folder: PathBuf,
    },
    /// A store where it would be taken for files.
    #[error(
        "`{}` is a store, and stores are packed and converted only from a folder on this machine; \
        copy it to one first, and give the folder's path", path.display()
    )]
    StoreAsFiles {
        /// The store.
        path: PathBuf,
    },
    /// The new file would be in a remote storage.
    #[error(
        "`{url}` is a URL, and files are written on this machine; name a file, and copy it from there"
    )]
    RemoteFile {
        /// The new file, without secrets.
        url: String,
    },
    /// Sources whose samples mean different things.
    #[error(
        "{one} and {other} differ in their {what}, so their samples cannot be one data set; \
         keep them as two stores"
    )]
    Differ {
        /// A data set.
        one: String,
        /// Another one.
        other: String,
        /// What differs.
        what: &'static str,
    },
    /// Two sources with a file of the same name.
    #[error(
        "both {one} and {other} have a file `{path}`, which unpacking could not keep apart; \
         pack them as two stores"
    )]
    SameFile {
        /// A data set.
        one: String,
        /// Another one.
        other: String,
        /// The original file.
        path: String,
    },
    /// An original file that would be almost nothing but zeros.
    #[error(
        "`{}` would be {len} bytes long, and the store holds {held} of them: an index is damaged; \
         `bothends inspect --verify` finds which", path.display()
    )]
    MostlyMissing {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        len: u64,
        /// How many bytes of it the store has.
        held: u64,
    },
    /// Two samples that differ have the same place in a file.
    #[error(
        "two records of the store are different bytes of `{}` at the same place, so one of them \
         is lost in it; the store was not made by `bothends pack` of one data set", path.display()
    )]
    Overwritten {
        /// The file.
        path: PathBuf,
    },
    /// A record of a store that has changed since it was written.
    #[error(
        "`{shard}` record {record} (`{path}`): {why}; `bothends inspect --verify` finds all"
    )]
    Damaged {
        /// The shard.
        shard: String,
        /// Number in the shard, from 0.
        record: usize,
        /// The original file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// A file that would be written is there.
    #[error("`{}` exists already; name a new file", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The name of a new file does not say what it is to be.
    #[error(
        "cannot tell the format of `{}`; name it NAME.msgpack for datadings", path.display()
    )]
    NoSuchFormat {
        /// The new file.
        path: PathBuf,
    },
    /// Samples that other tools could not open.
    #[error(
        "the samples of {source_name} are pixels rather than image files, which other tools could \
        not decode; `bothends pack` keeps them as they are"
    )]
    NotImages {
        /// The data set.
        source_name: String,
    },
    /// Samples that the sources do not have.
    #[error(
        "{source_name} has {n_samples} samples, and {start}..{end} names none or more of them; \
         give A..B with A below B, and B at most {n_samples}"
    )]
    NoSuchSamples {
        /// Where they were looked for.
        source_name: String,
        /// The first requested.
        start: u64,
        /// The one after the last requested.
        end: u64,
        /// How many there are.
        n_samples: u64,
    },
}

impl From<DecompressError> for PackError {
    fn from(error: DecompressError) -> Self {
        if let DecompressError::Dataset(error) = error {
            return Self::Dataset(error);
        }
        Self::Decompress(error)
    }
}

impl PackError {
    /// For `map_err`.
    pub(crate) fn at(
        doing: &'static str,
        path: &Path,
    ) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Failed { doing, path, source }
    }
}
