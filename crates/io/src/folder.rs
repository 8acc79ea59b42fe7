//! A folder of this machine as `dataset` wants to see files: names, lengths, bytes.
//!
//! For opening a data set and reading a store's indices; samples are read by a `Reader`.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use bothends_dataset::{Entry, Kind, Storage};

use crate::list::list;

/// The files below a folder.
#[derive(Debug)]
pub struct Folder(pub PathBuf);

impl Storage for Folder {
    fn kind(&self, path: &str) -> io::Result<Kind> {
        let found = fs::metadata(self.0.join(path))?;
        Ok(if found.is_dir() { Kind::Folder } else { Kind::File { len: found.len() } })
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        list(&self.0.join(path)).map_err(io::Error::other)
    }

    fn read(&self, path: &str, offset: u64, dst: &mut [u8]) -> io::Result<()> {
        File::open(self.0.join(path))?.read_exact_at(dst, offset)
    }

    fn shown(&self, path: &str) -> String {
        self.0.join(path).display().to_string()
    }
}
