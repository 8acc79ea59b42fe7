//! Outputs that lie far apart, with AVX2: each is a dot product of its own.
//!
//! Sixteen taps at a time become 16-bit numbers and are multiplied by their weights, which in exact
//! numerics have two parts; eight outputs' partial sums are added up together. It is for strong reductions, of
//! which `avx2.rs` says when they are. The meaning is in `scalar.rs`.

use std::arch::x86_64::*;

use super::super::super::axis::{Axis, BLOCK, EACH_BITS, RUNNING_BITS, Rounding};
use super::super::super::scalar::{self, FRACTION_BITS};
use super::super::{LOW_BITS, small};
use super::split;
use crate::kernels::vectors::{load_128, load_256, store_256};

/// Taps that are worked on at a time.
const TAPS: usize = 16;

/// Outputs whose sums make one vector.
const EIGHT: usize = 8;

/// The tables of the pass along the rows.
#[derive(Debug, Default)]
pub(super) struct Dots {
    fits: bool,
    n_parts: usize,
    /// Where the inputs of every output begin.
    starts: Vec<u32>,
    /// Of every output, its weights by sixteen: of exact numerics the high and the low parts, of planar all
    /// and nothing.
    weights: Vec<[[i16; TAPS]; 2]>,
}

impl Dots {
    /// Makes the tables for `axis`.
    pub(super) fn set(&mut self, axis: &Axis, rounding: Rounding) {
        let Self { fits, n_parts, starts, weights } = self;
        let width = axis.needed().len();
        *n_parts = axis.longest.div_ceil(TAPS);
        *fits = width >= *n_parts * TAPS;
        starts.clear();
        weights.clear();
        if !*fits {
            return;
        }
        let last_start = small(width - *n_parts * TAPS);
        for (output, &first) in axis.firsts.iter().enumerate() {
            let start = first.min(last_start);
            starts.push(start);
            let begin = weights.len();
            weights.resize(begin + *n_parts, [[0; TAPS]; 2]);
            let (_, own) = axis.inputs_of(output);
            let len = axis.lens[output] as usize;
            for (tap, &weight) in ((first - start) as usize..).zip(&own[..len]) {
                let [high, low] = &mut weights[begin + tap / TAPS];
                [high[tap % TAPS], low[tap % TAPS]] = split(weight, rounding);
            }
        }
    }

    /// `scalar::bytes`.
    #[target_feature(enable = "avx2")]
    pub(super) fn bytes(&self, axis: &Axis, rows: &[&[u8]], out: &mut [u8]) {
        if !self.fits {
            return scalar::bytes(axis, rows, out);
        }
        let in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let half = _mm256_set1_epi32(1 << (EACH_BITS - 1));
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts.len())) {
            let (blocks, _) = out.as_chunks_mut::<BLOCK>();
            for (nth, block) in blocks.iter_mut().enumerate() {
                let mut sums = [half; BLOCK / EIGHT];
                for (eight, sums) in sums.iter_mut().enumerate() {
                    let eight = self.sums::<2>(row, nth * BLOCK + eight * EIGHT);
                    *sums = _mm256_add_epi32(*sums, eight);
                    *sums = _mm256_srai_epi32::<{ EACH_BITS.cast_signed() }>(*sums);
                }
                let low = _mm256_packs_epi32(sums[0], sums[1]);
                let high = _mm256_packs_epi32(sums[2], sums[3]);
                let packed = _mm256_packus_epi16(low, high);
                store_256(block, _mm256_permutevar8x32_epi32(packed, in_order));
            }
        }
    }

    /// `scalar::sixty_fourths`.
    #[target_feature(enable = "avx2")]
    pub(super) fn sixty_fourths(&self, axis: &Axis, rows: &[&[u8]], out: &mut [i16]) {
        const DROPPED: u32 = RUNNING_BITS - FRACTION_BITS;
        if !self.fits {
            return scalar::sixty_fourths(axis, rows, out);
        }
        let half = _mm256_set1_epi32(1 << (DROPPED - 1));
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts.len())) {
            let (blocks, _) = out.as_chunks_mut::<{ 2 * EIGHT }>();
            for (nth, block) in blocks.iter_mut().enumerate() {
                let low = _mm256_add_epi32(self.sums::<1>(row, 2 * nth * EIGHT), half);
                let high =
                    _mm256_add_epi32(self.sums::<1>(row, (2 * nth + 1) * EIGHT), half);
                let packed = _mm256_packs_epi32(
                    _mm256_srai_epi32::<{ DROPPED.cast_signed() }>(low),
                    _mm256_srai_epi32::<{ DROPPED.cast_signed() }>(high),
                );
                store_256(block, _mm256_permute4x64_epi64::<0b11_01_10_00>(packed));
            }
        }
    }

    /// The sums of eight outputs from `first` on, whose weights have so many `PARTS`.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn sums<const PARTS: usize>(&self, row: &[u8], first: usize) -> __m256i {
        let mut partial = [_mm256_setzero_si256(); EIGHT];
        for (nth, partial) in partial.iter_mut().enumerate() {
            *partial = self.partial_sums::<PARTS>(row, first + nth);
        }
        let [a, b, c, d, e, f, g, h] = partial;
        let low = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
        let high = _mm256_hadd_epi32(_mm256_hadd_epi32(e, f), _mm256_hadd_epi32(g, h));
        _mm256_add_epi32(
            _mm256_permute2x128_si256::<0x20>(low, high),
            _mm256_permute2x128_si256::<0x31>(low, high),
        )
    }

    /// Eight numbers whose sum is the sum of one output.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn partial_sums<const PARTS: usize>(&self, row: &[u8], output: usize) -> __m256i {
        let inputs = row[self.starts[output] as usize..].as_chunks::<TAPS>().0;
        let weights = &self.weights[output * self.n_parts..][..self.n_parts];
        let mut sums = [_mm256_setzero_si256(); PARTS];
        for (inputs, parts) in inputs.iter().zip(weights) {
            let taps = _mm256_cvtepu8_epi16(load_128(inputs));
            for (sums, part) in sums.iter_mut().zip(parts) {
                *sums = _mm256_add_epi32(*sums, _mm256_madd_epi16(taps, load_256(part)));
            }
        }
        let mut sum = sums[0];
        for &low in &sums[1..] {
            sum = _mm256_slli_epi32::<{ LOW_BITS.cast_signed() }>(sum);
            sum = _mm256_add_epi32(sum, low);
        }
        sum
    }
}
