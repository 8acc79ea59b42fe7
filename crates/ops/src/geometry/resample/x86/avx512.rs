//! The pass along the rows with AVX-512, VBMI and VNNI: sixteen sums at a time.
//!
//! It takes 64 bytes of input, of which one byte permutation makes four
//! taps of sixteen outputs; `vpdpbusd` multiplies all 64 and adds them by fours. It takes
//! signed bytes, so a weight is split into digits to the base 256 from -128 to 127 (three for
//! exact numerics, two for planar), and the sums of the digits are put together with shifts.
//! Where sixteen outputs lie further apart than 64 bytes, `dots` takes over; rows of less than 64 bytes, or of
//! less than an output's taps, are left to AVX2. The meaning is in `scalar.rs`.

#![allow(unsafe_code, reason = "functions for this processor alone are called")]

mod dots;

use std::arch::x86_64::*;

use dots::Dots;

use super::super::axis::{Axis, BLOCK, EACH_BITS, FOUR, RUNNING_BITS, Rounding};
use super::super::scalar::FRACTION_BITS;
use super::{TO_LAST_BYTE, avx2, small};
use crate::kernels::Avx512;
use crate::kernels::vectors::{load_512, store_256, store_512};

/// Outputs of one vector of sums.
const CHUNK: usize = 16;

/// Bytes of one window of inputs.
const WINDOW: usize = 64;

/// Most fours of taps of one output that the kernels take. (Outputs whose windows fit have no
/// more.)
const MAX_GROUPS: usize = 4;

/// The whole number of any exact sum is in its bits 22 to 31: in its upper half, above so many
/// bits.
const IN_UPPER_HALF: u32 = EACH_BITS - 16;

/// The tables of the pass along the rows.
#[derive(Debug, Default)]
pub(in crate::geometry::resample) struct Columns {
    /// Whether the outputs lie near enough for the tables here.
    fits: bool,
    /// For where they do not.
    dots: Dots,
    /// For short rows.
    short: avx2::Columns,
    /// Where the window of every chunk of outputs begins.
    windows: Vec<u32>,
    /// Of every chunk, its fours of taps.
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

impl Columns {
    /// Makes the tables for `axis`, whose weights are rounded so.
    pub(in crate::geometry::resample) fn set(
        &mut self,
        cpu: Avx512,
        axis: &Axis,
        rounding: Rounding,
    ) {
        // SAFETY: an `Avx512` is proof that the processor has these instructions.
        unsafe { set(self, axis) }
        if self.fits {
            return;
        }
        self.dots.fits = axis.needed().len() >= WINDOW && self.dots.set(axis);
        if !self.dots.fits {
            self.short.set(cpu.avx2(), axis, rounding);
        }
    }

    /// `scalar::bytes`.
    pub(in crate::geometry::resample) fn bytes(
        &self,
        cpu: Avx512,
        axis: &Axis,
        rows: &[&[u8]],
        out: &mut [u8],
    ) {
        if !self.fits && !self.dots.fits {
            return self.short.bytes(cpu.avx2(), axis, rows, out);
        }
        // SAFETY: an `Avx512` is proof that the processor has these instructions.
        unsafe { bytes(self, axis, rows, out) }
    }

