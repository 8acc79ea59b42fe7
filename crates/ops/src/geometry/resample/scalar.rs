//! The two passes as they are meant: weighted sums, rounded, value by value.
//!
//! Every kernel gives the same bytes. Who chooses one is `columns.rs` and `rows.rs`; read these
//! next.

use super::axis::{Axis, EACH_BITS, FOUR, RUNNING_BITS};

/// Fraction bits of what planar numerics keep between the passes.
pub(super) const FRACTION_BITS: u32 = 6;

/// Most rows that are resized at once.
pub(super) const MAX_ROWS: usize = 4;

/// Columns that are summed side by side.
const SIDE_BY_SIDE: usize = 512;

/// Rounds a sum of bytes times weights to a byte. A cubic's sums leave the range; a triangle's
/// stay in it except for the rounding of the weights, which may carry 255 over the edge.
#[inline(always)]
fn byte_of(sum: i32) -> u8 {
    let rounded = (sum + (1 << (EACH_BITS - 1))) >> EACH_BITS;
    u8::try_from(rounded.clamp(0, 255)).expect("clamped to a byte")
}

/// The pass along the rows, to bytes.
#[inline(always)]
pub(super) fn bytes(axis: &Axis, rows: &[&[u8]], out: &mut [u8]) {
    for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts.len())) {
        for (byte, sum) in out.iter_mut().zip(sums(axis, row)) {
            *byte = byte_of(sum);
        }
    }
}

/// The pass along the rows, to sixty-fourths.
#[inline(always)]
pub(super) fn sixty_fourths(axis: &Axis, rows: &[&[u8]], out: &mut [i16]) {
    const DROPPED: u32 = RUNNING_BITS - FRACTION_BITS;
    for (row, out) in rows.iter().zip(out.chunks_exact_mut(axis.firsts.len())) {
        for (value, sum) in out.iter_mut().zip(sums(axis, row)) {
            let rounded = (sum + (1 << (DROPPED - 1))) >> DROPPED;
            *value = i16::try_from(rounded).expect("below 2 * 255 * 64");
        }
    }
}

#[inline(always)]
fn sums(axis: &Axis, row: &[u8]) -> impl Iterator<Item = i32> {
    let weights = axis.weights.chunks_exact(axis.n_taps);
    let places = axis.firsts.iter().zip(&axis.lens);
    places.zip(weights).map(|((&first, &len), weights)| {
        let inputs = &row[first as usize..];
        // Most have four taps; then the loop below is written out.
        match (inputs.first_chunk::<FOUR>(), <&[i32; FOUR]>::try_from(weights)) {
            (Some(inputs), Ok(weights)) => dot(inputs, weights),
            _ => dot(&inputs[..len as usize], weights),
        }
    })
}

#[inline(always)]
fn dot(inputs: &[u8], weights: &[i32]) -> i32 {
    inputs.iter().zip(weights).map(|(&input, &weight)| i32::from(input) * weight).sum()
}

/// The pass along the columns, of bytes.
#[inline(always)]
pub(super) fn blend_bytes(rows: &[u8], weights: &[i32], out: &mut [u8]) {
    blend(rows, weights, out, byte_of);
}

/// The pass along the columns, of sixty-fourths.
#[inline(always)]
pub(super) fn blend_sixty_fourths(rows: &[i16], weights: &[i32], out: &mut [i16]) {
    blend(rows, weights, out, |sum| {
        let rounded = (sum + (1 << (RUNNING_BITS - 1))) >> RUNNING_BITS;
        i16::try_from(rounded).expect("less than twice 255 times 64")
    });
}

/// Cuts off what signed weights carry out of the range.
#[inline(always)]
pub(super) fn limit(values: &mut [i16]) {
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
