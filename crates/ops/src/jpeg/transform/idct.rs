//! Coefficients become samples: dequantisation and libjpeg's accurate inverse DCT ("islow").
//!
//! The 8-point transform of Loeffler, Ligtenberg and Moschytz with 13-bit constants, first
//! down the columns (11 bits are dropped, two stay), then along the rows (18 are dropped),
//! then 128 is added. What libjpeg-turbo's vector code does on numbers beyond an encoder's
//! is part of the meaning: coefficient times step, and three of the sums, wrap at 16 bits;
//! both passes saturate at 16 bits; and where only the first row has coefficients, the first
//! pass is a shift that wraps. [`block`] is the meaning; the kernels are twins, and leave
//! blocks for which that shift matters to it. Read `forward.rs` next.
#![allow(
    clippy::cast_possible_truncation,
    reason = "values are clamped to the type they become"
)]

use crate::jpeg::block::{Block, BlockRow};
use crate::jpeg::file::header::Quantisation;
use crate::jpeg::zigzag::kept;
use crate::kernels::{Level, x86_kernel};

pub(crate) mod portable;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

#[cfg(target_arch = "x86_64")]
use self::x86::{avx2, avx512};

/// Bytes that a kernel may write at once: rows of a plane are as long as a multiple of it.
pub(crate) const STORE: usize = 32;

/// The steps of a quantisation table, as they are multiplied: modulo 2^16, and in the order of a [`Block`].
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Steps(pub(super) Block);

impl Steps {
    /// Of a component without a table.
    pub(crate) const ZERO: Self = Self([0; 64]);

    pub(crate) fn new(table: &Quantisation) -> Self {
        let mut steps = [0; 64];
        for (natural, &step) in table.iter().enumerate() {
            steps[kept(natural)] = step.cast_signed();
        }
        Self(steps)
    }

    /// The table that they are of.
    pub(crate) fn table(&self) -> Quantisation {
        std::array::from_fn(|natural| self.0[kept(natural)].cast_unsigned())
    }
}

/// Transforms a block row into eight rows of samples, the first at the start of `out`, each
/// `stride` bytes after the one before. Rows are written up to the next multiple of
/// [`STORE`] bytes.
///
/// # Panics
/// When `out` does not hold these rows.
pub(crate) fn block_row(
    level: Level,
    blocks: BlockRow<'_>,
    steps: &Steps,
    out: &mut [u8],
    stride: usize,
) {
    if blocks.n_blocks == 0 {
        return;
    }
    let row_bytes = (blocks.n_blocks * 8).next_multiple_of(STORE);
    assert!(
        stride >= row_bytes && out.len() >= 7 * stride + row_bytes,
        "room for 8 rows"
    );
    x86_kernel!(level, block_row(blocks, steps, out, stride), portable::block_row);
}

/// Eight rows of samples, in parts of which each is written at once.
#[cfg(any(test, target_arch = "x86_64"))]
type Rows<'a, const PART: usize> = [&'a mut [[u8; PART]]; 8];

/// The rows that [`block_row`] writes.
#[cfg(any(test, target_arch = "x86_64"))]
#[inline(always)]
fn rows<const PART: usize>(out: &mut [u8], stride: usize) -> Rows<'_, PART> {
    let mut rows = out.chunks_mut(stride);
    std::array::from_fn(|_| rows.next().expect("8 rows").as_chunks_mut().0)
}

/// Part `part` of these rows, of blocks that lie side by side there.
#[cfg(any(test, target_arch = "x86_64"))]
fn scalar<const PART: usize>(
    blocks: &[&Block],
    steps: &Steps,
    rows: &mut Rows<'_, PART>,
    part: usize,
) {
    for (nth, coefficients) in blocks.iter().enumerate() {
        let samples = block(coefficients, steps);
        for (row, samples) in rows.iter_mut().zip(&samples) {
            row[part][8 * nth..8 * nth + 8].copy_from_slice(samples);
        }
    }
}

/// The samples of one block, by row and column.
#[cfg(any(test, target_arch = "x86_64"))]
pub(crate) fn block(coefficients: &Block, steps: &Steps) -> [[u8; 8]; 8] {
    let by_row = |of: &Block| -> [[i16; 8]; 8] {
        std::array::from_fn(|y| std::array::from_fn(|x| of[kept(8 * y + x)]))
    };
    let (mut rows, steps) = (by_row(coefficients), by_row(&steps.0));
    // The first eight places are the first row.
    let is_first_row_only = coefficients[8..].iter().all(|&number| number == 0);
    for (row, steps) in rows.iter_mut().zip(&steps) {
        for (coefficient, &step) in row.iter_mut().zip(steps) {
            *coefficient = coefficient.wrapping_mul(step);
        }
    }
    let after_columns = if is_first_row_only {
        [rows[0].map(|value| value.wrapping_shl(2)); 8]
    } else {
        pass::<11>(rows)
    };
    let columns = transposed(after_columns);
    let rows = transposed(pass::<18>(columns));
    rows.map(|row| row.map(sample))
}

