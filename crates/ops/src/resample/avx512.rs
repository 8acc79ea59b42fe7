//! Both passes with AVX-512, VBMI and VNNI: sixteen sums at a time.
//!
//! The pass along the rows takes 64 bytes of input, of which one byte permutation makes four
//! taps of sixteen outputs; `vpdpbusd` multiplies all 64 and adds them by fours. It takes
//! signed bytes, so a weight is split into digits to the base 256 from -128 to 127 (three for
//! exact numerics, two for planar), and the sums of the digits are put together with shifts.
//! Where sixteen outputs lie further apart than 64 bytes, the scalar code runs, compiled for
//! this processor. The meaning is in `columns.rs` and `rows.rs`.

#![allow(unsafe_code, reason = "functions for this processor alone are called")]

use std::arch::x86_64::*;

use super::axis::{Axis, BLOCK, EACH_BITS, RUNNING_BITS, Rounding, Stretch, TAP_GROUP};
use super::columns::FRACTION_BITS;
use super::{columns, rows};
use crate::kernels::Avx512;
use crate::vectors::{Integer, load_512, store_256, store_512};

/// Outputs of one vector of sums.
const CHUNK: usize = 16;

/// Bytes of one window of inputs.
const WINDOW: usize = 64;

/// Most groups of four taps that the kernels take.
const MAX_GROUPS: usize = 2;

/// What makes an exact sum round to nearest, in the unit of its highest digit's sum.
const HALF_EXACT: i32 = 1 << 5;

/// The tables of the pass along the rows.
#[derive(Debug, Default)]
pub(super) struct Columns {
    fits: bool,
    /// Where the window of every chunk begins.
    windows: Vec<u32>,
    /// Of every chunk, its groups of taps.
    steps: Vec<Step>,
}

/// Four taps of sixteen outputs.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
struct Step {
    /// Where in the window each input is.
    index: [u8; WINDOW],
    /// Digits of the weights, the lowest first.
    digits: [[u8; WINDOW]; 3],
}

/// [`Axis::compute`].
pub(super) fn compute(_: Avx512, axis: &mut Axis, stretch: &Stretch, rounding: Rounding) {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn compute(axis: &mut Axis, stretch: &Stretch, rounding: Rounding) {
        axis.compute(stretch, rounding);
    }
    // SAFETY: an `Avx512` is proof that the processor has these instructions.
    unsafe { compute(axis, stretch, rounding) }
}

impl Columns {
    /// Makes the tables for `axis`.
    pub(super) fn set(&mut self, _: Avx512, axis: &Axis) {
        // SAFETY: an `Avx512` is proof that the processor has these instructions.
        unsafe { set(self, axis) }
    }

    /// [`columns::bytes`].
    pub(super) fn bytes(&self, _: Avx512, axis: &Axis, rows: &[&[u8]], out: &mut [u8]) {
        // SAFETY: an `Avx512` is proof that the processor has these instructions.
        unsafe { bytes(self, axis, rows, out) }
    }

    /// [`columns::sixty_fourths`].
    pub(super) fn sixty_fourths(
        &self,
        _: Avx512,
        axis: &Axis,
        rows: &[&[u8]],
        out: &mut [i16],
    ) {
        // SAFETY: an `Avx512` is proof that the processor has these instructions.
        unsafe { sixty_fourths(self, axis, rows, out) }
    }
}

/// [`rows::bytes_scalar`].
pub(super) fn blend_bytes(_: Avx512, rows: &[u8], weights: &[i32], out: &mut [u8]) {
    match weights.len() / TAP_GROUP {
        // SAFETY: an `Avx512` is proof that the processor has these instructions.
        1 => unsafe { blend_bytes_of::<1>(rows, weights, out) },
        // SAFETY: an `Avx512` is proof that the processor has these instructions.
        2 => unsafe { blend_bytes_of::<2>(rows, weights, out) },
        // SAFETY: an `Avx512` is proof that the processor has these instructions.
        _ => unsafe { blend_many_bytes(rows, weights, out) },
    }
}

