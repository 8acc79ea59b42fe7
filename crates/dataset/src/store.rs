//! The store, a data set packed for reading (`docs/store-format.md`), as the parts that a packer puts
//! together. As a source of samples it is in `formats/store.rs`.
//!
//! The parts are pure. [`Header`], [`Index`] and [`Manifest`] are converted from and to bytes, and every
//! count and offset is checked against the available bytes before anything is allocated. Redundant parts
//! are read from their copy if the first is damaged, and the user is told. Profiles, heads and metadata
//! are carried without being interpreted, except for the end of a profile and the profile that a head
//! names. Records are never read.
//!
//! Reading order: this file has what is read of a storage; then `manifest`, `header`, `index`, in the
//! order in which a reader meets them.

mod header;
mod index;
mod manifest;
mod refusal;

use std::ops::Range;

use crate::error::DatasetError;
use crate::path;
use crate::storage::{Kind, Storage, kind, read};

pub use header::{HEADER_BYTES, Header};
pub(crate) use index::name_profile;
pub use index::{Index, IndexBuilder, Line, NewRecord, RecordKind};
pub use manifest::{Manifest, Shard};
pub use refusal::{Refusal, VERSION};

/// Records and indices begin at multiples of it.
pub const PAGE_BYTES: u64 = 4096;

/// The manifest's file and its copy's.
pub const MANIFEST_FILES: [&str; 2] = ["store.json", "store.copy.json"];

/// The longest record that a shard holds.
pub const MAX_RECORD_BYTES: u32 = 1 << 31;

/// The longest index, so that a reader knows what it lets itself in for.
pub const MAX_INDEX_BYTES: u64 = 1 << 31;

/// The longest manifest.
pub const MAX_MANIFEST_BYTES: u64 = 1 << 26;

/// The most pages of a shard.
pub const MAX_PAGES: u64 = 1 << 32;

/// What was read of something that is kept twice.
#[derive(Debug)]
pub struct Kept<T> {
    /// The thing itself.
    pub value: T,
    /// What is wrong with the first one, where the copy had to be read, or with the file's
    /// length.
    pub damage: Option<DatasetError>,
}

impl<T> Kept<T> {
    /// The first one, else the copy; where neither can be read, what is wrong with the first.
    fn of(
        first: Result<T, DatasetError>,
        copy: impl FnOnce() -> Result<T, DatasetError>,
    ) -> Result<Self, DatasetError> {
        first.map(|value| Self { value, damage: None }).or_else(|wrong| match copy() {
            Ok(value) => Ok(Self { value, damage: Some(wrong) }),
            Err(_) => Err(wrong),
        })
    }
}

/// Reads the manifest of the store in the folder `target`, or its copy. Blocks on the storage.
///
/// # Errors
/// [`DatasetError::Store`] when neither can be used, [`DatasetError::Storage`].
pub fn read_manifest(
    storage: &dyn Storage,
    target: &str,
) -> Result<Kept<Manifest>, DatasetError> {
    let one = |name: &str| {
        let path = path::join(target, name);
        let len = file_bytes(storage, &path)?;
        let bytes = read_range(storage, &path, 0..len, MAX_MANIFEST_BYTES)?;
        Manifest::decode(&bytes).map_err(|refusal| refused(storage, &path, refusal))
    };
    Kept::of(one(MANIFEST_FILES[0]), || one(MANIFEST_FILES[1]))
}

/// A shard's header and the bytes of its index, which [`Index::decode`] takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The header.
    pub header: Header,
    /// The index.
    pub index: Vec<u8>,
}

/// Reads the index of a shard of the store in the folder `target`, or its copy. Blocks on the
/// storage.
///
/// # Errors
/// [`DatasetError::Store`] when neither can be used, [`DatasetError::Storage`] also when the
/// shard itself is not there.
pub fn read_index(
    storage: &dyn Storage,
    target: &str,
    shard: &Shard,
) -> Result<Kept<Sealed>, DatasetError> {
    let path = path::join(target, &shard.file());
    let len = file_bytes(storage, &path)?;
    let one = |place| read_sealed(storage, target, shard, place);
    let mut kept = Kept::of(one(IndexIn::Shard), || one(IndexIn::Copy))?;
    if kept.damage.is_none() && len != shard.len_bytes {
        let has = format!("it has {len} bytes, not {}", shard.len_bytes);
        kept.damage = Some(refused(storage, &path, Refusal::Damaged(has)));
    }
    Ok(kept)
}

