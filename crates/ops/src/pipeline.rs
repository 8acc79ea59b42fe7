//! Runs a recipe up to the cut: record in, sample out.
//!
//! A `Pipeline` is the recipe made ready, shared by all workers; a `Scratch` is one
//! worker's memory. What happens depends on the recipe, the record and the sample's key
//! alone. Nothing here computes a pixel: each op has its own file. Ops that follow each
//! other may be done as one step (`fused.rs`), with the same bytes. What comes after the cut
//! is `finish.rs`, which is to be read next.

use std::mem::swap;
use std::ops::Range;

use bothends_core::blocks::Blocks;
use bothends_core::recipe::draw::{CropBox, random_crop, random_resized_crop};
use bothends_core::recipe::{Numerics, Op, Padding, Recipe, Size};
use bothends_core::rng::Draws;
use bothends_core::sample::{Record, SampleKey};
use bothends_core::tensor::SampleShape;

use crate::crop::{center, window};
use crate::decode::{ImageDecoder, check_size};
use crate::error::{OpsError, SampleFault};
use crate::flip;
use crate::fused::crop_picture;
use crate::image::Image;
use crate::jpeg::{Region, Stage, Stored};
use crate::kernels::Level;
use crate::picture::Picture;
use crate::resample::{Mirror, Target};
use crate::resize::{Crop, Resizer};

/// Largest buffer that a worker keeps for the next sample; what one huge image took beyond
/// it is given back after that image.
const KEEP_BYTES: usize = 64 << 20;

/// One worker's memory. After warm-up nothing allocates per sample (but the PNG library,
/// inside).
#[derive(Debug, Default)]
pub struct Scratch {
    decoder: ImageDecoder,
    resizer: Resizer,
    /// The picture as far as the ops have come.
    image: Image,
    /// Where an op that cannot work in place puts its result.
    next: Image,
    source_pixels: u64,
    /// Whether the last sample was decoded without entry points, from a JPEG.
    is_first_visit: bool,
}

impl Scratch {
    /// Memory of a worker that uses the kernels of `level`; by default, those of the process.
    #[must_use]
    pub fn new(level: Level) -> Self {
        let (decoder, resizer) = (ImageDecoder::new(level), Resizer::new(level));
        Self { decoder, resizer, ..Self::default() }
    }

    /// Pixels of the image that the last sample was made from; 0 when nothing was decoded.
    /// A device's cost model asks.
    #[must_use]
    pub fn source_pixels(&self) -> u64 {
        self.source_pixels
    }

    /// What may be kept about the last sample's record, for [`Record::entry_points`] of the
    /// next visit; empty when there is nothing, or nothing new.
    #[must_use]
    pub fn new_entry_points(&self) -> &[u8] {
        if self.is_first_visit { self.decoder.jpeg.entry_points() } else { &[] }
    }

    fn release_excess(&mut self) {
        self.image.release_above(KEEP_BYTES);
        self.next.release_above(KEEP_BYTES);
        self.resizer.release_above(KEEP_BYTES);
        self.decoder.release_above(KEEP_BYTES);
    }
}

/// A recipe, validated and ready to run.
#[derive(Debug, Clone)]
pub struct Pipeline {
    ops: Vec<Op>,
    shape: SampleShape,
    numerics: Numerics,
}

impl Pipeline {
    /// Prepares `recipe` for samples that have `shape` at the cut
    /// (from `Recipe::shape`).
    #[must_use]
    pub fn new(recipe: &Recipe, shape: SampleShape) -> Self {
        let (ops, numerics) = (recipe.before_cut().to_vec(), recipe.numerics());
        Self { ops, shape, numerics }
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
        scratch.is_first_visit = false;
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
        let made = self.make(scratch, key, record, out);
        scratch.release_excess();
        made
    }

