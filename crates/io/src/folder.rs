//! A folder of this machine as `dataset` sees files: names, lengths, bytes.
//!
//! It is for opening a data set and reading the indices of a store; a `Reader` reads samples.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bothends_dataset::{Entry, Kind, Storage};

use crate::files::regular::open_regular;
use crate::list::list;

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

    fn shown(&self, path: &str) -> String {
        self.0.join(path).display().to_string()
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
}
