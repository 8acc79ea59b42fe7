//! The values of a small column one by one, as their bytes: plain or coded by a dictionary, as they are or in
//! Snappy.
//!
//! That is what writers choose for such columns by default. A reader of all of Parquet would bring some
//! thirty packages for these few kilobytes.

use std::ops::Range;

use super::footer::{BOOLEAN, BYTE_ARRAY, Chunk, DOUBLE, FLOAT, INT32, INT64, Leaf};
use super::levels::{DAMAGED, Runs};
use super::pages::{
    DICTIONARY, MAX_PAGE_BYTES, PLAIN, PLAIN_DICTIONARY, Page, RLE, RLE_DICTIONARY, bits,
    codec,
};
use super::snappy;
use crate::error::DatasetError;
use crate::formats::shards::Window;

/// `CompressionCodec`s that are read.
const SNAPPY: i64 = 1;

/// The values of a column in a row group.
pub(super) struct Cells {
    /// What the column is called in messages.
    what: String,
    chunk: Chunk,
    leaf: Leaf,
    /// Where the next page begins.
    at: u64,
    /// The values of the dictionary, and where each of them is.
    dictionary: (Vec<u8>, Vec<Range<usize>>),
    page: Option<Values>,
}

/// Values of a page that are still to come.
struct Values {
    n_left: u64,
    levels: Runs,
    coded: Coded,
    start: u64,
    /// The last value, where it has no bytes of its own.
    bit: [u8; 1],
}

enum Coded {
    Plain { bytes: Vec<u8>, at: usize },
    Bits { bytes: Vec<u8>, at: usize },
    Runs(Runs),
    Indices(Runs),
}

impl Cells {
    pub(super) fn new(what: impl Into<String>, chunk: Chunk, leaf: Leaf) -> Self {
        let (what, at) = (what.into(), chunk.range.start);
        Self { what, chunk, leaf, at, dictionary: Default::default(), page: None }
    }

    /// The value of the next row, if it has one, and where its page is.
    pub(super) fn next(
        &mut self,
        file: &mut Window<'_>,
    ) -> Result<(Option<&[u8]>, u64), DatasetError> {
        while self.page.as_ref().is_none_or(|page| page.n_left == 0) {
            self.turn(file)?;
        }
        let Some(page) = &mut self.page else { return Ok((None, self.at)) };
        page.n_left -= 1;
        let start = page.start;
        let value = page.next(&self.leaf, &self.dictionary);
        value.map(|value| (value, start)).map_err(|why| file.broken(start, why))
    }

    /// Reads the next page.
    fn turn(&mut self, file: &mut Window<'_>) -> Result<(), DatasetError> {
        if self.at >= self.chunk.range.end {
            let why =
                format!("{} has fewer values than rows; fetch the file again", self.what);
            return Err(file.broken(self.at, why));
        }
        let page = Page::read(file, self.at, self.chunk.range.end)?;
        self.at = page.range.end;
        if page.kind == DICTIONARY {
            let bytes = self.uncompressed(file, &page, page.range.start)?;
            if page.encoding != PLAIN && page.encoding != PLAIN_DICTIONARY {
                return Err(self.other_encoding(file, &page));
            }
            let n = usize::try_from(page.n_values).unwrap_or(usize::MAX);
            let mut places = Vec::new();
            let mut at = 0;
            while places.len() < n && at < bytes.len() {
                let Some(place) = plain(self.leaf.physical, &bytes, at) else {
                    return Err(page.broken(file, DAMAGED));
                };
                at = place.end;
                places.push(place);
            }
            self.dictionary = (bytes, places);
        } else if page.is_data() {
            self.page = Some(self.values(file, &page)?);
        }
        Ok(())
    }

