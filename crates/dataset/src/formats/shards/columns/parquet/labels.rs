//! The column of classes: whole numbers.

use super::cells::Cells;
use super::footer::{Chunk, Leaf};
use crate::error::DatasetError;
use crate::formats::shards::{Window, class};

/// The classes of a row group, one by one.
pub(super) struct Labels(Cells);

impl Labels {
    pub(super) fn new(chunk: Chunk, leaf: Leaf) -> Self {
        Self(Cells::new("the column of classes", chunk, leaf))
    }

    /// The class of the next row, if it has one.
    pub(super) fn next(
        &mut self,
        file: &mut Window<'_>,
    ) -> Result<Option<u32>, DatasetError> {
        let (value, start) = self.0.next(file)?;
        let label = value.map_or(Ok(None), |value| class(little_endian(value)));
        label.map_err(|why| file.broken(start, why))
    }
}

/// A number of four or eight bytes with its sign.
fn little_endian(bytes: &[u8]) -> i64 {
    match bytes.len() {
        4 => bytes.first_chunk().map_or(0, |it| i64::from(i32::from_le_bytes(*it))),
        _ => bytes.first_chunk().map_or(0, |it| i64::from_le_bytes(*it)),
    }
}
