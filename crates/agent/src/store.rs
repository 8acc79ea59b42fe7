//! Where bytes come from: the first seam of the agent.
//!
//! [`FileStore`] is the files under a data root. Paths come from the host's extent table, so
//! they are held inside the root here, whatever the table's own checks were. Nothing here
//! knows a format or a sample.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that could not be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {} beside the device", path.display())]
pub struct StoreError {
    /// The file, as this machine names it.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// A place that holds the files of a data set.
///
/// # Contract
///
/// `path` is relative to the store's root. `read` replaces the content of `dst` by exactly
/// `len` bytes or fails; it blocks, and workers call it side by side. A length is checked
/// against the file before memory is taken for it.
pub trait Store: Send + Sync + Debug {
    /// Reads `len` bytes from `offset` of the file `path` into `dst`.
    ///
    /// # Errors
    /// The file is missing, unreadable, or ends before `offset + len`.
    fn read(
        &self,
        path: &str,
        offset: u64,
        len: u32,
        dst: &mut Vec<u8>,
    ) -> Result<(), StoreError>;

    /// Checks that the file `path` is there and can be opened.
    ///
    /// # Errors
    /// It is not.
    fn probe(&self, path: &str) -> Result<(), StoreError>;
}

/// The files under a data root, read with `pread`.
#[derive(Debug)]
pub struct FileStore {
    root: PathBuf,
    /// The file opened last: containers are read record by record.
    last: Mutex<Option<OpenFile>>,
}

#[derive(Debug, Clone)]
struct OpenFile {
    path: PathBuf,
    file: Arc<File>,
    len: u64,
}

impl FileStore {
    /// The files under `root`, which must be a folder.
    ///
    /// # Errors
    /// `root` does not exist or is no folder.
    pub fn new(root: &Path) -> Result<Self, StoreError> {
        let wrong = |source| StoreError { path: root.to_owned(), source };
        let root = root.canonicalize().map_err(wrong)?;
        // Listing proves that it is a folder and that we may look into it.
        std::fs::read_dir(&root).map_err(wrong)?;
        Ok(Self { root, last: Mutex::new(None) })
    }

    fn open(&self, path: &str) -> Result<OpenFile, StoreError> {
        let full = self.root.join(path);
        let wrong = |source| StoreError { path: full.clone(), source };
        if !Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
        {
            let why = "the path leaves the data root";
            return Err(wrong(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = last.as_ref().filter(|open| open.path == full) {
            return Ok(open.clone());
        }
        drop(last.take());
        drop(last);
        let file = File::open(&full).map_err(wrong)?;
        let about = file.metadata().map_err(wrong)?;
        if !about.is_file() {
            let why = "it is no regular file";
            return Err(wrong(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        let open =
            OpenFile { path: full.clone(), file: Arc::new(file), len: about.len() };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(open.clone());
        Ok(open)
    }
}

impl Store for FileStore {
    fn read(
        &self,
        path: &str,
        offset: u64,
        len: u32,
        dst: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let open = self.open(path)?;
        let wrong = |source| StoreError { path: open.path.clone(), source };
        let end = offset.checked_add(u64::from(len));
        if end.is_none_or(|end| end > open.len) {
            let why = format!(
                "it has {} bytes, but the data set says that {len} bytes lie at {offset}; \
                 is it the same copy of the data?",
                open.len
            );
            return Err(wrong(io::Error::new(io::ErrorKind::UnexpectedEof, why)));
        }
        dst.resize(len as usize, 0);
        open.file.read_exact_at(dst, offset).map_err(wrong)
    }

    fn probe(&self, path: &str) -> Result<(), StoreError> {
        self.open(path).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store_with(name: &str, bytes: &[u8]) -> (tempfile::TempDir, FileStore) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(name), bytes).unwrap();
        let store = FileStore::new(dir.path()).unwrap();
        (dir, store)
    }

    #[test]
    fn reads_exactly_the_bytes_asked_for() {
        let (_dir, store) = store_with("a", b"0123456789");
        let mut dst = vec![9; 100];
        store.read("a", 3, 4, &mut dst).unwrap();
        assert_eq!(dst, b"3456");
        store.read("a", 10, 0, &mut dst).unwrap();
        assert!(dst.is_empty());
    }

    #[test]
    fn a_file_that_is_too_short_is_named_before_memory_is_taken() {
        let (_dir, store) = store_with("a", b"0123");
        let mut dst = Vec::new();
        for (offset, len) in [(0, u32::MAX), (u64::MAX, 1), (4, 1)] {
            let error = store.read("a", offset, len, &mut dst).unwrap_err();
            assert!(error.to_string().contains("/a beside"), "{error}");
            assert!(
                error.source.to_string().contains("it has 4 bytes"),
                "{}",
                error.source
            );
        }
        assert_eq!(dst.capacity(), 0);
    }

    #[test]
    fn no_path_leaves_the_root() {
        let (dir, store) = store_with("a", b"x");
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let inner_store = FileStore::new(&inner).unwrap();
        for path in ["../a", "/etc/passwd", "x/../../a", ""] {
            assert!(inner_store.probe(path).is_err(), "{path}");
        }
        assert!(store.probe("inner").is_err(), "a folder is no file");
        store.probe("a").unwrap();
    }

    #[test]
    fn a_missing_root_is_named() {
        let error = FileStore::new(Path::new("/nowhere/at/all")).unwrap_err().to_string();
        assert_eq!(error, "cannot read /nowhere/at/all beside the device");
    }
}
