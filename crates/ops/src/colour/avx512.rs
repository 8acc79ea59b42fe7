//! Colour conversion, and planes to pixels and back, with AVX-512, VBMI and VNNI.
//!
//! Products are of 16-bit numbers, so a constant that is too large is taken apart: 1.402 is 1 and
//! a rest, 1.772 is 2 less a rest, -0.714136 is -1 and a rest. Everything is exact, up to the one
//! rounding; bytes are sixty-fourths without a fraction. The meaning is in `colour.rs`.

#![allow(unsafe_code, reason = "functions for this processor alone are called")]

use std::arch::x86_64::*;

use super::rests::{BLUE_REST, GREEN_PER_CB, GREEN_REST, RED_REST};
use super::{FINE_BITS, avx2, starts};
use crate::kernels::Avx512;
use crate::vectors::{load_512, store_512};

/// Pixels that are worked on side by side.
const PIXELS: usize = 64;

/// [`super::ycc_to_rgb`].
pub(super) fn ycc_to_rgb(cpu: Avx512, ycc: [&[u8]; 3], rgb: [&mut [u8]; 3]) {
    if ycc[0].len() < PIXELS {
        return avx2::ycc_to_rgb(cpu.avx2(), ycc, rgb);
    }
    // SAFETY: an `Avx512` is proof that the processor has these instructions.
    unsafe { convert_rows(ycc, rgb) }
}

/// [`super::fine_ycc_to_rgb`].
pub(super) fn fine_ycc_to_rgb(cpu: Avx512, ycc: [&[i16]; 3], pixels: &mut [u8]) {
    if pixels.len() / 3 < PIXELS {
        return avx2::fine_ycc_to_rgb(cpu.avx2(), ycc, pixels);
    }
    // SAFETY: an `Avx512` is proof that the processor has these instructions.
    unsafe { convert_fine(ycc, pixels) }
}

/// [`super::fine_to_bytes`] of three planes.
pub(super) fn fine_to_pixels(cpu: Avx512, planes: [&[i16]; 3], pixels: &mut [u8]) {
    if pixels.len() / 3 < PIXELS {
        return avx2::fine_to_pixels(cpu.avx2(), planes, pixels);
    }
    // SAFETY: an `Avx512` is proof that the processor has these instructions.
    unsafe { round_fine(planes, pixels) }
}

/// [`super::interleave`].
pub(super) fn interleave(cpu: Avx512, planes: [&[u8]; 3], pixels: &mut [u8]) {
    if pixels.len() / 3 < PIXELS {
        return avx2::interleave(cpu.avx2(), planes, pixels);
    }
    // SAFETY: an `Avx512` is proof that the processor has these instructions.
    unsafe { interleave_rows(planes, pixels) }
}

