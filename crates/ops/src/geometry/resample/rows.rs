//! The pass along the columns: every row is a weighted sum of rows.
//!
//! The meaning is in `scalar.rs`; a level may have twins of it, which are chosen here. Rows lie
//! one after the other, as many as there are weights, each as long as the result. Read
//! `exact.rs` next.

use super::axis::Rounding;
#[cfg(target_arch = "aarch64")]
use super::neon;
#[cfg(target_arch = "x86_64")]
use super::x86::{self, blend::avx2, blend::avx512};
use super::{portable, scalar};
use crate::kernels::{Level, avx2_kernel, kernel};

/// Blends rows of bytes into one. The weights are rounded each.
pub(super) fn bytes(level: Level, rows: &[u8], weights: &[i32], out: &mut [u8]) {
    if let Some(row) = only(Rounding::Each, rows, weights) {
        return out.copy_from_slice(row);
    }
    kernel!(level, blend_bytes(rows, weights, out), scalar::blend_bytes);
}

/// Blends rows of sixty-fourths into one. The weights are rounded running.
pub(super) fn sixty_fourths(
    level: Level,
    rows: &[i16],
    weights: &[i32],
    out: &mut [i16],
) {
    if let Some(row) = only(Rounding::Running, rows, weights) {
        return out.copy_from_slice(row);
    }
    kernel!(
        level,
        blend_sixty_fourths(rows, weights, out),
        portable::blend_sixty_fourths
    );
}

/// The first row, if it has all of the weight.
fn only<'a, T>(rounding: Rounding, rows: &'a [T], weights: &[i32]) -> Option<&'a [T]> {
    let one = 1 << rounding.bits();
    let only = weights[0] == one && weights[1..].iter().all(|&weight| weight == 0);
    only.then(|| &rows[..rows.len() / weights.len()])
}

/// Cuts off what signed weights carry out of the range, in sixty-fourths: colours need no room
/// for it.
pub(super) fn limit(level: Level, values: &mut [i16]) {
    avx2_kernel!(level, x86::avx2::limit(values), scalar::limit);
}
