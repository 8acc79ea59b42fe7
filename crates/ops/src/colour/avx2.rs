//! Colour conversion, and planes to pixels and back, with AVX2.
//!
//! Products are of 16-bit numbers, so a constant that is too large is taken apart: 1.402 is 1 and
//! a rest, 1.772 is 2 less a rest, -0.714136 is -1 and a rest. Everything is exact, up to the one
//! rounding; bytes are sixty-fourths without a fraction.  The meaning is in `colour.rs`.

#![allow(unsafe_code, reason = "functions for this processor alone are called")]

use std::arch::x86_64::*;

use super::rests::{BLUE_REST, GREEN_PER_CB, GREEN_REST, RED_REST};
use super::{FINE_BITS, starts};
use crate::kernels::Avx2;
use crate::vectors::{load_256, store_256};

/// Pixels that are worked on side by side.
const PIXELS: usize = 32;

/// [`super::ycc_to_rgb`].
pub(super) fn ycc_to_rgb(_: Avx2, ycc: [&[u8]; 3], rgb: [&mut [u8]; 3]) {
    if ycc[0].len() < PIXELS {
        return super::ycc_to_rgb_scalar(ycc, rgb);
    }
    // SAFETY: an `Avx2` is proof that the processor has these instructions.
    unsafe { convert_rows(ycc, rgb) }
}

/// [`super::fine_ycc_to_rgb`].
pub(super) fn fine_ycc_to_rgb(_: Avx2, ycc: [&[i16]; 3], pixels: &mut [u8]) {
    if pixels.len() / 3 < PIXELS {
        return super::fine_ycc_to_rgb_scalar(ycc, pixels);
    }
    // SAFETY: an `Avx2` is proof that the processor has these instructions.
    unsafe { convert_fine(ycc, pixels) }
}

/// [`super::fine_to_bytes`] of three planes.
pub(super) fn fine_to_pixels(_: Avx2, planes: [&[i16]; 3], pixels: &mut [u8]) {
    if pixels.len() / 3 < PIXELS {
        return super::fine_to_bytes_scalar(planes, pixels);
    }
    // SAFETY: an `Avx2` is proof that the processor has these instructions.
    unsafe { round_fine(planes, pixels) }
}

/// [`super::interleave`].
pub(super) fn interleave(_: Avx2, planes: [&[u8]; 3], pixels: &mut [u8]) {
    if pixels.len() / 3 < PIXELS {
        return super::interleave_scalar(planes, pixels);
    }
    // SAFETY: an `Avx2` is proof that the processor has these instructions.
    unsafe { interleave_rows(planes, pixels) }
}

/// [`super::deinterleave`].
pub(super) fn deinterleave(_: Avx2, pixels: &[u8], planes: [&mut [u8]; 3]) {
    if pixels.len() / 3 < PIXELS {
        return super::deinterleave_scalar(pixels, planes);
    }
    // SAFETY: an `Avx2` is proof that the processor has these instructions.
    unsafe { deinterleave_rows(pixels, planes) }
}

#[target_feature(enable = "avx2")]
fn convert_rows([y, cb, cr]: [&[u8]; 3], [r, g, b]: [&mut [u8]; 3]) {
    for at in starts(y.len(), PIXELS) {
        let ycc = [widen(block(y, at)), widen(block(cb, at)), widen(block(cr, at))];
        // Packing undoes the order of `widen`.
        let rgb = convert_block(ycc);
        put(r, at, rgb[0]);
        put(g, at, rgb[1]);
        put(b, at, rgb[2]);
    }
}

#[target_feature(enable = "avx2")]
fn convert_fine([y, cb, cr]: [&[i16]; 3], pixels: &mut [u8]) {
    for at in starts(pixels.len() / 3, PIXELS) {
        let rgb = convert_block([halves(y, at), halves(cb, at), halves(cr, at)]);
        store_pixels(
            [in_order(rgb[0]), in_order(rgb[1]), in_order(rgb[2])],
            &mut pixels[3 * at..],
        );
    }
}

#[target_feature(enable = "avx2")]
fn round_fine([a, b, c]: [&[i16]; 3], pixels: &mut [u8]) {
    for at in starts(pixels.len() / 3, PIXELS) {
        let rgb = [round(halves(a, at)), round(halves(b, at)), round(halves(c, at))];
        store_pixels(
            [in_order(rgb[0]), in_order(rgb[1]), in_order(rgb[2])],
            &mut pixels[3 * at..],
        );
    }
}

