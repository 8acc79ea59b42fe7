//! The store: a data set packed for reading (`docs/store-format.md`), as a source of samples
//! and as parts that a packer puts together.
//!
//! The parts are pure: [`Header`], [`Index`] and [`Manifest`] are made from bytes and into
//! bytes, every count and offset held against the bytes that are there before anything is
//! allocated. What is kept twice is read from its copy where the first is damaged, and the
//! user hears of it. Profiles, heads and metadata are carried, not looked into (but for where a
//! profile ends and which one a head names); records are never read.
//!
//! Reading order: here is a store as a data set; then `manifest`, `header`, `index`, in the
//! order in which a reader meets them.

mod header;
mod index;
mod manifest;

use std::fmt;
use std::ops::Range;

use bothends_core::sample::Extent;

use crate::storage::{Kind, Storage, kind, list, read};
use crate::table::TableBuilder;
use crate::{DatasetError, Entry, Format, Found, path, side_index};

pub use header::{HEADER_BYTES, Header};
pub(crate) use index::lies_in;
pub use index::{Index, IndexBuilder, Line, NewRecord, RecordKind};
pub use manifest::{Manifest, Shard};

/// The version this build writes and reads.
pub const VERSION: u16 = 1;

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

/// Why bytes are not taken as a part of a store, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// They are damaged, or never were a part of a store.
    #[error(
        "{0}; `bothends inspect --verify` shows what else is damaged; \
         bring the file back from a copy, or pack the data again"
    )]
    Damaged(String),
    /// They are of another version.
    #[error(
        "it has version {0}, this build reads version {VERSION}; use a newer release"
    )]
    Version(u64),
    /// They need something that this build does not know.
    #[error("it needs {0}, which this build does not know; use a newer release")]
    Feature(String),
}

impl Refusal {
    fn damaged(what: impl fmt::Display) -> Self {
        Self::Damaged(what.to_string())
    }
}

/// What was read of something that is kept twice.
#[derive(Debug)]
pub struct Kept<T> {
    /// The thing itself.
    pub value: T,
    /// What is wrong with the first one, where the copy had to be read, or with the file's
    /// length.
    pub damage: Option<DatasetError>,
}

/// Whether the entry makes its folder look like this format.
pub(crate) fn is_manifest(entry: &Entry) -> bool {
    entry.kind != Kind::Folder && MANIFEST_FILES.contains(&entry.name.as_str())
}

/// Reads the store in the folder `target`: its manifest and every shard's index.
pub(crate) fn parse(storage: &dyn Storage, target: &str) -> Result<Found, DatasetError> {
    let kept = read_manifest(storage, target)?;
    let manifest = kept.value;
    let mut taking = Taking {
        storage,
        builder: TableBuilder::new(manifest.encoding),
        checksums: Vec::new(),
        is_damaged: kept.damage.is_some(),
    };
    for class in &manifest.classes {
        taking.builder.class(class)?;
    }
    for shard in &manifest.shards {
        taking.shard(&path::join(target, &shard.file), shard)?;
    }
    let Taking { mut builder, checksums, is_damaged, .. } = taking;
    builder.checksums(checksums);
    Ok(Found {
        table: builder.build()?,
        format: Format::Store,
        n_ignored: n_foreign(storage, target, &manifest)?,
        note: is_damaged.then_some(
            "the store is damaged where it keeps things twice, and can still be read; \
             `bothends inspect --verify` says where",
        ),
    })
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
    match one(MANIFEST_FILES[0]) {
        Ok(value) => Ok(Kept { value, damage: None }),
        Err(first) => match one(MANIFEST_FILES[1]) {
            Ok(value) => Ok(Kept { value, damage: Some(first) }),
            Err(_) => Err(first),
        },
    }
}

