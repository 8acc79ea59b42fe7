//! Which records are wanted of a remote store, and what has become of each: the books of the thread
//! that fetches (`fetching.rs`). `orders.rs` keeps the queue in step with them.
//!
//! A batch is wanted from when the collector foretells it, or else from when its job comes. Its rows
//! have positions, which say in what order they are needed. A row leaves the books as soon as its bytes
//! and its job's part of a slot are both there. Nothing here does I/O or decides when to fetch.
//!
//! The values of a row's further fields have positions of their own, next to those of the records that they lie
//! next to (`demand/values.rs`): the row waits for them, too.

mod values;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_core::positions::PositionMap;
use bothends_core::sample::Extent;
use bothends_dataset::Piece;
use bothends_side_index::CachedRecord;
use bothends_slots::Part;
use bothends_storage::Bytes;

use crate::make::front::{FrontJob, Progress};
pub(crate) use values::FetchedValue;
use values::Value;

/// A batch by its epoch and its place in the plan.
pub(crate) type BatchKey = (EpochIdx, BatchIdx);

/// The batch's place among those of all epochs.
fn nth((epoch, batch): BatchKey) -> u64 {
    u64::from(epoch.0) << u32::BITS | u64::from(batch.0)
}

/// Positions between the first rows of two batches that follow each other.
const STRIDE: u64 = 1 << 32;

/// The rows that are wanted.
#[derive(Debug, Default)]
pub(crate) struct Books {
    /// Boxed, as the positions of values lie between those of rows.
    rows: PositionMap<Box<Row>>,
    /// The positions of rows' values, and those of their rows.
    values: BTreeMap<u64, u64>,
    /// By [`nth`].
    batches: PositionMap<Batch>,
    /// Batches that are no longer foretold and of which something has come, the oldest first.
    aside: Vec<BatchKey>,
    next: u64,
    /// After the positions of batches that nobody foretold. It never goes back: the queue may still
    /// know a position that has left the books.
    urgent_end: u64,
}

/// A batch with rows that are wanted, or have been.
#[derive(Debug)]
struct Batch {
    key: BatchKey,
    /// Position of each row, by its number.
    positions: Vec<u64>,
    /// Rows that are still in the books.
    left: usize,
    /// `None` as long as it is only foretold.
    progress: Option<Arc<Progress>>,
}

/// What a row needs of the store.
#[derive(Debug, Clone)]
pub(crate) struct Needed {
    pub(crate) sample: SampleId,
    pub(crate) piece: Piece,
    /// Fields that have to be fetched, by their numbers.
    pub(crate) values: Vec<(usize, Extent)>,
}

/// A wanted row.
#[derive(Debug)]
struct Row {
    batch: BatchKey,
    sample: SampleId,
    piece: Piece,
    place: Place,
    record: Option<Fetched>,
    values: Vec<Value>,
}

/// A row's number in the job, and its part of the job's slot.
#[derive(Debug)]
enum Place {
    /// There is no job yet.
    None,
    Here(u32, Part),
    /// A request has the part.
    Lent(u32),
}

/// Where the part of a row belongs that a request has.
#[derive(Debug)]
pub(crate) struct LentBy {
    position: u64,
    progress: Arc<Progress>,
}

/// What a fetch brought for a row, or why it brought nothing.
pub(crate) type Fetched = Result<Brought, String>;

/// A row's record.
#[derive(Debug)]
pub(crate) enum Brought {
    /// A part of what a request brought.
    Fetched(Bytes, Range<usize>),
    /// It is on a local disk, and no request was sent.
    Cached(CachedRecord),
}

/// A row with all that it needs.
#[derive(Debug)]
pub(crate) struct Complete {
    pub(crate) position: u64,
    pub(crate) progress: Arc<Progress>,
    pub(crate) row: u32,
    pub(crate) sample: SampleId,
    pub(crate) part: Part,
    pub(crate) piece: Piece,
    pub(crate) record: Fetched,
    pub(crate) values: Vec<FetchedValue>,
}

impl LentBy {
    /// That of the row.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }
}

impl Books {
    pub(crate) fn has(&self, batch: BatchKey) -> bool {
        self.batches.contains(nth(batch))
    }

    /// Enters a batch that is foretold, after all others. Its rows' positions, in the order in which
    /// they are to be fetched.
    pub(crate) fn foretold(&mut self, batch: BatchKey, rows: Vec<Needed>) -> Vec<u64> {
        let first = self.end();
        self.enter(batch, rows, first)
    }

    /// A batch in the books is foretold. The positions to be fetched again, if it had been set aside.
    pub(crate) fn foretold_again(&mut self, batch: BatchKey) -> Vec<u64> {
        let Some(at) = self.aside.iter().position(|aside| *aside == batch) else {
            return Vec::new();
        };
        self.aside.remove(at);
        self.missing(batch)
    }

