//! The weights along one axis: which inputs make each output, and how much of each.
//!
//! Antialiased bilinear: an output is a weighted mean of inputs under a triangle around its
//! centre. The weights are computed in f64 with additions, multiplications, divisions and
//! square roots in the order written here (each IEEE-exact; no fused operations, no other
//! functions), then rounded to fixed point, so every machine gets the same integers. Nothing here
//! touches a pixel. Read `columns.rs` next.

use std::ops::Range;

use super::Mirror;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::kernels::Level;

/// Outputs whose weights are worked out side by side.
const LANES: usize = 8;

/// Tables are filled up to a multiple of so many outputs, so that kernels need no tail. The
/// outputs beyond the last wanted one repeat it.
pub(super) const BLOCK: usize = 32;

/// Taps come by fours; what is missing is filled up with weights of 0.
pub(super) const FOUR: usize = 4;

/// How a box of inputs is laid over outputs, along one axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stretch {
    /// Where the box begins, in inputs from the first there is.
    pub start: f64,
    /// Length of the box, in inputs.
    pub len: f64,
    /// How many inputs there are. What lies beyond does not exist.
    pub n_in: u32,
    /// Half the width of the triangle, in inputs; at least 1.
    pub half_width: f64,
    /// How many outputs the whole box becomes.
    pub n_out: u32,
    /// Which of these are wanted; not empty.
    pub window: Range<u32>,
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
            n_in: end - before,
            half_width,
            n_out,
            window,
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
    /// How many inputs an output has at most; so many, and filling.
    longest: usize,
    n_taps: usize,
    firsts: Vec<u32>,
    lens: Vec<u32>,
    weights: Vec<i32>,
    /// Where the triangles' centres are.
    centers: Vec<f64>,
    /// How high the triangles of some outputs are, tap by tap.
    heights: Vec<[f64; LANES]>,
}

