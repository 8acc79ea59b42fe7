//! What earlier epochs learned about the images: workers look it up and add to it, and it is
//! published at the end of an epoch.
//!
//! Segments are hidden files in the user's cache directory, or next to the data on request
//! (`folder`). They are read when a run begins, so what one process adds is visible to processes
//! that start later. Results never depend on them: whatever goes wrong costs speed, and prints at
//! most one line. `bothends_dataset::side_index` has the format of a segment.

use std::cell::LazyCell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use bothends_dataset::side_index::{
    self as form, EXTENSION, HEADER_BYTES, Line, PREFIX, Unreadable, is_segment, stamp,
};
use bothends_dataset::{Kind, block_cache};
use bothends_io::{Draft, open_own, read_cached};
use serde::Serialize;

use crate::folder::{Folders, Place};
use crate::key::{Key, Use};

/// The most segments that are read: a folder with more should be deleted.
const MAX_SEGMENTS: usize = 1024;

/// Bytes of notes that are collected before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// Bytes of a mark before a note.
const MARK_BYTES: usize = 8;

/// A file that has changed less long ago than this may change again without another time: clocks of
/// file systems tick in milliseconds, or in seconds where times have no fraction.
const TICK_NS: i128 = 50_000_000;
const LONG_TICK_NS: i128 = 2_000_000_000;

/// The key of a note: where its record is, and the length and age of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    key: u64,
    stamp: u64,
    /// What tells this very file from others, and from itself after a change; 0 where nothing does.
    mark: u64,
}

impl Name {
    /// For the record with this key (`Table::index_key`), in a file of this length in bytes that
    /// was last changed at this time, in nanoseconds since 1970.
    #[must_use]
    pub fn new(key: u64, (len, modified_ns): (u64, i128)) -> Self {
        Self { key, stamp: stamp(len, modified_ns), mark: 0 }
    }

    /// The same, and the file's inode was last changed at `changed_ns`: unless that was just now, its note can be
    /// believed without the record's bytes ([`SideIndex::note_of`]).
    #[must_use]
    pub fn of_file(key: u64, age: (u64, i128), changed_ns: i128) -> Self {
        let name = Self::new(key, age);
        match is_at_rest(changed_ns) {
            true => name.marked(Some(Self::exactly(key, age, changed_ns))),
            false => name,
        }
    }

    /// The same name, whose note is believed without the record's bytes of what `exactly` names.
    #[must_use]
    pub fn marked(self, exactly: Option<Self>) -> Self {
        Self { mark: exactly.map_or(0, |exactly| exactly.stamp), ..self }
    }

    /// As [`Self::new`], and the file's inode was last changed at `changed_ns`: for what is believed
    /// without the record's bytes, as in the block cache.
    #[must_use]
    pub fn exactly(key: u64, (len, modified_ns): (u64, i128), changed_ns: i128) -> Self {
        Self { key, stamp: block_cache::stamp(len, modified_ns, changed_ns), mark: 0 }
    }

    /// For a record of a remote object of this length, with this mark of its version (ETag), last changed at
    /// this time in nanoseconds since 1970: believed without the record's bytes, as in the record cache.
    /// `None` for an object that nobody could tell from another version of it.
    #[must_use]
    pub fn of_object(
        key: u64,
        (len, etag, modified_ns): (u64, Option<&str>, Option<i128>),
    ) -> Option<Self> {
        if etag.is_none() && modified_ns.is_none() {
            return None;
        }
        let etag = etag.map_or(0, |etag| form::content(etag.as_bytes()));
        let stamp = block_cache::stamp(len, modified_ns.unwrap_or(-1), etag.into());
        Some(Self { key, stamp, mark: 0 })
    }

    pub(crate) fn parts(self) -> [u64; 2] {
        [self.key, self.stamp]
    }

    /// For a record that is not in a file: its bytes are compared anyway.
    #[must_use]
    pub fn without_file(key: u64) -> Self {
        Self { key, stamp: 0, mark: 0 }
    }
}

