//! Runs a recipe up to the cut: record in, sample out.
//!
//! A `Pipeline` is the prepared recipe, shared by all workers; a `Scratch` is the memory of one worker. The
//! result depends on the recipe, the record and the key of the sample alone. `core` decides everything as
//! soon as the size of the image is known, and `steps.rs` carries it out. Nothing here computes a pixel.
//! Consecutive steps may be fused into one (`fused.rs`), with the same bytes. Read `finish.rs` next for
//! what comes after the cut.

mod beside;
mod fused;
mod layout;
mod steps;

use std::ops::Range;

use bothends_core::blocks::Blocks;
use bothends_core::recipe::step::Step;
use bothends_core::recipe::{Decision, Misfit, Numerics, Recipe, Size};
use bothends_core::sample::{Encoding, Record, RecordPart, SampleKey};
use bothends_core::tensor::{SampleShape, Views};

use self::beside::{bytes_beside, bytes_of};
use self::fused::{crop_picture, crop_rows};
use self::steps::{Lead, rgb};
use crate::decode::picture::Picture;
use crate::decode::room::{DecodeRoom, MOST_KEPT, Room};
use crate::decode::{Damage, Format, ImageDecoder, is_recoverable, need_bytes};
use crate::error::{OpsError, SampleFault};
use crate::finish::Finish;
use crate::geometry::resample::TakesRows;
use crate::geometry::resize::Crop;
use crate::image::{Image, check_size};
use crate::jpeg::{Noted, Region, Stage, Stored};
use crate::kernels::Level;

pub use self::layout::{ComponentLayout, CropLayout};
pub use self::steps::Workbench;

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
    damage: Option<Damage>,
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

    /// What was wrong with the last sample's record, where it was decoded all the same; `None`
    /// for a record that was intact.
    #[must_use]
    pub fn damage(&self) -> Option<Damage> {
        self.damage
    }

    /// What may be kept about the last sample's record, for [`Record::entry_points`] of the
    /// next visit; empty when there is nothing, or nothing new.
    #[must_use]
    pub fn new_entry_points(&self) -> &[u8] {
        if self.is_first_visit { self.decoder.jpeg.entry_points() } else { &[] }
    }

    /// Gives back what huge images took: the largest buffers, until the others have no more than
    /// `keep_bytes` together.
    fn release_above(&mut self, keep_bytes: usize) {
        let mut largest = keep_bytes.min(MOST_KEPT);
        while self.release_each_above(largest) > keep_bytes && largest > 0 {
            largest /= 2;
        }
    }

    /// Gives back every buffer of more than `keep_bytes`; the bytes of those that it keeps.
    fn release_each_above(&mut self, keep_bytes: usize) -> usize {
        self.bench.release_above(keep_bytes)
            + self.shared.release_above(keep_bytes)
            + self.decoder.release_above(keep_bytes)
    }
}

/// A recipe, validated and ready to run.
#[derive(Debug, Clone)]
pub struct Pipeline {
    recipe: Recipe,
    views: Views,
    room: Room,
}

impl Pipeline {
    /// Prepares `recipe` for samples that have these views at the cut (from
    /// [`Recipe::views`]).
    #[must_use]
    pub fn new(recipe: &Recipe, views: Views) -> Self {
        let room = Room::new(DecodeRoom::default());
        Self { recipe: recipe.clone(), views, room }
    }

    /// The same, with these bounds on what decoding takes: all who work with this pipeline or a
    /// clone of it count.
    #[must_use]
    pub fn with_decode_room(self, limits: DecodeRoom) -> Self {
        Self { room: Room::new(limits), ..self }
    }

    /// The same, with a room that other pipelines have, too: all of them together keep to its bounds.
    #[must_use]
    pub fn with_room(self, room: &Room) -> Self {
        Self { room: room.clone(), ..self }
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
    /// Takes as long as decoding takes; waits only with an image that needs much memory, for
    /// others of that kind. After an error `out` is unchanged.
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
        let need = self.sample_bytes();
        scratch.source_pixels = 0;
        scratch.damage = None;
        scratch.is_first_visit = false;
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
        self.in_room(scratch, (key, record), |scratch, picture| {
            match self.begin(scratch, key, (record, picture), To::Sample(out))? {
                Begun::Sample | Begun::Rows => Ok(()),
                Begun::Image { n_steps } => self.go_on(scratch, n_steps, out),
            }
        })
    }

