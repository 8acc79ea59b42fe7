//! Weighing 32 values at once with AVX2.
#![allow(unsafe_code, reason = "functions for this processor alone are called")]

use std::arch::x86_64::*;

use super::{Tap, Value, starts};
use crate::kernels::Avx2;
use crate::vectors::{load_128, load_256, store_256};

/// Values that are weighed side by side.
const VALUES: usize = 32;

/// [`super::weigh_rows`].
pub(super) fn weigh_rows(_: Avx2, taps: &[Tap], values: &[u8], out: &mut [u16]) {
    if out.len() < VALUES {
        return super::weigh(taps, values, out);
    }
    // SAFETY: an `Avx2` is proof that the processor has these instructions.
    unsafe { rows(taps, values, out) }
}

/// [`super::weigh_row`].
pub(super) fn weigh_row(_: Avx2, taps: &[Tap], values: &[u16], out: &mut [u8]) {
    if out.len() < VALUES {
        return super::weigh(taps, values, out);
    }
    // SAFETY: an `Avx2` is proof that the processor has these instructions.
    unsafe { row(taps, values, out) }
}

#[target_feature(enable = "avx2")]
fn rows(taps: &[Tap], values: &[u8], out: &mut [u16]) {
    let start = _mm256_set1_epi16(u8::start(taps).cast_signed());
    for at in starts(out.len(), VALUES) {
        let values = &values[at..];
        let mut sums = [start; 2];
        for tap in taps {
            let [a, b] = tap.places.map(|place| bytes(values, place));
            for half in 0..2 {
                let pair = _mm256_slli_epi16::<6>(_mm256_add_epi16(a[half], b[half]));
                sums[half] = add(sums[half], pair, tap);
            }
        }
        let (halves, _) = out[at..][..VALUES].as_chunks_mut::<16>();
        store_256(&mut halves[0], sums[0]);
        store_256(&mut halves[1], sums[1]);
    }
}

#[target_feature(enable = "avx2")]
fn row(taps: &[Tap], values: &[u16], out: &mut [u8]) {
    let start = _mm256_set1_epi16(u16::start(taps).cast_signed());
    for at in starts(out.len(), VALUES) {
        let values = &values[at..];
        let mut sums = [start; 2];
        for tap in taps {
            let [a, b] = tap.places.map(|place| words(values, place));
            for half in 0..2 {
                sums[half] = add(sums[half], _mm256_adds_epu16(a[half], b[half]), tap);
            }
        }
        let [low, high] = sums.map(|sum| _mm256_srli_epi16::<8>(sum));
        // Packing leaves the quarters as 0, 2, 1, 3.
        let packed = _mm256_permute4x64_epi64::<0xD8>(_mm256_packus_epi16(low, high));
        let block = out[at..].first_chunk_mut().expect("a block of the row");
        store_256::<u8, VALUES>(block, packed);
    }
}

/// Adds what `pair` weighs.
#[inline]
#[target_feature(enable = "avx2")]
fn add(sum: __m256i, pair: __m256i, tap: &Tap) -> __m256i {
    let weight = _mm256_set1_epi16(tap.weight.cast_signed());
    _mm256_adds_epu16(sum, _mm256_mulhi_epu16(pair, weight))
}

#[inline]
#[target_feature(enable = "avx2")]
fn bytes(values: &[u8], at: usize) -> [__m256i; 2] {
    let block: &[u8; VALUES] = values[at..].first_chunk().expect("a block of the row");
    let (halves, _) = block.as_chunks::<16>();
    [
        _mm256_cvtepu8_epi16(load_128(&halves[0])),
        _mm256_cvtepu8_epi16(load_128(&halves[1])),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn words(values: &[u16], at: usize) -> [__m256i; 2] {
    let block: &[u16; VALUES] = values[at..].first_chunk().expect("a block of the row");
    let (halves, _) = block.as_chunks::<16>();
    [load_256(&halves[0]), load_256(&halves[1])]
}