/// Whether a note may be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// It is read from the disk if need be.
    ForDisk,
    /// Only if it is in the page cache; else it is on its way there.
    Never,
}

/// Whether a file that was last changed then can be told from what it becomes if it changes again.
#[must_use]
pub fn is_at_rest(changed_ns: i128) -> bool {
    let tick = match changed_ns % 1_000_000_000 {
        0 => LONG_TICK_NS,
        _ => TICK_NS,
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ns = i128::try_from(since.as_nanos()).unwrap_or(0);
    now_ns.saturating_sub(changed_ns) > tick
}

/// The side index of a data set.
#[derive(Debug)]
pub struct SideIndex {
    folders: Folders,
    /// The newest first.
    segments: RwLock<Vec<Arc<Segment>>>,
    growing: Mutex<Growing>,
}

/// A segment that has been read.
#[derive(Debug)]
struct Segment {
    path: PathBuf,
    file: File,
    lines: Vec<Line>,
    len_bytes: u64,
    has_marks: bool,
}

/// Where the side index is kept, and how large it is.
#[derive(Debug, Clone, Serialize)]
pub struct SideIndexStats {
    /// The folder for new segments.
    pub folder: String,
    /// Bytes of this data set's segments that are in use.
    pub bytes: u64,
    /// The most bytes that the segments of all data sets in the cache directory may take.
    pub limit_bytes: u64,
}

/// A segment being written.
#[derive(Debug)]
enum Growing {
    /// Nothing is new yet.
    Empty,
    Draft(Box<Writing>),
    /// It could not be written, and this is not tried again.
    Failed,
}

#[derive(Debug)]
struct Writing {
    draft: Draft,
    lines: Vec<Line>,
    /// Notes that are not in the file yet, and their places in it.
    pending: Vec<u8>,
    offset: u64,
    /// The most bytes that it may have.
    room_bytes: u64,
}

impl SideIndex {
    /// Reads the segments next to the data and those in the cache directory.
    #[must_use]
    pub fn open(place: Place<'_>) -> Self {
        let folders = Folders::of(place);
        let segments = folders.key().map_or_else(Vec::new, |key| {
            folders.to_read().flat_map(|folder| segments(folder, key)).collect()
        });
        Self {
            folders,
            segments: RwLock::new(segments),
            growing: Mutex::new(Growing::Empty),
        }
    }

    /// Copies the note of the record with these `bytes` to `note`; false if there is none that
    /// matches the bytes.
    pub fn look_up(&self, name: Name, bytes: &[u8], note: &mut Vec<u8>) -> bool {
        let content = LazyCell::new(|| form::content(bytes));
        let mut mark_of = |segment: &Segment, line: &Line| {
            let is_its = line.content == *content;
            is_its.then(|| segment.note(line, note, Wait::ForDisk)).flatten()
        };
        let found = self.find(name, |segment, line| {
            let mark = mark_of(segment, line)?;
            // The file was copied since, or its owner changed; or it was too young to be told from another.
            if mark != name.mark && name.mark != 0 && segment.has_marks {
                segment.set_mark(line, name.mark);
            }
            Some(segment.has_marks)
        });
        if found == Some(false) && name.mark != 0 {
            self.keep_note([name.key, name.stamp, *content], name.mark, note);
        }
        found.is_some()
    }

    /// What `read` makes of the newest note of this name of which it makes something.
    fn find<T>(
        &self,
        name: Name,
        mut read: impl FnMut(&Segment, &Line) -> Option<T>,
    ) -> Option<T> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.iter().find_map(|segment| {
            let line = form::find(&segment.lines, name.key);
            let line = line.filter(|line| line.stamp == name.stamp)?;
            read(segment, line)
        })
    }

    /// Copies the note of the record with this name to `note`, without comparing bytes; false if there is none that
    /// was made of this very file. For callers that read a part of a record, and hold that against the checksums in
    /// the note.
    pub fn note_of(&self, name: Name, note: &mut Vec<u8>, wait: Wait) -> bool {
        if name.mark == 0 {
            return false;
        }
        let is_its = |mark: &u64| *mark == name.mark;
        let found = self.find(name, |segment, line| {
            let note = segment.has_marks.then(|| segment.note(line, note, wait))?;
            note.filter(is_its)
        });
        found.is_some()
    }

    /// Keeps a note about the record with these `bytes`.
    pub fn keep(&self, name: Name, bytes: &[u8], note: &[u8]) {
        self.keep_note([name.key, name.stamp, form::content(bytes)], name.mark, note);
    }

    fn keep_note(&self, name: [u64; 3], mark: u64, note: &[u8]) {
        let mut growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*growing, Growing::Empty) {
            let begun = self.folders.begin();
            *growing = begun.map_or(Growing::Failed, |(draft, room_bytes)| {
                let (lines, pending, offset) =
                    (Vec::new(), Vec::new(), HEADER_BYTES as u64);
                let writing = Writing { draft, lines, pending, offset, room_bytes };
                Growing::Draft(Box::new(writing))
            });
        }
        if let Growing::Draft(writing) = &mut *growing
            && writing.push(name, mark, note).is_err()
        {
            *growing = Growing::Failed;
        }
    }

    /// Whether something is new that is not published yet.
    #[must_use]
    pub fn has_news(&self) -> bool {
        let growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(*growing, Growing::Draft(_))
    }

    /// Where it is kept, and how large it is now.
    #[must_use]
    pub fn stats(&self) -> SideIndexStats {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let folder = self.folders.shown().map(|folder| folder.display().to_string());
        SideIndexStats {
            folder: folder.unwrap_or_default(),
            bytes: segments.iter().map(|segment| segment.len_bytes).sum(),
            limit_bytes: self.folders.limit_bytes(),
        }
    }

    /// Publishes what is new, if anything is, as a segment for this process and others.
    pub fn publish(&self) {
        let mut growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *growing, Growing::Empty) {
            Growing::Empty => {}
            Growing::Failed => *growing = Growing::Failed,
            Growing::Draft(writing) => {
                match self.folders.key().and_then(|key| writing.publish(key)) {
                    Some(segment) => {
                        let segments = self.segments.write();
                        let mut segments =
                            segments.unwrap_or_else(PoisonError::into_inner);
                        let is_old = |old: &mut Arc<Segment>| segment.replaces(old);
                        let old: Vec<_> = segments.extract_if(.., is_old).collect();
                        segments.insert(0, Arc::new(segment));
                        drop(segments);
                        // Where it cannot be deleted, it stays, and nothing needs it.
                        old.iter().for_each(|old| drop(std::fs::remove_file(&old.path)));
                    }
                    None => *growing = Growing::Failed,
                }
            }
        }
    }
}

