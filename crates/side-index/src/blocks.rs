//! The block cache: images of a data set as a store has them, transcoded while a host was idle.
//!
//! **On disk.** A data set has a folder of segments in the cache directory (`folder`). A segment is
//! written by one process, without a name until it is complete: a killed process leaves nothing. Then it
//! is sealed, gets its name and never changes, so processes read each other's segments without locks. One
//! file for each image would cost millions of inodes; one growing file would need a lock between
//! processes, and a log to tell after a crash how far it is valid. Nothing is synced: a segment that
//! a power failure left incomplete has a wrong seal, and blocks are checked wherever they are read.
//!
//! **Full.** A full cache takes no more, and evicts nothing of its own data set: every epoch uses each
//! record once, in another order, so the record that was used last is the one that is needed last, and any
//! record that is evicted is worth as much as the one that replaces it. A segment goes as a whole if most
//! of its records are of no use any more (their files have changed, or newer segments have them), or if
//! one of its records turns out to be damaged. Other data sets' segments go if there is no room, those
//! that were not written to for the longest time first.
//!
//! **Bound.** Segments with names stay within the limit, whoever writes them. One without a name, of each
//! process that writes, may come on top while it grows: a 64th of the limit, or 16 MiB if that is more.
//!
//! Threads of the lowest priority write here, so one that reads never waits for a lock: what is locked
//! counts as absent.

mod known;

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};

use bothends_dataset::block_cache::{
    self as form, Directory, EXTENSION, HEADER_BYTES, NewRecord, Outline, PREFIX,
    is_segment,
};
use bothends_io::{Direct, Draft, IoError, OpenFile, free_bytes, open_own};
use serde::Serialize;

use self::known::{Known, Place, Segment};
use crate::folder::{BlocksFolder, Cache};
use crate::index::Name;
use crate::key::Use;

/// A segment ends at this part of the limit, within these bytes: a run that is killed loses no more.
const SEGMENT_PART: u64 = 64;
const LEAST_SEGMENT_BYTES: u64 = 16 << 20;
const MOST_SEGMENT_BYTES: u64 = 1 << 30;

/// At the end of an epoch, a segment of at least this part of its size gets its name.
const WORTH_A_NAME: u64 = 16;

/// The most segments that are kept: each is an open file.
const MAX_SEGMENTS: usize = 512;

/// Images as a store has them.
#[derive(Debug)]
pub struct BlockCache {
    folder: BlocksFolder,
    direct: Direct,
    known: RwLock<Known>,
    growing: Mutex<Growing>,
    /// Whether more may be kept. Stands alone: no other memory is published through it.
    takes_more: AtomicBool,
    counts: Counts,
}

/// Counters that stand alone.
#[derive(Debug, Default)]
struct Counts {
    kept: AtomicU64,
    read: AtomicU64,
    read_bytes: AtomicU64,
    damaged: AtomicU64,
}

/// A segment being written.
#[derive(Debug)]
enum Growing {
    Nothing,
    Segment(Writing),
    /// Why nothing more is written.
    Stopped(String),
}

#[derive(Debug)]
struct Writing {
    draft: Draft,
    /// Its number among the known ones.
    segment: u32,
    /// Where the next record begins.
    offset: u64,
    /// Where the segment must end, its directory included.
    end: u64,
}

/// A record that was found.
#[derive(Debug, Clone)]
pub struct CachedBlocks {
    /// The segment that it lies in.
    pub file: Arc<OpenFile>,
    /// Where its row groups begin.
    pub offset: u64,
    /// What a decoder must know besides them.
    pub outline: Outline,
}

/// A transcoded image.
#[derive(Debug, Clone, Copy)]
pub struct NewBlocks<'a> {
    /// Its profile (`docs/store-format.md`, section 4).
    pub profile: &'a [u8],
    /// Its head, which names no profile yet.
    pub head: &'a [u8],
    /// Its row groups.
    pub groups: &'a [u8],
}

/// Whether a transcoded image was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// It was.
    Kept,
    /// It does not fit the form; others may.
    Unfit,
    /// It was not, and nothing more will be.
    Stopped,
}

