//! Colour conversion, and planes to pixels and back, with NEON.
//!
//! Products are of 16-bit numbers, so a constant that is too large is taken apart: 1.402 is 1 and
//! a rest, 1.772 is 2 less a rest, -0.714136 is -1 and a rest. Everything is exact, up to the one
//! rounding; bytes are sixty-fourths without a fraction. The meaning is in `colour.rs`.

#![allow(unsafe_code, reason = "functions for this processor alone are called")]

use std::arch::aarch64::*;

use super::FINE_BITS;
use super::rests::{BLUE_REST, GREEN_PER_CB, GREEN_REST, RED_REST};
use crate::kernels::compiled::door;
use crate::kernels::vectors::{load_i16, load_pixels, load_u8, store_pixels, store_u8};
use crate::kernels::{Neon, starts};

/// Pixels that are worked on side by side; the least there may be.
const PIXELS: usize = 16;

door!(pub(super) fn ycc_to_rgb(
    _: Neon,
    ycc: [&[u8]; 3],
    rgb: [&mut [u8]; 3],
) = convert_rows);

door!(pub(super) fn fine_ycc_to_rgb(
    _: Neon,
    ycc: [&[i16]; 3],
    pixels: &mut [u8],
) = convert_fine);

door!(pub(super) fn fine_to_pixels(
    _: Neon,
    planes: [&[i16]; 3],
    pixels: &mut [u8],
) = round_fine);

door!(pub(super) fn interleave(
    _: Neon,
    planes: [&[u8]; 3],
    pixels: &mut [u8],
) = interleave_rows);

door!(pub(super) fn deinterleave(
    _: Neon,
    pixels: &[u8],
    planes: [&mut [u8]; 3],
) = deinterleave_rows);

#[target_feature(enable = "neon")]
fn convert_rows(ycc: [&[u8]; 3], rgb: [&mut [u8]; 3]) {
    let [r, g, b] = rgb;
    for at in starts(r.len(), PIXELS) {
        let rgb = convert_block(ycc.map(|plane| widen(block(plane, at))));
        put(r, at, rgb.0);
        put(g, at, rgb.1);
        put(b, at, rgb.2);
    }
}

#[target_feature(enable = "neon")]
fn convert_fine(ycc: [&[i16]; 3], pixels: &mut [u8]) {
    for at in starts(pixels.len() / 3, PIXELS) {
        let rgb = convert_block(ycc.map(|plane| halves(plane, at)));
        put_pixels(pixels, at, rgb);
    }
}

#[target_feature(enable = "neon")]
fn round_fine(planes: [&[i16]; 3], pixels: &mut [u8]) {
    for at in starts(pixels.len() / 3, PIXELS) {
        let [a, b, c] = planes.map(|plane| {
            let [low, high] = halves(plane, at);
            round(low, high)
        });
        put_pixels(pixels, at, uint8x16x3_t(a, b, c));
    }
}

#[target_feature(enable = "neon")]
fn interleave_rows(planes: [&[u8]; 3], pixels: &mut [u8]) {
    for at in starts(pixels.len() / 3, PIXELS) {
        let [a, b, c] = planes.map(|plane| block(plane, at));
        put_pixels(pixels, at, uint8x16x3_t(a, b, c));
    }
}

#[target_feature(enable = "neon")]
fn deinterleave_rows(pixels: &[u8], planes: [&mut [u8]; 3]) {
    let [r, g, b] = planes;
    for at in starts(pixels.len() / 3, PIXELS) {
        let block = pixels[3 * at..].first_chunk().expect("a block of pixels");
        let uint8x16x3_t(first, second, third) = load_pixels(block);
        put(r, at, first);
        put(g, at, second);
        put(b, at, third);
    }
}

/// Red, green and blue of 16 pixels, whose parts are sixty-fourths.
#[inline]
#[target_feature(enable = "neon")]
fn convert_block([y, cb, cr]: [[int16x8_t; 2]; 3]) -> uint8x16x3_t {
    let low = convert(y[0], cb[0], cr[0]);
    let high = convert(y[1], cb[1], cr[1]);
    uint8x16x3_t(round(low[0], high[0]), round(low[1], high[1]), round(low[2], high[2]))
}