impl Axis {
    /// Computes the weights for `stretch`.
    pub(super) fn set(&mut self, level: Level, stretch: &Stretch, rounding: Rounding) {
        if self.made_for.as_ref().is_some_and(|(s, r)| s == stretch && *r == rounding) {
            return;
        }
        self.made_for = Some((stretch.clone(), rounding));
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(cpu) => avx512::compute(cpu, self, stretch, rounding),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(cpu) => avx2::compute(cpu, self, stretch, rounding),
            #[cfg(target_arch = "aarch64")]
            Level::Neon(_) => self.compute(stretch, rounding),
            Level::Scalar => self.compute(stretch, rounding),
        }
    }

    /// Levels have it compiled for their processor; for the compiler's sake everything goes by
    /// [`LANES`].
    #[inline(always)]
    pub(super) fn compute(&mut self, stretch: &Stretch, rounding: Rounding) {
        self.n_outputs = stretch.window.len();
        self.set_places(stretch);
        self.weights.resize(self.firsts.len() * self.n_taps, 0);
        self.heights.resize(self.n_taps, [0.0; LANES]);
        for block in 0..self.firsts.len() / LANES {
            let totals = self.set_heights(block, 1.0 / stretch.half_width);
            match rounding {
                Rounding::Each => self.round_each(block, totals),
                Rounding::Running => self.round_running(block, totals),
            }
        }
        let begin = self.firsts.iter().copied().min().unwrap_or(0);
        self.firsts.iter_mut().for_each(|first| *first -= begin);
        let ends = self.firsts.iter().zip(&self.lens).map(|(first, len)| first + len);
        let n_needed = ends.max().unwrap_or(0);
        self.needed = begin as usize..(begin + n_needed) as usize;
    }

    /// The inputs that any wanted output is made of. Spans count from the first of them.
    pub(super) fn needed(&self) -> Range<usize> {
        self.needed.clone()
    }

    /// How many outputs are wanted.
    pub(super) fn n_outputs(&self) -> usize {
        self.n_outputs
    }

    /// How many weights each output has: a multiple of [`FOUR`].
    pub(super) fn n_taps(&self) -> usize {
        self.n_taps
    }

    /// How many inputs an output has at most.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// The first input of each output, in order, counted from the first needed; a multiple of
    /// [`BLOCK`] of them.
    pub(super) fn firsts(&self) -> &[u32] {
        &self.firsts
    }

    /// How many inputs make each output; at least one.
    pub(super) fn lens(&self) -> &[u32] {
        &self.lens
    }

    /// How many outputs can be made of the first `n_inputs` of those needed, when `n_made` could
    /// be made before. For outputs in ascending order.
    pub(super) fn n_ready(&self, n_made: usize, n_inputs: usize) -> usize {
        let later = self.firsts.iter().zip(&self.lens).skip(n_made);
        let ready =
            later.take_while(|&(&first, &len)| (first + len) as usize <= n_inputs);
        (n_made + ready.count()).min(self.n_outputs)
    }

    /// The weights of all outputs, one after the other, [`Self::n_taps`] of each. Those beyond
    /// an output's inputs are 0. None is negative.
    pub(super) fn weights(&self) -> &[i32] {
        &self.weights
    }

    /// Where the inputs of one output begin, and their weights: an even number, the last perhaps
    /// 0.
    pub(super) fn inputs_of(&self, output: usize) -> (usize, &[i32]) {
        let weights = &self.weights[output * self.n_taps..];
        let n_weights = self.longest.next_multiple_of(2);
        (self.firsts[output] as usize, &weights[..n_weights])
    }

    /// Where the triangles lie. Until the weights are made, inputs count from 0.
    #[inline(always)]
    fn set_places(&mut self, stretch: &Stretch) {
        let Stretch { start, len, n_in, half_width, n_out, ref window, mirror } =
            *stretch;
        let scale = len / f64::from(n_out);
        let n_padded = window.len().next_multiple_of(BLOCK);
        self.firsts.resize(n_padded, 0);
        self.lens.resize(n_padded, 0);
        self.centers.resize(n_padded, 0.0);
        let places = self.firsts.iter_mut().zip(&mut self.lens).zip(&mut self.centers);
        let last = window.end - window.start - 1;
        for (nth, ((first, len), center)) in (0..).zip(places) {
            let nth = last.min(nth);
            let output = match mirror {
                Mirror::No => window.start + nth,
                Mirror::Horizontal => window.start + (last - nth),
            };
            *center = start + (f64::from(output) + 0.5) * scale;
            *first = round_half_up(*center - half_width);
            *len = round_half_up(*center + half_width).min(n_in) - *first;
        }
        let longest = self.lens.iter().copied().max().unwrap_or(0);
        self.longest = longest as usize;
        self.n_taps = self.longest.next_multiple_of(FOUR);
    }

    /// The triangles' heights over the inputs of one block of outputs, and their sums.
    #[inline(always)]
    fn set_heights(&mut self, block: usize, per_input: f64) -> [f64; LANES] {
        let centers = self.centers.as_chunks::<LANES>().0[block];
        let firsts = self.firsts.as_chunks::<LANES>().0[block].map(f64::from);
        let lens = self.lens.as_chunks::<LANES>().0[block].map(f64::from);
        let mut totals = [0.0; LANES];
        let mut tap = 0.0;
        for heights in &mut self.heights {
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
    fn round_each(&mut self, block: usize, totals: [f64; LANES]) {
        let one = f64::from(1 << EACH_BITS);
        for (four, heights) in self.heights.as_chunks::<FOUR>().0.iter().enumerate() {
            let mut rounded = [[0; LANES]; FOUR];
            for (rounded, heights) in rounded.iter_mut().zip(heights) {
                for lane in 0..LANES {
                    rounded[lane] = round_half_up(heights[lane] / totals[lane] * one);
                }
            }
            put(&mut self.weights, self.n_taps, [block, four], &rounded);
        }
    }

    #[inline(always)]
    fn round_running(&mut self, block: usize, totals: [f64; LANES]) {
        let one = f64::from(1 << RUNNING_BITS);
        let mut sums = [0.0; LANES];
        let mut before = [0; LANES];
        for (four, heights) in self.heights.as_chunks::<FOUR>().0.iter().enumerate() {
            let mut rounded = [[0; LANES]; FOUR];
            for (rounded, heights) in rounded.iter_mut().zip(heights) {
                for lane in 0..LANES {
                    sums[lane] += heights[lane] / totals[lane];
                    let sum = round_half_up(sums[lane] * one);
                    rounded[lane] = sum - before[lane];
                    before[lane] = sum;
                }
            }
            put(&mut self.weights, self.n_taps, [block, four], &rounded);
        }
    }
}

/// Writes the weights of four taps of one block of outputs, output by output.
#[inline(always)]
fn put(
    weights: &mut [i32],
    n_taps: usize,
    [block, four]: [usize; 2],
    rounded: &[[u32; LANES]; FOUR],
) {
    let weights = &mut weights[block * LANES * n_taps..][..LANES * n_taps];
    let (fours, _) = weights.as_chunks_mut::<FOUR>();
    for lane in 0..LANES {
        let taps = rounded.map(|tap| tap[lane].cast_signed());
        fours[lane * (n_taps / FOUR) + four] = taps;
    }
}

/// ⌊x + ½⌋ for x below 2^31, and 0 for what lies before the first input.
///
/// Compilers make no vectors of the cast that would do it.
#[inline(always)]
fn round_half_up(x: f64) -> u32 {
    // From here on an f64 has no fraction: adding it rounds, and leaves the whole number in the
    // lowest bits.
    const WHOLE: f64 = (1_u64 << 52) as f64;
    let x = (x + 0.5).max(0.0);
    let nearest = x + WHOLE;
    let [number, _] = halves(nearest.to_bits());
    number - u32::from(nearest - WHOLE > x)
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "halves are what is asked for")]
fn halves(bits: u64) -> [u32; 2] {
    [bits as u32, (bits >> 32) as u32]
}
