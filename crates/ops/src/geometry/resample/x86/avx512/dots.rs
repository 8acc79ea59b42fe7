//! Outputs that lie far apart, with AVX-512 and VNNI: each is a dot product of its own.
//!
//! A register holds sixteen taps of four outputs, an output to each 128 bits; `vpdpbusd` multiplies them by
//! a digit of their weights and adds them by fours. What remains of sixteen outputs, four sums each, is
//! transposed and added up. It is for strong reductions, of which `avx512.rs` says when they are: on
//! photographs of 12 megapixels two to four times as fast as with AVX2. The meaning is in `scalar.rs`.

#![allow(unsafe_code, reason = "the bounds of many inputs are checked at once")]

use std::arch::x86_64::*;

use super::super::super::axis::{Axis, BLOCK, EACH_BITS, RUNNING_BITS};
use super::super::super::scalar::FRACTION_BITS;
use super::super::small;
use super::{CHUNK, bytes_in_range, digits, middle_halves};
use crate::kernels::vectors::{load_128, load_512, store_256, store_512};

/// Taps of an output that are worked on at a time.
const TAPS: usize = 16;

/// Outputs of one register.
const FOUR: usize = 4;

/// The tables of the pass along the rows.
#[derive(Debug, Default)]
pub(super) struct Dots {
    pub(super) fits: bool,
    /// Inputs of a row.
    width: usize,
    /// For how many times sixteen taps there are weights.
    n_parts: usize,
    /// For every register of outputs, where their inputs begin.
    starts: Vec<[u32; FOUR]>,
    /// For every register of outputs, their weights by sixteen.
    weights: Vec<Digits>,
}

/// A row that has all inputs of an axis.
#[derive(Debug, Clone, Copy)]
struct Row<'r>(&'r [u8]);

/// Digits of the weights of sixteen taps of four outputs, the lowest first.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
struct Digits([[u8; FOUR * TAPS]; 3]);

/// The output that register number `nth` has at a place. Four registers hold sixteen outputs.
fn output(nth: usize, place: usize) -> usize {
    // So that adding up leaves them in order.
    nth / FOUR * CHUNK + place * FOUR + nth % FOUR
}

impl Dots {
    /// Makes the tables for `axis`; whether they fit, which they do if a row has as many inputs as an output
    /// has weights here.
    pub(super) fn set(&mut self, axis: &Axis) -> bool {
        let Self { width, n_parts, starts, weights, .. } = self;
        *width = axis.needed().len();
        *n_parts = axis.longest.div_ceil(TAPS);
        starts.clear();
        weights.clear();
        if *width < *n_parts * TAPS {
            return false;
        }
        let last_start = small(*width - *n_parts * TAPS);
        for nth in 0..axis.firsts.len() / FOUR {
            let outputs = [0, 1, 2, 3].map(|place| output(nth, place));
            let own = outputs.map(|output| axis.firsts[output].min(last_start));
            let begin = weights.len();
            weights.resize(begin + *n_parts, Digits([[0; FOUR * TAPS]; 3]));
            for (place, (output, start)) in outputs.into_iter().zip(own).enumerate() {
                let (first, numbers) = axis.inputs_of(output);
                let len = axis.lens[output] as usize;
                for (tap, &weight) in (first - start as usize..).zip(&numbers[..len]) {
                    let Digits(parts) = &mut weights[begin + tap / TAPS];
                    let at = place * TAPS + tap % TAPS;
                    for (part, digit) in parts.iter_mut().zip(digits(weight)) {
                        part[at] = digit;
                    }
                }
            }
            starts.push(own);
        }
        true
    }

    /// `scalar::bytes`.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(super) fn bytes(&self, axis: &Axis, rows: &[&[u8]], out: &mut [u8]) {
        let half = _mm512_set1_epi32(1 << (EACH_BITS - 1));
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts.len())) {
            let row = self.row(row);
            let (blocks, _) = out.as_chunks_mut::<BLOCK>();
            for (nth, block) in blocks.iter_mut().enumerate() {
                let low = _mm512_add_epi32(self.sums::<3>(row, 2 * nth), half);
                let high = _mm512_add_epi32(self.sums::<3>(row, 2 * nth + 1), half);
                store_256(block, bytes_in_range(low, high));
            }
        }
    }

    /// `scalar::sixty_fourths`.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
    pub(super) fn sixty_fourths(&self, axis: &Axis, rows: &[&[u8]], out: &mut [i16]) {
        let half = _mm512_set1_epi32(1 << (RUNNING_BITS - FRACTION_BITS - 1));
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts.len())) {
            let row = self.row(row);
            let (blocks, _) = out.as_chunks_mut::<BLOCK>();
            for (nth, block) in blocks.iter_mut().enumerate() {
                let low = _mm512_add_epi32(self.sums::<2>(row, 2 * nth), half);
                let high = _mm512_add_epi32(self.sums::<2>(row, 2 * nth + 1), half);
                store_512(block, middle_halves(low, high));
            }
        }
    }

    fn row<'r>(&self, row: &'r [u8]) -> Row<'r> {
        assert_eq!(row.len(), self.width, "a row with all inputs");
        Row(row)
    }

    /// The sums of sixteen outputs, whose weights have so many `DIGITS`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vnni")]
    fn sums<const DIGITS: usize>(&self, row: Row<'_>, chunk: usize) -> __m512i {
        let mut partial = [_mm512_setzero_si512(); CHUNK / FOUR];
        for (nth, partial) in partial.iter_mut().enumerate() {
            *partial = self.partial_sums::<DIGITS>(row, chunk * CHUNK / FOUR + nth);
        }
        let [a, b, c, d] = partial;
        let (ab, cd) = (add_pairs(a, b), add_pairs(c, d));
        _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd))
    }

    /// Of each output of a register four numbers whose sum is its own.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vnni")]
    fn partial_sums<const DIGITS: usize>(&self, row: Row<'_>, nth: usize) -> __m512i {
        let starts = self.starts[nth];
        let weights = &self.weights[nth * self.n_parts..][..self.n_parts];
        let mut sums = [_mm512_setzero_si512(); DIGITS];
        for (part, Digits(digits)) in weights.iter().enumerate() {
            let mut four = [_mm_setzero_si128(); FOUR];
            for (inputs, start) in four.iter_mut().zip(starts) {
                let from = start as usize + part * TAPS;
                // SAFETY: the row is as wide as `width`, and `set` has left room for all `n_parts` parts
                // behind every start. (Checking each time takes 7 % of the time of a picture of 12 megapixels.)
                let own = unsafe { row.0.get_unchecked(from..from + TAPS) };
                *inputs = load_128(own.first_chunk::<TAPS>().expect("sixteen"));
            }
            let [a, b, c, d] = four;
            let taps = _mm512_castsi128_si512(a);
            let taps = _mm512_inserti32x4::<1>(taps, b);
            let taps = _mm512_inserti32x4::<2>(taps, c);
            let taps = _mm512_inserti32x4::<3>(taps, d);
            for (sums, digits) in sums.iter_mut().zip(digits) {
                *sums = _mm512_dpbusd_epi32(*sums, taps, load_512(digits));
            }
        }
        let mut sum = sums[DIGITS - 1];
        for &lower in sums[..DIGITS - 1].iter().rev() {
            sum = _mm512_add_epi32(_mm512_slli_epi32::<8>(sum), lower);
        }
        sum
    }
}

/// Of each output of two registers, whose sums are four each, two sums: those of both by turns.
#[inline]
#[target_feature(enable = "avx512f")]
fn add_pairs(a: __m512i, b: __m512i) -> __m512i {
    _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b))
}