/// Reads the header of the shard at `path`, or its copy. Blocks on the storage.
///
/// # Errors
/// [`DatasetError::Store`] when neither can be used, [`DatasetError::Storage`].
pub fn read_header(
    storage: &dyn Storage,
    path: &str,
) -> Result<Kept<Header>, DatasetError> {
    let len = file_bytes(storage, path)?;
    let one = |at: u64| {
        let mut bytes = [0; HEADER_BYTES];
        if at.saturating_add(HEADER_BYTES as u64) > len {
            let refusal = Refusal::damaged(format_args!("it has only {len} bytes"));
            return Err(refused(storage, path, refusal));
        }
        read(storage, path, at, &mut bytes)?;
        Header::decode(&bytes).map_err(|refusal| refused(storage, path, refusal))
    };
    match one(0) {
        Ok(value) if value.file_bytes() == len => Ok(Kept { value, damage: None }),
        Ok(value) => {
            let has = format_args!("it has {len} bytes, not {}", value.file_bytes());
            Ok(Kept {
                damage: Some(refused(storage, path, Refusal::damaged(has))),
                value,
            })
        }
        Err(first) => match one(len.saturating_sub(HEADER_BYTES as u64)) {
            Ok(value) => Ok(Kept { value, damage: Some(first) }),
            Err(_) => Err(first),
        },
    }
}

/// Reads the bytes of the index of the shard at `path`, or of its copy, and finds them good:
/// [`Index::decode`] takes them. Blocks on the storage.
///
/// # Errors
/// [`DatasetError::Store`] when neither can be used, [`DatasetError::Storage`].
pub fn read_index(
    storage: &dyn Storage,
    path: &str,
    header: &Header,
) -> Result<Kept<Vec<u8>>, DatasetError> {
    let len = file_bytes(storage, path)?;
    let one = |range: Range<u64>| {
        if range.end > len {
            let refusal = Refusal::damaged("the file ends before its index does");
            return Err(refused(storage, path, refusal));
        }
        let bytes = read_range(storage, path, range, MAX_INDEX_BYTES)?;
        Index::decode(&bytes, header)
            .map_err(|refusal| refused(storage, path, refusal))?;
        Ok(bytes)
    };
    let [first, copy] = header.index_ranges();
    match one(first) {
        Ok(value) => Ok(Kept { value, damage: None }),
        Err(first) => match one(copy) {
            Ok(value) => Ok(Kept { value, damage: Some(first) }),
            Err(_) => Err(first),
        },
    }
}

/// The table in the making.
struct Taking<'a> {
    storage: &'a dyn Storage,
    builder: TableBuilder,
    checksums: Vec<u64>,
    is_damaged: bool,
}

impl Taking<'_> {
    fn shard(&mut self, path: &str, shard: &Shard) -> Result<(), DatasetError> {
        let header = read_header(self.storage, path)?;
        self.is_damaged |= header.damage.is_some();
        let header = header.value;
        let refuse =
            |what: &str| Err(refused(self.storage, path, Refusal::damaged(what)));
        if !shard.has(&header) {
            return refuse("it is another shard than the manifest says");
        }
        let bytes = read_index(self.storage, path, &header)?;
        self.is_damaged |= bytes.damage.is_some();
        let index = Index::decode(&bytes.value, &header)
            .map_err(|refusal| refused(self.storage, path, refusal))?;
        if index.n_samples() != u64::from(shard.n_samples) {
            return refuse("it has more or fewer samples than the manifest says");
        }
        self.samples(path, &index)
    }

    fn samples(&mut self, path: &str, index: &Index<'_>) -> Result<(), DatasetError> {
        let file = self.builder.file(path)?;
        for (number, line) in index.lines().iter().enumerate() {
            if line.kind == RecordKind::Rest {
                continue;
            }
            let extent = Extent { file, offset: line.offset(), len: line.len };
            self.builder.sample(extent, line.label);
            self.checksums.push(line.checksum);
            if line.kind == RecordKind::Blocks {
                let profile = self.builder.profile(index.profile(number))?;
                let mut head = index.head(number).to_vec();
                index::name_profile(&mut head, profile);
                self.builder.head(&head)?;
            }
        }
        Ok(())
    }
}

/// How many names in the store's folder are not the store's.
fn n_foreign(
    storage: &dyn Storage,
    target: &str,
    manifest: &Manifest,
) -> Result<u64, DatasetError> {
    let shards: std::collections::HashSet<&str> =
        manifest.shards.iter().map(|shard| shard.file.as_str()).collect();
    let is_foreign = |entry: &&Entry| {
        let name = entry.name.as_str();
        !MANIFEST_FILES.contains(&name)
            && name != side_index::FOLDER
            && !shards.contains(name)
    };
    Ok(list(storage, target)?.iter().filter(is_foreign).count() as u64)
}

fn refused(storage: &dyn Storage, path: &str, refusal: Refusal) -> DatasetError {
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
