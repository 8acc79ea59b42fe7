//! Both passes with AVX2: eight sums at a time, in two lanes of four.
//!
//! The pass along the rows takes 16 bytes of input per lane, of which one byte shuffle makes two
//! taps of four outputs, as 16-bit numbers; `vpmaddwd` multiplies them and adds them by twos.
//! The pass along the columns interleaves two rows. A weight of exact numerics comes in a high
//! and a low part. Where four outputs lie further apart than 16 bytes, `dots` takes over. The
//! meaning is in `columns.rs` and `rows.rs`.

#![allow(unsafe_code, reason = "functions for this processor alone are called")]

mod dots;

use std::arch::x86_64::*;

use dots::Dots;

use super::axis::{Axis, BLOCK, EACH_BITS, RUNNING_BITS, Rounding, Stretch};
use super::columns::FRACTION_BITS;
use super::rows;
use crate::kernels::Avx2;
use crate::vectors::{load_128, load_256, store_256};

/// Outputs of one lane.
const LANE: usize = 4;

/// Bytes of one window of inputs.
const WINDOW: usize = 16;

/// Bits of the low part of an exact weight.
const LOW_BITS: u32 = 8;

/// Sums of one block of outputs: so many vectors. Lane 0 of them has the first half of the
/// outputs, lane 1 the second; so packing leaves bytes in order.
const VECTORS: usize = BLOCK / (2 * LANE);

/// The tables of the pass along the rows.
#[derive(Debug, Default)]
pub(super) struct Columns {
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

/// [`Axis::compute`].
pub(super) fn compute(_: Avx2, axis: &mut Axis, stretch: &Stretch, rounding: Rounding) {
    #[target_feature(enable = "avx2")]
    fn compute(axis: &mut Axis, stretch: &Stretch, rounding: Rounding) {
        axis.compute(stretch, rounding);
    }
    // SAFETY: an `Avx2` is proof that the processor has these instructions.
    unsafe { compute(axis, stretch, rounding) }
}

impl Columns {
    /// Makes the tables for `axis`, whose weights are rounded so.
    pub(super) fn set(&mut self, _: Avx2, axis: &Axis, rounding: Rounding) {
        // SAFETY: an `Avx2` is proof that the processor has these instructions.
        unsafe { set(self, axis, rounding) }
        if !self.fits {
            self.dots.set(axis);
        }
    }

    /// `columns::bytes`.
    pub(super) fn bytes(&self, _: Avx2, axis: &Axis, rows: &[&[u8]], out: &mut [u8]) {
        // SAFETY: an `Avx2` is proof that the processor has these instructions.
        unsafe { bytes(self, axis, rows, out) }
    }