/// What the block cache has, and has done for this process.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BlockCacheStats {
    /// Where segments are kept.
    pub folder: String,
    /// Bytes of this data set's segments.
    pub bytes: u64,
    /// The most bytes of the segments of all data sets.
    pub limit_bytes: u64,
    /// Records that can be read.
    pub records: u64,
    /// Images that this process has transcoded.
    pub transcoded: u64,
    /// Records that this process has read, and their bytes.
    pub read: u64,
    /// Bytes of these.
    pub read_bytes: u64,
    /// Records that were damaged: their images were decoded from their files.
    pub damaged: u64,
    /// Why nothing is transcoded; `None` while images are.
    pub off: Option<String>,
}

impl BlockCache {
    /// What there is for the data whose root is the folder `data`. Blocks on the file system; creates
    /// nothing. `None` for a user who has no key, and cannot get one.
    #[must_use]
    pub fn open(data: &Path, cache: Cache, direct: Direct) -> Option<Self> {
        let folder = BlocksFolder::of(data, cache)?;
        let cache = Self {
            folder,
            direct,
            known: RwLock::default(),
            growing: Mutex::new(Growing::Nothing),
            takes_more: AtomicBool::new(true),
            counts: Counts::default(),
        };
        cache.look();
        Some(cache)
    }

    /// The record with this name. Never waits; reads nothing from the disk.
    #[must_use]
    pub fn find(&self, name: Name) -> Option<CachedBlocks> {
        let [key, stamp] = name.parts();
        let known = self.known.try_read().ok()?;
        let Place { segment, line } = *known.places.get(&key)?;
        let segment = known.segments.get(segment as usize)?;
        let file = segment.file.as_ref()?;
        let found = segment.directory.lines().get(line as usize)?;
        if found.stamp != stamp {
            segment.n_stale.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        segment.n_found.fetch_add(1, Ordering::Relaxed);
        let outline = segment.directory.outline(line as usize)?;
        Some(CachedBlocks { file: Arc::clone(file), offset: found.offset, outline })
    }

    /// Whether a record with this name is known; false also where that would take a wait.
    #[must_use]
    pub fn has(&self, name: Name) -> bool {
        let [key, stamp] = name.parts();
        let Ok(known) = self.known.try_read() else { return false };
        let line = known.places.get(&key).and_then(|place| {
            let segment = known.segments.get(place.segment as usize)?;
            segment.directory.lines().get(place.line as usize)
        });
        line.is_some_and(|line| line.stamp == stamp)
    }

    /// So many bytes of a record were read.
    pub fn was_read(&self, n_bytes: u64) {
        self.counts.read.fetch_add(1, Ordering::Relaxed);
        self.counts.read_bytes.fetch_add(n_bytes, Ordering::Relaxed);
    }

    /// Whether more may be kept.
    #[must_use]
    pub fn takes_more(&self) -> bool {
        self.takes_more.load(Ordering::Relaxed)
    }

    /// Keeps nothing more, and says why; what there is can still be read.
    pub fn stop(&self, why: String) {
        self.takes_more.store(false, Ordering::Relaxed);
        let mut growing = self.growing();
        if matches!(*growing, Growing::Nothing) {
            *growing = Growing::Stopped(why);
        }
    }

    /// Keeps a transcoded image; blocks on the disk.
    pub fn keep(&self, name: Name, blocks: &NewBlocks<'_>) -> Keeping {
        let Ok(len) = u32::try_from(blocks.groups.len()) else { return Keeping::Unfit };
        let [key, stamp] = name.parts();
        let NewBlocks { profile, head, .. } = *blocks;
        let record = NewRecord { key, stamp, profile, head, len };
        let mut growing = self.growing();
        match self.write(&mut growing, &record, blocks.groups) {
            Ok(keeping) => keeping,
            Err(why) => {
                self.takes_more.store(false, Ordering::Relaxed);
                // On a full disk, others need the room more.
                if let Growing::Segment(writing) = &*growing {
                    self.known_mut().give_up(writing.segment as usize);
                }
                *growing = Growing::Stopped(why);
                Keeping::Stopped
            }
        }
    }

    /// A record was not what it should have been: it is forgotten, and its segment removed from the disk.
    /// Other records in it can be read as long as this process runs.
    pub fn forget(&self, name: Name) {
        self.counts.damaged.fetch_add(1, Ordering::Relaxed);
        let [key, _] = name.parts();
        let mut known = self.known_mut();
        let Some(place) = known.places.remove(&key) else { return };
        let Some(segment) = known.segments.get_mut(place.segment as usize) else {
            return;
        };
        segment.n_live = segment.n_live.saturating_sub(1);
        if let Some(path) = segment.path.take() {
            // If it cannot be removed, the next process finds the damage again.
            let _ = std::fs::remove_file(path);
        }
    }

    /// At the end of an epoch: a segment that is worth it gets its name, others' new segments are
    /// looked at, and those go that are of no use any more. Blocks on the disk.
    pub fn settle(&self) {
        let least = segment_bytes(self.folder.limit_bytes()) / WORTH_A_NAME;
        let mut growing = self.growing();
        if matches!(&*growing, Growing::Segment(writing) if writing.offset >= least) {
            self.publish(&mut growing);
        }
        drop(growing);
        self.prune();
        self.look();
    }

    /// What it has, and has done.
    #[must_use]
    pub fn stats(&self) -> BlockCacheStats {
        let (bytes, records) = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            let open = known.segments.iter().filter(|segment| segment.file.is_some());
            (open.map(|s| s.len_bytes).sum(), known.places.len() as u64)
        };
        let off = match &*self.growing() {
            Growing::Stopped(why) => Some(why.clone()),
            Growing::Nothing | Growing::Segment(_) => None,
        };
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BlockCacheStats {
            folder: self.folder.path.display().to_string(),
            bytes,
            limit_bytes: self.folder.limit_bytes(),
            records,
            transcoded: count(&self.counts.kept),
            read: count(&self.counts.read),
            read_bytes: count(&self.counts.read_bytes),
            damaged: count(&self.counts.damaged),
            off,
        }
    }

