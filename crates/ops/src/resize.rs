//! Antialiased bilinear resize of 8-bit images, equal to Pillow's
//! `Image.resize(size, BILINEAR)` in every bit.
//!
//! Two passes: first along the rows, into bytes, then along the columns, as Pillow did up
//! to 12.x. (From 13 on it takes the columns first where that is cheaper, which moves
//! single values by one; here the order is part of the meaning and stays.) Each output is a
//! weighted sum of the inputs under a triangle whose half-width is one input pixel, or one
//! output pixel where that is larger (shrinking averages, enlarging interpolates). The
//! weights are computed in f64 with additions, multiplications and divisions in the order
//! written here (each IEEE-exact; no fused operations, no library functions), rounded to
//! 22-bit fixed point, and summed in integers, so every machine gets the same bytes.
//!
//! A pass whose size does not change is left out. Taps beyond the edge of the given view
//! do not exist: cropping first and resizing then never looks outside the crop.

use bothends_core::recipe::Size;

use crate::image::{Image, View};

/// Fraction bits of a weight: 32, less 8 for the pixel and 2 for sign and carry.
const WEIGHT_BITS: u32 = 32 - 8 - 2;

/// One half, in the unit of the sums: rounds them to nearest.
const HALF: i32 = 1 << (WEIGHT_BITS - 1);

/// Resizes images one after the other; keeps its tables' memory.
#[derive(Debug, Default)]
pub struct Resizer {
    columns: Axis,
    rows: Axis,
    /// After the first pass: new width, old height.
    narrowed: Image,
    sums: Vec<i32>,
}

impl Resizer {
    /// Resizes `src` to `size` into `out`, which takes that size and the channels of `src`.
    /// Of nothing comes a black image.
    pub fn resize(&mut self, src: View<'_>, size: Size, out: &mut Image) {
        let from = src.shape();
        out.reshape(size, from.channels);
        if from.is_empty() || out.shape().is_empty() {
            out.pixels_mut().fill(0);
            return;
        }
        match (from.width == size.width, from.height == size.height) {
            (true, true) => src.copy_to(out),
            (true, false) => self.resize_columns(src, out),
            (false, true) => self.resize_rows(src, out),
            (false, false) => {
                let mut narrowed = std::mem::take(&mut self.narrowed);
                narrowed.reshape(Size { height: from.height, ..size }, from.channels);
                self.resize_rows(src, &mut narrowed);
                self.resize_columns(narrowed.view(), out);
                self.narrowed = narrowed;
            }
        }
    }

    /// Gives the memory between the passes back if it is more than `keep_bytes`.
    pub(crate) fn release_above(&mut self, keep_bytes: usize) {
        self.narrowed.release_above(keep_bytes);
    }

    /// Along the rows: every pixel is a weighted sum of pixels of the same row of `src`.
    fn resize_rows(&mut self, src: View<'_>, out: &mut Image) {
        let channels = src.channels();
        self.columns.set(src.width(), out.width());
        let row_bytes = out.width() * channels;
        for (dst, src) in out.pixels_mut().chunks_exact_mut(row_bytes).zip(src.rows()) {
            let pixels = dst.chunks_exact_mut(channels);
            for (pixel, taps) in pixels.zip(self.columns.outputs()) {
                let inputs = src[taps.first * channels..].chunks_exact(channels);
                weigh(taps.weights.iter().zip(inputs), &mut self.sums, pixel);
            }
        }
    }

    /// Along the columns: every row is a weighted sum of rows of `src`.
    fn resize_columns(&mut self, src: View<'_>, out: &mut Image) {
        self.rows.set(src.height(), out.height());
        let row_bytes = out.width() * src.channels();
        let rows = out.pixels_mut().chunks_exact_mut(row_bytes);
        for (row, taps) in rows.zip(self.rows.outputs()) {
            let inputs = (taps.first..).map(|y| src.row(y));
            weigh(taps.weights.iter().zip(inputs), &mut self.sums, row);
        }
    }
}

/// Sums the inputs (each as long as `out`) times their weights and rounds to bytes. The
/// caller lends `sums` as memory.
fn weigh<'a>(
    inputs: impl Iterator<Item = (&'a i32, &'a [u8])>,
    sums: &mut Vec<i32>,
    out: &mut [u8],
) {
    sums.clear();
    sums.resize(out.len(), HALF);
    for (&weight, input) in inputs {
        for (sum, &value) in sums.iter_mut().zip(input) {
            *sum += i32::from(value) * weight;
        }
    }
    for (byte, &sum) in out.iter_mut().zip(&*sums) {
        // A triangle's sums stay in range but for the rounding of the weights, which may
        // carry 255 over the edge.
        let rounded = (sum >> WEIGHT_BITS).clamp(0, 255);
        *byte = u8::try_from(rounded).expect("clamped to a byte");
    }
}

/// The weights of all outputs along one axis.
#[derive(Debug, Default)]
struct Axis {
    /// Of each output: its first input and how many of `weights` are its own.
    spans: Vec<(usize, usize)>,
    weights: Vec<i32>,
    /// Where `set` works out one output's weights before they are rounded.
    exact: Vec<f64>,
    sizes: (usize, usize),
}

/// What one output is made of.
struct Taps<'a> {
    first: usize,
    weights: &'a [i32],
}

impl Axis {
    /// Computes the weights that turn `n_in` inputs into `n_out` outputs (both ≥ 1).
    fn set(&mut self, n_in: usize, n_out: usize) {
        if self.sizes == (n_in, n_out) {
            return;
        }
        self.sizes = (n_in, n_out);
        self.spans.clear();
        self.weights.clear();
        let scale = n_in as f64 / n_out as f64;
        let half_width = scale.max(1.0);
        for output in 0..n_out {
            let center = (output as f64 + 0.5) * scale;
            let first = round_half_up(center - half_width);
            let end = round_half_up(center + half_width).min(n_in);
            self.spans.push((first, end - first));
            self.push_weights(first..end, center, half_width);
        }
    }

    /// The triangle of `half_width` around `center`, normalised over `inputs` and rounded.
    fn push_weights(
        &mut self,
        inputs: std::ops::Range<usize>,
        center: f64,
        half_width: f64,
    ) {
        let per_pixel = 1.0 / half_width;
        self.exact.clear();
        self.exact.extend(inputs.map(|input| {
            let distance = (input as f64 - center + 0.5) * per_pixel;
            (1.0 - distance.abs()).max(0.0)
        }));
        let total: f64 = self.exact.iter().sum();
        let one = f64::from(1 << WEIGHT_BITS);
        self.weights
            .extend(self.exact.iter().map(|weight| to_fixed(weight / total * one)));
    }

    /// What each output is made of, in order.
    fn outputs(&self) -> impl Iterator<Item = Taps<'_>> {
        let mut rest = &self.weights[..];
        self.spans.iter().map(move |&(first, n_taps)| {
            let (weights, later) = rest.split_at(n_taps);
            rest = later;
            Taps { first, weights }
        })
    }
}

/// ⌊x + ½⌋, and 0 for what lies before the first input.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast is the rounding: it drops the fraction and saturates at 0"
)]
fn round_half_up(x: f64) -> usize {
    (x + 0.5) as usize
}

/// A weight in 0 ..= 2^22, rounded to nearest.
#[allow(clippy::cast_possible_truncation, reason = "the cast is the rounding")]
fn to_fixed(weight: f64) -> i32 {
    (weight + 0.5) as i32
}
