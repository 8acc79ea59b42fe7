//! Samples of a batch mixed with each other: `mixup` and `cutmix`.
//!
//! torchvision's arithmetic: partner · (1 − share) + own · share, both products and the sum
//! in f32, one rounding each; then to the delivered type, to nearest, ties to even. Whom a
//! sample meets is `core`'s to say (`partner`).

use bothends_core::recipe::Mixture;
use bothends_core::recipe::draw::CropBox;
use bothends_core::tensor::{Dtype, Layout, Output, SampleShape};

use super::half::{bf16_bits, bf16_value, f16_bits, f16_value};
use crate::kernels::Level;
use crate::kernels::compiled::{Work, run};

/// What a row of a delivered batch is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) shape: SampleShape,
    pub(super) output: Output,
    pub(super) level: Level,
}

/// Mixes each row of `run` with the one that is as many rows before it as `before` has: these
/// are the rows before the run, not mixed.
pub(super) fn mix(mixture: Mixture, row: &Row, run: &mut [u8], before: &[u8]) {
    let row_bytes = row.shape.len() * row.output.dtype.size();
    let n_rows = run.len() / row_bytes.max(1);
    let distance = before.len() / row_bytes.max(1);
    // From the last row up, each partner within the run is still itself.
    for nth in (0..n_rows).rev() {
        let (earlier, from) = run.split_at_mut(nth * row_bytes);
        let own = &mut from[..row_bytes];
        let other = match nth.checked_sub(distance) {
            Some(other) => &earlier[other * row_bytes..][..row_bytes],
            None => &before[nth * row_bytes..][..row_bytes],
        };
        match mixture {
            Mixture::Mixup { share } => {
                blend(row.level, row.output.dtype, share, own, other);
            }
            Mixture::Cutmix { area, .. } => paste(row, area, own, other),
        }
    }
}

fn blend(level: Level, dtype: Dtype, share: f64, own: &mut [u8], other: &[u8]) {
    let shares = [single(share), single(1.0 - share)];
    run(level, Blend { dtype, shares, own, other });
}

struct Blend<'a> {
    dtype: Dtype,
    /// Of itself and of the partner.
    shares: [f32; 2],
    own: &'a mut [u8],
    other: &'a [u8],
}

impl Work for Blend<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { dtype, shares: [own_share, rest], own, other } = self;
        let mixed = |own: f32, other: f32| {
            let sum = other * rest + own * own_share;
            // Processors make different ones, of infinity times zero for example.
            if sum.is_nan() { f32::NAN } else { sum }
        };
        match dtype {
            Dtype::U8 => each(own, other, |[own], [other]| {
                [byte(mixed(f32::from(own), f32::from(other)))]
            }),
            Dtype::F32 => each(own, other, |own, other| {
                mixed(f32::from_le_bytes(own), f32::from_le_bytes(other)).to_le_bytes()
            }),
            Dtype::F16 => each(own, other, |own, other| {
                let [own, other] = [own, other].map(u16::from_le_bytes);
                f16_bits(mixed(f16_value(own), f16_value(other))).to_le_bytes()
            }),
            Dtype::Bf16 => each(own, other, |own, other| {
                let [own, other] = [own, other].map(u16::from_le_bytes);
                bf16_bits(mixed(bf16_value(own), bf16_value(other))).to_le_bytes()
            }),
        }
    }
}

#[inline(always)]
fn each<const N: usize>(
    own: &mut [u8],
    other: &[u8],
    mixed: impl Fn([u8; N], [u8; N]) -> [u8; N],
) {
    let (own, _) = own.as_chunks_mut::<N>();
    let (other, _) = other.as_chunks::<N>();
    for (own, other) in own.iter_mut().zip(other) {
        *own = mixed(*own, *other);
    }
}

/// Copies a rectangle of another sample to the same place.
fn paste(row: &Row, area: CropBox, own: &mut [u8], other: &[u8]) {
    let SampleShape { height, width, channels } = row.shape;
    let size = row.output.dtype.size();
    let [height, width, channels] = [height, width, channels].map(|n| n as usize);
    let [top, left, rows, columns] =
        [area.top, area.left, area.height, area.width].map(|n| n as usize);
    let (n_planes, pixel_bytes) = match row.output.layout {
        Layout::Nhwc => (1, channels * size),
        Layout::Nchw => (channels, size),
    };
    for plane in 0..n_planes {
        for line in top..top + rows {
            let first = ((plane * height + line) * width + left) * pixel_bytes;
            let line = first..first + columns * pixel_bytes;
            own[line.clone()].copy_from_slice(&other[line]);
        }
    }
}

/// Writes `value` as element `place`.
pub(super) fn write(dtype: Dtype, elements: &mut [u8], place: usize, value: f32) {
    let size = dtype.size();
    let at = &mut elements[place * size..][..size];
    match dtype {
        Dtype::U8 => at[0] = byte(value),
        Dtype::F32 => at.copy_from_slice(&value.to_le_bytes()),
        Dtype::F16 => at.copy_from_slice(&f16_bits(value).to_le_bytes()),
        Dtype::Bf16 => at.copy_from_slice(&bf16_bits(value).to_le_bytes()),
    }
}

/// The nearest byte, halves to even.
#[inline(always)]
fn byte(value: f32) -> u8 {
    // From here on an f32 has no fraction: adding it rounds, and leaves the whole number in
    // the lowest bits.
    const WHOLE: f32 = 8_388_608.0;
    let value = if value > 0.0 { value } else { 0.0 };
    let value = if value < 255.0 { value } else { 255.0 };
    let [lowest, ..] = (value + WHOLE).to_bits().to_le_bytes();
    lowest
}

/// The nearest f32.
#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest f32")]
pub(super) fn single(value: f64) -> f32 {
    value as f32
}
