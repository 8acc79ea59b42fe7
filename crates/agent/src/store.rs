//! Where bytes come from: the first interface of the agent.
//!
//! [`FileStore`] is the files under a data root. Paths come from the host's extent table, so they are
//! confined to the root here, whatever the table itself checked. Nothing here knows a format or a sample.

use std::fmt::Debug;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bothends_csd::{open_regular, will_need};
use bothends_side_index::{Beside, Cache, Place, SideIndex};

/// Bytes that could not be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {} beside the device", path.display())]
pub struct StoreError {
    /// The file, as this machine names it.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// How long a file is, in bytes, and when it was last changed, in nanoseconds since 1970: what
/// the side index tells a changed file by.
pub type Age = (u64, i128);

/// A place that holds the files of a data set, and what is known of its images.
///
/// # Contract
///
/// `path` is relative to the store's root. `read` replaces the content of `dst` by exactly
/// `len` bytes of the file that has this name now, or fails; it blocks, and workers call it side
/// by side. A length is checked against the file before memory is taken for it.
pub trait Store: Send + Sync + Debug {
    /// Reads `len` bytes from `offset` of the file `path` into `dst`; how old they are.
    ///
    /// # Errors
    /// The file is missing, unreadable, or ends before `offset + len`.
    fn read(
        &self,
        path: &str,
        offset: u64,
        len: u32,
        dst: &mut Vec<u8>,
    ) -> Result<Age, StoreError>;

    /// Has `len` bytes from `offset` of the file `path` brought nearer, if that can be done without
    /// waiting for them: they will be read soon. May wait for the file to open. What goes wrong
    /// is for `read` to say.
    fn read_ahead(&self, _path: &str, _offset: u64, _len: u32) {}

    /// Checks that the file `path` is there and can be opened.
    ///
    /// # Errors
    /// It is not.
    fn probe(&self, path: &str) -> Result<(), StoreError>;

    /// What earlier epochs left to know of the images here; `None` where nothing is kept. An
    /// emulated device keeps nothing: what its models say must not depend on who ran before.
    fn side_index(&self) -> Option<&SideIndex> {
        None
    }
}

/// Of a longer record no more is read ahead: the page cache is there for others, too.
const MOST_AHEAD_BYTES: u64 = 8 << 20;

/// The files under a data root, read with `pread`.
#[derive(Debug)]
pub struct FileStore {
    root: PathBuf,
    side_index: Option<SideIndex>,
    /// The file opened last: containers are read record by record.
    last: Mutex<Option<OpenFile>>,
}

#[derive(Debug, Clone)]
struct OpenFile {
    path: PathBuf,
    file: Arc<File>,
    about: About,
}

/// What tells a file from another one of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct About {
    place: (u64, u64),
    age: Age,
}

impl About {
    fn of(metadata: &Metadata) -> Self {
        let modified_ns = i128::from(metadata.mtime()) * 1_000_000_000
            + i128::from(metadata.mtime_nsec());
        let place = (metadata.dev(), metadata.ino());
        Self { place, age: (metadata.len(), modified_ns) }
    }
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
        Ok(Self { root, side_index: None, last: Mutex::new(None) })
    }

    /// The same files, with what is known of their images kept in `cache`: read now, added to
    /// when an epoch ends and when the store is dropped. Segments next to the data are not
    /// looked at: a device serves others, and whoever may write there could say what they see.
    #[must_use]
    pub fn with_cache(mut self, cache: Cache) -> Self {
        let (data, beside) = (self.root.as_path(), Beside::Ignored);
        let place = Place { data, is_folder: true, beside, cache: Some(cache) };
        self.side_index = Some(SideIndex::open(place));
        self
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
            // Another file may have been given its name.
            let now = std::fs::metadata(&full).map_err(wrong)?;
            if open.about == About::of(&now) {
                return Ok(open.clone());
            }
        }
        drop(last.take());
        drop(last);
        // A pipe would wait for its writer, and with it every host.
        let file = open_regular(&full).map_err(wrong)?;
        let about = About::of(&file.metadata().map_err(wrong)?);
        let open = OpenFile { path: full.clone(), file: Arc::new(file), about };
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
    ) -> Result<Age, StoreError> {
        let open = self.open(path)?;
        let wrong = |source| StoreError { path: open.path.clone(), source };
        let end = offset.checked_add(u64::from(len));
        let age @ (file_bytes, _) = open.about.age;
        if end.is_none_or(|end| end > file_bytes) {
            let why = format!(
                "it has {file_bytes} bytes, but the data set says that {len} bytes lie at \
                 {offset}; is it the same copy of the data?",
            );
            return Err(wrong(io::Error::new(io::ErrorKind::UnexpectedEof, why)));
        }
        dst.resize(len as usize, 0);
        open.file.read_exact_at(dst, offset).map_err(wrong)?;
        Ok(age)
    }

    /// Into the page cache, which the kernel does on its own.
    fn read_ahead(&self, path: &str, offset: u64, len: u32) {
        if let Ok(open) = self.open(path) {
            will_need(&open.file, offset, u64::from(len).min(MOST_AHEAD_BYTES));
        }
    }

    fn probe(&self, path: &str) -> Result<(), StoreError> {
        self.open(path).map(drop)
    }

    fn side_index(&self) -> Option<&SideIndex> {
        self.side_index.as_ref()
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
    fn a_file_that_takes_the_place_of_another_is_the_one_that_is_read() {
        let (dir, store) = store_with("a", b"old");
        let mut dst = Vec::new();
        let age = store.read("a", 0, 3, &mut dst).unwrap();
        assert_eq!(store.read("a", 0, 3, &mut dst).unwrap(), age);
        std::fs::write(dir.path().join("b"), b"new").unwrap();
        std::fs::rename(dir.path().join("b"), dir.path().join("a")).unwrap();
        store.read("a", 0, 3, &mut dst).unwrap();
        assert_eq!(dst, b"new");
        std::fs::remove_file(dir.path().join("a")).unwrap();
        store.read("a", 0, 3, &mut dst).unwrap_err();
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
    fn a_pipe_is_refused_and_nobody_waits_for_its_writer() {
        let (dir, store) = store_with("a", b"x");
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        std::os::unix::fs::symlink("/dev/zero", dir.path().join("zeros")).unwrap();
        for name in ["pipe", "zeros"] {
            let error = store.read(name, 0, 1, &mut Vec::new()).unwrap_err();
            assert_eq!(error.source.to_string(), "it is no regular file");
            assert!(store.probe(name).is_err());
        }
    }

    #[test]
    fn a_missing_root_is_named() {
        let error = FileStore::new(Path::new("/nowhere/at/all")).unwrap_err().to_string();
        assert_eq!(error, "cannot read /nowhere/at/all beside the device");
    }
}
