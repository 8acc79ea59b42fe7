//! The interface to the caller's files: names, lengths, bytes.
//!
//! The caller (the runtime, a test) implements [`Storage`] over a directory, memory or a remote store;
//! formats query it and nothing else. Read a format next, such as `class_folders.rs`.

use std::fmt::Debug;
use std::io;
use std::num::NonZero;
use std::path::PathBuf;

use crate::DatasetError;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Something that can be listed.
    Folder,
    /// Bytes.
    File {
        /// How many.
        len: u64,
    },
}

/// One name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name itself, without its folder.
    pub name: String,
    /// What it stands for.
    pub kind: Kind,
}

/// A file as it is now: any change of it changes this.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The file's name, without its folder.
    pub name: String,
    /// How many bytes it has.
    pub len: u64,
    /// When it was last changed, in nanoseconds since 1970, as far as that is known.
    pub changed_ns: Option<i128>,
    /// Whatever else tells it from what it was: an entity tag (`ETag`), or the number of its inode.
    pub tag: String,
}

/// Files as a format sees them.
///
/// # Contract
///
/// Paths are relative to the storage's root, parts joined by `/`; `""` is the root. Links
/// are followed. Calls may block, and may come from several threads at the same time; between two calls nothing changes.
pub trait Storage: Debug + Sync {
    /// What lies at `path`.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] and the storage's own.
    fn kind(&self, path: &str) -> io::Result<Kind>;

    /// What the folder at `path` holds, in any order, without its folders' contents.
    ///
    /// # Errors
    /// The storage's own.
    fn list(&self, path: &str) -> io::Result<Vec<Entry>>;

    /// Fills `dst` with the file's bytes from `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] when the file ends before `dst` is full, and the
    /// storage's own.
    fn read(&self, path: &str, offset: u64, dst: &mut [u8]) -> io::Result<()>;

    /// The versions of the file at `path`, or of all files in the folder there without those in its folders, in
    /// any order; `None` where nothing tells whether a file has changed. Nothing is kept from run to run then.
    ///
    /// # Errors
    /// The storage's own.
    fn versions(&self, path: &str) -> io::Result<Option<Vec<Version>>> {
        let _ = path;
        Ok(None)
    }

    /// Whether what was listed last are samples with labels of their own, as the rows of a database's table
    /// are; then [`Storage::label`] tells them.
    fn has_labels(&self) -> bool {
        false
    }

    /// The label of the sample that the file at `path` is, if it has one.
    fn label(&self, path: &str) -> Option<u32> {
        let _ = path;
        None
    }

    /// Where the file at `path` is in a file system of this machine, if it is in one.
    fn local(&self, path: &str) -> Option<PathBuf> {
        let _ = path;
        None
    }

    /// How many files to read at the same time when many are opened: as many as there are cores, at most 8, unless the
    /// storage takes long to answer.
    fn n_at_once(&self) -> usize {
        n_at_once_here()
    }

    /// The path as the user would write it; for messages.
    fn shown(&self, path: &str) -> String;
}

/// How many files of this machine to read at the same time.
#[must_use]
pub fn n_at_once_here() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get).min(8)
}

/// `Storage::kind` with an error that names the place.
pub(crate) fn kind(storage: &dyn Storage, path: &str) -> Result<Kind, DatasetError> {
    storage.kind(path).map_err(|source| failed(storage, "open", path, source))
}

/// `Storage::list`, sorted by name as Python sorts (by code point), with an error that
/// names the place.
pub(crate) fn list(
    storage: &dyn Storage,
    path: &str,
) -> Result<Vec<Entry>, DatasetError> {
    let mut entries =
        storage.list(path).map_err(|source| failed(storage, "list", path, source))?;
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// `Storage::read` with an error that names the place.
pub(crate) fn read(
    storage: &dyn Storage,
    path: &str,
    offset: u64,
    dst: &mut [u8],
) -> Result<(), DatasetError> {
    storage
        .read(path, offset, dst)
        .map_err(|source| failed(storage, "read", path, source))
}

fn failed(
    storage: &dyn Storage,
    doing: &'static str,
    path: &str,
    source: io::Error,
) -> DatasetError {
    DatasetError::Storage { doing, path: storage.shown(path), source }
}
