//! Runs a recipe up to the cut: record in, sample out.
//!
//! A `Pipeline` is the recipe made ready, shared by all workers; a `Scratch` is one
//! worker's memory. What happens depends on the recipe, the record and the sample's key
//! alone. Nothing here computes a pixel: each op has its own file. What comes after the
//! cut is `finish.rs`, which is to be read next.

use std::mem::swap;

use bothends_core::recipe::draw::{random_crop, random_resized_crop};
use bothends_core::recipe::{Interpolation, Numerics, Op, Padding, Recipe, Size};
use bothends_core::rng::Draws;
use bothends_core::sample::{Record, SampleKey};
use bothends_core::tensor::SampleShape;

use crate::crop::{center, window};
use crate::decode::{check_size, decode};
use crate::error::{OpsError, SampleFault};
use crate::flip;
use crate::image::Image;
use crate::resize::Resizer;

/// Largest buffer that a worker keeps for the next sample; what one huge image took beyond
/// it is given back after that image.
const KEEP_BYTES: usize = 64 << 20;

/// One worker's memory. After warm-up no op allocates per sample (the JPEG and PNG
/// libraries do, inside).
#[derive(Debug, Default)]
pub struct Scratch {
    resizer: Resizer,
    /// The picture as far as the ops have come.
    image: Image,
    /// Where an op that cannot work in place puts its result.
    next: Image,
    source_pixels: u64,
}

impl Scratch {
    /// Pixels of the image that the last sample was decoded from; 0 when nothing was decoded.
    /// A device's cost model asks.
    #[must_use]
    pub fn source_pixels(&self) -> u64 {
        self.source_pixels
    }

    fn release_excess(&mut self) {
        self.image.release_above(KEEP_BYTES);
        self.next.release_above(KEEP_BYTES);
        self.resizer.release_above(KEEP_BYTES);
    }
}

/// A recipe, validated and ready to run.
#[derive(Debug, Clone)]
pub struct Pipeline {
    ops: Vec<Op>,
    shape: SampleShape,
}

impl Pipeline {
    /// Prepares `recipe` for samples that have `shape` at the cut
    /// (from `Recipe::shape`).
    ///
    /// # Errors
    /// [`OpsError::Recipe`] when this build does not have the recipe's numerics.
    pub fn new(recipe: &Recipe, shape: SampleShape) -> Result<Self, OpsError> {
        match recipe.numerics() {
            Numerics::Exact => {}
            Numerics::Planar => {
                let why = format!(
                    "recipe `{}` asks for planar numerics, which this build does not have; \
                     use `exact`",
                    recipe.name()
                );
                return Err(OpsError::Recipe { why });
            }
        }
        Ok(Self { ops: recipe.before_cut().to_vec(), shape })
    }

    /// The shape of every sample this makes.
    #[must_use]
    pub fn shape(&self) -> SampleShape {
        self.shape
    }

    /// Makes the sample of `key` from `record` into `out`, which is one sample long.
    /// Takes as long as decoding takes; waits for nothing. After an error `out` is
    /// unchanged.
    ///
    /// # Errors
    /// [`OpsError::BadSample`] when the record is not an image, damaged, or of a size or
    /// kind that the recipe cannot use; [`OpsError::BufferLength`] when `out` is not
    /// [`Self::shape`] long.
    pub fn run(
        &self,
        scratch: &mut Scratch,
        key: SampleKey,
        record: Record<'_>,
        out: &mut [u8],
    ) -> Result<(), OpsError> {
        scratch.source_pixels = 0;
        let need = self.shape.len();
        if out.len() != need {
            return Err(OpsError::BufferLength { got: out.len(), need });
        }
        if self.ops.is_empty() {
            let got = record.bytes.len();
            if got != need {
                return Err(SampleFault::RecordLength { got, need }.into());
            }
            out.copy_from_slice(record.bytes);
            return Ok(());
        }
        let made = self.make(scratch, key, record);
        if made.is_ok() {
            out.copy_from_slice(scratch.image.pixels());
        }
        scratch.release_excess();
        made
    }

    fn make(
        &self,
        scratch: &mut Scratch,
        key: SampleKey,
        record: Record<'_>,
    ) -> Result<(), OpsError> {
        for (op_index, op) in (0..).zip(&self.ops) {
            apply(op, Draws::new(key, op_index), record, scratch)?;
        }
        let got = scratch.image.shape();
        if got != self.shape {
            return Err(SampleFault::Shape { got, need: self.shape }.into());
        }
        Ok(())
    }
}

/// One op on `scratch.image`; `draws` are the op's own numbers for this sample.
fn apply(
    op: &Op,
    mut draws: Draws,
    record: Record<'_>,
    scratch: &mut Scratch,
) -> Result<(), OpsError> {
    let Scratch { resizer, image, next, source_pixels } = scratch;
    match *op {
        Op::Decode => {
            decode(record, image)?;
            let Size { height, width } = image.size();
            *source_pixels = u64::from(height) * u64::from(width);
        }
        Op::RandomResizedCrop {
            size,
            scale,
            ratio,
            interpolation: Interpolation::Bilinear,
        } => {
            let drawn = random_resized_crop(&mut draws, image.size(), scale, ratio);
            let inside = image.view().crop(drawn).expect("a drawn box lies in its image");
            resizer.resize(inside, size, next);
            swap(image, next);
        }
        Op::Resize { size, interpolation: Interpolation::Bilinear } => {
            let Size { height, width } = size.apply(image.size());
            // A short side's partner may be anything when the image is a thin strip.
            let size = check_size(height as usize, width as usize)?;
            resizer.resize(image.view(), size, next);
            swap(image, next);
        }
        Op::CenterCrop { size } => {
            let Size { height, width } = image.size();
            let corner = [center(height, size.height), center(width, size.width)];
            next.reshape(size, image.shape().channels);
            window(image.view(), corner, 0, next);
            swap(image, next);
        }
        Op::RandomCrop { size, padding, fill } => {
            let padded = padded(image.size(), padding);
            let drawn = random_crop(&mut draws, padded, size)
                .ok_or(SampleFault::CropTooLarge { crop: size, image: padded })?;
            let top = i64::from(drawn.top) - i64::from(padding.top);
            let left = i64::from(drawn.left) - i64::from(padding.left);
            next.reshape(size, image.shape().channels);
            window(image.view(), [top, left], fill, next);
            swap(image, next);
        }
        Op::RandomHorizontalFlip { p } if draws.bernoulli(p) => flip::horizontal(image),
        Op::RandomVerticalFlip { p } if draws.bernoulli(p) => flip::vertical(image),
        Op::RandomHorizontalFlip { .. } | Op::RandomVerticalFlip { .. } => {}
        // `Recipe::before_cut` leaves these to `finish`.
        Op::Normalise(_) | Op::ToDtype { .. } | Op::Layout { .. } => {}
    }
    Ok(())
}

/// The size of an image with its padding; the padding itself is never made.
fn padded(image: Size, padding: Padding) -> Size {
    let Padding { left, top, right, bottom } = padding;
    Size {
        height: image.height.saturating_add(top).saturating_add(bottom),
        width: image.width.saturating_add(left).saturating_add(right),
    }
}
