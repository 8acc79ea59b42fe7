//! Weighing 64 values at once with AVX-512.
#![allow(unsafe_code, reason = "functions for this processor alone are called")]

use std::arch::x86_64::*;

use super::{Tap, Value, avx2, starts};
use crate::kernels::Avx512;
use crate::vectors::{load_256, load_512, store_256, store_512};

/// Values that are weighed side by side.
const VALUES: usize = 64;

/// [`super::weigh_rows`].
pub(super) fn weigh_rows(cpu: Avx512, taps: &[Tap], values: &[u8], out: &mut [u16]) {
    if out.len() < VALUES {
        return avx2::weigh_rows(cpu.avx2(), taps, values, out);
    }
    // SAFETY: an `Avx512` is proof that the processor has these instructions.
    unsafe { rows(taps, values, out) }
}

/// [`super::weigh_row`].
pub(super) fn weigh_row(cpu: Avx512, taps: &[Tap], values: &[u16], out: &mut [u8]) {
    if out.len() < VALUES {
        return avx2::weigh_row(cpu.avx2(), taps, values, out);
    }
    // SAFETY: an `Avx512` is proof that the processor has these instructions.
    unsafe { row(taps, values, out) }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn rows(taps: &[Tap], values: &[u8], out: &mut [u16]) {
    let start = _mm512_set1_epi16(u8::start(taps).cast_signed());
    for at in starts(out.len(), VALUES) {
        let values = &values[at..];
        let mut sums = [start; 2];
        for tap in taps {
            let [a, b] = tap.places.map(|place| bytes(values, place));
            for half in 0..2 {
                let pair = _mm512_slli_epi16::<6>(_mm512_add_epi16(a[half], b[half]));
                sums[half] = add(sums[half], pair, tap);
            }
        }
        put(out, at, sums);
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn row(taps: &[Tap], values: &[u16], out: &mut [u8]) {
    let start = _mm512_set1_epi16(u16::start(taps).cast_signed());
    for at in starts(out.len(), VALUES) {
        let values = &values[at..];
        let mut sums = [start; 2];
        for tap in taps {
            let [a, b] = tap.places.map(|place| words(values, place));
            for half in 0..2 {
                sums[half] = add(sums[half], _mm512_adds_epu16(a[half], b[half]), tap);
            }
        }
        put_bytes(out, at, sums);
    }
}

/// Adds what `pair` weighs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn add(sum: __m512i, pair: __m512i, tap: &Tap) -> __m512i {
    let weight = _mm512_set1_epi16(tap.weight.cast_signed());
    _mm512_adds_epu16(sum, _mm512_mulhi_epu16(pair, weight))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn bytes(values: &[u8], at: usize) -> [__m512i; 2] {
    let block: &[u8; VALUES] = values[at..].first_chunk().expect("a block of the row");
    let (halves, _) = block.as_chunks::<32>();
    [
        _mm512_cvtepu8_epi16(load_256(&halves[0])),
        _mm512_cvtepu8_epi16(load_256(&halves[1])),
    ]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn words(values: &[u16], at: usize) -> [__m512i; 2] {
    let block: &[u16; VALUES] = values[at..].first_chunk().expect("a block of the row");
    let (halves, _) = block.as_chunks::<32>();
    [load_512(&halves[0]), load_512(&halves[1])]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn put(out: &mut [u16], at: usize, sums: [__m512i; 2]) {
    let (halves, _) = out[at..][..VALUES].as_chunks_mut::<32>();
    store_512(&mut halves[0], sums[0]);
    store_512(&mut halves[1], sums[1]);
}

/// Writes the upper bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn put_bytes(out: &mut [u8], at: usize, sums: [__m512i; 2]) {
    let (halves, _) = out[at..][..VALUES].as_chunks_mut::<32>();
    store_256(&mut halves[0], _mm512_cvtepi16_epi8(_mm512_srli_epi16::<8>(sums[0])));
    store_256(&mut halves[1], _mm512_cvtepi16_epi8(_mm512_srli_epi16::<8>(sums[1])));
}
