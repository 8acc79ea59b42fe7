//! What of the records that are to be fetched is on a local disk already, and what is to be kept there.

use std::ops::Range;
use std::sync::Arc;

use bothends_core::fetch::MAX_GAP_BYTES;
use bothends_core::ids::SampleId;
use bothends_core::sample::{Extent, SampleKey};
use bothends_dataset::{FieldPlace, Piece};
use bothends_side_index::{CachedRecord, Name};
use bothends_storage::Bytes;

use crate::read::demand::Needed;
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

    /// The value of a field, if it is there. Never waits.
    pub(crate) fn find_value(&self, extent: Extent) -> Option<CachedRecord> {
        self.source.find_cached_value(&self.remote, extent)
    }
}

/// Of a longer record only the part that is needed is fetched, though a field's value lies next to it: the bytes that
/// saves take longer than another request for the value.
const WHOLE_FOR_VALUE: u32 = 256 << 10;

/// Which of these records lie so near another one, or near a value, that one request may bring both.
fn are_joined(rows: &[Needed]) -> Vec<bool> {
    // Values have no number.
    let mut order: Vec<(Extent, Option<usize>)> = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        order.push((row.piece.extent, Some(number)));
        if row.piece.extent.len <= WHOLE_FOR_VALUE {
            order.extend(row.values.iter().map(|(_, extent)| (*extent, None)));
        }
    }
    order.sort_by_key(|(extent, _)| (extent.file, extent.offset));
    let mut joined = vec![false; rows.len()];
    for pair in order.windows(2) {
        let [(one, _), (next, _)] = [pair[0], pair[1]];
        let end = one.offset.saturating_add(one.len.into());
        if one.file == next.file && next.offset.saturating_sub(end) <= MAX_GAP_BYTES {
            let numbers = pair.iter().filter_map(|(_, number)| *number);
            numbers.for_each(|at| joined[at] = true);
        }
    }
    joined
}

impl Source {
    /// What is fetched for samples of these keys: all of a record where that is kept in the record cache, or may
    /// be, or where one request brings it with its neighbour; and the fields that were asked for.
    pub(crate) fn pieces_to_fetch(
        &self,
        keys: impl Iterator<Item = SampleKey>,
        remote: &Remote,
    ) -> Vec<Needed> {
        let mut note = Note::default();
        let keys: Vec<SampleKey> = keys.collect();
        let wholes = keys.iter().map(|SampleKey { sample, .. }| {
            let (piece, values) = (self.whole(*sample), self.values_to_fetch(*sample));
            Needed { sample: *sample, piece, values }
        });
        let wholes: Vec<Needed> = wholes.collect();
        let joined = are_joined(&wholes);
        let each = keys.into_iter().zip(wholes).zip(joined);
        let needed = each.map(|((key, whole), is_joined)| {
            let sample = key.sample;
            if self.is_all_fetched(sample, whole.piece, remote) {
                return whole;
            }
            let mut piece = self.piece(key);
            if !is_joined && !self.is_undecoded() {
                let name = self.name_of_fetched(remote, sample);
                piece = self.narrowed_to_fetch((key, piece), name, &mut note);
            }
            Needed { piece, ..whole }
        });
        needed.collect()
    }

    /// The fields of a sample that are neither in memory nor empty, by their numbers.
    fn values_to_fetch(&self, sample: SampleId) -> Vec<(usize, Extent)> {
        let asked = self.fields.iter().enumerate();
        let values =
            asked.filter_map(|(nth, field)| match field.place(self.record_of(sample)) {
                FieldPlace::Extent(extent) if extent.len > 0 => Some((nth, extent)),
                FieldPlace::Extent(_) | FieldPlace::Value(_) => None,
            });
        values.collect()
    }

    /// Whether all of a record is kept in the record cache, or may be.
    fn is_all_fetched(&self, sample: SampleId, whole: Piece, remote: &Remote) -> bool {
        remote.cache().is_some_and(|cache| {
            let may_be_kept = self.cache_name(remote, sample).is_some();
            (may_be_kept && cache.takes_more())
                || self.find_cached(remote, sample, whole).is_some()
        })
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

    /// What the record cache has of the value of a field.
    pub(crate) fn find_cached_value(
        &self,
        remote: &Remote,
        extent: Extent,
    ) -> Option<CachedRecord> {
        let name = remote.cache_name(self.table.key_of(extent), extent.file)?;
        remote.cache()?.find(name, extent.len)
    }

    /// Offers the value of a field to the record cache. Does not wait.
    pub(crate) fn keep_value(
        &self,
        remote: &Remote,
        extent: Extent,
        fetched: (&Bytes, &Range<usize>),
    ) {
        let Some(cache) = remote.cache() else { return };
        if let Some(name) = remote.cache_name(self.table.key_of(extent), extent.file) {
            cache.offer(name, fetched);
        }
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::sample::{Encoding, Extent};
    use bothends_dataset::TableBuilder;

    use super::*;

    #[test]
    fn records_that_lie_side_by_side_are_joined() {
        let mut table = TableBuilder::new(Encoding::Image);
        let files = ["one", "two"].map(|name| table.file(name).unwrap());
        let gap = MAX_GAP_BYTES;
        let places = [(0, 5 * gap), (0, 0), (0, 1_000 + gap), (1, 1_000), (0, 9 * gap)];
        for (file, offset) in places {
            table.sample(Extent { file: files[file], offset, len: 1_000 }, 0);
        }
        let table = table.build().unwrap();
        let needed = |nth| {
            let (sample, values) = (SampleId(nth), Vec::new());
            Needed { sample, piece: table.piece(sample, |_| None), values }
        };
        let mut needed: Vec<Needed> = (0..5).map(needed).collect();
        assert_eq!(are_joined(&needed), [false, true, true, false, false]);
        // Its caption, behind it, and those of others.
        let caption = |offset| (0, Extent { file: files[0], offset, len: 10 });
        needed[4].values.push(caption(9 * gap + 1_000));
        needed[0].values.push(caption(7 * gap + 1_000));
        assert_eq!(are_joined(&needed), [false, true, true, false, true]);
        needed[4].piece.extent.len = WHOLE_FOR_VALUE + 1;
        assert_eq!(are_joined(&needed), [false, true, true, false, false]);
    }
}
