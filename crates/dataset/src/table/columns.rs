//! Columns of a table that use less memory where they can: most records start on a page, and most tables
//! have no heads.
//!
//! Both have one form for one content, so equal tables have equal bytes. Read `table.rs` next.

use std::collections::HashMap;

use crate::error::DatasetError;

/// What the offsets of a column are multiples of while it is narrow.
const PAGE_BYTES: u64 = 4096;

/// Where each sample begins in its file: four bytes each while all begin on a page, else
/// eight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Offsets {
    /// In pages.
    Pages(Vec<u32>),
    /// In bytes: at least one of them begins elsewhere.
    Bytes(Vec<u64>),
}

impl Default for Offsets {
    fn default() -> Self {
        Self::Pages(Vec::new())
    }
}

impl Offsets {
    pub(crate) fn push(&mut self, offset: u64) {
        let page = u32::try_from(offset / PAGE_BYTES);
        match (self, page) {
            (Self::Pages(pages), Ok(page)) if offset.is_multiple_of(PAGE_BYTES) => {
                pages.push(page);
            }
            (Self::Bytes(bytes), _) => bytes.push(offset),
            (narrow @ Self::Pages(_), _) => {
                *narrow = Self::Bytes(narrow.iter().chain([offset]).collect());
            }
        }
    }

    /// The offset of that row, in bytes.
    pub(crate) fn get(&self, row: usize) -> u64 {
        match self {
            Self::Pages(pages) => u64::from(pages[row]) * PAGE_BYTES,
            Self::Bytes(bytes) => bytes[row],
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Pages(pages) => pages.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        (0..self.len()).map(|row| self.get(row))
    }

    /// Keeps the first `n`; what is left may be narrow where the whole was not.
    pub(crate) fn truncate(&mut self, n: usize) {
        if n < self.len() {
            *self = self.iter().take(n).collect();
        }
    }

    pub(crate) fn shrink_to_fit(&mut self) {
        match self {
            Self::Pages(pages) => pages.shrink_to_fit(),
            Self::Bytes(bytes) => bytes.shrink_to_fit(),
        }
    }

    /// Heap memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Pages(pages) => pages.capacity() * size_of::<u32>(),
            Self::Bytes(bytes) => bytes.capacity() * size_of::<u64>(),
        }
    }
}

impl FromIterator<u64> for Offsets {
    fn from_iter<I: IntoIterator<Item = u64>>(offsets: I) -> Self {
        let mut column = Self::default();
        offsets.into_iter().for_each(|offset| column.push(offset));
        column.shrink_to_fit();
        column
    }
}

/// What each sample's decoder must know beforehand, one after the other; no memory at all
/// where no sample has any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Heads {
    pub(crate) bytes: Vec<u8>,
    /// Where each row's ends in `bytes`: one for each row, or none.
    pub(crate) ends: Vec<u32>,
}

impl Heads {
    /// Gives `row` its head; rows come in order, and those left out have none.
    pub(crate) fn put(&mut self, row: usize, head: &[u8]) -> Result<(), DatasetError> {
        self.ends.resize(row, self.end());
        self.bytes.extend_from_slice(head);
        self.ends.push(DatasetError::count(self.bytes.len(), "bytes of heads")?);
        Ok(())
    }

    /// The head of that row; empty where it has none.
    pub(crate) fn get(&self, row: usize) -> &[u8] {
        let Some(&end) = self.ends.get(row) else { return &[] };
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..end as usize]
    }

    /// Brings the column to `n` rows: those after the last one that was put have no head.
    pub(crate) fn resize(&mut self, n: usize) {
        self.ends.resize(n, self.end());
        self.bytes.truncate(self.end() as usize);
        if self.bytes.is_empty() {
            self.ends.clear();
        }
    }

    /// Whether this is what a column of `n` rows looks like.
    pub(crate) fn is_sound(&self, n: usize) -> bool {
        let n_ends = if self.bytes.is_empty() { 0 } else { n };
        self.ends.len() == n_ends
            && self.ends.is_sorted()
            && self.end() as usize == self.bytes.len()
    }

    pub(crate) fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Heap memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<u32>()
    }

    fn end(&self) -> u32 {
        self.ends.last().copied().unwrap_or(0)
    }
}

/// Profiles in the making: what the heads of many samples have in common, each once.
#[derive(Debug, Default)]
pub(crate) struct Profiles {
    /// One after the other.
    pub(crate) bytes: Vec<u8>,
    known: HashMap<Vec<u8>, u32>,
}

impl Profiles {
    /// Where that profile lies; a new one goes to the end.
    pub(crate) fn put(&mut self, profile: &[u8]) -> Result<u32, DatasetError> {
        if let Some(&at) = self.known.get(profile) {
            return Ok(at);
        }
        let at = DatasetError::count(self.bytes.len(), "bytes of profiles")?;
        self.bytes.extend_from_slice(profile);
        self.known.insert(profile.to_owned(), at);
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::{Heads, Offsets};

    #[test]
    fn offsets_are_narrow_until_one_is_not_a_page() {
        let pages: Offsets = [0, 8192, u64::from(u32::MAX) * 4096].into_iter().collect();
        assert_eq!(pages.memory_bytes(), 3 * 4, "{pages:?}");
        for odd in [1, 4097, (1 << 32) * 4096, u64::MAX] {
            let values = [4096, odd, 0];
            let mut column: Offsets = values.into_iter().collect();
            assert!(column.iter().eq(values), "{column:?}");
            assert!(matches!(column, Offsets::Bytes(_)));
            column.truncate(1);
            assert_eq!(column, [4096].into_iter().collect());
        }
    }

    #[test]
    fn heads_come_back_by_row_and_none_cost_nothing() {
        let mut heads = Heads::default();
        heads.put(1, b"one").unwrap();
        heads.put(3, b"three").unwrap();
        heads.resize(5);
        let all: Vec<_> = (0..6).map(|row| heads.get(row)).collect();
        assert_eq!(all, [&b""[..], b"one", b"", b"three", b"", b""]);
        assert!(heads.is_sound(5) && !heads.is_sound(4));
        heads.resize(2);
        assert_eq!((heads.get(1), heads.bytes.len()), (&b"one"[..], 3));
        heads.resize(1);
        assert_eq!(heads, Heads::default());
        let falling = Heads { bytes: vec![0; 4], ends: vec![4, 2, 4] };
        assert!(!falling.is_sound(3));
    }
}
