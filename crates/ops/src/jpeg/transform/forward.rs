//! The way into a JPEG of some quality, in libjpeg-turbo's numbers: colour, planes of half the
//! resolution, forward DCT, quantisation.
//!
//! The transform is that of `idct.rs` in the other direction ("islow"), first along the rows (two
//! fraction bits stay), then down the columns; its results are eight times too large. A
//! coefficient is divided by that and by its step and rounded to nearest, halves away from zero,
//! by reciprocals, which are exact. The functions here are the meaning, as loops that compilers
//! make vectors of: blocks stand eight side by side. Nothing here codes coefficients or writes a
//! file. Read `adjust/artefact.rs` for who calls it.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "values fit into what they become"
)]

#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "x86_64")]
use self::x86::{avx2, avx512};
use super::idct::portable::{BLOCKS, LANES, Lanes, transpose};
use super::idct::{EVEN_2, EVEN_3, ODD_0, ODD_1, ODD_2, ODD_3, SUM_3, SUM_4};
use crate::jpeg::block::RowBlocks;
use crate::jpeg::file::header::Quantisation;
use crate::jpeg::zigzag::kept;
use crate::kernels::{Level, x86_kernel};

/// The steps of T.81 Annex K.1: brightness, colour.
const STEPS: [[u16; 64]; 2] = [
    [
        16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24,
        40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77,
        24, 35, 55, 64, 81, 104, 113, 92, 49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95,
        98, 112, 100, 103, 99,
    ],
    [
        17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99,
        99, 99, 99, 99, 47, 66, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
        99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
        99, 99, 99, 99,
    ],
];

/// The steps of brightness and of colour at a quality from 1 to 100 (`jpeg_set_quality`).
pub(crate) fn steps(quality: u8) -> [Quantisation; 2] {
    let quality = u32::from(quality.clamp(1, 100));
    let scale = if quality < 50 { 5000 / quality } else { 200 - 2 * quality };
    STEPS.map(|steps| {
        steps.map(|step| ((u32::from(step) * scale + 50) / 100).clamp(1, 255) as u16)
    })
}

/// What a coefficient, times 8, is multiplied by instead of being divided: for each coefficient, row by row, what is
/// added, and two factors of which the upper half of the product counts (`compute_reciprocal`).
#[derive(Debug, Clone)]
pub(crate) struct Divisors {
    round: [u16; 64],
    reciprocal: [u16; 64],
    scale: [u16; 64],
}

impl Divisors {
    pub(crate) fn new(steps: &Quantisation) -> Self {
        let mut divisors = Self { round: [0; 64], reciprocal: [0; 64], scale: [0; 64] };
        for (place, &step) in steps.iter().enumerate() {
            let divisor = 8 * u32::from(step);
            let bits = 16 + divisor.ilog2();
            let (quotient, rest) = ((1 << bits) / divisor, (1 << bits) % divisor);
            let half = divisor / 2;
            let (round, reciprocal, bits) = match rest {
                0 => (half, quotient / 2, bits - 1),
                _ if rest <= half => (half + 1, quotient, bits),
                _ => (half, quotient + 1, bits),
            };
            divisors.round[place] = round as u16;
            divisors.reciprocal[place] = reciprocal as u16;
            divisors.scale[place] = 1 << (32 - bits);
        }
        divisors
    }
}

/// Converts rows of red, green and blue to Y, Cb and Cr, all of one length (jccolor.c).
pub(crate) fn rgb_to_ycc(level: Level, rgb: [&[u8]; 3], ycc: [&mut [u8]; 3]) {
    x86_kernel!(level, convert(rgb, ycc), convert);
}

/// Makes one row of two that are twice as long (`h2v2_downsample`).
pub(crate) fn halve(level: Level, rows: [&[u8]; 2], out: &mut [u8]) {
    x86_kernel!(level, mean(rows, out), mean);
}

/// Transforms and quantises so many blocks of samples into those of `out`. The samples are
/// eight rows, one after the other, as long as a multiple of [`LANES`].
pub(crate) fn coefficients(
    level: Level,
    samples: (&[u8], usize),
    divisors: &Divisors,
    out: &mut RowBlocks,
) {
    x86_kernel!(level, block_row(samples, divisors, out), block_row);
}

#[inline(always)]
fn convert([r, g, b]: [&[u8]; 3], [y, cb, cr]: [&mut [u8]; 3]) {
    // 0.299, 0.587, 0.114; 0.168735892, 0.331264108, 0.5; 0.418687589, 0.081312411; 16 bits.
    const HALF: i32 = 1 << 15;
    const CENTRE: i32 = (128 << 16) + HALF - 1;
    let n = y.len();
    let (r, g, b) = (&r[..n], &g[..n], &b[..n]);
    let (cb, cr) = (&mut cb[..n], &mut cr[..n]);
    for i in 0..n {
        let [r, g, b] = [r[i], g[i], b[i]].map(i32::from);
        y[i] = ((19_595 * r + 38_470 * g + 7471 * b + HALF) >> 16) as u8;
        cb[i] = ((HALF * b - 11_059 * r - 21_709 * g + CENTRE) >> 16) as u8;
        cr[i] = ((HALF * r - 27_439 * g - 5329 * b + CENTRE) >> 16) as u8;
    }
}

