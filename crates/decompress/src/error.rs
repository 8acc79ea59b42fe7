//! Why a data set could not be decompressed.

use std::io;
use std::path::{Path, PathBuf};

use bothends_dataset::DatasetError;

/// Why a data set could not be decompressed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecompressError {
    /// What is wrong with the data.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// Shards that are compressed, and no cache directory.
    #[error(
        "{source}; or set XDG_CACHE_HOME, or name a cache directory (`cache`) and do not turn the cache off \
         (`cache_size`): the shards are then decompressed there"
    )]
    NoPlace {
        /// What is compressed.
        source: DatasetError,
    },
    /// Nothing tells whether the shards have changed since they were decompressed.
    #[error(
        "{data} is compressed, and nothing tells whether its files have changed (they have no entity tags), so what \
         comes of them cannot be kept; copy the files to this machine, or decompress them"
    )]
    Unversioned {
        /// The data as the user names them.
        data: String,
    },
    /// A shard that is not what it should be.
    #[error("`{path}` cannot be decompressed: {why}; fetch the file again")]
    Damaged {
        /// The shard.
        path: String,
        /// What was found.
        why: String,
    },
    /// A shard whose compression is not supported.
    #[error(
        "`{path}` is compressed with {codec}, which is not supported; write it again with another compression, such \
         as zstd, or without"
    )]
    Unsupported {
        /// The shard.
        path: String,
        /// The compression.
        codec: String,
    },
    /// A shard that is not what it was.
    #[error(
        "`{path}` changed while it was being decompressed; start again once it is complete"
    )]
    Changed {
        /// The shard.
        path: String,
    },
    /// It does not fit.
    #[error(
        "no room to decompress the shards: {} has {} MiB left, and {} MiB are needed at least; remove data sets \
         from it that are not in use, name a cache directory with more room (`cache`, or XDG_CACHE_HOME), or \
         decompress the shards yourself",
        folder.display(), free_bytes >> 20, needed_bytes.div_ceil(1 << 20)
    )]
    NoRoom {
        /// Where it was to be.
        folder: PathBuf,
        /// What is left there.
        free_bytes: u64,
        /// What is needed at least, as far as is known.
        needed_bytes: u64,
    },
    /// Whoever was told wanted no more.
    #[error(
        "decompressing the shards was cancelled; what is complete is kept for the next time"
    )]
    Cancelled,
    /// Another process that does not go on.
    #[error(
        "another process is decompressing these data into {}, and has written nothing for {seconds} s; \
         end it, or remove the folder, and start again",
        folder.display()
    )]
    Stalled {
        /// Where to.
        folder: PathBuf,
        /// For how long.
        seconds: u64,
    },
    /// A file system on which processes cannot keep out of each other's way.
    #[error(
        "{} is on a file system without locks, so that several processes could decompress the shards at once; name \
         a cache directory on a local disk (`cache`, or XDG_CACHE_HOME)",
        folder.display()
    )]
    NoLocks {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A folder that somebody else may write to.
    #[error(
        "{} belongs to another user, is a symbolic link, or others can write to it; remove it, or name a cache \
         directory of your own (`cache`, or XDG_CACHE_HOME)",
        folder.display()
    )]
    NotOwn {
        /// The folder.
        folder: PathBuf,
    },
    /// What the system said.
    #[error("cannot {doing} {}: {source}", path.display())]
    Failed {
        /// What was to be done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl DecompressError {
    /// For `map_err`.
    pub(crate) fn at(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Failed { doing, path: path.to_owned(), source }
    }
}
