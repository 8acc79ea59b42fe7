//! The record cache: records of a remote store on a local disk, so that later epochs need no network.
//!
//! Segments, bounds, damage and what becomes of a killed process are as in the block cache (`blocks.rs`), and
//! a directory may hold segments of both within one limit. A record is found by where it is in its object, and
//! counts only for an object that is still what it was: its length, its ETag and its time are in the name
//! ([`Name::of_object`]). Its checksum is in the sealed directory, and is looked at whenever it is read.

use std::sync::Arc;

use bothends_core::setting::Names;
use bothends_dataset::block_cache::{Kind, checksum};
use bothends_io::{Direct, OpenFile};

use crate::blocks::{BlockCache, BlockCacheStats, Keeping};
use crate::folder::{BlocksFolder, Cache};
use crate::index::Name;

/// Records that were fetched.
#[derive(Debug)]
pub struct RecordCache(BlockCache);

/// A record that was found.
#[derive(Debug, Clone)]
pub struct CachedRecord {
    file: Arc<OpenFile>,
    offset: u64,
    len: u32,
    checksum: [u8; 8],
    name: Name,
}

impl RecordCache {
    /// What there is for the data of this name, such as their URL without credentials. Blocks on the file
    /// system; creates nothing but the user's key. `None` for a user who has no key, and cannot get one.
    #[must_use]
    pub fn open(name: &str, cache: Cache) -> Option<Self> {
        let folder = BlocksFolder::named(name, cache)?;
        // Records are read ahead into the page cache, and most often once in an epoch.
        Some(Self(BlockCache::of(Kind::Records, folder, Direct::Off)))
    }

    /// The record with this name. Never waits; reads nothing from the disk.
    #[must_use]
    pub fn find(&self, name: Name) -> Option<CachedRecord> {
        self.0.find_as(name, |file, offset, (directory, line)| {
            let len = directory.lines().get(line)?.len;
            let checksum = directory.checksum(line)?;
            Some(CachedRecord { file, offset, len, checksum, name })
        })
    }

    /// Why nothing can be kept here, where that shows before anything is. Blocks on the file system, and makes
    /// the directory.
    #[must_use]
    pub fn hindrance(&self, name: Names) -> Option<String> {
        self.0.hindrance(name)
    }

    /// Whether more may be kept.
    #[must_use]
    pub fn takes_more(&self) -> bool {
        self.0.takes_more()
    }

    /// Keeps nothing more, and says why; what there is can still be read.
    pub fn stop(&self, why: String) {
        self.0.stop(why);
    }

    /// Keeps a record, unless it is there already; blocks on the disk.
    pub fn keep(&self, name: Name, record: &[u8]) -> Keeping {
        if self.0.has(name) {
            return Keeping::Kept;
        }
        self.0.keep_as(name, (&[], &checksum(record)), record)
    }

    /// Reads a record into `bytes`; false where it is damaged, and forgotten by that. Blocks on the disk.
    pub fn read(&self, record: &CachedRecord, bytes: &mut Vec<u8>) -> bool {
        bytes.resize(record.len as usize, 0);
        let read = record.file.read_exact_at(bytes, record.offset);
        let is_whole = read.is_ok() && checksum(bytes) == record.checksum;
        match is_whole {
            true => self.0.was_read(u64::from(record.len)),
            false => self.0.forget(record.name),
        }
        is_whole
    }

    /// At the end of an epoch: as [`BlockCache::tidy`].
    pub fn tidy(&self) {
        self.0.tidy();
    }

    /// As [`BlockCache::catch_up`].
    pub fn catch_up(&self) {
        self.0.catch_up();
    }

    /// What it has, and has done; what is `transcoded` there was kept.
    #[must_use]
    pub fn stats(&self) -> BlockCacheStats {
        self.0.stats()
    }
}