fn sample(value: i16) -> u8 {
    let saturated = value.clamp(-128, 127) as i8;
    saturated.cast_unsigned() ^ 0x80
}

#[cfg(any(test, target_arch = "x86_64"))]
fn transposed(rows: [[i16; 8]; 8]) -> [[i16; 8]; 8] {
    let mut columns = [[0; 8]; 8];
    for (y, row) in rows.iter().enumerate() {
        for (x, &value) in row.iter().enumerate() {
            columns[x][y] = value;
        }
    }
    columns
}

/// Eight 8-point transforms, each over the same element of `v[0]` to `v[7]`, `DESCALE` bits
/// of the result dropped with rounding.
#[cfg(any(test, target_arch = "x86_64"))]
#[inline(always)]
fn pass<const DESCALE: u32>(v: [[i16; 8]; 8]) -> [[i16; 8]; 8] {
    let mut out = [[0; 8]; 8];
    for i in 0..8 {
        let x = v.map(|row| row[i]);
        for (row, value) in out.iter_mut().zip(transform(x)) {
            let rounded = value.wrapping_add(1 << (DESCALE - 1)) >> DESCALE;
            row[i] = rounded.clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16;
        }
    }
    out
}

/// One 8-point transform, times 2^13.
#[inline(always)]
fn transform(x: [i16; 8]) -> [i32; 8] {
    // Products of 16-bit numbers in pairs, as the vector instruction has them.
    let pair = |a: i16, b: i16, [p, q]: [i32; 2]| {
        (i32::from(a) * p).wrapping_add(i32::from(b) * q)
    };
    let t0 = i32::from(x[0].wrapping_add(x[4])) << 13;
    let t1 = i32::from(x[0].wrapping_sub(x[4])) << 13;
    let t2 = pair(x[2], x[6], EVEN_2);
    let t3 = pair(x[2], x[6], EVEN_3);
    let even = [
        t0.wrapping_add(t3),
        t1.wrapping_add(t2),
        t1.wrapping_sub(t2),
        t0.wrapping_sub(t3),
    ];
    let (s, r) = (x[7].wrapping_add(x[3]), x[5].wrapping_add(x[1]));
    let z3 = pair(s, r, SUM_3);
    let z4 = pair(s, r, SUM_4);
    let odd = [
        pair(x[7], x[1], ODD_3).wrapping_add(z4),
        pair(x[5], x[3], ODD_2).wrapping_add(z3),
        pair(x[5], x[3], ODD_1).wrapping_add(z4),
        pair(x[7], x[1], ODD_0).wrapping_add(z3),
    ];
    let mut out = [0; 8];
    for i in 0..4 {
        out[i] = even[i].wrapping_add(odd[i]);
        out[7 - i] = even[i].wrapping_sub(odd[i]);
    }
    out
}

// The constants of jidctint.c, √2 times sums and differences of cosines, times 2^13.
const F_0_298: i32 = 2446;
const F_0_390: i32 = 3196;
const F_0_541: i32 = 4433;
const F_0_765: i32 = 6270;
const F_0_899: i32 = 7373;
const F_1_175: i32 = 9633;
const F_1_501: i32 = 12_299;
const F_1_847: i32 = 15_137;
const F_1_961: i32 = 16_069;
const F_2_053: i32 = 16_819;
const F_2_562: i32 = 20_995;
const F_3_072: i32 = 25_172;

