//! The pass along the rows with AVX2: eight sums at a time, in two lanes of four.
//!
//! It takes 16 bytes of input per lane, of which one byte shuffle makes two
//! taps of four outputs, as 16-bit numbers; `vpmaddwd` multiplies them and adds them by twos.
//! A weight of exact numerics comes in a high and a low part. Where four outputs lie further apart than 16 bytes, `dots` takes over. The
//! meaning is in `scalar.rs`.

#![allow(unsafe_code, reason = "functions for this processor alone are called")]

mod dots;

use std::arch::x86_64::*;

use dots::Dots;

use super::super::axis::{Axis, BLOCK, EACH_BITS, RUNNING_BITS, Rounding};
use super::super::scalar::{self, FRACTION_BITS};
use super::{LOW_BITS, low_half, parts_of, small};
use crate::kernels::Avx2;
use crate::kernels::compiled::compiled;
use crate::kernels::vectors::{load_128, load_256, store_256};

/// Outputs of one lane.
const LANE: usize = 4;

/// Bytes of one window of inputs.
const WINDOW: usize = 16;

/// Sums of one block of outputs: so many vectors. Lane 0 of them has the first half of the
/// outputs, lane 1 the second; so packing leaves bytes in order.
const VECTORS: usize = BLOCK / (2 * LANE);

/// The tables of the pass along the rows.
#[derive(Debug, Default)]
pub(in crate::geometry::resample) struct Columns {
    /// Whether the outputs lie near enough for the tables here.
    fits: bool,
    /// For where they do not.
    dots: Dots,
    /// Of every vector of outputs, where the windows of its lanes begin.
    windows: Vec<[u32; 2]>,
    /// Of every vector, its pairs of taps.
    steps: Vec<Step>,
}

/// Two taps of eight outputs.
#[derive(Debug, Clone)]
#[repr(C, align(32))]
struct Step {
    /// Where in the windows each input is; every other byte becomes 0.
    index: [u8; 32],
    /// The weights: of exact numerics the high and the low parts, of planar all and nothing.
    weights: [[i16; 16]; 2],
}

impl Columns {
    /// Makes the tables for `axis`, whose weights are rounded so.
    pub(in crate::geometry::resample) fn set(
        &mut self,
        _: Avx2,
        axis: &Axis,
        rounding: Rounding,
    ) {
        // SAFETY: an `Avx2` is proof that the processor has these instructions.
        unsafe { set(self, axis, rounding) }
        if !self.fits {
            self.dots.set(axis, rounding);
        }
    }

    /// `scalar::bytes`.
    pub(in crate::geometry::resample) fn bytes(
        &self,
        _: Avx2,
        axis: &Axis,
        rows: &[&[u8]],
        out: &mut [u8],
    ) {
        // SAFETY: an `Avx2` is proof that the processor has these instructions.
        unsafe { bytes(self, axis, rows, out) }
    }

    /// `scalar::sixty_fourths`.
    pub(in crate::geometry::resample) fn sixty_fourths(
        &self,
        _: Avx2,
        axis: &Axis,
        rows: &[&[u8]],
        out: &mut [i16],
    ) {
        // SAFETY: an `Avx2` is proof that the processor has these instructions.
        unsafe { sixty_fourths(self, axis, rows, out) }
    }
}

// `scalar::limit`.
compiled!("avx2",
    pub(in crate::geometry::resample) fn limit(_: Avx2, values: &mut [i16]) = scalar::limit);