/// Red, green and blue of 8 pixels in sixty-fourths, without what lies below.
///
/// ⌊(2^16 a + b) / 2^22⌋ is ⌊(a + ⌊b / 2^16⌋) / 2^6⌋, so the high halves of products are enough.
#[inline]
#[target_feature(enable = "neon")]
fn convert(y: int16x8_t, cb: int16x8_t, cr: int16x8_t) -> [int16x8_t; 3] {
    let centre = vdupq_n_s16(128 << FINE_BITS);
    let (cb, cr) = (vsubq_s16(cb, centre), vsubq_s16(cr, centre));
    let zero = vdupq_n_s16(0);
    let red = products(cr, RED_REST, zero, 0);
    let green = products(cb, -GREEN_PER_CB, cr, GREEN_REST);
    let blue = products(cb, BLUE_REST, zero, 0);
    [
        vaddq_s16(vaddq_s16(y, cr), red),
        vaddq_s16(vsubq_s16(y, cr), green),
        vaddq_s16(vaddq_s16(y, vaddq_s16(cb, cb)), blue),
    ]
}

/// The high half of `a * per_a + b * per_b`.
#[inline]
#[target_feature(enable = "neon")]
fn products(a: int16x8_t, per_a: i16, b: int16x8_t, per_b: i16) -> int16x8_t {
    let low = vmull_n_s16(vget_low_s16(a), per_a);
    let low = vmlal_n_s16(low, vget_low_s16(b), per_b);
    let high = vmull_high_n_s16(a, per_a);
    let high = vmlal_high_n_s16(high, b, per_b);
    vshrn_high_n_s32::<16>(vshrn_n_s32::<16>(low), high)
}

/// Sixty-fourths rounded to bytes.
#[inline]
#[target_feature(enable = "neon")]
fn round(low: int16x8_t, high: int16x8_t) -> uint8x16_t {
    const BITS: i32 = FINE_BITS.cast_signed();
    vqrshrun_high_n_s16::<BITS>(vqrshrun_n_s16::<BITS>(low), high)
}

/// Bytes as sixty-fourths.
#[inline]
#[target_feature(enable = "neon")]
fn widen(bytes: uint8x16_t) -> [int16x8_t; 2] {
    const BITS: i32 = FINE_BITS.cast_signed();
    let low = vshll_n_u8::<BITS>(vget_low_u8(bytes));
    [vreinterpretq_s16_u16(low), vreinterpretq_s16_u16(vshll_high_n_u8::<BITS>(bytes))]
}

/// The bytes from `at` on.
#[inline]
#[target_feature(enable = "neon")]
fn block(bytes: &[u8], at: usize) -> uint8x16_t {
    load_u8(bytes[at..].first_chunk().expect("a block inside the row"))
}

/// 16 numbers from `at` on.
#[inline]
#[target_feature(enable = "neon")]
fn halves(numbers: &[i16], at: usize) -> [int16x8_t; 2] {
    let block: &[i16; PIXELS] =
        numbers[at..].first_chunk().expect("a block inside the row");
    let (halves, _) = block.as_chunks::<8>();
    [load_i16(&halves[0]), load_i16(&halves[1])]
}

/// Writes a vector from `at` on.
#[inline]
#[target_feature(enable = "neon")]
fn put(bytes: &mut [u8], at: usize, value: uint8x16_t) {
    store_u8(bytes[at..].first_chunk_mut().expect("a place inside the row"), value);
}

/// Writes 16 pixels from pixel `at` on.
#[inline]
#[target_feature(enable = "neon")]
fn put_pixels(pixels: &mut [u8], at: usize, rgb: uint8x16x3_t) {
    let place = pixels[3 * at..].first_chunk_mut().expect("a place for 16 pixels");
    store_pixels(place, rgb);
}
