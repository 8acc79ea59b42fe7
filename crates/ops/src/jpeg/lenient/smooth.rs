//! Incomplete progressive images: what has not come is estimated from the DC of the blocks around
//! (jdcoefct.c, `decompress_smooth_data`), as libjpeg-turbo does from 2.1 on.
//!
//! A coefficient that is zero and not known to its last bit is replaced by what a smooth surface
//! through the 5×5 DCs would have there; while no AC has come at all, the DC is smoothed, too.
#![allow(
    clippy::cast_possible_truncation,
    reason = "coefficients have 16 bits, as libjpeg keeps them"
)]

use super::markers::ScanHeader;
use super::scan::{Grid, place_of};
use super::stream::Stream;
use crate::jpeg::block::Block;
use crate::jpeg::coefficients::Coefficients;
use crate::jpeg::file::header::Quantisation;
use crate::jpeg::zigzag::natural;

/// The DC and the coefficients that may be estimated, in zigzag order.
const N_ESTIMATED: usize = 10;

/// Weights of the DCs around a block, row by row.
type Kernel = [i32; 25];

/// For AC 1 to 9, while no AC has come.
#[rustfmt::skip]
const WITHOUT_AC: [Kernel; 9] = [
    [-1, -1, 0, 1, 1, -3, 13, 0, -13, 3, -3, 38, 0, -38, 3, -3, 13, 0, -13, 3, -1, -1, 0, 1, 1],
    [-1, -3, -3, -3, -1, -1, 13, 38, 13, -1, 0, 0, 0, 0, 0, 1, -13, -38, -13, 1, 1, 3, 3, 3, 1],
    [0, 0, 1, 0, 0, 0, 2, 7, 2, 0, 0, -5, -14, -5, 0, 0, 2, 7, 2, 0, 0, 0, 1, 0, 0],
    [-1, 0, 0, 0, 1, 0, 9, 0, -9, 0, 0, 0, 0, 0, 0, 0, -9, 0, 9, 0, 1, 0, 0, 0, -1],
    [0, 0, 0, 0, 0, 0, 2, -5, 2, 0, 1, 7, -14, 7, 1, 0, 2, -5, 2, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 0, 1, 0, -1, 0, 0, 2, 0, -2, 0, 0, 1, 0, -1, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 0, 1, -3, 1, 0, 0, 0, 0, 0, 0, 0, -1, 3, -1, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 0, 1, 0, -1, 0, 0, -3, 0, 3, 0, 0, 1, 0, -1, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 0, 1, 2, 1, 0, 0, 0, 0, 0, 0, 0, -1, -2, -1, 0, 0, 0, 0, 0, 0],
];

/// For AC 1 to 5, once some AC has come.
#[rustfmt::skip]
const WITH_AC: [Kernel; 5] = [
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -7, 50, 0, -50, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [0, 0, -7, 0, 0, 0, 0, 50, 0, 0, 0, 0, 0, 0, 0, 0, 0, -50, 0, 0, 0, 0, 7, 0, 0],
    [0, 0, -1, 0, 0, 0, 0, 13, 0, 0, 0, 0, -24, 0, 0, 0, 0, 13, 0, 0, 0, 0, -1, 0, 0],
    [0, -1, 0, 1, 0, -1, 10, 0, -10, 1, 0, 0, 0, 0, 0, 1, -10, 0, 10, -1, 0, 1, 0, -1, 0],
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, 13, -24, 13, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
];

/// For the DC itself, while no AC has come.
#[rustfmt::skip]
const DC: Kernel = [
    -2, -6, -8, -6, -2, -6, 6, 42, 6, -6, -8, 42, 152, 42, -8, -6, 6, 42, 6, -6, -2, -6, -8, -6, -2,
];

/// How far the coefficients have come, by component and zigzag number.
#[derive(Debug)]
pub(super) struct Progress {
    /// How many of a coefficient's lowest bits are still to come; -1 before its first scan.
    missing: Vec<[i32; 64]>,
    /// The same before the component's last scan.
    before: Vec<[i32; 64]>,
    /// The last row of interleaved MCUs with data, in the last scan.
    pub(super) last_good_row: usize,
}

impl Progress {
    pub(super) fn new(n_components: usize) -> Self {
        Self {
            missing: vec![[-1; 64]; n_components],
            before: vec![[-1; 64]; n_components],
            last_good_row: 0,
        }
    }

    /// A progressive scan begins, the `nth` of the image (from 1).
    pub(super) fn begin_scan(
        &mut self,
        scan: &ScanHeader,
        nth: usize,
        stream: &mut Stream<'_>,
    ) {
        const OUT_OF_ORDER: &str = "a scan that does not follow from those before it";
        let [first, last] = scan.band;
        for selected in &scan.selected {
            let missing = &mut self.missing[selected.component];
            let before = &mut self.before[selected.component];
            if first > 0 && missing[0] < 0 {
                stream.warn(OUT_OF_ORDER);
            }
            let places = first.min(1)..=last.max(N_ESTIMATED - 1);
            for (before, &missing) in
                before[places.clone()].iter_mut().zip(&missing[places])
            {
                *before = if nth > 1 { missing } else { 0 };
            }
            for missing in &mut missing[first..=last] {
                if scan.before.cast_signed() != (*missing).max(0) {
                    stream.warn(OUT_OF_ORDER);
                }
                *missing = scan.now.cast_signed();
            }
        }
    }