    fn growing(&self) -> MutexGuard<'_, Growing> {
        self.growing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_mut(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a record to the growing segment, or to a new one.
    fn write(
        &self,
        growing: &mut Growing,
        record: &NewRecord<'_>,
        groups: &[u8],
    ) -> Result<Keeping, String> {
        if let Growing::Segment(writing) = growing
            && !self.has_room(writing, record)
        {
            self.publish(growing);
        }
        if matches!(growing, Growing::Nothing) {
            *growing = Growing::Segment(self.begin(record)?);
        }
        let Growing::Segment(writing) = growing else { return Ok(Keeping::Stopped) };
        let said = |e: IoError| format!("the cache cannot be written ({})", whole(&e));
        writing.draft.write_at(groups, writing.offset).map_err(said)?;
        let mut known = self.known_mut();
        let Some(segment) = known.segments.get_mut(writing.segment as usize) else {
            return Ok(Keeping::Stopped);
        };
        if !segment.directory.push(record, writing.offset) {
            return Ok(Keeping::Unfit);
        }
        writing.offset = writing.offset.saturating_add(record.len.into());
        segment.len_bytes = writing.offset;
        let line = segment.directory.lines().len().saturating_sub(1);
        known.place(record.key, writing.segment, line);
        drop(known);
        self.counts.kept.fetch_add(1, Ordering::Relaxed);
        Ok(Keeping::Kept)
    }

    fn has_room(&self, writing: &Writing, record: &NewRecord<'_>) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let directory = known.segments.get(writing.segment as usize);
        let n_bytes = directory.map_or(0, |segment| segment.directory.n_bytes() as u64);
        let more = with_line(record);
        writing.offset.saturating_add(n_bytes).saturating_add(more) <= writing.end
    }

    /// A new segment with room for this record, or why there is none.
    fn begin(&self, record: &NewRecord<'_>) -> Result<Writing, String> {
        let limit_bytes = self.folder.limit_bytes();
        let end = self.folder.make_room().min(segment_bytes(limit_bytes));
        if end < with_line(record) + HEADER_BYTES as u64 {
            return Err("the cache is full".to_owned());
        }
        let said = |e: IoError| format!("the cache cannot be written ({})", whole(&e));
        let draft = self.folder.begin().map_err(said)?;
        // Where the system does not say, a full disk will.
        let free = free_bytes(&self.folder.path).unwrap_or(u64::MAX);
        if free / 2 < end {
            return Err(format!(
                "the disk of {} has only {} MiB left",
                self.folder.path.display(),
                free >> 20
            ));
        }
        let file = Arc::new(draft.reading(self.direct).map_err(said)?);
        let mut known = self.known_mut();
        let segment = u32::try_from(known.segments.len()).unwrap_or(u32::MAX);
        known.segments.push(Segment::new(file, None, Directory::default()));
        Ok(Writing { draft, segment, offset: HEADER_BYTES as u64, end })
    }

    /// Gives the growing segment its name, without what others have left no room for. One that cannot be
    /// published is given up.
    fn publish(&self, growing: &mut Growing) {
        let Growing::Segment(writing) = std::mem::replace(growing, Growing::Nothing)
        else {
            return;
        };
        let number = writing.segment as usize;
        let room = self.folder.make_room();
        let Some(directory) = self.known_mut().cut(number, room) else { return };
        match self.seal(writing.draft, &directory) {
            Ok((path, len_bytes)) => {
                let mut known = self.known_mut();
                known.names.extend(name_of(&path));
                if let Some(segment) = known.segments.get_mut(number) {
                    segment.path = Some(path);
                    segment.len_bytes = len_bytes;
                    segment.directory.shrink();
                }
            }
            Err(error) => {
                self.takes_more.store(false, Ordering::Relaxed);
                self.known_mut().give_up(number);
                let why = format!("the cache cannot be written ({})", whole(&error));
                *growing = Growing::Stopped(why);
            }
        }
    }

    /// Completes a segment on the disk.
    fn seal(
        &self,
        draft: Draft,
        directory: &Directory,
    ) -> Result<(PathBuf, u64), IoError> {
        let last = directory.lines().last();
        let start = last.map_or(0, |line| line.offset.saturating_add(line.len.into()));
        let encoded = directory.encode();
        let key = &self.folder.key;
        let header = form::header(directory, &encoded, start, |parts| {
            key.seal(Use::Blocks, parts)
        });
        draft.write_at(&encoded, start)?;
        let len_bytes = start.saturating_add(encoded.len() as u64);
        draft.cut(len_bytes)?;
        draft.write_at(&header, 0)?;
        let path = draft.publish(PREFIX, EXTENSION)?;
        // Where a file system gives it to somebody else nobody would ever read it.
        if let Err(error) = open_own(&path) {
            let _ = std::fs::remove_file(&path);
            return Err(IoError::Failed { path, doing: "open", source: error });
        }
        Ok((path, len_bytes))
    }

    /// Reads the segments in the folder that are new, oldest first: what is newer counts. Where there
    /// are too many the oldest are removed.
    fn look(&self) {
        let entries = std::fs::read_dir(&self.folder.path).into_iter().flatten();
        let names =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| is_segment(name)).collect();
        names.sort_unstable();
        let n_old = names.len().saturating_sub(MAX_SEGMENTS);
        for name in names.drain(..n_old) {
            let _ = std::fs::remove_file(self.folder.path.join(name));
        }
        for name in names {
            let is_new = self.known_mut().names.insert(name.clone());
            let path = self.folder.path.join(name);
            if !is_new {
                continue;
            }
            if let Ok(segment) = self.read(&path) {
                self.known_mut().add(segment);
            }
        }
    }