/// The mean of four; halves are rounded down and up in turn.
#[inline(always)]
fn mean([upper, lower]: [&[u8]; 2], out: &mut [u8]) {
    let (upper, lower) = (upper.as_chunks::<2>().0, lower.as_chunks::<2>().0);
    for (nth, (out, (upper, lower))) in
        out.iter_mut().zip(upper.iter().zip(lower)).enumerate()
    {
        let sum =
            [upper[0], upper[1], lower[0], lower[1]].map(u16::from).iter().sum::<u16>();
        *out = ((sum + 1 + (nth & 1) as u16) >> 2) as u8;
    }
}

#[inline(always)]
fn block_row(
    (samples, n_blocks): (&[u8], usize),
    divisors: &Divisors,
    out: &mut RowBlocks,
) {
    let stride = samples.len() / 8;
    out.reserve(n_blocks.next_multiple_of(BLOCKS));
    for first in (0..n_blocks).step_by(BLOCKS) {
        eight_blocks(&samples[8 * first..], stride, divisors, (out, first));
    }
}

/// Transforms and quantises [`BLOCKS`] blocks of samples, whose rows are `stride` bytes apart,
/// into the blocks of `out` from `first` on.
#[inline(always)]
pub(crate) fn eight_blocks(
    samples: &[u8],
    stride: usize,
    divisors: &Divisors,
    (out, first): (&mut RowBlocks, usize),
) {
    let (mut rows, mut columns) = ([[0; LANES]; 8], [[0; LANES]; 8]);
    for (y, row) in rows.iter_mut().enumerate() {
        let samples: &[u8; LANES] =
            samples[y * stride..].first_chunk().expect("rows of eight blocks");
        for (value, &sample) in row.iter_mut().zip(samples) {
            *value = i16::from(sample) - 128;
        }
    }
    transpose(&rows, &mut columns);
    pass::<2, 11>(&mut columns);
    transpose(&columns, &mut rows);
    pass::<-2, 15>(&mut rows);
    for nth in 0..BLOCKS {
        let block = out.block_mut(first + nth);
        for (y, row) in rows.iter().enumerate() {
            let row: &[i16; 8] = row[8 * nth..].first_chunk().expect("inside the lanes");
            for (x, &value) in row.iter().enumerate() {
                let at = 8 * y + x;
                let sum = value.unsigned_abs() + divisors.round[at];
                let product =
                    upper(upper(sum, divisors.reciprocal[at]), divisors.scale[at]);
                let quotient = product.cast_signed();
                block[kept(at)] = if value < 0 { -quotient } else { quotient };
            }
        }
    }
}

/// The upper half of a product.
#[inline(always)]
fn upper(a: u16, b: u16) -> u16 {
    ((u32::from(a) * u32::from(b)) >> 16) as u16
}

/// One transform in each lane: sums times 2^`SHIFT`, products with `DESCALE` bits dropped.
#[inline(always)]
fn pass<const SHIFT: i32, const DESCALE: u32>(v: &mut Lanes) {
    for i in 0..LANES {
        let x = [v[0][i], v[1][i], v[2][i], v[3][i], v[4][i], v[5][i], v[6][i], v[7][i]];
        for (to, value) in v.iter_mut().zip(transform::<SHIFT, DESCALE>(x)) {
            to[i] = value;
        }
    }
}

