//! Colour conversion of JPEG planes, and conversion between planes and pixels.
//!
//! Luma and chroma (Y, Cb, Cr) become red, green and blue with libjpeg's constants, in fixed point with 16
//! fraction bits and one rounding: jdcolor.c in every bit. The same exists for planes that still have a
//! fraction, in sixty-fourths. The functions here are the definition; a level may have faster
//! equivalents. Nothing here upsamples or resizes. Read `geometry/resample.rs` for the caller.

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "x86_64")]
use self::x86::{avx2, avx512};
use crate::kernels::{Level, kernel};

/// 1.402, 0.344136, 0.714136 and 1.772 with 16 fraction bits, as jdcolor.c rounds them.
const RED_PER_CR: i32 = 91_881;
const GREEN_PER_CB: i32 = 22_554;
const GREEN_PER_CR: i32 = 46_802;
const BLUE_PER_CB: i32 = 116_130;

/// Fraction bits of the constants.
const CONSTANT_BITS: u32 = 16;

/// Fraction bits of planes in sixty-fourths.
const FINE_BITS: u32 = 6;

/// The constants for kernels that multiply 16-bit numbers.
mod rests {
    /// 0.344136, which fits as it is.
    pub(super) const GREEN_PER_CB: i16 = rest(super::GREEN_PER_CB, 0);
    /// 1.402 less 1.
    pub(super) const RED_REST: i16 = rest(super::RED_PER_CR, 1);
    /// 1.772 less 2.
    pub(super) const BLUE_REST: i16 = rest(super::BLUE_PER_CB, 2);
    /// -0.714136 and 1.
    pub(super) const GREEN_REST: i16 = rest(-super::GREEN_PER_CR, -1);

    /// What is left of `constant` when `whole` is taken from it and added elsewhere.
    #[expect(clippy::cast_possible_truncation, reason = "checked when it is compiled")]
    const fn rest(constant: i32, whole: i32) -> i16 {
        let rest = constant - (whole << super::CONSTANT_BITS);
        assert!(-0x8000 <= rest && rest < 0x8000, "16 bits with a sign");
        rest as i16
    }
}

/// Converts rows of Y, Cb and Cr to rows of red, green and blue, all of one length.
///
/// # Panics
/// When they are not.
pub fn ycc_to_rgb(level: Level, ycc: [&[u8]; 3], rgb: [&mut [u8]; 3]) {
    let [y, cb, cr] = ycc;
    let [r, g, b] = rgb;
    let n = y.len();
    assert!(cb.len() == n && cr.len() == n, "rows of one length");
    assert!(r.len() == n && g.len() == n && b.len() == n, "rows of one length");
    kernel!(level.filled_by(n), ycc_to_rgb([y, cb, cr], [r, g, b]), ycc_to_rgb_scalar);
}

/// Converts rows of Y, Cb and Cr in sixty-fourths to pixels of red, green and blue. The rows are
/// at least as long as there are pixels.
///
/// # Panics
/// When they are not.
pub(crate) fn fine_ycc_to_rgb(level: Level, ycc: [&[i16]; 3], pixels: &mut [u8]) {
    kernel!(
        level.filled_by(pixels.len() / 3),
        fine_ycc_to_rgb(ycc, pixels),
        fine_ycc_to_rgb_scalar
    );
}

/// Rounds rows of sixty-fourths to the channels of pixels. The rows are at least as long as
/// there are pixels.
///
/// # Panics
/// When they are not.
pub(crate) fn fine_to_bytes<const N: usize>(
    level: Level,
    planes: [&[i16]; N],
    pixels: &mut [u8],
) {
    match planes[..] {
        [a, b, c] => {
            let level = level.filled_by(pixels.len() / 3);
            kernel!(level, fine_to_pixels([a, b, c], pixels), fine_to_bytes_scalar);
        }
        _ => fine_to_bytes_scalar(planes, pixels),
    }
}

/// Makes pixels of three channels of three rows.
///
/// # Panics
/// When the rows are not as long as there are pixels.
pub fn interleave(level: Level, planes: [&[u8]; 3], pixels: &mut [u8]) {
    for plane in planes {
        assert_eq!(plane.len() * 3, pixels.len(), "a byte for every pixel");
    }
    kernel!(
        level.filled_by(pixels.len() / 3),
        interleave(planes, pixels),
        interleave_scalar
    );
}

/// Makes three rows of pixels of three channels.
///
/// # Panics
/// When the rows are not as long as there are pixels.
pub fn deinterleave(level: Level, pixels: &[u8], planes: [&mut [u8]; 3]) {
    for plane in &planes {
        assert_eq!(plane.len() * 3, pixels.len(), "a byte for every pixel");
    }
    kernel!(
        level.filled_by(pixels.len() / 3),
        deinterleave(pixels, planes),
        deinterleave_scalar
    );
}

