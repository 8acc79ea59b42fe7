//! Both passes with NEON: four sums at a time.
//!
//! The pass along the rows takes 16 bytes of input, of which one table lookup makes one tap of
//! four outputs, as 32-bit numbers. Where four outputs need more than 16 bytes, as those of an image
//! do that becomes less than a third as wide, the loops for any processor run. The pass along the
//! columns multiplies a row by its weight and adds. The meaning is in `scalar.rs`.

#![allow(unsafe_code, reason = "functions for this processor alone are called")]

use std::arch::aarch64::*;

use super::axis::{Axis, EACH_BITS, RUNNING_BITS};
use super::portable;
use super::scalar::{self, FRACTION_BITS};
use crate::kernels::Neon;
use crate::kernels::compiled::door;
use crate::kernels::vectors::{
    load_i16, load_i32, load_u8, store_i16, store_u8, store_u8_half,
};

/// Outputs of one vector of sums.
const LANE: usize = 4;

/// Bytes of one window of inputs.
const WINDOW: usize = 16;

/// The tables of the pass along the rows.
#[derive(Debug, Default)]
pub(super) struct Columns {
    fits: bool,
    /// Where the window of every vector of outputs begins.
    windows: Vec<u32>,
    /// Of every vector, its taps.
    steps: Vec<Step>,
}

/// One tap of four outputs.
#[derive(Debug, Clone)]
struct Step {
    /// Where in the window each input is; three bytes of four become 0.
    index: [u8; WINDOW],
    weights: [i32; LANE],
}

impl Columns {
    /// Makes the tables for `axis`.
    pub(super) fn set(&mut self, _: Neon, axis: &Axis) {
        let Self { fits, windows, steps } = self;
        windows.clear();
        steps.clear();
        let width = axis.needed().len();
        *fits = width >= WINDOW;
        let last_window = small(width.saturating_sub(WINDOW));
        let (firsts, _) = axis.firsts.as_chunks::<LANE>();
        let (lens, _) = axis.lens.as_chunks::<LANE>();
        for (nth, (firsts, lens)) in firsts.iter().zip(lens).enumerate() {
            // The outputs go up, or, mirrored, down.
            let [a, b] = [0, LANE - 1];
            let window = firsts[a].min(firsts[b]).min(last_window);
            let end = (firsts[a] + lens[a]).max(firsts[b] + lens[b]);
            *fits &= end - window <= small(WINDOW);
            if !*fits {
                return;
            }
            windows.push(window);
            for tap in 0..axis.longest {
                let mut step = Step { index: [u8::MAX; WINDOW], weights: [0; LANE] };
                for (lane, first) in firsts.iter().enumerate() {
                    // Behind the window there are only weights of 0.
                    let place = (first - window + small(tap)).min(small(WINDOW - 1));
                    step.index[4 * lane] = place.to_le_bytes()[0];
                    step.weights[lane] = axis.inputs_of(nth * LANE + lane).1[tap];
                }
                steps.push(step);
            }
        }
    }

    /// `scalar::bytes`.
    pub(super) fn bytes(&self, _: Neon, axis: &Axis, rows: &[&[u8]], out: &mut [u8]) {
        if !self.fits {
            return scalar::bytes(axis, rows, out);
        }
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts.len())) {
            // SAFETY: a `Neon` is proof that the processor has these instructions.
            unsafe { bytes_of(self, axis.longest, row, out) }
        }
    }

    /// `scalar::sixty_fourths`.
    pub(super) fn sixty_fourths(
        &self,
        _: Neon,
        axis: &Axis,
        rows: &[&[u8]],
        out: &mut [i16],
    ) {
        if !self.fits {
            return portable::sixty_fourths(axis, rows, out);
        }
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts.len())) {
            // SAFETY: a `Neon` is proof that the processor has these instructions.
            unsafe { sixty_fourths_of(self, axis.longest, row, out) }
        }
    }
}

door!(pub(super) fn blend_bytes(
    _: Neon,
    rows: &[u8],
    weights: &[i32],
    out: &mut [u8],
) = blend_bytes_of);

door!(pub(super) fn blend_sixty_fourths(
    _: Neon,
    rows: &[i16],
    weights: &[i32],
    out: &mut [i16],
) = blend_sixty_fourths_of);

fn small(place: usize) -> u32 {
    u32::try_from(place).expect("a place in a row")
}

#[target_feature(enable = "neon")]
fn bytes_of(columns: &Columns, n_taps: usize, row: &[u8], out: &mut [u8]) {
    let (windows, _) = columns.windows.as_chunks::<2>();
    let steps = columns.steps.chunks_exact(2 * n_taps);
    let (places, _) = out.as_chunks_mut::<{ 2 * LANE }>();
    for ((place, windows), steps) in places.iter_mut().zip(windows).zip(steps) {
        let (low, high) = steps.split_at(n_taps);
        let low = bytes_from(sums(window(row, windows[0]), low));
        let high = bytes_from(sums(window(row, windows[1]), high));
        store_u8_half(place, vqmovn_u16(vcombine_u16(low, high)));
    }
}

