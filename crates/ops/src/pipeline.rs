//! Runs a recipe up to the cut: record in, sample out.
//!
//! A `Pipeline` is the recipe made ready, shared by all workers; a `Scratch` is one
//! worker's memory. What happens depends on the recipe, the record and the sample's key
//! alone: `core` decides it as soon as the image's size is known, `steps.rs` does it. Nothing
//! here computes a pixel. Steps that follow each other may be done as one (`fused.rs`), with
//! the same bytes. What comes after the cut is `finish.rs`, which is to be read next.

use std::ops::Range;

use bothends_core::blocks::Blocks;
use bothends_core::recipe::step::Step;
use bothends_core::recipe::{Decision, Misfit, Recipe, Size};
use bothends_core::sample::{Record, SampleKey};
use bothends_core::tensor::{SampleShape, Views};

use crate::decode::ImageDecoder;
use crate::error::{OpsError, SampleFault};
use crate::fused::crop_picture;
use crate::image::Image;
use crate::jpeg::{Region, Stage, Stored};
use crate::kernels::Level;
use crate::picture::Picture;
use crate::resize::Crop;
use crate::steps::{Lead, Workbench, rgb};

/// Largest buffer that a worker keeps for the next sample; what one huge image took beyond
/// it is given back after that image.
const KEEP_BYTES: usize = 64 << 20;

/// One worker's memory. After warm-up nothing allocates per sample (but the PNG library,
/// inside).
#[derive(Debug, Default)]
pub struct Scratch {
    decoder: ImageDecoder,
    bench: Workbench,
    /// What is done to the sample.
    decision: Decision,
    /// The image that all views are made of.
    shared: Image,
    source_pixels: u64,
    /// Whether the last sample was decoded without entry points, from a JPEG.
    is_first_visit: bool,
}

impl Scratch {
    /// Memory of a worker that uses the kernels of `level`; by default, those of the process.
    #[must_use]
    pub fn new(level: Level) -> Self {
        let (decoder, bench) = (ImageDecoder::new(level), Workbench::new(level));
        Self { decoder, bench, ..Self::default() }
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
        self.bench.release_above(KEEP_BYTES);
        self.shared.release_above(KEEP_BYTES);
        self.decoder.release_above(KEEP_BYTES);
    }
}

/// A recipe, validated and ready to run.
#[derive(Debug, Clone)]
pub struct Pipeline {
    recipe: Recipe,
    views: Views,
}

impl Pipeline {
    /// Prepares `recipe` for samples that have these views at the cut (from
    /// [`Recipe::views`]).
    #[must_use]
    pub fn new(recipe: &Recipe, views: Views) -> Self {
        Self { recipe: recipe.clone(), views }
    }

    /// The shapes of every sample this makes, view by view.
    #[must_use]
    pub fn views(&self) -> &Views {
        &self.views
    }

    /// Bytes of every sample this makes.
    #[must_use]
    pub fn sample_bytes(&self) -> usize {
        self.views.len()
    }