    /// The beginning of [`Self::run`], as far as `stage` and without a result: for
    /// benchmarks. Does something only where a decode and a resize come first, and stops
    /// early only where the record is a JPEG or one of blocks.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_until(
        &self,
        stage: Stage,
        scratch: &mut Scratch,
        key: SampleKey,
        record: Record<'_>,
    ) -> Result<(), OpsError> {
        scratch.decoder.jpeg.until = stage;
        let done = self.begin(scratch, key, record, &mut []);
        scratch.decoder.jpeg.until = Stage::Sample;
        scratch.is_first_visit = false;
        done.map(drop)
    }

    /// What is drawn for the sample of `key` where its image has that size: the part, what
    /// it is resized to and whether it is mirrored. `None` for recipes that do not begin with
    /// a decode and a resize.
    ///
    /// # Errors
    /// [`OpsError::BadSample`] when the image is too thin to be resized.
    pub fn crop_of(&self, key: SampleKey, size: Size) -> Result<Option<Crop>, OpsError> {
        if !self.resizes_first() {
            return Ok(None);
        }
        Ok(Some(self.first_crop(key, size)?.0))
    }

    /// The row groups of a record of blocks that the sample of `key` is made of: those below
    /// the box where the recipe begins with a decode and a resize, else all.
    ///
    /// # Errors
    /// [`OpsError::BadSample`] for an image that is too thin to be resized, or too large.
    pub fn groups_for(
        &self,
        key: SampleKey,
        blocks: Blocks<'_>,
    ) -> Result<Range<usize>, OpsError> {
        let stored = Stored::new(blocks, 0, &[])?;
        Ok(match self.crop_of(key, stored.size())? {
            Some(crop) => stored.groups_for(&Region::of(crop.part)),
            None => 0..blocks.head().n_groups(),
        })
    }

    fn resizes_first(&self) -> bool {
        matches!(
            self.ops[..],
            [Op::Decode, Op::RandomResizedCrop { .. } | Op::Resize { .. }, ..]
        )
    }

    fn make(
        &self,
        scratch: &mut Scratch,
        key: SampleKey,
        record: Record<'_>,
        out: &mut [u8],
    ) -> Result<(), OpsError> {
        let n_done = match self.begin(scratch, key, record, out)? {
            Begun::Sample => return Ok(()),
            Begun::Image { n_ops } => n_ops,
        };
        for (op_index, op) in (0..).zip(&self.ops).skip(n_done) {
            self.apply(op, Draws::new(key, op_index), record, scratch)?;
        }
        let got = scratch.image.shape();
        if got != self.shape {
            return Err(SampleFault::Shape { got, need: self.shape }.into());
        }
        out.copy_from_slice(scratch.image.pixels());
        Ok(())
    }

    /// The first ops, if they are a decode and a resize: a centre crop and a flip behind them
    /// are done in the same step. Where these are all ops, a JPEG goes straight to `out`, if
    /// that is one sample long.
    fn begin(
        &self,
        scratch: &mut Scratch,
        key: SampleKey,
        record: Record<'_>,
        out: &mut [u8],
    ) -> Result<Begun, OpsError> {
        if !self.resizes_first() {
            return Ok(Begun::Image { n_ops: 0 });
        }
        let Scratch { decoder, resizer, image, next, .. } = scratch;
        if let Some(picture) = Picture::open(record)? {
            let size = picture.size();
            let (crop, n_ops) = self.first_crop(key, size)?;
            scratch.is_first_visit = picture.is_first_visit();
            scratch.source_pixels = pixels(size);
            let Size { height, width } = crop.target.sample_size();
            let shape = SampleShape { height, width, channels: 3 };
            if n_ops == self.ops.len() && shape == self.shape && out.len() == shape.len()
            {
                crop_picture(picture, decoder, resizer, &crop, out)?;
                return Ok(Begun::Sample);
            }
            let pixels = image.reshape(crop.target.sample_size(), 3);
            crop_picture(picture, decoder, resizer, &crop, pixels)?;
            return Ok(Begun::Image { n_ops });
        }
        decoder.decode(record, next)?;
        let size = next.size();
        let (crop, n_ops) = self.first_crop(key, size)?;
        resizer.crop(next.view(), &crop, image);
        scratch.source_pixels = pixels(size);
        Ok(Begun::Image { n_ops })
    }

    /// What the ops behind the decode, and before the first that cannot be done in the same
    /// step, make of an image of `size`; and how many ops that is with the decode.
    fn first_crop(&self, key: SampleKey, size: Size) -> Result<(Crop, usize), OpsError> {
        let draws = |op_index: usize| {
            Draws::new(key, u32::try_from(op_index).expect("at most MAX_OPS"))
        };
        let (part, target) = resize(&self.ops[1], draws(1), size)?;
        let mut crop = Crop { part, target, numerics: self.numerics };
        let mut n_done = 2;
        if let Some(Op::CenterCrop { size }) = self.ops.get(n_done)
            && let Some(window) = middle(target.size, *size)
        {
            crop.target.window = window;
            n_done += 1;
        }
        if let Some(Op::RandomHorizontalFlip { p }) = self.ops.get(n_done) {
            if draws(n_done).bernoulli(*p) {
                crop.target.mirror = Mirror::Horizontal;
            }
            n_done += 1;
        }
        Ok((crop, n_done))
    }

    /// One op on `scratch.image`; `draws` are the op's own numbers for this sample.
    fn apply(
        &self,
        op: &Op,
        mut draws: Draws,
        record: Record<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), OpsError> {
        let Scratch { decoder, resizer, image, next, .. } = scratch;
        match *op {
            Op::Decode => {
                decoder.decode(record, image)?;
                scratch.source_pixels = pixels(image.size());
            }
            Op::RandomResizedCrop { .. } | Op::Resize { .. } => {
                let (part, target) = resize(op, draws, image.size())?;
                let crop = Crop { part, target, numerics: self.numerics };
                resizer.crop(image.view(), &crop, next);
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
            Op::RandomHorizontalFlip { p } if draws.bernoulli(p) => {
                flip::horizontal(image);
            }
            Op::RandomVerticalFlip { p } if draws.bernoulli(p) => flip::vertical(image),
            Op::RandomHorizontalFlip { .. } | Op::RandomVerticalFlip { .. } => {}
            // `Recipe::before_cut` leaves these to `finish`.
            Op::Normalise(_) | Op::ToDtype { .. } | Op::Layout { .. } => {}
        }
        Ok(())
    }
}