    /// Enters a batch that nobody foretold, before those that are only foretold.
    pub(crate) fn urgent(&mut self, batch: BatchKey, rows: Vec<Needed>) -> Vec<u64> {
        let n_positions = rows.iter().map(|row| 1 + row.values.len()).sum();
        let first = self.before_foretold(n_positions);
        let first = first.unwrap_or_else(|| self.end());
        self.enter(batch, rows, first)
    }

    /// Moves what is missing of a batch before all others that are only foretold, where it is not
    /// there already. The positions that change: from where to where.
    pub(crate) fn hasten(&mut self, batch: BatchKey) -> Vec<(u64, u64)> {
        let missing = self.missing(batch);
        let Some(own) = missing.first() else { return Vec::new() };
        let is_behind = self
            .rows
            .iter()
            .take_while(|(at, _)| at < own)
            .any(|(_, row)| row.batch != batch && self.is_only_foretold(row));
        let first = is_behind.then(|| self.before_foretold(missing.len())).flatten();
        let Some(first) = first else { return Vec::new() };
        let moves: Vec<(u64, u64)> = missing.into_iter().zip(first..).collect();
        let new: HashMap<u64, u64> = moves.iter().copied().collect();
        if let Some(batch) = self.batches.get_mut(nth(batch)) {
            for at in &mut batch.positions {
                *at = new.get(at).copied().unwrap_or(*at);
            }
        }
        for (from, to) in &moves {
            match self.rows.remove(*from) {
                Some(row) => {
                    for value in &row.values {
                        self.values.insert(value.position, *to);
                    }
                    self.rows.insert(*to, row);
                }
                None => self.move_value(*from, *to),
            }
        }
        moves
    }

    /// The first of `n` new positions before all rows that are only foretold; `None` where there are
    /// no such rows.
    fn before_foretold(&mut self, n: usize) -> Option<u64> {
        // Such batches have the upper half of the positions before those of a foretold batch.
        let is_foretold = |at: u64| at % STRIDE < STRIDE / 2;
        let mut foretold = self
            .rows
            .iter()
            .filter(|(at, row)| is_foretold(*at) && self.is_only_foretold(row));
        let base = foretold.next().map(|(at, _)| at - at % STRIDE)?;
        let first = self.urgent_end.max(base - STRIDE / 2);
        let end = first.checked_add(n as u64).filter(|end| *end <= base)?;
        self.urgent_end = end;
        Some(first)
    }

    fn is_only_foretold(&self, row: &Row) -> bool {
        self.batches.get(nth(row.batch)).is_some_and(|batch| batch.progress.is_none())
    }

    /// The position of the next batch, after all others.
    fn end(&mut self) -> u64 {
        self.next += STRIDE;
        self.next
    }

    fn enter(&mut self, batch: BatchKey, rows: Vec<Needed>, first: u64) -> Vec<u64> {
        // In the order of their places, so that neighbours meet; rows keep their numbers. A row's values stay with its
        // record, though a file may have all records before all values: they are complete one after the other.
        let mut numbers: Vec<usize> = (0..rows.len()).collect();
        let place = |extent: Extent| (extent.file, extent.offset);
        numbers.sort_by_key(|&number| place(rows[number].piece.extent));
        let mut order: Vec<(usize, Option<usize>)> = Vec::new();
        for number in numbers {
            let row = &rows[number];
            let values = row.values.iter().enumerate();
            let values = values.map(|(nth, (_, extent))| (*extent, Some(nth)));
            let mut parts = vec![(row.piece.extent, None)];
            parts.extend(values);
            parts.sort_by_key(|(extent, _)| place(*extent));
            order.extend(parts.into_iter().map(|(_, value)| (number, value)));
        }
        let in_order: Vec<u64> = (first..).take(order.len()).collect();
        let mut positions = vec![0; rows.len()];
        let mut values: Vec<Vec<Value>> = rows.iter().map(Value::of_row).collect();
        for (position, (number, value)) in in_order.iter().zip(order) {
            match value {
                None => positions[number] = *position,
                Some(nth) => values[number][nth].position = *position,
            }
        }
        let left = positions.len();
        for ((&position, row), values) in positions.iter().zip(rows).zip(values) {
            self.values.extend(values.iter().map(|value| (value.position, position)));
            let Needed { sample, piece, .. } = row;
            let place = Place::None;
            let row = Row { batch, sample, piece, place, record: None, values };
            self.rows.insert(position, Box::new(row));
        }
        let entered = Batch { key: batch, positions, left, progress: None };
        self.batches.insert(nth(batch), entered);
        in_order
    }

