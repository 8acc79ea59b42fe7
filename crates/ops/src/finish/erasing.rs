//! Random rectangles in finished samples: `random_erasing` after the cut.
//!
//! Its values are normalised ones, as in torchvision, whose `RandomErasing` comes after
//! `Normalize`. With `u8` output, which an accelerator normalises later, they are the bytes
//! that come to the nearest such value: (value · std + mean) · 255, rounded, within 0 to 255.

use std::sync::OnceLock;

use bothends_core::recipe::Size;
use bothends_core::recipe::draw::CropBox;
use bothends_core::recipe::erasing::{normal_shares, view_stream};
use bothends_core::recipe::op::{ErasingValue, RandomErasing};
use bothends_core::rng::Noise;
use bothends_core::sample::SampleKey;
use bothends_core::tensor::{Dtype, Layout, Output, SampleShape};

use super::Scale;
use super::mixing::{single, write};

/// One `random_erasing` of a recipe, ready to run.
#[derive(Debug, Clone)]
pub(super) struct Erasing {
    op: RandomErasing,
    /// The number of its stream.
    stream: u32,
    /// How a byte of each channel becomes a normalised value.
    scales: Vec<Scale>,
}

impl Erasing {
    pub(super) fn new(
        op: &RandomErasing,
        stream: u32,
        scales: &[Scale],
        dtype: Dtype,
    ) -> Self {
        // Only bytes need to be brought back.
        let scales = if dtype == Dtype::U8 { scales.to_vec() } else { Vec::new() };
        Self { op: op.clone(), stream, scales }
    }

    /// Erases in view number `nth` of the sample of `key`, or does not.
    pub(super) fn run(
        &self,
        key: SampleKey,
        nth: u32,
        (shape, output): (SampleShape, Output),
        view: &mut [u8],
    ) {
        let stream = view_stream(self.stream, nth);
        let size = Size { height: shape.height, width: shape.width };
        let Some(area) = self.op.decide(key, stream, size) else { return };
        let mut noise = Noise::new(key, stream);
        let quantiles = quantiles();
        for_each_element(area, shape, output.layout, |place, channel| {
            let value = match &self.op.value {
                ErasingValue::All(value) => single(*value),
                ErasingValue::Each(values) => single(values[channel % values.len()]),
                ErasingValue::Random(_) => quantiles[usize::from(noise.next_u16())],
            };
            let value = match self.scales.get(channel) {
                Some(Some((mean, std))) => (value * std + mean) * 255.0,
                Some(None) => value * 255.0,
                None => value,
            };
            write(output.dtype, view, place, value);
        });
    }
}

/// Every element of `area`, row by row, column by column, channel by channel: its place among
/// a sample's elements, and its channel.
fn for_each_element(
    area: CropBox,
    shape: SampleShape,
    layout: Layout,
    mut each: impl FnMut(usize, usize),
) {
    let [height, width, channels] =
        [shape.height, shape.width, shape.channels].map(|n| n as usize);
    let rows = area.top as usize..(area.top + area.height) as usize;
    let columns = area.left as usize..(area.left + area.width) as usize;
    for row in rows {
        for column in columns.clone() {
            for channel in 0..channels {
                let pixel = row * width + column;
                let place = match layout {
                    Layout::Nhwc => pixel * channels + channel,
                    Layout::Nchw => channel * height * width + pixel,
                };
                each(place, channel);
            }
        }
    }
}

/// The normal distribution in 65,536 equal shares: the middle of each.
fn quantiles() -> &'static [f32] {
    static QUANTILES: OnceLock<Vec<f32>> = OnceLock::new();
    QUANTILES.get_or_init(|| normal_shares().collect())
}
