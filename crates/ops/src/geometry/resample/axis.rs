//! The weights along one axis: which inputs make each output, and how much of each.
//!
//! An output is a weighted mean of inputs under a filter around its centre (`axis/filter.rs`): a
//! triangle for bilinear, a cubic for bicubic. Nearest is one input with all of the weight. The
//! weights are computed in f64 with additions, multiplications, divisions and square roots in the
//! order written here (each IEEE-exact; no fused operations, no other functions), then rounded to
//! fixed point, so every machine gets the same integers. Nothing here touches a pixel. Read
//! `scalar.rs` next.
//!
//! Cubic and Lanczos have negative weights, so means may leave the range of what they are made of.
//! Weights whose sum is 1 and whose amounts come to `a` make of values from 0 to `v` means from
//! `v * (1 - a) / 2` to `v * (1 + a) / 2`; after two passes `a * a` stands for `a`. Of the cubic
//! `a` is at most 1.27, and 1.25 in the middle between two pixels; of Lanczos it is at most 1.6; the
//! tests below look for more. 32 bits hold exact sums up to 2, 16 bits sixty-fourths after both
//! passes up to 1.7.

mod filter;

use std::ops::Range;

use bothends_core::recipe::Interpolation;

use self::filter::{Filter, floor};
use super::Mirror;
use crate::kernels::Level;
use crate::kernels::compiled::{Work, run};

/// Outputs whose weights are worked out side by side.
const LANES: usize = 8;

/// Tables are filled up to a multiple of so many outputs, so that kernels need no tail. The
/// outputs beyond the last wanted one repeat it.
pub(super) const BLOCK: usize = 32;

/// Taps come by fours; what is missing is filled up with weights of 0.
pub(super) const FOUR: usize = 4;

/// How a box of inputs is laid over outputs, along one axis: all that the weights follow from,
/// here and on machines that compute them themselves (the GPU's kernels).
#[derive(Debug, Clone, PartialEq)]
pub struct Stretch {
    /// Where the box begins, in inputs from the first there is.
    pub start: f64,
    /// Length of the box, in inputs.
    pub len: f64,
    /// How many inputs there are. What lies beyond does not exist.
    pub n_in: u32,
    /// Which filter.
    pub interpolation: Interpolation,
    /// How many times as wide as it is defined the filter is; at least 1.
    pub widening: f64,
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
    /// An input for every pixel: the filter is as wide as for an output, at least for an input.
    /// Fewer: as wide as a triangle like that and the one that would have interpolated the
    /// pixels between the inputs are together, one after the other (their variances add).
    pub(super) fn new(
        [first, len, per_sample]: [u32; 3],
        n_out: u32,
        window: Range<u32>,
        interpolation: Interpolation,
        mirror: Mirror,
    ) -> Self {
        assert!(len > 0 && !window.is_empty() && window.end <= n_out, "nothing to make");
        let before = first / per_sample;
        let end = (first + len).div_ceil(per_sample);
        let pixels_per_input = f64::from(per_sample);
        let scale = f64::from(len) / f64::from(n_out);
        let wide = scale.max(1.0) / pixels_per_input;
        let widening = match per_sample {
            1 => wide,
            _ => (wide * wide + 1.0).sqrt(),
        };
        Self {
            start: f64::from(first % per_sample) / pixels_per_input,
            len: f64::from(len) / pixels_per_input,
            n_in: end - before,
            interpolation,
            widening,
            n_out,
            window,
            mirror,
        }
    }

    /// Inputs from the centre of one output to that of the next.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.len / f64::from(self.n_out)
    }

    /// Half the width of the filter, in inputs; 0 of nearest, which has none.
    #[must_use]
    pub fn reach(&self) -> f64 {
        Filter::of(self.interpolation)
            .map_or(0.0, |filter| filter.reach() * self.widening)
    }

    /// The inputs that the wanted outputs are made of.
    #[must_use]
    pub fn needed(&self) -> Range<u32> {
        let (first, last) = (self.window.start, self.window.end - 1);
        if self.interpolation == Interpolation::Nearest {
            let mut centers = self.centers();
            let mut input = |n| self.nearest(centers.nth(n).unwrap_or(0.0));
            let start = input(0);
            let end =
                if last > first { input((last - first - 1) as usize) } else { start };
            return start..end + 1;
        }
        let (scale, reach) = (self.scale(), self.reach());
        // Places grow with the output.
        let (_, start, _) = self.place(first, scale, reach);
        let (_, begin, len) = self.place(last, scale, reach);
        start..begin + len
    }

    /// The centre of an output, its first input and how many it has.
    #[inline(always)]
    fn place(&self, output: u32, scale: f64, reach: f64) -> (f64, u32, u32) {
        let center = self.start + (f64::from(output) + 0.5) * scale;
        // What lies before the first input does not exist.
        let nearest = |place: f64| floor((place + 0.5).max(0.0)).cast_unsigned();
        let first = nearest(center - reach);
        (center, first, nearest(center + reach).min(self.n_in) - first)
    }

    /// The centres of the wanted outputs for nearest. As in Pillow, each is the one before plus
    /// the scale, with what rounding that brings.
    fn centers(&self) -> impl Iterator<Item = f64> {
        let scale = self.scale();
        let mut center = self.start + scale * 0.5;
        for _ in 0..self.window.start {
            center += scale;
        }
        std::iter::successors(Some(center), move |center| Some(center + scale))
    }

    /// The input that a centre lies in.
    fn nearest(&self, center: f64) -> u32 {
        floor(center).cast_unsigned().min(self.n_in - 1)
    }
}

