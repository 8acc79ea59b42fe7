//! What a scan brings, and where its blocks lie: components, MCUs and their coefficients (T.81 §A.2).
//!
//! Memory and numbers only. Read `huffman.rs` next.

use super::markers::{FrameHeader, ScanHeader, Spread};
use super::stream::{Stop, fault};
use crate::jpeg::block::Block;
use crate::jpeg::coefficients::Coefficients;
use crate::jpeg::file::frame::{BLOCK, Component, MAX_MCU_BLOCKS};
use crate::jpeg::zigzag;

/// The place in a block of coefficient number `k` in zigzag order; a number beyond the block, which
/// damaged data lead to, is that of the last coefficient.
pub(super) fn place_of(k: usize) -> usize {
    zigzag::place_of(k.min(63))
}

/// The blocks of a frame, counted as libjpeg does: the factors of a lone component count, too.
#[derive(Debug)]
pub(super) struct Grid {
    pub(super) components: Vec<Component>,
    /// Blocks of each component that hold pixels, across and down.
    pub(super) blocks: Vec<[usize; 2]>,
    /// Interleaved MCUs, across and down.
    pub(super) mcus: [usize; 2],
}

impl Grid {
    pub(super) fn new(frame: &FrameHeader) -> Self {
        let most = |factor: fn(&Component) -> usize| {
            frame.components.iter().map(factor).max().unwrap_or(1).max(1)
        };
        let largest = [most(|c| c.h), most(|c| c.v)];
        let size = [usize::from(frame.width), usize::from(frame.height)];
        let axes = [0, 1];
        let blocks = frame.components.iter().map(|c| {
            axes.map(|axis| {
                (size[axis] * [c.h, c.v][axis]).div_ceil(largest[axis] * BLOCK)
            })
        });
        Self {
            components: frame.components.clone(),
            blocks: blocks.collect(),
            mcus: axes.map(|axis| size[axis].div_ceil(largest[axis] * BLOCK)),
        }
    }

    /// Blocks of each component with those that only fill up MCUs, across and down.
    pub(super) fn padded(&self) -> Vec<[usize; 2]> {
        let [across, down] = self.mcus;
        self.components.iter().map(|c| [across * c.h, down * c.v]).collect()
    }
}

/// What a scan brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    Whole,
    DcFirst,
    DcRefine,
    AcFirst,
    AcRefine,
}

impl Pass {
    pub(super) fn of(spread: Spread, scan: &ScanHeader) -> Self {
        match (spread, scan.band[0], scan.before) {
            (Spread::Sequential, _, _) => Self::Whole,
            (Spread::Progressive, 0, 0) => Self::DcFirst,
            (Spread::Progressive, 0, _) => Self::DcRefine,
            (Spread::Progressive, _, 0) => Self::AcFirst,
            (Spread::Progressive, _, _) => Self::AcRefine,
        }
    }
}

/// One component's part in the MCUs of a scan.
#[derive(Debug, Clone, Copy)]
struct Part {
    component: usize,
    /// Blocks per MCU, across and down.
    h: usize,
    v: usize,
}

/// How a scan's MCUs are made up.
#[derive(Debug)]
pub(super) struct Layout {
    parts: Vec<Part>,
    /// MCUs, across and down.
    pub(super) mcus: [usize; 2],
    /// Rows of MCUs of this scan in one row of interleaved MCUs.
    pub(super) rows_per_row: usize,
}

impl Layout {
    pub(super) fn new(grid: &Grid, scan: &ScanHeader) -> Result<Self, Stop> {
        if let [only] = &*scan.selected {
            // A lone component is not interleaved (T.81 §A.2.2): its blocks, one by one.
            return Ok(Self {
                parts: vec![Part { component: only.component, h: 1, v: 1 }],
                mcus: grid.blocks[only.component],
                rows_per_row: grid.components[only.component].v,
            });
        }
        let parts = scan.selected.iter().map(|selected| {
            let Component { h, v, .. } = grid.components[selected.component];
            Part { component: selected.component, h, v }
        });
        let parts: Vec<_> = parts.collect();
        if parts.iter().map(|part| part.h * part.v).sum::<usize>() > MAX_MCU_BLOCKS {
            return Err(fault("more than 10 blocks in an MCU"));
        }
        Ok(Self { parts, mcus: grid.mcus, rows_per_row: 1 })
    }

    /// Blocks of an MCU.
    pub(super) fn n_blocks(&self) -> usize {
        self.parts.iter().map(|part| part.h * part.v).sum()
    }

    /// The blocks of the MCU in column `x` and row `y`.
    pub(super) fn mcu<'c>(
        &self,
        coefficients: &'c mut Coefficients,
        [x, y]: [usize; 2],
    ) -> Mcu<'c> {
        let mut mcu = Mcu { coefficients, places: [Place::default(); 10], n_blocks: 0 };
        for (place, part) in self.parts.iter().enumerate() {
            for within in 0..part.h * part.v {
                mcu.places[mcu.n_blocks] = Place {
                    place,
                    component: part.component,
                    column: x * part.h + within % part.h,
                    row: y * part.v + within / part.h,
                };
                mcu.n_blocks += 1;
            }
        }
        mcu
    }
}

/// A block of an MCU.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// Its component's place in the scan, and in the frame.
    place: usize,
    component: usize,
    column: usize,
    row: usize,
}

/// The blocks of one MCU.
#[derive(Debug)]
pub(super) struct Mcu<'c> {
    coefficients: &'c mut Coefficients,
    places: [Place; MAX_MCU_BLOCKS],
    n_blocks: usize,
}

impl Mcu<'_> {
    pub(super) fn n_blocks(&self) -> usize {
        self.n_blocks
    }

    /// Block `nth`, and its component's place in the scan.
    pub(super) fn block(&mut self, nth: usize) -> (usize, &mut Block) {
        let Place { place, component, column, row } = self.places[nth];
        (place, self.coefficients.block_mut(component, [column, row]))
    }

    pub(super) fn clear(&mut self) {
        for nth in 0..self.n_blocks {
            *self.block(nth).1 = [0; 64];
        }
    }
}
