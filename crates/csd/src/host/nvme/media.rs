//! Where the records of a data set are on a device's blocks.
//!
//! The device has the files of a folder one after the other, sorted by their paths, each from the beginning of
//! a block on; or it has one file from its first block on. Host and device list a folder by the same function,
//! and before any batch the host holds the device's bytes against its own (`Transport::attest`).

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};

use bothends_core::ids::SampleId;
use bothends_core::sample::{Extent, FileIdx};
use bothends_dataset::Table;

use crate::CsdError;
use crate::words::address::{BlockRange, BlockUse, MediaAt};

/// Entries of a folder between two looks after the device. Even where each takes a tenth of a second, as over a slow
/// network, a keep-alive is sent long before it is due.
const BETWEEN_LOOKS: usize = 64;

/// Blocks of the media that hold a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// The first.
    pub(super) first: u64,
    /// How many.
    pub(super) n_blocks: u32,
    /// Where the record begins in the first.
    pub(super) offset: u32,
}

/// Where each file of a table begins, in blocks.
#[derive(Debug)]
pub(super) struct Media {
    first: Vec<u64>,
    /// The first block after those that hold something.
    end: u64,
    n_blocks: u64,
    block_bytes: u32,
}

impl Media {
    /// Of `table`, whose files are below `folder`, on `n_blocks` blocks. Listing a folder may take minutes, in which
    /// `look` is called again and again.
    ///
    /// # Errors
    /// One line: the folder cannot be listed, or the blocks cannot hold its files. That of `look`.
    pub(super) fn of(
        table: &Table,
        (at, folder): (&BlockUse, Option<&Path>),
        (n_blocks, block_bytes): (u64, u32),
        look: &mut dyn FnMut() -> Result<(), CsdError>,
    ) -> Result<Self, CsdError> {
        let refused = |reason: String| CsdError::SessionRefused { reason };
        let n_files = table.n_files();
        let names = (0..n_files).map(|n| FileIdx(u32::try_from(n).unwrap_or(u32::MAX)));
        let folder = match &at.media {
            MediaAt::Image if n_files == 1 => {
                return Self::image(table, folder, (n_blocks, block_bytes));
            }
            MediaAt::Image => {
                return Err(refused(format!(
                    "the data set has {n_files} files, and media=image is for one; leave it out, or pack \
                     the data into a store"
                )));
            }
            MediaAt::Folder(folder) => folder,
            MediaAt::DataRoot => folder.ok_or_else(|| {
                refused(
                    "an NVMe device has one medium and the data set several roots; use one root"
                        .to_owned(),
                )
            })?,
        };
        let files = list(folder, look).map_err(|unlisted| match unlisted {
            Unlisted::Ended(error) => error,
            Unlisted::Unreadable(path, source) => {
                let path = path.display();
                refused(format!("the folder {path}, which tells what is on the device, cannot be read: {source}"))
            }
        })?;
        let mut begins = HashMap::with_capacity(files.len());
        let mut next = 0_u64;
        for (path, bytes) in files {
            let below = path.strip_prefix(folder).unwrap_or(&path).to_path_buf();
            begins.insert(below, next);
            next += bytes.div_ceil(block_bytes.into());
        }
        let find = |file| {
            let path = table.file_path(file);
            let first = begins.get(Path::new(&path)).copied();
            first.ok_or_else(|| {
                refused(format!("{path} is not among the files of {}", folder.display()))
            })
        };
        let first = names.map(find).collect::<Result<_, _>>()?;
        // Blocks are spared where the user says so.
        let is_whole = next == n_blocks || at.scratch.is_some() && next < n_blocks;
        if !is_whole {
            return Err(CsdError::OtherData {
                what: format!(
                    "the files of {} take {next} blocks, and the device has {n_blocks}",
                    folder.display()
                ),
            });
        }
        Ok(Self { first, end: next, n_blocks, block_bytes })
    }

    /// Of the one file of `table`, which is on the device from its first block on.
    fn image(
        table: &Table,
        folder: Option<&Path>,
        (n_blocks, block_bytes): (u64, u32),
    ) -> Result<Self, CsdError> {
        let block = u64::from(block_bytes);
        let path = table.file_path(FileIdx(0));
        let extents = (0..table.n_samples()).map(|id| table.extent(SampleId(id)));
        let ends = extents.filter_map(|own| own.offset.checked_add(own.len.into()));
        let records_end = ends.max().unwrap_or(0).div_ceil(block);
        // A device may lack the rest of a file that is not whole blocks: then the host makes the samples in there.
        if records_end > n_blocks.saturating_add(1) {
            return Err(CsdError::OtherData {
                what: format!(
                    "the records of {path} take {records_end} blocks, and the device has {n_blocks}"
                ),
            });
        }
        // After its records a file may have an index.
        let file = folder.and_then(|folder| folder.join(&path).metadata().ok());
        let file_end = file.map_or(0, |own| own.len().div_ceil(block));
        let end = records_end.max(file_end);
        Ok(Self { first: vec![0], end, n_blocks, block_bytes })
    }

