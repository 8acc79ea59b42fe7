//! FFCV's files (`.beton`, version 2), whose images are JPEGs.
//!
//! A file is a header, a description of each field, a row for each sample, pages with what rows point to, and a
//! table of what lies in the pages, with lengths (ffcv 1.0.2, `ffcv/types.py`). Numbers are little-endian, and the
//! fields of a row are aligned as NumPy aligns them. The image is the field for images (the one called `image`, if
//! there are several); the class is a field for whole numbers called `label`, `class`, `cls` or `target`. Images that
//! are kept as raw pixels are refused.

use bothends_core::sample::{Encoding, Extent};

use super::{Labels, Window, class, find, found, one_split};
use crate::error::DatasetError;
use crate::formats::{Format, Found};
use crate::storage::Storage;
use crate::table::TableBuilder;

/// Bytes that one read brings: rows and allocations lie next to each other.
const STEP: usize = 1 << 16;

const HEADER_BYTES: u64 = 24;
const VERSION: u64 = 2;

/// A field's description: its kind, its name, what it was made with.
const FIELD_BYTES: u64 = 1041;
const NAME_BYTES: usize = 16;

/// An allocation: the sample, where its bytes are, how many.
const ALLOCATION_BYTES: u64 = 24;

/// Fields that a sample may have.
const MAX_FIELDS: u64 = 1024;

/// How FFCV numbers the kinds of fields that matter here.
const INT: u8 = 1;
const IMAGE: u8 = 2;

/// How an image is kept: the first byte of its field.
const JPEG: u8 = 0;
const RAW: u8 = 1;

const LABELS: [&str; 4] = ["label", "class", "cls", "target"];

/// Whether a file's name is that of one.
pub(crate) fn is_shard(name: &str) -> bool {
    name.ends_with(".beton")
}

/// Reads the files at `target`, in the order of their names.
pub(crate) fn parse(storage: &dyn Storage, target: &str) -> Result<Found, DatasetError> {
    let (shards, n_others) = find(storage, target, is_shard)?;
    one_split(storage, target, &shards)?;
    let mut builder = TableBuilder::new(Encoding::Image);
    let mut labels = Labels::default();
    for path in &shards {
        let mut shard = Window::open(storage, path, STEP)?;
        let rows = Rows::read(&mut shard)?;
        let allocations = allocations(&mut shard, &rows)?;
        let file = builder.file(path)?;
        for nth in 0..rows.n {
            let (offset, label) = rows.row(&mut shard, nth)?;
            let known = allocations.binary_search_by_key(&offset, |(at, _)| *at);
            let len = known.map(|place| allocations[place].1).map_err(|_| {
                let why = "a row points to bytes that are not in the table of allocations; fetch \
                the file again";
                shard.broken(rows.at(nth), why)
            })?;
            let len = shard.record_len(offset, len)?;
            builder.sample(Extent { file, offset, len }, labels.take(label));
        }
    }
    if labels == Labels::default() {
        return Err(DatasetError::Empty { path: storage.shown(target) });
    }
    found(Format::Beton, builder, n_others, labels)
}

/// Where rows are, and what in them.
struct Rows {
    n: u64,
    /// Where the first is.
    start: u64,
    /// Bytes of one.
    len: u64,
    n_fields: u64,
    /// Where in a row the image is told.
    image: u64,
    label: Option<u64>,
    /// Where the table of allocations is.
    allocations: u64,
}

impl Rows {
    fn read(shard: &mut Window<'_>) -> Result<Self, DatasetError> {
        let header = shard.bytes(0, 24)?.to_vec();
        let version = number(&header[..2]);
        if version != VERSION {
            let why = format!(
                "not a file of FFCV of version {VERSION} (it says {version}); write it again with ffcv 1.0"
            );
            return Err(shard.broken(0, why));
        }
        let n_fields = number(&header[2..4]);
        if n_fields == 0 || n_fields > MAX_FIELDS {
            let why =
                format!("a sample has {n_fields} fields; 1 to {MAX_FIELDS} are read");
            return Err(shard.broken(2, why));
        }
        let fields = Fields::read(shard, n_fields)?;
        let start = HEADER_BYTES + n_fields * FIELD_BYTES;
        let (n, allocations) = (number(&header[8..16]), number(&header[16..24]));
        let end = n.checked_mul(fields.len).and_then(|rows| rows.checked_add(start));
        if end.is_none_or(|end| end > allocations) || allocations > shard.len() {
            let why = "the rows and the table of allocations do not fit the file, which was not finished or is cut \
                       short; write or fetch it again";
            return Err(shard.broken(8, why));
        }
        let Fields { len, image, label } = fields;
        Ok(Self { n, start, len, n_fields, image, label, allocations })
    }

