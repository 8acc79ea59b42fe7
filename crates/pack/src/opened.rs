//! A store on this machine, with its manifest and the indices of its shards in memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bothends_dataset::store::{
    Index, Line, Manifest, RecordKind, Sealed, read_index, read_manifest,
};
use bothends_io::{Folder, open_regular};
use twox_hash::XxHash3_64;

use crate::PackError;

/// An open store, of which no record has been read.
#[derive(Debug)]
pub struct OpenStore {
    folder: PathBuf,
    manifest: Manifest,
    sealed: Vec<Sealed>,
    last: Mutex<Option<(usize, Arc<File>)>>,
}

impl OpenStore {
    /// Reads the manifest and the indices of the store in `folder`, or their copies if they are
    /// damaged.
    ///
    /// # Errors
    /// [`PackError::NotAStore`], [`PackError::Dataset`].
    pub fn new(folder: &Path) -> Result<Self, PackError> {
        if !is_store(folder) {
            return Err(PackError::NotAStore { folder: folder.to_owned() });
        }
        let storage = Folder(folder.to_owned());
        let manifest = read_manifest(&storage, "")?.value;
        let read = |shard| read_index(&storage, "", shard).map(|kept| kept.value);
        let sealed = manifest.shards.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self { folder: folder.to_owned(), manifest, sealed, last: Mutex::default() })
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its manifest.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The indices of its shards, in order.
    #[must_use]
    pub fn indices(&self) -> Vec<Index<'_>> {
        // `read_index` has checked them.
        self.sealed
            .iter()
            .filter_map(|sealed| Index::decode(&sealed.index, &sealed.header).ok())
            .collect()
    }

    /// Counts its records and bytes.
    #[must_use]
    pub fn contents(&self) -> Contents {
        let mut contents = Contents {
            shard_bytes: self.manifest.shards.iter().map(|shard| shard.len_bytes).sum(),
            ..Contents::default()
        };
        for line in self.indices().iter().flat_map(Index::lines) {
            contents.original_bytes += u64::from(line.original_len);
            match line.kind {
                RecordKind::Bytes => contents.n_bytes += 1,
                RecordKind::Blocks => contents.n_blocks += 1,
                RecordKind::Rest => contents.n_rests += 1,
            }
        }
        contents
    }

    /// The shard with this number. Only the last one requested stays open: records are read in
    /// order, and a store may have more shards than a process may have open files.
    pub(crate) fn shard(&self, number: usize) -> Result<Arc<File>, PackError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, file)) = last.as_ref().filter(|(known, _)| *known == number) {
            return Ok(Arc::clone(file));
        }
        let path = self.folder.join(self.manifest.shards[number].file());
        let file = Arc::new(open_regular(&path).map_err(PackError::at("open", &path))?);
        *last = Some((number, Arc::clone(&file)));
        Ok(file)
    }
}

/// What is wrong with a record whose bytes have changed.
pub(crate) const OTHER_CHECKSUM: &str = "it has a different checksum";

/// Why a record could not be read.
pub(crate) fn unread(error: &io::Error) -> String {
    match error.kind() == io::ErrorKind::UnexpectedEof {
        true => "the shard ends before it does".to_owned(),
        false => error.to_string(),
    }
}

/// Whether the shard is long enough for a record, checked before memory is allocated for it.
pub(crate) fn check_extent(shard: &File, line: &Line) -> Result<(), String> {
    let len = shard.metadata().map_err(|error| unread(&error))?.len();
    match line.offset().checked_add(u64::from(line.len)) {
        Some(end) if end <= len || line.len == 0 => Ok(()),
        Some(_) | None => Err(unread(&io::ErrorKind::UnexpectedEof.into())),
    }
}

/// Reads a record of a shard if it is unchanged, or else says what is wrong with it.
pub(crate) fn read_stored(
    shard: &File,
    line: &Line,
    stored: &mut Vec<u8>,
) -> Result<(), String> {
    check_extent(shard, line)?;
    stored.resize(line.len as usize, 0);
    shard.read_exact_at(stored, line.offset()).map_err(|error| unread(&error))?;
    if XxHash3_64::oneshot(stored) == line.checksum {
        Ok(())
    } else {
        Err(OTHER_CHECKSUM.to_owned())
    }
}

/// The size of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contents {
    /// Records that are kept unchanged.
    pub n_bytes: u64,
    /// Records of blocks.
    pub n_blocks: u64,
    /// Records of bytes that do not belong to a sample.
    pub n_rests: u64,
    /// The total length of the original files.
    pub original_bytes: u64,
    /// The total length of the shards, including indices and padding.
    pub shard_bytes: u64,
}

/// Whether the folder is a store.
#[must_use]
pub fn is_store(folder: &Path) -> bool {
    bothends_dataset::store::MANIFEST_FILES.iter().any(|name| folder.join(name).is_file())
}
