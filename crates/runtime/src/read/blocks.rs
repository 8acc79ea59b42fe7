//! The block cache of a run: which records are read from it, and which may still be transcoded.
//!
//! Who transcodes, and when, is in `make/transcode.rs`; what a cache is on a disk, in `side-index`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bothends_core::blocks::Blocks;
use bothends_core::ids::SampleId;
use bothends_core::sample::{Encoding, Record, RecordPart, RowGroups};
use bothends_dataset::Table;
use bothends_dataset::block_cache::Outline;
use bothends_figures::BlockCacheUse;
use bothends_io::{Direct, OpenFile, free_bytes, medium};
use bothends_side_index::{BlockCache, BlockCacheStats, Cache, CachedBlocks, Name};

use crate::config::cache::{CacheSize, Facts, grows};
use crate::config::run::RunConfig;

/// A run's block cache.
#[derive(Debug)]
pub(crate) struct BlockSource {
    pub(crate) cache: BlockCache,
    /// Records that nobody has to transcode any more.
    settled: Arc<Settled>,
    /// Whether the end of an epoch is to be seen to.
    is_epoch_over: AtomicBool,
}

/// A bit for each record.
#[derive(Debug)]
struct Settled(Vec<AtomicU64>);

/// Row groups in the cache, in place of a record.
#[derive(Debug)]
pub(crate) struct CachedPiece {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    name: Name,
    outline: Outline,
    first_group: usize,
}

/// The right to transcode a record. Settle it; one that is dropped goes back.
#[derive(Debug)]
pub(crate) struct Turn {
    settled: Arc<Settled>,
    row: u64,
    is_settled: bool,
}

impl BlockSource {
    /// The cache of the data in `root`, where there is to be one, and one line for the user where it
    /// cannot be what was asked for. Blocks on the file system.
    pub(crate) fn open(
        config: &RunConfig,
        root: &Path,
        table: &Table,
        direct: Direct,
    ) -> (Option<Self>, Option<String>) {
        let size = config.read.cache_size;
        let cache = size.limit_bytes().and_then(|limit_bytes| match &config.cache {
            Some(root) => Some(Cache { root: root.clone(), limit_bytes }),
            None => Cache::of_blocks(limit_bytes),
        });
        let Some(cache) = cache else { return (None, None) };
        let place = there(&cache.root).map(Path::to_owned);
        let Some(cache) = BlockCache::open(root, cache, direct) else {
            return (None, None);
        };
        let lens = (0..table.n_samples()).map(|n| table.extent(SampleId(n)).len);
        let facts = Facts {
            data_bytes: lens.map(u64::from).sum(),
            kept_bytes: cache.stats().bytes,
            data_on: medium(root).ok(),
            cache_on: place.as_deref().and_then(|folder| medium(folder).ok()),
            free_bytes: place.as_deref().and_then(free_bytes_near).unwrap_or(0),
        };
        let mut note = None;
        if let Err(why) = grows(size, &facts) {
            if matches!(size, CacheSize::Bytes(_)) {
                note = Some(format!("nothing is added to the block cache: {why}"));
            }
            cache.stop(why);
        }
        let n_words = usize::try_from(table.n_samples().div_ceil(64)).unwrap_or(0);
        let settled = (0..n_words).map(|_| AtomicU64::new(0)).collect();
        let settled = Arc::new(Settled(settled));
        (Some(Self { cache, settled, is_epoch_over: AtomicBool::new(false) }), note)
    }