/// How weights become integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    /// Each to the nearest multiple of 2^-22, halves away from 0, as Pillow does.
    Each,
    /// Their running sum to the nearest multiple of 2^-14: the sum of all is exactly 1, however
    /// many there are, and each is less than one step off.
    Running,
}

impl Rounding {
    /// Fraction bits of the weights.
    pub(super) fn bits(self) -> u32 {
        match self {
            Self::Each => EACH_BITS,
            Self::Running => RUNNING_BITS,
        }
    }
}

/// Fraction bits of weights rounded by [`Rounding::Each`]: 32, less 8 for the pixel and 2 for
/// sign and carry.
pub(super) const EACH_BITS: u32 = 32 - 8 - 2;

/// Fraction bits of weights rounded by [`Rounding::Running`]: those below 2 fit 16 bits with a
/// sign.
pub(super) const RUNNING_BITS: u32 = 14;

/// The weights of all wanted outputs. Keeps its memory from one image to the next.
#[derive(Debug, Default)]
pub(super) struct Axis {
    made_for: Option<(Stretch, Rounding)>,
    needed: Range<usize>,
    /// How many outputs are wanted.
    pub(super) n_outputs: usize,
    /// How many inputs an output has at most; so many, and filling.
    pub(super) longest: usize,
    /// How many weights each output has: a multiple of [`FOUR`].
    pub(super) n_taps: usize,
    /// The first input of each output, in order, counted from the first needed; a multiple of
    /// [`BLOCK`] of them.
    pub(super) firsts: Vec<u32>,
    /// How many inputs make each output; at least one.
    pub(super) lens: Vec<u32>,
    /// The weights of all outputs, one after the other, `n_taps` of each. Those beyond an output's
    /// inputs are 0.
    pub(super) weights: Vec<i32>,
    /// Where the filters' centres are.
    centers: Vec<f64>,
    /// How high the filters of some outputs are, tap by tap.
    heights: Vec<[f64; LANES]>,
}

impl Axis {
    /// Computes the weights for `stretch`.
    pub(super) fn set(&mut self, level: Level, stretch: &Stretch, rounding: Rounding) {
        if self.made_for.as_ref().is_some_and(|(s, r)| s == stretch && *r == rounding) {
            return;
        }
        self.made_for = Some((stretch.clone(), rounding));
        run(level, Computing { axis: self, stretch, rounding });
    }