    fn values(&self, file: &mut Window<'_>, page: &Page) -> Result<Values, DatasetError> {
        let damaged = |file: &Window<'_>| page.broken(file, DAMAGED);
        if self.leaf.max_definition > 0 {
            page.check_levels(file)?;
        }
        let (levels, bytes) = match page.outside(file)? {
            Some((levels, at)) => (levels, self.uncompressed(file, page, at)?),
            None => {
                let mut bytes = self.uncompressed(file, page, page.range.start)?;
                let mut levels = Vec::new();
                if self.leaf.max_definition > 0 {
                    let len = bytes.first_chunk().copied().map(u32::from_le_bytes);
                    let end = len.map_or(usize::MAX, |len| 4 + len as usize);
                    levels = bytes.get(4..end).ok_or_else(|| damaged(file))?.to_vec();
                    bytes.drain(..end);
                }
                (levels, bytes)
            }
        };
        let coded = match page.encoding {
            PLAIN if self.leaf.physical == BOOLEAN => Coded::Bits { bytes, at: 0 },
            PLAIN => Coded::Plain { bytes, at: 0 },
            RLE if self.leaf.physical == BOOLEAN => {
                // After their length.
                Coded::Runs(Runs::new(bytes.get(4..).unwrap_or_default().to_vec(), 1))
            }
            PLAIN_DICTIONARY | RLE_DICTIONARY => {
                // A page of absent values may have no byte.
                let width = bytes.first().copied().unwrap_or(0);
                if width > 32 {
                    return Err(damaged(file));
                }
                let indices = bytes.get(1..).unwrap_or_default().to_vec();
                Coded::Indices(Runs::new(indices, width.into()))
            }
            _ => return Err(self.other_encoding(file, page)),
        };
        let levels = Runs::new(levels, bits(self.leaf.max_definition));
        let (n_left, start) = (page.n_values, page.range.start);
        Ok(Values { n_left, levels, coded, start, bit: [0] })
    }

    fn other_encoding(&self, file: &Window<'_>, page: &Page) -> DatasetError {
        let why = format!(
            "{} has the encoding {}, which is not read; write the file again with plain or \
             dictionary encoding for this column",
            self.what, page.encoding
        );
        file.compressed(page.range.start, why)
    }

    /// The bytes of a page from `at` on as they were before compression.
    fn uncompressed(
        &self,
        file: &mut Window<'_>,
        page: &Page,
        at: u64,
    ) -> Result<Vec<u8>, DatasetError> {
        let bytes = page.bytes(file, at..page.range.end)?;
        if !page.is_compressed || self.chunk.codec == 0 {
            return Ok(bytes);
        }
        if self.chunk.codec != SNAPPY {
            let why = format!(
                "{} is compressed with {}, which is not read; write the file again with \
                 compression=\"snappy\" or \"none\" for this column",
                self.what,
                codec(self.chunk.codec).unwrap_or_default()
            );
            return Err(file.compressed(page.range.start, why));
        }
        let outside = at - page.range.start;
        let len = page.uncompressed_bytes.checked_sub(outside);
        let len = len.filter(|len| *len <= MAX_PAGE_BYTES);
        let len = len.and_then(|len| usize::try_from(len).ok());
        let whole = len.and_then(|len| snappy::decompress(&bytes, len));
        whole.ok_or_else(|| page.broken(file, DAMAGED))
    }
}

impl Values {
    fn next<'a>(
        &'a mut self,
        leaf: &Leaf,
        (values, places): &'a (Vec<u8>, Vec<Range<usize>>),
    ) -> Result<Option<&'a [u8]>, &'static str> {
        if self.levels.next()? != leaf.max_definition {
            return Ok(None);
        }
        match &mut self.coded {
            Coded::Plain { bytes, at } => {
                let place = plain(leaf.physical, bytes, *at).ok_or(DAMAGED)?;
                *at = place.end;
                bytes.get(place).map(Some).ok_or(DAMAGED)
            }
            Coded::Bits { bytes, at } => {
                let byte = bytes.get(*at / 8).ok_or(DAMAGED)?;
                self.bit = [byte >> (*at % 8) & 1];
                *at += 1;
                Ok(Some(&self.bit))
            }
            Coded::Runs(runs) => {
                self.bit = [u8::from(runs.next()? != 0)];
                Ok(Some(&self.bit))
            }
            Coded::Indices(indices) => {
                let place = places.get(indices.next()? as usize).ok_or(DAMAGED)?;
                values.get(place.clone()).map(Some).ok_or(DAMAGED)
            }
        }
    }
}

/// Where the plain value is that begins at `at`.
fn plain(physical: i64, bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let (start, len) = match physical {
        INT32 | FLOAT => (at, 4),
        INT64 | DOUBLE => (at, 8),
        BYTE_ARRAY => {
            let len = bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)?;
            (at + 4, len as usize)
        }
        _ => return None,
    };
    let end = start.checked_add(len).filter(|end| *end <= bytes.len())?;
    Some(start..end)
}
