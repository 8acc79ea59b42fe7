//! JPEG, decoded by ourselves: libjpeg-turbo's pixels (accurate IDCT, "fancy" upsampling), in
//! parts where only a part is wanted.
//!
//! A file walks through this folder once:
//!
//! ```text
//! header, frame ─► bits, huffman ─► sequential ──┬─► idct ─► planes ─► upsample ─► rows
//!                                └► progressive ─┘
//! ```
//!
//! `decoder.rs` knows the order; `rebuild.rs` goes back from coefficients to the file;
//! `entry_points.rs` holds what a later visit needs to begin in the
//! middle of the scan. Baseline, extended and progressive Huffman files of 8 bits; 1, 3 or 4
//! components of any sampling that divides. Refused by name: 12-bit, lossless, hierarchical
//! and arithmetic-coded files, two components, progressive files that end too soon. Does not
//! read EXIF or apply colour profiles. **Every libjpeg warning is an error here** (premature
//! end, damaged data, stray bytes between segments): Pillow lets some of these pass with
//! guessed pixels, and guessed pixels must not enter a training run in silence.
//!
//! Hostile bytes: the folder is safe code but for loops compiled for a processor's
//! instructions, whose loads and stores take slices of the register's length.

mod bits;
mod frame;
mod header;
mod huffman;
mod standard;
mod zigzag;

mod sequential;

mod coefficients;
mod progressive;

mod blocks;
mod stored;

mod forward;
mod idct;

mod planes;

mod upsample;

mod decoder;
mod entry_points;

mod rows;

pub mod rebuild;

pub use coefficients::Coefficients;
pub use decoder::{Decoder, Opened, Stage};
pub use entry_points::EntryPoints;
pub use planes::{Chroma, Plane, Region};
pub use stored::{Packed, Packer, Stored, unpack};

pub(crate) use forward::{Divisors, LANES, coefficients, halve, rgb_to_ycc, steps};
pub(crate) use frame::ColourModel;
pub(crate) use idct::{BlockRow, Steps, block_row};
pub(crate) use rows::PixelRows;
pub(crate) use sequential::RowBlocks;
pub(crate) use upsample::Upsampler;

use std::fmt::Display;

use crate::error::SampleFault;

fn damaged(why: impl Display) -> SampleFault {
    SampleFault::Damaged { format: "JPEG", why: why.to_string() }
}

fn unsupported(feature: &'static str) -> SampleFault {
    SampleFault::Unsupported { format: "JPEG", feature }
}

fn unreadable(_: sequential::Broken) -> SampleFault {
    damaged("its entropy-coded data cannot be decoded")
}