    /// Whether every bit of every coefficient has come.
    pub(super) fn is_complete(&self) -> bool {
        self.missing.iter().flatten().all(|&missing| missing == 0)
    }

    /// Whether blocks are smoothed: if a coefficient that can be estimated is not known, and
    /// something is known of every component.
    fn is_smoothing(&self, steps: &[Option<Quantisation>]) -> bool {
        let can_divide = |steps: &Option<Quantisation>| {
            let steps = steps.as_ref();
            steps.is_some_and(|steps| (0..N_ESTIMATED).all(|k| steps[natural(k)] != 0))
        };
        let mut known = self.missing.iter();
        steps.iter().all(can_divide)
            && known.all(|missing| missing[0] >= 0)
            && self.missing.iter().any(|all| all[1..N_ESTIMATED].iter().any(|&m| m != 0))
    }

    /// Estimates what is missing.
    pub(super) fn smooth(
        &self,
        grid: &Grid,
        steps: &[Option<Quantisation>],
        (coefficients, n_scans): (&mut Coefficients, usize),
    ) {
        if !self.is_smoothing(steps) {
            return;
        }
        for (component, steps) in steps.iter().enumerate() {
            let Some(steps) = steps else { continue };
            let image = Image { grid, component, dc: Image::dc(coefficients, component) };
            let never = [-1; 64];
            let before = if n_scans > 1 { &self.before[component] } else { &never };
            let [across, down] = grid.blocks[component];
            for y in 0..down {
                let is_good = y / grid.components[component].v <= self.last_good_row;
                let missing = if is_good { &self.missing[component] } else { before };
                let rows = image.rows_around(y);
                for x in 0..across {
                    let around = image.around(x, rows);
                    let block = &mut coefficients.row_mut(component, y)[x];
                    estimate(block, &around, steps, missing);
                }
            }
        }
    }
}

/// The DCs of a component.
struct Image<'g> {
    grid: &'g Grid,
    component: usize,
    dc: Vec<Vec<i16>>,
}

impl Image<'_> {
    fn dc(coefficients: &Coefficients, component: usize) -> Vec<Vec<i16>> {
        let [_, down] = coefficients.sizes()[component];
        let row =
            |y| coefficients.row(component, y).iter().map(|block| block[0]).collect();
        (0..down).map(row).collect()
    }

    /// The block rows around row `y`. At the edges libjpeg counts rows in its own way where the
    /// last row of MCUs is not full.
    fn rows_around(&self, y: usize) -> [usize; 5] {
        let v = self.grid.components[self.component].v;
        let [_, n_mcu_rows] = self.grid.mcus;
        let [_, down] = self.grid.blocks[self.component];
        let mcu_row = y / v;
        let is_last = mcu_row + 1 == n_mcu_rows;
        let per_row = if is_last && !down.is_multiple_of(v) { down % v } else { v };
        let (number, end) = (mcu_row * per_row + y % v, per_row * n_mcu_rows);
        let above = if number > 0 { y - 1 } else { y };
        let far_above = if number > 1 { y - 2 } else { above };
        let below = if number + 1 < end { y + 1 } else { y };
        let far_below = if number + 2 < end { y + 2 } else { below };
        [far_above, above, y, below, far_below]
    }

    fn around(&self, x: usize, rows: [usize; 5]) -> [i16; 25] {
        let last = self.grid.blocks[self.component][0] - 1;
        let mut around = [0; 25];
        for (place, around) in around.iter_mut().enumerate() {
            let column = (x + place % 5).saturating_sub(2).min(last);
            *around = self.dc[rows[place / 5]][column];
        }
        around
    }
}

fn estimate(
    block: &mut Block,
    around: &[i16; 25],
    steps: &Quantisation,
    missing: &[i32; 64],
) {
    let is_without_ac = missing[1..N_ESTIMATED].iter().all(|&missing| missing == -1);
    let kernels = if is_without_ac { &WITHOUT_AC[..] } else { &WITH_AC };
    let fitted = |kernel: &Kernel, k: usize| {
        let sum: i32 = kernel.iter().zip(around).map(|(w, &dc)| w * i32::from(dc)).sum();
        let scaled = i64::from(steps[0]) * i64::from(sum);
        let step = i64::from(steps[natural(k)]);
        let size = (step * 128 + scaled.abs()) / (step * 256);
        (size as i32, scaled < 0)
    };
    for (k, kernel) in (1..).zip(kernels) {
        let (missing, coefficient) = (missing[k], &mut block[place_of(k)]);
        if missing == 0 || *coefficient != 0 {
            continue;
        }
        let (mut size, is_negative) = fitted(kernel, k);
        if missing > 0 {
            // More would show in the bits that have come.
            size = size.min((1 << missing) - 1);
        }
        *coefficient = if is_negative { -size } else { size } as i16;
    }
    if is_without_ac {
        let (size, is_negative) = fitted(&DC, 0);
        block[0] = if is_negative { -size } else { size } as i16;
    }
}