    /// Makes the sample of `key` from `record` and finishes it: as [`Self::run`] and then
    /// [`Finish::run`], and where it can be in one pass, so that the sample's writes to memory
    /// fall between the rest of the work. After an error `out` is unchanged.
    ///
    /// # Errors
    /// As [`Self::run`].
    ///
    /// # Panics
    /// When `out` is not one delivered sample long.
    pub fn run_to_output(
        &self,
        scratch: &mut Scratch,
        key: SampleKey,
        record: Record<'_>,
        Delivery { finish, cut, out }: Delivery<'_>,
    ) -> Result<(), OpsError> {
        scratch.source_pixels = 0;
        scratch.damage = None;
        scratch.is_first_visit = false;
        cut.resize(self.sample_bytes(), 0);
        if self.recipe.before_cut().is_empty() {
            self.run(scratch, key, record, cut)?;
            finish.run(Some(key), cut, out);
            return Ok(());
        }
        let is_exact = self.recipe.numerics() != Numerics::Planar;
        self.in_room(scratch, (key, record), |scratch, picture| {
            let opened = (record, picture);
            let begun = match finish.rows(out).filter(|_| is_exact) {
                Some(mut rows) => self.begin(scratch, key, opened, To::Rows(&mut rows)),
                None => self.begin(scratch, key, opened, To::Sample(cut)),
            };
            match begun? {
                Begun::Rows => finish.erase(key, out),
                Begun::Sample => finish.run(Some(key), cut, out),
                Begun::Image { n_steps } => {
                    self.go_on(scratch, n_steps, cut)?;
                    finish.run(Some(key), cut, out);
                }
            }
            Ok(())
        })
    }