impl CachedRecord {
    /// Has it brought into the page cache, without waiting for it.
    pub fn will_need(&self) {
        self.file.will_need(self.offset, u64::from(self.len));
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u32 {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    const URL: &str = "s3://bucket/set";

    fn cache(root: &Path, limit_bytes: u64) -> RecordCache {
        let cache = Cache { root: root.to_owned(), limit_bytes };
        RecordCache::open(URL, cache).unwrap()
    }

    fn name(n: u64) -> Name {
        Name::of_object(n, (100, Some("v1"), None)).unwrap()
    }

    fn segments(root: &Path) -> Vec<PathBuf> {
        let folders = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
        let files = folders.filter(|path| path.is_dir()).flat_map(|folder| {
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path())
        });
        files.filter(|path| path.extension().is_some_and(|it| it == "segment")).collect()
    }

    fn read(cache: &RecordCache, n: u64) -> Option<Vec<u8>> {
        let found = cache.find(name(n))?;
        found.will_need();
        let mut bytes = vec![9; 1000];
        cache.read(&found, &mut bytes).then_some(bytes)
    }

    #[test]
    fn a_record_is_read_at_once_and_by_the_next_process() {
        let root = tempfile::tempdir().unwrap();
        let first = cache(root.path(), 1 << 30);
        assert_eq!(first.keep(name(1), b"one"), Keeping::Kept);
        assert_eq!(first.keep(name(2), b""), Keeping::Kept);
        assert_eq!(first.keep(name(1), b"one"), Keeping::Kept);
        assert_eq!(first.stats().transcoded, 2, "once each");
        assert_eq!(read(&first, 1).as_deref(), Some(&b"one"[..]));
        assert!(segments(root.path()).is_empty(), "it grows without a name");
        drop(first);
        let next = cache(root.path(), 1 << 30);
        assert_eq!(read(&next, 1).as_deref(), Some(&b"one"[..]));
        assert_eq!(read(&next, 2).as_deref(), Some(&b""[..]));
        assert_eq!((next.stats().read, next.stats().read_bytes), (2, 3));
    }

    #[test]
    fn another_version_of_the_object_has_another_name() {
        let names = [
            (100, Some("v1"), None),
            (101, Some("v1"), None),
            (100, Some("v2"), None),
            (100, Some("v1"), Some(5)),
            (100, None, Some(5)),
            (100, None, Some(6)),
        ];
        let names = names.map(|identity| Name::of_object(1, identity).unwrap());
        for (n, one) in names.iter().enumerate() {
            assert!(!names[..n].contains(one), "{n}");
        }
        assert_eq!(Name::of_object(1, (100, None, None)), None, "nobody could tell");
        let root = tempfile::tempdir().unwrap();
        let cache = cache(root.path(), 1 << 30);
        cache.keep(names[0], b"old");
        assert!(cache.find(names[2]).is_none());
        cache.keep(names[2], b"new");
        assert!(cache.find(names[0]).is_none() && cache.find(names[2]).is_some());
    }

    #[test]
    fn any_changed_byte_of_a_record_is_noticed_and_counted() {
        let root = tempfile::tempdir().unwrap();
        let first = cache(root.path(), 1 << 30);
        first.keep(name(1), b"some bytes");
        drop(first);
        let path = segments(root.path()).pop().unwrap();
        let whole = fs::read(&path).unwrap();
        for at in 64..74 {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&path, changed).unwrap();
            let next = cache(root.path(), 1 << 30);
            assert_eq!(read(&next, 1), None, "byte {at}");
            assert_eq!((next.stats().damaged, next.stats().read), (1, 0));
            assert!(next.find(name(1)).is_none() && !path.exists());
        }
    }

    #[test]
    fn blocks_and_records_are_within_one_limit() {
        let root = tempfile::tempdir().unwrap();
        let limit = 100_000;
        let one = cache(root.path(), limit);
        let other = Cache { root: root.path().to_owned(), limit_bytes: limit };
        let other = RecordCache::open("s3://bucket/other", other).unwrap();
        let record = vec![7; 10_000];
        let keep = |cache: &RecordCache, n| cache.keep(name(n), &record) == Keeping::Kept;
        let kept = (0..20).filter(|n| keep(&one, *n)).count();
        assert!((5..10).contains(&kept), "{kept}");
        assert!(one.stats().off.unwrap().contains("full"));
        drop(one);
        assert!((0..20).filter(|n| keep(&other, *n)).count() < 5);
        drop(other);
        let sizes = segments(root.path()).into_iter();
        let all: u64 = sizes.map(|path| path.metadata().unwrap().len()).sum();
        assert!(all <= limit, "{all}");
    }

    #[test]
    fn a_record_that_is_longer_than_a_segment_is_kept_and_so_are_those_behind_it() {
        let root = tempfile::tempdir().unwrap();
        // Segments of 16 MiB.
        let limit = 1 << 30;
        let long = vec![7; 17 << 20];
        let first = cache(root.path(), limit);
        for (n, record) in [(1, &long[..10]), (2, &long), (3, &long[..10])] {
            assert_eq!(first.keep(name(n), record), Keeping::Kept, "{n}");
        }
        assert_eq!(first.stats().off, None);
        drop(first);
        let next = cache(root.path(), limit);
        let lens = [1, 2, 3].map(|n| read(&next, n).map(|record| record.len()));
        assert_eq!(lens, [Some(10), Some(long.len()), Some(10)]);
        let small = tempfile::tempdir().unwrap();
        let small = cache(small.path(), 1 << 20);
        assert_eq!(small.keep(name(1), &long), Keeping::Unfit, "longer than all of it");
        assert_eq!(small.keep(name(2), b"two"), Keeping::Kept);
        assert_eq!(small.stats().off, None);
    }
}
