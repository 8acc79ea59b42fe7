//! The values of rows' further fields: captions, boxes, masks.
//!
//! In shards they lie next to their records, so that one request brings both. Each has a position, as its record has, and
//! its bytes are counted until the row is complete.

use std::ops::Range;

use bothends_core::sample::Extent;
use bothends_storage::Bytes;

use super::{Books, Brought, Fetched, Needed, Row};

/// A wanted value.
#[derive(Debug)]
pub(super) struct Value {
    /// The number of its field.
    field: usize,
    pub(super) position: u64,
    pub(super) extent: Extent,
    pub(super) fetched: Option<Fetched>,
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
        let of = |&(field, extent)| Self { field, position: 0, extent, fetched: None };
        needed.values.iter().map(of).collect()
    }
}

impl From<Value> for FetchedValue {
    fn from(Value { field, position, extent, fetched }: Value) -> Self {
        let bytes = match fetched {
            Some(Ok(Brought::Fetched(bytes, range))) => Some((bytes, range)),
            Some(Ok(Brought::Cached(_)) | Err(_)) | None => None,
        };
        Self { field, position, extent, bytes }
    }
}

impl Row {
    /// Positions of values of which nothing has come.
    pub(super) fn missing_values(&self) -> impl Iterator<Item = u64> {
        let missing = self.values.iter().filter(|value| value.fetched.is_none());
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
    pub(super) fn value(&self, position: u64) -> Option<&Value> {
        let row = self.rows.get(self.values.get(&position)?)?;
        row.values.iter().find(|value| value.position == position)
    }

    pub(super) fn value_mut(&mut self, position: u64) -> Option<&mut Value> {
        let row = self.rows.get_mut(self.values.get(&position)?)?;
        row.values.iter_mut().find(|value| value.position == position)
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
    pub(super) fn take_out(&mut self, position: u64) -> Option<Row> {
        let row = self.rows.remove(&position)?;
        for value in &row.values {
            self.values.remove(&value.position);
        }
        Some(row)
    }
}
