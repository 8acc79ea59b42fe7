//! Planes of lower resolution become rows of pixels: libjpeg's "fancy" upsampling.
//!
//! Two samples to one (T.81 leaves it open; jdsample.c): a triangle filter whose weights are
//! ¾ and ¼, across, down, or both; the first and the last sample of a row, and the first and
//! last row, have no neighbour and stand for themselves. Rounding alternates, so that it
//! does not add up. Rows of one or two samples, and all other ratios, are repeated. The
//! neighbours are those of the whole plane, so a region has the same pixels as the image.
//! Read `colour.rs` next.
#![allow(clippy::cast_possible_truncation, reason = "weighted means of bytes are bytes")]

use std::ops::Range;

use super::planes::Plane;
use crate::kernels::{Level, avx2_kernel};

#[cfg(target_arch = "x86_64")]
mod x86;

/// Makes rows of pixels; keeps its memory.
#[derive(Debug, Default)]
pub(crate) struct Upsampler {
    /// Sums of two rows, ¾ and ¼ of them times 4.
    sums: Vec<u16>,
    pixels: Vec<u8>,
}

impl Upsampler {
    /// Row `y` of the image, in `columns`, as `plane` has it. Borrowed from the plane where
    /// that has the image's resolution.
    pub(crate) fn row<'a>(
        &'a mut self,
        level: Level,
        plane: &'a Plane,
        y: usize,
        columns: Range<usize>,
    ) -> &'a [u8] {
        let [across, down] = plane.ratio();
        let [width, height] = plane.size();
        match ([across, down], width > 2) {
            ([1, 1], _) => plane.row(y, columns),
            ([1, 2], _) => {
                let [near, far] =
                    neighbours(y, height).map(|y| plane.row(y, columns.clone()));
                self.pixels.resize(near.len(), 0);
                let round = 1 + (y & 1) as u16;
                let pixels = &mut self.pixels;
                avx2_kernel!(level, x86::blend([near, far], round, pixels), blend);
                &self.pixels
            }
            ([2, 1], true) => {
                let samples = around(&columns, width);
                let row = plane.row(y, samples.clone());
                self.sums.clear();
                self.sums.extend(row.iter().map(|&sample| u16::from(sample)));
                self.spread(level, Weights::ACROSS, (samples, columns), width)
            }
            ([2, 2], true) => {
                let samples = around(&columns, width);
                let rows = neighbours(y, height);
                let [near, far] = rows.map(|y| plane.row(y, samples.clone()));
                self.sums.resize(near.len(), 0);
                avx2_kernel!(level, x86::sum([near, far], &mut self.sums), sum);
                self.spread(level, Weights::BOTH, (samples, columns), width)
            }
            _ => {
                let samples = columns.start / across..(columns.end - 1) / across + 1;
                let row = plane.row(y / down, samples.clone());
                let pixels = row.iter().flat_map(|&s| std::iter::repeat_n(s, across));
                self.pixels.clear();
                self.pixels.extend(pixels);
                within(&self.pixels, samples.start * across, &columns)
            }
        }
    }

    /// Twice as many pixels across as there are `sums`, which are of `samples`.
    fn spread(
        &mut self,
        level: Level,
        weights: Weights,
        (samples, columns): (Range<usize>, Range<usize>),
        width: usize,
    ) -> &[u8] {
        self.pixels.resize(2 * samples.len(), 0);
        let (sums, pixels) = (&self.sums, &mut self.pixels);
        avx2_kernel!(level, x86::spread(weights, sums, pixels), spread);
        // At the ends of what was decoded a neighbour is missing: it is outside the columns
        // asked for, or outside the image.
        let (first, last) = (self.sums[0], self.sums[self.sums.len() - 1]);
        if samples.start == 0 {
            self.pixels[0] = weights.alone(first, weights.round_left);
        }
        if samples.end == width {
            let end = self.pixels.len() - 1;
            self.pixels[end] = weights.alone(last, weights.round_right);
        }
        within(&self.pixels, 2 * samples.start, &columns)
    }
}

/// How sums become pixels across a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weights {
    round_left: u16,
    round_right: u16,
    shift: u32,
}

impl Weights {
    /// Of samples as they are (`h2v1_fancy_upsample`).
    const ACROSS: Self = Self { round_left: 1, round_right: 2, shift: 2 };

    /// Of sums over two rows (`h2v2_fancy_upsample`).
    const BOTH: Self = Self { round_left: 8, round_right: 7, shift: 4 };

    /// A pixel whose sample has no neighbour.
    fn alone(self, sum: u16, round: u16) -> u8 {
        let round = if self.shift == 2 { 0 } else { round };
        ((4 * sum + round) >> self.shift) as u8
    }
}

/// The rows that pixel row `y` lies between, the nearer one first.
fn neighbours(y: usize, height: usize) -> [usize; 2] {
    let near = y / 2;
    let far = if y.is_multiple_of(2) {
        near.saturating_sub(1)
    } else {
        (near + 1).min(height - 1)
    };
    [near, far]
}

/// The samples that pixel `columns` are made of at two to one, neighbours included.
fn around(columns: &Range<usize>, width: usize) -> Range<usize> {
    (columns.start / 2).saturating_sub(1)..(columns.end.div_ceil(2) + 1).min(width)
}

/// `columns` of pixels that begin at column `first`.
fn within<'a>(pixels: &'a [u8], first: usize, columns: &Range<usize>) -> &'a [u8] {
    &pixels[columns.start - first..columns.end - first]
}

/// (3 near + far + round) / 4.
#[inline(always)]
fn blend([near, far]: [&[u8]; 2], round: u16, out: &mut [u8]) {
    for ((out, &near), &far) in out.iter_mut().zip(near).zip(far) {
        *out = ((3 * u16::from(near) + u16::from(far) + round) >> 2) as u8;
    }
}

/// 3 near + far.
#[inline(always)]
fn sum([near, far]: [&[u8]; 2], out: &mut [u16]) {
    for ((out, &near), &far) in out.iter_mut().zip(near).zip(far) {
        *out = 3 * u16::from(near) + u16::from(far);
    }
}

/// For each sum with two neighbours, the pixels left and right of it.
#[inline(always)]
fn spread(weights: Weights, sums: &[u16], out: &mut [u8]) {
    let Weights { round_left, round_right, shift } = weights;
    let pixels = |left: u16, own: u16, right: u16| {
        let left = (3 * own + left + round_left) >> shift;
        let right = (3 * own + right + round_right) >> shift;
        [left as u8, right as u8]
    };
    let (pairs, _) = out.as_chunks_mut::<2>();
    let Some(last) = sums.len().checked_sub(1) else { return };
    pairs[0] = pixels(sums[0], sums[0], sums[1.min(last)]);
    pairs[last] = pixels(sums[last.saturating_sub(1)], sums[last], sums[last]);
    let inner = pairs.iter_mut().skip(1).zip(sums.windows(3));
    for (pair, window) in inner {
        *pair = pixels(window[0], window[1], window[2]);
    }
}