    /// `columns::sixty_fourths`.
    pub(super) fn sixty_fourths(
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

/// `rows::bytes_scalar`.
pub(super) fn blend_bytes(_: Avx2, rows: &[u8], weights: &[i32], out: &mut [u8]) {
    // SAFETY: an `Avx2` is proof that the processor has these instructions.
    unsafe { blend_some_bytes(rows, weights, out) }
}

/// `rows::sixty_fourths_scalar`.
pub(super) fn blend_sixty_fourths(
    _: Avx2,
    rows: &[i16],
    weights: &[i32],
    out: &mut [i16],
) {
    // SAFETY: an `Avx2` is proof that the processor has these instructions.
    unsafe { blend_some_sixty_fourths(rows, weights, out) }
}

/// [`rows::limit_scalar`].
pub(super) fn limit(_: Avx2, values: &mut [i16]) {
    #[target_feature(enable = "avx2")]
    fn limit(values: &mut [i16]) {
        rows::limit_scalar(values);
    }
    // SAFETY: an `Avx2` is proof that the processor has these instructions.
    unsafe { limit(values) }
}

#[target_feature(enable = "avx2")]
fn set(columns: &mut Columns, axis: &Axis, rounding: Rounding) {
    let Columns { fits, windows, steps, .. } = columns;
    windows.clear();
    steps.clear();
    let width = axis.needed().len();
    let n_pairs = axis.longest().div_ceil(2);
    *fits = width >= WINDOW;
    let last_window = small(width.saturating_sub(WINDOW));
    let (firsts, _) = axis.firsts().as_chunks::<LANE>();
    let (lens, _) = axis.lens().as_chunks::<LANE>();
    for block in 0..axis.firsts().len() / BLOCK {
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

/// The high and the low part of a weight.
#[inline(always)]
fn parts_of(weight: i32) -> [i16; 2] {
    [low_half(weight >> LOW_BITS), low_half(weight & ((1 << LOW_BITS) - 1))]
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
fn low_half(number: i32) -> i16 {
    number as i16
}

#[inline(always)]
fn small(place: usize) -> u32 {
    u32::try_from(place).expect("a place in a row")
}

#[target_feature(enable = "avx2")]
fn bytes(columns: &Columns, axis: &Axis, rows: &[&[u8]], out: &mut [u8]) {
    if !columns.fits {
        return columns.dots.bytes(axis, rows, out);
    }
    for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts().len())) {
        match axis.longest().div_ceil(2) {
            1 => bytes_of::<1>(columns, row, out),
            2 => bytes_of::<2>(columns, row, out),
            3 => bytes_of::<3>(columns, row, out),
            4 => bytes_of::<4>(columns, row, out),
            n_pairs => bytes_of_any(columns, n_pairs, row, out),
        }
    }
}

#[target_feature(enable = "avx2")]
fn sixty_fourths(columns: &Columns, axis: &Axis, rows: &[&[u8]], out: &mut [i16]) {
    if !columns.fits {
        return columns.dots.sixty_fourths(axis, rows, out);
    }
    for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts().len())) {
        match axis.longest().div_ceil(2) {
            1 => sixty_fourths_of::<1>(columns, row, out),
            2 => sixty_fourths_of::<2>(columns, row, out),
            3 => sixty_fourths_of::<3>(columns, row, out),
            4 => sixty_fourths_of::<4>(columns, row, out),
            n_pairs => sixty_fourths_of_any(columns, n_pairs, row, out),
        }
    }
}

#[target_feature(enable = "avx2")]
fn bytes_of<const PAIRS: usize>(columns: &Columns, row: &[u8], out: &mut [u8]) {
    let (windows, _) = columns.windows.as_chunks::<VECTORS>();
    let (steps, _) = columns.steps.as_chunks::<PAIRS>();
    let (steps, _) = steps.as_chunks::<VECTORS>();
    let (places, _) = out.as_chunks_mut::<BLOCK>();
    for ((place, windows), steps) in places.iter_mut().zip(windows).zip(steps) {
        let mut sums = [_mm256_setzero_si256(); VECTORS];
        for ((sum, starts), steps) in sums.iter_mut().zip(windows).zip(steps) {
            *sum = exact_sums(window(row, starts), steps);
        }
        let low = _mm256_packs_epi32(sums[0], sums[1]);
        let high = _mm256_packs_epi32(sums[2], sums[3]);
        store_256(place, _mm256_packus_epi16(low, high));
    }
}

#[target_feature(enable = "avx2")]
fn sixty_fourths_of<const PAIRS: usize>(columns: &Columns, row: &[u8], out: &mut [i16]) {
    let (windows, _) = columns.windows.as_chunks::<VECTORS>();
    let (steps, _) = columns.steps.as_chunks::<PAIRS>();
    let (steps, _) = steps.as_chunks::<VECTORS>();
    let (places, _) = out.as_chunks_mut::<16>();
    let (places, _) = places.as_chunks_mut::<2>();
    for ((place, windows), steps) in places.iter_mut().zip(windows).zip(steps) {
        let mut sums = [_mm256_setzero_si256(); VECTORS];
        for ((sum, starts), steps) in sums.iter_mut().zip(windows).zip(steps) {
            *sum = planar_sums(window(row, starts), steps);
        }
        let low = _mm256_packs_epi32(sums[0], sums[1]);
        let high = _mm256_packs_epi32(sums[2], sums[3]);
        store_256(&mut place[0], _mm256_permute2x128_si256::<0x20>(low, high));
        store_256(&mut place[1], _mm256_permute2x128_si256::<0x31>(low, high));
    }
}

/// Any number of taps.
#[inline(never)]
#[target_feature(enable = "avx2")]
fn bytes_of_any(columns: &Columns, n_pairs: usize, row: &[u8], out: &mut [u8]) {
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

/// Any number of taps.
#[inline(never)]
#[target_feature(enable = "avx2")]
fn sixty_fourths_of_any(columns: &Columns, n_pairs: usize, row: &[u8], out: &mut [i16]) {
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

#[target_feature(enable = "avx2")]
fn blend_some_bytes(rows: &[u8], weights: &[i32], out: &mut [u8]) {
    match weights.len() / 2 {
        1 => blend_bytes_of::<1>(rows, weights, out),
        2 => blend_bytes_of::<2>(rows, weights, out),
        3 => blend_bytes_of::<3>(rows, weights, out),
        4 => blend_bytes_of::<4>(rows, weights, out),
        _ => blend_bytes_of_any(rows, weights, out),
    }
}

#[target_feature(enable = "avx2")]
fn blend_some_sixty_fourths(rows: &[i16], weights: &[i32], out: &mut [i16]) {
    match weights.len() / 2 {
        1 => blend_sixty_fourths_of::<1>(rows, weights, out),
        2 => blend_sixty_fourths_of::<2>(rows, weights, out),
        3 => blend_sixty_fourths_of::<3>(rows, weights, out),
        4 => blend_sixty_fourths_of::<4>(rows, weights, out),
        _ => blend_sixty_fourths_of_any(rows, weights, out),
    }
}

#[target_feature(enable = "avx2")]
fn blend_bytes_of<const PAIRS: usize>(rows: &[u8], weights: &[i32], out: &mut [u8]) {
    let (out, _) = out.as_chunks_mut::<32>();
    let n_parts = out.len();
    let rows = by_pairs::<_, 32, PAIRS>(rows, n_parts);
    let mut parts = [[_mm256_setzero_si256(); 2]; PAIRS];
    for (parts, &[upper, lower]) in parts.iter_mut().zip(weights.as_chunks::<2>().0) {
        let [upper, lower] = [upper, lower].map(parts_of);
        *parts = [both(upper[0], lower[0]), both(upper[1], lower[1])];
    }
    for nth in 0..n_parts {
        let mut high = [_mm256_set1_epi32(1 << (EACH_BITS - 1 - LOW_BITS)); 4];
        let mut low = [_mm256_setzero_si256(); 4];
        for ([upper, lower], parts) in rows.iter().zip(&parts) {
            let inputs = by_twos(load_256(&upper[nth]), load_256(&lower[nth]));
            for (quarter, &inputs) in inputs.iter().enumerate() {
                let products = _mm256_madd_epi16(inputs, parts[0]);
                high[quarter] = _mm256_add_epi32(high[quarter], products);
                let products = _mm256_madd_epi16(inputs, parts[1]);
                low[quarter] = _mm256_add_epi32(low[quarter], products);
            }
        }
        store_256(&mut out[nth], packed(high, low));
    }
}

#[target_feature(enable = "avx2")]
fn blend_sixty_fourths_of<const PAIRS: usize>(
    rows: &[i16],
    weights: &[i32],
    out: &mut [i16],
) {
    let (out, _) = out.as_chunks_mut::<16>();
    let n_parts = out.len();
    let rows = by_pairs::<_, 16, PAIRS>(rows, n_parts);
    let mut parts = [_mm256_setzero_si256(); PAIRS];
    for (parts, &[upper, lower]) in parts.iter_mut().zip(weights.as_chunks::<2>().0) {
        *parts = both(low_half(upper), low_half(lower));
    }
    for nth in 0..n_parts {
        let half = _mm256_set1_epi32(1 << (RUNNING_BITS - 1));
        let (mut low, mut high) = (half, half);
        for ([upper, lower], &parts) in rows.iter().zip(&parts) {
            let (upper, lower) = (load_256(&upper[nth]), load_256(&lower[nth]));
            let products = _mm256_madd_epi16(_mm256_unpacklo_epi16(upper, lower), parts);
            low = _mm256_add_epi32(low, products);
            let products = _mm256_madd_epi16(_mm256_unpackhi_epi16(upper, lower), parts);
            high = _mm256_add_epi32(high, products);
        }
        // Packing undoes the order of unpacking.
        low = _mm256_srai_epi32::<{ RUNNING_BITS.cast_signed() }>(low);
        high = _mm256_srai_epi32::<{ RUNNING_BITS.cast_signed() }>(high);
        store_256(&mut out[nth], _mm256_packs_epi32(low, high));
    }
}

/// Any number of rows.
#[inline(never)]
#[target_feature(enable = "avx2")]
fn blend_bytes_of_any(rows: &[u8], weights: &[i32], out: &mut [u8]) {
    let (out, _) = out.as_chunks_mut::<32>();
    let (rows, _) = rows.as_chunks::<32>();
    let (weights, _) = weights.as_chunks::<2>();
    let n_parts = out.len();
    for (nth, out) in out.iter_mut().enumerate() {
        let mut high = [_mm256_set1_epi32(1 << (EACH_BITS - 1 - LOW_BITS)); 4];
        let mut low = [_mm256_setzero_si256(); 4];
        for (rows, &[upper, lower]) in rows.chunks_exact(2 * n_parts).zip(weights) {
            let [upper, lower] = [upper, lower].map(parts_of);
            let parts = [both(upper[0], lower[0]), both(upper[1], lower[1])];
            let (upper, lower) = (load_256(&rows[nth]), load_256(&rows[n_parts + nth]));
            for (quarter, inputs) in by_twos(upper, lower).into_iter().enumerate() {
                let products = _mm256_madd_epi16(inputs, parts[0]);
                high[quarter] = _mm256_add_epi32(high[quarter], products);
                let products = _mm256_madd_epi16(inputs, parts[1]);
                low[quarter] = _mm256_add_epi32(low[quarter], products);
            }
        }
        store_256(out, packed(high, low));
    }
}

/// Any number of rows.
#[inline(never)]
#[target_feature(enable = "avx2")]
fn blend_sixty_fourths_of_any(rows: &[i16], weights: &[i32], out: &mut [i16]) {
    let (out, _) = out.as_chunks_mut::<16>();
    let (rows, _) = rows.as_chunks::<16>();
    let (weights, _) = weights.as_chunks::<2>();
    let n_parts = out.len();
    for (nth, out) in out.iter_mut().enumerate() {
        let half = _mm256_set1_epi32(1 << (RUNNING_BITS - 1));
        let (mut low, mut high) = (half, half);
        for (rows, &[upper, lower]) in rows.chunks_exact(2 * n_parts).zip(weights) {
            let parts = both(low_half(upper), low_half(lower));
            let (upper, lower) = (load_256(&rows[nth]), load_256(&rows[n_parts + nth]));
            let products = _mm256_madd_epi16(_mm256_unpacklo_epi16(upper, lower), parts);
            low = _mm256_add_epi32(low, products);
            let products = _mm256_madd_epi16(_mm256_unpackhi_epi16(upper, lower), parts);
            high = _mm256_add_epi32(high, products);
        }
        // Packing undoes the order of unpacking.
        low = _mm256_srai_epi32::<{ RUNNING_BITS.cast_signed() }>(low);
        high = _mm256_srai_epi32::<{ RUNNING_BITS.cast_signed() }>(high);
        store_256(out, _mm256_packs_epi32(low, high));
    }
}

/// 32 bytes of the sums that [`by_twos`] gave, in two parts.
#[inline]
#[target_feature(enable = "avx2")]
fn packed(mut high: [__m256i; 4], low: [__m256i; 4]) -> __m256i {
    for (high, low) in high.iter_mut().zip(low) {
        let high_part = _mm256_slli_epi32::<{ LOW_BITS.cast_signed() }>(*high);
        let sums = _mm256_add_epi32(high_part, low);
        *high = _mm256_srai_epi32::<{ EACH_BITS.cast_signed() }>(sums);
    }
    // Packing undoes the order of `by_twos`.
    let first = _mm256_packs_epi32(high[0], high[1]);
    let second = _mm256_packs_epi32(high[2], high[3]);
    _mm256_packus_epi16(first, second)
}

/// A weight for each of two rows, for all columns.
#[inline]
#[target_feature(enable = "avx2")]
fn both(upper: i16, lower: i16) -> __m256i {
    _mm256_set1_epi32(i32::from(upper) & 0xffff | i32::from(lower) << 16)
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

/// 32 columns of two rows, each column's two numbers together. Of every sixteen columns, each of
/// the four vectors has four.
#[inline]
#[target_feature(enable = "avx2")]
fn by_twos(upper: __m256i, lower: __m256i) -> [__m256i; 4] {
    let zero = _mm256_setzero_si256();
    let low = _mm256_unpacklo_epi8(upper, lower);
    let high = _mm256_unpackhi_epi8(upper, lower);
    [
        _mm256_unpacklo_epi8(low, zero),
        _mm256_unpackhi_epi8(low, zero),
        _mm256_unpacklo_epi8(high, zero),
        _mm256_unpackhi_epi8(high, zero),
    ]
}