    /// The groups that `choose` names of the record with this name, if it is in the cache. Never
    /// waits.
    pub(crate) fn find(
        &self,
        name: Name,
        choose: impl FnOnce(Blocks<'_>) -> Option<std::ops::Range<usize>>,
    ) -> Option<CachedPiece> {
        let CachedBlocks { file, offset, outline } = self.cache.find(name)?;
        let blocks = outline.blocks()?;
        let head = blocks.head();
        let groups = choose(blocks).filter(|groups| groups.end <= head.n_groups())?;
        let bytes = head.bytes_of(groups.clone());
        let len = u32::try_from(bytes.end - bytes.start).ok()?;
        let offset = offset.checked_add(bytes.start)?;
        Some(CachedPiece { file, offset, len, name, outline, first_group: groups.start })
    }

    /// A turn for the record on this row of the table, if nobody has had one.
    pub(crate) fn turn(&self, row: u64) -> Option<Turn> {
        Turn::take(&self.settled, row)
    }

    /// What was read of the cache was not what it should have been.
    pub(crate) fn was_damaged(&self, piece: &CachedPiece, row: u64) {
        self.cache.forget(piece.name);
        self.settled.clear(row);
    }

    /// An epoch is over: whoever transcodes sees to the rest.
    pub(crate) fn epoch_is_over(&self) {
        self.is_epoch_over.store(true, Ordering::Relaxed);
    }

    /// Tidies up behind an epoch, if one has ended; blocks on the disk.
    pub(crate) fn tidy(&self) {
        if self.is_epoch_over.swap(false, Ordering::Relaxed) {
            self.cache.tidy();
        }
    }

    /// What it has done, for a run's result.
    pub(crate) fn used(&self) -> BlockCacheUse {
        let stats = self.cache.stats();
        BlockCacheUse {
            records: stats.records,
            bytes: stats.bytes,
            limit_bytes: stats.limit_bytes,
            transcoded: stats.transcoded,
            read: stats.read,
            read_bytes: stats.read_bytes,
            damaged: stats.damaged,
            off: stats.off,
        }
    }

    pub(crate) fn stats(&self) -> BlockCacheStats {
        self.cache.stats()
    }

    /// Where it is, what it holds, and whether it grows, in one line. Asks the file system.
    pub(crate) fn summary(&self) -> String {
        let BlockCacheStats { folder, bytes, limit_bytes, records, off, .. } =
            self.stats();
        let free = free_bytes_near(Path::new(&folder));
        let free =
            free.map_or("unknown".to_owned(), |free| format!("{} MiB", free >> 20));
        let growth = match off {
            Some(why) => format!("nothing is added: {why}"),
            None => format!("grows to {} MiB while workers are idle", limit_bytes >> 20),
        };
        format!(
            "{folder}: {records} of these images in {} MiB, free on that disk: {free}; {growth}",
            bytes.div_ceil(1 << 20)
        )
    }
}

/// The first folder on the way to `path` that is there.
fn there(path: &Path) -> Option<&Path> {
    path.ancestors().find(|folder| folder.is_dir())
}

fn free_bytes_near(path: &Path) -> Option<u64> {
    free_bytes(there(path)?).ok()
}

impl CachedPiece {
    /// Its bytes as a record.
    pub(crate) fn record<'a>(&'a self, bytes: &'a [u8]) -> Option<Record<'a>> {
        let mut record = Record::new(bytes, Encoding::Image);
        let blocks = self.outline.blocks()?;
        record.part =
            RecordPart::RowGroups(RowGroups { blocks, first: self.first_group });
        Some(record)
    }
}

impl Turn {
    fn take(settled: &Arc<Settled>, row: u64) -> Option<Self> {
        // Made only where it is taken: one that is dropped goes back.
        settled.set(row).then(|| Self {
            settled: Arc::clone(settled),
            row,
            is_settled: false,
        })
    }

    /// The record needs no other turn in this run.
    pub(crate) fn settle(mut self) {
        self.is_settled = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_settled {
            self.settled.clear(self.row);
        }
    }
}

impl Settled {
    fn word(&self, row: u64) -> Option<(&AtomicU64, u64)> {
        let word = self.0.get(usize::try_from(row / 64).ok()?)?;
        Some((word, 1 << (row % 64)))
    }

    /// Whether the bit was clear.
    fn set(&self, row: u64) -> bool {
        let word = self.word(row);
        word.is_some_and(|(word, bit)| {
            // Most are set, and looking is cheaper.
            word.load(Ordering::Relaxed) & bit == 0
                && word.fetch_or(bit, Ordering::Relaxed) & bit == 0
        })
    }

    fn clear(&self, row: u64) {
        if let Some((word, bit)) = self.word(row) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_one_turn_until_it_is_dropped() {
        let settled = Arc::new(Settled(vec![AtomicU64::new(0), AtomicU64::new(0)]));
        let turn = |row| Turn::take(&settled, row);
        let first = turn(70).unwrap();
        assert!(turn(70).is_none());
        drop(first);
        turn(70).unwrap().settle();
        assert!(turn(70).is_none());
        assert!(turn(7).is_some() && turn(200).is_none(), "no such row");
        settled.clear(70);
        assert!(turn(70).is_some());
    }
}