#[target_feature(enable = "avx2")]
fn interleave_rows([r, g, b]: [&[u8]; 3], pixels: &mut [u8]) {
    for at in starts(pixels.len() / 3, PIXELS) {
        let rgb = [block(r, at), block(g, at), block(b, at)];
        store_pixels(rgb, &mut pixels[3 * at..]);
    }
}

#[target_feature(enable = "avx2")]
fn deinterleave_rows(pixels: &[u8], [r, g, b]: [&mut [u8]; 3]) {
    for at in starts(pixels.len() / 3, PIXELS) {
        let parts = [
            block(pixels, 3 * at),
            block(pixels, 3 * at + 32),
            block(pixels, 3 * at + 64),
        ];
        // Sixteen pixels to a lane.
        let thirds = [
            _mm256_permute2x128_si256::<0x30>(parts[0], parts[1]),
            _mm256_permute2x128_si256::<0x21>(parts[0], parts[2]),
            _mm256_permute2x128_si256::<0x30>(parts[1], parts[2]),
        ];
        put(r, at, pick(&CHANNELS[0], thirds));
        put(g, at, pick(&CHANNELS[1], thirds));
        put(b, at, pick(&CHANNELS[2], thirds));
    }
}

/// The vector of bytes from `at` on.
#[inline]
#[target_feature(enable = "avx2")]
fn block(bytes: &[u8], at: usize) -> __m256i {
    load_256::<u8, PIXELS>(bytes[at..].first_chunk().expect("a block inside the row"))
}

/// Writes a vector from `at` on.
#[inline]
#[target_feature(enable = "avx2")]
fn put(bytes: &mut [u8], at: usize, value: __m256i) {
    let place = bytes[at..].first_chunk_mut().expect("a place inside the row");
    store_256::<u8, PIXELS>(place, value);
}

/// Red, green and blue of 32 pixels as bytes, in the order of packing.
#[inline]
#[target_feature(enable = "avx2")]
fn convert_block([y, cb, cr]: [[__m256i; 2]; 3]) -> [__m256i; 3] {
    let low = convert(y[0], cb[0], cr[0]);
    let high = convert(y[1], cb[1], cr[1]);
    [
        _mm256_packus_epi16(low[0], high[0]),
        _mm256_packus_epi16(low[1], high[1]),
        _mm256_packus_epi16(low[2], high[2]),
    ]
}

/// Red, green and blue of 16 pixels in sixty-fourths: rounded, not yet limited to a byte.
///
/// ⌊(2^16 a + b) / 2^22⌋ is ⌊(a + ⌊b / 2^16⌋) / 2^6⌋, so the high halves of products are enough.
#[inline]
#[target_feature(enable = "avx2")]
fn convert(y: __m256i, cb: __m256i, cr: __m256i) -> [__m256i; 3] {
    let centre = _mm256_set1_epi16(128 << FINE_BITS);
    let (cb, cr) = (_mm256_sub_epi16(cb, centre), _mm256_sub_epi16(cr, centre));
    let y = _mm256_add_epi16(y, _mm256_set1_epi16(1 << (FINE_BITS - 1)));
    let red = _mm256_mulhi_epi16(cr, _mm256_set1_epi16(RED_REST));
    let red = _mm256_add_epi16(_mm256_add_epi16(y, cr), red);
    let blue = _mm256_mulhi_epi16(cb, _mm256_set1_epi16(BLUE_REST));
    let blue = _mm256_add_epi16(_mm256_add_epi16(y, _mm256_add_epi16(cb, cb)), blue);
    let green = _mm256_add_epi16(_mm256_sub_epi16(y, cr), green_rest(cb, cr));
    [
        _mm256_srai_epi16::<{ FINE_BITS.cast_signed() }>(red),
        _mm256_srai_epi16::<{ FINE_BITS.cast_signed() }>(green),
        _mm256_srai_epi16::<{ FINE_BITS.cast_signed() }>(blue),
    ]
}

/// The high half of the sum of two products: the sum of the high halves and what the low halves
/// carry. These are even, as the constants are, so their mean is exact.
#[inline]
#[target_feature(enable = "avx2")]
fn green_rest(cb: __m256i, cr: __m256i) -> __m256i {
    let (per_cb, per_cr) =
        (_mm256_set1_epi16(-GREEN_PER_CB), _mm256_set1_epi16(GREEN_REST));
    let high = _mm256_mulhi_epi16(cb, per_cb);
    let high = _mm256_add_epi16(high, _mm256_mulhi_epi16(cr, per_cr));
    let mean =
        _mm256_avg_epu16(_mm256_mullo_epi16(cb, per_cb), _mm256_mullo_epi16(cr, per_cr));
    _mm256_add_epi16(high, _mm256_srli_epi16::<15>(mean))
}

