//! Packing: records are made on several threads and written in the source's order.
//!
//! Thread *t* of *n* makes the records *t*, *t + n*, *t + 2n*, … and passes them on through its own
//! short queue; the writer takes from the queues round-robin. The bytes of the store therefore do
//! not depend on the number of threads, no thread runs far ahead, and nothing has to be sorted.
//!
//! What a killed attempt left is used again, because its finished shards state which records they
//! have. A shard with other records is never touched. `ahead.rs` has the threads.

mod ahead;

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use bothends_dataset::store::{Index, MANIFEST_FILES, Manifest, Shard};
use bothends_io::open_regular;

use self::ahead::make_all;
use crate::folder::{Lock, make, names, sync};
use crate::opened::read_stored;
use crate::record::Made;
use crate::shard::{ShardWriter, name_of, read_back, write_whole};
use crate::source::stored::{differ, item};
use crate::source::{Progress, Source};
use crate::{OpenStore, PackError};

/// Whether the store is new or added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// A folder that is empty, or has the remains of an attempt to pack the same.
    New,
    /// A store: new shards follow the existing ones.
    Append,
}

/// How a store is packed.
#[derive(Debug, Clone, Copy)]
pub struct PackConfig {
    /// Whether the store is new or added to.
    pub destination: Destination,
    /// A shard ends before the record that would make it longer than this.
    pub shard_bytes: u64,
    /// The number of threads that make records, at least one.
    pub n_threads: usize,
}

impl Default for PackConfig {
    fn default() -> Self {
        let n_threads = thread::available_parallelism().map_or(1, usize::from);
        Self { destination: Destination::New, shard_bytes: 1 << 30, n_threads }
    }
}

/// What was packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The store's manifest.
    pub manifest: Manifest,
    /// The final progress.
    pub progress: Progress,
}

/// Packs the records of `source` into the folder `folder`, and reports progress to `observer` after
/// every record. Spawns threads and joins them. Everything written is on the disk when this returns.
///
/// # Errors
/// [`PackError`]; finished shards stay, and the next attempt continues after them.
pub fn pack(
    source: &dyn Source,
    folder: &Path,
    config: &PackConfig,
    observer: &mut dyn FnMut(Progress),
) -> Result<Packed, PackError> {
    make(folder)?;
    let _lock = Lock::take(folder)?;
    let mut manifest = match config.destination {
        Destination::New => begin(source, folder)?,
        Destination::Append => joined(source, &OpenStore::new(folder)?)?,
    };
    let n_records = source.n_records() as u64;
    let mut progress = Progress { n_records, ..Progress::default() };
    while let Some(shard) =
        finished(source, folder, manifest.shards.len(), &mut progress)?
    {
        manifest.shards.push(shard);
        progress.n_found_done = progress.n_done;
        observer(progress);
    }
    observer(progress);
    let left = left(source, folder, (&manifest.shards, progress.n_done))?;
    let mut writing = Writing {
        folder: folder.to_owned(),
        shard_bytes: config.shard_bytes,
        shard: None,
        shards: manifest.shards,
    };
    let first = usize::try_from(progress.n_done).unwrap_or(usize::MAX);
    make_all(source, config.n_threads, first, &mut |made| {
        writing.push(&made)?;
        progress.n_done += 1;
        progress.original_bytes += u64::from(made.item.len);
        progress.stored_bytes += made.stored.len() as u64;
        observer(progress);
        Ok(())
    })?;
    manifest.shards = writing.finish()?;
    remove_left(folder, &left, &manifest)?;
    sync(folder)?;
    // The manifest comes last: a store that has it is complete, after a power failure, too.
    let bytes = manifest.encode();
    for name in MANIFEST_FILES.iter().rev() {
        write_whole(folder, name, &bytes)?;
    }
    sync(folder)?;
    Ok(Packed { manifest, progress })
}

/// The manifest of a store without shards.
fn begin(source: &dyn Source, folder: &Path) -> Result<Manifest, PackError> {
    let is_number = |stem: &str| stem.bytes().all(|byte| byte.is_ascii_digit());
    let is_ours = |name: &&String| {
        let stem = name.strip_suffix(".shard").or_else(|| name.strip_suffix(".index"));
        let is_part = name.starts_with('.') && name.ends_with(".part");
        is_part || MANIFEST_FILES.contains(&name.as_str()) || stem.is_some_and(is_number)
    };
    let found = names(folder)?;
    let folder = folder.to_owned();
    if let Some(name) = found.iter().find(|name| !is_ours(name)) {
        return Err(PackError::NotEmpty { folder, name: name.clone() });
    }
    if found.iter().any(|name| name == MANIFEST_FILES[0]) {
        return Err(PackError::AlreadyStore { folder });
    }
    let (encoding, classes) = (source.encoding(), source.classes());
    Ok(Manifest { encoding, classes, shards: Vec::new() })
}

/// The manifest of a store to which `source` may be added.
fn joined(source: &dyn Source, store: &OpenStore) -> Result<Manifest, PackError> {
    let manifest = store.manifest();
    let shown = format!("`{}`", store.folder().display());
    if let Some(what) = differ(manifest, source.encoding(), &source.classes()) {
        return Err(PackError::Differ { one: shown, other: source.name(), what });
    }
    let indices = store.indices();
    let names = indices
        .iter()
        .flat_map(|index| index.lines().iter().map(|line| index.name(line.name)));
    let known: HashSet<&str> = names.collect();
    for number in 0..source.n_records() {
        let path = source.item(number).path;
        if known.contains(path.as_str()) {
            return Err(PackError::SameFile { one: shown, other: source.name(), path });
        }
    }
    Ok(manifest.clone())
}

