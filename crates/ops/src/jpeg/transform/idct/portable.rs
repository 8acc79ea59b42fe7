//! The scalar meaning once more, for eight blocks side by side: in loops that compilers make
//! vector instructions of, on any processor. For processors without a kernel of their own.

use super::{Steps, sample, transform};
use crate::jpeg::block::{Block, BlockRow};
use crate::jpeg::zigzag::{COLUMNS, ROWS_IN_TURN};

/// Blocks that are transformed side by side; and their columns.
pub(crate) const BLOCKS: usize = 8;
pub(crate) const LANES: usize = 8 * BLOCKS;

/// For each element of the transforms its values, eight of each block.
pub(crate) type Lanes = [[i16; LANES]; 8];

/// [`super::block_row`].
pub(super) fn block_row(
    blocks: BlockRow<'_>,
    steps: &Steps,
    out: &mut [u8],
    stride: usize,
) {
    let mut walk = blocks.walk();
    for first in (0..blocks.n_blocks).step_by(BLOCKS) {
        let n = BLOCKS.min(blocks.n_blocks - first);
        let samples = eight(walk.several(), steps);
        for (y, row) in samples.iter().enumerate() {
            let out = &mut out[y * stride + first * 8..][..n * 8];
            out.copy_from_slice(&row[..n * 8]);
        }
    }
}

/// The samples of these blocks, by row; see [`super::block`].
fn eight(blocks: [&Block; BLOCKS], steps: &Steps) -> [[u8; LANES]; 8] {
    let mut rows = [[0; LANES]; 8];
    let mut is_flat = [false; BLOCKS];
    for (nth, block) in blocks.into_iter().enumerate() {
        let mut values = *block;
        for (value, &step) in values.iter_mut().zip(&steps.0) {
            *value = value.wrapping_mul(step);
        }
        let lanes = 8 * nth..8 * nth + 8;
        for (row, y) in [0, 4].into_iter().enumerate() {
            rows[y][lanes.clone()].copy_from_slice(&values[8 * row..8 * row + 8]);
        }
        let (pairs, _) = values[16..].as_chunks::<16>();
        for (values, [one, other]) in pairs.iter().zip(ROWS_IN_TURN) {
            for i in 0..8 {
                rows[one][8 * nth + i] = values[2 * i];
                rows[other][8 * nth + i] = values[2 * i + 1];
            }
        }
        is_flat[nth] = block[8..].iter().all(|&coefficient| coefficient == 0);
    }
    let mut columns = [[0; LANES]; 8];
    pass::<11>(&rows, &mut columns);
    // What wraps there is the meaning, see `super::block`.
    for (nth, _) in is_flat.iter().enumerate().filter(|(_, is_flat)| **is_flat) {
        let lanes = 8 * nth..8 * nth + 8;
        for column in &mut columns {
            for (value, first) in
                column[lanes.clone()].iter_mut().zip(&rows[0][lanes.clone()])
            {
                *value = first.wrapping_shl(2);
            }
        }
    }
    transpose_kept(&columns, &mut rows);
    pass::<18>(&rows, &mut columns);
    transpose(&columns, &mut rows);
    let mut samples = [[0; LANES]; 8];
    for (samples, values) in samples.iter_mut().zip(&rows) {
        for (to, &value) in samples.iter_mut().zip(values) {
            *to = sample(value);
        }
    }
    samples
}

/// Each block's rows become its columns.
#[inline(always)]
pub(crate) fn transpose(from: &Lanes, to: &mut Lanes) {
    for nth in 0..BLOCKS {
        for (y, row) in from.iter().enumerate() {
            let row: &[i16; 8] = row[8 * nth..].first_chunk().expect("inside the lanes");
            for (x, &value) in row.iter().enumerate() {
                to[x][8 * nth + y] = value;
            }
        }
    }
}

/// The same, where the elements of rows are in the order in which they are kept.
#[inline(always)]
fn transpose_kept(from: &Lanes, to: &mut Lanes) {
    for nth in 0..BLOCKS {
        for (y, row) in from.iter().enumerate() {
            let row: &[i16; 8] = row[8 * nth..].first_chunk().expect("inside the lanes");
            for (&x, &value) in COLUMNS.iter().zip(row) {
                to[x][8 * nth + y] = value;
            }
        }
    }
}

/// One transform in each lane, `DESCALE` bits of the result dropped with rounding.
fn pass<const DESCALE: u32>(v: &Lanes, out: &mut Lanes) {
    for i in 0..LANES {
        let x = [v[0][i], v[1][i], v[2][i], v[3][i], v[4][i], v[5][i], v[6][i], v[7][i]];
        let sums = transform(x);
        for k in 0..8 {
            let rounded = sums[k].wrapping_add(1 << (DESCALE - 1)) >> DESCALE;
            out[k][i] = rounded.clamp(i16::MIN.into(), i16::MAX.into()) as i16;
        }
    }
}
