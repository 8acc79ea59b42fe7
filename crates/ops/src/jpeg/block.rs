//! Blocks of 64 coefficients: one ([`Block`]), those of a row ([`RowBlocks`]), and a component's
//! share of that ([`BlockRow`]).
//!
//! Memory only, aligned for vectors, with room behind it for decoders that store before they
//! test. Nothing here knows what a coefficient means. Read `coefficients.rs` next.

use std::ops::Range;

/// The coefficients of one block, quantised, in the order of [`kept`](super::zigzag::kept).
pub(crate) type Block = [i16; 64];

/// What may be written through the start of a block: as many places as `Progress` can name.
pub(crate) const WINDOW: usize = 256;

/// The coefficients of a row of MCUs, block by block, in the order of sending the blocks. Kept
/// from row to row.
#[derive(Debug, Default)]
pub(crate) struct RowBlocks {
    coefficients: Vec<i16>,
    /// The first coefficient of block 0, at an address that suits vectors; at least 1.
    first: usize,
}

/// Alignment of the blocks, in coefficients: 64 bytes.
const ALIGNMENT: usize = 32;

impl RowBlocks {
    /// Makes room for `n_blocks`.
    pub(crate) fn reserve(&mut self, n_blocks: usize) {
        let need = ALIGNMENT + n_blocks * 64 + WINDOW;
        if self.coefficients.len() < need {
            self.coefficients.resize(need, 0);
            let to_aligned = self.coefficients.as_ptr().align_offset(64);
            self.first = if to_aligned == 0 { ALIGNMENT } else { to_aligned };
        }
    }

    /// Makes room for `n_blocks`, and zeroes them.
    pub(crate) fn reset(&mut self, n_blocks: usize) {
        self.coefficients.clear();
        self.reserve(n_blocks);
    }

    /// Gives the memory back if it is more than `keep_bytes`; the bytes that it keeps.
    pub(crate) fn release_above(&mut self, keep_bytes: usize) -> usize {
        if self.coefficients.capacity() * 2 > keep_bytes {
            *self = Self::default();
        }
        self.coefficients.capacity() * 2
    }

    /// Block `idx` and those behind it.
    #[inline(always)]
    pub(crate) fn block(&self, idx: usize) -> &Block {
        let start = self.first + idx * 64;
        self.coefficients[start..start + 64].try_into().expect("64 coefficients")
    }

    #[inline(always)]
    pub(crate) fn block_mut(&mut self, idx: usize) -> &mut Block {
        let start = self.first + idx * 64;
        (&mut self.coefficients[start..start + 64]).try_into().expect("64 coefficients")
    }

    /// The blocks of `places`.
    pub(crate) fn blocks(&self, places: Range<usize>) -> &[Block] {
        let coefficients = self.first + places.start * 64..self.first + places.end * 64;
        self.coefficients[coefficients].as_chunks().0
    }

    pub(crate) fn blocks_mut(&mut self, places: Range<usize>) -> &mut [Block] {
        let coefficients = self.first + places.start * 64..self.first + places.end * 64;
        self.coefficients[coefficients].as_chunks_mut().0
    }

    /// From the coefficient before block `idx`: place k + 1 is coefficient k.
    #[inline(always)]
    pub(crate) fn window(&mut self, idx: usize) -> &mut [i16; WINDOW] {
        let start = self.first + idx * 64 - 1;
        let window = &mut self.coefficients[start..start + WINDOW];
        window.try_into().expect("as long as the window")
    }
}

/// The blocks of one block row of a component within a row of MCUs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockRow<'a> {
    pub(crate) row: &'a RowBlocks,
    /// The component's first block of this row in an MCU; its blocks per MCU across; blocks
    /// of all components per MCU.
    pub(crate) in_mcu: usize,
    pub(crate) across: usize,
    pub(crate) per_mcu: usize,
    /// First block and number of blocks wanted, counted across the component.
    pub(crate) first: usize,
    pub(crate) n_blocks: usize,
}

impl<'a> BlockRow<'a> {
    /// A row of one component alone.
    pub(crate) fn of_one(row: &'a RowBlocks, n_blocks: usize) -> Self {
        Self { row, in_mcu: 0, across: 1, per_mcu: 1, first: 0, n_blocks }
    }

    /// The blocks wanted, one after the other; then the last one again and again.
    #[inline(always)]
    pub(crate) fn walk(&self) -> Walk<'a> {
        let (mcu, within) = (self.first / self.across, self.first % self.across);
        Walk {
            row: self.row,
            idx: mcu * self.per_mcu + self.in_mcu + within,
            within,
            across: self.across,
            to_next_mcu: self.per_mcu + 1 - self.across,
            left: self.n_blocks,
        }
    }
}

/// See [`BlockRow::walk`].
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    row: &'a RowBlocks,
    /// The next block's number in the row, and among those of its MCU that are side by side.
    idx: usize,
    within: usize,
    across: usize,
    /// From the last block of an MCU to the first of the next one.
    to_next_mcu: usize,
    /// Blocks that are left, with the last one.
    left: usize,
}

impl<'a> Walk<'a> {
    #[inline(always)]
    pub(crate) fn next(&mut self) -> &'a Block {
        let block = self.row.block(self.idx);
        if self.left > 1 {
            self.left -= 1;
            self.within += 1;
            self.idx += if self.within < self.across {
                1
            } else {
                self.within = 0;
                self.to_next_mcu
            };
        }
        block
    }

    #[inline(always)]
    pub(crate) fn several<const N: usize>(&mut self) -> [&'a Block; N] {
        std::array::from_fn(|_| self.next())
    }
}
