//! After the cut: normalise, cast, lay out and erase in a sample, then mix the samples of a
//! batch.
//!
//! The arithmetic is torchvision's, in f32, one rounding per step, in this order
//! (`finish/elements.rs`):
//!
//! 1. `x / 255` (`to_dtype(float32, scale=True)`),
//! 2. `- mean[channel]`, 3. `/ std[channel]` (`normalize`; left out without normalisation),
//! 4. to f16 or bf16, to nearest, ties to even.
//!
//! With `u8` output the bytes pass unchanged and normalising is the accelerator's part.
//! Elements are written little-endian. `finish/erasing.rs` puts random rectangles into
//! finished samples, `finish/mixing.rs` mixes them.

mod elements;
mod erasing;
pub mod half;
mod mixing;

use std::sync::Arc;

use bothends_core::recipe::op::Op;
use bothends_core::recipe::{Mixture, Normalise, Recipe};
use bothends_core::sample::SampleKey;
use bothends_core::tensor::{Dtype, Layout, Output, SampleShape, Views};

use crate::colour::deinterleave;
use crate::error::OpsError;
use crate::geometry::resample::TakesRows;
use crate::kernels::{Level, vectors};

use elements::{Brain, Channel, Element, Half, Single, pixels, plane};
use erasing::Erasing;
use mixing::Row;

/// One sample's way from the cut to the batch, ready to run; shared by all workers.
#[derive(Debug, Clone)]
pub struct Finish {
    views: Views,
    output: Output,
    /// How a byte of each channel becomes a value.
    channels: Vec<Channel>,
    level: Level,
    erasings: Vec<Erasing>,
    mixes: bool,
    /// Bytes of each delivered view.
    view_bytes: Arc<[usize]>,
    /// How far a sample's partner is from it in a batch.
    distance: usize,
}

impl Finish {
    /// Prepares what `recipe` does after the cut to samples of these views. Without
    /// `normalize`, floats are `x / 255`.
    ///
    /// # Errors
    /// [`OpsError::Recipe`] when the normalisation has not one mean and one positive
    /// standard deviation per channel, all finite in f32.
    pub fn new(recipe: &Recipe, views: &Views, output: Output) -> Result<Self, OpsError> {
        let channels = views.shapes().iter().map(|shape| shape.channels).max();
        let n_channels = channels.unwrap_or_default() as usize;
        let scales = scales(recipe.normalise(), n_channels)?;
        let erasings = recipe.streams_after_cut().filter_map(|(stream, op)| {
            let Op::RandomErasing(op) = op else { return None };
            Some(Erasing::new(op, stream, &scales, output.dtype))
        });
        let erasings = erasings.collect();
        Ok(Self {
            views: views.clone(),
            output,
            channels: scales.iter().copied().map(Channel::new).collect(),
            level: Level::of_process(),
            erasings,
            mixes: recipe.after_cut().iter().any(Op::mixes),
            view_bytes: views
                .shapes()
                .iter()
                .map(|shape| shape.len() * output.dtype.size())
                .collect(),
            distance: recipe.repeated_augment() as usize,
        })
    }

    /// Delivers samples of these views as they are at the cut: for one who finishes them elsewhere.
    #[must_use]
    pub fn of_cut(views: &Views) -> Self {
        let output = Output { dtype: Dtype::U8, layout: Layout::Nhwc };
        Self {
            views: views.clone(),
            output,
            channels: Vec::new(),
            level: Level::of_process(),
            erasings: Vec::new(),
            mixes: false,
            view_bytes: views.shapes().iter().map(|shape| shape.len()).collect(),
            distance: 1,
        }
    }

    /// Bytes of one delivered sample.
    #[must_use]
    pub fn sample_bytes(&self) -> usize {
        self.views.len() * self.output.dtype.size()
    }

    /// Bytes of each view of a delivered sample, in order.
    #[must_use]
    pub fn view_bytes(&self) -> &Arc<[usize]> {
        &self.view_bytes
    }

