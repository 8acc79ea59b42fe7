//! Writes a shard under a hidden name until it is complete and on the disk. A shard with its final
//! name is therefore finished, whenever its writer was killed.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bothends_dataset::store::{
    HEADER_BYTES, Header, Index, IndexBuilder, PAGE_BYTES, RecordKind, Refusal, Sealed,
    Shard,
};
use bothends_io::{FileWriter, open_regular, take_place, write_beside};

use crate::PackError;
use crate::record::Made;

/// The padding of a page.
pub(crate) const ZEROS: [u8; 4096] = [0; 4096];
const _: () = assert!(ZEROS.len() as u64 == PAGE_BYTES, "a page");

/// The name of the shard with this number.
pub(crate) fn name_of(number: usize) -> String {
    format!("{number:05}")
}

/// A shard being written.
#[derive(Debug)]
pub(crate) struct ShardWriter {
    folder: PathBuf,
    name: String,
    part: PathBuf,
    file: FileWriter,
    builder: IndexBuilder,
    n_samples: u32,
}

impl ShardWriter {
    /// Begins shard `number` of the store in `folder`, replacing an unfinished one.
    pub(crate) fn new(folder: &Path, number: usize) -> Result<Self, PackError> {
        let name = name_of(number);
        let part = folder.join(format!(".{name}.part"));
        // A new file, so that its creation time is right.
        match fs::remove_file(&part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed.map_err(PackError::at("write", &part))?,
        }
        let file = FileWriter::create(&part).map_err(PackError::at("write", &part))?;
        let mut writer = Self {
            folder: folder.to_owned(),
            name,
            part,
            file,
            builder: IndexBuilder::default(),
            n_samples: 0,
        };
        // The page of the header.
        writer.write(&ZEROS)?;
        Ok(writer)
    }

    /// Whether a record of this length still fits a shard of `shard_bytes`, not counting its index.
    /// Every shard has room for at least one.
    pub(crate) fn has_room(&self, len: usize, shard_bytes: u64) -> bool {
        let at = self.builder.offset();
        at == PAGE_BYTES || at.saturating_add(len as u64) <= shard_bytes
    }

    pub(crate) fn push(&mut self, made: &Made) -> Result<(), PackError> {
        self.builder.push(&made.record())?;
        self.n_samples += u32::from(made.kind != RecordKind::Rest);
        self.write(&made.stored)?;
        let filling = made.stored.len().next_multiple_of(ZEROS.len()) - made.stored.len();
        self.write(&ZEROS[..filling])
    }

    /// Writes the index and the header, and gives the shard its final name.
    pub(crate) fn finish(mut self) -> Result<Shard, PackError> {
        let builder = std::mem::take(&mut self.builder);
        let refused =
            |refusal: Refusal| PackError::Refused { path: self.name.clone(), refusal };
        let (header, index) = builder.finish().map_err(refused)?;
        self.write(&index)?;
        let failed = |e| PackError::at("write", &self.part)(e);
        let file = self.file.finish().map_err(failed)?;
        file.write_all_at(&header.encode(), 0).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        let shard = Shard::new(&self.name, &header, self.n_samples);
        let copy = [&header.encode()[..], &index].concat();
        write_whole(&self.folder, &shard.index_file(), &copy)?;
        let path = self.folder.join(shard.file());
        take_place(&self.part, &path).map_err(PackError::at("write", &path))?;
        Ok(shard)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), PackError> {
        self.file.write(bytes).map_err(PackError::at("write", &self.part))
    }
}

/// Replaces a file atomically.
pub(crate) fn write_whole(
    folder: &Path,
    name: &str,
    bytes: &[u8],
) -> Result<(), PackError> {
    let path = folder.join(name);
    let written =
        write_beside(&folder.join(format!(".{name}.part")), &path, |mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
    written.map_err(PackError::at("write", &path))
}

/// A finished shard of the folder; `None` if there is none.
pub(crate) fn read_back(
    folder: &Path,
    name: &str,
) -> Result<Option<(Shard, Sealed)>, PackError> {
    let path = folder.join(format!("{name}.shard"));
    let file = match open_regular(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(PackError::at("open", &path))?,
    };
    let refused =
        |refusal| PackError::Refused { path: path.display().to_string(), refusal };
    let failed = |e| PackError::at("read", &path)(e);
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0).map_err(failed)?;
    let header = Header::decode(&header).map_err(refused)?;
    let range = header.index_range();
    let mut index = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
    file.read_exact_at(&mut index, range.start).map_err(failed)?;
    let n_samples = Index::decode(&index, &header).map_err(refused)?.n_samples();
    let shard = Shard::new(name, &header, u32::try_from(n_samples).unwrap_or(u32::MAX));
    Ok(Some((shard, Sealed { header, index })))
}
