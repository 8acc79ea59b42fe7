//! The weights along one axis: which inputs make each output, and how much of each.
//!
//! Antialiased bilinear: an output is a weighted mean of inputs under a triangle around its
//! centre. The weights are computed in f64 with additions, multiplications and divisions
//! in the order written here (each IEEE-exact; no fused operations, no library functions),
//! then rounded to fixed point, so every machine gets the same integers. Nothing here
//! touches a pixel. Read `columns.rs` next.

use std::ops::Range;

use super::Mirror;

/// Outputs whose weights are worked out side by side.
const LANES: usize = 8;

/// Tables are filled up to a multiple of so many outputs, so that kernels need no tail. The
/// outputs beyond the last wanted one repeat it.
pub(super) const BLOCK: usize = 32;

/// Tables are filled up to a multiple of so many taps, with weights of 0.
pub(super) const TAP_GROUP: usize = 4;

/// How a box of inputs is laid over outputs, along one axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stretch {
    /// Where the box begins, in inputs from the first there is.
    pub start: f64,
    /// Length of the box, in inputs.
    pub len: f64,
    /// How many inputs there are. What lies beyond does not exist.
    pub n_in: usize,
    /// Half the width of the triangle, in inputs; at least 1.
    pub half_width: f64,
    /// How many outputs the whole box becomes.
    pub n_out: usize,
    /// Which of these are wanted; not empty.
    pub window: Range<usize>,
    /// Whether the wanted ones come in reverse order.
    pub mirror: Mirror,
}

impl Stretch {
    /// Lays `len` pixels from pixel `first` on, of which every `per_sample` share an input, over
    /// `n_out` outputs.
    ///
    /// An input for every pixel: the triangle is as wide as an output, at least as an input.
    /// Fewer: as wide as that triangle and the one that would have interpolated the pixels
    /// between the inputs are together, one after the other (their variances add).
    pub(super) fn new(
        [first, len, per_sample]: [u32; 3],
        n_out: u32,
        window: Range<u32>,
        mirror: Mirror,
    ) -> Self {
        assert!(len > 0 && !window.is_empty() && window.end <= n_out, "nothing to make");
        let before = first / per_sample;
        let end = (first + len).div_ceil(per_sample);
        let pixels_per_input = f64::from(per_sample);
        let scale = f64::from(len) / f64::from(n_out);
        let wide = scale.max(1.0) / pixels_per_input;
        let half_width = match per_sample {
            1 => wide,
            _ => (wide * wide + 1.0).sqrt(),
        };
        Self {
            start: f64::from(first % per_sample) / pixels_per_input,
            len: f64::from(len) / pixels_per_input,
            n_in: (end - before) as usize,
            half_width,
            n_out: n_out as usize,
            window: window.start as usize..window.end as usize,
            mirror,
        }
    }
}

/// How weights become integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    /// Each to the nearest multiple of 2^-22, as Pillow does.
    Each,
    /// Their running sum to the nearest multiple of 2^-14: the sum of all is exactly 1, however
    /// many there are, and each is less than one step off.
    Running,
}

/// Fraction bits of weights rounded by [`Rounding::Each`]: 32, less 8 for the pixel and 2 for
/// sign and carry.
pub(super) const EACH_BITS: u32 = 32 - 8 - 2;

/// Fraction bits of weights rounded by [`Rounding::Running`]: they fit 16 bits with a sign.
pub(super) const RUNNING_BITS: u32 = 14;

/// The weights of all wanted outputs. Keeps its memory from one image to the next.
#[derive(Debug, Default)]
pub(super) struct Axis {
    made_for: Option<(Stretch, Rounding)>,
    needed: Range<usize>,
    n_outputs: usize,
    n_taps: usize,
    spans: Vec<Span>,
    weights: Vec<i32>,
    /// Centres of the triangles, then where one block of weights is before it is rounded.
    centers: Vec<f64>,
    exact: Vec<[f64; LANES]>,
}

/// Which inputs make one output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// The first, counted from the first one needed.
    pub first: u32,
    /// How many; at least 1.
    pub len: u32,
}

impl Axis {
    /// Computes the weights for `stretch`.
    #[inline(always)]
    pub(super) fn set(&mut self, stretch: &Stretch, rounding: Rounding) {
        if self.made_for.as_ref().is_some_and(|(s, r)| s == stretch && *r == rounding) {
            return;
        }
        self.made_for = Some((stretch.clone(), rounding));
        self.n_outputs = stretch.window.len();
        self.set_spans(stretch);
        let n_padded = self.spans.len();
        self.weights.resize(n_padded * self.n_taps, 0);
        self.exact.resize(self.n_taps, [0.0; LANES]);
        let per_input = 1.0 / stretch.half_width;
        for block in 0..n_padded / LANES {
            let totals = self.set_exact(block * LANES, per_input);
            match rounding {
                Rounding::Each => self.round_each(block * LANES, totals),
                Rounding::Running => self.round_running(block * LANES, totals),
            }
        }
        let first = self.needed.start;
        for span in &mut self.spans {
            span.first -= small(first);
        }
    }

