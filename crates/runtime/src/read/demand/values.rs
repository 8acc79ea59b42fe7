//! The values of rows' further fields: captions, boxes, masks.
//!
//! In shards they lie next to their records, so that one request brings both. Each has a position, as its record has, and
//! its bytes are counted until the row is complete.

use std::ops::Range;

use bothends_core::sample::Extent;
use bothends_storage::Bytes;

use super::{BatchKey, Books, Brought, Fetched, Needed, Row, nth};

/// A wanted value.
#[derive(Debug)]
pub(super) struct Value {
    /// The number of its field.
    field: usize,
    pub(super) position: u64,
    pub(super) extent: Extent,
    pub(super) room: Room,
    pub(super) fetched: Option<Fetched>,
}

/// Whether there is room for a value until its batch is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Nobody has asked for it.
    Unknown,
    Reserved,
    /// The value is not fetched: whoever finishes the batch reads it.
    None,
}

/// What came of a value of a row that is complete.
#[derive(Debug)]
pub(crate) struct FetchedValue {
    /// The number of its field.
    pub(crate) field: usize,
    pub(crate) position: u64,
    pub(crate) extent: Extent,
    /// `None` where nothing came, or where it is on a local disk: whoever finishes the batch reads it there, or tries
    /// again and finds out why.
    pub(crate) bytes: Option<(Bytes, Range<usize>)>,
}

impl Value {
    /// Those of a row, which have no positions yet.
    pub(super) fn of_row(needed: &Needed) -> Vec<Self> {
        let of = |&(field, extent)| {
            let (room, fetched) = (Room::Unknown, None);
            Self { field, position: 0, extent, room, fetched }
        };
        needed.values.iter().map(of).collect()
    }
}

impl From<Value> for FetchedValue {
    fn from(Value { field, position, extent, fetched, .. }: Value) -> Self {
        let bytes = match fetched {
            Some(Ok(Brought::Fetched(bytes, range))) => Some((bytes, range)),
            Some(Ok(Brought::Cached(_)) | Err(_)) | None => None,
        };
        Self { field, position, extent, bytes }
    }
}

impl Value {
    /// Whether it is fetched, and has not come.
    fn is_missing(&self) -> bool {
        self.fetched.is_none() && self.room != Room::None
    }
}

impl Row {
    /// Positions of values that are fetched and of which nothing has come.
    pub(super) fn missing_values(&self) -> impl Iterator<Item = u64> {
        let missing = self.values.iter().filter(|value| value.is_missing());
        missing.map(|value| value.position)
    }

    /// Of its position, which is `own`, and those of its values, those of which nothing has come.
    pub(super) fn missing(&self, own: u64) -> impl Iterator<Item = u64> {
        let record = self.record.is_none().then_some(own);
        record.into_iter().chain(self.missing_values())
    }

    /// Whether a request was sent for one of its values.
    pub(super) fn has_value(&self) -> bool {
        self.values.iter().any(|value| match &value.fetched {
            Some(Ok(Brought::Fetched(..)) | Err(_)) => true,
            Some(Ok(Brought::Cached(_))) | None => false,
        })
    }

    /// Its position, which is `own`, and those of its values.
    pub(super) fn all(&self, own: u64) -> impl Iterator<Item = u64> {
        std::iter::once(own).chain(self.values.iter().map(|value| value.position))
    }
}

impl Books {
    /// Whether any row needs more than its record.
    pub(crate) fn has_values(&self) -> bool {
        !self.values.is_empty()
    }

    pub(super) fn value(&self, position: u64) -> Option<&Value> {
        let row = self.rows.get(*self.values.get(&position)?)?;
        row.values.iter().find(|value| value.position == position)
    }

    pub(super) fn value_mut(&mut self, position: u64) -> Option<&mut Value> {
        let row = self.rows.get_mut(*self.values.get(&position)?)?;
        row.values.iter_mut().find(|value| value.position == position)
    }

    /// The batch of the value at a position that has no room yet, and how many bytes it needs.
    pub(crate) fn needs_room(&self, position: u64) -> Option<(BatchKey, u64)> {
        let value = self.value(position).filter(|value| value.room != Room::Reserved)?;
        let row = self.rows.get(*self.values.get(&position)?)?;
        Some((row.batch, u64::from(value.extent.len)))
    }

    /// The value at a position has room.
    pub(crate) fn has_room(&mut self, position: u64) {
        if let Some(value) = self.value_mut(position) {
            value.room = Room::Reserved;
        }
    }

    /// The value at a position has no room, and is not waited for. What has come of it is dropped.
    pub(crate) fn has_no_room(&mut self, position: u64) {
        if let Some(value) = self.value_mut(position) {
            (value.room, value.fetched) = (Room::None, None);
        }
    }

    /// Nothing is reserved for the values of a batch any more. Positions of those that had room, for which it is to be asked
    /// for again; none for the batch of a job, which waits for nothing that nobody requests.
    pub(crate) fn forget_room(&mut self, batch: BatchKey) -> Vec<u64> {
        let batch = self.batches.get(nth(batch)).filter(|batch| batch.progress.is_none());
        let mut had_room = Vec::new();
        for at in batch.into_iter().flat_map(|batch| &batch.positions) {
            let values = self.rows.get_mut(*at).map(|row| row.values.iter_mut());
            for value in values.into_iter().flatten() {
                if value.room == Room::Reserved {
                    value.room = Room::Unknown;
                    had_room.push(value.position);
                }
            }
        }
        had_room
    }

    /// Positions of values of a batch that had no room.
    pub(crate) fn without_room(&self, batch: BatchKey) -> Vec<u64> {
        if !self.has_values() {
            return Vec::new();
        }
        let positions = self.batches.get(nth(batch)).map(|batch| batch.positions.iter());
        let rows = positions.into_iter().flatten().filter_map(|at| self.rows.get(*at));
        let values = rows.flat_map(|row| row.values.iter());
        let without = values.filter(|value| value.room == Room::None);
        let mut without: Vec<u64> = without.map(|value| value.position).collect();
        without.sort_unstable();
        without
    }

    /// A value is needed at another place in the order.
    pub(super) fn move_value(&mut self, from: u64, to: u64) {
        if let Some(value) = self.value_mut(from) {
            value.position = to;
            let row = self.values.remove(&from);
            self.values.extend(row.map(|row| (to, row)));
        }
    }

    /// Takes a row out with the positions of its values.
    pub(super) fn take_out(&mut self, position: u64) -> Option<Box<Row>> {
        let row = self.rows.remove(position)?;
        for value in &row.values {
            self.values.remove(&value.position);
        }
        Some(row)
    }
}