#[target_feature(enable = "avx2")]
fn set(columns: &mut Columns, axis: &Axis, rounding: Rounding) {
    let Columns { fits, windows, steps, .. } = columns;
    windows.clear();
    steps.clear();
    let width = axis.needed().len();
    let n_pairs = axis.longest.div_ceil(2);
    *fits = width >= WINDOW;
    let last_window = small(width.saturating_sub(WINDOW));
    let (firsts, _) = axis.firsts.as_chunks::<LANE>();
    let (lens, _) = axis.lens.as_chunks::<LANE>();
    for block in 0..axis.firsts.len() / BLOCK {
        for vector in 0..VECTORS {
            let lanes = [0, VECTORS].map(|lane| block * 2 * VECTORS + lane + vector);
            // The outputs go up, or, mirrored, down.
            let [a, b] = [0, LANE - 1];
            let window =
                lanes.map(|at| firsts[at][a].min(firsts[at][b]).min(last_window));
            for (at, window) in lanes.into_iter().zip(window) {
                let end = (firsts[at][a] + lens[at][a]).max(firsts[at][b] + lens[at][b]);
                *fits &= end - window <= small(WINDOW);
            }
            if !*fits {
                return;
            }
            windows.push(window);
            for pair in 0..n_pairs {
                let mut step = Step { index: [0x80; 32], weights: [[0; 16]; 2] };
                for output in 0..2 * LANE {
                    let (lane, nth) = (output / LANE, output % LANE);
                    let at = lanes[lane];
                    let (_, weights) = axis.inputs_of(at * LANE + nth);
                    for tap in [2 * pair, 2 * pair + 1] {
                        let i = 2 * output + tap % 2;
                        // Behind the window there are only weights of 0.
                        let place = firsts[at][nth] - window[lane] + small(tap);
                        let [place, ..] = place.min(small(WINDOW - 1)).to_le_bytes();
                        step.index[2 * i] = place;
                        let [high, low] = split(weights[tap], rounding);
                        [step.weights[0][i], step.weights[1][i]] = [high, low];
                    }
                }
                steps.push(step);
            }
        }
    }
}

/// What of a weight is multiplied: of an exact one its parts, of a planar one all and nothing.
#[inline(always)]
fn split(weight: i32, rounding: Rounding) -> [i16; 2] {
    match rounding {
        Rounding::Each => parts_of(weight),
        Rounding::Running => [low_half(weight), 0],
    }
}

#[target_feature(enable = "avx2")]
fn bytes(columns: &Columns, axis: &Axis, rows: &[&[u8]], out: &mut [u8]) {
    if !columns.fits {
        return columns.dots.bytes(axis, rows, out);
    }
    for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts.len())) {
        match axis.longest.div_ceil(2) {
            1 => bytes_of::<1>(columns, 1, row, out),
            2 => bytes_of::<2>(columns, 2, row, out),
            3 => bytes_of::<3>(columns, 3, row, out),
            4 => bytes_of::<4>(columns, 4, row, out),
            n_pairs => bytes_of::<ANY>(columns, n_pairs, row, out),
        }
    }
}

#[target_feature(enable = "avx2")]
fn sixty_fourths(columns: &Columns, axis: &Axis, rows: &[&[u8]], out: &mut [i16]) {
    if !columns.fits {
        return columns.dots.sixty_fourths(axis, rows, out);
    }
    for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts.len())) {
        match axis.longest.div_ceil(2) {
            1 => sixty_fourths_of::<1>(columns, 1, row, out),
            2 => sixty_fourths_of::<2>(columns, 2, row, out),
            3 => sixty_fourths_of::<3>(columns, 3, row, out),
            4 => sixty_fourths_of::<4>(columns, 4, row, out),
            n_pairs => sixty_fourths_of::<ANY>(columns, n_pairs, row, out),
        }
    }
}

/// In place of a number of pairs of taps that is written out.
const ANY: usize = 0;

