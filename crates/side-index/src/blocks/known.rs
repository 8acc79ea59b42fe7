//! What a process knows of a data set's segments: where each record is, and which segments are of use.
//!
//! Nothing here opens, reads or removes a file: `blocks.rs` does.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bothends_dataset::block_cache::Directory;
use bothends_io::OpenFile;

/// The records of a data set's segments, in memory: 96 bytes each, as long as photographs of ImageNet are.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// In the order in which they were found or begun.
    pub(super) segments: Vec<Segment>,
    pub(super) places: HashMap<u64, Place>,
    /// Names in the folder that have been looked at.
    pub(super) names: HashSet<String>,
}

/// Where a record is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) segment: u32,
    pub(super) line: u32,
}

/// A segment in memory.
#[derive(Debug)]
pub(super) struct Segment {
    /// `None` once it has been given up.
    pub(super) file: Option<Arc<OpenFile>>,
    /// `None` while it grows.
    pub(super) path: Option<PathBuf>,
    pub(super) directory: Directory,
    pub(super) len_bytes: u64,
    /// How many places lead here.
    pub(super) n_live: usize,
    pub(super) n_found: AtomicU64,
    pub(super) n_stale: AtomicU64,
}

/// How many look-ups must have found a segment's records outdated before it is given up.
pub(super) const MANY_STALE: u64 = 16;

impl Known {
    /// Adds a segment of the folder. Of two records with one key that in the segment with the later name
    /// counts, for every process; one without a name gets its name later than any other.
    pub(super) fn add(&mut self, segment: Segment) {
        let number = u32::try_from(self.segments.len()).unwrap_or(u32::MAX);
        let path = segment.path.clone();
        let keys: Vec<u64> =
            segment.directory.lines().iter().map(|line| line.key).collect();
        self.segments.push(segment);
        for (line, key) in keys.into_iter().enumerate() {
            let known = self.places.get(&key);
            let known = known.and_then(|place| self.segments.get(place.segment as usize));
            let is_newer = known.is_none_or(|known| {
                known.path.is_some() && (known.path <= path || known.file.is_none())
            });
            if is_newer {
                self.place(key, number, line);
            }
        }
    }

    /// The record of `key` is on that line from now on.
    pub(super) fn place(&mut self, key: u64, segment: u32, line: usize) {
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        let before = self.places.insert(key, Place { segment, line });
        if let Some(old) =
            before.and_then(|old| self.segments.get_mut(old.segment as usize))
        {
            old.n_live = old.n_live.saturating_sub(1);
        }
        if let Some(new) = self.segments.get_mut(segment as usize) {
            new.n_live += 1;
        }
    }

    /// Forgets the records of the segment that would make it longer than `room`; its directory, if any
    /// are left, else it is given up.
    pub(super) fn cut(&mut self, number: usize, room: u64) -> Option<Directory> {
        let segment = self.segments.get_mut(number)?;
        let before = segment.directory.lines().len();
        segment.directory.cut(room.saturating_sub(segment.directory.n_bytes() as u64));
        let n_lines = segment.directory.lines().len();
        if n_lines == 0 {
            self.give_up(number);
            return None;
        }
        let directory = segment.directory.clone();
        if n_lines < before {
            segment.n_live = segment.n_live.min(n_lines);
            self.places.retain(|_, place| {
                place.segment as usize != number || (place.line as usize) < n_lines
            });
        }
        Some(directory)
    }

    /// Nothing is read from the segment any more, and its room on the disk is free once nobody reads.
    pub(super) fn give_up(&mut self, number: usize) {
        let Some(segment) = self.segments.get_mut(number) else { return };
        segment.file = None;
        segment.directory = Directory::default();
        segment.n_live = 0;
        self.places.retain(|_, place| place.segment as usize != number);
    }
}

impl Segment {
    pub(super) fn new(
        file: Arc<OpenFile>,
        path: Option<PathBuf>,
        directory: Directory,
    ) -> Self {
        Self {
            file: Some(file),
            path,
            directory,
            len_bytes: 0,
            n_live: 0,
            n_found: AtomicU64::new(0),
            n_stale: AtomicU64::new(0),
        }
    }

    /// Whether most of its records are outdated, or newer segments have them.
    pub(super) fn is_useless(&self) -> bool {
        let [n_stale, n_found] =
            [&self.n_stale, &self.n_found].map(|n| n.load(Ordering::Relaxed));
        let is_outdated = n_stale >= MANY_STALE && n_stale > n_found;
        let is_replaced = self.n_live < self.directory.lines().len() / 2;
        self.path.is_some() && (is_outdated || is_replaced)
    }
}