/// [`super::deinterleave`].
pub(super) fn deinterleave(cpu: Avx512, pixels: &[u8], planes: [&mut [u8]; 3]) {
    if pixels.len() / 3 < PIXELS {
        return avx2::deinterleave(cpu.avx2(), pixels, planes);
    }
    // SAFETY: an `Avx512` is proof that the processor has these instructions.
    unsafe { deinterleave_rows(pixels, planes) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
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

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn convert_fine([y, cb, cr]: [&[i16]; 3], pixels: &mut [u8]) {
    for at in starts(pixels.len() / 3, PIXELS) {
        let rgb = convert_block([halves(y, at), halves(cb, at), halves(cr, at)]);
        store_pixels(&PACKED, rgb, &mut pixels[3 * at..]);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn round_fine([a, b, c]: [&[i16]; 3], pixels: &mut [u8]) {
    for at in starts(pixels.len() / 3, PIXELS) {
        let rgb = [round(halves(a, at)), round(halves(b, at)), round(halves(c, at))];
        store_pixels(&PACKED, rgb, &mut pixels[3 * at..]);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn interleave_rows([r, g, b]: [&[u8]; 3], pixels: &mut [u8]) {
    for at in starts(pixels.len() / 3, PIXELS) {
        let rgb = [block(r, at), block(g, at), block(b, at)];
        store_pixels(&IN_ORDER, rgb, &mut pixels[3 * at..]);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn deinterleave_rows(pixels: &[u8], [r, g, b]: [&mut [u8]; 3]) {
    for at in starts(pixels.len() / 3, PIXELS) {
        let thirds = [
            block(pixels, 3 * at),
            block(pixels, 3 * at + 64),
            block(pixels, 3 * at + 128),
        ];
        put(r, at, pick(&CHANNELS[0], thirds));
        put(g, at, pick(&CHANNELS[1], thirds));
        put(b, at, pick(&CHANNELS[2], thirds));
    }
}

/// The vector of bytes from `at` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn block(bytes: &[u8], at: usize) -> __m512i {
    load_512::<u8, PIXELS>(bytes[at..].first_chunk().expect("a block inside the row"))
}

/// Writes a vector from `at` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn put(bytes: &mut [u8], at: usize, value: __m512i) {
    let place = bytes[at..].first_chunk_mut().expect("a place inside the row");
    store_512::<u8, PIXELS>(place, value);
}

/// Red, green and blue of 64 pixels as bytes, in the order of packing.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn convert_block([y, cb, cr]: [[__m512i; 2]; 3]) -> [__m512i; 3] {
    let low = convert(y[0], cb[0], cr[0]);
    let high = convert(y[1], cb[1], cr[1]);
    [
        _mm512_packus_epi16(low[0], high[0]),
        _mm512_packus_epi16(low[1], high[1]),
        _mm512_packus_epi16(low[2], high[2]),
    ]
}

/// Red, green and blue of 32 pixels in sixty-fourths: rounded, not yet limited to a byte.
///
/// ⌊(2^16 a + b) / 2^22⌋ is ⌊(a + ⌊b / 2^16⌋) / 2^6⌋, so the high halves of products are enough.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn convert(y: __m512i, cb: __m512i, cr: __m512i) -> [__m512i; 3] {
    let centre = _mm512_set1_epi16(128 << FINE_BITS);
    let (cb, cr) = (_mm512_sub_epi16(cb, centre), _mm512_sub_epi16(cr, centre));
    let y = _mm512_add_epi16(y, _mm512_set1_epi16(1 << (FINE_BITS - 1)));
    let red = _mm512_mulhi_epi16(cr, _mm512_set1_epi16(RED_REST));
    let red = _mm512_add_epi16(_mm512_add_epi16(y, cr), red);
    let blue = _mm512_mulhi_epi16(cb, _mm512_set1_epi16(BLUE_REST));
    let blue = _mm512_add_epi16(_mm512_add_epi16(y, _mm512_add_epi16(cb, cb)), blue);
    let green = _mm512_add_epi16(_mm512_sub_epi16(y, cr), green_rest(cb, cr));
    [
        _mm512_srai_epi16::<FINE_BITS>(red),
        _mm512_srai_epi16::<FINE_BITS>(green),
        _mm512_srai_epi16::<FINE_BITS>(blue),
    ]
}

/// The high half of the sum of two products: the sum of the high halves and what the low halves
/// carry. These are even, as the constants are, so their mean is exact.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn green_rest(cb: __m512i, cr: __m512i) -> __m512i {
    let (per_cb, per_cr) =
        (_mm512_set1_epi16(-GREEN_PER_CB), _mm512_set1_epi16(GREEN_REST));
    let high = _mm512_mulhi_epi16(cb, per_cb);
    let high = _mm512_add_epi16(high, _mm512_mulhi_epi16(cr, per_cr));
    let mean =
        _mm512_avg_epu16(_mm512_mullo_epi16(cb, per_cb), _mm512_mullo_epi16(cr, per_cr));
    _mm512_add_epi16(high, _mm512_srli_epi16::<15>(mean))
}

/// Bytes as sixty-fourths, in the order of unpacking.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn widen(bytes: __m512i) -> [__m512i; 2] {
    let zero = _mm512_setzero_si512();
    // Unpacking into the upper half is a shift by 8.
    [
        _mm512_srli_epi16::<{ 8 - FINE_BITS }>(_mm512_unpacklo_epi8(zero, bytes)),
        _mm512_srli_epi16::<{ 8 - FINE_BITS }>(_mm512_unpackhi_epi8(zero, bytes)),
    ]
}

/// 64 numbers from `at` on as two vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn halves(numbers: &[i16], at: usize) -> [__m512i; 2] {
    let block: &[i16; PIXELS] =
        numbers[at..].first_chunk().expect("a block inside the row");
    let (halves, _) = block.as_chunks::<32>();
    [load_512(&halves[0]), load_512(&halves[1])]
}

/// 64 sixty-fourths rounded to bytes, in the order of packing.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn round([low, high]: [__m512i; 2]) -> __m512i {
    let half = _mm512_set1_epi16(1 << (FINE_BITS - 1));
    let low = _mm512_srai_epi16::<FINE_BITS>(_mm512_add_epi16(low, half));
    let high = _mm512_srai_epi16::<FINE_BITS>(_mm512_add_epi16(high, half));
    _mm512_packus_epi16(low, high)
}