/// One 8-point transform (`jpeg_fdct_islow`).
#[inline(always)]
fn transform<const SHIFT: i32, const DESCALE: u32>(x: [i16; 8]) -> [i16; 8] {
    let [s0, s1, s2, s3] = [0, 1, 2, 3].map(|i| x[i] + x[7 - i]);
    let [d0, d1, d2, d3] = [0, 1, 2, 3].map(|i| x[i] - x[7 - i]);
    let (s03, d03, s12, d12) = (s0 + s3, s0 - s3, s1 + s2, s1 - s2);
    let whole = |sum: i16| if SHIFT > 0 { sum << SHIFT } else { (sum + 2) >> 2 };
    let dropped = |sum: i32| ((sum + (1 << (DESCALE - 1))) >> DESCALE) as i16;
    let pair = |a: i16, b: i16, [p, q]: [i32; 2]| i32::from(a) * p + i32::from(b) * q;
    let (near, far) = (d1 + d3, d0 + d2);
    let (z3, z4) = (pair(near, far, SUM_3), pair(near, far, SUM_4));
    [
        whole(s03 + s12),
        dropped(pair(d3, d0, ODD_3) + z4),
        dropped(pair(d03, d12, EVEN_3)),
        dropped(pair(d2, d1, ODD_2) + z3),
        whole(s03 - s12),
        dropped(pair(d2, d1, ODD_1) + z4),
        dropped(pair(d03, d12, EVEN_2)),
        dropped(pair(d3, d0, ODD_0) + z3),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_rounds_to_nearest() {
        for step in 1..=255_u16 {
            let divisors = Divisors::new(&[step; 64]);
            let divisor = 8 * u32::from(step);
            // As far as an 8-point transform of bytes reaches in two passes, times 8.
            for value in 0..=8192_u16 {
                let sum = value + divisors.round[0];
                let got = upper(upper(sum, divisors.reciprocal[0]), divisors.scale[0]);
                let exact = (u32::from(value) + divisor / 2) / divisor;
                assert_eq!(u32::from(got), exact, "{value} by {divisor}");
            }
        }
    }

    /// `jpeg_quality_scaling` and `jpeg_add_quant_table`, by hand.
    #[test]
    fn steps_are_libjpegs() {
        let first = |quality| steps(quality).map(|steps| steps[0]);
        assert_eq!(first(50), [16, 17]);
        assert_eq!(first(75), [8, 9]);
        assert_eq!(first(10), [80, 85]);
        assert_eq!(first(1), [255, 255]);
        assert_eq!(first(100), [1, 1]);
    }

    /// The definition of the forward DCT (T.81 §A.3.3), in f64: with steps of 1 the integer one
    /// is within 1.
    #[test]
    fn the_transform_is_the_forward_dct() {
        let mut state = 1_u32;
        for _ in 0..20 {
            let mut samples = vec![0; 8 * LANES];
            for sample in &mut samples {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *sample = (state >> 24) as u8;
            }
            let mut out = RowBlocks::default();
            coefficients(
                Level::Scalar,
                (&samples, BLOCKS),
                &Divisors::new(&[1; 64]),
                &mut out,
            );
            for at in 0..64 {
                let got = out.block(3)[kept(at)];
                let exact = forward_dct(&samples[24..], at % 8, at / 8);
                assert!((f64::from(got) - exact).abs() <= 1.0, "{at}: {got}, {exact}");
            }
        }
    }

    fn forward_dct(samples: &[u8], u: usize, v: usize) -> f64 {
        let angle = |n: usize, k: usize| {
            let scale = if k == 0 { 0.5_f64.sqrt() } else { 1.0 };
            scale * (((2 * n + 1) * k) as f64 * std::f64::consts::PI / 16.0).cos()
        };
        let places = (0..8).flat_map(|y| (0..8).map(move |x| (x, y)));
        let sum: f64 = places
            .map(|(x, y)| {
                let sample = f64::from(samples[y * LANES + x]) - 128.0;
                sample * angle(x, u) * angle(y, v)
            })
            .sum();
        sum / 4.0
    }

    #[test]
    fn every_level_is_the_scalar_one() {
        for (n_blocks, stride) in [(1, LANES), (5, LANES), (8, LANES), (9, 2 * LANES)] {
            let samples: Vec<u8> =
                (0..8 * stride).map(|i| (i * i / 7 + i) as u8).collect();
            for quality in [1, 50, 100] {
                let divisors = Divisors::new(&steps(quality)[0]);
                let run = |level| {
                    let mut out = RowBlocks::default();
                    coefficients(level, (&samples, n_blocks), &divisors, &mut out);
                    (0..n_blocks).map(|nth| *out.block(nth)).collect::<Vec<_>>()
                };
                for level in Level::available() {
                    assert!(run(level) == run(Level::Scalar), "{}", level.name());
                }
            }
        }
    }

    /// jccolor.c and `h2v2_downsample`, by hand.
    #[test]
    fn colours_and_means_are_libjpegs() {
        for level in Level::available() {
            let rgb = [[0, 255, 255, 0, 0], [0, 255, 0, 255, 0], [0, 255, 0, 0, 255]];
            let mut ycc = [[0; 5]; 3];
            rgb_to_ycc(
                level,
                rgb.each_ref().map(|r| &r[..]),
                ycc.each_mut().map(|r| &mut r[..]),
            );
            let expected = [
                [0, 255, 76, 150, 29],
                [128, 128, 85, 44, 255],
                [128, 128, 255, 21, 107],
            ];
            assert_eq!(ycc, expected);
            let mut out = [0; 3];
            halve(level, [&[1, 2, 1, 2, 9, 9], &[1, 2, 1, 2, 9, 9]], &mut out);
            assert_eq!(out, [1, 2, 9]);
        }
    }
}
