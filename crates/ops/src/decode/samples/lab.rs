//! CIE L\*a\*b\* of 8 bits as Pillow converts it to RGB: by LittleCMS 2, from D50 to sRGB, perceptual.
//!
//! LittleCMS computes the transform exactly for a grid of 33 × 33 × 33 colours, in 16 bits, and interpolates
//! in one of the six tetrahedra of a cell. The grid is computed here in the same way, once in a process
//! that meets such an image.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "numbers of three samples of 8 bits, on a grid of constant size"
)]

use std::sync::OnceLock;

use bothends_core::arith::{exp, ln};

/// Points of the grid on each axis.
const SIDE: usize = 33;

/// What 65535 stands for as a tristimulus value: 1.15 bits of fixed point.
const MOST_XYZ: f64 = 1.0 + 32767.0 / 32768.0;

/// The white that L\*a\*b\* are relative to.
const D50: [f64; 3] = [0.9642, 1.0, 0.8249];

/// Chromaticities of sRGB: red, green, blue and white.
const PRIMARIES: [[f64; 2]; 3] = [[0.64, 0.33], [0.30, 0.60], [0.15, 0.06]];
const D65: [f64; 2] = [0.3127, 0.3290];

/// Responses of the eye's cones (Bradford).
const CONES: [[f64; 3]; 3] =
    [[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]];

type Matrix = [[f64; 3]; 3];

/// The colour of L\* and of a\* and b\* plus 128.
pub(super) fn rgb(lab: [u8; 3]) -> [u8; 3] {
    static GRID: OnceLock<Vec<[u16; 3]>> = OnceLock::new();
    interpolated(GRID.get_or_init(grid), lab)
}

/// The colours of all points of the grid; b\* changes fastest.
fn grid() -> Vec<[u16; 3]> {
    let to_linear = scaled(inverse(srgb_to_xyz()), MOST_XYZ);
    let sides: [f64; SIDE] = std::array::from_fn(|i| {
        let of_16_bits = (i as f64 * 65535.0 / (SIDE - 1) as f64 + 0.5).floor();
        // LittleCMS hands numbers of single precision from one step to the next.
        f64::from(of_16_bits as f32 / 65535.0)
    });
    let mut grid = Vec::with_capacity(SIDE * SIDE * SIDE);
    for l in sides {
        for a in sides {
            for b in sides {
                let lab = [l * 100.0, a * 255.0 - 128.0, b * 255.0 - 128.0];
                let xyz =
                    xyz_of_lab(lab).map(|value| f64::from((value / MOST_XYZ) as f32));
                let linear = times(&to_linear, xyz);
                grid.push(linear.map(|value| of_linear(f64::from(value as f32))));
            }
        }
    }
    grid
}

fn xyz_of_lab([l, a, b]: [f64; 3]) -> [f64; 3] {
    let y = (l + 16.0) / 116.0;
    let from_root = |t: f64| {
        if t <= 24.0 / 116.0 { (108.0 / 841.0) * (t - 16.0 / 116.0) } else { t * t * t }
    };
    let [x, y, z] = [y + 0.002 * a, y, y - 0.005 * b].map(from_root);
    [x * D50[0], y * D50[1], z * D50[2]]
}

/// The curve of sRGB, in 16 bits (IEC 61966-2-1).
fn of_linear(value: f64) -> u16 {
    // Not the platform's powers, which may differ from others' in the last bit.
    let power = |base: f64, exponent: f64| exp(ln(base) * exponent);
    let curved = if value >= power((0.04045 + 0.055) / 1.055, 2.4) {
        (power(value, 1.0 / 2.4) - 0.055 / 1.055) * 1.055
    } else {
        value * 12.92
    };
    // The cast clips, as meant.
    (f64::from(curved as f32) * 65535.0 + 0.5).floor() as u16
}

/// From linear sRGB to tristimulus values under D50.
fn srgb_to_xyz() -> Matrix {
    let point = |[x, y]: [f64; 2]| [x, y, 1.0 - x - y];
    let white = point(D65).map(|part| part / D65[1]);
    let primaries = transposed(PRIMARIES.map(point));
    let parts = times(&inverse(primaries), white);
    let under_d65 = primaries.map(|row| std::array::from_fn(|i| row[i] * parts[i]));
    let (before, after) = (times(&CONES, white), times(&CONES, D50));
    let adapted: Matrix =
        std::array::from_fn(|i| CONES[i].map(|part| part * after[i] / before[i]));
    product(&product(&inverse(CONES), &adapted), &under_d65)
}