/// Shard `number`, if an earlier attempt has finished it. Its records are counted, read and verified
/// against their checksums; the copy of its index is rewritten if necessary.
fn finished(
    source: &dyn Source,
    folder: &Path,
    number: usize,
    progress: &mut Progress,
) -> Result<Option<Shard>, PackError> {
    let Some((shard, sealed)) = read_back(folder, &name_of(number))? else {
        return Ok(None);
    };
    let path = folder.join(shard.file());
    let index = Index::decode(&sealed.index, &sealed.header).map_err(|refusal| {
        PackError::Refused { path: path.display().to_string(), refusal }
    })?;
    let file = open_regular(&path).map_err(PackError::at("open", &path))?;
    // A file keeps its creation time when it is renamed.
    let begun = file.metadata().and_then(|found| found.created().or(found.modified()));
    let begun = begun.map_err(PackError::at("open", &path))?;
    let first = usize::try_from(progress.n_done).unwrap_or(usize::MAX);
    let mut stored = Vec::new();
    for (record, line) in index.lines().iter().enumerate() {
        let number = first.saturating_add(record);
        if number >= source.n_records() || item(&index, record) != source.item(number) {
            return Err(PackError::OtherShard { path, source_name: source.name() });
        }
        if source.has_changed_since(number, begun)? {
            let name = index.name(line.name).to_owned();
            return Err(PackError::ChangedSince { path: name, shard: path });
        }
        if read_stored(&file, line, &mut stored).is_err() {
            return Err(PackError::DamagedSince { shard: path, record });
        }
        progress.original_bytes += u64::from(line.original_len);
        progress.stored_bytes += u64::from(line.len);
    }
    progress.n_done += index.lines().len() as u64;
    let copy = [&sealed.header.encode()[..], &sealed.index].concat();
    let beside = folder.join(shard.index_file());
    if fs::read(&beside).ok().is_none_or(|found| found != copy) {
        write_whole(folder, &shard.index_file(), &copy)?;
    }
    Ok(Some(shard))
}

/// The shards that earlier attempts finished after the first one that is missing, which the store will not have:
/// others take their names. Those before it are `shards`, with `n_done` records of the source.
///
/// # Errors
/// [`PackError::OtherShard`] where they do not hold later records, in the same order.
fn left(
    source: &dyn Source,
    folder: &Path,
    (shards, n_done): (&[Shard], u64),
) -> Result<Vec<String>, PackError> {
    let known: HashSet<String> = shards.iter().map(Shard::file).collect();
    let is_left = |name: &String| {
        let is_later = |number| number > shards.len() && name_of(number) == *name;
        name.parse().is_ok_and(is_later) && !known.contains(&format!("{name}.shard"))
    };
    let names = names(folder)?;
    let stems = names.iter().filter_map(|name| name.strip_suffix(".shard"));
    let left: Vec<String> = stems.map(str::to_owned).filter(is_left).collect();
    let mut next = usize::try_from(n_done).unwrap_or(usize::MAX);
    for name in &left {
        let Some((shard, sealed)) = read_back(folder, name)? else { continue };
        let path = folder.join(shard.file());
        let index = Index::decode(&sealed.index, &sealed.header).map_err(|refusal| {
            PackError::Refused { path: path.display().to_string(), refusal }
        })?;
        for record in 0..index.lines().len() {
            let item = item(&index, record);
            let found = (next..source.n_records()).find(|at| source.item(*at) == item);
            let Some(found) = found else {
                return Err(PackError::OtherShard { path, source_name: source.name() });
            };
            next = found + 1;
        }
    }
    Ok(left)
}

/// Removes those of them whose names no shard of the store has taken.
fn remove_left(
    folder: &Path,
    left: &[String],
    manifest: &Manifest,
) -> Result<(), PackError> {
    let known: HashSet<String> = manifest.shards.iter().map(Shard::file).collect();
    let files =
        left.iter().map(|name| (format!("{name}.shard"), format!("{name}.index")));
    for (shard, index) in files.filter(|(shard, _)| !known.contains(shard)) {
        for path in [folder.join(shard), folder.join(index)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(PackError::at("remove", &path))?,
            }
        }
    }
    Ok(())
}

/// Shards being written, one after the other.
#[derive(Debug)]
struct Writing {
    folder: PathBuf,
    shard_bytes: u64,
    shard: Option<ShardWriter>,
    shards: Vec<Shard>,
}

impl Writing {
    fn push(&mut self, made: &Made) -> Result<(), PackError> {
        let has_room =
            |shard: &ShardWriter| shard.has_room(made.stored.len(), self.shard_bytes);
        if self.shard.as_ref().is_some_and(|shard| !has_room(shard))
            && let Some(full) = self.shard.take()
        {
            self.shards.push(full.finish()?);
        }
        let shard = match self.shard.take() {
            Some(shard) => shard,
            None => ShardWriter::new(&self.folder, self.shards.len())?,
        };
        self.shard.insert(shard).push(made)
    }

    fn finish(mut self) -> Result<Vec<Shard>, PackError> {
        if let Some(last) = self.shard {
            self.shards.push(last.finish()?);
        }
        Ok(self.shards)
    }
}

#[cfg(test)]
mod tests;