/// One of the two files that hold a shard's index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexIn {
    /// The shard: the index lies where its header says.
    Shard,
    /// The file next to it: the index comes right after the header.
    Copy,
}

/// Reads header and index from one of the two files. Blocks on the storage.
///
/// # Errors
/// [`DatasetError::Store`], [`DatasetError::Storage`].
pub fn read_sealed(
    storage: &dyn Storage,
    target: &str,
    shard: &Shard,
    place: IndexIn,
) -> Result<Sealed, DatasetError> {
    let path = &match place {
        IndexIn::Shard => path::join(target, &shard.file()),
        IndexIn::Copy => path::join(target, &shard.index_file()),
    };
    let refused = |refusal| refused(storage, path, refusal);
    let len = file_bytes(storage, path)?;
    let mut bytes = [0; HEADER_BYTES];
    if len < HEADER_BYTES as u64 {
        return Err(refused(Refusal::Damaged(format!("it has only {len} bytes"))));
    }
    read(storage, path, 0, &mut bytes)?;
    let header = Header::decode(&bytes).map_err(refused)?;
    if !shard.has(&header) {
        let another = "it is not the shard that the manifest names";
        return Err(refused(Refusal::damaged(another)));
    }
    let in_shard = header.index_range();
    let range = match place {
        IndexIn::Shard => in_shard,
        IndexIn::Copy => {
            let start = HEADER_BYTES as u64;
            start..start + (in_shard.end - in_shard.start)
        }
    };
    if range.end > len {
        return Err(refused(Refusal::damaged("the file ends before its index does")));
    }
    let index = read_range(storage, path, range, MAX_INDEX_BYTES)?;
    let n_samples = Index::decode(&index, &header).map_err(refused)?.n_samples();
    if n_samples != u64::from(shard.n_samples) {
        let other = "it has more or fewer samples than the manifest says";
        return Err(refused(Refusal::damaged(other)));
    }
    Ok(Sealed { header, index })
}

/// The original files of the samples of the shard at `path`, each with where its record begins and how long it is,
/// in that order; of records at one place, which are empty, in the order of the samples: for messages, because a table does not keep names. Blocks on the storage;
/// `None` where they are not to be found.
#[must_use]
pub fn original_names(
    storage: &dyn Storage,
    path: &str,
) -> Option<Vec<((u64, u32), String)>> {
    let (target, file) = path.rsplit_once('/').unwrap_or(("", path));
    let manifest = read_manifest(storage, target).ok()?.value;
    let shard = manifest.shards.iter().find(|shard| shard.file() == file)?;
    let sealed = read_index(storage, target, shard).ok()?.value;
    let index = Index::decode(&sealed.index, &sealed.header).ok()?;
    let samples = index.lines().iter().filter(|line| line.kind != RecordKind::Rest);
    let named =
        samples.map(|line| ((line.offset(), line.len), index.name(line.name).to_owned()));
    let mut names: Vec<_> = named.collect();
    names.sort_by_key(|(place, _)| *place);
    Some(names)
}

pub(crate) fn refused(
    storage: &dyn Storage,
    path: &str,
    refusal: Refusal,
) -> DatasetError {
    DatasetError::Store { path: storage.shown(path), refusal }
}

fn file_bytes(storage: &dyn Storage, path: &str) -> Result<u64, DatasetError> {
    match kind(storage, path)? {
        Kind::File { len } => Ok(len),
        Kind::Folder => {
            Err(refused(storage, path, Refusal::damaged("it is a folder, not a file")))
        }
    }
}

/// Reads a range that lies in the file.
fn read_range(
    storage: &dyn Storage,
    path: &str,
    range: Range<u64>,
    max_bytes: u64,
) -> Result<Vec<u8>, DatasetError> {
    let len = range.end - range.start;
    let Some(len_here) = usize::try_from(len).ok().filter(|_| len <= max_bytes) else {
        let what = format_args!("{len} bytes where at most {max_bytes} are read");
        return Err(refused(storage, path, Refusal::damaged(what)));
    };
    let mut bytes = vec![0; len_here];
    read(storage, path, range.start, &mut bytes)?;
    Ok(bytes)
}
