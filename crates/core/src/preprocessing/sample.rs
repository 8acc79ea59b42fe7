//! One sample: where its bytes are (`Extent`), what they mean (`Record`), and which random numbers
//! belong to it (`SampleKey`).
//!
//! Nothing here reads a file or decodes a pixel: `io` reads, `dataset` names, `ops` decodes.

use serde::{Deserialize, Serialize};

use crate::blocks::Blocks;
use crate::ids::{EpochIdx, SampleId};

/// A file of the extent table, by its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileIdx(pub u32);

/// Where the bytes of one sample lie: `len` bytes from `offset` in file `file`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The file, by its number in the extent table.
    pub file: FileIdx,
    /// First byte, from the start of the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
}

/// How the bytes of a record are to be read. In JSON, as a store's manifest has it, keys are
/// sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Encoding {
    /// An image file: JPEG, PNG, BMP, PNM, GIF, WebP or TIFF, told apart by its first bytes.
    Image,
    /// Unsigned bytes, planar (channel, row, column), of a known size.
    Planar {
        /// Planes; 3 are red, green, blue.
        channels: u32,
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
    },
    /// Bytes that no op looks into.
    Opaque,
}

/// The bytes of one sample and what they are.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The record's own bytes, without the container's framing.
    pub bytes: &'a [u8],
    /// How to read them.
    pub encoding: Encoding,
    /// What an earlier visit left to know about them: places from where a decoder may begin.
    /// Empty where there is none. Whoever gives it has held it against the bytes, except against a
    /// part of a scan, which is checked when it is decoded.
    pub entry_points: &'a [u8],
    /// Which part of the record they are.
    pub part: RecordPart<'a>,
}

/// Which part of a record has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordPart<'a> {
    /// All of it.
    Whole,
    /// An image's row groups in a store.
    RowGroups(RowGroups<'a>),
    /// Rows of a JPEG's scan, from this byte of the record on. The note in
    /// [`Record::entry_points`] says all else that is to be known of the image.
    Scan {
        /// Where the first byte lies in the record.
        from: u32,
        /// Length of the whole record in bytes.
        of: u32,
    },
}

/// Row groups of a store as the bytes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowGroups<'a> {
    /// Profile and head of the image.
    pub blocks: Blocks<'a>,
    /// The first group among the bytes; others follow, as far as they have been read.
    pub first: usize,
}

impl<'a> Record<'a> {
    /// A record of which nothing is known but its bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8], encoding: Encoding) -> Self {
        Self { bytes, encoding, entry_points: &[], part: RecordPart::Whole }
    }
}

/// What a sample's random numbers are keyed by; nothing else may influence them
/// (design promise 2: not who made it, when, or what ran at the same time).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SampleKey {
    /// The run's seed.
    pub seed: u64,
    /// The epoch.
    pub epoch: EpochIdx,
    /// The sample.
    pub sample: SampleId,
}