    /// `scalar::sixty_fourths`.
    pub(in crate::geometry::resample) fn sixty_fourths(
        &self,
        cpu: Avx512,
        axis: &Axis,
        rows: &[&[u8]],
        out: &mut [i16],
    ) {
        if !self.fits && !self.dots.fits {
            return self.short.sixty_fourths(cpu.avx2(), axis, rows, out);
        }
        // SAFETY: an `Avx512` is proof that the processor has these instructions.
        unsafe { sixty_fourths(self, axis, rows, out) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn set(columns: &mut Columns, axis: &Axis) {
    let Columns { fits, windows, steps, .. } = columns;
    windows.clear();
    steps.clear();
    let width = axis.needed().len();
    let n_groups = axis.n_taps / FOUR;
    let last_window = small(width.saturating_sub(WINDOW));
    let (firsts, _) = axis.firsts.as_chunks::<CHUNK>();
    let (lens, _) = axis.lens.as_chunks::<CHUNK>();
    let (weights, _) = axis.weights.as_chunks::<FOUR>();
    let weights = weights.chunks_exact(CHUNK * n_groups);
    *fits = n_groups <= MAX_GROUPS && width >= WINDOW;
    for ((firsts, lens), weights) in firsts.iter().zip(lens).zip(weights) {
        // The outputs go up, or, mirrored, down.
        let [a, b] = [0, CHUNK - 1];
        let window = firsts[a].min(firsts[b]).min(last_window);
        let end = (firsts[a] + lens[a]).max(firsts[b] + lens[b]);
        *fits &= end - window <= small(WINDOW);
        if !*fits {
            return;
        }
        windows.push(window);
        for group in 0..n_groups {
            let mut step = Step { index: [0; WINDOW], digits: [[0; WINDOW]; 3] };
            let places = firsts.map(|first| first - window + small(FOUR * group));
            let weights = weights.iter().skip(group).step_by(n_groups);
            step.set(&places, weights);
            steps.push(step);
        }
    }
}

/// A weight's digits, the lowest first, which are signed.
#[inline(always)]
fn digits(weight: i32) -> [u8; 3] {
    // What makes the signs of the lower digits right is taken out of them again.
    let [a, b, c, _] = (weight + 0x8080).to_le_bytes();
    [a ^ 0x80, b ^ 0x80, c]
}

impl Step {
    /// Four taps of each output: `places` in the window and after, with `weights`.
    #[inline(always)]
    fn set<'a>(
        &mut self,
        places: &[u32; CHUNK],
        weights: impl Iterator<Item = &'a [i32; FOUR]>,
    ) {
        let [low, middle, high] = &mut self.digits;
        for ((output, place), weights) in places.iter().enumerate().zip(weights) {
            for (tap, weight) in weights.iter().enumerate() {
                let i = FOUR * output + tap;
                // Behind the window there are only weights of 0.
                let [place, ..] =
                    (place + small(tap)).min(small(WINDOW - 1)).to_le_bytes();
                self.index[i] = place;
                [low[i], middle[i], high[i]] = digits(*weight);
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn bytes(columns: &Columns, axis: &Axis, rows: &[&[u8]], out: &mut [u8]) {
    if !columns.fits {
        return columns.dots.bytes(axis, rows, out);
    }
    let n_groups = axis.n_taps / FOUR;
    if axis.is_signed() || n_groups > 2 {
        return bytes_in_any_range(columns, axis, rows, out);
    }
    match (rows, n_groups) {
        (&[a, b, c], 1) => bytes_of::<false, 3, 1>(columns, [a, b, c], out),
        (&[a, b, c], 2) => bytes_of::<false, 3, 2>(columns, [a, b, c], out),
        _ => {
            for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts.len())) {
                match n_groups {
                    1 => bytes_of::<false, 1, 1>(columns, [row], out),
                    _ => bytes_of::<false, 1, 2>(columns, [row], out),
                }
            }
        }
    }
}

/// For sums that may leave the range of a byte. Apart from [`bytes`], which stays small and fast.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn bytes_in_any_range(columns: &Columns, axis: &Axis, rows: &[&[u8]], out: &mut [u8]) {
    let n_groups = axis.n_taps / FOUR;
    match (rows, n_groups) {
        (&[a, b, c], 1) => bytes_of::<true, 3, 1>(columns, [a, b, c], out),
        (&[a, b, c], 2) => bytes_of::<true, 3, 2>(columns, [a, b, c], out),
        (&[a, b, c], 3) => bytes_of::<true, 3, 3>(columns, [a, b, c], out),
        (&[a, b, c], _) => bytes_of::<true, 3, 4>(columns, [a, b, c], out),
        _ => {
            for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts.len())) {
                match n_groups {
                    1 => bytes_of::<true, 1, 1>(columns, [row], out),
                    2 => bytes_of::<true, 1, 2>(columns, [row], out),
                    3 => bytes_of::<true, 1, 3>(columns, [row], out),
                    _ => bytes_of::<true, 1, 4>(columns, [row], out),
                }
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn sixty_fourths(columns: &Columns, axis: &Axis, rows: &[&[u8]], out: &mut [i16]) {
    if !columns.fits {
        return columns.dots.sixty_fourths(axis, rows, out);
    }
    let n_groups = axis.n_taps / FOUR;
    if n_groups > 2 {
        return sixty_fourths_of_many_taps(columns, axis, rows, out);
    }
    match (rows, n_groups) {
        (&[a, b, c, d], 1) => sixty_fourths_of::<4, 1>(columns, [a, b, c, d], out),
        (&[a, b, c, d], 2) => sixty_fourths_of::<4, 2>(columns, [a, b, c, d], out),
        _ => {
            for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts.len())) {
                match n_groups {
                    1 => sixty_fourths_of::<1, 1>(columns, [row], out),
                    _ => sixty_fourths_of::<1, 2>(columns, [row], out),
                }
            }
        }
    }
}

/// Apart from [`sixty_fourths`], which stays small and fast.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn sixty_fourths_of_many_taps(
    columns: &Columns,
    axis: &Axis,
    rows: &[&[u8]],
    out: &mut [i16],
) {
    let n_groups = axis.n_taps / FOUR;
    match (rows, n_groups) {
        (&[a, b, c, d], 3) => sixty_fourths_of::<4, 3>(columns, [a, b, c, d], out),
        (&[a, b, c, d], _) => sixty_fourths_of::<4, 4>(columns, [a, b, c, d], out),
        _ => {
            for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts.len())) {
                match n_groups {
                    3 => sixty_fourths_of::<1, 3>(columns, [row], out),
                    _ => sixty_fourths_of::<1, 4>(columns, [row], out),
                }
            }
        }
    }
}

/// The tables are read once for all `ROWS`. Sums leave the range of a byte only where weights are
/// `SIGNED`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
fn bytes_of<const SIGNED: bool, const ROWS: usize, const GROUPS: usize>(
    columns: &Columns,
    rows: [&[u8]; ROWS],
    out: &mut [u8],
) {
    let (chunks, _) = columns.steps.as_chunks::<GROUPS>();
    let (chunks, _) = chunks.as_chunks::<2>();
    let (windows, _) = columns.windows.as_chunks::<2>();
    let n_blocks = windows.len().min(chunks.len());
    let mut places = split_rows::<_, ROWS>(out, n_blocks);
    let width = rows[0].len();
    let rows = rows.map(|row| &row[..width]);
    let last_bytes = load_512(&LAST_BYTES);
    for nth in 0..n_blocks {
        let ([first, second], chunks) = (windows[nth], &chunks[nth]);
        let (mut low, mut high) =
            ([_mm512_setzero_si512(); ROWS], [_mm512_setzero_si512(); ROWS]);
        for (sums, row) in low.iter_mut().zip(&rows) {
            *sums = exact_sums(window(row, first), &chunks[0]);
        }
        for (sums, row) in high.iter_mut().zip(&rows) {
            *sums = exact_sums(window(row, second), &chunks[1]);
        }
        for ((low, high), places) in low.into_iter().zip(high).zip(&mut places) {
            let bytes = if SIGNED {
                bytes_in_range(low, high)
            } else {
                let low = _mm512_slli_epi32::<TO_LAST_BYTE>(low);
                let high = _mm512_slli_epi32::<TO_LAST_BYTE>(high);
                let bytes = _mm512_permutex2var_epi8(low, last_bytes, high);
                _mm512_castsi512_si256(bytes)
            };
            store_256(&mut places[nth], bytes);
        }
    }
}

/// The tables are read once for all `ROWS`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
fn sixty_fourths_of<const ROWS: usize, const GROUPS: usize>(
    columns: &Columns,
    rows: [&[u8]; ROWS],
    out: &mut [i16],
) {
    let (chunks, _) = columns.steps.as_chunks::<GROUPS>();
    let (chunks, _) = chunks.as_chunks::<2>();
    let (windows, _) = columns.windows.as_chunks::<2>();
    let n_blocks = windows.len().min(chunks.len());
    let mut places = split_rows::<_, ROWS>(out, n_blocks);
    let width = rows[0].len();
    let rows = rows.map(|row| &row[..width]);
    for nth in 0..n_blocks {
        let ([first, second], chunks) = (windows[nth], &chunks[nth]);
        let (mut low, mut high) =
            ([_mm512_setzero_si512(); ROWS], [_mm512_setzero_si512(); ROWS]);
        for (sums, row) in low.iter_mut().zip(&rows) {
            *sums = planar_sums(window(row, first), &chunks[0]);
        }
        for (sums, row) in high.iter_mut().zip(&rows) {
            *sums = planar_sums(window(row, second), &chunks[1]);
        }
        for ((low, high), places) in low.into_iter().zip(high).zip(&mut places) {
            store_512(&mut places[nth], middle_halves(low, high));
        }
    }
}

/// 32 exact sums as bytes; those outside the range of a byte as 0 and 255.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn bytes_in_range(low: __m512i, high: __m512i) -> __m256i {
    let halves = _mm512_permutex2var_epi16(low, load_512(&UPPER_HALVES), high);
    let whole = _mm512_srai_epi16::<IN_UPPER_HALF>(halves);
    _mm512_cvtusepi16_epi8(_mm512_max_epi16(whole, _mm512_setzero_si512()))
}