/// Factors of pairs of inputs: (2, 6) for the even part, (7 + 3, 5 + 1), (7, 1) and (5, 3)
/// for the odd one.
pub(crate) const EVEN_2: [i32; 2] = [F_0_541, F_0_541 - F_1_847];
pub(crate) const EVEN_3: [i32; 2] = [F_0_541 + F_0_765, F_0_541];
pub(crate) const SUM_3: [i32; 2] = [F_1_175 - F_1_961, F_1_175];
pub(crate) const SUM_4: [i32; 2] = [F_1_175, F_1_175 - F_0_390];
pub(crate) const ODD_0: [i32; 2] = [F_0_298 - F_0_899, -F_0_899];
pub(crate) const ODD_1: [i32; 2] = [F_2_053 - F_2_562, -F_2_562];
pub(crate) const ODD_2: [i32; 2] = [-F_2_562, F_3_072 - F_2_562];
pub(crate) const ODD_3: [i32; 2] = [-F_0_899, F_1_501 - F_0_899];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jpeg::block::RowBlocks;
    use proptest::prelude::*;

    /// A row of MCUs that are one block each.
    fn row_of(blocks: &[Block]) -> RowBlocks {
        let mut row = RowBlocks::default();
        row.reserve(blocks.len());
        for (idx, block) in blocks.iter().enumerate() {
            *row.block_mut(idx) = *block;
        }
        row
    }

    #[test]
    fn a_constant_block_is_constant() {
        let steps = Steps([16; 64]);
        for dc in -64..=64_i16 {
            let mut coefficients = [0; 64];
            coefficients[0] = dc;
            let expected = u8::try_from((128 + 2 * i32::from(dc)).clamp(0, 255)).unwrap();
            assert_eq!(block(&coefficients, &steps), [[expected; 8]; 8]);
        }
    }

    /// The definition of the inverse DCT (T.81 §A.3.3), in f64: the integer one is within 1.
    #[test]
    fn the_transform_is_the_inverse_dct() {
        let mut state = 1_u32;
        for _ in 0..50 {
            let mut coefficients = [0; 64];
            for k in 0..64 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let spread = 200 / (1 + u32::try_from(k / 8 + k % 8).unwrap());
                let drawn = ((state >> 16) % (2 * spread + 1)).cast_signed();
                coefficients[kept(k)] = (drawn - spread.cast_signed()) as i16;
            }
            let got = block(&coefficients, &Steps([1; 64]));
            for (y, row) in got.iter().enumerate() {
                for (x, &sample) in row.iter().enumerate() {
                    let exact = inverse_dct(&coefficients, x, y).clamp(0.0, 255.0);
                    assert!((f64::from(sample) - exact).abs() <= 1.0, "{x} {y}: {exact}");
                }
            }
        }
    }

    fn inverse_dct(coefficients: &Block, x: usize, y: usize) -> f64 {
        let angle = |n: usize, k: usize| {
            let scale = if k == 0 { 0.5_f64.sqrt() } else { 1.0 };
            scale * (((2 * n + 1) * k) as f64 * std::f64::consts::PI / 16.0).cos()
        };
        let sum: f64 = (0..64)
            .map(|k| (k, f64::from(coefficients[kept(k)])))
            .map(|(k, coefficient)| coefficient * angle(x, k % 8) * angle(y, k / 8))
            .sum();
        128.0 + sum / 4.0
    }

    proptest! {
        /// Of any coefficients whatever, and any steps.
        #[test]
        fn every_kernel_is_the_scalar_one(
            seed: u64,
            n_blocks in 1..=9_usize,
            first in 0..3_usize,
            bits in 1..=16_u32,
        ) {
            let mut state = seed | 1;
            let of_first_row = |place| (0..8).any(|column| kept(column) == place);
            let is_sparse = seed.is_multiple_of(3);
            let mut number = move || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                ((state >> 40) as i16) >> (16 - bits)
            };
            let steps = Steps(std::array::from_fn(|_| number()));
            let all: Vec<Block> = (0..n_blocks + first)
                .map(|_| {
                    std::array::from_fn(|i| if is_sparse && !of_first_row(i) { 0 } else { number() })
                })
                .collect();
            let row = row_of(&all);
            let blocks =
                BlockRow { row: &row, in_mcu: 0, across: 1, per_mcu: 1, first, n_blocks };
            let stride = (n_blocks * 8).next_multiple_of(STORE) + STORE;
            let run = |transform: &dyn Fn(&mut [u8])| {
                let mut out = vec![0; 8 * stride];
                transform(&mut out);
                let rows = out.chunks(stride).map(|row| row[..n_blocks * 8].to_vec());
                rows.collect::<Vec<_>>()
            };
            let meaning = run(&|out| {
                let mut rows = rows::<8>(out, stride);
                for (x, block) in all[first..].iter().enumerate() {
                    scalar(&[block], &steps, &mut rows, x);
                }
            });
            for level in Level::available() {
                let got = run(&|out| block_row(level, blocks, &steps, out, stride));
                prop_assert!(got == meaning, "{}", level.name());
            }
        }
    }
}