    /// The inputs that any wanted output is made of. Spans count from the first of them.
    pub(super) fn needed(&self) -> Range<usize> {
        self.needed.clone()
    }

    /// How many outputs are wanted.
    pub(super) fn n_outputs(&self) -> usize {
        self.n_outputs
    }

    /// How many weights each output has: a multiple of [`TAP_GROUP`].
    pub(super) fn n_taps(&self) -> usize {
        self.n_taps
    }

    /// What each output is made of, in order; a multiple of [`BLOCK`] of them.
    pub(super) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The weights of all spans, one after the other, [`Self::n_taps`] of each. Those beyond
    /// the span's length are 0. None is negative.
    pub(super) fn weights(&self) -> &[i32] {
        &self.weights
    }

    /// The weights of one output.
    pub(super) fn weights_of(&self, output: usize) -> &[i32] {
        &self.weights[output * self.n_taps..][..self.n_taps]
    }

    /// Where the triangles lie. Until the weights are made, spans count from input 0.
    #[inline(always)]
    fn set_spans(&mut self, stretch: &Stretch) {
        let Stretch { start, len, half_width, ref window, .. } = *stretch;
        let scale = len / stretch.n_out as f64;
        let n_padded = window.len().next_multiple_of(BLOCK);
        self.spans.clear();
        self.centers.clear();
        let mut needed = usize::MAX..0;
        let mut longest = 0;
        for nth in 0..n_padded {
            let nth = nth.min(window.len() - 1);
            let output = match stretch.mirror {
                Mirror::No => window.start + nth,
                Mirror::Horizontal => window.end - 1 - nth,
            };
            let center = start + (output as f64 + 0.5) * scale;
            let first = round_half_up(center - half_width);
            let end = round_half_up(center + half_width).min(stretch.n_in);
            needed = needed.start.min(first)..needed.end.max(end);
            longest = longest.max(end - first);
            self.centers.push(center);
            self.spans.push(Span { first: small(first), len: small(end - first) });
        }
        self.needed = needed;
        self.n_taps = longest.next_multiple_of(TAP_GROUP);
    }

    /// The triangles' heights for the outputs from `from` on, and their sums.
    #[inline(always)]
    fn set_exact(&mut self, from: usize, per_input: f64) -> [f64; LANES] {
        let mut firsts = [0.0; LANES];
        let mut lens = [0.0; LANES];
        let mut centers = [0.0; LANES];
        for lane in 0..LANES {
            let span = self.spans[from + lane];
            firsts[lane] = f64::from(span.first);
            lens[lane] = f64::from(span.len);
            centers[lane] = self.centers[from + lane];
        }
        let mut totals = [0.0; LANES];
        let mut tap = 0.0;
        for heights in &mut self.exact {
            for lane in 0..LANES {
                let input = firsts[lane] + tap;
                let distance = (input - centers[lane] + 0.5) * per_input;
                let height = (1.0 - distance.abs()).max(0.0);
                heights[lane] = if tap < lens[lane] { height } else { 0.0 };
                totals[lane] += heights[lane];
            }
            tap += 1.0;
        }
        totals
    }

    #[inline(always)]
    fn round_each(&mut self, from: usize, totals: [f64; LANES]) {
        let one = f64::from(1 << EACH_BITS);
        for (tap, heights) in self.exact.iter().enumerate() {
            for lane in 0..LANES {
                let weight = to_fixed(heights[lane] / totals[lane] * one);
                self.weights[(from + lane) * self.n_taps + tap] = weight;
            }
        }
    }

    #[inline(always)]
    fn round_running(&mut self, from: usize, totals: [f64; LANES]) {
        let one = f64::from(1 << RUNNING_BITS);
        let mut sums = [0.0; LANES];
        let mut rounded = [0; LANES];
        for (tap, heights) in self.exact.iter().enumerate() {
            for lane in 0..LANES {
                sums[lane] += heights[lane] / totals[lane];
                let next = to_fixed(sums[lane] * one);
                self.weights[(from + lane) * self.n_taps + tap] = next - rounded[lane];
                rounded[lane] = next;
            }
        }
    }
}

/// ⌊x + ½⌋, and 0 for what lies before the first input.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast is the rounding: it drops the fraction and saturates at 0"
)]
fn round_half_up(x: f64) -> usize {
    (x + 0.5) as usize
}

/// A weight in 0 ..= 2^22, rounded to nearest.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the cast is the rounding")]
fn to_fixed(weight: f64) -> i32 {
    (weight + 0.5) as i32
}

/// A position along an axis.
#[inline(always)]
fn small(position: usize) -> u32 {
    u32::try_from(position).expect("an axis is shorter than 2^32")
}
