//! The forward cosine transform of eight by eight samples (T.81 A.3.3), in integers.
//!
//! libjpeg's "islow" is the fast algorithm of Loeffler, Ligtenberg and Moschytz with constants of
//! 13 bits. Its products are exact and it rounds only once per pass, so a matrix product gives the
//! same numbers, and is used here. Read `quantise.rs` next.

use super::Block;

// √2·cos(kπ/16), times 2^13. The fast algorithm sums them from rounded parts, which makes some
// of them larger or smaller by one.

/// Rows 2 and 6, for sums of mirrored samples: the outer minus the middle ones, and those in
/// between.
const EVEN: [[i32; 2]; 2] = [[10_703, 4_433], [4_433, -10_704]];

/// Rows 1, 3, 5 and 7, for differences of mirrored samples, the outer ones first.
const ODD: [[i32; 4]; 4] = [
    [11_363, 9_633, 6_437, 2_260],
    [9_633, -2_259, -11_362, -6_436],
    [6_437, -11_362, 2_261, 9_633],
    [2_260, -6_436, 9_633, -11_363],
];

/// Fractional bits of these constants.
const CONSTANT_BITS: u32 = 13;
/// Fractional bits that the first pass leaves for the second.
const PASS_BITS: u32 = 2;

/// The coefficients of the block at the start of `samples`, times 8.
pub(super) fn forward(samples: &[u8], per_row: usize) -> Block {
    let mut columns = [[0; 8]; 8];
    for (y, row) in samples.chunks(per_row).take(8).enumerate() {
        for (column, &sample) in columns.iter_mut().zip(row) {
            column[y] = i32::from(sample) - 128;
        }
    }
    let rows = transposed(&pass(&columns, CONSTANT_BITS - PASS_BITS));
    let mut block = [0; 64];
    let coefficients = pass(&rows, CONSTANT_BITS + PASS_BITS);
    for (to, from) in block.iter_mut().zip(coefficients.iter().flatten()) {
        *to = coefficient(*from);
    }
    block
}

/// Eight transforms of eight values in parallel: of `x[0][lane]`, `x[1][lane]` and so on;
/// `drop_bits` are rounded off.
fn pass(x: &[[i32; 8]; 8], drop_bits: u32) -> [[i32; 8]; 8] {
    let mut out = [[0; 8]; 8];
    let rounded = |sum: i32| (sum + (1 << (drop_bits - 1))) >> drop_bits;
    for lane in 0..8 {
        let sums = [0, 1, 2, 3].map(|n| x[n][lane] + x[7 - n][lane]);
        let differences = [0, 1, 2, 3].map(|n| x[n][lane] - x[7 - n][lane]);
        let [inner, outer] = [sums[1] + sums[2], sums[0] + sums[3]];
        out[0][lane] = rounded((outer + inner) << CONSTANT_BITS);
        out[4][lane] = rounded((outer - inner) << CONSTANT_BITS);
        let [inner, outer] = [sums[1] - sums[2], sums[0] - sums[3]];
        for (row, [of_outer, of_inner]) in EVEN.iter().enumerate() {
            out[2 + 4 * row][lane] = rounded(of_outer * outer + of_inner * inner);
        }
        for (row, factors) in ODD.iter().enumerate() {
            let terms = factors.iter().zip(differences).map(|(f, d)| f * d);
            out[1 + 2 * row][lane] = rounded(terms.sum());
        }
    }
    out
}

fn transposed(x: &[[i32; 8]; 8]) -> [[i32; 8]; 8] {
    let mut out = [[0; 8]; 8];
    for (i, row) in x.iter().enumerate() {
        for (j, &value) in row.iter().enumerate() {
            out[j][i] = value;
        }
    }
    out
}

#[expect(clippy::cast_possible_truncation, reason = "8 · 1024 at most")]
fn coefficient(value: i32) -> i16 {
    value as i16
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::PI;

    #[test]
    fn a_flat_block_is_its_mean() {
        let block = forward(&[200; 64], 8);
        assert_eq!(block[0], 64 * (200 - 128));
        assert_eq!(block[1..], [0; 63]);
    }

    /// T.81 A.3.3, times 8.
    fn by_definition(samples: &[u8], v: usize, u: usize) -> f64 {
        let scale = |k: usize| if k == 0 { 0.5_f64.sqrt() } else { 1.0 };
        let cosine =
            |x: usize, k: usize| ((2 * x + 1) as f64 * k as f64 * PI / 16.0).cos();
        let terms = samples.iter().enumerate().map(|(i, &sample)| {
            (f64::from(sample) - 128.0) * cosine(i % 8, u) * cosine(i / 8, v)
        });
        8.0 * 0.25 * scale(u) * scale(v) * terms.sum::<f64>()
    }

    #[test]
    fn it_is_the_transform_of_the_standard_to_a_quarter() {
        let mut state = 1_u32;
        for _ in 0..50 {
            let samples = [(); 64].map(|()| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            });
            for (i, &got) in forward(&samples, 8).iter().enumerate() {
                let exact = by_definition(&samples, i / 8, i % 8);
                assert!((f64::from(got) - exact).abs() < 2.0, "{i}: {got}, {exact}");
            }
        }
    }
}