/// [`rows::sixty_fourths_scalar`].
pub(super) fn blend_sixty_fourths(
    _: Avx512,
    rows: &[i16],
    weights: &[i32],
    out: &mut [i16],
) {
    let n_used = weights.len() - weights.iter().rev().take_while(|&&w| w == 0).count();
    match n_used.div_ceil(2) {
        // SAFETY: an `Avx512` is proof that the processor has these instructions.
        1 => unsafe { blend_sixty_fourths_of::<1>(rows, weights, out) },
        // SAFETY: an `Avx512` is proof that the processor has these instructions.
        2 => unsafe { blend_sixty_fourths_of::<2>(rows, weights, out) },
        // SAFETY: an `Avx512` is proof that the processor has these instructions.
        3 => unsafe { blend_sixty_fourths_of::<3>(rows, weights, out) },
        // SAFETY: an `Avx512` is proof that the processor has these instructions.
        _ => unsafe { blend_many_sixty_fourths(rows, weights, out) },
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn set(columns: &mut Columns, axis: &Axis) {
    let Columns { fits, windows, steps } = columns;
    windows.clear();
    steps.clear();
    let n_groups = axis.n_taps() / TAP_GROUP;
    *fits = n_groups <= MAX_GROUPS && axis.needed().len() >= WINDOW;
    if !*fits {
        return;
    }
    let last_window = (axis.needed().len() - WINDOW) as u32;
    let (firsts, _) = axis.firsts().as_chunks::<CHUNK>();
    let (lens, _) = axis.lens().as_chunks::<CHUNK>();
    for (nth, (firsts, lens)) in firsts.iter().zip(lens).enumerate() {
        // The outputs go up, or, mirrored, down.
        let [a, b] = [0, CHUNK - 1];
        let window = firsts[a].min(firsts[b]).min(last_window);
        let end = (firsts[a] + lens[a]).max(firsts[b] + lens[b]);
        *fits &= (end - window) as usize <= WINDOW;
        windows.push(window);
        for group in 0..n_groups {
            let index = std::array::from_fn(|i| {
                let tap = (group * TAP_GROUP + i % TAP_GROUP) as u32;
                // Behind the window there are only weights of 0.
                (firsts[i / TAP_GROUP] - window + tap).min(WINDOW as u32 - 1) as u8
            });
            let weights: [[i32; TAP_GROUP]; CHUNK] = std::array::from_fn(|output| {
                let weights = &axis.weights_of(nth * CHUNK + output)[group * TAP_GROUP..];
                *weights.first_chunk().expect("a whole group of taps")
            });
            steps.push(Step { index, digits: split(&weights) });
        }
    }
}

/// The digits of the weights, the lowest first: to the base 256, from -128 to 127. (The highest
/// of a weight of 1 is 64.)
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn split(weights: &[[i32; TAP_GROUP]; CHUNK]) -> [[u8; WINDOW]; 3] {
    let mut digits = [[0; WINDOW]; 3];
    for (i, &weight) in weights.as_flattened().iter().enumerate() {
        let [low, middle, high, _] = (weight + 0x8080).to_le_bytes();
        // What was added to make the lower digits' signs right is taken out of them again.
        [digits[0][i], digits[1][i], digits[2][i]] = [low ^ 0x80, middle ^ 0x80, high];
    }
    digits
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn bytes(columns: &Columns, axis: &Axis, rows: &[&[u8]], out: &mut [u8]) {
    let n_groups = axis.n_taps() / TAP_GROUP;
    if !columns.fits {
        return columns::bytes(axis, rows, out);
    }
    match (rows, n_groups) {
        (&[a, b, c], 1) => bytes_of::<3, 1>(columns, [a, b, c], out),
        (&[a, b, c], 2) => bytes_of::<3, 2>(columns, [a, b, c], out),
        _ => {
            for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts().len())) {
                match n_groups {
                    1 => bytes_of::<1, 1>(columns, [row], out),
                    _ => bytes_of::<1, 2>(columns, [row], out),
                }
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn sixty_fourths(columns: &Columns, axis: &Axis, rows: &[&[u8]], out: &mut [i16]) {
    let n_groups = axis.n_taps() / TAP_GROUP;
    if !columns.fits {
        return columns::sixty_fourths(axis, rows, out);
    }
    match (rows, n_groups) {
        (&[a, b, c, d], 1) => sixty_fourths_of::<4, 1>(columns, [a, b, c, d], out),
        (&[a, b, c, d], 2) => sixty_fourths_of::<4, 2>(columns, [a, b, c, d], out),
        _ => {
            for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts().len())) {
                match n_groups {
                    1 => sixty_fourths_of::<1, 1>(columns, [row], out),
                    _ => sixty_fourths_of::<1, 2>(columns, [row], out),
                }
            }
        }
    }
}

/// The tables are read once for all `ROWS`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
fn bytes_of<const ROWS: usize, const GROUPS: usize>(
    columns: &Columns,
    rows: [&[u8]; ROWS],
    out: &mut [u8],
) {
    let (outputs, _) = out.as_chunks_mut::<BLOCK>();
    let (windows, _) = columns.windows.as_chunks::<2>();
    let (steps, _) = columns.steps.as_chunks::<GROUPS>();
    let (steps, _) = steps.as_chunks::<2>();
    let n_blocks = windows.len();
    assert!(outputs.len() == ROWS * n_blocks, "a place for every output");
    let last_bytes = load_512(&LAST_BYTES);
    for (nth, (windows, steps)) in windows.iter().zip(steps).enumerate() {
        for (row_nth, row) in rows.iter().enumerate() {
            let low = exact_sums(&gather(row, windows[0], &steps[0]), &steps[0]);
            let high = exact_sums(&gather(row, windows[1], &steps[1]), &steps[1]);
            let bytes = _mm512_permutex2var_epi8(low, last_bytes, high);
            store_256(
                &mut outputs[row_nth * n_blocks + nth],
                _mm512_castsi512_si256(bytes),
            );
        }
    }
}

/// Sixteen rounded sums, the byte in the last eight bits.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn exact_sums<const GROUPS: usize>(
    taps: &[__m512i; GROUPS],
    steps: &[Step; GROUPS],
) -> __m512i {
    let mut sums = _mm512_set1_epi32(HALF_EXACT);
    for (taps, step) in taps.iter().zip(steps) {
        sums = _mm512_dpbusd_epi32(sums, *taps, load_512(&step.digits[2]));
    }
    sums = _mm512_slli_epi32::<8>(sums);
    for (taps, step) in taps.iter().zip(steps) {
        sums = _mm512_dpbusd_epi32(sums, *taps, load_512(&step.digits[1]));
    }
    sums = _mm512_slli_epi32::<8>(sums);
    for (taps, step) in taps.iter().zip(steps) {
        sums = _mm512_dpbusd_epi32(sums, *taps, load_512(&step.digits[0]));
    }
    // From bits 22 to 29.
    _mm512_slli_epi32::<2>(sums)
}

/// The tables are read once for all `ROWS`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
fn sixty_fourths_of<const ROWS: usize, const GROUPS: usize>(
    columns: &Columns,
    rows: [&[u8]; ROWS],
    out: &mut [i16],
) {
    let (outputs, _) = out.as_chunks_mut::<BLOCK>();
    let (windows, _) = columns.windows.as_chunks::<2>();
    let (steps, _) = columns.steps.as_chunks::<GROUPS>();
    let (steps, _) = steps.as_chunks::<2>();
    let n_blocks = windows.len();
    assert!(outputs.len() == ROWS * n_blocks, "a place for every output");
    let middle_bytes = load_512(&MIDDLE_BYTES);
    for (nth, (windows, steps)) in windows.iter().zip(steps).enumerate() {
        for (row_nth, row) in rows.iter().enumerate() {
            let low = planar_sums(&gather(row, windows[0], &steps[0]), &steps[0]);
            let high = planar_sums(&gather(row, windows[1], &steps[1]), &steps[1]);
            let values = _mm512_permutex2var_epi8(low, middle_bytes, high);
            store_512(&mut outputs[row_nth * n_blocks + nth], values);
        }
    }
}

/// Sixteen rounded sums. The bits to drop are the lowest byte, and none reaches into the last.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn planar_sums<const GROUPS: usize>(
    taps: &[__m512i; GROUPS],
    steps: &[Step; GROUPS],
) -> __m512i {
    let mut low = _mm512_set1_epi32(1 << (RUNNING_BITS - FRACTION_BITS - 1));
    let mut high = _mm512_setzero_si512();
    for (taps, step) in taps.iter().zip(steps) {
        low = _mm512_dpbusd_epi32(low, *taps, load_512(&step.digits[0]));
        high = _mm512_dpbusd_epi32(high, *taps, load_512(&step.digits[1]));
    }
    _mm512_add_epi32(low, _mm512_slli_epi32::<8>(high))
}

/// Where the last byte of each of 32 sums is, in two vectors.
const LAST_BYTES: [u8; 64] = {
    let mut places = [0; 64];
    let mut i = 0;
    while i < 32 {
        places[i] = 4 * i as u8 + 3;
        i += 1;
    }
    places
};

/// Where the two bytes in the middle of each of 32 sums are, in two vectors.
const MIDDLE_BYTES: [u8; 64] = {
    let mut places = [0; 64];
    let mut i = 0;
    while i < 32 {
        places[2 * i] = 4 * i as u8 + 1;
        places[2 * i + 1] = 4 * i as u8 + 2;
        i += 1;
    }
    places
};

/// The taps of sixteen outputs, by fours.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn gather<const GROUPS: usize>(
    src: &[u8],
    window: u32,
    steps: &[Step; GROUPS],
) -> [__m512i; GROUPS] {
    let window = src[window as usize..].first_chunk().expect("a window inside the row");
    let window = load_512::<u8, WINDOW>(window);
    let mut taps = [window; GROUPS];
    for (taps, step) in taps.iter_mut().zip(steps) {
        *taps = _mm512_permutexvar_epi8(load_512(&step.index), window);
    }
    taps
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
fn blend_bytes_of<const GROUPS: usize>(rows: &[u8], weights: &[i32], out: &mut [u8]) {
    let rows = Rows::new(rows, out.len());
    let (groups, _) = weights.as_chunks::<TAP_GROUP>();
    let mut digits = [[_mm512_setzero_si512(); 3]; GROUPS];
    for (digits, weights) in digits.iter_mut().zip(groups) {
        *digits = split_one(weights);
    }
    for (nth, out) in out.as_chunks_mut::<64>().0.iter_mut().enumerate() {
        let mut taps = [[_mm512_setzero_si512(); 4]; GROUPS];
        for (group, taps) in taps.iter_mut().enumerate() {
            *taps = rows.by_fours(TAP_GROUP * group, nth);
        }
        let mut sums = [_mm512_set1_epi32(HALF_EXACT); 4];
        for (quarter, sum) in sums.iter_mut().enumerate() {
            for (taps, digits) in taps.iter().zip(&digits) {
                *sum = _mm512_dpbusd_epi32(*sum, taps[quarter], digits[2]);
            }
            *sum = _mm512_slli_epi32::<8>(*sum);
            for (taps, digits) in taps.iter().zip(&digits) {
                *sum = _mm512_dpbusd_epi32(*sum, taps[quarter], digits[1]);
            }
            *sum = _mm512_slli_epi32::<8>(*sum);
            for (taps, digits) in taps.iter().zip(&digits) {
                *sum = _mm512_dpbusd_epi32(*sum, taps[quarter], digits[0]);
            }
            *sum = _mm512_srli_epi32::<{ EACH_BITS }>(*sum);
        }
        // Packing undoes the order of `by_fours`.
        let low = _mm512_packs_epi32(sums[0], sums[1]);
        let high = _mm512_packs_epi32(sums[2], sums[3]);
        store_512(out, _mm512_packus_epi16(low, high));
    }
}

/// The digits of the weights of four rows, the lowest first, for all columns.
#[inline]
#[target_feature(enable = "avx512f")]
fn split_one(weights: &[i32; TAP_GROUP]) -> [__m512i; 3] {
    // As in `split`.
    let bytes = weights.map(|weight| (weight + 0x8080).to_le_bytes());
    let mut digits = [_mm512_setzero_si512(); 3];
    for (nth, digits) in digits.iter_mut().enumerate() {
        let four = u32::from_le_bytes(bytes.map(|bytes| bytes[nth]));
        let four = if nth < 2 { four ^ 0x8080_8080 } else { four };
        *digits = _mm512_set1_epi32(four.cast_signed());
    }
    digits
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn blend_sixty_fourths_of<const PAIRS: usize>(
    rows: &[i16],
    weights: &[i32],
    out: &mut [i16],
) {
    let rows = Rows::new(rows, out.len());
    let (pairs, _) = weights.as_chunks::<2>();
    let mut both = [_mm512_setzero_si512(); PAIRS];
    for (both, [upper, lower]) in both.iter_mut().zip(pairs) {
        *both = _mm512_set1_epi32(upper | lower << 16);
    }
    for (nth, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let half = _mm512_set1_epi32(1 << (RUNNING_BITS - 1));
        let (mut low, mut high) = (half, half);
        for (pair, &weights) in both.iter().enumerate() {
            let upper = rows.part::<32>(2 * pair, nth);
            let lower = rows.part::<32>(2 * pair + 1, nth);
            low = _mm512_dpwssd_epi32(low, _mm512_unpacklo_epi16(upper, lower), weights);
            high =
                _mm512_dpwssd_epi32(high, _mm512_unpackhi_epi16(upper, lower), weights);
        }
        low = _mm512_srai_epi32::<{ RUNNING_BITS }>(low);
        high = _mm512_srai_epi32::<{ RUNNING_BITS }>(high);
        store_512(out, _mm512_packs_epi32(low, high));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn blend_many_bytes(rows: &[u8], weights: &[i32], out: &mut [u8]) {
    rows::bytes_scalar(rows, weights, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn blend_many_sixty_fourths(rows: &[i16], weights: &[i32], out: &mut [i16]) {
    rows::sixty_fourths_scalar(rows, weights, out);
}

/// Rows of equal length, one behind the other.
#[derive(Clone, Copy)]
struct Rows<'a, T> {
    values: &'a [T],
    stride: usize,
}

impl<'a, T: Integer> Rows<'a, T> {
    fn new(values: &'a [T], stride: usize) -> Self {
        assert_eq!(stride * size_of::<T>() % WINDOW, 0, "rows of whole vectors");
        Self { values, stride }
    }

    /// The vector `nth` of `row`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn part<const N: usize>(self, row: usize, nth: usize) -> __m512i {
        let part = self.values[row * self.stride + nth * N..].first_chunk::<N>();
        load_512(part.expect("a vector inside a row"))
    }
}

impl Rows<'_, u8> {
    /// Vector `nth` of the four rows from `row` on, each column's bytes together. Within every
    /// sixteen columns, each of the four vectors has four.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn by_fours(self, row: usize, nth: usize) -> [__m512i; 4] {
        let (a, b) = (self.part::<64>(row, nth), self.part::<64>(row + 1, nth));
        let (c, d) = (self.part::<64>(row + 2, nth), self.part::<64>(row + 3, nth));
        let (low_ab, high_ab) = (_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b));
        let (low_cd, high_cd) = (_mm512_unpacklo_epi8(c, d), _mm512_unpackhi_epi8(c, d));
        [
            _mm512_unpacklo_epi16(low_ab, low_cd),
            _mm512_unpackhi_epi16(low_ab, low_cd),
            _mm512_unpacklo_epi16(high_ab, high_cd),
            _mm512_unpackhi_epi16(high_ab, high_cd),
        ]
    }
}