/// What the first step made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// The sample itself.
    Sample,
    /// The image as it is behind so many ops.
    Image { n_ops: usize },
}

/// What a resizing op makes of an image of `image`: the part it takes, and what of it.
fn resize(
    op: &Op,
    mut draws: Draws,
    image: Size,
) -> Result<(CropBox, Target), SampleFault> {
    match *op {
        Op::RandomResizedCrop {
            size,
            scale,
            ratio,
            interpolation: _,
        } => {
            let part = random_resized_crop(&mut draws, image, scale, ratio);
            Ok((part, Target::whole(size)))
        }
        Op::Resize { size, interpolation: _ } => {
            let Size { height, width } = size.apply(image);
            // A short side's partner may be anything when the image is a thin strip.
            let size = check_size(height as usize, width as usize)?;
            let Size { height, width } = image;
            Ok((CropBox { top: 0, left: 0, height, width }, Target::whole(size)))
        }
        Op::Decode
        | Op::CenterCrop { .. }
        | Op::RandomCrop { .. }
        | Op::RandomHorizontalFlip { .. }
        | Op::RandomVerticalFlip { .. }
        | Op::Normalise(_)
        | Op::ToDtype { .. }
        | Op::Layout { .. } => unreachable!("called for ops that resize"),
    }
}

/// The middle of an image of `image`, where it is no smaller than `crop`.
fn middle(image: Size, crop: Size) -> Option<CropBox> {
    let start = |len, crop| u32::try_from(center(len, crop)).ok();
    let top = start(image.height, crop.height)?;
    let left = start(image.width, crop.width)?;
    let Size { height, width } = crop;
    let fits = height <= image.height && width <= image.width && height > 0 && width > 0;
    fits.then_some(CropBox { top, left, height, width })
}

fn pixels(size: Size) -> u64 {
    u64::from(size.height) * u64::from(size.width)
}

/// The size of an image with its padding; the padding itself is never made.
fn padded(image: Size, padding: Padding) -> Size {
    let Padding { left, top, right, bottom } = padding;
    Size {
        height: image.height.saturating_add(top).saturating_add(bottom),
        width: image.width.saturating_add(left).saturating_add(right),
    }
}
