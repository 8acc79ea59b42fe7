//! JPEG, decoded by ourselves: libjpeg-turbo's pixels (accurate IDCT, "fancy" upsampling), in
//! parts where only a part is wanted.
//!
//! A file walks through this folder once:
//!
//! ```text
//! file ─► entropy ─► block, coefficients ─► transform ─► planes ─► upsample ─► rows
//!              store ─┘
//! ```
//!
//! `decoder.rs` knows the order; `store` keeps coefficients and goes back from them to the file;
//! `entropy/entry_points.rs` holds what a later visit needs to begin in the middle of the scan.
//! Baseline, extended and progressive Huffman files of 8 bits; 1, 3 or 4 components of any
//! sampling that divides. Does not read EXIF or apply colour profiles. **Every libjpeg warning is
//! an error of this fast path** (premature end, damaged data, stray bytes between segments), and so
//! is what it does not know: arithmetic coding, progressive files that end too soon. Such a file
//! goes to `lenient.rs`, which gives libjpeg's pixels and says what was wrong: guessed pixels must
//! not enter a training run in silence. Refused by name there: 12-bit, lossless and hierarchical
//! files, two components.
//!
//! Hostile bytes: the folder is safe code except for loops compiled for a processor's
//! instructions, whose loads and stores take slices of the register's length.

pub(crate) mod block;
mod zigzag;

pub(crate) mod file;

mod coefficients;
mod entropy;

pub(crate) mod transform;

pub(crate) mod planes;

pub(crate) mod upsample;

mod store;

mod decoder;

mod rows;

pub(crate) mod lenient;

pub use self::coefficients::Coefficients;
pub use self::decoder::{Decoder, Noted, Stage};
pub use self::entropy::entry_points::EntryPoints;
pub use self::entropy::note::{ScanBlock, ScanCode, ScanNote, ScanPoint};
pub use self::file::Opened;
pub use self::planes::{Chroma, Plane, Region};
pub use self::store::exact::{Exact, ExactPacker};
pub use self::store::packer::{Packed, Packer};
pub use self::store::rebuild;
pub use self::store::stored::{Stored, unpack};

pub(crate) use self::entropy::blocks_left::BlocksLeft;
pub(crate) use self::file::frame::ColourModel;
pub(crate) use self::rows::PixelRows;

use std::fmt::Display;

use crate::error::SampleFault;

/// The data cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;

fn damaged(why: impl Display) -> SampleFault {
    SampleFault::Damaged { format: "JPEG", why: why.to_string() }
}

fn unsupported(feature: &'static str) -> SampleFault {
    SampleFault::Unsupported { format: "JPEG", feature }
}

fn unreadable(_: Broken) -> SampleFault {
    damaged("its entropy-coded data cannot be decoded")
}