    /// Makes sure that nothing of the data set is in `scratch`, and that the device has it.
    ///
    /// # Errors
    /// One line.
    pub(super) fn spares(&self, scratch: BlockRange) -> Result<(), CsdError> {
        let is_there = scratch.end().is_some_and(|end| end <= self.n_blocks);
        if is_there && scratch.first >= self.end {
            return Ok(());
        }
        let Self { end, n_blocks, .. } = self;
        let reason = format!(
            "scratch={scratch} would overwrite the data set, or is not there: of the device's {n_blocks} blocks \
             the first {end} hold it; name others that hold nothing, or leave scratch= out"
        );
        Err(CsdError::SessionRefused { reason })
    }

    /// The blocks of a record; `None` where nothing can be there.
    pub(super) fn span(&self, extent: Extent) -> Option<Span> {
        let block = u64::from(self.block_bytes);
        let file = usize::try_from(extent.file.0).ok()?;
        let end = extent.offset.checked_add(extent.len.into())?;
        let n_blocks = end.div_ceil(block).checked_sub(extent.offset / block)?;
        let first = self.first.get(file)?.checked_add(extent.offset / block)?;
        // A copy from blocks that are not there would fail the whole batch.
        first.checked_add(n_blocks).filter(|end| *end <= self.n_blocks)?;
        Some(Span {
            first,
            n_blocks: u32::try_from(n_blocks).ok()?,
            offset: u32::try_from(extent.offset % block).ok()?,
        })
    }
}

/// The files below `folder` that hold something, with their lengths, in the order in which an NVMe device has
/// them on its blocks. Links are left out.
///
/// # Errors
/// A folder that cannot be read, and why.
pub fn files(folder: &Path) -> Result<Vec<(PathBuf, u64)>, (PathBuf, io::Error)> {
    let look = &mut || Ok::<(), Infallible>(());
    list(folder, look).map_err(|unlisted| match unlisted {
        Unlisted::Unreadable(path, source) => (path, source),
        Unlisted::Ended(never) => match never {},
    })
}

/// Why files are not listed.
enum Unlisted<E> {
    Unreadable(PathBuf, io::Error),
    /// By whoever was called meanwhile.
    Ended(E),
}

/// The same, and calls `look` every now and then, whose error ends it.
fn list<E>(
    folder: &Path,
    look: &mut dyn FnMut() -> Result<(), E>,
) -> Result<Vec<(PathBuf, u64)>, Unlisted<E>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    let mut n_entries = 0_usize;
    while let Some(folder) = folders.pop() {
        let unreadable = |source| Unlisted::Unreadable(folder.clone(), source);
        for entry in folder.read_dir().map_err(unreadable)? {
            n_entries += 1;
            if n_entries.is_multiple_of(BETWEEN_LOOKS) {
                look().map_err(Unlisted::Ended)?;
            }
            let entry = entry.map_err(unreadable)?;
            let metadata = entry.metadata().map_err(unreadable)?;
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if metadata.is_file() && metadata.len() > 0 {
                files.push((entry.path(), metadata.len()));
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is the report")]

    use bothends_core::sample::Encoding;
    use bothends_dataset::TableBuilder;

    use super::*;

    #[test]
    fn all_of_a_file_is_spared_with_what_follows_its_records() {
        let mut table = TableBuilder::new(Encoding::Image);
        let file = table.file("shard").unwrap();
        table.sample(Extent { file, offset: 4000, len: 100 }, 0);
        let table = table.build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (media, scratch) = (MediaAt::Image, None);
        let at = BlockUse { media, scratch };
        let spares = |first, n_blocks| {
            let at = (&at, Some(folder.path()));
            let media = Media::of(&table, at, (10, 4096), &mut || Ok(()));
            media.unwrap().spares(BlockRange { first, n_blocks }).is_ok()
        };
        // Of a file that is not here its records are known.
        assert!(spares(2, 8) && !spares(1, 9) && !spares(2, 9));
        std::fs::write(folder.path().join("shard"), vec![0; 3 * 4096 + 1]).unwrap();
        assert!(spares(4, 6) && !spares(3, 7));
    }

    /// As of an image of 2.5 blocks on a device of two.
    #[test]
    fn a_record_in_blocks_that_are_not_there_is_nowhere() {
        let mut table = TableBuilder::new(Encoding::Image);
        let file = table.file("shard").unwrap();
        let extent = |offset, len| Extent { file, offset, len };
        table.sample(extent(0, 8192), 0);
        table.sample(extent(8000, 300), 0);
        table.sample(extent(8192, 2048), 0);
        let table = table.build().unwrap();
        let at = BlockUse { media: MediaAt::Image, scratch: None };
        let on =
            |n_blocks| Media::of(&table, (&at, None), (n_blocks, 4096), &mut || Ok(()));
        let media = on(2).unwrap();
        let is_there = |id| media.span(table.extent(SampleId(id))).is_some();
        assert_eq!([0, 1, 2].map(is_there), [true, false, false]);
        let refused = on(1).unwrap_err();
        assert!(matches!(refused, CsdError::OtherData { .. }), "{refused}");
    }
}