/// 32 planar sums without the bits to drop.
#[inline]
#[target_feature(enable = "avx512f,avx512vbmi")]
fn middle_halves(low: __m512i, high: __m512i) -> __m512i {
    _mm512_permutex2var_epi8(low, load_512(&MIDDLE_BYTES), high)
}

/// The places of `ROWS` rows, `n_blocks` blocks each.
#[inline(always)]
fn split_rows<T, const ROWS: usize>(
    out: &mut [T],
    n_blocks: usize,
) -> [&mut [[T; BLOCK]]; ROWS] {
    let (mut rest, _) = out.as_chunks_mut::<BLOCK>();
    std::array::from_fn(|_| {
        let (row, later) = std::mem::take(&mut rest).split_at_mut(n_blocks);
        rest = later;
        row
    })
}

/// The bytes from `start` on.
#[inline]
#[target_feature(enable = "avx512f")]
fn window(row: &[u8], start: u32) -> __m512i {
    let window = row[start as usize..].first_chunk().expect("a window inside the row");
    load_512::<u8, WINDOW>(window)
}

/// Sixteen sums to which one half has been added.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
fn exact_sums<const GROUPS: usize>(window: __m512i, steps: &[Step; GROUPS]) -> __m512i {
    // One half, in the unit of the highest digit.
    let mut sums = _mm512_set1_epi32(1 << (EACH_BITS - 1 - 16));
    let mut taps = [window; GROUPS];
    for (taps, step) in taps.iter_mut().zip(steps) {
        *taps = _mm512_permutexvar_epi8(load_512(&step.index), window);
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
    sums
}

/// Sixteen rounded sums. The bits to drop are the first byte of each; in the last is the sign.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
fn planar_sums<const GROUPS: usize>(window: __m512i, steps: &[Step; GROUPS]) -> __m512i {
    let mut low = _mm512_set1_epi32(1 << (RUNNING_BITS - FRACTION_BITS - 1));
    let mut high = _mm512_setzero_si512();
    for step in steps {
        let taps = _mm512_permutexvar_epi8(load_512(&step.index), window);
        low = _mm512_dpbusd_epi32(low, taps, load_512(&step.digits[0]));
        high = _mm512_dpbusd_epi32(high, taps, load_512(&step.digits[1]));
    }
    _mm512_add_epi32(low, _mm512_slli_epi32::<8>(high))
}

/// Where the last bytes of 32 sums in two vectors are.
const LAST_BYTES: [u8; 64] = {
    let mut places = [0; 64];
    let mut i = 0;
    while i < 32 {
        places[i as usize] = 4 * i + 3;
        i += 1;
    }
    places
};

/// Where the upper halves of 32 sums in two vectors are.
const UPPER_HALVES: [i16; 32] = {
    let mut places = [1; 32];
    let mut i = 1;
    while i < 32 {
        places[i] = places[i - 1] + 2;
        i += 1;
    }
    places
};

/// Where the two bytes in the middle of 32 sums in two vectors are.
const MIDDLE_BYTES: [u8; 64] = {
    let mut places = [0; 64];
    let mut i = 0;
    while i < 32 {
        places[2 * i as usize] = 4 * i + 1;
        places[2 * i as usize + 1] = 4 * i + 2;
        i += 1;
    }
    places
};
