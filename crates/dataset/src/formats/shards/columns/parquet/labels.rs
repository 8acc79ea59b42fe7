//! The column of classes: whole numbers, plain or coded by a dictionary, as they are or in Snappy.
//!
//! That is what writers choose for such a column by default. A reader of all of Parquet would bring some
//! thirty packages for these few kilobytes.

use super::super::rows::class;
use super::footer::{Chunk, INT32, Leaf};
use super::levels::{DAMAGED, Runs};
use super::pages::{
    DICTIONARY, MAX_PAGE_BYTES, PLAIN, PLAIN_DICTIONARY, Page, RLE_DICTIONARY, bits,
    codec,
};
use super::snappy;
use crate::error::DatasetError;
use crate::formats::shards::Window;

/// `CompressionCodec`s that are read.
const SNAPPY: i64 = 1;

/// The classes of a row group, one by one.
pub(super) struct Labels {
    chunk: Chunk,
    leaf: Leaf,
    /// Where the next page begins.
    at: u64,
    dictionary: Vec<i64>,
    page: Option<Values>,
}

/// Values of a page that are still to come.
struct Values {
    n_left: u64,
    levels: Runs,
    numbers: Numbers,
    start: u64,
}

enum Numbers {
    Plain { bytes: Vec<u8>, at: usize },
    Indices(Runs),
}

impl Labels {
    pub(super) fn new(chunk: Chunk, leaf: Leaf) -> Self {
        let at = chunk.range.start;
        Self { chunk, leaf, at, dictionary: Vec::new(), page: None }
    }

    /// The class of the next row, if it has one.
    pub(super) fn next(
        &mut self,
        file: &mut Window<'_>,
    ) -> Result<Option<u32>, DatasetError> {
        loop {
            match &mut self.page {
                Some(page) if page.n_left > 0 => {
                    page.n_left -= 1;
                    let number = page.next(&self.leaf, &self.dictionary);
                    let label = number
                        .map_err(String::from)
                        .and_then(|number| number.map_or(Ok(None), class));
                    return label.map_err(|why| file.broken(page.start, why));
                }
                _ => self.turn(file)?,
            }
        }
    }

    /// Reads the next page.
    fn turn(&mut self, file: &mut Window<'_>) -> Result<(), DatasetError> {
        if self.at >= self.chunk.range.end {
            let why =
                "the column of classes has fewer values than rows; fetch the file again";
            return Err(file.broken(self.at, why));
        }
        let page = Page::read(file, self.at, self.chunk.range.end)?;
        self.at = page.range.end;
        if page.kind == DICTIONARY {
            let bytes = self.uncompressed(file, &page, page.range.start)?;
            let width = self.width();
            let n = usize::try_from(page.n_values).unwrap_or(usize::MAX);
            if page.encoding != PLAIN && page.encoding != PLAIN_DICTIONARY {
                return Err(self.other_encoding(file, &page));
            }
            self.dictionary =
                bytes.chunks_exact(width).take(n).map(little_endian).collect();
        } else if page.is_data() {
            self.page = Some(self.values(file, &page)?);
        }
        Ok(())
    }

    fn width(&self) -> usize {
        if self.leaf.physical == INT32 { 4 } else { 8 }
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
        let numbers = match page.encoding {
            PLAIN => Numbers::Plain { bytes, at: 0 },
            PLAIN_DICTIONARY | RLE_DICTIONARY => {
                // A page of absent values may have no byte.
                let width = bytes.first().copied().unwrap_or(0);
                if width > 32 {
                    return Err(damaged(file));
                }
                let indices = bytes.get(1..).unwrap_or_default().to_vec();
                Numbers::Indices(Runs::new(indices, width.into()))
            }
            _ => return Err(self.other_encoding(file, page)),
        };
        let levels = Runs::new(levels, bits(self.leaf.max_definition));
        Ok(Values { n_left: page.n_values, levels, numbers, start: page.range.start })
    }

    fn other_encoding(&self, file: &Window<'_>, page: &Page) -> DatasetError {
        let why = format!(
            "the column of classes has the encoding {}, which is not read; write the file \
             again with plain or dictionary encoding for this column",
            page.encoding
        );
        page.broken(file, why)
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
                "the column of classes is compressed with {}, which is not read; write the \
                 file again with compression=\"snappy\" or \"none\" for this column",
                codec(self.chunk.codec).unwrap_or_default()
            );
            return Err(page.broken(file, why));
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
    fn next(
        &mut self,
        leaf: &Leaf,
        dictionary: &[i64],
    ) -> Result<Option<i64>, &'static str> {
        if self.levels.next()? != leaf.max_definition {
            return Ok(None);
        }
        match &mut self.numbers {
            Numbers::Plain { bytes, at } => {
                let width = if leaf.physical == INT32 { 4 } else { 8 };
                let number = bytes.get(*at..*at + width).ok_or(DAMAGED)?;
                *at += width;
                Ok(Some(little_endian(number)))
            }
            Numbers::Indices(indices) => {
                let number = dictionary.get(indices.next()? as usize);
                number.copied().map(Some).ok_or(DAMAGED)
            }
        }
    }
}

/// A number of four or eight bytes with its sign.
fn little_endian(bytes: &[u8]) -> i64 {
    match bytes.len() {
        4 => bytes.first_chunk().map_or(0, |it| i64::from(i32::from_le_bytes(*it))),
        _ => bytes.first_chunk().map_or(0, |it| i64::from_le_bytes(*it)),
    }
}
