//! Colour conversion, and planes to pixels and back, with AVX-512, VBMI and VNNI.
//!
//! Products are of 16-bit numbers, so a constant that is too large is taken apart: 1.402 is 1 and
//! a rest, 1.772 is 2 less a rest, -0.714136 is -1 and a rest. Everything is exact, up to the one
//! rounding; bytes are sixty-fourths without a fraction. The meaning is in `colour.rs`.

#![allow(unsafe_code, reason = "functions for this processor alone are called")]

use std::arch::x86_64::*;

use super::FINE_BITS;
use super::rests::{BLUE_REST, GREEN_PER_CB, GREEN_REST, RED_REST};
use crate::kernels::Avx512;
use crate::vectors::{load_512, load_front_512, store_512, store_front_512};

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

#[target_feature(enable = "avx512f,avx512bw")]
fn convert_rows([y, cb, cr]: [&[u8]; 3], [r, g, b]: [&mut [u8]; 3]) {
    let ((y, y_rest), (cb, cb_rest)) = (y.as_chunks(), cb.as_chunks());
    let (cr, cr_rest) = cr.as_chunks();
    let (r, r_rest) = r.as_chunks_mut();
    let (g, g_rest) = g.as_chunks_mut();
    let (b, b_rest) = b.as_chunks_mut();
    for (((y, cb), cr), ((r, g), b)) in
        y.iter().zip(cb).zip(cr).zip(r.iter_mut().zip(g).zip(b))
    {
        let ycc = [
            load_512::<_, PIXELS>(y),
            load_512::<_, PIXELS>(cb),
            load_512::<_, PIXELS>(cr),
        ];
        let rgb = convert_bytes(ycc);
        store_512::<_, PIXELS>(r, rgb[0]);
        store_512::<_, PIXELS>(g, rgb[1]);
        store_512::<_, PIXELS>(b, rgb[2]);
    }
    let rests =
        [load_front_512(y_rest), load_front_512(cb_rest), load_front_512(cr_rest)];
    let rgb = convert_bytes(rests);
    store_front_512(r_rest, rgb[0]);
    store_front_512(g_rest, rgb[1]);
    store_front_512(b_rest, rgb[2]);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn convert_fine([y, cb, cr]: [&[i16]; 3], pixels: &mut [u8]) {
    let (blocks, rest) = pixels.as_chunks_mut::<{ 3 * PIXELS }>();
    let done = blocks.len() * PIXELS;
    let ycc = y.as_chunks().0.iter().zip(cb.as_chunks().0).zip(cr.as_chunks().0);
    for (((y, cb), cr), pixels) in ycc.zip(blocks) {
        store_pixels(&PACKED, convert_block([halves(y), halves(cb), halves(cr)]), pixels);
    }
    let rests =
        [front_halves(&y[done..]), front_halves(&cb[done..]), front_halves(&cr[done..])];
    store_front_pixels(&PACKED, convert_block(rests), rest);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn round_fine([a, b, c]: [&[i16]; 3], pixels: &mut [u8]) {
    let (blocks, rest) = pixels.as_chunks_mut::<{ 3 * PIXELS }>();
    let done = blocks.len() * PIXELS;
    let planes = a.as_chunks().0.iter().zip(b.as_chunks().0).zip(c.as_chunks().0);
    for (((a, b), c), pixels) in planes.zip(blocks) {
        let rounded = [round(halves(a)), round(halves(b)), round(halves(c))];
        store_pixels(&PACKED, rounded, pixels);
    }
    let rests =
        [front_halves(&a[done..]), front_halves(&b[done..]), front_halves(&c[done..])];
    let rounded = [round(rests[0]), round(rests[1]), round(rests[2])];
    store_front_pixels(&PACKED, rounded, rest);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn interleave_rows([r, g, b]: [&[u8]; 3], pixels: &mut [u8]) {
    let (blocks, rest) = pixels.as_chunks_mut::<{ 3 * PIXELS }>();
    let done = blocks.len() * PIXELS;
    let planes = r.as_chunks().0.iter().zip(g.as_chunks().0).zip(b.as_chunks().0);
    for (((r, g), b), pixels) in planes.zip(blocks) {
        let rgb = [
            load_512::<_, PIXELS>(r),
            load_512::<_, PIXELS>(g),
            load_512::<_, PIXELS>(b),
        ];
        store_pixels(&IN_ORDER, rgb, pixels);
    }
    let rests = [
        load_front_512(&r[done..]),
        load_front_512(&g[done..]),
        load_front_512(&b[done..]),
    ];
    store_front_pixels(&IN_ORDER, rests, rest);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn deinterleave_rows(pixels: &[u8], [r, g, b]: [&mut [u8]; 3]) {
    let (blocks, _) = pixels.as_chunks::<64>();
    let (thirds, _) = blocks.as_chunks::<3>();
    let (r, r_rest) = r.as_chunks_mut();
    let (g, g_rest) = g.as_chunks_mut();
    let (b, b_rest) = b.as_chunks_mut();
    for (((r, g), b), [first, second, third]) in r.iter_mut().zip(g).zip(b).zip(thirds) {
        let rgb = [load_512(first), load_512(second), load_512(third)];
        store_512::<_, PIXELS>(r, pick(&CHANNELS[0], rgb));
        store_512::<_, PIXELS>(g, pick(&CHANNELS[1], rgb));
        store_512::<_, PIXELS>(b, pick(&CHANNELS[2], rgb));
    }
    let rests = &pixels[thirds.len() * 3 * PIXELS..];
    let (first, rests) = rests.split_at(rests.len().min(64));
    let (second, third) = rests.split_at(rests.len().min(64));
    let rgb = [load_front_512(first), load_front_512(second), load_front_512(third)];
    store_front_512(r_rest, pick(&CHANNELS[0], rgb));
    store_front_512(g_rest, pick(&CHANNELS[1], rgb));
    store_front_512(b_rest, pick(&CHANNELS[2], rgb));
}

/// Red, green and blue of 64 pixels, all in order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn convert_bytes([y, cb, cr]: [__m512i; 3]) -> [__m512i; 3] {
    // Packing undoes the order of `widen`.
    convert_block([widen(y), widen(cb), widen(cr)])
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

/// 64 numbers as two vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn halves(numbers: &[i16; PIXELS]) -> [__m512i; 2] {
    let (halves, _) = numbers.as_chunks::<32>();
    [load_512(&halves[0]), load_512(&halves[1])]
}

/// Up to 64 numbers as two vectors; zeros where there are fewer.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn front_halves(numbers: &[i16]) -> [__m512i; 2] {
    let (low, high) = numbers.split_at(numbers.len().min(PIXELS / 2));
    [load_front_512(low), load_front_512(high)]
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

/// Writes 64 pixels.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn store_pixels(places: &Places, rgb: [__m512i; 3], pixels: &mut [u8; 3 * PIXELS]) {
    let (parts, _) = pixels.as_chunks_mut();
    store_512::<_, 64>(&mut parts[0], pick(&places[0], rgb));
    store_512::<_, 64>(&mut parts[1], pick(&places[1], rgb));
    store_512::<_, 64>(&mut parts[2], pick(&places[2], rgb));
}

/// Writes as many of 64 pixels as there is room for.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn store_front_pixels(places: &Places, rgb: [__m512i; 3], pixels: &mut [u8]) {
    for (part, places) in pixels.chunks_mut(64).zip(places) {
        store_front_512(part, pick(places, rgb));
    }
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
