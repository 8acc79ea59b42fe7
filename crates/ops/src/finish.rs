//! After the cut: normalise, cast, lay out and erase in a sample, then mix the samples of a
//! batch.
//!
//! Every element depends on its byte and its channel alone, so the arithmetic is done once,
//! when a `Finish` is made, for the 256 bytes of each channel; a run only looks up. The
//! arithmetic is torchvision's, in f32, one rounding per step, in this order:
//!
//! 1. `x / 255` (`to_dtype(float32, scale=True)`),
//! 2. `- mean[channel]`, 3. `/ std[channel]` (`normalize`; left out without normalisation),
//! 4. to f16 or bf16, to nearest, ties to even.
//!
//! With `u8` output the bytes pass unchanged and normalising is the accelerator's part.
//! Elements are written little-endian. `finish/erasing.rs` puts random rectangles into
//! finished samples, `finish/mixing.rs` mixes them.

mod erasing;
mod mixing;

use std::sync::Arc;

use bothends_core::recipe::op::Op;
use bothends_core::recipe::{Mixture, Normalise, Recipe};
use bothends_core::sample::SampleKey;
use bothends_core::tensor::{Dtype, Layout, Output, SampleShape, Views};

use crate::error::OpsError;
use crate::half::{bf16_bits, f16_bits};

use erasing::Erasing;
use mixing::Row;

/// One sample's way from the cut to the batch, ready to run; shared by all workers.
#[derive(Debug, Clone)]
pub struct Finish {
    views: Views,
    output: Output,
    elements: Elements,
    erasings: Vec<Erasing>,
    mixes: bool,
    /// Bytes of each delivered view.
    view_bytes: Arc<[usize]>,
    /// How far a sample's partner is from it in a batch.
    distance: usize,
}

/// What each byte becomes, by channel, as little-endian bytes of the element.
#[derive(Debug, Clone)]
enum Elements {
    /// The byte itself.
    Bytes,
    /// 16-bit floats.
    Halves(Vec<[[u8; 2]; 256]>),
    /// 32-bit floats.
    Floats(Vec<[[u8; 4]; 256]>),
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
        let elements = match output.dtype {
            Dtype::U8 => Elements::Bytes,
            Dtype::F32 => Elements::Floats(tables(&scales, f32::to_le_bytes)),
            Dtype::F16 => {
                Elements::Halves(tables(&scales, |x| f16_bits(x).to_le_bytes()))
            }
            Dtype::Bf16 => {
                Elements::Halves(tables(&scales, |x| bf16_bits(x).to_le_bytes()))
            }
        };
        let erasings = recipe.streams_after_cut().filter_map(|(stream, op)| {
            let Op::RandomErasing(op) = op else { return None };
            Some(Erasing::new(op, stream, &scales, output.dtype))
        });
        Ok(Self {
            views: views.clone(),
            output,
            elements,
            erasings: erasings.collect(),
            mixes: recipe.after_cut().iter().any(Op::mixes),
            view_bytes: views
                .shapes()
                .iter()
                .map(|shape| shape.len() * output.dtype.size())
                .collect(),
            distance: recipe.repeated_augment() as usize,
        })
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
        matches!(self.elements, Elements::Bytes)
            && self.views.shapes().iter().all(as_it_is)
            && self.erasings.is_empty()
            && !self.mixes
    }

    /// Turns the sample `src` of `key` into the delivered sample `dst`. Nothing is erased in
    /// what is no sample (`None`: a masked slot).
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
            match &self.elements {
                Elements::Bytes => self.place(shape, view, out, |_, byte| [byte]),
                Elements::Halves(tables) => self
                    .place(shape, view, out, |nth, byte| tables[nth][usize::from(byte)]),
                Elements::Floats(tables) => self
                    .place(shape, view, out, |nth, byte| tables[nth][usize::from(byte)]),
            }
            for erasing in &self.erasings {
                if let Some(key) = key {
                    erasing.run(key, nth, (shape, self.output), out);
                }
            }
            (src, dst) = (src_rest, dst_rest);
        }
    }

    /// Whether batches are mixed at all.
    #[must_use]
    pub fn mixes(&self) -> bool {
        self.mixes
    }

    /// Mixes the delivered samples of a batch, one behind the other in `batch`, as decided;
    /// says of each whose partner it has. `memory` is kept from batch to batch.
    ///
    /// # Panics
    /// When `batch` is not a whole number of delivered samples.
    pub fn mix(&self, mixture: Mixture, batch: &mut [u8], memory: &mut Vec<u8>) {
        let sample_bytes = self.sample_bytes().max(1);
        assert_eq!(batch.len() % sample_bytes, 0, "whole samples");
        let Some(&shape) = self.views.shapes().first() else { return };
        let rows = Row { shape, output: self.output, distance: self.distance };
        mixing::mix(mixture, &rows, batch, memory);
    }

    /// How far a sample's partner is from it in a batch.
    #[must_use]
    pub fn distance(&self) -> usize {
        self.distance
    }

    /// Puts each element of `N` bytes where the layout wants it.
    fn place<const N: usize>(
        &self,
        shape: SampleShape,
        src: &[u8],
        dst: &mut [u8],
        element: impl Fn(usize, u8) -> [u8; N],
    ) {
        let channels = shape.channels as usize;
        let (dst, _) = dst.as_chunks_mut::<N>();
        let pixels = src.chunks_exact(channels.max(1));
        let n_pixels = pixels.len();
        for (i, pixel) in pixels.enumerate() {
            for (channel, &byte) in pixel.iter().enumerate() {
                let place = match self.output.layout {
                    Layout::Nhwc => i * channels + channel,
                    Layout::Nchw => channel * n_pixels + i,
                };
                dst[place] = element(channel, byte);
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

/// For each channel, the element that each byte becomes.
fn tables<const N: usize>(
    scales: &[Scale],
    bytes_of: impl Fn(f32) -> [u8; N],
) -> Vec<[[u8; N]; 256]> {
    let value = |x: u8, scale: &Scale| {
        let unit = f32::from(x) / 255.0;
        match scale {
            None => unit,
            Some((mean, std)) => (unit - mean) / std,
        }
    };
    let table = |scale| {
        let mut table = [[0; N]; 256];
        for (x, element) in (0..=255).zip(&mut table) {
            *element = bytes_of(value(x, scale));
        }
        table
    };
    scales.iter().map(table).collect()
}
