//! The namespace of logical blocks: the device's media, as an image or as the files of a folder.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bothends_csd::media_files;
use bothends_nvme::Status;

use super::BLOCK_BYTES;

/// Why there is no media.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    /// The system does not give it.
    #[error("cannot read the media {path}: {source}", path = path.display())]
    Unreadable {
        /// Which file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is nothing in it.
    #[error("the media {path} is empty; give a folder with files, or an image", path = path.display())]
    Empty {
        /// Which file or folder.
        path: PathBuf,
    },
}

/// Files that are kept open.
const OPEN_FILES: usize = 64;

/// What the blocks hold. Files lie one after the other, sorted by their paths, each from the beginning
/// of a block on; what is left of its last block reads as zeros. So does what an image lacks of its last block, until
/// a host writes that.
#[derive(Debug)]
pub struct BlockMedia {
    parts: Vec<Part>,
    n_blocks: u64,
    access: Access,
    open: Mutex<Vec<(usize, Arc<File>)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    ReadAndWrite,
}

#[derive(Debug)]
struct Part {
    first: u64,
    bytes: u64,
    path: PathBuf,
}

/// Bytes of one file, which are there.
#[derive(Debug)]
pub(super) struct Extent {
    pub(super) file: Arc<File>,
    pub(super) from: u64,
    pub(super) bytes: u32,
}

impl BlockMedia {
    /// The media at `path`: a folder's files, which are only read, or an image, which may be written if
    /// its permissions allow it.
    ///
    /// # Errors
    /// Of a path that cannot be read, or has nothing in it.
    pub fn open(path: &Path) -> Result<Self, MediaError> {
        let unreadable =
            |source| MediaError::Unreadable { path: path.to_owned(), source };
        let is_folder = path.metadata().map_err(unreadable)?.is_dir();
        let mut own = Self {
            parts: Vec::new(),
            n_blocks: 0,
            access: Access::Read,
            open: Mutex::default(),
        };
        if is_folder {
            // Hosts list the folder by the same function to find records on the blocks.
            let files = media_files(path)
                .map_err(|(path, source)| MediaError::Unreadable { path, source })?;
            for (path, bytes) in files {
                own.push(path, bytes);
            }
        } else {
            let file = File::open(path).map_err(unreadable)?;
            let bytes = file.metadata().map_err(unreadable)?.len();
            own.push(path.to_owned(), bytes);
            if OpenOptions::new().write(true).open(path).is_ok() {
                own.access = Access::ReadAndWrite;
            }
        }
        if own.n_blocks == 0 {
            return Err(MediaError::Empty { path: path.to_owned() });
        }
        Ok(own)
    }

    fn push(&mut self, path: PathBuf, bytes: u64) {
        self.parts.push(Part { first: self.n_blocks, bytes, path });
        self.n_blocks += bytes.div_ceil(u64::from(BLOCK_BYTES));
    }

    /// How many blocks there are.
    #[must_use]
    pub fn n_blocks(&self) -> u64 {
        self.n_blocks
    }