/// Bytes as sixty-fourths, in the order of unpacking.
#[inline]
#[target_feature(enable = "avx2")]
fn widen(bytes: __m256i) -> [__m256i; 2] {
    const TO_SIXTY_FOURTHS: i32 = 8 - FINE_BITS.cast_signed();
    let zero = _mm256_setzero_si256();
    // Unpacking into the upper half is a shift by 8.
    [
        _mm256_srli_epi16::<TO_SIXTY_FOURTHS>(_mm256_unpacklo_epi8(zero, bytes)),
        _mm256_srli_epi16::<TO_SIXTY_FOURTHS>(_mm256_unpackhi_epi8(zero, bytes)),
    ]
}

/// 32 numbers from `at` on as two vectors.
#[inline]
#[target_feature(enable = "avx2")]
fn halves(numbers: &[i16], at: usize) -> [__m256i; 2] {
    let block: &[i16; PIXELS] =
        numbers[at..].first_chunk().expect("a block inside the row");
    let (halves, _) = block.as_chunks::<16>();
    [load_256(&halves[0]), load_256(&halves[1])]
}

/// 32 sixty-fourths rounded to bytes, in the order of packing.
#[inline]
#[target_feature(enable = "avx2")]
fn round([low, high]: [__m256i; 2]) -> __m256i {
    let half = _mm256_set1_epi16(1 << (FINE_BITS - 1));
    let low =
        _mm256_srai_epi16::<{ FINE_BITS.cast_signed() }>(_mm256_add_epi16(low, half));
    let high =
        _mm256_srai_epi16::<{ FINE_BITS.cast_signed() }>(_mm256_add_epi16(high, half));
    _mm256_packus_epi16(low, high)
}

/// Undoes what packing does to the order of two vectors.
#[inline]
#[target_feature(enable = "avx2")]
fn in_order(packed: __m256i) -> __m256i {
    _mm256_permute4x64_epi64::<0b11_01_10_00>(packed)
}

/// Writes 32 pixels, of channels in order.
#[inline]
#[target_feature(enable = "avx2")]
fn store_pixels(rgb: [__m256i; 3], pixels: &mut [u8]) {
    // Thirds of sixteen pixels, which are a lane.
    let thirds = [pick(&THIRDS[0], rgb), pick(&THIRDS[1], rgb), pick(&THIRDS[2], rgb)];
    put(pixels, 0, _mm256_permute2x128_si256::<0x20>(thirds[0], thirds[1]));
    put(pixels, 32, _mm256_permute2x128_si256::<0x30>(thirds[2], thirds[0]));
    put(pixels, 64, _mm256_permute2x128_si256::<0x31>(thirds[1], thirds[2]));
}

/// In each lane 16 bytes, each from its place in one of three vectors.
#[inline]
#[target_feature(enable = "avx2")]
fn pick(places: &[[u8; 32]; 3], from: [__m256i; 3]) -> __m256i {
    let first = _mm256_shuffle_epi8(from[0], load_256(&places[0]));
    let second = _mm256_shuffle_epi8(from[1], load_256(&places[1]));
    let third = _mm256_shuffle_epi8(from[2], load_256(&places[2]));
    _mm256_or_si256(_mm256_or_si256(first, second), third)
}

/// What a shuffle makes 0 of.
const NOWHERE: u8 = 0x80;

/// For each third of 16 pixels, where each byte is in the three channels.
static THIRDS: [[[u8; 32]; 3]; 3] = {
    let mut places = [[[NOWHERE; 32]; 3]; 3];
    let (mut i, mut pixel) = (0, 0);
    while i < 48 {
        let (third, at, channel) = (i / 16, i % 16, i % 3);
        places[third][channel][at] = pixel;
        places[third][channel][at + 16] = pixel;
        i += 1;
        if channel == 2 {
            pixel += 1;
        }
    }
    places
};

/// For each channel of 16 pixels, where each byte is in the three thirds.
static CHANNELS: [[[u8; 32]; 3]; 3] = {
    let mut places = [[[NOWHERE; 32]; 3]; 3];
    let (mut i, mut at) = (0, 0);
    while i < 48 {
        let (third, pixel, channel) = (i / 16, i / 3, i % 3);
        places[channel][third][pixel] = at;
        places[channel][third][pixel + 16] = at;
        i += 1;
        at = (at + 1) % 16;
    }
    places
};
