//! The passes of planar numerics in loops that compilers make vector instructions of, on any
//! processor: products of 16-bit numbers, rows or columns side by side. For processors without
//! kernels of their own; the same numbers as the scalar meaning in `scalar.rs`.
#![allow(
    clippy::cast_possible_truncation,
    reason = "weights have 14 bits and a sign, sums of them the range of what they weigh"
)]

use super::axis::{Axis, RUNNING_BITS};
use super::scalar::{self, FRACTION_BITS, MAX_ROWS};

/// Outputs of a row that are made from one stretch of inputs; the most inputs of it.
const OUTPUTS: usize = 16;
const INPUTS: usize = 256;

/// The same column of four rows, two to a number: a sum of products has 22 bits, so the lower
/// half never reaches into the upper.
type Column = [u64; MAX_ROWS / 2];

/// [`scalar::sixty_fourths`], four rows at a time.
pub(super) fn sixty_fourths(axis: &Axis, rows: &[&[u8]], out: &mut [i16]) {
    // Of a negative product the lower half would borrow from the upper.
    if axis.is_signed() {
        return scalar::sixty_fourths(axis, rows, out);
    }
    let n_outputs = axis.firsts.len();
    let n_taps = axis.n_taps;
    let mut inputs = [[0; MAX_ROWS / 2]; INPUTS];
    for start in (0..n_outputs).step_by(OUTPUTS) {
        let outputs = start..n_outputs.min(start + OUTPUTS);
        let firsts = &axis.firsts[outputs.clone()];
        let lens = &axis.lens[outputs.clone()];
        let from = firsts.iter().copied().min().unwrap_or(0) as usize;
        let ends = firsts.iter().zip(lens).map(|(&first, &len)| (first + len) as usize);
        let to = ends.max().unwrap_or(0);
        let &[a, b, c, d] = rows else { return scalar::sixty_fourths(axis, rows, out) };
        if to - from > INPUTS {
            return scalar::sixty_fourths(axis, rows, out);
        }
        let inputs = &mut inputs[..to - from];
        side_by_side([a, b, c, d].map(|row| &row[from..to]), inputs);
        let weights = &axis.weights[start * n_taps..][..firsts.len() * n_taps];
        let part = Part { from, firsts, lens, weights, inputs };
        let out = Outputs { first: start, stride: n_outputs, values: out };
        match n_taps {
            2 => part.make::<2>(out),
            3 => part.make::<3>(out),
            4 => part.make::<4>(out),
            5 => part.make::<5>(out),
            6 => part.make::<6>(out),
            7 => part.make::<7>(out),
            8 => part.make::<8>(out),
            _ => part.make_any(n_taps, out),
        }
    }
}

/// Neighbouring outputs and what they are made of.
struct Part<'a> {
    /// The first of the inputs.
    from: usize,
    firsts: &'a [u32],
    lens: &'a [u32],
    weights: &'a [i32],
    inputs: &'a [Column],
}

/// Where outputs go.
struct Outputs<'a> {
    first: usize,
    stride: usize,
    values: &'a mut [i16],
}

impl Outputs<'_> {
    #[inline(always)]
    fn put(&mut self, nth: usize, [a, b, c, d]: [i16; MAX_ROWS]) {
        for (row, value) in [a, b, c, d].into_iter().enumerate() {
            self.values[row * self.stride + self.first + nth] = value;
        }
    }
}

impl Part<'_> {
    /// With a number of taps that is known beforehand: their loop is then written out.
    #[inline(always)]
    fn make<const N: usize>(&self, mut out: Outputs<'_>) {
        let weights = self.weights.chunks_exact(N);
        for (nth, ((&first, &len), weights)) in
            self.firsts.iter().zip(self.lens).zip(weights).enumerate()
        {
            let inputs = &self.inputs[first as usize - self.from..];
            let means = match inputs.first_chunk::<N>() {
                Some(inputs) => means(inputs, weights),
                None => means(&inputs[..len as usize], weights),
            };
            out.put(nth, means);
        }
    }

    fn make_any(&self, n_taps: usize, mut out: Outputs<'_>) {
        let weights = self.weights.chunks_exact(n_taps);
        for (nth, ((&first, &len), weights)) in
            self.firsts.iter().zip(self.lens).zip(weights).enumerate()
        {
            let inputs = &self.inputs[first as usize - self.from..][..len as usize];
            out.put(nth, means(inputs, weights));
        }
    }
}

/// The weighted means of four rows, in sixty-fourths.
#[inline(always)]
fn means(inputs: &[Column], weights: &[i32]) -> [i16; MAX_ROWS] {
    const DROPPED: u32 = RUNNING_BITS - FRACTION_BITS;
    let mut sums = [(1 << (DROPPED - 1)) * (1 | 1 << 32); MAX_ROWS / 2];
    for (column, &weight) in inputs.iter().zip(weights) {
        for (sum, &values) in sums.iter_mut().zip(column) {
            *sum += values * u64::from(weight.cast_unsigned());
        }
    }
    let [ab, cd] = sums.map(|sum| sum >> DROPPED);
    [ab as i16, (ab >> 32) as i16, cd as i16, (cd >> 32) as i16]
}

