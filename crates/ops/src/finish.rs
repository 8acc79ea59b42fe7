//! After the cut: normalise, cast and lay out a sample for delivery.
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
//! Elements are written little-endian. Nothing here mixes samples of a batch.

use bothends_core::recipe::Normalise;
use bothends_core::tensor::{Dtype, Layout, Output, SampleShape};

use crate::error::OpsError;
use crate::half::{bf16_bits, f16_bits};

/// One sample's way from the cut to the batch, ready to run; shared by all workers.
#[derive(Debug, Clone)]
pub struct Finish {
    shape: SampleShape,
    layout: Layout,
    elements: Elements,
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
    /// Prepares the tables for samples of `shape` at the cut. Without `normalise`, floats
    /// are `x / 255`.
    ///
    /// # Errors
    /// [`OpsError::Recipe`] when the normalisation has not one mean and one positive
    /// standard deviation per channel, all finite.
    pub fn new(
        normalise: Option<&Normalise>,
        shape: SampleShape,
        output: Output,
    ) -> Result<Self, OpsError> {
        let scales = scales(normalise, shape.channels as usize)?;
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
        Ok(Self { shape, layout: output.layout, elements })
    }

    /// Bytes of one delivered sample.
    #[must_use]
    pub fn sample_bytes(&self) -> usize {
        let element_bytes = match self.elements {
            Elements::Bytes => 1,
            Elements::Halves(_) => 2,
            Elements::Floats(_) => 4,
        };
        self.shape.len() * element_bytes
    }

    /// Whether a sample is delivered exactly as it is at the cut.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        let one_channel = self.shape.channels == 1;
        matches!(self.elements, Elements::Bytes)
            && (self.layout == Layout::Nhwc || one_channel)
    }

    /// Turns the sample `src` into the delivered sample `dst`.
    ///
    /// # Panics
    /// When `src` is not one sample at the cut, or `dst` not [`Self::sample_bytes`] long.
    pub fn run(&self, src: &[u8], dst: &mut [u8]) {
        assert_eq!(src.len(), self.shape.len(), "`src` is one sample at the cut");
        assert_eq!(dst.len(), self.sample_bytes(), "`dst` is one delivered sample");
        match &self.elements {
            Elements::Bytes => self.place(src, dst, |_, byte| [byte]),
            Elements::Halves(tables) => {
                self.place(src, dst, |channel, byte| tables[channel][usize::from(byte)]);
            }
            Elements::Floats(tables) => {
                self.place(src, dst, |channel, byte| tables[channel][usize::from(byte)]);
            }
        }
    }

    /// Puts each element of `N` bytes where the layout wants it.
    fn place<const N: usize>(
        &self,
        src: &[u8],
        dst: &mut [u8],
        element: impl Fn(usize, u8) -> [u8; N],
    ) {
        let channels = self.shape.channels as usize;
        let (dst, _) = dst.as_chunks_mut::<N>();
        let pixels = src.chunks_exact(channels.max(1));
        let n_pixels = pixels.len();
        for (i, pixel) in pixels.enumerate() {
            for (channel, &byte) in pixel.iter().enumerate() {
                let place = match self.layout {
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