    /// The bytes that are wanted at a position.
    pub(crate) fn extent(&self, position: u64) -> Option<Extent> {
        let record = self.record(position).map(|(_, piece)| piece.extent);
        record.or_else(|| self.value(position).map(|value| value.extent))
    }

    /// The sample and the piece of its record at a position; `None` at that of a value.
    pub(crate) fn record(&self, position: u64) -> Option<(SampleId, Piece)> {
        self.rows.get(position).map(|row| (row.sample, row.piece))
    }

    /// What has not come of a batch, in the order in which it is to be fetched.
    pub(crate) fn missing(&self, batch: BatchKey) -> Vec<u64> {
        let positions = self.batches.get(nth(batch)).map(|batch| batch.positions.iter());
        let mut missing = Vec::new();
        for &at in positions.into_iter().flatten() {
            let Some(row) = self.rows.get(at) else { continue };
            missing.extend(row.missing(at));
        }
        missing.sort_unstable();
        missing
    }

    /// Whether a job lacks a record.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.batches.iter().any(|(_, batch)| batch.progress.is_some())
    }

    /// What is missing of the first row of a job that lacks anything.
    pub(crate) fn first_lacking(&self) -> Option<u64> {
        let rows = self.rows.iter().filter(|(_, row)| !self.is_only_foretold(row));
        let mut missing = rows.flat_map(|(at, row)| row.missing(at));
        missing.next()
    }

    /// All positions that are only foretold, what is needed last first.
    pub(crate) fn foretold_backwards(&self) -> Vec<u64> {
        let rows = self.rows.iter().filter(|(_, row)| self.is_only_foretold(row));
        let mut positions: Vec<u64> = rows.flat_map(|(at, row)| row.all(at)).collect();
        positions.sort_unstable_by(|a, b| b.cmp(a));
        positions
    }

    /// What has come for a position is dropped, to be fetched again.
    pub(crate) fn forget(&mut self, position: u64) {
        if let Some(row) = self.rows.get_mut(position) {
            row.record = None;
        } else if let Some(value) = self.value_mut(position) {
            value.fetched = None;
        }
    }

    /// Whether the batch has these samples, as an epoch that is run again may not.
    pub(crate) fn is(&self, batch: BatchKey, samples: &[(SampleId, Part)]) -> bool {
        self.batches.get(nth(batch)).is_some_and(|batch| {
            let own = batch.positions.iter().map(|at| self.rows.get(*at));
            batch.progress.is_none()
                && batch.positions.len() == samples.len()
                && own.zip(samples).all(|(row, (sample, _))| {
                    row.is_some_and(|row| row.sample == *sample)
                })
        })
    }

    /// The job of a batch that is in the books. Its rows that are complete by that.
    pub(crate) fn job(&mut self, batch: BatchKey, job: FrontJob) -> Vec<Complete> {
        let Some(entered) = self.batches.get_mut(nth(batch)) else { return Vec::new() };
        entered.progress = Some(job.progress);
        self.aside.retain(|aside| *aside != batch);
        let positions = entered.positions.clone();
        for ((number, (_, part)), at) in (0..).zip(job.rows).zip(&positions) {
            if let Some(row) = self.rows.get_mut(*at) {
                row.place = Place::Here(number, part);
            }
        }
        positions.into_iter().filter_map(|at| self.complete(at)).collect()
    }

    /// A fetch has ended. The row, if it is complete by that.
    pub(crate) fn fetched(&mut self, position: u64, bytes: Fetched) -> Option<Complete> {
        if let Some(value) = self.value_mut(position) {
            value.fetched = Some(bytes);
            let row = *self.values.get(&position)?;
            return self.complete(row);
        }
        self.rows.get_mut(position)?.record = Some(bytes);
        self.complete(position)
    }

    /// The part of a row that has nothing but its job, needs nothing but its record, and all of whose bytes a request
    /// brings: that may receive into it, and gives it back ([`Self::given_back`], [`Self::received`]).
    pub(crate) fn lend(&mut self, position: u64) -> Option<(Part, LentBy)> {
        let row = self.rows.get_mut(position).filter(|row| row.record.is_none())?;
        let progress = self.batches.get(nth(row.batch))?.progress.clone()?;
        let Place::Here(number, part) = &row.place else { return None };
        if part.len() != row.piece.extent.len as usize || !row.values.is_empty() {
            return None;
        }
        let lent = Place::Lent(*number);
        let Place::Here(_, part) = std::mem::replace(&mut row.place, lent) else {
            return None;
        };
        Some((part, LentBy { position, progress }))
    }

    /// A request brought nothing into the part it had. The row, if it has been waiting for that alone.
    pub(crate) fn given_back(&mut self, lent: LentBy, part: Part) -> Option<Complete> {
        let LentBy { position, progress } = lent;
        match self.rows.get_mut(position) {
            Some(row) => {
                if let Place::Lent(number) = row.place {
                    row.place = Place::Here(number, part);
                }
                self.complete(position)
            }
            None => {
                // It was withdrawn meanwhile. The joiner can only put the slot together once the part is gone.
                drop(part);
                progress.row_left_out();
                None
            }
        }
    }

    /// The bytes of a row are in the part that a request had: it is done, after so much work.
    pub(crate) fn received(&mut self, lent: LentBy, part: Part, spent: Duration) {
        let LentBy { position, progress } = lent;
        // The joiner can only put the slot together once the part is gone.
        drop(part);
        match self.remove(position).map(|row| row.place) {
            Some(Place::Lent(number)) => {
                progress.row_done(number, Ok(None), spent);
            }
            Some(Place::None | Place::Here(..)) | None => progress.row_left_out(),
        }
    }

    fn complete(&mut self, position: u64) -> Option<Complete> {
        let row = self.rows.get(position)?;
        row.record.as_ref()?;
        if row.missing_values().next().is_some() {
            return None;
        }
        let Place::Here(..) = row.place else { return None };
        let batch = row.batch;
        let progress = self.batches.get(nth(batch))?.progress.clone()?;
        let Row { sample, piece, place, record, values, .. } = *self.remove(position)?;
        let (Place::Here(row, part), Some(record)) = (place, record) else { return None };
        let values = values.into_iter().map(FetchedValue::from).collect();
        Some(Complete { position, progress, row, sample, part, piece, record, values })
    }

    fn remove(&mut self, position: u64) -> Option<Box<Row>> {
        let row = self.take_out(position)?;
        if let Some(batch) = self.batches.get_mut(nth(row.batch)) {
            batch.left -= 1;
            if batch.left == 0 {
                self.batches.remove(nth(row.batch));
            }
        }
        Some(row)
    }

    /// Takes out a batch that nobody wants any more. The positions that were left of it.
    pub(crate) fn withdraw(&mut self, batch: BatchKey) -> Vec<u64> {
        let Some(Batch { positions, progress, .. }) = self.batches.remove(nth(batch))
        else {
            return Vec::new();
        };
        self.aside.retain(|aside| *aside != batch);
        let mut left = Vec::new();
        for position in positions {
            let Some(row) = self.take_out(position) else { continue };
            left.extend(row.all(position));
            match (&progress, row.place) {
                (Some(progress), Place::Here(_, part)) => {
                    // The joiner can only put the slot together once the part is gone.
                    drop(part);
                    progress.row_left_out();
                }
                // It is left out when its part comes back.
                (Some(_), Place::Lent(_)) => {}
                (Some(_), Place::None) | (None, _) => {}
            }
        }
        left
    }

    /// A batch that is no longer foretold keeps what has come: a device has claimed it, or the front is
    /// to rest for a while. The rows that are missing; `None` if nothing was fetched for any, and it may
    /// as well go.
    pub(crate) fn set_aside(&mut self, batch: BatchKey) -> Option<Vec<u64>> {
        let missing = self.missing(batch);
        let of_batch = &self.batches.get(nth(batch))?.positions;
        let mut rows = of_batch.iter().filter_map(|at| self.rows.get(*at));
        let has_come = |row: &Row| match &row.record {
            Some(Ok(Brought::Fetched(..)) | Err(_)) => true,
            Some(Ok(Brought::Cached(_))) | None => row.has_value(),
        };
        if !rows.any(|row| has_come(row)) {
            return None;
        }
        self.aside.push(batch);
        Some(missing)
    }

    /// The batches that are set aside, the first of them first.
    pub(crate) fn all_set_aside(&self) -> &[BatchKey] {
        &self.aside
    }

    /// Batches that are only foretold and that `is_wanted` says no longer are. What is needed last comes first: of those that
    /// are set aside together, it is dropped first.
    pub(crate) fn unwanted(&self, is_wanted: impl Fn(BatchKey) -> bool) -> Vec<BatchKey> {
        let batches = self.batches.iter().map(|(_, batch)| batch).filter(|batch| {
            let Batch { key, progress, .. } = batch;
            progress.is_none() && !is_wanted(*key) && !self.aside.contains(key)
        });
        let mut unwanted: Vec<_> = batches.map(|batch| batch.key).collect();
        unwanted.reverse();
        unwanted
    }

    /// Batches whose job was revoked.
    pub(crate) fn revoked(&self) -> Vec<BatchKey> {
        let is_revoked = |progress: &Arc<Progress>| progress.is_revoked();
        let batches = self.batches.iter().map(|(_, batch)| batch);
        let revoked =
            batches.filter(|batch| batch.progress.as_ref().is_some_and(is_revoked));
        revoked.map(|batch| batch.key).collect()
    }
}

#[cfg(test)]
mod tests;