    /// A file of others is refused with its name: its blocks are not covered by the seal, and could be
    /// written at any time.
    fn read(&self, path: &Path) -> io::Result<Segment> {
        let file = open_own(path)?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        let len = file.metadata()?.len();
        let range = form::directory_range(&header, len).map_err(io::Error::other)?;
        let n_bytes =
            usize::try_from(range.end - range.start).map_err(io::Error::other)?;
        let mut bytes = vec![0; n_bytes];
        file.read_exact_at(&mut bytes, range.start)?;
        let key = &self.folder.key;
        let is_ours =
            |parts: [&[u8]; 2], seal: &[u8; 32]| key.fits(Use::Blocks, parts, seal);
        let directory =
            form::directory(&header, &bytes, is_ours).map_err(io::Error::other)?;
        let file = OpenFile::again(&file, self.direct).map_err(io::Error::other)?;
        let path = Some(path.to_owned());
        Ok(Segment { len_bytes: len, ..Segment::new(Arc::new(file), path, directory) })
    }

    /// Gives up segments that are of no use any more.
    fn prune(&self) {
        let mut known = self.known_mut();
        for number in 0..known.segments.len() {
            let segment = &mut known.segments[number];
            if !segment.is_useless() {
                continue;
            }
            if let Some(path) = segment.path.take() {
                let _ = std::fs::remove_file(path);
            }
            known.give_up(number);
        }
    }
}

