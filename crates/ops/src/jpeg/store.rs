//! JPEGs in a store: their coefficients without Huffman coding, and the files made of these again,
//! byte for byte.
//!
//! Where records lie in a store is `dataset`'s to know. Reading order: `blocks` is a block's
//! form, `stored` a record that is read, `rebuild` undoes Huffman coding and does it again,
//! `packer` makes a record, `exact` one that is known to hold the whole file.

pub(crate) mod blocks;
pub(crate) mod stored;

pub mod rebuild;

pub(crate) mod packer;

pub(crate) mod exact;

use twox_hash::XxHash3_64;

/// Bytes of the short checksum that a row group begins with.
const CHECKSUM_BYTES: usize = 4;

/// The low half of XXH3-64.
pub(crate) fn short_checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let [a, b, c, d, ..] = XxHash3_64::oneshot(bytes).to_le_bytes();
    [a, b, c, d]
}
