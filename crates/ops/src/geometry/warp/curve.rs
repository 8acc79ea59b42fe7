//! How pixels are blended: the meaning, for images of any size and any number of channels.
//!
//! Weights along an axis have 14 fraction bits and add up to 1. Pixels are summed along the
//! row, rounded to 6 fraction bits, which with a cubic's overshoot is a number of 16 bits;
//! then down the column, rounded to whole numbers and limited to a byte. All halves are
//! rounded up. Read `blend.rs` for how three channels are done fast.

use bothends_core::recipe::step::Warp;

use super::points::{FRACTION_BITS, ONE, Points, Seen, runs};
use crate::image::{Image, View};

/// Fraction bits of a row's sum.
const KEPT_BITS: u32 = 6;

/// What is dropped behind a row's sum, and behind the sum of rows.
pub(super) const DROPPED: [u32; 2] =
    [FRACTION_BITS - KEPT_BITS, FRACTION_BITS + KEPT_BITS];

/// The weights of neighbouring pixels.
pub(super) trait Curve<const TAPS: usize> {
    /// Of the pixels round a point that lies `fraction` behind the centre of the middle one (of
    /// an even number: the one before the middle).
    fn weights(fraction: i32) -> [i32; TAPS];
}

/// Straight lines from pixel to pixel.
#[derive(Debug)]
pub(super) struct Linear;

impl Curve<2> for Linear {
    #[inline(always)]
    fn weights(fraction: i32) -> [i32; 2] {
        [ONE - fraction, fraction]
    }
}

/// Cubic convolution with a = −1: the one of Pillow's `transform`, sharper than that of its
/// `resize`.
#[derive(Debug)]
pub(super) struct Cubic;

impl Curve<4> for Cubic {
    /// For the fraction t: −t + 2t² − t³, what is left, t + t² − t³, t³ − t². Powers are
    /// rounded to nearest.
    #[inline(always)]
    fn weights(fraction: i32) -> [i32; 4] {
        let t = fraction;
        let t2 = shifted(t * t, FRACTION_BITS);
        let t3 = shifted(t2 * t, FRACTION_BITS);
        let first = 2 * t2 - t3 - t;
        let third = t + t2 - t3;
        let last = t3 - t2;
        [first, ONE - first - third - last, third, last]
    }
}

/// The first of the pixels round a point: `TAPS` from there on have weights.
#[inline(always)]
pub(super) fn first(pixel: i32, taps: usize) -> i32 {
    pixel + 1 - count(taps) / 2
}

/// Makes `out`. Both images have pixels.
pub(super) fn blend<const TAPS: usize, C: Curve<TAPS>>(
    src: View<'_>,
    warp: &Warp,
    out: &mut Image,
) {
    let (channels, size) = (src.channels(), [src.width(), src.height()]);
    let mut points = Points::NONE;
    for run in runs(out.size()) {
        let out =
            &mut out.pixels_mut()[run.start * channels..][..run.n_pixels * channels];
        let seen = points.find(&warp.map, size, run);
        if seen != Seen::Nothing {
            for (n, out) in out.chunks_exact_mut(channels).enumerate() {
                blend_pixel::<TAPS, C>(src, [points.x[n], points.y[n]], out);
            }
        }
        points.fill_outside(seen, out, channels, warp.fill);
    }
}

/// Blends the pixels round a point.
fn blend_pixel<const TAPS: usize, C: Curve<TAPS>>(
    src: View<'_>,
    point: [i32; 2],
    out: &mut [u8],
) {
    let channels = src.channels();
    let [x, y] = point.map(|at| at >> FRACTION_BITS);
    let [across, down] = point.map(|at| C::weights(at & (ONE - 1)));
    let columns = neighbours::<TAPS>(x, src.width());
    let rows = neighbours::<TAPS>(y, src.height()).map(|y| src.row(y));
    for (channel, out) in out.iter_mut().enumerate() {
        let sums = rows.map(|row| {
            let values = columns.map(|x| i32::from(row[x * channels + channel]));
            shifted(dot(values, across), DROPPED[0])
        });
        *out = byte(shifted(dot(sums, down), DROPPED[1]));
    }
}

/// The pixels round a point; the edge's where there are none.
fn neighbours<const TAPS: usize>(pixel: i32, len: usize) -> [usize; TAPS] {
    let first = first(pixel, TAPS);
    std::array::from_fn(|nth| {
        usize::try_from(first + count(nth)).unwrap_or(0).min(len - 1)
    })
}

/// The sum of products.
#[inline(always)]
fn dot<const TAPS: usize>(values: [i32; TAPS], weights: [i32; TAPS]) -> i32 {
    values.iter().zip(&weights).map(|(value, weight)| value * weight).sum()
}

/// `bits` dropped, rounding halves up.
#[inline(always)]
pub(super) fn shifted(sum: i32, bits: u32) -> i32 {
    (sum + (1 << (bits - 1))) >> bits
}

/// Limited to a byte.
#[expect(clippy::cast_sign_loss, reason = "it is limited")]
#[inline(always)]
pub(super) fn byte(value: i32) -> u8 {
    value.clamp(0, 255) as u8
}

/// A number of taps as the numbers of pixels are.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "at most 4"
)]
#[inline(always)]
const fn count(taps: usize) -> i32 {
    taps as i32
}