/// What is new is not lost if a run ends in the middle of an epoch.
impl Drop for SideIndex {
    fn drop(&mut self) {
        self.publish();
    }
}

impl Writing {
    fn push(
        &mut self,
        name: [u64; 3],
        mark: u64,
        note: &[u8],
    ) -> Result<(), bothends_io::IoError> {
        let (before, start) = (self.pending.len(), self.offset);
        let offset = start + (before + MARK_BYTES) as u64;
        self.pending.extend(mark.to_le_bytes());
        self.pending.extend_from_slice(note);
        let line = Line::new(name, offset, note);
        // A full cache only costs speed: what it has is still used.
        let directory = (self.lines.len() + 1) * size_of::<Line>();
        let end = start + (self.pending.len() + directory) as u64;
        let Some(line) = line.filter(|_| end <= self.room_bytes) else {
            self.pending.truncate(before);
            return Ok(());
        };
        self.lines.push(line);
        if self.pending.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), bothends_io::IoError> {
        self.draft.write_at(&self.pending, self.offset)?;
        self.offset += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    fn publish(mut self, key: &Key) -> Option<Segment> {
        self.flush().ok()?;
        let (directory, header) =
            form::seal(&mut self.lines, self.offset, |parts| key.seal(Use::Notes, parts));
        self.draft.write_at(&directory, self.offset).ok()?;
        self.draft.write_at(&header, 0).ok()?;
        let path = self.draft.publish(PREFIX, EXTENSION).ok()?;
        let len_bytes = self.offset + directory.len() as u64;
        // Where a file system gives it to somebody else nobody would ever read it.
        let file = open_own(&path).inspect_err(|_| drop(std::fs::remove_file(&path)));
        let file = file.ok()?;
        Some(Segment { path, file, lines: self.lines, len_bytes, has_marks: true })
    }
}

impl Segment {
    /// Whether it has each note of `old`, which is of the earlier version and lies next to it.
    fn replaces(&self, old: &Self) -> bool {
        let is_in = |line: &Line| {
            form::find(&self.lines, line.key).is_some_and(|own| own.stamp == line.stamp)
        };
        let is_next_to_it = self.path.parent() == old.path.parent();
        !old.has_marks && is_next_to_it && old.lines.iter().all(is_in)
    }