    /// Makes the sample of `key` from `record` into `out`, which is one sample long.
    /// Takes as long as decoding takes; waits for nothing. After an error `out` is
    /// unchanged.
    ///
    /// # Errors
    /// [`OpsError::BadSample`] when the record is not an image, damaged, or of a size or
    /// kind that the recipe cannot use; [`OpsError::BufferLength`] when `out` is not
    /// [`Self::sample_bytes`] long.
    pub fn run(
        &self,
        scratch: &mut Scratch,
        key: SampleKey,
        record: Record<'_>,
        out: &mut [u8],
    ) -> Result<(), OpsError> {
        scratch.source_pixels = 0;
        scratch.is_first_visit = false;
        let need = self.sample_bytes();
        if out.len() != need {
            return Err(OpsError::BufferLength { got: out.len(), need });
        }
        if self.recipe.before_cut().is_empty() {
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

    /// What is done to the sample of `key`, decided anew: for people who want to know.
    ///
    /// # Errors
    /// As [`Self::run`], as far as the record's beginning shows it.
    pub fn decision(
        &self,
        key: SampleKey,
        record: Record<'_>,
    ) -> Result<Decision, OpsError> {
        let mut decision = Decision::default();
        if self.recipe.before_cut().is_empty() {
            return Ok(decision);
        }
        let shape = match Picture::open(record)? {
            Some(picture) => rgb(picture.size()),
            None => {
                let mut image = Image::default();
                ImageDecoder::default().decode(record, &mut image)?;
                image.shape()
            }
        };
        self.decide(key, shape, &mut decision)?;
        Ok(decision)
    }

    /// What is drawn for the sample of `key` where its image has that size: the part, what
    /// it is resized to and whether it is mirrored. `None` for recipes that do not begin with
    /// a decode and a resize. `decision` is memory.
    ///
    /// # Errors
    /// [`OpsError::BadSample`] when the image is too thin to be resized.
    pub fn crop_of(
        &self,
        key: SampleKey,
        size: Size,
        decision: &mut Decision,
    ) -> Result<Option<Crop>, OpsError> {
        self.decide(key, rgb(size), decision)?;
        Ok(self.first_crop(decision.shared()).map(|(crop, _)| crop))
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
        let first = self.recipe.first_step(key, rgb(stored.size()));
        Ok(match first.map_err(SampleFault::from)? {
            Some(Step::Resize { part, .. }) => stored.groups_for(&Region::of(part)),
            _ => 0..blocks.head().n_groups(),
        })
    }

    fn decide(
        &self,
        key: SampleKey,
        image: SampleShape,
        into: &mut Decision,
    ) -> Result<(), SampleFault> {
        self.recipe.decide(key, image, into).map_err(SampleFault::from)
    }

    /// The resize that the steps begin with, and the steps behind it.
    fn first_crop<'a>(&self, steps: &'a [Step]) -> Option<(Crop, &'a [Step])> {
        if steps.is_empty() {
            return None;
        }
        match Lead::of(steps, self.recipe.numerics()) {
            (Lead::Crop(crop), rest) => Some((crop, rest)),
            (Lead::Step(_), _) => None,
        }
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
            Begun::Image { n_steps } => n_steps,
        };
        let numerics = self.recipe.numerics();
        let Scratch { bench, decision, shared, .. } = scratch;
        bench.work(&decision.shared()[n_done..], numerics);
        if let [only] = self.views.shapes() {
            return put(&bench.image, *only, out);
        }
        std::mem::swap(&mut bench.image, shared);
        let mut rest = out;
        for (shape, steps) in self.views.shapes().iter().zip(decision.views()) {
            let (view, behind) = rest.split_at_mut(shape.len());
            bench.work_on(shared.view(), steps, numerics);
            put(&bench.image, *shape, view)?;
            rest = behind;
        }
        Ok(())
    }

    /// Decodes the record and decides what becomes of it. A resize at the beginning, with a
    /// crop and a mirror image behind it, is done in the same step; where these are all
    /// steps, a JPEG goes straight to `out`, if that is one sample long.
    fn begin(
        &self,
        scratch: &mut Scratch,
        key: SampleKey,
        record: Record<'_>,
        out: &mut [u8],
    ) -> Result<Begun, OpsError> {
        let Scratch { decoder, bench, decision, .. } = scratch;
        let Some(picture) = Picture::open(record)? else {
            decoder.decode(record, &mut bench.image)?;
            scratch.source_pixels = pixels(bench.image.size());
            self.decide(key, bench.image.shape(), decision)?;
            return Ok(Begun::Image { n_steps: 0 });
        };
        let size = picture.size();
        self.decide(key, rgb(size), decision)?;
        scratch.source_pixels = pixels(size);
        let steps = decision.shared();
        let Some((crop, rest)) = self.first_crop(steps) else {
            decoder.decode(record, &mut bench.image)?;
            return Ok(Begun::Image { n_steps: 0 });
        };
        scratch.is_first_visit = picture.is_first_visit();
        let shape = rgb(crop.target.sample_size());
        let is_sample = rest.is_empty() && self.views.shapes() == [shape];
        if is_sample && out.len() == shape.len() {
            crop_picture(picture, decoder, &mut bench.resizer, &crop, out)?;
            return Ok(Begun::Sample);
        }
        let pixels = bench.image.reshape(crop.target.sample_size(), 3);
        crop_picture(picture, decoder, &mut bench.resizer, &crop, pixels)?;
        Ok(Begun::Image { n_steps: steps.len() - rest.len() })
    }
}

/// What the first step made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// The sample itself.
    Sample,
    /// The image as it is behind so many steps.
    Image { n_steps: usize },
}

/// Copies a finished view to its place.
fn put(image: &Image, need: SampleShape, out: &mut [u8]) -> Result<(), OpsError> {
    let got = image.shape();
    if got != need {
        return Err(SampleFault::Shape { got, need }.into());
    }
    out.copy_from_slice(image.pixels());
    Ok(())
}

fn pixels(size: Size) -> u64 {
    u64::from(size.height) * u64::from(size.width)
}

impl From<Misfit> for SampleFault {
    fn from(misfit: Misfit) -> Self {
        match misfit {
            Misfit::CropTooLarge { crop, image } => Self::CropTooLarge { crop, image },
            Misfit::Size { size: Size { height, width } }
                if height == 0 || width == 0 =>
            {
                Self::NoPixels
            }
            Misfit::Size { size: Size { height, width } } => {
                Self::TooLarge { height: height as usize, width: width as usize }
            }
        }
    }
}