    /// Whether hosts may write it.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.access == Access::ReadAndWrite
    }

    /// Where each file begins, in blocks, with its bytes: what a host needs to find samples.
    pub fn files(&self) -> impl Iterator<Item = (&Path, u64, u64)> {
        self.parts.iter().map(|part| (part.path.as_path(), part.first, part.bytes))
    }

    /// Whether the blocks from `first` on are all there.
    pub(super) fn check(&self, first: u64, n_blocks: u64) -> Result<(), Status> {
        match first.checked_add(n_blocks) {
            Some(end) if end <= self.n_blocks => Ok(()),
            _ => Err(Status::LBA_OUT_OF_RANGE),
        }
    }

    /// Reads the blocks from `first` on into `to`, whole blocks.
    ///
    /// # Errors
    /// LBA Out of Range, or Unrecovered Read Error if the media fail.
    pub(super) fn read(&self, first: u64, to: &mut [u8]) -> Result<(), Status> {
        self.check(first, to.len() as u64 / u64::from(BLOCK_BYTES))?;
        let block = u64::from(BLOCK_BYTES);
        let begin = first * block;
        let mut done = 0_usize;
        let mut nth = self.parts.partition_point(|part| part.first <= first) - 1;
        while done < to.len() {
            let part = &self.parts[nth];
            let part_end =
                self.parts.get(nth + 1).map_or(self.n_blocks, |next| next.first);
            let here = begin + done as u64;
            let room = usize::try_from(part_end * block - here).unwrap_or(usize::MAX);
            let n = room.min(to.len() - done);
            self.read_part(nth, here - part.first * block, &mut to[done..done + n])?;
            done += n;
            nth += 1;
        }
        Ok(())
    }

    /// The file that has all bytes of the blocks from `first` on. There is none if they are of several files, or if a
    /// file is shorter: [`BlockMedia::read`] then says what they are.
    pub(super) fn extent(&self, first: u64, bytes: u32) -> Option<Extent> {
        let nth =
            self.parts.partition_point(|part| part.first <= first).checked_sub(1)?;
        let part = &self.parts[nth];
        let from = (first - part.first) * u64::from(BLOCK_BYTES);
        let end = from + u64::from(bytes);
        let file =
            Some(part).filter(|part| end <= part.bytes).and(self.file(nth).ok())?;
        // The file may have been cut off since it was listed.
        let is_there = file.metadata().is_ok_and(|own| end <= own.len());
        is_there.then_some(Extent { file, from, bytes })
    }

    fn read_part(&self, nth: usize, from: u64, to: &mut [u8]) -> Result<(), Status> {
        let mut there = self.parts[nth].bytes.saturating_sub(from);
        if there < to.len() as u64 && self.access == Access::ReadAndWrite {
            // A host may have written the last block since, as a whole.
            let file = self.file(nth).map_err(|_| Status::READ_ERROR)?;
            let bytes = file.metadata().map_err(|_| Status::READ_ERROR)?.len();
            there = there.max(bytes.saturating_sub(from));
        }
        let n = usize::try_from(there).unwrap_or(usize::MAX).min(to.len());
        if n > 0 {
            let file = self.file(nth).map_err(|_| Status::READ_ERROR)?;
            file.read_exact_at(&mut to[..n], from).map_err(|_| Status::READ_ERROR)?;
        }
        to[n..].fill(0);
        Ok(())
    }

    /// Writes whole blocks from `first` on.
    ///
    /// # Errors
    /// LBA Out of Range; Attempted Write to Read Only Range; Write Fault if the media fail.
    pub(super) fn write(&self, first: u64, from: &[u8]) -> Result<(), Status> {
        self.check(first, from.len() as u64 / u64::from(BLOCK_BYTES))?;
        if self.access == Access::Read {
            return Err(Status::READ_ONLY);
        }
        let file = self.file(0).map_err(|_| Status::WRITE_FAULT)?;
        let at = first * u64::from(BLOCK_BYTES);
        file.write_all_at(from, at).map_err(|_| Status::WRITE_FAULT)
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// Write Fault if the media fail.
    pub(super) fn flush(&self) -> Result<(), Status> {
        if self.access == Access::Read {
            return Ok(());
        }
        let file = self.file(0).map_err(|_| Status::WRITE_FAULT)?;
        file.sync_data().map_err(|_| Status::WRITE_FAULT)
    }

    fn file(&self, nth: usize) -> std::io::Result<Arc<File>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = open.iter().position(|(other, _)| *other == nth) {
            // The one used last is the last.
            open[at..].rotate_left(1);
            return Ok(Arc::clone(&open[open.len() - 1].1));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(self.access == Access::ReadAndWrite);
        let file = Arc::new(options.open(&self.parts[nth].path)?);
        if open.len() == OPEN_FILES {
            open.remove(0);
        }
        open.push((nth, Arc::clone(&file)));
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is the report")]

    use super::*;

    /// Its last record was cut off, and a batch that had it failed.
    #[test]
    fn an_image_may_end_within_a_block() {
        let image = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(image.path(), [7; 10_240]).unwrap();
        let media = BlockMedia::open(image.path()).unwrap();
        assert_eq!(media.n_blocks(), 3);
        let mut last = [1; 8192];
        media.read(1, &mut last).unwrap();
        assert!(last[..6144] == [7; 6144] && last[6144..] == [0; 2048]);
        assert_eq!(media.read(3, &mut [0; 4096]), Err(Status::LBA_OUT_OF_RANGE));
        media.write(2, &[9; 4096]).unwrap();
        media.read(1, &mut last).unwrap();
        assert!(last[..4096] == [7; 4096] && last[4096..] == [9; 4096]);
    }
}
