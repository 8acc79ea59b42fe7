//! Where the values of one field are, sample by sample, in as few bytes as they take.

use bothends_core::sample::{Extent, FileIdx};

use super::FieldPlace;

/// The places of a field's values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Places {
    /// Small values, one after the other.
    bytes: Vec<u8>,
    ends: Ends,
    file: Vec<u32>,
    offset: Vec<u64>,
    len: Vec<u32>,
}

/// Where each of the values ends.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ends {
    /// All values have so many bytes; how many values there are.
    Every {
        width: usize,
        n: usize,
    },
    Each(Vec<u64>),
}

impl Default for Ends {
    fn default() -> Self {
        Self::Every { width: 0, n: 0 }
    }
}

impl Places {
    /// How many values there are. A field has values or extents, never both.
    pub(super) fn len(&self) -> usize {
        self.len.len() + self.n_values()
    }

    fn n_values(&self) -> usize {
        match &self.ends {
            Ends::Every { n, .. } => *n,
            Ends::Each(ends) => ends.len(),
        }
    }

    /// Whether it has both, which [`Self::get`] does not tell apart.
    pub(super) fn is_mixed(&self) -> bool {
        !self.len.is_empty() && self.n_values() > 0
    }

    pub(super) fn value(&mut self, value: &[u8]) {
        match &mut self.ends {
            Ends::Every { width, n } if *n == 0 || *width == value.len() => {
                *width = value.len();
                *n += 1;
            }
            Ends::Every { width, n } => {
                let (width, n) = (*width as u64, *n as u64);
                let ends = (1..=n).map(|nth| nth * width);
                let last = n * width + value.len() as u64;
                self.ends = Ends::Each(ends.chain([last]).collect());
            }
            Ends::Each(ends) => ends.push((self.bytes.len() + value.len()) as u64),
        }
        self.bytes.extend_from_slice(value);
    }

    pub(super) fn extent(&mut self, extent: Extent) {
        self.file.push(extent.file.0);
        self.offset.push(extent.offset);
        self.len.push(extent.len);
    }

    /// Adds places in files that have these numbers now.
    pub(super) fn append(&mut self, later: &Self, files: &[FileIdx]) {
        for row in 0..later.len() {
            match later.get(row) {
                FieldPlace::Value(value) => self.value(value),
                FieldPlace::Extent(extent) => {
                    let file = files[extent.file.0 as usize];
                    self.extent(Extent { file, ..extent });
                }
            }
        }
    }

    pub(super) fn get(&self, row: usize) -> FieldPlace<'_> {
        if let Some(&len) = self.len.get(row) {
            let (file, offset) = (FileIdx(self.file[row]), self.offset[row]);
            return FieldPlace::Extent(Extent { file, offset, len });
        }
        let range = match &self.ends {
            Ends::Every { width, n } if row < *n => row * width..(row + 1) * width,
            Ends::Each(ends) if row < ends.len() => {
                let end = |row: usize| usize::try_from(ends[row]).unwrap_or(usize::MAX);
                row.checked_sub(1).map_or(0, end)..end(row)
            }
            Ends::Every { .. } | Ends::Each(_) => 0..0,
        };
        FieldPlace::Value(self.bytes.get(range).unwrap_or_default())
    }

    /// The length that all values have.
    pub(super) fn common_len(&self) -> Option<usize> {
        let first = self.get(0).len();
        let is_common = match &self.ends {
            Ends::Every { n: 1.., .. } => true,
            Ends::Every { .. } => self.len.iter().all(|&len| len as usize == first),
            Ends::Each(_) => false,
        };
        is_common.then_some(first)
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
        if let Ends::Each(ends) = &mut self.ends {
            ends.shrink_to_fit();
        }
        self.file.shrink_to_fit();
        self.offset.shrink_to_fit();
        self.len.shrink_to_fit();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let ends = match &self.ends {
            Ends::Every { .. } => 0,
            Ends::Each(ends) => ends.capacity() * size_of::<u64>(),
        };
        self.bytes.capacity()
            + ends
            + self.offset.capacity() * size_of::<u64>()
            + (self.file.capacity() + self.len.capacity()) * size_of::<u32>()
    }
}