/// Writes 64 pixels, whose channels lie as `places` says.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn store_pixels(places: &Places, rgb: [__m512i; 3], pixels: &mut [u8]) {
    put(pixels, 0, pick(&places[0], rgb));
    put(pixels, 64, pick(&places[1], rgb));
    put(pixels, 128, pick(&places[2], rgb));
}

/// 64 bytes, each from its place in three vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn pick(places: &Place, [first, second, third]: [__m512i; 3]) -> __m512i {
    let front = _mm512_permutex2var_epi8(first, load_512(&places.first_two), second);
    let back = load_512(&places.third);
    _mm512_mask_permutexvar_epi8(front, places.is_third, back, third)
}

/// Where each of 64 bytes comes from, of three vectors.
#[repr(C, align(64))]
struct Place {
    /// Of the first two, which are one behind the other.
    first_two: [u8; 64],
    /// Of the third, where `is_third` has a bit.
    third: [u8; 64],
    is_third: u64,
}

type Places = [Place; 3];

impl Place {
    const NOWHERE: Self = Self { first_two: [0; 64], third: [0; 64], is_third: 0 };

    /// Byte `at` comes from byte `from` of vector `vector`.
    const fn put(&mut self, at: usize, vector: usize, from: u8) {
        match vector {
            0 => self.first_two[at] = from,
            1 => self.first_two[at] = 64 + from,
            _ => {
                self.third[at] = from;
                self.is_third |= 1 << at;
            }
        }
    }
}

/// Pixels from channels whose bytes are in order.
static IN_ORDER: Places = pixels_from(Order::Plain);

/// Pixels from channels whose bytes are in the order of packing.
static PACKED: Places = pixels_from(Order::Packed);

/// Channels from pixels.
static CHANNELS: Places = {
    let mut places = [Place::NOWHERE; 3];
    let (mut i, mut from) = (0, 0);
    while i < 192 {
        places[i % 3].put(i / 3, i / 64, from);
        i += 1;
        from = (from + 1) % 64;
    }
    places
};

/// How 64 bytes lie in a vector.
#[derive(Clone, Copy)]
enum Order {
    Plain,
    /// As `vpackuswb` leaves two vectors of 32 numbers: by eights in turn.
    Packed,
}

const fn pixels_from(order: Order) -> Places {
    let mut places = [Place::NOWHERE; 3];
    let (mut i, mut pixel) = (0, 0);
    while i < 192 {
        let byte = match order {
            Order::Plain => pixel,
            Order::Packed => pixel % 32 / 8 * 16 + pixel / 32 * 8 + pixel % 8,
        };
        places[i / 64].put(i % 64, i % 3, byte);
        i += 1;
        if i % 3 == 0 {
            pixel += 1;
        }
    }
    places
}
