//! Antialiased bilinear resize of interleaved 8-bit images, equal to Pillow's
//! `Image.resize(size, BILINEAR)` in every bit.
//!
//! What that means is in `resample.rs`, which works on planes; this takes pixels apart
//! into them. Taps beyond the edge of the given view do not exist: cropping first and
//! resizing then never looks outside the crop.

use bothends_core::recipe::Size;
use bothends_core::recipe::draw::CropBox;

use crate::colour;
use crate::image::{Image, View};
use crate::kernels::Level;
use crate::resample::{Exact, Target};

/// Resizes images one after the other; keeps its memory.
#[derive(Debug)]
pub struct Resizer {
    level: Level,
    exact: Exact,
    /// One row, its channels one behind the other.
    planes: Vec<u8>,
}

impl Default for Resizer {
    /// One for the level of this process.
    fn default() -> Self {
        Self::new(Level::of_process())
    }
}

impl Resizer {
    /// One that uses the kernels of `level`.
    #[must_use]
    pub fn new(level: Level) -> Self {
        Self { level, exact: Exact::new(level), planes: Vec::new() }
    }

    /// Resizes `src` to `size` into `out`, which takes that size and the channels of `src`.
    /// Of nothing comes a black image.
    pub fn resize(&mut self, src: View<'_>, size: Size, out: &mut Image) {
        let from = src.shape();
        out.reshape(size, from.channels);
        if from.is_empty() || out.shape().is_empty() {
            out.pixels_mut().fill(0);
            return;
        }
        let crop = CropBox { top: 0, left: 0, height: from.height, width: from.width };
        let Self { level, exact, planes } = self;
        let (n_channels, target) = (src.channels(), Target::whole(size));
        let mut sample = exact.begin(crop, n_channels, &target, out.pixels_mut());
        planes.resize(src.width() * n_channels, 0);
        for row in src.rows() {
            take_apart(*level, row, planes, n_channels);
            sample.row(planes.chunks_exact(src.width()));
        }
        sample.finish();
    }

    /// Gives memory back of which there is more than `keep_bytes`.
    pub(crate) fn release_above(&mut self, keep_bytes: usize) {
        self.exact.release_above(keep_bytes);
    }
}

/// Makes one row of each channel of a row of pixels.
fn take_apart(level: Level, row: &[u8], planes: &mut [u8], n_channels: usize) {
    let width = row.len() / n_channels;
    match n_channels {
        1 => planes.copy_from_slice(row),
        3 => {
            let (r, rest) = planes.split_at_mut(width);
            let (g, b) = rest.split_at_mut(width);
            colour::deinterleave(level, row, [r, g, b]);
        }
        _ => {
            for (nth, plane) in planes.chunks_exact_mut(width).enumerate() {
                let bytes = row.iter().skip(nth).step_by(n_channels);
                plane.iter_mut().zip(bytes).for_each(|(place, &byte)| *place = byte);
            }
        }
    }
}
