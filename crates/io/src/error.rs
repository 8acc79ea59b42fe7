//! What can go wrong with the host's storage: each case names the path and the remedy.
//!
//! Read `buffer.rs` next.

use std::io;
use std::path::{Path, PathBuf};

/// What can go wrong with the host's storage.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// There is no such file.
    #[error("no file at `{}`; is the data folder right and the data set complete?", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// The file is there, but not for this user.
    #[error("may not read `{}`; give this user permission to read it", path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
    },
    /// A folder, a pipe or a device stands where a file should be.
    #[error("`{}` is not a regular file; a data set's files must be", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file ends inside the record.
    #[error(
        "`{}` ends inside the {len} bytes from byte {offset}; \
         it changed since it was listed: restore it or start again",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The record's first byte.
        offset: u64,
        /// The record's length in bytes.
        len: u64,
    },
    /// The storage failed.
    #[error("cannot {doing} `{}`; check the storage it is on", path.display())]
    Failed {
        /// The step.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The record is longer than the reader's bound.
    #[error(
        "a record of {len} bytes in `{}` is longer than `max_record_bytes` ({max}); raise it",
        path.display()
    )]
    RecordTooLong {
        /// The file.
        path: PathBuf,
        /// The record's length in bytes.
        len: u64,
        /// The bound.
        max: u64,
    },
    /// A name that is not UTF-8 cannot stand in a manifest.
    #[error("the name `{}` is not UTF-8; rename it", path.display())]
    Name {
        /// The path, as far as it can be shown.
        path: PathBuf,
    },
    /// io_uring was asked for and is not available.
    #[error("cannot use io_uring (failed to {doing}); choose the `pread` reader")]
    Ring {
        /// The step.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A setting out of range.
    #[error("`{key}` is {got}; it must be from 1 to {max}")]
    Setting {
        /// Its name in `ReaderConfig`.
        key: &'static str,
        /// What it was.
        got: u64,
        /// The most it may be.
        max: u64,
    },
}

impl IoError {
    /// What the system said at `path`, by what the user does next.
    pub(crate) fn at(path: &Path, doing: &'static str, source: io::Error) -> Self {
        let path = path.to_owned();
        let kind = source.kind();
        if matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            Self::Missing { path }
        } else if kind == io::ErrorKind::PermissionDenied {
            Self::Unreadable { path }
        } else if kind == io::ErrorKind::IsADirectory {
            Self::NotAFile { path }
        } else {
            Self::Failed { doing, path, source }
        }
    }
}