    /// Opens the record and does `work` once there is room for its image.
    fn in_room<'r>(
        &self,
        scratch: &mut Scratch,
        (key, record): (SampleKey, Record<'r>),
        work: impl FnOnce(&mut Scratch, Option<Picture<'r>>) -> Result<(), OpsError>,
    ) -> Result<(), OpsError> {
        let picture = match Picture::open(record) {
            // The decoder will find the same fault, and take the slow path.
            Err(fault) if is_recoverable(&record, &fault) => None,
            opened => opened?,
        };
        let (size, need) = need_bytes(record, picture.as_ref());
        // A part of a record says nothing of the whole one's length.
        let record_bytes = match record.part {
            RecordPart::Whole => Some(record.bytes.len()),
            RecordPart::RowGroups(_) => None,
            RecordPart::Scan { of, .. } => usize::try_from(of).ok(),
        };
        self.room.admits(size, record_bytes)?;
        let opened = (&record, picture.as_ref());
        let beside = || self.beside(key, size, opened, &mut scratch.decision);
        let turn = self.room.take(size, need, beside)?;
        let done = work(scratch, picture);
        scratch.release_above(self.room.keep_bytes());
        drop(turn);
        done
    }

    /// What the sample of `key` may take besides what decoding its record counts.
    fn beside(
        &self,
        key: SampleKey,
        size: Size,
        (record, picture): (&Record<'_>, Option<&Picture<'_>>),
        decision: &mut Decision,
    ) -> u64 {
        // Of a size that the decoder will refuse nothing can be decided: a side of 0 has no crop.
        let is_refused = check_size(size.height as usize, size.width as usize).is_err();
        if is_refused || self.decide(key, rgb(size), decision).is_err() {
            return 0;
        }
        let is_cropped = self.first_crop(decision.shared()).is_some();
        // Other decoders count RGB; of a damaged JPEG it is made whatever the recipe.
        let is_jpeg = record.encoding == Encoding::Image
            && matches!(Format::of(record.bytes), Ok(Format::Jpeg));
        let is_rgb_beside = is_jpeg || picture.is_some() && !is_cropped;
        let rgb_bytes = if is_rgb_beside { bytes_of(size) } else { 0 };
        bytes_beside(decision, size).saturating_add(rgb_bytes)
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
        let done = match Picture::open(record) {
            Ok(picture) => {
                self.begin(scratch, key, (record, picture), To::Sample(&mut []))
            }
            Err(fault) => Err(fault.into()),
        };
        scratch.decoder.jpeg.until = Stage::Sample;
        scratch.is_first_visit = false;
        done.map(drop)
    }

    /// What is done to the sample of `key`, decided again: for people who want to know.
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
        let shape = match Picture::open(record) {
            Ok(Some(picture)) => rgb(picture.frame().size),
            Ok(None) | Err(_) => {
                let mut image = Image::default();
                let decoder = ImageDecoder::default();
                let mut decoder = decoder.with_truncated(self.recipe.truncated());
                decoder.decode(record, &mut image)?;
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

    /// As [`Self::crop_of`], for who makes the sample elsewhere: `None` also where that crop is
    /// not all of the sample, because other steps or views follow.
    ///
    /// # Errors
    /// As of [`Self::crop_of`].
    pub fn only_crop_of(
        &self,
        key: SampleKey,
        size: Size,
        decision: &mut Decision,
    ) -> Result<Option<Crop>, OpsError> {
        self.decide(key, rgb(size), decision)?;
        let crop = self.first_crop(decision.shared());
        Ok(crop.and_then(|(crop, rest)| {
            let shape = rgb(crop.target.sample_size());
            (rest.is_empty() && self.views.shapes() == [shape]).then_some(crop)
        }))
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

    /// The bytes of a JPEG's record that the sample of `key` is made of, where `note` describes the image: the
    /// rows of its scan below the box. `None` where all of the record is needed: the note is another one, or the
    /// recipe does not begin with a decode and a resize.
    #[must_use]
    pub fn scan_for(&self, key: SampleKey, note: &[u8]) -> Option<Range<u32>> {
        let noted = Noted::new(note, 0, &[]).ok()?;
        match self.recipe.first_step(key, rgb(noted.size())).ok()? {
            Some(Step::Resize { part, .. }) => noted.bytes_for(&Region::of(part)),
            _ => None,
        }
    }

    fn decide(
        &self,
        key: SampleKey,
        image: SampleShape,
        into: &mut Decision,
    ) -> Result<(), SampleFault> {
        self.recipe.decide(key, image, into)?;
        let of_views = into.views().flatten();
        let mut sizes = into.shared().iter().chain(of_views).filter_map(Step::new_size);
        sizes.try_for_each(|size| self.room.admits_made(size))
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

    /// Does the steps after the first `n_done`, and puts what comes of them to `out`.
    fn go_on(
        &self,
        scratch: &mut Scratch,
        n_done: usize,
        out: &mut [u8],
    ) -> Result<(), OpsError> {
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
    /// steps, a JPEG goes straight to where the sample goes.
    fn begin(
        &self,
        scratch: &mut Scratch,
        key: SampleKey,
        (record, picture): (Record<'_>, Option<Picture<'_>>),
        to: To<'_>,
    ) -> Result<Begun, OpsError> {
        scratch.decoder.truncated = self.recipe.truncated();
        let Some(picture) = picture else {
            scratch.decoder.decode(record, &mut scratch.bench.image)?;
            return self.begin_image(scratch, key);
        };
        match self.begin_picture(scratch, key, picture, to) {
            Err(OpsError::BadSample(fault)) if is_recoverable(&record, &fault) => {
                scratch.decoder.recover(record, fault, &mut scratch.bench.image)?;
                self.begin_image(scratch, key)
            }
            begun => begun,
        }
    }

    /// What becomes of an image that was decoded as a whole.
    fn begin_image(
        &self,
        scratch: &mut Scratch,
        key: SampleKey,
    ) -> Result<Begun, OpsError> {
        let Scratch { decoder, bench, decision, .. } = scratch;
        scratch.damage = decoder.damage();
        scratch.is_first_visit = false;
        scratch.source_pixels = pixels(bench.image.size());
        self.decide(key, bench.image.shape(), decision)?;
        Ok(Begun::Image { n_steps: 0 })
    }

    fn begin_picture(
        &self,
        scratch: &mut Scratch,
        key: SampleKey,
        picture: Picture<'_>,
        to: To<'_>,
    ) -> Result<Begun, OpsError> {
        let Scratch { decoder, bench, decision, .. } = scratch;
        let size = picture.frame().size;
        self.decide(key, rgb(size), decision)?;
        scratch.source_pixels = pixels(size);
        let steps = decision.shared();
        let Some((crop, rest)) = self.first_crop(steps) else {
            decoder.decode_picture(picture, &mut bench.image)?;
            return Ok(Begun::Image { n_steps: 0 });
        };
        scratch.is_first_visit = picture.is_first_visit();
        let shape = rgb(crop.target.sample_size());
        let is_sample = rest.is_empty() && self.views.shapes() == [shape];
        match to {
            To::Sample(out) if is_sample && out.len() == shape.len() => {
                crop_picture(picture, decoder, &mut bench.resizer, &crop, out)?;
                return Ok(Begun::Sample);
            }
            To::Rows(rows) if is_sample => {
                crop_rows(picture, decoder, &mut bench.resizer, &crop, rows)?;
                return Ok(Begun::Rows);
            }
            To::Sample(_) | To::Rows(_) => {}
        }
        let pixels = bench.image.reshape(crop.target.sample_size(), 3);
        crop_picture(picture, decoder, &mut bench.resizer, &crop, pixels)?;
        Ok(Begun::Image { n_steps: steps.len() - rest.len() })
    }
}

/// Where a finished sample goes, and by way of what.
#[derive(Debug)]
pub struct Delivery<'a> {
    /// What is done after the cut.
    pub finish: &'a Finish,
    /// Memory for the sample at the cut, kept from sample to sample.
    pub cut: &'a mut Vec<u8>,
    /// One delivered sample.
    pub out: &'a mut [u8],
}

/// Where a sample goes when it is made in one step.
enum To<'a> {
    /// To its place, if that is one sample long.
    Sample(&'a mut [u8]),
    /// Row by row to somebody, in exact numerics.
    Rows(&'a mut dyn TakesRows),
}

/// What the first step made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// The sample itself.
    Sample,
    /// The rows of the sample.
    Rows,
    /// The image as it is after so many steps.
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
                Self::TooThin { height, width }
            }
            Misfit::Size { size: Size { height, width } } => {
                Self::TooLarge { height: height as usize, width: width as usize }
            }
        }
    }
}
