//! Verification: checks every byte of a store.
//!
//! The manifest and the indices are read from both their places, records are verified against their
//! checksums, and padding must be zero. Nothing is decoded: a record with the right checksum is the
//! one that was decoded when it was packed.

use std::fmt::{self, Display, Formatter};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use bothends_dataset::DatasetError;
use bothends_dataset::store::{
    HEADER_BYTES, Index, IndexIn, Line, MANIFEST_FILES, Manifest, Refusal, Sealed, Shard,
    read_manifest, read_sealed,
};
use bothends_io::{Folder, open_regular};
use twox_hash::XxHash3_64;

use crate::opened::{OTHER_CHECKSUM, check_extent, is_store, unread};
use crate::shard::ZEROS;
use crate::{PackError, Progress};

/// Something that has changed since it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file in the store's folder.
    pub file: String,
    /// The record that is lost: its number in the shard, and its original file.
    pub record: Option<(usize, String)>,
    /// What is wrong.
    pub what: String,
}

impl Display for Damage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.record {
            Some((number, path)) => {
                // A name may contain a newline.
                let path = path.replace('\n', "\\n");
                write!(f, "{} record {number} (`{path}`): {}", self.file, self.what)
            }
            None => write!(f, "{}: {}", self.file, self.what),
        }
    }
}

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Everything that is wrong.
    pub damages: Vec<Damage>,
    /// The final progress.
    pub progress: Progress,
}

/// Reads all of the store in `folder`, and reports progress to `observer`. Blocks on storage.
///
/// # Errors
/// [`PackError::NotAStore`]; [`PackError::Dataset`] if neither manifest can be read. Other damage
/// is not an error.
pub fn verify(
    folder: &Path,
    observer: &mut dyn FnMut(Progress),
) -> Result<Verified, PackError> {
    if !is_store(folder) {
        return Err(PackError::NotAStore { folder: folder.to_owned() });
    }
    let storage = Folder(folder.to_owned());
    let mut found = Verified::default();
    let manifest = found.manifests(&storage)?;
    let both = |shard| found.both_indices(&storage, shard);
    let sealed: Vec<Option<Sealed>> = manifest.shards.iter().map(both).collect();
    let indices = sealed.iter().map(|sealed| {
        sealed.as_ref().and_then(|s| Index::decode(&s.index, &s.header).ok())
    });
    let indices: Vec<Option<Index<'_>>> = indices.collect();
    let n_records = |index: &Index<'_>| index.lines().len() as u64;
    found.progress.n_records = indices.iter().flatten().map(n_records).sum();
    for (shard, index) in manifest.shards.iter().zip(&indices) {
        if let Some(index) = index {
            found.records(folder, shard, index, observer);
        }
    }
    Ok(found)
}

impl Verified {
    fn add(&mut self, file: &str, what: impl Display) {
        let (file, what) = (file.to_owned(), what.to_string());
        self.damages.push(Damage { file, record: None, what });
    }

    /// The manifest, and whatever is wrong with either of its files.
    fn manifests(&mut self, storage: &Folder) -> Result<Manifest, PackError> {
        let manifest = read_manifest(storage, "")?.value;
        let [first, copy] = MANIFEST_FILES.map(|name| fs::read(storage.0.join(name)));
        for (name, bytes) in MANIFEST_FILES.iter().zip([&first, &copy]) {
            match bytes.as_deref().map(Manifest::decode) {
                Ok(Ok(_)) => {}
                Ok(Err(refusal)) => self.add(name, reason(&refusal)),
                Err(error) => self.add(name, error),
            }
        }
        if self.damages.is_empty() && first.ok() != copy.ok() {
            let [first, copy] = MANIFEST_FILES;
            self.add(first, format_args!("its bytes are not those of {copy}"));
        }
        Ok(manifest)
    }

    /// The index of a shard, and whatever is wrong with either of its files.
    fn both_indices(&mut self, storage: &Folder, shard: &Shard) -> Option<Sealed> {
        let places =
            [(IndexIn::Shard, shard.file()), (IndexIn::Copy, shard.index_file())];
        let mut sealed = None;
        for (place, file) in places {
            match read_sealed(storage, "", shard, place) {
                Ok(found) => {
                    let copy_bytes = HEADER_BYTES + found.index.len();
                    let len = match place {
                        IndexIn::Shard => shard.len_bytes,
                        IndexIn::Copy => copy_bytes as u64,
                    };
                    let is = fs::metadata(storage.0.join(&file))
                        .map_or(0, |found| found.len());
                    if is != len {
                        self.add(&file, format_args!("it has {is} bytes, not {len}"));
                    }
                    sealed = sealed.or(Some(found));
                }
                Err(error) => self.add(&file, because(&error)),
            }
        }
        if sealed.is_none() {
            let n = shard.n_samples;
            self.add(&shard.file(), format_args!("all of its {n} samples are lost"));
        }
        sealed
    }

    /// The records of a shard.
    fn records(
        &mut self,
        folder: &Path,
        shard: &Shard,
        index: &Index<'_>,
        observer: &mut dyn FnMut(Progress),
    ) {
        let file = match open_regular(&folder.join(shard.file())) {
            Ok(file) => file,
            Err(why) => {
                let n = index.lines().len();
                let what = format_args!("none of its {n} records can be read ({why})");
                return self.add(&shard.file(), what);
            }
        };
        let mut bytes = ZEROS.to_vec();
        let is_page = file.read_exact_at(&mut bytes, 0).is_ok();
        if is_page && bytes[HEADER_BYTES..].iter().any(|&byte| byte != 0) {
            self.add(&shard.file(), "there is something after its header");
        }
        for (number, line) in index.lines().iter().enumerate() {
            if let Err(what) = record(&file, line, &mut bytes) {
                let record = Some((number, index.name(line.name).to_owned()));
                self.damages.push(Damage { file: shard.file(), record, what });
            }
            self.progress.n_done += 1;
            self.progress.original_bytes += u64::from(line.original_len);
            self.progress.stored_bytes += u64::from(line.len);
            observer(self.progress);
        }
    }
}

/// Reads a record and the padding of its last page.
fn record(file: &File, line: &Line, bytes: &mut Vec<u8>) -> Result<(), String> {
    check_extent(file, line)?;
    let len = line.len as usize;
    bytes.resize(len.next_multiple_of(ZEROS.len()), 0);
    file.read_exact_at(bytes, line.offset()).map_err(|error| unread(&error))?;
    let (stored, filling) = bytes.split_at(len);
    if XxHash3_64::oneshot(stored) != line.checksum {
        return Err(OTHER_CHECKSUM.to_owned());
    }
    if filling.iter().any(|&byte| byte != 0) {
        return Err("there is something after it that should be zero".to_owned());
    }
    Ok(())
}

/// What is wrong, without the name of the file.
fn because(error: &DatasetError) -> String {
    if let DatasetError::Store { refusal, .. } = error {
        return reason(refusal);
    }
    std::error::Error::source(error).map_or(error.to_string(), ToString::to_string)
}

/// What is wrong, without a remedy: verification is the remedy already.
fn reason(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Damaged(what) => what.clone(),
        Refusal::Version(_) | Refusal::Feature(_) => refusal.to_string(),
    }
}
