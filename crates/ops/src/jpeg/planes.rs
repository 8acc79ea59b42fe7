//! What a decoder makes: for each component a plane of samples, as far as it was wanted.
//!
//! A plane keeps its own resolution and says where in the image it lies. Nothing here
//! computes a sample. Read `upsample.rs` next.

use std::ops::Range;

use bothends_core::recipe::Size;
use bothends_core::recipe::draw::CropBox;

use super::block::BlockRow;
use super::file::frame::{BLOCK, Frame};
use super::transform::idct::{self, STORE, Steps};
use crate::kernels::Level;

/// A part of an image: rows and columns of pixels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Rows, from the top.
    pub rows: Range<usize>,
    /// Columns, from the left.
    pub columns: Range<usize>,
}

impl Region {
    /// All of an image.
    #[must_use]
    pub fn whole(size: Size) -> Self {
        Self { rows: 0..size.height as usize, columns: 0..size.width as usize }
    }

    /// The box `crop`.
    #[must_use]
    pub fn of(crop: CropBox) -> Self {
        let CropBox { top, left, height, width } = crop;
        let range = |start: u32, len: u32| start as usize..start as usize + len as usize;
        Self { rows: range(top, height), columns: range(left, width) }
    }

    /// Grows until `other` lies in it.
    pub(crate) fn include(&mut self, other: &Self) {
        for (own, other) in
            [(&mut self.rows, &other.rows), (&mut self.columns, &other.columns)]
        {
            *own = own.start.min(other.start)..own.end.max(other.end);
        }
    }
}

/// What is done with planes of lower resolution; says what a region needs of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chroma {
    /// They are upsampled as libjpeg does ("fancy"), which looks at the neighbours.
    Upsampled,
    /// They are taken as they are.
    AsStored,
}

/// A range of MCUs, across and down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct McuBox {
    pub(crate) across: Range<usize>,
    pub(crate) down: Range<usize>,
}

impl McuBox {
    /// The MCUs whose samples `region` needs.
    pub(crate) fn of(frame: &Frame, region: &Region, chroma: Chroma) -> Self {
        let axis = |axis: usize, range: &Range<usize>| {
            let n_mcus = frame.n_mcus()[axis];
            let mut mcus = n_mcus..0;
            for component in 0..frame.components().len() {
                let ratio = frame.ratio(component)[axis];
                let size = frame.plane_size(component)[axis];
                let margin = usize::from(chroma == Chroma::Upsampled && ratio == 2);
                let first = (range.start / ratio).saturating_sub(margin);
                let end = (range.end.div_ceil(ratio) + margin).min(size);
                let c = frame.components()[component];
                let per_mcu = BLOCK * [c.h, c.v][axis];
                mcus.start = mcus.start.min(first / per_mcu);
                mcus.end = mcus.end.max(end.div_ceil(per_mcu)).min(n_mcus);
            }
            mcus
        };
        Self { across: axis(0, &region.columns), down: axis(1, &region.rows) }
    }
}

/// Samples of one component.
#[derive(Debug, Default)]
pub struct Plane {
    /// Those of this image come first; what is behind them is an earlier one's.
    samples: Vec<u8>,
    n_samples: usize,
    stride: usize,
    /// Column and row of the first sample.
    origin: [usize; 2],
    /// Real columns and rows of the whole component.
    size: [usize; 2],
    /// Pixels that one sample covers, across and down.
    ratio: [usize; 2],
}

impl Plane {
    /// Makes room for the samples of `mcus`.
    pub(crate) fn set(&mut self, frame: &Frame, component: usize, mcus: &McuBox) {
        let c = frame.components()[component];
        self.ratio = frame.ratio(component);
        self.size = frame.plane_size(component);
        self.origin = [mcus.across.start * c.h * BLOCK, mcus.down.start * c.v * BLOCK];
        let width = mcus.across.len() * c.h * BLOCK;
        self.stride = width.next_multiple_of(STORE);
        self.make_room(mcus.down.len() * c.v * BLOCK);
    }

    /// Makes room for all samples of a component of `size` (columns, rows), of which one covers
    /// `ratio` pixels: whole blocks of eight rows.
    pub(crate) fn set_whole(&mut self, size: [usize; 2], ratio: [usize; 2]) {
        let [width, height] = size;
        (self.size, self.ratio, self.origin) = (size, ratio, [0, 0]);
        self.stride = width.next_multiple_of(STORE);
        self.make_room(height.next_multiple_of(BLOCK));
    }

    /// Makes room for `n_rows` rows. Old samples stay: zeroing took a twentieth of the transform's time.
    fn make_room(&mut self, n_rows: usize) {
        self.n_samples = self.stride * n_rows;
        if self.samples.len() < self.n_samples {
            self.samples.resize(self.n_samples, 0);
        }
    }

    /// Gives the memory back if it is more than `keep_bytes`; the bytes that it keeps.
    pub(crate) fn release_above(&mut self, keep_bytes: usize) -> usize {
        if self.samples.capacity() > keep_bytes {
            *self = Self::default();
        }
        self.samples.capacity()
    }

    /// Makes the samples of block row `row`, counted from the first one held.
    pub(crate) fn transform(
        &mut self,
        level: Level,
        row: usize,
        blocks: BlockRow<'_>,
        steps: &Steps,
    ) {
        let out = &mut self.samples[row * BLOCK * self.stride..self.n_samples];
        idct::block_row(level, blocks, steps, out, self.stride);
    }

    /// Real columns and rows of the whole component.
    #[must_use]
    pub fn size(&self) -> [usize; 2] {
        self.size
    }

    /// Pixels that one sample covers, across and down.
    #[must_use]
    pub fn ratio(&self) -> [usize; 2] {
        self.ratio
    }

    /// The samples of row `y` in `columns`, both counted in the whole component.
    ///
    /// # Panics
    /// When they were not decoded.
    #[must_use]
    pub fn row(&self, y: usize, columns: Range<usize>) -> &[u8] {
        let start = (y - self.origin[1]) * self.stride;
        let row = &self.samples[..self.n_samples][start..start + self.stride];
        &row[columns.start - self.origin[0]..columns.end - self.origin[0]]
    }
}
