//! The block cache: images of a data set as a store has them, transcoded while a host was idle. Records of
//! remote stores are kept by the same rules (`records.rs`).
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
//! one of its records turns out to be damaged. If there is no room, the segments go of data that no run
//! has opened for two weeks.
//!
//! **Bound.** Segments with names stay within the limit, whoever writes them, except for those that get
//! their names at the same moment. One without a name, of each process that writes, may come on top while it grows: a 64th of the limit, 16 MiB, or one record, whichever is most.
//!
//! Threads of the lowest priority write here, so one that reads never waits for a lock: what is locked
//! counts as absent.

mod known;

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockWriteGuard,
};

use bothends_core::setting::{Names, Setting, advice};
use bothends_dataset::block_cache::{
    self as form, Directory, EXTENSION, HEADER_BYTES, Kind, NewRecord, Outline,
};
use bothends_io::{Direct, Draft, IoError, OpenFile, free_bytes, open_own};
use serde::Serialize;

use self::known::{Known, Place, Segment};
use crate::folder::{BlocksFolder, Cache, unwritten};
use crate::index::Name;
use crate::key::Use;

/// A segment ends at this part of the limit, within these bytes: a run that is killed loses no more. Under
/// large limits it is longer, so that segments stay few.
const SEGMENT_PART: u64 = 64;
const LEAST_SEGMENT_BYTES: u64 = 16 << 20;
const MOST_SEGMENT_BYTES: u64 = 1 << 30;

/// At the end of an epoch, a segment of at least this part of its size gets its name.
const WORTH_A_NAME: u64 = 16;

/// The most segments that are kept: each is an open file. A limit that is reached makes half as many.
const MAX_SEGMENTS: usize = 256;
const FEW_SEGMENTS: u64 = 128;

/// Images as a store has them.
#[derive(Debug)]
pub struct BlockCache {
    kind: Kind,
    folder: BlocksFolder,
    direct: Direct,
    known: RwLock<Known>,
    growing: Mutex<Growing>,
    /// Whether more may be kept. Stands alone: no other memory is published through it.
    takes_more: AtomicBool,
    /// Why not: apart from `growing`, which is locked while somebody writes.
    off: OnceLock<String>,
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
    /// Nothing more is written.
    Stopped,
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
    /// It does not fit the form, or is longer than the whole cache may be; others may fit.
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
    /// nothing but the user's key. `None` for a user who has no key, and cannot get one.
    #[must_use]
    pub fn open(data: &Path, cache: Cache, direct: Direct) -> Option<Self> {
        Some(Self::of(Kind::Blocks, BlocksFolder::of(data, cache)?, direct))
    }

    /// What there is in this folder.
    pub(crate) fn of(kind: Kind, folder: BlocksFolder, direct: Direct) -> Self {
        let cache = Self {
            kind,
            folder,
            direct,
            known: RwLock::default(),
            growing: Mutex::new(Growing::Nothing),
            takes_more: AtomicBool::new(true),
            off: OnceLock::new(),
            counts: Counts::default(),
        };
        cache.look(&cache.growing());
        cache
    }

    /// The record with this name. Never waits; reads nothing from the disk.
    #[must_use]
    pub fn find(&self, name: Name) -> Option<CachedBlocks> {
        self.find_as(name, |file, offset, (directory, line)| {
            let outline = directory.outline(line)?;
            Some(CachedBlocks { file, offset, outline })
        })
    }

    /// The same, as `made` from its file, its offset there, and its line in a directory.
    pub(crate) fn find_as<T>(
        &self,
        name: Name,
        made: impl FnOnce(Arc<OpenFile>, u64, (&Directory, usize)) -> Option<T>,
    ) -> Option<T> {
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
        made(Arc::clone(file), found.offset, (&segment.directory, line as usize))
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
        let mut growing = self.growing();
        if matches!(*growing, Growing::Nothing) {
            *growing = self.stopped(why);
        }
    }