    /// Makes `mark` the mark of a note. Where that fails, the note is held against the record's bytes again.
    fn set_mark(&self, line: &Line, mark: u64) {
        // By the open file: another one may have its name by now.
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        if let Ok(file) = File::options().write(true).open(path)
            && let Some(at) = line.offset.checked_sub(MARK_BYTES as u64)
        {
            let _ = file.write_all_at(&mark.to_le_bytes(), at);
        }
    }

    /// Copies a note to `note`; the mark of its file, 0 for none. `None` where it is damaged, or not there without
    /// waiting.
    fn note(&self, line: &Line, note: &mut Vec<u8>, wait: Wait) -> Option<u64> {
        let n_before = if self.has_marks { MARK_BYTES } else { 0 };
        note.resize(n_before + line.len as usize, 0);
        let at = line.offset.checked_sub(n_before as u64)?;
        let is_read = match wait {
            Wait::ForDisk => self.file.read_exact_at(note, at).is_ok(),
            Wait::Never => read_cached(&self.file, note, at),
        };
        let mark = note.first_chunk().filter(|_| self.has_marks);
        let mark = mark.map_or(0, |mark| u64::from_le_bytes(*mark));
        note.drain(..n_before);
        (is_read && line.fits(note)).then_some(mark)
    }
}

/// The segments in `folder` that `key` has sealed, newest first. Their names begin with the time of
/// their creation.
fn segments(folder: &Path, key: &Key) -> Vec<Arc<Segment>> {
    let mut listed = bothends_io::list(folder).unwrap_or_default();
    listed.retain(|listed| {
        matches!(listed.kind, Kind::File { .. }) && is_segment(&listed.name)
    });
    let newest = listed.iter().rev().take(MAX_SEGMENTS);
    newest.filter_map(|l| read(&folder.join(&l.name), key).ok().map(Arc::new)).collect()
}

/// A file of others is refused with its name: its notes are not covered by the seal, and could be
/// written at any time.
fn read(path: &Path, key: &Key) -> io::Result<Segment> {
    let unreadable = |error: Unreadable| io::Error::other(error);
    let file = open_own(path)?;
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0)?;
    let len = file.metadata()?.len();
    let range = form::directory_range(&header, len).map_err(unreadable)?;
    let n_bytes = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    let mut directory = vec![0; n_bytes];
    file.read_exact_at(&mut directory, range.start)?;
    let lines = form::directory(&header, &directory, |parts, seal| {
        key.fits(Use::Notes, parts, seal)
    });
    let lines = lines.map_err(unreadable)?;
    let (path, has_marks) = (path.to_owned(), form::has_marks(&header));
    Ok(Segment { path, file, lines, len_bytes: len, has_marks })
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::folder::Beside;

    fn beside(data: &Path) -> SideIndex {
        let beside = Beside::Written;
        SideIndex::open(Place { data, is_folder: true, beside, cache: None })
    }

    const NAME: Name = Name { key: 7, stamp: 8, mark: 9 };

    fn known(index: &SideIndex, name: Name, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut note = Vec::new();
        index.look_up(name, bytes, &mut note).then_some(note)
    }