/// What is new is not lost if a run ends in the middle of an epoch.
impl Drop for BlockCache {
    fn drop(&mut self) {
        let mut growing = std::mem::replace(&mut *self.growing(), Growing::Nothing);
        self.publish(&mut growing);
    }
}

/// How long a segment may be where so many bytes are the limit of all.
fn segment_bytes(limit_bytes: u64) -> u64 {
    (limit_bytes / SEGMENT_PART).clamp(LEAST_SEGMENT_BYTES, MOST_SEGMENT_BYTES)
}

/// Bytes that a record adds to its segment, at most.
fn with_line(record: &NewRecord<'_>) -> u64 {
    let directory = record.head.len() + record.profile.len() + 2 * form::LINE_BYTES;
    u64::from(record.len).saturating_add(directory as u64)
}

fn name_of(path: &Path) -> Option<String> {
    path.file_name()?.to_str().map(str::to_owned)
}

/// An error with its cause, in one line.
fn whole(error: &IoError) -> String {
    use std::error::Error;
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::blocks::{
        Colour, Component, GroupLengths, RowLengths, write_profile,
    };
    use bothends_core::recipe::Size;

    use super::known::MANY_STALE;
    use super::*;

    /// A cache of at most so many bytes of the data at `root`.
    fn cache(root: &Path, limit_bytes: u64) -> BlockCache {
        let data = root.join("data");
        std::fs::create_dir_all(&data).unwrap();
        let cache = Cache { root: root.join("blocks"), limit_bytes };
        BlockCache::open(&data, cache, Direct::Off).unwrap()
    }

    fn name(n: u64) -> Name {
        Name::exactly(n, (n, 5), 6)
    }

    /// Keeps record `n`: one row group of so many bytes.
    fn keep(cache: &BlockCache, n: u64, n_bytes: usize) -> Keeping {
        let mut profile = Vec::new();
        let component = Component { h: 1, v: 1, table: 0 };
        write_profile(Colour::Grey, &[component], &[[3; 64]], &mut profile);
        let lengths = GroupLengths::new(&[n_bytes]).unwrap();
        let size = Size { height: 16, width: 8 };
        let head = lengths.head(size, 0, RowLengths::Narrow).unwrap();
        let groups = vec![u8::try_from(n % 251).unwrap(); n_bytes];
        let blocks = NewBlocks { profile: &profile, head: &head, groups: &groups };
        cache.keep(name(n), &blocks)
    }

    /// Whether record `n` is found, as it was kept.
    fn is_found(cache: &BlockCache, n: u64) -> bool {
        let Some(found) = cache.find(name(n)) else { return false };
        let blocks = found.outline.blocks().unwrap();
        assert_eq!(blocks.head().n_groups(), 1);
        let n_bytes = usize::try_from(blocks.head().bytes_of(0..1).end).unwrap();
        // Opened by its number: the file may have no name.
        let mut bytes = vec![0; n_bytes];
        let file = std::fs::File::open(found.file.path()).unwrap();
        file.read_exact_at(&mut bytes, found.offset).unwrap();
        bytes.iter().all(|&byte| u64::from(byte) == n % 251)
    }

    fn segments(cache: &BlockCache) -> Vec<PathBuf> {
        let listed = std::fs::read_dir(&cache.folder.path).into_iter().flatten();
        let paths = listed.map(|entry| entry.unwrap().path());
        let mut paths: Vec<_> =
            paths.filter(|path| is_segment(&name_of(path).unwrap())).collect();
        paths.sort();
        paths
    }

    #[test]
    fn what_is_kept_is_found_at_once_and_by_the_next_process() {
        let root = tempfile::tempdir().unwrap();
        let first = cache(root.path(), 1 << 30);
        assert!(!is_found(&first, 7));
        assert_eq!(keep(&first, 7, 510), Keeping::Kept);
        assert_eq!(keep(&first, 8, 255), Keeping::Kept);
        assert!(first.has(name(7)) && first.find(name(7)).is_some());
        assert!(segments(&first).is_empty(), "it grows without a name");
        drop(first);
        let next = cache(root.path(), 1 << 30);
        assert!(next.has(name(7)) && next.has(name(8)) && !next.has(name(9)));
        assert!(next.find(Name::exactly(7, (7, 5), 7)).is_none(), "changed since");
        assert_eq!((next.stats().records, segments(&next).len()), (2, 1));
    }

    #[test]
    fn two_processes_add_to_one_cache_and_neither_removes_what_both_have() {
        let root = tempfile::tempdir().unwrap();
        let [a, b] = [cache(root.path(), 1 << 30), cache(root.path(), 1 << 30)];
        for n in 0..40 {
            keep(&a, n, 255);
            keep(&b, n + 20, 255);
        }
        for cache in [a, b] {
            cache.publish(&mut cache.growing());
            for _ in 0..3 {
                cache.settle();
            }
            assert!(cache.has(name(1)) || cache.has(name(59)));
        }
        let third = cache(root.path(), 1 << 30);
        assert!((0..60).all(|n| third.has(name(n))), "{:?}", third.stats());
    }

    #[test]
    fn the_bound_holds_and_a_full_cache_takes_no_more() {
        let root = tempfile::tempdir().unwrap();
        let limit = 200_000;
        let caches = [cache(root.path(), limit), cache(root.path(), limit)];
        let kept = (0..100).filter(|n| keep(&caches[0], *n, 10_200) == Keeping::Kept);
        assert!((10..20).contains(&kept.count()));
        assert!(caches[0].stats().off.unwrap().contains("full"));
        assert!(!caches[0].takes_more());
        // Another one that began before that was there.
        for n in 0..100 {
            keep(&caches[1], n + 1000, 10_200);
        }
        drop(caches);
        let after = cache(root.path(), limit);
        let on_disk: u64 =
            segments(&after).iter().map(|path| path.metadata().unwrap().len()).sum();
        assert!(on_disk <= limit && on_disk > limit / 2, "{on_disk}");
        assert!((0..10).all(|n| after.has(name(n))));
    }

    #[test]
    fn a_damaged_record_is_forgotten_and_its_segment_removed() {
        let root = tempfile::tempdir().unwrap();
        let first = cache(root.path(), 1 << 30);
        keep(&first, 1, 255);
        keep(&first, 2, 255);
        drop(first);
        let second = cache(root.path(), 1 << 30);
        second.forget(name(1));
        assert!(!second.has(name(1)) && second.has(name(2)));
        assert!(segments(&second).is_empty());
        keep(&second, 1, 255);
        drop(second);
        let third = cache(root.path(), 1 << 30);
        assert!(third.has(name(1)) && !third.has(name(2)));
        assert_eq!(third.stats().damaged, 0);
    }

    #[test]
    fn a_segment_of_outdated_records_goes() {
        let root = tempfile::tempdir().unwrap();
        let first = cache(root.path(), 1 << 30);
        for n in 0..2 * MANY_STALE {
            keep(&first, n, 255);
        }
        drop(first);
        let second = cache(root.path(), 1 << 30);
        (0..2 * MANY_STALE).for_each(|n| drop(second.find(Name::exactly(n, (n, 6), 6))));
        second.settle();
        assert!(segments(&second).is_empty());
        assert_eq!((second.stats().records, second.stats().bytes), (0, 0));
    }

    #[test]
    fn a_broken_segment_and_those_of_others_are_not_read() {
        let root = tempfile::tempdir().unwrap();
        let first = cache(root.path(), 1 << 30);
        keep(&first, 1, 255);
        drop(first);
        let known = || cache(root.path(), 1 << 30).has(name(1));
        let path = segments(&cache(root.path(), 1 << 30)).pop().unwrap();
        let whole = std::fs::read(&path).unwrap();
        for end in [0, 10, 64, 200, whole.len() - 1] {
            std::fs::write(&path, &whole[..end]).unwrap();
            assert!(!known(), "{end} bytes");
        }
        std::fs::write(&path, &whole).unwrap();
        assert!(known());
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(&path, mode).unwrap();
        assert!(!known(), "others may write it");
    }

    #[test]
    fn where_nothing_can_be_written_a_reason_is_given() {
        let root = tempfile::tempdir().unwrap();
        let cache = cache(root.path(), 1 << 30);
        std::fs::write(root.path().join("blocks"), "a file, no folder").unwrap();
        assert_eq!(keep(&cache, 1, 255), Keeping::Stopped);
        let why = cache.stats().off.unwrap();
        assert!(why.contains("cannot be written") && !why.contains('\n'), "{why}");
        assert!(!cache.has(name(1)));
    }
}
