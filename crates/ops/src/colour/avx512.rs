//! Colour conversion, and planes to pixels and back, with AVX-512, VBMI and VNNI.
//!
//! Sums stand in 32 bits. Their products are of 16-bit numbers, so a constant that is too large
//! is taken apart: 1.402 is 1 and a rest, 1.772 is 2 less a rest, -0.714136 is -1 and a rest;
//! the whole part is added where the fraction bits end. Everything is exact, up to the one
//! rounding. The meaning is in `colour.rs`.

#![allow(unsafe_code, reason = "functions for this processor alone are called")]

use std::arch::x86_64::*;

use super::{BLUE_REST, CONSTANT_BITS, FINE_BITS, GREEN_PER_CB, GREEN_REST, RED_REST};
use crate::kernels::Avx512;
use crate::vectors::{load_512, load_front_512, store_front_512};

/// Pixels that are worked on side by side.
const PIXELS: usize = 64;

/// [`super::ycc_to_rgb`].
pub(super) fn ycc_to_rgb(_: Avx512, ycc: [&[u8]; 3], rgb: [&mut [u8]; 3]) {
    // SAFETY: an `Avx512` is proof that the processor has these instructions.
    unsafe { convert_rows(ycc, rgb) }
}

/// [`super::fine_ycc_to_rgb`].
pub(super) fn fine_ycc_to_rgb(_: Avx512, ycc: [&[i16]; 3], pixels: &mut [u8]) {
    // SAFETY: an `Avx512` is proof that the processor has these instructions.
    unsafe { convert_fine(ycc, pixels) }
}

/// [`super::fine_to_bytes`] of three planes.
pub(super) fn fine_to_pixels(_: Avx512, planes: [&[i16]; 3], pixels: &mut [u8]) {
    // SAFETY: an `Avx512` is proof that the processor has these instructions.
    unsafe { round_fine(planes, pixels) }
}

/// [`super::interleave`].
pub(super) fn interleave(_: Avx512, planes: [&[u8]; 3], pixels: &mut [u8]) {
    // SAFETY: an `Avx512` is proof that the processor has these instructions.
    unsafe { interleave_rows(planes, pixels) }
}

