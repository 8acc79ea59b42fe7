//! A folder of this machine as `dataset` wants to see files: names, lengths, bytes.
//!
//! Used once, when a data set is opened. The samples themselves are read by `io`.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use bothends_dataset::{Entry, Kind, Storage};
use bothends_io::{Listed, ListedKind};

/// The files below a folder.
#[derive(Debug)]
pub(crate) struct Folder(pub(crate) PathBuf);

impl Storage for Folder {
    fn kind(&self, path: &str) -> io::Result<Kind> {
        let found = fs::metadata(self.0.join(path))?;
        Ok(if found.is_dir() { Kind::Folder } else { Kind::File { len: found.len() } })
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let listed = bothends_io::list(&self.0.join(path)).map_err(io::Error::other)?;
        let entry = |listed: Listed| {
            let kind = match listed.kind {
                ListedKind::Folder => Kind::Folder,
                ListedKind::File { len } => Kind::File { len },
            };
            Entry { name: listed.name, kind }
        };
        Ok(listed.into_iter().map(entry).collect())
    }

    fn read(&self, path: &str, offset: u64, dst: &mut [u8]) -> io::Result<()> {
        File::open(self.0.join(path))?.read_exact_at(dst, offset)
    }

    fn shown(&self, path: &str) -> String {
        self.0.join(path).display().to_string()
    }
}