    /// Where a row is.
    fn at(&self, nth: u64) -> u64 {
        self.start + nth * self.len
    }

    /// Where the image of a row lies, and its class.
    fn row(
        &self,
        shard: &mut Window<'_>,
        nth: u64,
    ) -> Result<(u64, Option<u32>), DatasetError> {
        let at = self.at(nth);
        let image = shard.bytes(at + self.image, 13)?;
        let (mode, offset) = (image[0], number(&image[5..13]));
        match mode {
            JPEG => {}
            RAW => {
                let why = "an image is kept as raw pixels; write the file again with \
                           RGBImageField(write_mode=\"jpg\")";
                return Err(shard.broken(at, why));
            }
            _ => {
                let why = format!(
                    "an image is stored in the mode {mode}, which is unknown; \
                     fetch the file again"
                );
                return Err(shard.broken(at, why));
            }
        }
        let Some(label) = self.label else { return Ok((offset, None)) };
        let number = number(shard.bytes(at + label, 8)?).cast_signed();
        let class = class(number).map_err(|why| shard.broken(at + label, why))?;
        Ok((offset, class))
    }
}

/// Where in a row which field is.
struct Fields {
    /// Bytes of a row.
    len: u64,
    image: u64,
    label: Option<u64>,
}

impl Fields {
    fn read(shard: &mut Window<'_>, n_fields: u64) -> Result<Self, DatasetError> {
        let (mut len, mut alignment) = (0_u64, 1_u64);
        let (mut images, mut labels) = (Vec::new(), [None; LABELS.len()]);
        for nth in 0..n_fields {
            let at = HEADER_BYTES + nth * FIELD_BYTES;
            let head = shard.bytes(at, 1 + NAME_BYTES)?;
            let kind = head[0];
            let name = head[1..].split(|&byte| byte == 0).next().unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            // Floats, whole numbers and arrays are a number of 8 bytes; bytes and JSON are a place and a length.
            let (bytes, aligned) = match kind {
                0 | INT | 4 | 6 => (8, 8),
                IMAGE => (13, 1),
                3 | 5 => (16, 1),
                _ => {
                    let why = format!(
                        "the field `{name}` has a custom type, so rows cannot be told apart; \
                        write the file again with FFCV's own field types"
                    );
                    return Err(shard.broken(at, why));
                }
            };
            len = len.next_multiple_of(aligned);
            alignment = alignment.max(aligned);
            match LABELS.iter().position(|known| name == *known) {
                Some(known) if kind == INT => labels[known] = Some(len),
                _ if kind == IMAGE => images.push((name, len)),
                _ => {}
            }
            len += bytes;
        }
        let image = match &images[..] {
            [only] => Some(only),
            several => several.iter().find(|(name, _)| name == "image"),
        };
        let &(_, image) = image.ok_or_else(|| {
            let why = format!(
                "one field must be an image, or be called `image`, and {} are for images",
                images.len()
            );
            shard.broken(HEADER_BYTES, why)
        })?;
        let label = labels.into_iter().flatten().next();
        Ok(Self { len: len.next_multiple_of(alignment), image, label })
    }
}

/// Where the bytes of samples lie and how many, by place.
fn allocations(
    shard: &mut Window<'_>,
    rows: &Rows,
) -> Result<Vec<(u64, u64)>, DatasetError> {
    let data = rows.at(rows.n);
    let n = (shard.len() - rows.allocations) / ALLOCATION_BYTES;
    // A field has one at most.
    if n > rows.n.saturating_mul(rows.n_fields) {
        let why = "the table of allocations has more lines than there are fields; fetch the file again";
        return Err(shard.broken(rows.allocations, why));
    }
    let mut allocations = Vec::new();
    for nth in 0..n {
        let at = rows.allocations + nth * ALLOCATION_BYTES;
        let line = shard.bytes(at, 24)?;
        let (start, len) = (number(&line[8..16]), number(&line[16..24]));
        let end = start.checked_add(len);
        if start < data || end.is_none_or(|end| end > rows.allocations) {
            let why = "bytes of a sample are outside the pages; fetch the file again";
            return Err(shard.broken(at, why));
        }
        // What is empty lies where the next allocation does, which may be an image.
        if len > 0 {
            allocations.push((start, len));
        }
    }
    allocations.sort_unstable();
    allocations.dedup();
    if allocations.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        let why = "the table of allocations has several lengths for the same bytes; fetch the file again";
        return Err(shard.broken(rows.allocations, why));
    }
    Ok(allocations)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, &byte| (sum << 8) | u64::from(byte))
}

#[cfg(test)]
mod tests;