#[target_feature(enable = "neon")]
fn sixty_fourths_of(columns: &Columns, n_taps: usize, row: &[u8], out: &mut [i16]) {
    const DROPPED: i32 = (RUNNING_BITS - FRACTION_BITS).cast_signed();
    let (windows, _) = columns.windows.as_chunks::<2>();
    let steps = columns.steps.chunks_exact(2 * n_taps);
    let (places, _) = out.as_chunks_mut::<{ 2 * LANE }>();
    for ((place, windows), steps) in places.iter_mut().zip(windows).zip(steps) {
        let (low, high) = steps.split_at(n_taps);
        let low = vrshrn_n_s32::<DROPPED>(sums(window(row, windows[0]), low));
        let high = vrshrn_n_s32::<DROPPED>(sums(window(row, windows[1]), high));
        store_i16(place, vcombine_s16(low, high));
    }
}

/// The bytes from `start` on.
#[inline]
#[target_feature(enable = "neon")]
fn window(row: &[u8], start: u32) -> uint8x16_t {
    load_u8(row[start as usize..].first_chunk().expect("a window inside the row"))
}

/// Four sums.
#[inline]
#[target_feature(enable = "neon")]
fn sums(window: uint8x16_t, steps: &[Step]) -> int32x4_t {
    let mut sums = vdupq_n_s32(0);
    for step in steps {
        let inputs = vqtbl1q_u8(window, load_u8(&step.index));
        sums = vmlaq_s32(sums, vreinterpretq_s32_u8(inputs), load_i32(&step.weights));
    }
    sums
}

/// Four exact sums as bytes, not yet limited to 255.
#[inline]
#[target_feature(enable = "neon")]
fn bytes_from(sums: int32x4_t) -> uint16x4_t {
    vqmovun_s32(vrshrq_n_s32::<{ EACH_BITS.cast_signed() }>(sums))
}

#[target_feature(enable = "neon")]
fn blend_bytes_of(rows: &[u8], weights: &[i32], out: &mut [u8]) {
    let (rows, _) = rows.as_chunks::<16>();
    let (out, _) = out.as_chunks_mut::<16>();
    let stride = out.len();
    assert_eq!(rows.len(), stride * weights.len(), "a row for every weight");
    for (nth, out) in out.iter_mut().enumerate() {
        let mut sums = [vdupq_n_s32(0); 4];
        for (inputs, &weight) in rows.iter().skip(nth).step_by(stride).zip(weights) {
            let inputs = load_u8(inputs);
            let low = vmovl_u8(vget_low_u8(inputs));
            let high = vmovl_high_u8(inputs);
            let quarters = [
                vmovl_u16(vget_low_u16(low)),
                vmovl_high_u16(low),
                vmovl_u16(vget_low_u16(high)),
                vmovl_high_u16(high),
            ];
            for (sums, inputs) in sums.iter_mut().zip(quarters) {
                *sums = vmlaq_n_s32(*sums, vreinterpretq_s32_u32(inputs), weight);
            }
        }
        let low = vcombine_u16(bytes_from(sums[0]), bytes_from(sums[1]));
        let high = vcombine_u16(bytes_from(sums[2]), bytes_from(sums[3]));
        store_u8(out, vqmovn_high_u16(vqmovn_u16(low), high));
    }
}

#[target_feature(enable = "neon")]
fn blend_sixty_fourths_of(rows: &[i16], weights: &[i32], out: &mut [i16]) {
    const BITS: i32 = RUNNING_BITS.cast_signed();
    let (rows, _) = rows.as_chunks::<8>();
    let (out, _) = out.as_chunks_mut::<8>();
    let stride = out.len();
    assert_eq!(rows.len(), stride * weights.len(), "a row for every weight");
    for (nth, out) in out.iter_mut().enumerate() {
        let (mut low, mut high) = (vdupq_n_s32(0), vdupq_n_s32(0));
        for (inputs, &weight) in rows.iter().skip(nth).step_by(stride).zip(weights) {
            let inputs = load_i16(inputs);
            let weight = i16::try_from(weight).expect("below 2 times 2^14");
            low = vmlal_n_s16(low, vget_low_s16(inputs), weight);
            high = vmlal_high_n_s16(high, inputs, weight);
        }
        store_i16(out, vrshrn_high_n_s32::<BITS>(vrshrn_n_s32::<BITS>(low), high));
    }
}
