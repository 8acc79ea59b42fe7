//! Pages of a column: their headers, and the places of images in them.

use std::ops::Range;

use super::footer::{Chunk, Leaf};
use super::levels::Runs;
use super::thrift::{Compact, FALSE, I32, STRUCT, TRUE};
use crate::error::DatasetError;
use crate::formats::shards::Window;

/// Kinds of pages (`PageType`).
const DATA: i64 = 0;
const INDEX: i64 = 1;
pub(super) const DICTIONARY: i64 = 2;
const DATA_V2: i64 = 3;

/// Encodings of values (`Encoding`).
pub(super) const PLAIN: i64 = 0;
pub(super) const PLAIN_DICTIONARY: i64 = 2;
pub(super) const RLE: i64 = 3;
pub(super) const RLE_DICTIONARY: i64 = 8;

/// Longest levels or values that are read into memory at once: those of a page of images are its levels.
pub(super) const MAX_PAGE_BYTES: u64 = 1 << 26;

const REWRITE: &str = "no image in the file can be read alone; write the file again with \
    `use_dictionary=False, compression=\"none\"` for this column, as `Dataset.to_parquet` does \
    in a current version of `datasets`";

/// What a page's header says.
#[derive(Debug, Clone)]
pub(super) struct Page {
    pub(super) kind: i64,
    pub(super) n_values: u64,
    pub(super) encoding: i64,
    pub(super) uncompressed_bytes: u64,
    /// The page's bytes without its header.
    pub(super) range: Range<u64>,
    levels: Levels,
    pub(super) is_compressed: bool,
}

/// Where a data page has its levels.
#[derive(Debug, Clone, Copy)]
enum Levels {
    /// Before the values, after their length, compressed with them.
    Inside { encoding: i64 },
    /// Before the values, so many bytes in all.
    Before { definition: u64, repetition: u64 },
}

impl Page {
    /// The page at `at`, of a column that ends there.
    pub(super) fn read(
        file: &mut Window<'_>,
        at: u64,
        end: u64,
    ) -> Result<Self, DatasetError> {
        let damaged = "the header of a page is damaged; fetch the file again";
        let mut values = Compact { file, at, end, damaged };
        let mut page = Self {
            kind: -1,
            n_values: 0,
            encoding: PLAIN,
            uncompressed_bytes: 0,
            range: 0..0,
            levels: Levels::Inside { encoding: RLE },
            is_compressed: true,
        };
        let mut compressed_bytes = 0;
        let mut last = 0;
        while let Some(field) = values.field(&mut last)? {
            match field {
                (1, I32) => page.kind = values.int()?,
                (2, I32) => page.uncompressed_bytes = values.count()?,
                (3, I32) => compressed_bytes = values.count()?,
                (5 | 7 | 8, STRUCT) => page.details(&mut values, field.0)?,
                (_, kind) => values.skip(kind)?,
            }
        }
        let start = values.at;
        let page_end = start.checked_add(compressed_bytes).filter(|it| *it <= end);
        page.range = start..page_end.ok_or_else(|| values.broken())?;
        match page.kind {
            DATA | INDEX | DICTIONARY | DATA_V2 => Ok(page),
            _ => Err(values.broken()),
        }
    }

    /// `DataPageHeader`, `DictionaryPageHeader` or `DataPageHeaderV2`.
    fn details(
        &mut self,
        values: &mut Compact<'_, '_>,
        which: i64,
    ) -> Result<(), DatasetError> {
        let (mut definition, mut repetition, mut levels) = (0, 0, RLE);
        let mut last = 0;
        while let Some(field) = values.field(&mut last)? {
            match (which, field) {
                (_, (1, I32)) => self.n_values = values.count()?,
                (5 | 7, (2, I32)) | (8, (4, I32)) => self.encoding = values.int()?,
                (5, (3, I32)) => levels = values.int()?,
                (8, (5, I32)) => definition = values.count()?,
                (8, (6, I32)) => repetition = values.count()?,
                (8, (7, kind @ (TRUE | FALSE))) => self.is_compressed = kind == TRUE,
                (_, (_, kind)) => values.skip(kind)?,
            }
        }
        self.levels = match which {
            8 => Levels::Before { definition, repetition },
            _ => Levels::Inside { encoding: levels },
        };
        Ok(())
    }

    pub(super) fn is_data(&self) -> bool {
        matches!(self.kind, DATA | DATA_V2)
    }

    pub(super) fn broken(
        &self,
        file: &Window<'_>,
        why: impl Into<String>,
    ) -> DatasetError {
        file.broken(self.range.start, why)
    }