fn side_by_side([a, b, c, d]: [&[u8]; MAX_ROWS], columns: &mut [Column]) {
    let n = columns.len();
    let [a, b, c, d] = [&a[..n], &b[..n], &c[..n], &d[..n]];
    for (i, column) in columns.iter_mut().enumerate() {
        let [a, b, c, d] = [a[i], b[i], c[i], d[i]].map(u64::from);
        *column = [a | b << 32, c | d << 32];
    }
}

/// [`super::scalar::blend_sixty_fourths`].
pub(super) fn blend_sixty_fourths(rows: &[i16], weights: &[i32], out: &mut [i16]) {
    match weights.len() {
        1 => blend::<1>(rows, weights, out),
        2 => blend::<2>(rows, weights, out),
        3 => blend::<3>(rows, weights, out),
        4 => blend::<4>(rows, weights, out),
        5 => blend::<5>(rows, weights, out),
        6 => blend::<6>(rows, weights, out),
        7 => blend::<7>(rows, weights, out),
        8 => blend::<8>(rows, weights, out),
        _ => scalar::blend_sixty_fourths(rows, weights, out),
    }
}

/// With a number of rows that is known beforehand. A weight has 15 bits: said like this,
/// processors multiply eight at once.
fn blend<const N: usize>(rows: &[i16], weights: &[i32], out: &mut [i16]) {
    let stride = out.len();
    assert_eq!(rows.len(), stride * weights.len(), "a row for every weight");
    let weights: [i16; N] = std::array::from_fn(|nth| weights[nth] as i16);
    let rows: [&[i16]; N] = std::array::from_fn(|nth| &rows[nth * stride..][..stride]);
    for (x, out) in out.iter_mut().enumerate() {
        let mut sum = 1 << (RUNNING_BITS - 1);
        for (row, weight) in rows.iter().zip(weights) {
            sum += i32::from(row[x]) * i32::from(weight);
        }
        *out = (sum >> RUNNING_BITS) as i16;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use bothends_core::recipe::Interpolation;

    use super::super::axis::{Rounding, Stretch};
    use super::*;
    use crate::geometry::resample::Mirror;
    use crate::kernels::Level;

    proptest! {
        #[test]
        fn a_pass_along_the_rows_is_the_meaning(
            (inputs, outputs) in (1..900_u32, 1..60_u32),
            n_rows in 1..=MAX_ROWS,
            interpolation in prop_oneof![
                Just(Interpolation::Nearest),
                Just(Interpolation::Bilinear),
                Just(Interpolation::Bicubic),
            ],
            seed in any::<u8>(),
        ) {
            let mut axis = Axis::default();
            let stretch = Stretch {
                start: 0.0,
                len: f64::from(inputs),
                n_in: inputs,
                interpolation,
                widening: (f64::from(inputs) / f64::from(outputs)).max(1.0),
                n_out: outputs,
                window: 0..outputs,
                mirror: Mirror::No,
            };
            axis.set(Level::Scalar, &stretch, Rounding::Running);
            let width = axis.needed().len();
            let value = |i: usize| (i * 37 % 251) as u8 ^ seed;
            let rows: Vec<Vec<u8>> = (0..n_rows)
                .map(|row| (0..width).map(|x| value(x + row * 101)).collect())
                .collect();
            let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
            let mut need = vec![0; n_rows * axis.firsts.len()];
            let mut got = need.clone();
            scalar::sixty_fourths(&axis, &rows, &mut need);
            sixty_fourths(&axis, &rows, &mut got);
            prop_assert_eq!(need, got);
        }

        #[test]
        fn a_pass_along_the_columns_is_the_meaning(
            rows in prop::collection::vec(0..=255_i16 * 64, 1..1_000),
            n_rows in 1..12_usize,
        ) {
            let width = rows.len() / n_rows;
            prop_assume!(width > 0);
            // Every third row is taken off, an eighth of them all together.
            let one = 1 << RUNNING_BITS;
            let share = one / i32::try_from(n_rows).unwrap();
            let signed = |nth: usize| if nth % 3 == 1 { -share / 8 } else { share };
            let mut weights: Vec<i32> = (0..n_rows).map(signed).collect();
            weights[0] += one - weights.iter().sum::<i32>();
            let rows = &rows[..width * n_rows];
            let (mut need, mut got) = (vec![0; width], vec![0; width]);
            scalar::blend_sixty_fourths(rows, &weights, &mut need);
            blend_sixty_fourths(rows, &weights, &mut got);
            prop_assert_eq!(need, got);
        }
    }
}
