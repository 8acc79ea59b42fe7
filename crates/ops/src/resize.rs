//! Crops, resizes and mirrors interleaved 8-bit images, in one step.
//!
//! What that means is in `resample.rs`, which works on planes; this takes pixels apart into
//! them. Taps beyond the edge of the part do not exist: cropping first and resizing then
//! never looks outside the crop. Where the image is a JPEG that has not been decoded yet,
//! `fused.rs` goes on.

use bothends_core::recipe::draw::CropBox;
use bothends_core::recipe::{Numerics, Size};

use crate::colour;
use crate::image::{Image, View};
use crate::kernels::Level;
use crate::resample::{Colour, Exact, Planar, Sampling, Target};

/// What becomes of an image.
#[derive(Debug, Clone, Copy)]
pub struct Crop {
    /// The part that is resized, in pixels.
    pub part: CropBox,
    /// What to.
    pub target: Target,
    /// How pixels are computed. `Planar` is for one or three channels; images of other
    /// numbers are computed as `Exact`.
    pub numerics: Numerics,
}

/// Resizes images one after the other; keeps its memory.
#[derive(Debug)]
pub struct Resizer {
    level: Level,
    pub(crate) exact: Exact,
    pub(crate) planar: Planar,
    pub(crate) samplings: Vec<Sampling>,
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
        Self {
            level,
            exact: Exact::new(level),
            planar: Planar::new(level),
            samplings: Vec::new(),
            planes: Vec::new(),
        }
    }

    /// Resizes all of `src` to `size` into `out`, in exact numerics; see [`Self::crop`].
    pub fn resize(&mut self, src: View<'_>, size: Size, out: &mut Image) {
        let from = src.shape();
        let part = CropBox { top: 0, left: 0, height: from.height, width: from.width };
        let target = Target::whole(size);
        self.crop(src, &Crop { part, target, numerics: Numerics::Exact }, out);
    }

    /// Makes `crop` of `src` into `out`, which takes the target's size and the channels of
    /// `src`. Of nothing comes a black image.
    ///
    /// # Panics
    /// When the part does not lie in `src`.
    pub fn crop(&mut self, src: View<'_>, crop: &Crop, out: &mut Image) {
        let n_channels = src.channels();
        out.reshape(crop.target.sample_size(), src.shape().channels);
        let CropBox { height, width, .. } = crop.part;
        if height == 0 || width == 0 || n_channels == 0 || out.shape().is_empty() {
            out.pixels_mut().fill(0);
            return;
        }
        let numerics = match n_channels {
            1 | 3 => crop.numerics,
            _ => Numerics::Exact,
        };
        let crop = Crop { numerics, ..*crop };
        let needed = self.begin(&crop, n_channels);
        let inside = src.crop(needed).expect("the part lies in the image");
        let mut planes = std::mem::take(&mut self.planes);
        planes.resize(inside.width() * n_channels, 0);
        for row in inside.rows() {
            take_apart(self.level, row, n_channels, &mut planes);
            self.row(numerics, planes.chunks_exact(inside.width()));
        }
        self.planes = planes;
        self.finish(numerics, out);
    }

    /// Begins with planes of the image's own resolution; returns the part that is needed.
    pub(crate) fn begin(&mut self, crop: &Crop, n_planes: usize) -> CropBox {
        match crop.numerics {
            Numerics::Exact => {
                self.exact.begin(crop.part, n_planes, &crop.target);
                self.exact.needed()
            }
            Numerics::Planar => {
                let samplings = &[Sampling::FULL; 3][..n_planes];
                self.planar.begin(crop.part, samplings, Colour::AsIs, &crop.target);
                self.planar.needed(0)
            }
        }
    }

    /// The next row of what is needed, one slice for each plane.
    pub(crate) fn row<'a>(
        &mut self,
        numerics: Numerics,
        planes: impl IntoIterator<Item = &'a [u8]>,
    ) {
        match numerics {
            Numerics::Exact => self.exact.row(planes),
            Numerics::Planar => {
                for (nth, row) in planes.into_iter().enumerate() {
                    self.planar.row(nth, row);
                }
            }
        }
    }

    /// Writes the sample, once all rows have come.
    pub(crate) fn finish(&mut self, numerics: Numerics, out: &mut Image) {
        match numerics {
            Numerics::Exact => self.exact.finish(out.pixels_mut()),
            Numerics::Planar => self.planar.finish(out.pixels_mut()),
        }
    }

    /// Gives memory back of which there is more than `keep_bytes`.
    pub(crate) fn release_above(&mut self, keep_bytes: usize) {
        self.exact.release_above(keep_bytes);
        self.planar.release_above(keep_bytes);
    }
}

/// One row of pixels becomes a row for each channel, one behind the other.
fn take_apart(level: Level, row: &[u8], n_channels: usize, planes: &mut [u8]) {
    let width = row.len() / n_channels;
    if n_channels == 3 {
        let (r, rest) = planes.split_at_mut(width);
        let (g, b) = rest.split_at_mut(width);
        colour::deinterleave(level, row, [r, g, b]);
        return;
    }
    for (nth, plane) in planes.chunks_exact_mut(width).enumerate() {
        let bytes = row.iter().skip(nth).step_by(n_channels);
        plane.iter_mut().zip(bytes).for_each(|(place, &byte)| *place = byte);
    }
}
