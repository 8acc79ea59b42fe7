//! The pass along the columns with AVX-512: rows of a chunk, two by two, become one.
//!
//! Two rows are interleaved; `vpdpwssd` multiplies 16-bit numbers and adds them by twos, as
//! enlarging needs no more than two rows. Weights of exact numerics come in two parts. (Measured
//! against each other with `examples/resample.rs`: for four taps three digits cost what two parts
//! do.) Functions for few rows have their number written out. The meaning is in `rows.rs`.

use std::arch::x86_64::*;

use super::super::axis::{EACH_BITS, RUNNING_BITS};
use super::TO_LAST_BYTE;
use crate::vectors::{load_512, store_512};

/// Most rows that are blended here.
pub(super) const MAX_ROWS: usize = 16;

/// Bits of the low part of an exact weight.
const LOW_BITS: u32 = 8;

/// Where the last bytes of the first two of four vectors, made by [`by_twos`], go, and
/// also those of the last two: each eight columns of every sixteen.
const LAST_BYTES_BY_TWOS: [u8; 64] = {
    let mut places = [0; 64];
    let mut i = 0;
    while i < 64 {
        let (lane, column) = (i / 16, i % 8);
        places[i as usize] = 64 * (column / 4) + 16 * lane + 4 * (column % 4) + 3;
        i += 1;
    }
    places
};

/// `rows::bytes_scalar` of up to [`MAX_ROWS`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub(super) fn bytes(rows: &[u8], weights: &[i32], out: &mut [u8]) {
    if weights.iter().any(|&weight| weight < 0) {
        return bytes_of_any(rows, weights, out);
    }
    match weights.len() / 2 {
        1 => bytes_of::<1>(rows, weights, out),
        2 => bytes_of::<2>(rows, weights, out),
        3 => bytes_of::<3>(rows, weights, out),
        4 => bytes_of::<4>(rows, weights, out),
        _ => bytes_of_any(rows, weights, out),
    }
}

