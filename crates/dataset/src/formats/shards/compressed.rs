//! The words for what makes shards readable in which no sample can be read alone. `decompression.rs` has the plan.

use crate::error::DatasetError;
use crate::storage::Storage;

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// RFC 1952, one member or several.
    Gzip,
    /// RFC 1950.
    Zlib,
    /// RFC 8878, one frame or several.
    Zstd,
    /// One block without a frame, as MDS has it.
    Snappy,
}

/// What is done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// It is copied.
    Copied,
    /// All of it is decompressed.
    Decompressed(Codec),
    /// It is a Parquet file, of which all columns are written plain and uncompressed.
    Plain,
}

/// A file of the data set as it will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The path of the file that it is made of.
    pub from: String,
    /// Its path below the new root.
    pub to: String,
    /// How it is made.
    pub treatment: Treatment,
}

/// What makes a data set readable whose shards are compressed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decompression {
    /// The files to make of others, in any order.
    pub steps: Vec<Step>,
    /// Files to write, by their paths below the new root.
    pub texts: Vec<(String, Vec<u8>)>,
    /// What to read below the new root; `""` is the root itself.
    pub target: String,
}

impl Codec {
    /// By the extension of a file's name.
    pub(crate) fn of_extension(extension: &str) -> Option<Self> {
        match extension.to_ascii_lowercase().as_str() {
            "gz" | "tgz" => Some(Self::Gzip),
            "zst" | "zstd" => Some(Self::Zstd),
            "snappy" => Some(Self::Snappy),
            _ => None,
        }
    }

    /// By the first bytes of a file whose name does not tell, and which no record begins with.
    pub(crate) fn of_head(head: [u8; 2]) -> Option<Self> {
        match head {
            [0x1f, 0x8b] => Some(Self::Gzip),
            // A window of 32 KiB, and a multiple of 31 (RFC 1950, 2.2).
            [0x78, flags] if (0x7800 | u16::from(flags)).is_multiple_of(31) => {
                Some(Self::Zlib)
            }
            _ => None,
        }
    }
}

/// How a file with this name is decompressed.
///
/// # Errors
/// [`DatasetError::CompressedShard`] where that is not supported.
pub(crate) fn by_name(
    storage: &dyn Storage,
    path: &str,
) -> Result<Treatment, DatasetError> {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    let codec = Codec::of_extension(extension);
    let codec = codec
        .ok_or_else(|| DatasetError::CompressedShard { path: storage.shown(path) })?;
    Ok(Treatment::Decompressed(codec))
}

impl Decompression {
    /// Files of which nothing else is known, in a folder.
    pub(crate) fn of(steps: Vec<Step>) -> Self {
        Self { steps, ..Self::default() }
    }
}
