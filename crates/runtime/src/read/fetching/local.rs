//! What of the records that are to be fetched is on a local disk already, and what is to be kept there.

use std::ops::Range;
use std::sync::Arc;

use bothends_core::ids::SampleId;
use bothends_core::sample::SampleKey;
use bothends_dataset::Piece;
use bothends_side_index::{CachedRecord, Name};
use bothends_storage::Bytes;

use crate::read::remote::Remote;
use crate::read::source::{Note, Source};

/// What is in the record cache of these data, for whoever orders records.
#[derive(Debug)]
pub(crate) struct Local {
    source: Arc<Source>,
    remote: Arc<Remote>,
}

impl Local {
    /// `None` where there is no cache.
    pub(crate) fn of(source: &Arc<Source>, remote: &Arc<Remote>) -> Option<Self> {
        remote.cache()?;
        Some(Self { source: Arc::clone(source), remote: Arc::clone(remote) })
    }

    /// This piece of a sample, if it is there. Never waits.
    pub(crate) fn find(&self, sample: SampleId, piece: Piece) -> Option<CachedRecord> {
        self.source.find_cached(&self.remote, sample, piece)
    }
}

impl Source {
    /// What is fetched for the sample of `key`: all of its record where that is kept in the record
    /// cache, or may be.
    pub(crate) fn piece_to_fetch(
        &self,
        key: SampleKey,
        remote: &Remote,
        note: &mut Note,
    ) -> Piece {
        let whole = self.whole(key.sample);
        let is_whole = remote.cache().is_some_and(|cache| {
            let may_be_kept = self.cache_name(remote, key.sample).is_some();
            (may_be_kept && cache.takes_more())
                || self.find_cached(remote, key.sample, whole).is_some()
        });
        match is_whole {
            true => whole,
            false => {
                let name = self.name_of_fetched(remote, key.sample);
                self.narrowed(key, (self.piece(key), name), note)
            }
        }
    }

    /// What the record cache has of this piece of a sample.
    pub(crate) fn find_cached(
        &self,
        remote: &Remote,
        sample: SampleId,
        piece: Piece,
    ) -> Option<CachedRecord> {
        let name = self.cache_name(remote, sample)?;
        remote.cache()?.find(name, piece.extent.len)
    }

    pub(crate) fn cache_name(&self, remote: &Remote, sample: SampleId) -> Option<Name> {
        let file = self.table.extent(sample).file;
        remote.cache_name(self.table.index_key(sample), file)
    }

    /// Offers what was fetched to the record cache, if it is all of the record. Does not wait.
    pub(crate) fn keep_fetched(
        &self,
        remote: &Remote,
        (sample, piece): (SampleId, Piece),
        fetched: (&Bytes, &Range<usize>),
    ) {
        let Some(cache) = remote.cache() else { return };
        let whole = self.whole(sample);
        if piece.extent == whole.extent
            && let Some(name) = self.cache_name(remote, sample)
        {
            cache.offer(name, fetched);
        }
    }
}
