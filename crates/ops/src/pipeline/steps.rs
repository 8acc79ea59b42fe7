//! Carries out steps: what `core` has decided is done to an image, one step after the other.
//!
//! Each kind of step has its own file. Here they only meet, alternating between two images. Nothing here
//! draws or decides, and no step can fail. Read `pipeline.rs` next.

use std::mem::swap;

use bothends_core::recipe::draw::CropBox;
use bothends_core::recipe::step::{Mix, Step, Window};
use bothends_core::recipe::{Numerics, Size};
use bothends_core::tensor::SampleShape;

use crate::adjust::Adjuster;
use crate::adjust::erase::erase;
use crate::adjust::mix::Mixer;
use crate::geometry::crop::window;
use crate::geometry::flip;
use crate::geometry::resample::{Mirror, Target};
use crate::geometry::resize::{Crop, Resizer};
use crate::geometry::warp::Warper;
use crate::image::{Image, View};
use crate::kernels::Level;

/// An image, and what works on it; keeps its memory. After warm-up nothing allocates.
#[derive(Debug)]
pub struct Workbench {
    level: Level,
    pub(crate) resizer: Resizer,
    adjuster: Adjuster,
    warper: Warper,
    mixer: Mixer,
    /// The picture as far as the steps have come.
    pub(crate) image: Image,
    /// Where a step that cannot work in place puts its result.
    next: Image,
}

impl Default for Workbench {
    /// One for the level of this process.
    fn default() -> Self {
        Self::new(Level::of_process())
    }
}

impl Workbench {
    /// One that uses the kernels of `level`; by default, those of the process.
    #[must_use]
    pub fn new(level: Level) -> Self {
        Self {
            level,
            resizer: Resizer::new(level),
            adjuster: Adjuster::new(level),
            warper: Warper::new(level),
            mixer: Mixer::default(),
            image: Image::default(),
            next: Image::default(),
        }
    }

    /// The image on the bench.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Does all of `steps` to the image on the bench.
    pub fn work(&mut self, steps: &[Step], numerics: Numerics) {
        let mut rest = steps;
        while !rest.is_empty() {
            let (first, behind) = Lead::of(rest, numerics);
            rest = behind;
            match first {
                Lead::Crop(crop) => {
                    self.resizer.crop(self.image.view(), &crop, &mut self.next);
                    swap(&mut self.image, &mut self.next);
                }
                Lead::Step(step) => self.step(step),
            }
        }
    }

    /// Does all of `steps` to a copy of `source`, which is [`Self::image`] then.
    pub fn work_on(&mut self, source: View<'_>, steps: &[Step], numerics: Numerics) {
        if steps.is_empty() {
            return self.put(source);
        }
        let (first, rest) = Lead::of(steps, numerics);
        match first {
            Lead::Crop(crop) => self.resizer.crop(source, &crop, &mut self.image),
            Lead::Step(Step::Window(part)) => {
                self.image.reshape(part.size, source.shape().channels);
                window(source, part, &mut self.image);
            }
            Lead::Step(Step::Warp(warp)) => {
                self.warper.warp(source, warp, &mut self.image);
            }
            Lead::Step(_) => {
                self.put(source);
                return self.work(steps, numerics);
            }
        }
        self.work(rest, numerics);
    }

    /// Puts a copy of `source` on the bench.
    pub fn put(&mut self, source: View<'_>) {
        source.copy_to(&mut self.image);
    }

    /// One step that is no resize.
    fn step(&mut self, step: &Step) {
        let Self { image, next, .. } = self;
        match step {
            // `Lead` has these.
            Step::Resize { .. } => {}
            Step::Window(part) => {
                next.reshape(part.size, image.shape().channels);
                window(image.view(), part, next);
                swap(image, next);
            }
            Step::MirrorColumns => {
                flip::horizontal(self.level, image.view(), next);
                swap(image, next);
            }
            Step::MirrorRows => flip::vertical(image),
            Step::Warp(warp) => {
                self.warper.warp(image.view(), warp, next);
                swap(image, next);
            }
            Step::Adjust(adjust) => self.adjuster.adjust(image, adjust),
            Step::Erase { area, fill } => erase(image, *area, fill.0),
            Step::FirstChannel => image.keep_first_channel(),
            Step::ThreeChannels => image.widen_grey(),
            Step::Mix(Mix::Begin { weight }) => self.mixer.begin(image, *weight),
            Step::Mix(Mix::Chain { weight }) => self.mixer.add(image, *weight),
            Step::Mix(Mix::End) => self.mixer.end(image),
        }
    }

    /// Gives memory back of which there is more than `keep_bytes`; the bytes that it keeps.
    pub(crate) fn release_above(&mut self, keep_bytes: usize) -> usize {
        self.image.release_above(keep_bytes)
            + self.next.release_above(keep_bytes)
            + self.resizer.release_above(keep_bytes)
            + self.adjuster.release_above(keep_bytes)
            + self.warper.release_above(keep_bytes)
            + self.mixer.release_above(keep_bytes)
    }
}

/// What is done next: steps that can be done as one are one.
#[derive(Debug)]
pub(crate) enum Lead<'a> {
    /// A resize, with a crop and a mirror image behind it.
    Crop(Crop),
    /// One step.
    Step(&'a Step),
}

impl<'a> Lead<'a> {
    /// The first of `steps`, which are not none, and those behind it.
    pub(crate) fn of(steps: &'a [Step], numerics: Numerics) -> (Self, &'a [Step]) {
        let Step::Resize { part, size, interpolation } = steps[0] else {
            return (Self::Step(&steps[0]), &steps[1..]);
        };
        let mut rest = &steps[1..];
        let mut target = Target { interpolation, ..Target::whole(size) };
        if let [Step::Window(window), behind @ ..] = rest
            && let Some(inside) = inside(window, size)
        {
            target.window = inside;
            rest = behind;
        }
        if let [Step::MirrorColumns, behind @ ..] = rest {
            target.mirror = Mirror::Horizontal;
            rest = behind;
        }
        (Self::Crop(Crop { part, target, numerics }), rest)
    }
}

/// The window as a part of an image of `image`, if it lies in it.
fn inside(window: &Window, image: Size) -> Option<CropBox> {
    let top = u32::try_from(window.top).ok()?;
    let left = u32::try_from(window.left).ok()?;
    let Size { height, width } = window.size;
    let is_inside = top.checked_add(height)? <= image.height
        && left.checked_add(width)? <= image.width
        && height > 0
        && width > 0;
    is_inside.then_some(CropBox { top, left, height, width })
}

/// The shape of a part of an image of three channels.
pub(crate) fn rgb(Size { height, width }: Size) -> SampleShape {
    SampleShape { height, width, channels: 3 }
}