    /// What takes the place of a segment that is not written on, for this reason; the first is told.
    fn stopped(&self, why: String) -> Growing {
        self.takes_more.store(false, Ordering::Relaxed);
        let _ = self.off.set(why);
        Growing::Stopped
    }

    /// Keeps a transcoded image; blocks on the disk.
    pub fn keep(&self, name: Name, blocks: &NewBlocks<'_>) -> Keeping {
        let NewBlocks { profile, head, groups } = *blocks;
        self.keep_as(name, (profile, head), groups)
    }

    /// Keeps these bytes, with what their directory says of them.
    pub(crate) fn keep_as(
        &self,
        name: Name,
        (profile, head): (&[u8], &[u8]),
        bytes: &[u8],
    ) -> Keeping {
        let Ok(len) = u32::try_from(bytes.len()) else { return Keeping::Unfit };
        let [key, stamp] = name.parts();
        let record = NewRecord { key, stamp, profile, head, len };
        if HEADER_BYTES as u64 + with_line(&record) > self.folder.limit_bytes() {
            return Keeping::Unfit;
        }
        let mut growing = self.growing();
        match self.write(&mut growing, &record, bytes) {
            Ok(keeping) => keeping,
            Err(why) => {
                // On a full disk, others need the room more.
                if let Growing::Segment(writing) = &*growing {
                    self.known_mut().give_up(writing.segment as usize);
                }
                *growing = self.stopped(why);
                Keeping::Stopped
            }
        }
    }

    /// A record was not what it should have been: it is forgotten, and its segment removed from the disk.
    /// Other records in it can be read as long as this process runs.
    pub fn forget(&self, name: Name) {
        self.counts.damaged.fetch_add(1, Ordering::Relaxed);
        let [key, _] = name.parts();
        // Locked: whoever reads the record next finds the damage again.
        let Ok(mut known) = self.known.try_write() else { return };
        let Some(place) = known.places.remove(&key) else { return };
        let Some(segment) = known.segments.get_mut(place.segment as usize) else {
            return;
        };
        segment.n_live = segment.n_live.saturating_sub(1);
        let path = segment.path.take();
        drop(known);
        // If it cannot be removed, the next process finds the damage again.
        let _ = path.map(std::fs::remove_file);
    }

    /// At the end of an epoch: a segment that is worth it gets its name, others' new segments are
    /// looked at, and those go that are of no use any more. Blocks on the disk.
    pub fn tidy(&self) {
        let least = segment_bytes(self.folder.limit_bytes()) / WORTH_A_NAME;
        let mut growing = self.growing();
        if matches!(&*growing, Growing::Segment(writing) if writing.offset >= least) {
            self.publish(&mut growing);
        }
        self.prune();
        self.look(&growing);
    }

    /// Looks at others' new segments. Blocks on the disk.
    pub fn catch_up(&self) {
        self.look(&self.growing());
    }