    /// The bytes from `from` on, which are the page's and few enough.
    pub(super) fn bytes(
        &self,
        file: &mut Window<'_>,
        range: Range<u64>,
    ) -> Result<Vec<u8>, DatasetError> {
        let len = range.end.checked_sub(range.start);
        let len = len.filter(|len| range.end <= self.range.end && *len <= MAX_PAGE_BYTES);
        let len = len.and_then(|len| usize::try_from(len).ok());
        let len = len.ok_or_else(|| self.broken(file, super::levels::DAMAGED))?;
        Ok(file.bytes(range.start, len)?.to_vec())
    }

    /// The levels that lie outside the values, and where the values begin: those of version 2.
    pub(super) fn outside(
        &self,
        file: &mut Window<'_>,
    ) -> Result<Option<(Vec<u8>, u64)>, DatasetError> {
        let Levels::Before { definition, repetition } = self.levels else {
            return Ok(None);
        };
        let start = self.range.start.checked_add(repetition);
        let end = start.and_then(|start| start.checked_add(definition));
        let (Some(start), Some(end)) = (start, end) else {
            return Err(self.broken(file, super::levels::DAMAGED));
        };
        Ok(Some((self.bytes(file, start..end)?, end)))
    }

    /// That the levels inside the values have the encoding that is read.
    ///
    /// # Errors
    /// That they have not.
    pub(super) fn check_levels(&self, file: &Window<'_>) -> Result<(), DatasetError> {
        match self.levels {
            Levels::Inside { encoding } if encoding != RLE => {
                let why = "the levels of a page have an encoding that writers gave up in 2013; \
                           write the file again";
                Err(self.broken(file, why))
            }
            Levels::Inside { .. } | Levels::Before { .. } => Ok(()),
        }
    }
}

/// Calls `each` with the place of every image of a column in a row group.
pub(super) fn images(
    file: &mut Window<'_>,
    chunk: &Chunk,
    (leaf, what): (&Leaf, &str),
    mut each: impl FnMut((u64, u32)),
) -> Result<(), DatasetError> {
    let Range { start: mut at, end } = chunk.range;
    if let Some(codec) = codec(chunk.codec).filter(|_| chunk.n_values > 0) {
        let why = format!("{what} is compressed ({codec}), so that {REWRITE}");
        return Err(file.compressed(at, why));
    }
    let mut n_values = 0;
    while n_values < chunk.n_values {
        let page = Page::read(file, at, end)?;
        at = page.range.end;
        match page.kind {
            DICTIONARY => {
                let why = format!("{what} has a dictionary, so that {REWRITE}");
                return Err(file.compressed(page.range.start, why));
            }
            DATA | DATA_V2 => {
                n_values += page.n_values;
                page_of_images(file, &page, (leaf, what), &mut each)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn page_of_images(
    file: &mut Window<'_>,
    page: &Page,
    (leaf, what): (&Leaf, &str),
    each: &mut impl FnMut((u64, u32)),
) -> Result<(), DatasetError> {
    if page.encoding != PLAIN {
        let why = format!("{what} has the encoding {}, so that {REWRITE}", page.encoding);
        return Err(file.compressed(page.range.start, why));
    }
    // Some writers state another encoding where there are no levels.
    if leaf.max_definition > 0 {
        page.check_levels(file)?;
    }
    let (levels, mut at) = match page.outside(file)? {
        Some(levels) => levels,
        None if leaf.max_definition == 0 => (Vec::new(), page.range.start),
        None => {
            let start = page.range.start + 4;
            let end = start + u64::from(file.u32(page.range.start)?);
            (page.bytes(file, start..end)?, end)
        }
    };
    let mut levels = Runs::new(levels, bits(leaf.max_definition));
    for _ in 0..page.n_values {
        let level = levels.next().map_err(|why| page.broken(file, why))?;
        if level != leaf.max_definition {
            let why = "a row has no image bytes: the file holds only paths; embed the images \
                       with `datasets.table.embed_table_storage` before `to_parquet`, or use \
                       `push_to_hub`, which does it";
            return Err(page.broken(file, why));
        }
        let left = page.range.end - at;
        let len = if left < 4 { u64::MAX } else { u64::from(file.u32(at)?) };
        if len > left.saturating_sub(4) {
            let why = "an image reaches beyond its page; fetch the file again";
            return Err(file.broken(at, why));
        }
        each((at + 4, file.record_len(at + 4, len)?));
        at += 4 + len;
    }
    match at == page.range.end {
        true => Ok(()),
        false => Err(file.broken(at, "a page has more bytes than its images")),
    }
}

/// Bits of a level of at most so much.
pub(super) fn bits(max: u32) -> u32 {
    u32::BITS - max.leading_zeros()
}

/// What a `CompressionCodec` is called; `None` for no compression.
pub(super) fn codec(number: i64) -> Option<&'static str> {
    match number {
        0 => None,
        1 => Some("snappy"),
        2 => Some("gzip"),
        3 => Some("lzo"),
        4 => Some("brotli"),
        5 | 7 => Some("lz4"),
        6 => Some("zstd"),
        _ => Some("unknown"),
    }
}
