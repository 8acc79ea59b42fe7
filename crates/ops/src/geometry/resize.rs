//! Crops, resizes and mirrors interleaved 8-bit images, in one step.
//!
//! What that means is in `resample.rs`, which works on planes; this takes pixels apart into
//! them. Taps beyond the edge of the part do not exist: cropping first and resizing then
//! never looks outside the crop. Where the image is a JPEG that has not been decoded yet,
//! `pipeline/fused.rs` goes on.

use bothends_core::recipe::draw::CropBox;
use bothends_core::recipe::{Interpolation, Numerics, Size};

use crate::colour;
use crate::geometry::resample::{
    Colour, Exact, ExactSample, FirstPass, Nearest, Outlet, Planar, PlanarSample, Planes,
    Sampling, Target,
};
use crate::image::{Image, View};
use crate::kernels::Level;

/// What becomes of an image.
#[derive(Debug, Clone, Copy)]
pub struct Crop {
    /// The part that is resized, in pixels.
    pub part: CropBox,
    /// What to. Which pass comes first follows from the numerics, whatever stands there.
    pub target: Target,
    /// How pixels are computed. `Planar` is for one or three channels; images of other
    /// numbers are computed as `Exact`.
    pub numerics: Numerics,
}

impl Crop {
    /// The target, with the pass that comes first in these numerics.
    #[must_use]
    pub fn ordered(&self) -> Target {
        let first = FirstPass::of(self.numerics, self.part, self.target.size);
        Target { first, ..self.target }
    }
}

/// Resizes images one after the other; keeps its memory.
#[derive(Debug)]
pub struct Resizer {
    level: Level,
    pub(crate) exact: Exact,
    pub(crate) planar: Planar,
    nearest: Nearest,
    pub(crate) samplings: Vec<Sampling>,
    /// One row, its channels one after the other.
    planes: Vec<u8>,
}

/// A sample being made of rows at the image's own resolution, one slice for each channel.
#[derive(Debug)]
pub(crate) enum Making<'a> {
    Exact(ExactSample<'a>),
    Planar(PlanarSample<'a>),
}

impl Making<'_> {
    /// The part of the image whose rows are wanted.
    pub(crate) fn needed(&self) -> CropBox {
        match self {
            Self::Exact(sample) => sample.needed(),
            Self::Planar(sample) => sample.needed(0),
        }
    }

    /// Passes over the next row if nothing is made of it, and says whether it has.
    pub(crate) fn passes_over(&mut self) -> bool {
        match self {
            Self::Exact(sample) => sample.passes_over(),
            Self::Planar(_) => false,
        }
    }

    pub(crate) fn row<'r>(&mut self, channels: impl IntoIterator<Item = &'r [u8]>) {
        match self {
            Self::Exact(sample) => sample.row(channels),
            Self::Planar(sample) => {
                for (nth, row) in channels.into_iter().enumerate() {
                    sample.rows(nth, [row]);
                }
            }
        }
    }

    pub(crate) fn finish(self) {
        match self {
            Self::Exact(sample) => sample.finish(),
            Self::Planar(sample) => sample.finish(),
        }
    }
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
            nearest: Nearest::new(level),
            samplings: Vec::new(),
            planes: Vec::new(),
        }
    }

    /// Resizes all of `src` to `size` into `out`, bilinear and in exact numerics; see [`Self::crop`].
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
        let mut planes = std::mem::take(&mut self.planes);
        match (n_channels, crop.target.interpolation) {
            (1..=4, Interpolation::Nearest) => {
                self.nearest.crop(src, crop.part, &crop.target, out.pixels_mut());
            }
            (1..=4, _) => {
                let level = self.level;
                let mut sample = self.begin(crop, n_channels, out.pixels_mut());
                let inside =
                    src.crop(sample.needed()).expect("the part lies in the image");
                planes.resize(inside.width() * n_channels, 0);
                for row in inside.rows() {
                    take_apart(level, row, n_channels, &mut planes);
                    sample.row(planes.chunks_exact(inside.width()));
                }
                sample.finish();
            }
            _ => self.crop_many(src, crop, out.pixels_mut(), &mut planes),
        }
        self.planes = planes;
    }

    /// Begins a sample of `n_channels` planes at the image's own resolution.
    pub(crate) fn begin<'a>(
        &'a mut self,
        crop: &Crop,
        n_channels: usize,
        out: &'a mut [u8],
    ) -> Making<'a> {
        if crop.numerics == Numerics::Planar && matches!(n_channels, 1 | 3) {
            let samplings = &[Sampling::FULL; 3][..n_channels];
            let planes = Planes { samplings, colour: Colour::AsIs };
            return Making::Planar(self.planar.begin(
                planes,
                crop.part,
                &crop.target,
                out,
            ));
        }
        let out = Outlet::Pixels(out);
        Making::Exact(self.exact.begin(crop.part, n_channels, &crop.ordered(), out))
    }

    /// An image of more than four channels, one after the other.
    fn crop_many(
        &mut self,
        src: View<'_>,
        crop: &Crop,
        out: &mut [u8],
        plane: &mut Vec<u8>,
    ) {
        let n_channels = src.channels();
        let mut sample_plane = vec![0; out.len() / n_channels];
        for nth in 0..n_channels {
            let mut sample = self.begin(crop, 1, &mut sample_plane);
            let inside = src.crop(sample.needed()).expect("the part lies in the image");
            for row in inside.rows() {
                plane.clear();
                plane.extend(row.iter().skip(nth).step_by(n_channels));
                sample.row([&plane[..]]);
            }
            sample.finish();
            let places = out.iter_mut().skip(nth).step_by(n_channels);
            places.zip(&sample_plane).for_each(|(place, &byte)| *place = byte);
        }
    }

    /// Gives memory back of which there is more than `keep_bytes`; the bytes that it keeps.
    pub(crate) fn release_above(&mut self, keep_bytes: usize) -> usize {
        self.exact.release_above(keep_bytes) + self.planar.release_above(keep_bytes)
    }
}

/// One row of pixels becomes a row for each channel, one after the other.
fn take_apart(level: Level, row: &[u8], n_channels: usize, planes: &mut [u8]) {
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
                for (place, pixel) in plane.iter_mut().zip(row.chunks_exact(n_channels)) {
                    *place = pixel[nth];
                }
            }
        }
    }
}
