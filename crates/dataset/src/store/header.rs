//! The header of a shard: 48 bytes that say where its index is, at the start of the shard and again
//! before the copy of the index.
//!
//! It does not know what an index holds. Read `index.rs` next.

use std::ops::Range;

use twox_hash::XxHash3_64;

use super::{MAX_INDEX_BYTES, MAX_PAGES, PAGE_BYTES, Refusal, VERSION};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 48;

const MAGIC: &[u8; 8] = b"BESHARD\0";

/// Where a shard's index lies, after its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    index_at: u64,
    index_bytes: u64,
    index_checksum: u64,
}

impl Header {
    /// The header of a shard whose records end before the page at `index_at` (in bytes) and
    /// that has this index.
    ///
    /// # Errors
    /// [`Refusal::Damaged`] when the shard would be larger than a shard may be.
    pub fn new(index_at: u64, index: &[u8]) -> Result<Self, Refusal> {
        let index_bytes = index.len() as u64;
        let header =
            Self { index_at, index_bytes, index_checksum: XxHash3_64::oneshot(index) };
        header.check().map(|()| header).map_err(Refusal::damaged)
    }

    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let numbers = [self.index_at, self.index_bytes, self.index_checksum];
        let (words, _) = bytes[16..].as_chunks_mut::<8>();
        for (word, number) in words.iter_mut().zip(numbers) {
            *word = number.to_le_bytes();
        }
        let check = XxHash3_64::oneshot(&bytes[..40]);
        bytes[40..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads a header from untrusted bytes.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Refusal> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| u64::from_le_bytes(words[at / 8]);
        if words[0] != *MAGIC {
            return Err(Refusal::damaged("its header does not begin with BESHARD"));
        }
        let (version, flags) = (word(8) & u64::from(u32::MAX), word(8) >> 32);
        if version != u64::from(VERSION) {
            return Err(Refusal::Version(version));
        }
        if word(40) != XxHash3_64::oneshot(&bytes[..40]) {
            return Err(Refusal::damaged("the checksum of its header does not match"));
        }
        if flags != 0 {
            return Err(Refusal::Feature(format!("the feature flags {flags:#x}")));
        }
        let header =
            Self { index_at: word(16), index_bytes: word(24), index_checksum: word(32) };
        header.check().map(|()| header).map_err(Refusal::damaged)
    }

    /// Where the index lies in the shard, in bytes; the shard ends with it.
    #[must_use]
    pub fn index_range(&self) -> Range<u64> {
        self.index_at..self.index_at + self.index_bytes
    }

    /// XXH3-64 of the index.
    #[must_use]
    pub fn index_checksum(&self) -> u64 {
        self.index_checksum
    }

    /// The page after the last record.
    pub(super) fn end_page(&self) -> u64 {
        self.index_at / PAGE_BYTES
    }

    /// Bounds that keep every sum above from overflowing.
    fn check(&self) -> Result<(), &'static str> {
        if !self.index_at.is_multiple_of(PAGE_BYTES) || self.index_at == 0 {
            return Err("its index does not begin on a page after the header");
        }
        if self.index_bytes > MAX_INDEX_BYTES {
            return Err("its index is longer than 2^31 bytes");
        }
        if self.index_at > MAX_PAGES * PAGE_BYTES {
            return Err("it has more than 2^32 pages");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_knows_where_the_index_lies() {
        let header = Header::new(3 * PAGE_BYTES, &[1; 5000]).unwrap();
        assert_eq!(Header::decode(&header.encode()), Ok(header));
        assert_eq!(header.index_range(), 12288..17288);
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let bytes = Header::new(3 * PAGE_BYTES, &[1; 5000]).unwrap().encode();
        for at in 0..HEADER_BYTES {
            let mut changed = bytes;
            changed[at] ^= 0x10;
            assert!(Header::decode(&changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn an_index_must_lie_on_a_page_that_a_shard_has() {
        for at in [0, 48, (1 << 44) + 4096, u64::MAX - 4095] {
            assert!(Header::new(at, &[]).is_err(), "{at}");
        }
        assert!(Header::new(1 << 44, &[]).is_ok());
    }
}
