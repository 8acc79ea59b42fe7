//! Blending with NEON: a row of a pixel's window in a register, the four channels from each
//! pixel of it multiplied by that pixel's weight. The meaning is in `curve.rs`.
#![allow(unsafe_code, reason = "functions for this processor alone are called")]

use std::arch::aarch64::*;

use bothends_core::recipe::step::Warp;

use super::blend::{self, Block, RGB};
use super::curve::{Curve, DROPPED};
use crate::image::{Image, View};
use crate::kernels::Neon;
use crate::kernels::vectors::load_u8;

/// Interpolates between pixels of three channels, in images no smaller than windows.
pub(super) fn blended<const TAPS: usize, C: Curve<TAPS>>(
    _: Neon,
    src: View<'_>,
    warp: &Warp,
    out: &mut Image,
) {
    blend::blend_with::<TAPS, C>(src, warp, out, |src, block, out| {
        // SAFETY: a `Neon` is proof that the processor has these instructions.
        unsafe { blend_block::<TAPS>(src, block, out) }
    });
}

#[target_feature(enable = "neon")]
fn blend_block<const TAPS: usize>(src: View<'_>, block: &Block<TAPS>, out: &mut [u8]) {
    let (bytes, stride) = src.bytes();
    let last = block.at.iter().fold(0, |last, &at| at.max(last));
    // All of one length, so that what is inside one is inside all.
    let len = bytes.len().saturating_sub((TAPS - 1) * stride);
    if last as usize + 16 > len {
        // In the last row a register would be filled from beyond the image.
        return blend::blend_block(src, block, out);
    }
    let rows: [&[u8]; TAPS] = std::array::from_fn(|nth| &bytes[nth * stride..][..len]);
    for (n, out) in out.as_chunks_mut::<RGB>().0.iter_mut().enumerate() {
        let at = block.at[n] as usize;
        let across = block.across.each_ref().map(|weights| weights[n]);
        let mut sum = vdupq_n_s32(0);
        for (row, down) in rows.iter().zip(&block.down) {
            let row = load_u8(row[at..at + 16].first_chunk().expect("so many"));
            let row = vrshrn_n_s32::<{ DROPPED[0].cast_signed() }>(along(row, across));
            sum = vmlal_n_s16(sum, row, short(down[n]));
        }
        let values = vqmovn_s32(vrshrq_n_s32::<{ DROPPED[1].cast_signed() }>(sum));
        let bytes = vqmovun_s16(vcombine_s16(values, values));
        let [r, g, b, _] = vget_lane_u32::<0>(vreinterpret_u32_u8(bytes)).to_le_bytes();
        *out = [r, g, b];
    }
}

/// The weighted sum along a row; the fourth number is not used.
#[target_feature(enable = "neon")]
#[inline]
fn along<const TAPS: usize>(row: uint8x16_t, weights: [i32; TAPS]) -> int32x4_t {
    let low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(row)));
    let high = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(row)));
    let second = vget_low_s16(vextq_s16::<3>(low, high));
    let sum = vmull_n_s16(vget_low_s16(low), short(weights[0]));
    let sum = vmlal_n_s16(sum, second, short(weights[1]));
    if TAPS == 2 {
        return sum;
    }
    let third = vget_low_s16(vextq_s16::<6>(low, high));
    let fourth = vget_low_s16(vextq_s16::<1>(high, high));
    let sum = vmlal_n_s16(sum, third, short(weights[TAPS - 2]));
    vmlal_n_s16(sum, fourth, short(weights[TAPS - 1]))
}

/// A weight as kernels multiply it.
#[expect(clippy::cast_possible_truncation, reason = "weights are below 2 in 2^14")]
#[inline(always)]
fn short(weight: i32) -> i16 {
    weight as i16
}
