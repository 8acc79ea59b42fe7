//! A file written from start to end, past the page cache where possible. Data that are written once and
//! are larger than memory would only evict what others need, and would cost another copy.
//!
//! It does not sync: whoever receives the file at the end decides what must be on disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

use crate::files::{clear_direct, is_invalid};
use crate::{ALIGNMENT, Buffer};

/// Bytes that are written at once.
const CHUNK_BYTES: usize = 1 << 20;
const _: () = assert!(CHUNK_BYTES.is_multiple_of(ALIGNMENT), "as O_DIRECT wants them");

/// A file being written. What is dropped before [`Self::finish`] leaves any part of it.
#[derive(Debug)]
pub struct FileWriter {
    file: File,
    /// Where the buffer's bytes belong.
    at: u64,
    /// Being filled, up to `filled`.
    buffer: Buffer,
    filled: usize,
}

impl FileWriter {
    /// Creates the file `path`, or empties it. Blocks on the file system.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(path: &Path) -> io::Result<Self> {
        let open = |flags: OFlag| {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).custom_flags(flags.bits());
            options.open(path)
        };
        let file = match open(OFlag::O_DIRECT) {
            Err(error) if is_invalid(&error) => open(OFlag::empty())?,
            opened => opened?,
        };
        Ok(Self { file, at: 0, buffer: Buffer::new(CHUNK_BYTES), filled: 0 })
    }

    /// Appends `bytes`; blocks while the disk takes a mebibyte.
    ///
    /// # Errors
    /// What the system says; the file is then lost.
    pub fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = &mut self.buffer.as_mut_slice()[self.filled..];
            let (now, later) = bytes.split_at(room.len().min(bytes.len()));
            room[..now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
            if self.filled == CHUNK_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let full = &self.buffer.as_slice()[..self.filled];
        match self.file.write_all_at(full, self.at) {
            // Some file systems take O_DIRECT at opening and refuse it at writing.
            Err(error) if is_invalid(&error) => {
                clear_direct(&self.file)?;
                self.file.write_all_at(full, self.at)?;
            }
            written => written?,
        }
        self.at += self.filled as u64;
        self.filled = 0;
        Ok(())
    }

    /// Writes what is left. Returns the file, which goes through the page cache from now on.
    ///
    /// # Errors
    /// What the system says.
    pub fn finish(mut self) -> io::Result<File> {
        clear_direct(&self.file)?;
        self.flush()?;
        Ok(self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_all_lengths_are_written_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let bytes: Vec<u8> = (0..=250).cycle().take(3 * CHUNK_BYTES + 5000).collect();
        let chunk = CHUNK_BYTES;
        for len in [0, 1, 4096, chunk - 1, chunk, chunk + 1, bytes.len()] {
            for part in [1000, 700_001, bytes.len()] {
                let mut writer = FileWriter::create(&path).unwrap();
                bytes[..len].chunks(part).for_each(|part| writer.write(part).unwrap());
                let file = writer.finish().unwrap();
                assert_eq!(file.metadata().unwrap().len(), len as u64);
                assert!(std::fs::read(&path).unwrap() == bytes[..len], "{len} by {part}");
                // Any place can be written again.
                file.write_all_at(&[9], 0).unwrap();
            }
        }
    }

    #[test]
    fn a_full_disk_is_an_error_when_it_is_noticed() {
        let create = || FileWriter::create(Path::new("/dev/full")).unwrap();
        create().write(&vec![1; CHUNK_BYTES]).unwrap_err();
        let mut writer = create();
        writer.write(&[1]).unwrap();
        writer.finish().unwrap_err();
    }
}