#[target_feature(enable = "avx2")]
fn bytes_of<const PAIRS: usize>(
    columns: &Columns,
    n_pairs: usize,
    row: &[u8],
    out: &mut [u8],
) {
    let n_pairs = if PAIRS == ANY { n_pairs } else { PAIRS };
    let (windows, _) = columns.windows.as_chunks::<VECTORS>();
    let blocks = columns.steps.chunks_exact(VECTORS * n_pairs);
    let (places, _) = out.as_chunks_mut::<BLOCK>();
    for ((place, windows), block) in places.iter_mut().zip(windows).zip(blocks) {
        let mut sums = [_mm256_setzero_si256(); VECTORS];
        let steps = block.chunks_exact(n_pairs);
        for ((sum, starts), steps) in sums.iter_mut().zip(windows).zip(steps) {
            *sum = exact_sums(window(row, starts), steps);
        }
        let low = _mm256_packs_epi32(sums[0], sums[1]);
        let high = _mm256_packs_epi32(sums[2], sums[3]);
        store_256(place, _mm256_packus_epi16(low, high));
    }
}

#[target_feature(enable = "avx2")]
fn sixty_fourths_of<const PAIRS: usize>(
    columns: &Columns,
    n_pairs: usize,
    row: &[u8],
    out: &mut [i16],
) {
    let n_pairs = if PAIRS == ANY { n_pairs } else { PAIRS };
    let (windows, _) = columns.windows.as_chunks::<VECTORS>();
    let blocks = columns.steps.chunks_exact(VECTORS * n_pairs);
    let (places, _) = out.as_chunks_mut::<16>();
    let (places, _) = places.as_chunks_mut::<2>();
    for ((place, windows), block) in places.iter_mut().zip(windows).zip(blocks) {
        let mut sums = [_mm256_setzero_si256(); VECTORS];
        let steps = block.chunks_exact(n_pairs);
        for ((sum, starts), steps) in sums.iter_mut().zip(windows).zip(steps) {
            *sum = planar_sums(window(row, starts), steps);
        }
        let low = _mm256_packs_epi32(sums[0], sums[1]);
        let high = _mm256_packs_epi32(sums[2], sums[3]);
        store_256(&mut place[0], _mm256_permute2x128_si256::<0x20>(low, high));
        store_256(&mut place[1], _mm256_permute2x128_si256::<0x31>(low, high));
    }
}

/// The bytes from each start on.
#[inline]
#[target_feature(enable = "avx2")]
fn window(row: &[u8], starts: &[u32; 2]) -> __m256i {
    let [low, high] = starts.map(|start| {
        row[start as usize..].first_chunk::<WINDOW>().expect("a window inside the row")
    });
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(load_128(low)), load_128(high))
}

/// Eight rounded sums.
#[inline]
#[target_feature(enable = "avx2")]
fn exact_sums(window: __m256i, steps: &[Step]) -> __m256i {
    let mut high = _mm256_set1_epi32(1 << (EACH_BITS - 1 - LOW_BITS));
    let mut low = _mm256_setzero_si256();
    for step in steps {
        let taps = _mm256_shuffle_epi8(window, load_256(&step.index));
        let products = _mm256_madd_epi16(taps, load_256(&step.weights[0]));
        high = _mm256_add_epi32(high, products);
        let products = _mm256_madd_epi16(taps, load_256(&step.weights[1]));
        low = _mm256_add_epi32(low, products);
    }
    let sums =
        _mm256_add_epi32(_mm256_slli_epi32::<{ LOW_BITS.cast_signed() }>(high), low);
    _mm256_srai_epi32::<{ EACH_BITS.cast_signed() }>(sums)
}

/// Eight rounded sums.
#[inline]
#[target_feature(enable = "avx2")]
fn planar_sums(window: __m256i, steps: &[Step]) -> __m256i {
    const DROPPED: u32 = RUNNING_BITS - FRACTION_BITS;
    let mut sums = _mm256_set1_epi32(1 << (DROPPED - 1));
    for step in steps {
        let taps = _mm256_shuffle_epi8(window, load_256(&step.index));
        let products = _mm256_madd_epi16(taps, load_256(&step.weights[0]));
        sums = _mm256_add_epi32(sums, products);
    }
    _mm256_srai_epi32::<{ DROPPED.cast_signed() }>(sums)
}
