//! A folder of this machine as `dataset` wants to see files: names, lengths, bytes.
//!
//! Used once, when a data set is opened. The samples themselves are read by `io`.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use bothends_dataset::{Entry, Kind, Storage};

/// The files below a folder.
#[derive(Debug)]
pub(crate) struct Folder(pub(crate) PathBuf);

impl Storage for Folder {
    fn kind(&self, path: &str) -> io::Result<Kind> {
        let found = fs::metadata(self.0.join(path))?;
        Ok(if found.is_dir() { Kind::Folder } else { Kind::File { len: found.len() } })
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let folder = self.0.join(path);
        let mut entries = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            // A name that is not text cannot stand in a manifest; it is not ours to guess.
            let Ok(name) = entry.file_name().into_string() else { continue };
            // Follows links, as the contract says; a dangling one is nothing we can read.
            let Ok(found) = fs::metadata(entry.path()) else { continue };
            let kind = if found.is_dir() {
                Kind::Folder
            } else {
                Kind::File { len: found.len() }
            };
            entries.push(Entry { name, kind });
        }
        Ok(entries)
    }

    fn read(&self, path: &str, offset: u64, dst: &mut [u8]) -> io::Result<()> {
        File::open(self.0.join(path))?.read_exact_at(dst, offset)
    }

    fn shown(&self, path: &str) -> String {
        self.0.join(path).display().to_string()
    }
}
