//! The pass along the columns: every row is a weighted sum of rows.
//!
//! The functions here are the meaning; a level may have twins. Rows lie one behind the other,
//! as many as there are weights, each as long as the result. Read `exact.rs` next.

use super::axis::{RUNNING_BITS, Rounding};
use super::columns::{FRACTION_BITS, byte_of};
#[cfg(target_arch = "aarch64")]
use super::neon;
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::kernels::Level;

/// Columns that are summed side by side.
const SIDE_BY_SIDE: usize = 512;

/// Blends rows of bytes into one. The weights are rounded each.
pub(super) fn bytes(level: Level, rows: &[u8], weights: &[i32], out: &mut [u8]) {
    if let Some(row) = only(Rounding::Each, rows, weights) {
        return out.copy_from_slice(row);
    }
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(cpu) => avx2::blend_bytes(cpu, rows, weights, out),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(cpu) => avx512::blend_bytes(cpu, rows, weights, out),
        #[cfg(target_arch = "aarch64")]
        Level::Neon(cpu) => neon::blend_bytes(cpu, rows, weights, out),
        Level::Scalar => bytes_scalar(rows, weights, out),
    }
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
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(cpu) => avx2::blend_sixty_fourths(cpu, rows, weights, out),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(cpu) => avx512::blend_sixty_fourths(cpu, rows, weights, out),
        #[cfg(target_arch = "aarch64")]
        Level::Neon(cpu) => neon::blend_sixty_fourths(cpu, rows, weights, out),
        Level::Scalar => portable::blend_sixty_fourths(rows, weights, out),
    }
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
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(cpu) => avx2::limit(cpu, values),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(cpu) => avx2::limit(cpu.avx2(), values),
        #[cfg(target_arch = "aarch64")]
        Level::Neon(_) => limit_scalar(values),
        Level::Scalar => limit_scalar(values),
    }
}

/// The scalar meaning of [`bytes`].
#[inline(always)]
pub(super) fn bytes_scalar(rows: &[u8], weights: &[i32], out: &mut [u8]) {
    blend(rows, weights, out, byte_of);
}

/// The scalar meaning of [`sixty_fourths`].
#[inline(always)]
pub(super) fn sixty_fourths_scalar(rows: &[i16], weights: &[i32], out: &mut [i16]) {
    blend(rows, weights, out, |sum| {
        let rounded = (sum + (1 << (RUNNING_BITS - 1))) >> RUNNING_BITS;
        i16::try_from(rounded).expect("less than twice 255 times 64")
    });
}

/// The scalar meaning of [`limit`].
#[inline(always)]
pub(super) fn limit_scalar(values: &mut [i16]) {
    values.iter_mut().for_each(|value| *value = (*value).clamp(0, 255 << FRACTION_BITS));
}

#[inline(always)]
fn blend<T: Copy + Into<i32>>(
    rows: &[T],
    weights: &[i32],
    out: &mut [T],
    round: impl Fn(i32) -> T,
) {
    let stride = out.len();
    assert_eq!(rows.len(), stride * weights.len(), "a row for every weight");
    for (nth, out) in out.chunks_mut(SIDE_BY_SIDE).enumerate() {
        let mut sums = [0; SIDE_BY_SIDE];
        for (row, &weight) in rows.chunks_exact(stride).zip(weights) {
            let inputs = &row[nth * SIDE_BY_SIDE..][..out.len()];
            for (sum, &value) in sums.iter_mut().zip(inputs) {
                *sum += value.into() * weight;
            }
        }
        for (value, sum) in out.iter_mut().zip(sums) {
            *value = round(sum);
        }
    }
}