    /// Whether a sample is delivered exactly as it is at the cut.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        let as_it_is = |shape: &SampleShape| {
            self.output.layout == Layout::Nhwc || shape.channels == 1
        };
        self.output.dtype == Dtype::U8
            && self.views.shapes().iter().all(as_it_is)
            && self.erasings.is_empty()
            && !self.mixes
    }

    /// Turns the sample `src` of `key` into the delivered sample `dst`. Nothing is erased in
    /// what is not a sample (`None`: a masked row).
    ///
    /// # Panics
    /// When `src` is not one sample at the cut, or `dst` not [`Self::sample_bytes`] long.
    pub fn run(&self, key: Option<SampleKey>, src: &[u8], dst: &mut [u8]) {
        assert_eq!(src.len(), self.views.len(), "`src` is one sample at the cut");
        assert_eq!(dst.len(), self.sample_bytes(), "`dst` is one delivered sample");
        let element_bytes = self.output.dtype.size();
        let (mut src, mut dst) = (src, dst);
        for (nth, &shape) in (0..).zip(self.views.shapes()) {
            let (view, src_rest) = src.split_at(shape.len());
            let (out, dst_rest) = dst.split_at_mut(shape.len() * element_bytes);
            self.view(shape, view, out);
            if let Some(key) = key {
                self.erase_view(key, (nth, shape), out);
            }
            (src, dst) = (src_rest, dst_rest);
        }
    }

    /// What is done to the delivered sample of `key` behind [`Self::rows`].
    pub(crate) fn erase(&self, key: SampleKey, sample: &mut [u8]) {
        if let Some(&shape) = self.views.shapes().first() {
            self.erase_view(key, (0, shape), sample);
        }
    }

    fn erase_view(
        &self,
        key: SampleKey,
        (nth, shape): (u32, SampleShape),
        out: &mut [u8],
    ) {
        for erasing in &self.erasings {
            erasing.run(key, nth, (shape, self.output), out);
        }
    }

    /// Takes the rows of the one view at the cut, as they are made, to the delivered sample
    /// `dst`; `None` where a sample is not planes of red, green and blue.
    ///
    /// # Panics
    /// When `dst` is not [`Self::sample_bytes`] long.
    pub(crate) fn rows<'a>(&'a self, dst: &'a mut [u8]) -> Option<FinishedRows<'a>> {
        assert_eq!(dst.len(), self.sample_bytes(), "`dst` is one delivered sample");
        let &[shape] = self.views.shapes() else { return None };
        let [red, green, blue] = *self.channels.get(..3)? else { return None };
        let is_planes = self.output.layout == Layout::Nchw && shape.channels == 3;
        let channels = [red, green, blue];
        let (dtype, level) = (self.output.dtype, self.level);
        is_planes.then_some(FinishedRows { dtype, level, channels, dst })
    }

    /// What each of the 256 bytes of each channel becomes, as the bits of an element of the
    /// output: for a device that finishes samples by looking values up.
    #[must_use]
    pub fn values(&self) -> Vec<[u32; 256]> {
        let element = |value: f32| match self.output.dtype {
            Dtype::U8 | Dtype::F32 => value.to_bits(),
            Dtype::F16 => half::f16_bits(value).into(),
            Dtype::Bf16 => half::bf16_bits(value).into(),
        };
        let value = |channel: &Channel, byte: usize| match self.output.dtype {
            // Bytes pass as they are.
            Dtype::U8 => u32::try_from(byte).unwrap_or_default(),
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 => {
                element(channel.value(u8::try_from(byte).unwrap_or_default()))
            }
        };
        let table = |channel| std::array::from_fn(|byte| value(channel, byte));
        self.channels.iter().map(table).collect()
    }

    /// Mean and standard deviation of each channel; `None` without normalisation.
    #[must_use]
    pub fn scales(&self) -> Vec<Option<(f32, f32)>> {
        self.channels.iter().map(|channel| channel.scale()).collect()
    }

    /// Whether batches are mixed at all.
    #[must_use]
    pub fn mixes(&self) -> bool {
        self.mixes
    }

    /// Mixes the delivered samples of a batch, one after the other in `batch`, as decided;
    /// one alone stays as it is. `memory` is kept from batch to batch.
    ///
    /// # Panics
    /// When `batch` is not a whole number of delivered samples.
    pub fn mix(&self, mixture: Mixture, batch: &mut [u8], memory: &mut Vec<u8>) {
        let sample_bytes = self.sample_bytes().max(1);
        let n_rows = batch.len() / sample_bytes;
        if n_rows < 2 {
            return;
        }
        memory.clear();
        let n_before = self.n_before(n_rows) * sample_bytes;
        memory.extend_from_slice(&batch[batch.len() - n_before..]);
        self.mix_run(mixture, batch, memory);
    }

    /// How many samples before a sample its partner is, in a batch of `n_rows`, 1 to `n_rows`
    /// (as `core`'s `partner` says).
    #[must_use]
    pub fn n_before(&self, n_rows: usize) -> usize {
        match self.distance % n_rows.max(1) {
            0 => n_rows,
            n => n,
        }
    }

    /// Mixes a run of a batch's delivered samples, one after the other in `run`, as decided:
    /// each with the sample that is as many before it as `before` has samples. These are the
    /// samples before the run, not mixed; those before a batch's first sample are its last.
    ///
    /// # Panics
    /// When `run` or `before` is not a whole number of delivered samples, or `before` is empty.
    pub fn mix_run(&self, mixture: Mixture, run: &mut [u8], before: &[u8]) {
        let sample_bytes = self.sample_bytes().max(1);
        assert_eq!(run.len() % sample_bytes, 0, "whole samples");
        assert!(before.len().is_multiple_of(sample_bytes), "whole samples");
        assert!(!before.is_empty(), "a sample before the run");
        let Some(&shape) = self.views.shapes().first() else { return };
        let (output, level) = (self.output, self.level);
        mixing::mix(mixture, &Row { shape, output, level }, run, before);
    }

    /// How far a sample's partner is from it in a batch.
    #[must_use]
    pub fn distance(&self) -> usize {
        self.distance
    }

    /// Converts one view and lays it out.
    fn view(&self, shape: SampleShape, src: &[u8], dst: &mut [u8]) {
        match self.output.dtype {
            Dtype::U8 => self.bytes(shape, src, dst),
            Dtype::F32 => self.elements::<Single, 4>(shape, src, dst),
            Dtype::F16 => self.elements::<Half, 2>(shape, src, dst),
            Dtype::Bf16 => self.elements::<Brain, 2>(shape, src, dst),
        }
    }

    fn bytes(&self, shape: SampleShape, src: &[u8], dst: &mut [u8]) {
        match (self.output.layout, shape.channels) {
            (Layout::Nhwc, _) | (Layout::Nchw, 1) => dst.copy_from_slice(src),
            (Layout::Nchw, 3) => {
                let (red, rest) = dst.split_at_mut(src.len() / 3);
                let (green, blue) = rest.split_at_mut(src.len() / 3);
                deinterleave(self.level, src, [red, green, blue]);
            }
            (Layout::Nchw, n) => {
                let n = n as usize;
                let planes = dst.chunks_exact_mut((src.len() / n.max(1)).max(1));
                for (nth, plane) in planes.enumerate() {
                    let values = src.iter().skip(nth).step_by(n);
                    plane.iter_mut().zip(values).for_each(|(to, from)| *to = *from);
                }
            }
        }
    }

    /// Floats of `N` bytes.
    fn elements<E: Element<N>, const N: usize>(
        &self,
        shape: SampleShape,
        src: &[u8],
        dst: &mut [u8],
    ) {
        let n = shape.channels as usize;
        let level = self.level;
        match (self.output.layout, &self.channels[..n]) {
            (_, &[channel]) => plane::<E, N>(level, channel, src, dst),
            (Layout::Nhwc, &[red, green, blue]) => {
                pixels::<E, N>(level, [red, green, blue], src, dst);
            }
            (Layout::Nchw, [_, _, _]) => self.planes::<E, N>(src, dst),
            (layout, _) => {
                let n_pixels = src.len() / n.max(1);
                for (at, &byte) in src.iter().enumerate() {
                    let (pixel, channel) = (at / n, at % n);
                    let place = match layout {
                        Layout::Nhwc => at,
                        Layout::Nchw => channel * n_pixels + pixel,
                    };
                    let element = E::bytes(self.channels[channel].value(byte));
                    dst[place * N..][..N].copy_from_slice(&element);
                }
            }
        }
    }

    /// Three channels, each to its plane, a few pixels at a time.
    fn planes<E: Element<N>, const N: usize>(&self, src: &[u8], dst: &mut [u8]) {
        const PIXELS: usize = 1024;
        let plane_bytes = src.len() / 3 * N;
        let mut values = [[0; PIXELS]; 3];
        for (nth, src) in src.chunks(3 * PIXELS).enumerate() {
            let n = src.len() / 3;
            deinterleave(self.level, src, values.each_mut().map(|plane| &mut plane[..n]));
            for (channel, values) in values.iter().enumerate() {
                let first = channel * plane_bytes + nth * PIXELS * N;
                let to = &mut dst[first..][..n * N];
                plane::<E, N>(self.level, self.channels[channel], &values[..n], to);
            }
        }
    }
}