    #[test]
    fn what_one_run_learnt_the_next_knows() {
        let root = tempfile::tempdir().unwrap();
        let index = beside(root.path());
        assert_eq!(known(&index, NAME, b"image"), None);
        index.keep(NAME, b"image", b"note");
        index.publish();
        assert_eq!(known(&index, NAME, b"image").as_deref(), Some(&b"note"[..]));
        let other = beside(root.path());
        assert_eq!(known(&other, NAME, b"image").as_deref(), Some(&b"note"[..]));
        assert_eq!(known(&other, NAME, b"imagf"), None, "other bytes");
        assert_eq!(known(&other, Name { stamp: 9, ..NAME }, b"image"), None, "older");
        assert_eq!(known(&other, Name { key: 9, ..NAME }, b"image"), None, "elsewhere");
        let mut note = Vec::new();
        assert!(other.note_of(NAME, &mut note, Wait::ForDisk) && note == b"note");
        assert!(
            !other.note_of(Name { stamp: 9, ..NAME }, &mut note, Wait::ForDisk),
            "older"
        );
        // Set back to its age, which the bytes alone reveal: they are the same, and from now on it is this file's note.
        let set_back = Name { mark: 10, ..NAME };
        assert!(!other.note_of(set_back, &mut note, Wait::ForDisk));
        assert_eq!(known(&other, set_back, b"imagf"), None);
        assert_eq!(known(&other, set_back, b"image").as_deref(), Some(&b"note"[..]));
        assert!(other.note_of(set_back, &mut note, Wait::Never) && note == b"note");
        assert!(!index.note_of(NAME, &mut note, Wait::ForDisk), "another file's now");
        assert_eq!(known(&index, Name { mark: 0, ..NAME }, b"image"), Some(note.clone()));
        other.publish();
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1, "nothing is new");
    }

    /// A file that nobody could tell from another: its note is held against the bytes.
    #[test]
    fn without_a_mark_no_note_is_believed() {
        let root = tempfile::tempdir().unwrap();
        let index = beside(root.path());
        let unmarked = Name { mark: 0, ..NAME };
        index.keep(unmarked, b"image", b"note");
        index.publish();
        let mut note = Vec::new();
        assert!(
            !index.note_of(unmarked, &mut note, Wait::ForDisk)
                && !index.note_of(NAME, &mut note, Wait::ForDisk)
        );
        assert_eq!(known(&index, NAME, b"image").as_deref(), Some(&b"note"[..]));
    }

    /// Segments of the earlier version count for whole records, and no note of theirs is believed without.
    #[test]
    fn notes_without_marks_are_still_read() {
        let root = tempfile::tempdir().unwrap();
        let index = beside(root.path());
        index.keep(NAME, b"image", b"note");
        drop(index);
        let path = std::fs::read_dir(root.path()).unwrap().next().unwrap().unwrap();
        let lines = [Line::new([7, 8, form::content(b"image")], 64, b"note").unwrap()];
        let key = Folders::of(Place {
            data: root.path(),
            is_folder: true,
            beside: Beside::Written,
            cache: None,
        });
        let key = key.key().unwrap();
        let (directory, mut header) =
            form::seal(&mut lines.clone(), 68, |parts| key.seal(Use::Notes, parts));
        header[7] = b'2';
        let seal = key.seal(Use::Notes, [&header[..32], &directory]);
        header[32..].copy_from_slice(&seal);
        std::fs::write(path.path(), [&header[..], b"note", &directory].concat()).unwrap();
        let index = beside(root.path());
        assert!(!index.note_of(NAME, &mut Vec::new(), Wait::ForDisk));
        assert_eq!(known(&index, NAME, b"image").as_deref(), Some(&b"note"[..]));
        // From now on it has a mark, and is kept no third time; the old segment has gone.
        index.publish();
        assert!(index.note_of(NAME, &mut Vec::new(), Wait::ForDisk));
        assert!(known(&index, NAME, b"image").is_some());
        index.publish();
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_has_just_changed_is_not_at_rest() {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now_ns = i128::try_from(since.as_nanos()).unwrap();
        assert!(!is_at_rest(now_ns) && !is_at_rest(now_ns + LONG_TICK_NS));
        let whole_second = now_ns / 1_000_000_000 * 1_000_000_000;
        assert!(!is_at_rest(whole_second));
        assert!(is_at_rest(whole_second - 3 * LONG_TICK_NS));
        assert!(is_at_rest(now_ns / 1_000 * 1_000 - 4 * TICK_NS + 1));
        assert_eq!(Name::of_file(1, (2, 3), now_ns).mark, 0);
        let at_rest = [0, 1].map(|ns| Name::of_file(1, (2, 3), ns));
        assert!(at_rest[0].mark != 0 && at_rest[0].mark != at_rest[1].mark);
        assert_eq!(at_rest[0].parts(), at_rest[1].parts());
    }

    #[test]
    fn two_processes_add_to_one_index_and_the_newer_note_counts() {
        let root = tempfile::tempdir().unwrap();
        let (a, b) = (beside(root.path()), beside(root.path()));
        a.keep(NAME, b"image", b"old");
        b.keep(Name { key: 1, ..NAME }, b"second", b"two");
        drop(a);
        b.keep(NAME, b"image", b"new");
        drop(b);
        let index = beside(root.path());
        assert_eq!(known(&index, NAME, b"image").as_deref(), Some(&b"new"[..]));
        assert!(known(&index, Name { key: 1, ..NAME }, b"second").is_some());
    }

    #[test]
    fn a_broken_segment_costs_its_notes_only() {
        let root = tempfile::tempdir().unwrap();
        for (key, note) in [(1, "one"), (2, "two")] {
            let index = beside(root.path());
            index.keep(Name { key, ..NAME }, b"image", note.as_bytes());
        }
        let folder = root.path();
        let paths: Vec<PathBuf> =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(paths.len(), 2);
        let mut bytes = std::fs::read(&paths[0]).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&paths[0], bytes).unwrap();
        std::fs::write(folder.join(format!("{PREFIX}0.{EXTENSION}")), "").unwrap();
        let index = beside(root.path());
        let found =
            [1, 2].map(|key| known(&index, Name { key, ..NAME }, b"image").is_some());
        assert_eq!(found.iter().filter(|&&found| found).count(), 1);
    }

    /// Whoever may write next to the data, or gives them away, could say what images look like.
    #[test]
    fn what_others_have_made_is_not_believed() {
        let root = tempfile::tempdir().unwrap();
        let index = beside(root.path());
        index.keep(NAME, b"image", b"note");
        drop(index);
        let path = std::fs::read_dir(root.path()).unwrap().next().unwrap().unwrap();
        let whole = std::fs::read(path.path()).unwrap();
        let known = || known(&beside(root.path()), NAME, b"image").is_some();
        assert!(known());
        // With all its hashes right, but sealed by another.
        let theirs = Key::at(&root.path().join("theirs")).unwrap();
        let mut lines =
            vec![Line::new([7, 8, form::content(b"image")], 64, b"evil").unwrap()];
        let (directory, header) =
            form::seal(&mut lines, 68, |parts| theirs.seal(Use::Notes, parts));
        let planted = [&header[..], b"evil", &directory].concat();
        std::fs::write(path.path(), planted).unwrap();
        assert!(!known(), "another's key");
        // Ours, in a file that others may write.
        std::fs::write(path.path(), whole).unwrap();
        let allow = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(path.path(), mode).unwrap();
        };
        allow(0o666);
        assert!(!known(), "writable by others");
        allow(0o644);
        assert!(known());
    }

    #[test]
    fn where_nothing_may_be_written_nothing_is_lost_but_speed() {
        let index = SideIndex {
            folders: Folders::default(),
            segments: RwLock::default(),
            growing: Mutex::new(Growing::Empty),
        };
        index.keep(NAME, b"image", b"note");
        index.publish();
        assert_eq!(known(&index, NAME, b"image"), None);
    }

    #[test]
    fn a_run_that_learns_nothing_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        drop(beside(root.path()));
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
