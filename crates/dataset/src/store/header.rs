//! A shard's header: 64 bytes at both its ends that say where the index and its copy lie.
//!
//! Offsets follow from two numbers (where the index begins, how long it is), so a header that
//! says them otherwise is refused. Read `index.rs` next.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use super::{MAX_INDEX_BYTES, MAX_PAGES, PAGE_BYTES, Refusal, VERSION};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;

const MAGIC: &[u8; 8] = b"BESHARD\0";

/// Where the parts of a shard lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// How many records, samples and rests.
    pub n_records: u32,
    /// XXH3-64 of the index.
    pub index_checksum: u64,
    index_at: u64,
    index_bytes: u64,
}

impl Header {
    /// The header of a shard of `n_records` whose records end before the page `index_at`
    /// (in bytes) and that has this index.
    ///
    /// # Errors
    /// [`Refusal::Damaged`] when the shard would be larger than a shard may be.
    pub fn new(n_records: u32, index_at: u64, index: &[u8]) -> Result<Self, Refusal> {
        let index_bytes = index.len() as u64;
        let index_checksum = xxh3_64(index);
        let header = Self { n_records, index_checksum, index_at, index_bytes };
        header.check().map(|()| header).map_err(Refusal::damaged)
    }

    /// The header's bytes, the same at both ends of the shard.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.n_records.to_le_bytes());
        let numbers = [
            self.index_at,
            self.index_bytes,
            self.copy_at(),
            self.index_checksum,
            self.file_bytes(),
        ];
        let (words, _) = bytes[16..].as_chunks_mut::<8>();
        for (word, number) in words.iter_mut().zip(numbers) {
            *word = number.to_le_bytes();
        }
        let check = xxh3_64(&bytes[..56]);
        bytes[56..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads a header from untrusted bytes.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Refusal> {
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| u64::from_le_bytes(words[at / 8]);
        if words[0] != *MAGIC {
            return Err(Refusal::damaged("its header does not begin with BESHARD"));
        }
        if short(8) != VERSION {
            return Err(Refusal::Version(u64::from(short(8))));
        }
        if word(56) != xxh3_64(&bytes[..56]) {
            return Err(Refusal::damaged("its header has another checksum"));
        }
        if short(10) != 0 {
            return Err(Refusal::Feature(format!("the feature flags {:#x}", short(10))));
        }
        let (high, _) = bytes[12..16].as_chunks::<4>();
        let header = Self {
            n_records: u32::from_le_bytes(high[0]),
            index_checksum: word(40),
            index_at: word(16),
            index_bytes: word(24),
        };
        header.check().map_err(Refusal::damaged)?;
        if header.copy_at() != word(32) {
            return Err(Refusal::damaged("the copy of its index lies elsewhere"));
        }
        if header.file_bytes() != word(48) {
            return Err(Refusal::damaged("its length is not that of its parts"));
        }
        Ok(header)
    }

    /// Where the index and its copy lie in the file, in bytes.
    #[must_use]
    pub fn index_ranges(&self) -> [Range<u64>; 2] {
        [self.index_at, self.copy_at()].map(|at| at..at + self.index_bytes)
    }

    /// Length of the whole shard.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.copy_at() + self.index_room() + HEADER_BYTES as u64
    }

    /// The page behind the last record.
    pub(super) fn end_page(&self) -> u64 {
        self.index_at / PAGE_BYTES
    }

    fn copy_at(&self) -> u64 {
        self.index_at + self.index_room()
    }

    fn index_room(&self) -> u64 {
        self.index_bytes.next_multiple_of(PAGE_BYTES)
    }

    /// Bounds that keep every sum above from overflowing.
    fn check(&self) -> Result<(), &'static str> {
        if !self.index_at.is_multiple_of(PAGE_BYTES) || self.index_at == 0 {
            return Err("its index does not begin on a page behind the header");
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
    fn a_header_comes_back_and_knows_where_things_lie() {
        let header = Header::new(7, 3 * PAGE_BYTES, &[1; 5000]).unwrap();
        assert_eq!(Header::decode(&header.encode()), Ok(header));
        assert_eq!(header.index_ranges(), [12288..17288, 20480..25480]);
        assert_eq!(header.file_bytes(), 7 * 4096 + 64);
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let bytes = Header::new(7, 3 * PAGE_BYTES, &[1; 5000]).unwrap().encode();
        for at in 0..HEADER_BYTES {
            let mut changed = bytes;
            changed[at] ^= 0x10;
            assert!(Header::decode(&changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn an_index_must_lie_on_a_page_that_a_shard_has() {
        for at in [0, 64, (1 << 44) + 4096, u64::MAX - 4095] {
            assert!(Header::new(0, at, &[]).is_err(), "{at}");
        }
        assert!(Header::new(0, 1 << 44, &[]).is_ok());
    }
}