/// Rows at the cut become rows of a delivered sample's planes.
#[derive(Debug)]
pub(crate) struct FinishedRows<'a> {
    dtype: Dtype,
    level: Level,
    channels: [Channel; 3],
    dst: &'a mut [u8],
}

impl TakesRows for FinishedRows<'_> {
    fn row(&mut self, y: usize, channels: [&[u8]; 3]) {
        let row_bytes = channels[0].len() * self.dtype.size();
        let plane_bytes = self.dst.len() / 3;
        for (nth, (&channel, bytes)) in self.channels.iter().zip(channels).enumerate() {
            let first = nth * plane_bytes + y * row_bytes;
            vectors::soon_written(self.dst, first + row_bytes, row_bytes);
            let to = &mut self.dst[first..][..row_bytes];
            match self.dtype {
                Dtype::U8 => to.copy_from_slice(bytes),
                Dtype::F32 => plane::<Single, 4>(self.level, channel, bytes, to),
                Dtype::F16 => plane::<Half, 2>(self.level, channel, bytes, to),
                Dtype::Bf16 => plane::<Brain, 2>(self.level, channel, bytes, to),
            }
        }
    }
}

/// Mean and standard deviation of one channel; `None` where nothing is subtracted.
type Scale = Option<(f32, f32)>;

fn scales(
    normalise: Option<&Normalise>,
    channels: usize,
) -> Result<Vec<Scale>, OpsError> {
    let Some(Normalise { mean, std }) = normalise else {
        return Ok(vec![None; channels]);
    };
    if mean.len() != channels || std.len() != channels {
        let (means, stds) = (mean.len(), std.len());
        let why = format!(
            "`normalise` has {means} means and {stds} standard deviations for {channels} \
             channels; give one of each per channel"
        );
        return Err(OpsError::Recipe { why });
    }
    let pairs = mean.iter().zip(std.iter());
    pairs.map(|(&mean, &std)| scale(mean, std).map(Some)).collect()
}

/// The recipe's numbers as f32, which is what torchvision computes with.
#[allow(clippy::cast_possible_truncation, reason = "rounds to the nearest f32")]
fn scale(mean: f64, std: f64) -> Result<(f32, f32), OpsError> {
    let (mean, std) = (mean as f32, std as f32);
    if mean.is_finite() && std.is_finite() && std > 0.0 {
        return Ok((mean, std));
    }
    let why = format!(
        "`normalise` has mean {mean} with standard deviation {std}; both must be finite \
         and the latter above 0"
    );
    Err(OpsError::Recipe { why })
}