    /// What it has, and has done.
    #[must_use]
    pub fn stats(&self) -> BlockCacheStats {
        let (bytes, records) = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            let open = known.segments.iter().filter(|segment| segment.file.is_some());
            (open.map(|s| s.len_bytes).sum(), known.places.len() as u64)
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
            off: self.off.get().cloned(),
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
        let written = writing.draft.write_at(groups, writing.offset);
        written.map_err(|error| unwritten(&error))?;
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

    /// What segments are sealed for: the seal says what is in them.
    fn sealed(&self) -> Use {
        match self.kind {
            Kind::Blocks => Use::Blocks,
            Kind::Records => Use::Records,
        }
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
        let needed = HEADER_BYTES as u64 + with_line(record);
        let room = self.folder.make_room();
        if room < needed {
            return Err("the cache is full".to_owned());
        }
        // A record that is longer than segments are has a segment of its own.
        let end = room.min(segment_bytes(self.folder.limit_bytes()).max(needed));
        // Whoever reads this may call the setting anything.
        let draft = self.draft(end, |_| "")?;
        let file = Arc::new(draft.reading(self.direct).map_err(|e| unwritten(&e))?);
        let mut known = self.known_mut();
        let segment = u32::try_from(known.segments.len()).unwrap_or(u32::MAX);
        known.segments.push(Segment::new(file, None, Directory::of(self.kind)));
        Ok(Writing { draft, segment, offset: HEADER_BYTES as u64, end })
    }

    /// A file for a segment of so many bytes, or why there is none, with these names of settings.
    fn draft(&self, len_bytes: u64, name: Names) -> Result<Draft, String> {
        let draft = self.folder.begin().map_err(|error| unwritten(&error))?;
        // Where the system does not say, a full disk will.
        let free = free_bytes(&self.folder.path).unwrap_or(u64::MAX);
        if free / 2 < len_bytes {
            return Err(format!(
                "the disk of {} has only {} MiB left, and {} must be free for a cache of {}; give it a \
                 smaller size{}, or another disk",
                self.folder.path.display(),
                free >> 20,
                (2 * len_bytes).div_ceil(1 << 20),
                self.folder.limit_bytes() >> 20,
                advice(name, &[(Setting::CacheSize, " ({})")]).unwrap_or_default()
            ));
        }
        Ok(draft)
    }

    /// Why no segment can be begun here. Blocks on the file system, and makes the directory.
    pub(crate) fn hindrance(&self, name: Names) -> Option<String> {
        self.draft(segment_bytes(self.folder.limit_bytes()), name).err()
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
                self.known_mut().give_up(number);
                *growing = self.stopped(unwritten(&error));
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
            key.seal(self.sealed(), parts)
        });
        draft.write_at(&encoded, start)?;
        let len_bytes = start.saturating_add(encoded.len() as u64);
        draft.cut(len_bytes)?;
        draft.write_at(&header, 0)?;
        let path = draft.publish(self.kind.prefix(), EXTENSION)?;
        // Where a file system gives it to somebody else nobody would ever read it.
        if let Err(error) = open_own(&path) {
            let _ = std::fs::remove_file(&path);
            return Err(IoError::Failed { path, doing: "open", source: error });
        }
        Ok((path, len_bytes))
    }

    /// Reads the segments in the folder that are new, oldest first: what is newer counts. Where there
    /// are too many the oldest are removed. Meanwhile none gets its name here: it has it a moment before it is known,
    /// and would be taken for that of another process, which makes the first one useless.
    fn look(&self, _publishing: &MutexGuard<'_, Growing>) {
        let entries = std::fs::read_dir(&self.folder.path).into_iter().flatten();
        let names =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> =
            names.filter(|name| self.kind.is_segment(name)).collect();
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
            |parts: [&[u8]; 2], seal: &[u8; 32]| key.fits(self.sealed(), parts, seal);
        let directory =
            form::directory(&header, &bytes, is_ours).map_err(io::Error::other)?;
        let file = OpenFile::again(&file, self.direct).map_err(io::Error::other)?;
        let path = Some(path.to_owned());
        Ok(Segment { len_bytes: len, ..Segment::new(Arc::new(file), path, directory) })
    }

    /// Gives up segments that are of no use any more.
    fn prune(&self) {
        let mut paths = Vec::new();
        let mut known = self.known_mut();
        for number in 0..known.segments.len() {
            let segment = &mut known.segments[number];
            if segment.is_useless() {
                paths.extend(segment.path.take());
                known.give_up(number);
            }
        }
        drop(known);
        for path in paths {
            let _ = std::fs::remove_file(path);
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
    let most = MOST_SEGMENT_BYTES.max(limit_bytes / FEW_SEGMENTS);
    (limit_bytes / SEGMENT_PART).clamp(LEAST_SEGMENT_BYTES, most)
}

/// Bytes that a record adds to its segment, at most.
fn with_line(record: &NewRecord<'_>) -> u64 {
    let directory = record.head.len() + record.profile.len() + 2 * form::LINE_BYTES;
    u64::from(record.len).saturating_add(directory as u64)
}

fn name_of(path: &Path) -> Option<String> {
    path.file_name()?.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests;