/// One pixel, of which Y has `FRACTION_BITS` fraction bits, and so have Cb and Cr, centred.
#[inline(always)]
fn pixel<const FRACTION_BITS: u32>(y: i32, cb: i32, cr: i32) -> [u8; 3] {
    const HALF: i32 = 1 << (CONSTANT_BITS - 1);
    // Each constant is a whole number, which goes to Y, and a rest of 16 bits: numbers that
    // processors multiply best.
    let byte = |whole: i32, rest: i32| {
        let sum = (whole << CONSTANT_BITS) + (HALF << FRACTION_BITS) + rest;
        byte(sum >> (CONSTANT_BITS + FRACTION_BITS))
    };
    let times = |value: i32, rest: i16| value * i32::from(rest);
    [
        byte(y + cr, times(cr, rests::RED_REST)),
        byte(y - cr, times(cr, rests::GREEN_REST) - times(cb, rests::GREEN_PER_CB)),
        byte(y + 2 * cb, times(cb, rests::BLUE_REST)),
    ]
}

#[inline(always)]
fn byte(value: i32) -> u8 {
    u8::try_from(value.clamp(0, 255)).expect("clamped to a byte")
}

/// The scalar meaning of [`ycc_to_rgb`].
#[inline(always)]
fn ycc_to_rgb_scalar([y, cb, cr]: [&[u8]; 3], [r, g, b]: [&mut [u8]; 3]) {
    for i in 0..y.len() {
        let [y, cb, cr] = [y[i], cb[i], cr[i]].map(i32::from);
        [r[i], g[i], b[i]] = pixel::<0>(y, cb - 128, cr - 128);
    }
}

/// Pixels that are converted before they are put together.
const SIDE_BY_SIDE: usize = 64;

/// The scalar meaning of [`fine_ycc_to_rgb`].
#[inline(always)]
fn fine_ycc_to_rgb_scalar([y, cb, cr]: [&[i16]; 3], pixels: &mut [u8]) {
    const CENTRE: i16 = 128 << FINE_BITS;
    for (nth, pixels) in pixels.chunks_mut(3 * SIDE_BY_SIDE).enumerate() {
        let n = pixels.len() / 3;
        let range = nth * SIDE_BY_SIDE..nth * SIDE_BY_SIDE + n;
        let [y, cb, cr] = [&y[range.clone()], &cb[range.clone()], &cr[range]];
        let mut rgb = [[0; SIDE_BY_SIDE]; 3];
        let [r, g, b] = &mut rgb;
        for i in 0..n {
            let [cb, cr] = [cb[i], cr[i]].map(|value| value.wrapping_sub(CENTRE));
            [r[i], g[i], b[i]] = pixel::<FINE_BITS>(y[i].into(), cb.into(), cr.into());
        }
        interleave_scalar([&r[..n], &g[..n], &b[..n]], pixels);
    }
}

/// The scalar meaning of [`fine_to_bytes`].
#[inline(always)]
fn fine_to_bytes_scalar<const N: usize>(planes: [&[i16]; N], pixels: &mut [u8]) {
    for (i, out) in pixels.chunks_exact_mut(N).enumerate() {
        let values = planes.map(|plane| i32::from(plane[i]));
        let rounded = values.map(|v| byte((v + (1 << (FINE_BITS - 1))) >> FINE_BITS));
        out.copy_from_slice(&rounded);
    }
}

/// The scalar meaning of [`interleave`].
#[inline(always)]
fn interleave_scalar([r, g, b]: [&[u8]; 3], pixels: &mut [u8]) {
    for (i, pixel) in pixels.chunks_exact_mut(3).enumerate() {
        pixel.copy_from_slice(&[r[i], g[i], b[i]]);
    }
}

/// The scalar meaning of [`deinterleave`].
#[inline(always)]
fn deinterleave_scalar(pixels: &[u8], [r, g, b]: [&mut [u8]; 3]) {
    for (i, pixel) in pixels.chunks_exact(3).enumerate() {
        [r[i], g[i], b[i]] = [pixel[0], pixel[1], pixel[2]];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte(value: i64) -> u8 {
        u8::try_from(value).unwrap()
    }

    /// jdcolor.c: `y + ((91881 * cr + 32768) >> 16)` and so on, with tables for each product.
    #[test]
    fn colours_are_libjpegs() {
        for (cb, cr) in (0..256_i64).flat_map(|cb| (0..256).map(move |cr| (cb, cr))) {
            let (u, v) = (cb - 128, cr - 128);
            let red = (91_881 * v + 32_768) >> 16;
            let green = (-22_554 * u - 46_802 * v + 32_768) >> 16;
            let blue = (116_130 * u + 32_768) >> 16;
            let y: [u8; 5] = [0, 1, 100, 200, 255];
            let [mut r, mut g, mut b] = [[0; 5]; 3];
            let ycc: [&[u8]; 3] = [&y, &[byte(cb); 5], &[byte(cr); 5]];
            ycc_to_rgb(Level::best(), ycc, [&mut r, &mut g, &mut b]);
            for i in 0..5 {
                let limited = |add: i64| byte((i64::from(y[i]) + add).clamp(0, 255));
                let expected = [limited(red), limited(green), limited(blue)];
                assert_eq!([r[i], g[i], b[i]], expected, "{} {cb} {cr}", y[i]);
            }
        }
    }
}
