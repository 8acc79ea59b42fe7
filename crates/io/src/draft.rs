//! A file without a name until it is whole: what is published is there at once, or not at all.
//!
//! Where the file system can (O_TMPFILE), an unfinished file has no name, so that nothing is
//! left of it when its process is killed. Elsewhere it has a hidden one, which is removed
//! when the draft is dropped. Does not sync: a file that a power cut has emptied must be
//! recognised by whoever reads it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};
use nix::unistd::linkat;

use crate::IoError;

/// A file being written.
#[derive(Debug)]
pub struct Draft {
    file: File,
    folder: PathBuf,
    /// The name it has while it is unfinished, where it must have one.
    hidden: Option<PathBuf>,
}

impl Draft {
    /// Begins a file in `folder`, which is made if it is not there (its parent must be).
    ///
    /// # Errors
    /// [`IoError::Unreadable`], [`IoError::Failed`]: for example where nothing may be written.
    pub fn new(folder: &Path) -> Result<Self, IoError> {
        match std::fs::create_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(IoError::at(folder, "make", error));
            }
            Ok(()) | Err(_) => {}
        }
        let flags = OFlag::O_TMPFILE.bits();
        let unnamed =
            OpenOptions::new().read(true).write(true).custom_flags(flags).open(folder);
        let folder = folder.to_owned();
        if let Ok(file) = unnamed {
            return Ok(Self { file, folder, hidden: None });
        }
        let hidden =
            folder.join(format!(".draft-{}-{}", std::process::id(), nanoseconds()));
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).open(&hidden);
        let file = file.map_err(|e| IoError::at(&hidden, "write", e))?;
        Ok(Self { file, folder, hidden: Some(hidden) })
    }

    /// Writes `bytes` over those from `offset` on.
    ///
    /// # Errors
    /// [`IoError::Failed`], as when the disk is full.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), IoError> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(|e| IoError::at(&self.folder, "write in", e))
    }

    /// Gives the file a name that no other process chooses, beginning with `prefix` and ending
    /// in `.extension`; names rise with time.
    ///
    /// # Errors
    /// [`IoError::Failed`].
    pub fn publish(mut self, prefix: &str, extension: &str) -> Result<PathBuf, IoError> {
        let unique = format!("{:x}-{:x}", nanoseconds(), std::process::id());
        let name = format!("{prefix}{unique}.{extension}");
        let path = self.folder.join(name);
        let failed = |e: io::Error| IoError::at(&path, "write", e);
        self.file.flush().map_err(failed)?;
        match self.hidden.take() {
            Some(hidden) => std::fs::rename(&hidden, &path).map_err(|error| {
                // Still there: the next drop takes it away.
                self.hidden = Some(hidden);
                failed(error)
            })?,
            None => {
                let unnamed = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                let follow = AtFlags::AT_SYMLINK_FOLLOW;
                linkat(AT_FDCWD, unnamed.as_str(), AT_FDCWD, &path, follow)
                    .map_err(|errno| failed(errno.into()))?;
            }
        }
        Ok(path)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            // If it cannot be removed, somebody else has.
            let _ = std::fs::remove_file(hidden);
        }
    }
}

/// Since 1970.
fn nanoseconds() -> u128 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_published_is_whole_and_a_dropped_draft_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("new");
        let draft = Draft::new(&folder).unwrap();
        draft.write_at(b"2345", 2).unwrap();
        draft.write_at(b"01", 0).unwrap();
        assert!(names(&folder).is_empty() || draft.hidden.is_some());
        let path = draft.publish("a-", "test").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"012345");
        drop(Draft::new(&folder).unwrap());
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(names(&folder), [name]);
        assert!(name.starts_with("a-") && name.ends_with(".test"));
    }

    #[test]
    fn where_nothing_can_be_written_is_said() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("file"), "").unwrap();
        for folder in ["file", "no/where"] {
            let error = Draft::new(&root.path().join(folder)).unwrap_err();
            assert!(error.to_string().contains(folder), "{error}");
        }
    }
}
