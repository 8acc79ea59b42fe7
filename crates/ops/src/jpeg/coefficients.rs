//! The quantised coefficients of a whole image, block by block ([`Coefficients`]).
//!
//! What files of several scans are decoded through (`entropy/progressive.rs`), and what is left of a
//! file whose Huffman coding is undone for good (`store/rebuild.rs`). Memory only: nothing here
//! knows a file. Read `entropy.rs` next.

use std::ops::Range;

use super::block::{Block, BlockRow, RowBlocks};
use super::file::frame::{Component, Frame};

/// For each component its blocks row by row, with those that only fill up the last MCUs.
#[derive(Debug, Default)]
pub struct Coefficients {
    planes: [RowBlocks; 4],
    /// Blocks of each component, across and down.
    sizes: [[usize; 2]; 4],
    n_components: usize,
}

impl Coefficients {
    /// Makes room for components of these sizes, in blocks across and down; at most four.
    /// What the blocks hold is left over from images before.
    pub fn set_sizes(&mut self, sizes: &[[usize; 2]]) {
        self.n_components = sizes.len();
        self.sizes[..sizes.len()].copy_from_slice(sizes);
        for (plane, [across, down]) in self.planes.iter_mut().zip(sizes) {
            plane.reserve(across * down);
        }
    }

    /// Blocks of each component, across and down.
    #[must_use]
    pub fn sizes(&self) -> &[[usize; 2]] {
        &self.sizes[..self.n_components]
    }

    /// Block row `y` of a component: the first coefficient of a block is DC, the others are
    /// in the order in which the inverse DCT combines them.
    #[must_use]
    pub fn row(&self, component: usize, y: usize) -> &[Block] {
        self.planes[component].blocks(self.places(component, y))
    }

    /// Block row `y` of a component, to be written.
    pub fn row_mut(&mut self, component: usize, y: usize) -> &mut [Block] {
        let places = self.places(component, y);
        self.planes[component].blocks_mut(places)
    }

    fn places(&self, component: usize, y: usize) -> Range<usize> {
        let [across, down] = self.sizes[..self.n_components][component];
        assert!(y < down, "block row {y} of {down}");
        y * across..(y + 1) * across
    }

    /// Makes room for the blocks of `frame`, and zeroes them.
    pub(super) fn reset(&mut self, frame: &Frame) {
        let (sizes, n) = sizes(frame);
        self.reset_sizes(&sizes[..n]);
    }

    /// Makes room for components of these sizes, in blocks across and down, and zeroes them.
    pub(super) fn reset_sizes(&mut self, sizes: &[[usize; 2]]) {
        self.set_sizes(sizes);
        for (plane, [across, down]) in self.planes.iter_mut().zip(sizes) {
            plane.reset(across * down);
        }
    }

    pub(super) fn block_mut(
        &mut self,
        component: usize,
        [x, y]: [usize; 2],
    ) -> &mut Block {
        let [across, _] = self.sizes[component];
        self.planes[component].block_mut(y * across + x)
    }

    /// `blocks` of block row `y` of a component, for the IDCT.
    pub(super) fn block_row(
        &self,
        component: usize,
        y: usize,
        blocks: Range<usize>,
    ) -> BlockRow<'_> {
        BlockRow {
            row: &self.planes[component],
            in_mcu: y * self.sizes[component][0],
            across: 1,
            per_mcu: 1,
            first: blocks.start,
            n_blocks: blocks.len(),
        }
    }

    /// Gives memory back of which there is more than `keep_bytes`; the bytes that it keeps.
    pub(super) fn release_above(&mut self, keep_bytes: usize) -> usize {
        // Nobody may ask for blocks that have been given back.
        self.n_components = 0;
        self.planes.iter_mut().map(|plane| plane.release_above(keep_bytes)).sum()
    }
}

/// Blocks of the components of `frame` with those that only fill up MCUs, across and down;
/// and how many components there are.
pub(super) fn sizes(frame: &Frame) -> ([[usize; 2]; 4], usize) {
    let [across, down] = frame.n_mcus();
    let mut sizes = [[0; 2]; 4];
    for (size, Component { h, v, .. }) in sizes.iter_mut().zip(frame.components()) {
        *size = [across * h, down * v];
    }
    (sizes, frame.components().len())
}