    /// For the compiler's sake everything goes by [`LANES`].
    #[inline(always)]
    fn compute(&mut self, stretch: &Stretch, rounding: Rounding) {
        self.n_outputs = stretch.window.len();
        let n_padded = self.n_outputs.next_multiple_of(BLOCK);
        self.firsts.resize(n_padded, 0);
        self.lens.resize(n_padded, 0);
        match Filter::of(stretch.interpolation) {
            None => self.choose(stretch, rounding),
            Some(filter) => self.weigh(stretch, rounding, filter),
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

    /// Whether weights may be negative: means may then lie beyond what they are made of.
    pub(super) fn is_signed(&self) -> bool {
        let interpolation = self.made_for.as_ref().map(|(s, _)| s.interpolation);
        interpolation.and_then(Filter::of).is_some_and(Filter::is_signed)
    }

    /// How many outputs can be made of the first `n_inputs` of those needed, when `n_made` could
    /// be made before. For outputs in ascending order.
    pub(super) fn n_ready(&self, n_made: usize, n_inputs: usize) -> usize {
        let later = self.firsts.iter().zip(&self.lens).skip(n_made);
        let ready =
            later.take_while(|&(&first, &len)| (first + len) as usize <= n_inputs);
        (n_made + ready.count()).min(self.n_outputs)
    }

    /// Where the inputs of one output begin, and their weights: an even number, the last perhaps
    /// 0.
    pub(super) fn inputs_of(&self, output: usize) -> (usize, &[i32]) {
        let weights = &self.weights[output * self.n_taps..];
        let n_weights = self.longest.next_multiple_of(2);
        (self.firsts[output] as usize, &weights[..n_weights])
    }

    /// Gives all of the weight to the input that an output's centre lies in.
    #[inline(always)]
    fn choose(&mut self, stretch: &Stretch, rounding: Rounding) {
        let mut centers = stretch.centers();
        self.lens.fill(1);
        let (wanted, filling) = self.firsts.split_at_mut(self.n_outputs);
        let mut put = |first: &mut u32| {
            *first = stretch.nearest(centers.next().unwrap_or(0.0));
        };
        match stretch.mirror {
            Mirror::No => wanted.iter_mut().for_each(&mut put),
            Mirror::Horizontal => wanted.iter_mut().rev().for_each(&mut put),
        }
        filling.fill(wanted[wanted.len() - 1]);
        (self.longest, self.n_taps) = (1, FOUR);
        self.weights.resize(self.firsts.len() * FOUR, 0);
        let (fours, _) = self.weights.as_chunks_mut::<FOUR>();
        fours.fill([1 << rounding.bits(), 0, 0, 0]);
    }

    /// Weighs inputs by a filter.
    #[inline(always)]
    fn weigh(&mut self, stretch: &Stretch, rounding: Rounding, filter: Filter) {
        self.set_places(stretch, stretch.reach());
        self.weights.resize(self.firsts.len() * self.n_taps, 0);
        self.heights.resize(self.n_taps, [0.0; LANES]);
        for block in 0..self.firsts.len() / LANES {
            let per_input = 1.0 / stretch.widening;
            let totals = match filter {
                Filter::Triangle => self.set_heights(block, per_input, filter::triangle),
                Filter::Cubic => self.set_heights(block, per_input, filter::cubic),
                Filter::Box => self.set_heights(block, per_input, filter::square),
                Filter::Hamming => self.set_heights(block, per_input, filter::hamming),
                Filter::Lanczos => self.set_heights(block, per_input, filter::lanczos),
            };
            // An output without any weight is black, as Pillow's.
            let totals = totals.map(|total| if total == 0.0 { 1.0 } else { total });
            match rounding {
                Rounding::Each => self.round_each(block, totals),
                Rounding::Running => self.round_running(block, totals),
            }
        }
    }

    /// Where the filters lie, which are twice `reach` wide. Until the weights are made, inputs
    /// count from 0.
    #[inline(always)]
    fn set_places(&mut self, stretch: &Stretch, reach: f64) {
        let Stretch { ref window, mirror, .. } = *stretch;
        let scale = stretch.scale();
        self.centers.resize(self.firsts.len(), 0.0);
        let places = self.firsts.iter_mut().zip(&mut self.lens).zip(&mut self.centers);
        let last = window.end - window.start - 1;
        for (nth, ((first, len), center)) in (0..).zip(places) {
            let nth = last.min(nth);
            let output = match mirror {
                Mirror::No => window.start + nth,
                Mirror::Horizontal => window.start + (last - nth),
            };
            (*center, *first, *len) = stretch.place(output, scale, reach);
        }
        let longest = self.lens.iter().copied().max().unwrap_or(0);
        self.longest = longest as usize;
        self.n_taps = self.longest.next_multiple_of(FOUR);
    }

    /// The filters' heights over the inputs of one block of outputs, and their sums.
    #[inline(always)]
    fn set_heights(
        &mut self,
        block: usize,
        per_input: f64,
        height: impl Fn(f64) -> f64,
    ) -> [f64; LANES] {
        let centers = self.centers.as_chunks::<LANES>().0[block];
        let firsts = self.firsts.as_chunks::<LANES>().0[block].map(f64::from);
        let lens = self.lens.as_chunks::<LANES>().0[block].map(f64::from);
        let mut totals = [0.0; LANES];
        let mut tap = 0.0;
        for heights in &mut self.heights {
            for lane in 0..LANES {
                let input = firsts[lane] + tap;
                let distance = (input - centers[lane] + 0.5) * per_input;
                let height = height(distance);
                heights[lane] = if tap < lens[lane] { height } else { 0.0 };
                totals[lane] += heights[lane];
            }
            tap += 1.0;
        }
        totals
    }

    #[inline(always)]
    fn round_each(&mut self, block: usize, totals: [f64; LANES]) {
        let one = f64::from(1 << Rounding::Each.bits());
        for (four, heights) in self.heights.as_chunks::<FOUR>().0.iter().enumerate() {
            let mut rounded = [[0; LANES]; FOUR];
            for (rounded, heights) in rounded.iter_mut().zip(heights) {
                for lane in 0..LANES {
                    let weight = heights[lane] / totals[lane] * one;
                    let amount = floor(weight.abs() + 0.5);
                    rounded[lane] = if weight < 0.0 { -amount } else { amount };
                }
            }
            put(&mut self.weights, self.n_taps, [block, four], &rounded);
        }
    }

    #[inline(always)]
    fn round_running(&mut self, block: usize, totals: [f64; LANES]) {
        let one = f64::from(1 << Rounding::Running.bits());
        let mut sums = [0.0; LANES];
        let mut before = [0; LANES];
        for (four, heights) in self.heights.as_chunks::<FOUR>().0.iter().enumerate() {
            let mut rounded = [[0; LANES]; FOUR];
            for (rounded, heights) in rounded.iter_mut().zip(heights) {
                for lane in 0..LANES {
                    sums[lane] += heights[lane] / totals[lane];
                    let sum = floor(sums[lane] * one + 0.5);
                    rounded[lane] = sum - before[lane];
                    before[lane] = sum;
                }
            }
            put(&mut self.weights, self.n_taps, [block, four], &rounded);
        }
    }
}

/// The weights of an axis being computed.
struct Computing<'a> {
    axis: &'a mut Axis,
    stretch: &'a Stretch,
    rounding: Rounding,
}

impl Work for Computing<'_> {
    #[inline(always)]
    fn run(self) {
        self.axis.compute(self.stretch, self.rounding);
    }
}

