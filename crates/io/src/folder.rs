//! A folder of this machine as `dataset` sees files: names, lengths, bytes.
//!
//! It is for opening a data set and reading the indices of a store; a `Reader` reads samples.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use bothends_dataset::{Entry, Kind, Storage, Version, n_at_once_here};

use crate::files::regular::{keeps_its_number, open_regular};
use crate::files::space::{Medium, medium};
use crate::list::list;

/// Files on another machine that are read at the same time when many are opened: each read waits for its answer.
const AT_ONCE_AFAR: usize = 32;

/// The files below a folder.
#[derive(Debug)]
pub struct Folder(pub PathBuf);

impl Folder {
    /// The folder at `path`, all of which is meant (`""`); or the one around the file there, and
    /// the file's name in it.
    ///
    /// # Errors
    /// There is nothing, or it has a name that is no text.
    pub fn around(path: &Path) -> io::Result<(Self, String)> {
        if fs::metadata(path)?.is_dir() {
            return Ok((Self(path.to_owned()), String::new()));
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let no_text =
            || io::Error::new(io::ErrorKind::InvalidInput, "its name is not text");
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        Ok((Self(folder.to_owned()), name.ok_or_else(no_text)?.to_owned()))
    }
}

impl Storage for Folder {
    fn kind(&self, path: &str) -> io::Result<Kind> {
        let found = fs::metadata(self.0.join(path))?;
        Ok(if found.is_dir() { Kind::Folder } else { Kind::File { len: found.len() } })
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        list(&self.0.join(path)).map_err(io::Error::other)
    }

    fn read(&self, path: &str, offset: u64, dst: &mut [u8]) -> io::Result<()> {
        open_regular(&self.0.join(path))?.read_exact_at(dst, offset)
    }

    fn versions(&self, path: &str) -> io::Result<Option<Vec<Version>>> {
        let path = self.0.join(path);
        let found = fs::metadata(&path)?;
        let folder = if found.is_dir() { &path } else { &self.0 };
        let keeps_numbers = fs::File::open(folder).is_ok_and(|it| keeps_its_number(&it));
        let number = |found: &fs::Metadata| if keeps_numbers { found.ino() } else { 0 };
        if !found.is_dir() {
            let version = |name| version(name, &found, number(&found));
            return Ok(path.file_name().map(|name| vec![version(name)]));
        }
        let mut versions = Vec::new();
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            // A dangling link is noticed when it is read.
            let found = fs::metadata(entry.path());
            if let Some(found) = found.ok().filter(fs::Metadata::is_file) {
                versions.push(version(&entry.file_name(), &found, number(&found)));
            }
        }
        Ok(Some(versions))
    }

    fn local(&self, path: &str) -> Option<PathBuf> {
        Some(self.0.join(path))
    }

    fn n_at_once(&self) -> usize {
        match medium(&self.0) {
            Ok(Medium::Network) => AT_ONCE_AFAR,
            Ok(Medium::Disk | Medium::Memory) | Err(_) => n_at_once_here(),
        }
    }

    fn shown(&self, path: &str) -> String {
        self.0.join(path).display().to_string()
    }
}

/// The time of the inode's last change is in it: programs set that of the file's as they like. The number of the
/// inode is, where files keep theirs; that of the file system is not, since many get another one with each mount.
fn version(name: &OsStr, found: &fs::Metadata, number: u64) -> Version {
    let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
    Version {
        name: name.to_string_lossy().into_owned(),
        len: found.len(),
        changed_ns: Some(ns(found.ctime(), found.ctime_nsec())),
        tag: format!("{:x}-{number:x}", ns(found.mtime(), found.mtime_nsec())),
    }
}

#[cfg(test)]
mod tests {
    use bothends_dataset::conformance::{MemoryStorage, same_storage};

    use super::*;

    #[test]
    fn a_folder_is_a_storage_like_its_twin_in_memory() {
        let root = tempfile::tempdir().unwrap();
        let mut twin = MemoryStorage::new();
        for (path, bytes) in [("a", &b"0123"[..]), ("b/c", b""), ("b/d/\u{e4}.jpg", b"5")]
        {
            let full = root.path().join(path);
            fs::create_dir_all(full.parent().unwrap()).unwrap();
            fs::write(full, bytes).unwrap();
            twin = twin.with(path, bytes);
        }
        same_storage(&Folder(root.path().to_owned()), &twin);
    }

    /// Also where the file is as long as it was and says that it is as old.
    #[test]
    fn a_changed_file_has_another_version() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder(root.path().to_owned());
        let path = root.path().join("a");
        fs::write(&path, "0123").unwrap();
        fs::create_dir(root.path().join("b")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.path().join("c")).unwrap();
        let before = folder.versions("").unwrap().unwrap();
        assert_eq!(before.len(), 1);
        assert_eq!((before[0].name.as_str(), before[0].len), ("a", 4));
        assert_eq!(folder.versions("a").unwrap().unwrap(), before);
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        // Longer than the steps of the clock that file systems take times from.
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(&path, "4567").unwrap();
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(modified)
            .unwrap();
        let after = folder.versions("").unwrap().unwrap();
        assert_eq!((after[0].len, &after[0].tag), (4, &before[0].tag));
        assert_ne!(after, before);
    }
}