/// `rows::sixty_fourths_scalar`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn sixty_fourths(rows: &[i16], weights: &[i32], out: &mut [i16]) {
    match weights.len() / 2 {
        1 => sixty_fourths_of::<1>(rows, weights, out),
        2 => sixty_fourths_of::<2>(rows, weights, out),
        3 => sixty_fourths_of::<3>(rows, weights, out),
        4 => sixty_fourths_of::<4>(rows, weights, out),
        _ => sixty_fourths_of_any(rows, weights, out),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
fn bytes_of<const PAIRS: usize>(rows: &[u8], weights: &[i32], out: &mut [u8]) {
    const HIGH_EIGHT: u64 = 0xff00_ff00_ff00_ff00;
    let (out, _) = out.as_chunks_mut::<64>();
    let n_parts = out.len();
    let rows = by_pairs::<_, 64, PAIRS>(rows, n_parts);
    let mut parts = [[_mm512_setzero_si512(); 2]; PAIRS];
    for (parts, &[upper, lower]) in parts.iter_mut().zip(weights.as_chunks::<2>().0) {
        let ([upper_high, upper_low], [lower_high, lower_low]) =
            (split(upper, TO_LAST_BYTE), split(lower, TO_LAST_BYTE));
        *parts = [both(upper_high, lower_high), both(upper_low, lower_low)];
    }
    let last_bytes = load_512(&LAST_BYTES_BY_TWOS);
    for nth in 0..n_parts {
        let mut inputs = [[_mm512_setzero_si512(); 4]; PAIRS];
        for (inputs, [upper, lower]) in inputs.iter_mut().zip(&rows) {
            *inputs = by_twos(load_512(&upper[nth]), load_512(&lower[nth]));
        }
        // One half, in the unit of the high parts.
        let mut sums = [_mm512_set1_epi32(1 << (EACH_BITS - 1 - LOW_BITS)); 4];
        for (quarter, sum) in sums.iter_mut().enumerate() {
            for (inputs, parts) in inputs.iter().zip(&parts) {
                *sum = _mm512_dpwssd_epi32(*sum, inputs[quarter], parts[0]);
            }
            *sum = _mm512_slli_epi32::<{ LOW_BITS + TO_LAST_BYTE }>(*sum);
            for (inputs, parts) in inputs.iter().zip(&parts) {
                *sum = _mm512_dpwssd_epi32(*sum, inputs[quarter], parts[1]);
            }
        }
        let low = _mm512_permutex2var_epi8(sums[0], last_bytes, sums[1]);
        let high = _mm512_permutex2var_epi8(sums[2], last_bytes, sums[3]);
        store_512(&mut out[nth], _mm512_mask_blend_epi8(HIGH_EIGHT, low, high));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn sixty_fourths_of<const PAIRS: usize>(rows: &[i16], weights: &[i32], out: &mut [i16]) {
    let (out, _) = out.as_chunks_mut::<32>();
    let n_parts = out.len();
    let rows = by_pairs::<_, 32, PAIRS>(rows, n_parts);
    let mut parts = [_mm512_setzero_si512(); PAIRS];
    for (parts, &[upper, lower]) in parts.iter_mut().zip(weights.as_chunks::<2>().0) {
        *parts = both(low_half(upper), low_half(lower));
    }
    for nth in 0..n_parts {
        let half = _mm512_set1_epi32(1 << (RUNNING_BITS - 1));
        let (mut low, mut high) = (half, half);
        for ([upper, lower], &parts) in rows.iter().zip(&parts) {
            let (upper, lower) = (load_512(&upper[nth]), load_512(&lower[nth]));
            low = _mm512_dpwssd_epi32(low, _mm512_unpacklo_epi16(upper, lower), parts);
            high = _mm512_dpwssd_epi32(high, _mm512_unpackhi_epi16(upper, lower), parts);
        }
        // Packing undoes the order of unpacking.
        low = _mm512_srai_epi32::<RUNNING_BITS>(low);
        high = _mm512_srai_epi32::<RUNNING_BITS>(high);
        store_512(&mut out[nth], _mm512_packs_epi32(low, high));
    }
}

/// Any number of rows, and weights that may be negative: sums may leave the range of a byte.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn bytes_of_any(rows: &[u8], weights: &[i32], out: &mut [u8]) {
    let (out, _) = out.as_chunks_mut::<64>();
    let (rows, _) = rows.as_chunks::<64>();
    let (weights, _) = weights.as_chunks::<2>();
    let n_parts = out.len();
    let mut parts = [[_mm512_setzero_si512(); 2]; MAX_ROWS / 2];
    for (parts, &[upper, lower]) in parts.iter_mut().zip(weights) {
        let [upper, lower] = [split(upper, 0), split(lower, 0)];
        *parts = [both(upper[0], lower[0]), both(upper[1], lower[1])];
    }
    for (nth, out) in out.iter_mut().enumerate() {
        // One half, in the unit of the high parts.
        let mut high = [_mm512_set1_epi32(1 << (EACH_BITS - 1 - LOW_BITS)); 4];
        let mut low = [_mm512_setzero_si512(); 4];
        for (rows, parts) in rows.chunks_exact(2 * n_parts).zip(&parts) {
            let (upper, lower) = (load_512(&rows[nth]), load_512(&rows[n_parts + nth]));
            for (quarter, inputs) in by_twos(upper, lower).into_iter().enumerate() {
                high[quarter] = _mm512_dpwssd_epi32(high[quarter], inputs, parts[0]);
                low[quarter] = _mm512_dpwssd_epi32(low[quarter], inputs, parts[1]);
            }
        }
        for (high, low) in high.iter_mut().zip(low) {
            let sum = _mm512_add_epi32(_mm512_slli_epi32::<LOW_BITS>(*high), low);
            *high = _mm512_srai_epi32::<EACH_BITS>(sum);
        }
        // Packing undoes the order of `by_twos`.
        let first = _mm512_packs_epi32(high[0], high[1]);
        let second = _mm512_packs_epi32(high[2], high[3]);
        store_512(out, _mm512_packus_epi16(first, second));
    }
}

/// Any number of rows.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn sixty_fourths_of_any(rows: &[i16], weights: &[i32], out: &mut [i16]) {
    let (out, _) = out.as_chunks_mut::<32>();
    let (rows, _) = rows.as_chunks::<32>();
    let (weights, _) = weights.as_chunks::<2>();
    let n_parts = out.len();
    for (nth, out) in out.iter_mut().enumerate() {
        let half = _mm512_set1_epi32(1 << (RUNNING_BITS - 1));
        let (mut low, mut high) = (half, half);
        for (rows, &[upper, lower]) in rows.chunks_exact(2 * n_parts).zip(weights) {
            let parts = both(low_half(upper), low_half(lower));
            let (upper, lower) = (load_512(&rows[nth]), load_512(&rows[n_parts + nth]));
            low = _mm512_dpwssd_epi32(low, _mm512_unpacklo_epi16(upper, lower), parts);
            high = _mm512_dpwssd_epi32(high, _mm512_unpackhi_epi16(upper, lower), parts);
        }
        // Packing undoes the order of unpacking.
        low = _mm512_srai_epi32::<RUNNING_BITS>(low);
        high = _mm512_srai_epi32::<RUNNING_BITS>(high);
        store_512(out, _mm512_packs_epi32(low, high));
    }
}

/// The high and the low part of an exact weight, the latter shifted.
#[inline(always)]
fn split(weight: i32, left: u32) -> [i16; 2] {
    let low = weight & ((1 << LOW_BITS) - 1);
    [low_half(weight >> LOW_BITS), low_half(low << left)]
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
fn low_half(number: i32) -> i16 {
    number as i16
}

/// A weight for each of two rows, for all columns.
#[inline]
#[target_feature(enable = "avx512f")]
fn both(upper: i16, lower: i16) -> __m512i {
    _mm512_set1_epi32(i32::from(upper) & 0xffff | i32::from(lower) << 16)
}

/// Rows that lie one behind the other, by twos; each `n_parts` vectors of `N` numbers.
#[inline(always)]
fn by_pairs<T, const N: usize, const PAIRS: usize>(
    rows: &[T],
    n_parts: usize,
) -> [[&[[T; N]]; 2]; PAIRS] {
    let (parts, rest) = rows.as_chunks::<N>();
    assert!(rest.is_empty(), "rows of whole vectors");
    let row = |nth: usize| &parts[nth * n_parts..][..n_parts];
    std::array::from_fn(|pair| [row(2 * pair), row(2 * pair + 1)])
}

/// 64 columns of two rows, each column's two numbers together. Of every sixteen columns, each of
/// the four vectors has four.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn by_twos(upper: __m512i, lower: __m512i) -> [__m512i; 4] {
    let zero = _mm512_setzero_si512();
    let low = _mm512_unpacklo_epi8(upper, lower);
    let high = _mm512_unpackhi_epi8(upper, lower);
    [
        _mm512_unpacklo_epi8(low, zero),
        _mm512_unpackhi_epi8(low, zero),
        _mm512_unpacklo_epi8(high, zero),
        _mm512_unpackhi_epi8(high, zero),
    ]
}