/// [`super::deinterleave`].
pub(super) fn deinterleave(_: Avx512, pixels: &[u8], planes: [&mut [u8]; 3]) {
    // SAFETY: an `Avx512` is proof that the processor has these instructions.
    unsafe { deinterleave_rows(pixels, planes) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn convert_rows([y, cb, cr]: [&[u8]; 3], [r, g, b]: [&mut [u8]; 3]) {
    let zero = _mm512_setzero_si512();
    let centre = _mm512_set1_epi16(128);
    let ycc = y.chunks(PIXELS).zip(cb.chunks(PIXELS)).zip(cr.chunks(PIXELS));
    let rgb = r.chunks_mut(PIXELS).zip(g.chunks_mut(PIXELS)).zip(b.chunks_mut(PIXELS));
    for (((y, cb), cr), ((r, g), b)) in ycc.zip(rgb) {
        let (y, cb, cr) = (load_front_512(y), load_front_512(cb), load_front_512(cr));
        let [low_r, low_g, low_b] = convert::<0>(
            _mm512_unpacklo_epi8(y, zero),
            _mm512_sub_epi16(_mm512_unpacklo_epi8(cb, zero), centre),
            _mm512_sub_epi16(_mm512_unpacklo_epi8(cr, zero), centre),
        );
        let [high_r, high_g, high_b] = convert::<0>(
            _mm512_unpackhi_epi8(y, zero),
            _mm512_sub_epi16(_mm512_unpackhi_epi8(cb, zero), centre),
            _mm512_sub_epi16(_mm512_unpackhi_epi8(cr, zero), centre),
        );
        // Packing undoes the order of unpacking.
        store_front_512(r, _mm512_packus_epi16(low_r, high_r));
        store_front_512(g, _mm512_packus_epi16(low_g, high_g));
        store_front_512(b, _mm512_packus_epi16(low_b, high_b));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
fn convert_fine([y, cb, cr]: [&[i16]; 3], pixels: &mut [u8]) {
    let centre = _mm512_set1_epi16(128 << FINE_BITS);
    let ycc = y.chunks(PIXELS).zip(cb.chunks(PIXELS)).zip(cr.chunks(PIXELS));
    for (((y, cb), cr), pixels) in ycc.zip(pixels.chunks_mut(3 * PIXELS)) {
        let (y, cb, cr) = (halves(y), halves(cb), halves(cr));
        let [low_r, low_g, low_b] = convert::<FINE_BITS>(
            y[0],
            _mm512_sub_epi16(cb[0], centre),
            _mm512_sub_epi16(cr[0], centre),
        );
        let [high_r, high_g, high_b] = convert::<FINE_BITS>(
            y[1],
            _mm512_sub_epi16(cb[1], centre),
            _mm512_sub_epi16(cr[1], centre),
        );
        let r = _mm512_packus_epi16(low_r, high_r);
        let g = _mm512_packus_epi16(low_g, high_g);
        let b = _mm512_packus_epi16(low_b, high_b);
        store_pixels(&PACKED, [r, g, b], pixels);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn round_fine([a, b, c]: [&[i16]; 3], pixels: &mut [u8]) {
    let planes = a.chunks(PIXELS).zip(b.chunks(PIXELS)).zip(c.chunks(PIXELS));
    for (((a, b), c), pixels) in planes.zip(pixels.chunks_mut(3 * PIXELS)) {
        store_pixels(&PACKED, [round(a), round(b), round(c)], pixels);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn interleave_rows([r, g, b]: [&[u8]; 3], pixels: &mut [u8]) {
    let planes = r.chunks(PIXELS).zip(g.chunks(PIXELS)).zip(b.chunks(PIXELS));
    for (((r, g), b), pixels) in planes.zip(pixels.chunks_mut(3 * PIXELS)) {
        let rgb = [load_front_512(r), load_front_512(g), load_front_512(b)];
        store_pixels(&IN_ORDER, rgb, pixels);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn deinterleave_rows(pixels: &[u8], [r, g, b]: [&mut [u8]; 3]) {
    let planes = r.chunks_mut(PIXELS).zip(g.chunks_mut(PIXELS)).zip(b.chunks_mut(PIXELS));
    for (pixels, ((r, g), b)) in pixels.chunks(3 * PIXELS).zip(planes) {
        let (first, rest) = pixels.split_at(pixels.len().min(64));
        let (second, third) = rest.split_at(rest.len().min(64));
        let first = load_front_512(first);
        let second = load_front_512(second);
        let third = load_front_512(third);
        store_front_512(r, channel(&CHANNELS[0], [first, second, third]));
        store_front_512(g, channel(&CHANNELS[1], [first, second, third]));
        store_front_512(b, channel(&CHANNELS[2], [first, second, third]));
    }
}

/// Red, green and blue of 32 pixels whose parts have `FRACTION_BITS` fraction bits: not yet
/// limited to a byte. Cb and Cr are centred.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn convert<const FRACTION_BITS: u32>(
    y: __m512i,
    cb: __m512i,
    cr: __m512i,
) -> [__m512i; 3] {
    let chroma = [_mm512_unpacklo_epi16(cb, cr), _mm512_unpackhi_epi16(cb, cr)];
    let red = _mm512_add_epi16(y, cr);
    let green = _mm512_sub_epi16(y, cr);
    let blue = _mm512_add_epi16(y, _mm512_add_epi16(cb, cb));
    [
        sum::<FRACTION_BITS>(red, &chroma, _mm512_set1_epi32(RED_REST << 16)),
        sum::<FRACTION_BITS>(
            green,
            &chroma,
            _mm512_set1_epi32(GREEN_REST << 16 | (-GREEN_PER_CB & 0xffff)),
        ),
        sum::<FRACTION_BITS>(blue, &chroma, _mm512_set1_epi32(BLUE_REST & 0xffff)),
    ]
}

/// The whole numbers and the products of chroma with its constants, rounded.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn sum<const FRACTION_BITS: u32>(
    whole: __m512i,
    chroma: &[__m512i; 2],
    constants: __m512i,
) -> __m512i {
    // One half, above or below where the numbers begin.
    let (above, below) = match FRACTION_BITS {
        0 => (0, i16::MIN),
        _ => (1 << (FRACTION_BITS - 1), 0),
    };
    let whole = _mm512_add_epi16(whole, _mm512_set1_epi16(above));
    let below = _mm512_set1_epi16(below);
    let low = _mm512_unpacklo_epi16(below, whole);
    let high = _mm512_unpackhi_epi16(below, whole);
    let low = _mm512_dpwssd_epi32(low, chroma[0], constants);
    let high = _mm512_dpwssd_epi32(high, chroma[1], constants);
    let drop = _mm_cvtsi32_si128((CONSTANT_BITS + FRACTION_BITS).cast_signed());
    _mm512_packs_epi32(_mm512_sra_epi32(low, drop), _mm512_sra_epi32(high, drop))
}

/// 64 numbers as two vectors; zeros where there are fewer.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn halves(numbers: &[i16]) -> [__m512i; 2] {
    let (low, high) = numbers.split_at(numbers.len().min(PIXELS / 2));
    [load_front_512(low), load_front_512(high)]
}

/// 64 sixty-fourths rounded to bytes, in the order of packing.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn round(numbers: &[i16]) -> __m512i {
    let half = _mm512_set1_epi16(1 << (FINE_BITS - 1));
    let [low, high] = halves(numbers);
    let low = _mm512_srai_epi16::<FINE_BITS>(_mm512_add_epi16(low, half));
    let high = _mm512_srai_epi16::<FINE_BITS>(_mm512_add_epi16(high, half));
    _mm512_packus_epi16(low, high)
}

/// Writes 64 pixels, or as many as there is room for.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn store_pixels(places: &Places, [r, g, b]: [__m512i; 3], pixels: &mut [u8]) {
    for (out, places) in pixels.chunks_mut(64).zip(places) {
        let red_green = _mm512_permutex2var_epi8(r, load_512(&places.first_two), g);
        let third = load_512(&places.third);
        let all = _mm512_mask_permutexvar_epi8(red_green, places.is_third, third, b);
        store_front_512(out, all);
    }
}

/// One channel of 64 pixels in three vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn channel(places: &Place, [first, second, third]: [__m512i; 3]) -> __m512i {
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
        if vector == 2 {
            self.third[at] = from;
            self.is_third |= 1 << at;
        } else {
            self.first_two[at] = from + 64 * vector as u8;
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
    let mut i = 0;
    while i < 192 {
        places[i % 3].put(i / 3, i / 64, (i % 64) as u8);
        i += 1;
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
    let mut i = 0;
    while i < 192 {
        let pixel = i / 3;
        let byte = match order {
            Order::Plain => pixel,
            Order::Packed => pixel % 32 / 8 * 16 + pixel / 32 * 8 + pixel % 8,
        };
        places[i / 64].put(i % 64, i % 3, byte as u8);
        i += 1;
    }
    places
}