/// Writes the weights of four taps of one block of outputs, output by output.
#[inline(always)]
fn put(
    weights: &mut [i32],
    n_taps: usize,
    [block, four]: [usize; 2],
    rounded: &[[i32; LANES]; FOUR],
) {
    let weights = &mut weights[block * LANES * n_taps..][..LANES * n_taps];
    let (fours, _) = weights.as_chunks_mut::<FOUR>();
    for lane in 0..LANES {
        fours[lane * (n_taps / FOUR) + four] = rounded.map(|tap| tap[lane]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stretch(pixels: [u32; 3], n_out: u32, interpolation: Interpolation) -> Stretch {
        Stretch::new(pixels, n_out, 0..n_out, interpolation, Mirror::No)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn weights_are_one_together_and_never_come_to_two(
            first in 0..4_u32,
            len in prop_oneof![1..9_u32, 1..600_u32],
            per_sample in 1..=4_u32,
            n_out in prop_oneof![1..9_u32, 1..600_u32],
            kind in prop::sample::select(&[
                Interpolation::Bilinear,
                Interpolation::Bicubic,
                Interpolation::Box,
                Interpolation::Hamming,
                Interpolation::Lanczos,
            ][..]),
        ) {
            let stretch = stretch([first, len, per_sample], n_out, kind);
            for rounding in [Rounding::Each, Rounding::Running] {
                let mut axis = Axis::default();
                axis.compute(&stretch, rounding);
                let one = 1 << rounding.bits();
                for output in 0..axis.n_outputs {
                    let (_, weights) = axis.inputs_of(output);
                    let sum: i32 = weights.iter().sum();
                    let amounts: i32 = weights.iter().map(|weight| weight.abs()).sum();
                    let off = match rounding {
                        Rounding::Each => 600,
                        Rounding::Running => 0,
                    };
                    prop_assert!((sum - one).abs() <= off, "{sum}");
                    let room = match kind {
                        Interpolation::Bicubic => one / 100 * 128,
                        Interpolation::Lanczos => one / 100 * 160,
                        Interpolation::Nearest
                        | Interpolation::Bilinear
                        | Interpolation::Box
                        | Interpolation::Hamming => one + off,
                    };
                    prop_assert!(amounts <= room, "{amounts}");
                }
            }
        }
    }

    /// By hand: (-1, 9, 9, -1) sixteenths.
    #[test]
    fn half_way_between_two_pixels_a_cubic_reaches_over_both() {
        let mut axis = Axis::default();
        axis.compute(&stretch([0, 4, 1], 5, Interpolation::Bicubic), Rounding::Running);
        assert_eq!(axis.inputs_of(2), (0, &[-1_024, 9_216, 9_216, -1_024][..]));
    }

    /// By hand: centres of 5 over 3 at 0.3, 0.9, 1.5, 2.1, 2.7.
    #[test]
    fn nearest_takes_the_input_its_centre_lies_in() {
        let mut axis = Axis::default();
        let mut stretch = stretch([0, 3, 1], 5, Interpolation::Nearest);
        axis.compute(&stretch, Rounding::Each);
        assert_eq!(axis.firsts[..6], [0, 0, 1, 2, 2, 2]);
        (stretch.window, stretch.mirror) = (1..4, Mirror::Horizontal);
        axis.compute(&stretch, Rounding::Each);
        assert_eq!(axis.firsts[..4], [2, 1, 0, 0]);
        assert_eq!(axis.inputs_of(2), (0, &[1 << EACH_BITS, 0][..]));
    }
}
