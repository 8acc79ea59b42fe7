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

use std::collections::HashSet;
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
pub const VERSION: u32 = 1;

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
        taking.shard(target, shard)?;
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
    match read_sealed(storage, target, shard, IndexIn::Shard) {
        Ok(value) => {
            let has = format!("it has {len} bytes, not {}", shard.len_bytes);
            let damage = (len != shard.len_bytes)
                .then(|| refused(storage, &path, Refusal::Damaged(has)));
            Ok(Kept { value, damage })
        }
        Err(first) => match read_sealed(storage, target, shard, IndexIn::Copy) {
            Ok(value) => Ok(Kept { value, damage: Some(first) }),
            Err(_) => Err(first),
        },
    }
}

/// One of the two files that hold a shard's index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexIn {
    /// The shard: the index lies where its header says.
    Shard,
    /// The file beside it: the index lies right behind the header.
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
        let another = "it is another shard than the manifest says";
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

/// The original files of the samples of the shard at `path`, each with where its record begins,
/// in that order: for messages, because a table does not keep names. Blocks on the storage;
/// `None` where they are not to be found.
#[must_use]
pub fn original_names(storage: &dyn Storage, path: &str) -> Option<Vec<(u64, String)>> {
    let (target, file) = path.rsplit_once('/').unwrap_or(("", path));
    let manifest = read_manifest(storage, target).ok()?.value;
    let shard = manifest.shards.iter().find(|shard| shard.file() == file)?;
    let sealed = read_index(storage, target, shard).ok()?.value;
    let index = Index::decode(&sealed.index, &sealed.header).ok()?;
    let samples = index.lines().iter().filter(|line| line.kind != RecordKind::Rest);
    let named = samples.map(|line| (line.offset(), index.name(line.name).to_owned()));
    let mut names: Vec<(u64, String)> = named.collect();
    names.sort_unstable();
    Some(names)
}

/// The table in the making.
struct Taking<'a> {
    storage: &'a dyn Storage,
    builder: TableBuilder,
    checksums: Vec<u64>,
    is_damaged: bool,
}

impl Taking<'_> {
    fn shard(&mut self, target: &str, shard: &Shard) -> Result<(), DatasetError> {
        let Kept { value: sealed, damage } = read_index(self.storage, target, shard)?;
        self.is_damaged |= damage.is_some();
        let path = path::join(target, &shard.file());
        let index = Index::decode(&sealed.index, &sealed.header)
            .map_err(|refusal| refused(self.storage, &path, refusal))?;
        self.samples(&path, &index)
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
    let shards: HashSet<String> =
        manifest.shards.iter().flat_map(|s| [s.file(), s.index_file()]).collect();
    let is_foreign = |entry: &&Entry| {
        let name = entry.name.as_str();
        !MANIFEST_FILES.contains(&name)
            && !side_index::is_segment(name)
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