/// A colour between points of the grid.
fn interpolated(grid: &[[u16; 3]], lab: [u8; 3]) -> [u8; 3] {
    const STEPS: [usize; 3] = [SIDE * SIDE, SIDE, 1];
    // In cells, with 16 bits after the point.
    let place = lab.map(|sample| {
        let sample = u32::from(sample) * 257 * (SIDE as u32 - 1);
        sample + (sample + 0x7fff) / 0xffff
    });
    let mut at: usize = (0..3).map(|i| (place[i] >> 16) as usize * STEPS[i]).sum();
    let mut axes: [(i64, usize); 3] =
        std::array::from_fn(|i| (i64::from(place[i] & 0xffff), i));
    axes.sort_unstable_by_key(|(part, _)| std::cmp::Reverse(*part));
    let point = |at: usize| grid.get(at).copied().unwrap_or_default().map(i64::from);
    let first = point(at);
    let (mut sums, mut before) = ([0x8001_i64; 3], first);
    for (part, axis) in axes {
        // The last point of an axis has no next one, and no part of it is wanted.
        if part > 0 {
            at += STEPS[axis];
        }
        let here = point(at);
        for i in 0..3 {
            sums[i] += (here[i] - before[i]) * part;
        }
        before = here;
    }
    std::array::from_fn(|i| {
        let value = first[i] + ((sums[i] + (sums[i] >> 16)) >> 16);
        (((value & 0xffff) * 65281 + 0x80_0000) >> 24) as u8
    })
}

fn times(matrix: &Matrix, vector: [f64; 3]) -> [f64; 3] {
    matrix.map(|row| row[0] * vector[0] + row[1] * vector[1] + row[2] * vector[2])
}

fn transposed(matrix: Matrix) -> Matrix {
    std::array::from_fn(|i| std::array::from_fn(|j| matrix[j][i]))
}

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    let columns = transposed(*b).map(|column| times(a, column));
    transposed(columns)
}

fn scaled(matrix: Matrix, by: f64) -> Matrix {
    matrix.map(|row| row.map(|part| part * by))
}

fn inverse(matrix: Matrix) -> Matrix {
    let cofactor = |i: usize, j: usize| {
        let (i1, i2, j1, j2) = ((i + 1) % 3, (i + 2) % 3, (j + 1) % 3, (j + 2) % 3);
        matrix[i1][j1] * matrix[i2][j2] - matrix[i1][j2] * matrix[i2][j1]
    };
    let determinant: f64 = (0..3).map(|j| matrix[0][j] * cofactor(0, j)).sum();
    std::array::from_fn(|i| std::array::from_fn(|j| cofactor(j, i) / determinant))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Pillow 12.3 and 13.0 give, and a sum over every seventh colour.
    #[test]
    fn it_is_littlecms_to_the_bit() {
        for (lab, colour) in EXPECTED {
            assert_eq!(rgb(lab), colour, "{lab:?}");
        }
        let some = || (0..=255).step_by(7);
        let mut hash = 0_u64;
        for l in some() {
            for a in some() {
                for b in some() {
                    for part in rgb([l, a, b]) {
                        hash = hash.wrapping_mul(31).wrapping_add(part.into());
                    }
                }
            }
        }
        assert_eq!(hash, SUM);
    }

    /// What it is with the powers of glibc 2.36's `pow`, which are rounded to nearest nearly always.
    #[test]
    fn no_point_of_the_grid_depends_on_the_platform() {
        let bytes: Vec<u8> =
            grid().as_flattened().iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(twox_hash::XxHash3_64::oneshot(&bytes), 0xc7482b6b74ecc6ae);
    }

    const EXPECTED: [([u8; 3], [u8; 3]); 6] = [
        ([0, 128, 128], [1, 0, 1]),
        ([255, 128, 128], [254, 255, 254]),
        ([128, 128, 128], [119, 119, 119]),
        ([139, 203, 160], [245, 40, 81]),
        ([100, 20, 240], [0, 120, 0]),
        ([255, 255, 255], [255, 67, 0]),
    ];
    const SUM: u64 = 0x6ae628d36fa547f1;
}
