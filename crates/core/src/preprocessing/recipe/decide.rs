//! From ops to steps. Everything random about a sample is decided here before any work is done, from
//! its key, the size of its image and the recipe alone.
//!
//! Every op has its own stream of random numbers, so what one op draws never shifts what another one
//! does. Ops inside other ops have theirs whether they run or not. `draw` says what an op draws, or this
//! file does if it is a single uniform number. Nothing here touches a pixel.

mod colour;
mod policy;

use super::draw::{self, CropBox, Expand};
use super::op::{
    Control, Crops, Geometry, MultiCrop, Op, Pad, RandomChoice, RandomCrop,
    RandomErasing, RandomRotation, Resize, TenCrop, n_streams,
};
use super::step::{Around, Fill, Map, Step, Warp, Window};
use super::{Interpolation, MAX_SIDE, Padding, Recipe, Size};
use crate::rng::Draws;
use crate::sample::SampleKey;
use crate::tensor::SampleShape;

/// The steps of one sample; keeps its memory for the next.
#[derive(Debug, Clone, Default)]
pub struct Decision {
    steps: Vec<Step>,
    /// How many of them are done once, before views part.
    n_shared: usize,
    /// Where the steps of each view end.
    ends: Vec<usize>,
}

impl Decision {
    /// What is done first: everything, where there is one view.
    #[must_use]
    pub fn shared(&self) -> &[Step] {
        &self.steps[..self.n_shared]
    }

    /// What is done to a copy of the image for each view; one view without steps where the
    /// recipe makes one.
    pub fn views(&self) -> impl Iterator<Item = &[Step]> {
        let begins = std::iter::once(self.n_shared).chain(self.ends.iter().copied());
        self.ends.iter().zip(begins).map(|(&end, begin)| &self.steps[begin..end])
    }

    fn clear(&mut self) {
        self.steps.clear();
        self.ends.clear();
        self.n_shared = 0;
    }
}

/// What takes steps as they are decided.
trait Take: std::fmt::Debug {
    fn step(&mut self, step: Step);

    /// From here on steps belong to views.
    fn share(&mut self);

    fn end_view(&mut self);
}

impl Take for Decision {
    fn step(&mut self, step: Step) {
        self.steps.push(step);
    }

    fn share(&mut self) {
        self.n_shared = self.steps.len();
    }

    fn end_view(&mut self) {
        self.ends.push(self.steps.len());
    }
}

/// Only the first of the shared steps.
#[derive(Debug, Default)]
struct First {
    step: Option<Step>,
    are_views: bool,
}

impl Take for First {
    fn step(&mut self, step: Step) {
        if self.step.is_none() && !self.are_views {
            self.step = Some(step);
        }
    }

    fn share(&mut self) {
        self.are_views = true;
    }

    fn end_view(&mut self) {}
}

/// Why an image cannot be used with a recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// A crop that the image, padding included, does not hold.
    #[error(
        "a crop of {} by {} is larger than the image's {} by {}",
        crop.height, crop.width, image.height, image.width
    )]
    CropTooLarge {
        /// What is wanted.
        crop: Size,
        /// What there is.
        image: Size,
    },
    /// An image on its way with an axis that is empty or too long, or too many pixels.
    #[error("it would become {} by {} pixels", size.height, size.width)]
    Size {
        /// What would come out.
        size: Size,
    },
}

impl Recipe {
    /// Decides what is done to the sample of `key` between its decode and the cut; its image
    /// has the shape `image`.
    ///
    /// # Errors
    /// [`Misfit`] where an op cannot work on an image of this size.
    pub fn decide(
        &self,
        key: SampleKey,
        image: SampleShape,
        into: &mut Decision,
    ) -> Result<(), Misfit> {
        into.clear();
        self.decide_for(key, image, into)?;
        if into.ends.len() <= 1 {
            // An only view shares its steps with no other, wherever they stand.
            into.n_shared = into.steps.len();
            into.ends.clear();
            into.ends.push(into.n_shared);
        }
        Ok(())
    }

    /// The first step of [`Decision::shared`], if there is one; needs no memory.
    ///
    /// # Errors
    /// As [`Self::decide`].
    pub fn first_step(
        &self,
        key: SampleKey,
        image: SampleShape,
    ) -> Result<Option<Step>, Misfit> {
        let mut first = First::default();
        self.decide_for(key, image, &mut first)?;
        Ok(first.step)
    }

    fn decide_for(
        &self,
        key: SampleKey,
        image: SampleShape,
        taker: &mut dyn Take,
    ) -> Result<(), Misfit> {
        let SampleShape { height, width, channels } = image;
        let size = Size { height, width };
        let mut deciding = Deciding { key, stream: 0, size, channels, taker };
        deciding.all(self.before_cut())
    }
}

/// A decision on its way.
#[derive(Debug)]
struct Deciding<'a> {
    key: SampleKey,
    /// The number of the next op's stream.
    stream: u32,
    /// Rows and columns of the image as far as it is decided.
    size: Size,
    channels: u32,
    taker: &'a mut dyn Take,
}

impl Deciding<'_> {
    fn all(&mut self, ops: &[Op]) -> Result<(), Misfit> {
        ops.iter().try_for_each(|op| self.op(op))
    }

    /// Decides one op, and passes all its streams.
    fn op(&mut self, op: &Op) -> Result<(), Misfit> {
        let after = self.stream + op.n_streams();
        let draws = Draws::new(self.key, self.stream);
        self.stream += 1;
        self.decide(op, draws)?;
        self.stream = after;
        Ok(())
    }

    fn decide(&mut self, op: &Op, mut draws: Draws) -> Result<(), Misfit> {
        match op {
            Op::Geometry(op) => self.geometry(op, &mut draws)?,
            Op::Colour(op) => self.colour(op, &mut draws),
            Op::Policy(op) => self.policy(op, &mut draws),
            Op::RandomErasing(op) => self.random_erasing(op, &mut draws),
            Op::Control(op) => self.control(op, &mut draws)?,
            Op::Crops(op) => self.crops(op)?,
            // The decode is done before anything is decided, the rest is the feed's.
            Op::Decode(_) | Op::Feed(_) | Op::Mixing(_) => {}
        }
        Ok(())
    }

    fn push(&mut self, step: Step) {
        self.taker.step(step);
    }
}

// ---- geometry ---------------------------------------------------------------------------

impl Deciding<'_> {
    fn geometry(&mut self, op: &Geometry, draws: &mut Draws) -> Result<(), Misfit> {
        match op {
            Geometry::RandomResizedCrop(op) => {
                let part =
                    draw::random_resized_crop(draws, self.size, op.scale, op.ratio);
                self.resize(part, op.size, op.interpolation)?;
            }
            Geometry::Resize(op) => {
                self.resize(whole(self.size), op.target(self.size), op.interpolation)?;
            }
            Geometry::CenterCrop(op) => {
                let top = center(self.size.height, op.size.height);
                let left = center(self.size.width, op.size.width);
                self.window(top, left, op.size, Around::Fill(Fill::default()))?;
            }
            Geometry::RandomCrop(op) => self.random_crop(op, draws)?,
            Geometry::Pad(op) => self.pad(op)?,
            Geometry::RandomHorizontalFlip(op) => {
                if draws.bernoulli(op.p) {
                    self.push(Step::MirrorColumns);
                }
            }
            Geometry::RandomVerticalFlip(op) => {
                if draws.bernoulli(op.p) {
                    self.push(Step::MirrorRows);
                }
            }
            Geometry::RandomRotation(op) => self.random_rotation(op, draws)?,
            Geometry::RandomAffine(op) => {
                let choice = draw::affine(draws, self.size, op);
                let map = choice.map(op.center.unwrap_or(self.size.middle()));
                self.warp(map, op.interpolation, op.fill);
            }
            Geometry::RandomPerspective(op) => {
                if draws.bernoulli(op.p) {
                    let scale = op.distortion_scale;
                    let corners = draw::perspective(draws, self.size, scale);
                    let map = draw::perspective_map(self.size, corners);
                    self.warp(map, op.interpolation, op.fill);
                }
            }
        }
        Ok(())
    }

    /// The image looked up through `map`, its size as it is.
    fn warp(&mut self, map: Map, interpolation: Interpolation, fill: Fill) {
        let size = self.size;
        self.push(Step::Warp(Warp { map, size, interpolation, fill }));
    }

    fn resize(
        &mut self,
        part: CropBox,
        size: Size,
        interpolation: Interpolation,
    ) -> Result<(), Misfit> {
        self.becomes(size)?;
        self.push(Step::Resize { part, size, interpolation });
        Ok(())
    }

    fn window(
        &mut self,
        top: i64,
        left: i64,
        size: Size,
        around: Around,
    ) -> Result<(), Misfit> {
        self.becomes(size)?;
        self.push(Step::Window(Window { top, left, size, around }));
        Ok(())
    }

    /// The image has this size from here on.
    fn becomes(&mut self, size: Size) -> Result<(), Misfit> {
        if !size.is_possible() {
            return Err(Misfit::Size { size });
        }
        self.size = size;
        Ok(())
    }

    fn random_crop(&mut self, op: &RandomCrop, draws: &mut Draws) -> Result<(), Misfit> {
        let Padding { mut left, mut top, mut right, mut bottom } = op.padding;
        if op.pad_if_needed {
            let lack = |side: u32, before: u32, after: u32, need: u32| {
                need.saturating_sub(side.saturating_add(before).saturating_add(after))
            };
            let rows = lack(self.size.height, top, bottom, op.size.height);
            let columns = lack(self.size.width, left, right, op.size.width);
            (top, bottom) = (top + rows, bottom + rows);
            (left, right) = (left + columns, right + columns);
        }
        let padded = Padding { left, top, right, bottom }.around(self.size);
        let drawn = draw::random_crop(draws, padded, op.size)
            .ok_or(Misfit::CropTooLarge { crop: op.size, image: padded })?;
        let top = i64::from(drawn.top) - i64::from(top);
        let left = i64::from(drawn.left) - i64::from(left);
        self.window(top, left, op.size, op.padding_mode.around(op.fill))
    }

    fn pad(&mut self, op: &Pad) -> Result<(), Misfit> {
        let (top, left) = (-i64::from(op.padding.top), -i64::from(op.padding.left));
        let size = op.padding.around(self.size);
        self.window(top, left, size, op.padding_mode.around(op.fill))
    }

    fn random_rotation(
        &mut self,
        op: &RandomRotation,
        draws: &mut Draws,
    ) -> Result<(), Misfit> {
        let angle = draws.between(op.degrees.0);
        let expand = if op.expand { Expand::Yes } else { Expand::No };
        let center = op.center.unwrap_or(self.size.middle());
        let (map, size) = draw::rotation_map(angle, self.size, center, expand);
        self.becomes(size)?;
        self.warp(map, op.interpolation, op.fill);
        Ok(())
    }

    fn random_erasing(&mut self, op: &RandomErasing, draws: &mut Draws) {
        if !draws.bernoulli(op.p) {
            return;
        }
        let area = draw::random_erasing(draws, self.size, op.scale, op.ratio);
        if let Some(area) = area {
            self.push(Step::Erase { area, fill: op.value.as_fill() });
        }
    }
}

// ---- control and views ------------------------------------------------------------------

impl Deciding<'_> {
    fn control(&mut self, op: &Control, draws: &mut Draws) -> Result<(), Misfit> {
        match op {
            Control::RandomApply(op) if draws.bernoulli(op.p) => self.all(&op.transforms),
            Control::RandomApply(_) => Ok(()),
            Control::RandomChoice(op) => self.random_choice(op, draws),
            Control::RandomOrder(op) => self.in_order(&op.transforms, draws),
        }
    }

    fn crops(&mut self, op: &Crops) -> Result<(), Misfit> {
        match op {
            Crops::FiveCrop(op) => self.corners(op.size, &[]),
            Crops::TenCrop(TenCrop { size, vertical_flip: true }) => {
                self.corners(*size, &[Step::MirrorRows])
            }
            Crops::TenCrop(op) => self.corners(op.size, &[Step::MirrorColumns]),
            Crops::MultiCrop(op) => self.multi_crop(op),
        }
    }

    /// Draws `uniform`: the first op whose weight, with those before it, is above the number
    /// times the sum of all.
    fn random_choice(
        &mut self,
        op: &RandomChoice,
        draws: &mut Draws,
    ) -> Result<(), Misfit> {
        let chosen = op.choose(draws);
        let base = self.stream;
        let before = n_streams(&op.transforms[..chosen]);
        self.stream = base + before;
        self.op(&op.transforms[chosen])
    }

    /// Draws a `permutation`.
    fn in_order(&mut self, ops: &[Op], draws: &mut Draws) -> Result<(), Misfit> {
        const MOST: usize = super::MAX_OPS;
        let base = self.stream;
        let mut order = [0; MOST];
        let order = &mut order[..ops.len().min(MOST)];
        draws.permutation(order);
        for &mut nth in order {
            self.stream = base + n_streams(&ops[..nth]);
            self.op(&ops[nth])?;
        }
        Ok(())
    }

    /// The four corners and the middle; and once more after `mirror`.
    fn corners(&mut self, crop: Size, mirror: &[Step]) -> Result<(), Misfit> {
        let image = self.size;
        let (Some(bottom), Some(right)) =
            (image.height.checked_sub(crop.height), image.width.checked_sub(crop.width))
        else {
            return Err(Misfit::CropTooLarge { crop, image });
        };
        let middle = [center(image.height, crop.height), center(image.width, crop.width)];
        let (bottom, right) = (i64::from(bottom), i64::from(right));
        let places = [[0, 0], [0, right], [bottom, 0], [bottom, right], middle];
        self.taker.share();
        let rounds = if mirror.is_empty() { 1 } else { 2 };
        for round in 0..rounds {
            for [top, left] in places {
                if round > 0 {
                    mirror.iter().for_each(|step| self.taker.step(*step));
                }
                self.size = image;
                self.window(top, left, crop, Around::Fill(Fill::default()))?;
                self.taker.end_view();
            }
        }
        Ok(())
    }

    fn multi_crop(&mut self, crops: &MultiCrop) -> Result<(), Misfit> {
        let (size, channels) = (self.size, self.channels);
        self.taker.share();
        for view in &crops.views {
            for _ in 0..view.repeat {
                (self.size, self.channels) = (size, channels);
                self.all(&view.ops)?;
                self.taker.end_view();
            }
        }
        Ok(())
    }
}

impl RandomChoice {
    /// Which op is done.
    pub(crate) fn choose(&self, draws: &mut Draws) -> usize {
        let total: f64 = self.p.iter().sum();
        let mark = draws.uniform() * total;
        let mut sum = 0.0;
        let reached = self.p.iter().position(|weight| {
            sum += weight;
            mark < sum
        });
        // Only rounding can leave the mark at the sum.
        let last = self.p.iter().rposition(|weight| *weight > 0.0);
        reached.or(last).unwrap_or_default()
    }
}

impl Resize {
    /// The size that an image of size `image` gets.
    #[must_use]
    pub fn target(&self, image: Size) -> Size {
        let size = self.size.apply(image);
        let Some(most) = self.max_size else { return size };
        let Size { height, width } = size;
        let long = height.max(width);
        if long <= most {
            return size;
        }
        // The shorter side follows once more, rounded down.
        let short = u64::from(height.min(width)) * u64::from(most) / u64::from(long);
        let short = u32::try_from(short).unwrap_or(MAX_SIDE);
        if height >= width {
            Size { height: most, width: short }
        } else {
            Size { height: short, width: most }
        }
    }
}

/// Where torchvision's `center_crop` puts a window of `len` pixels on an axis of `n`:
/// half the rest, a half rounded to even as Python's `round` does; and where the window is
/// longer, half the padding, rounded down.
fn center(n: u32, len: u32) -> i64 {
    if len > n {
        return -i64::from((len - n) / 2);
    }
    let half = (n - len) / 2;
    let rounds_up = (n - len) % 2 == 1 && half % 2 == 1;
    i64::from(half) + i64::from(rounds_up)
}

fn whole(Size { height, width }: Size) -> CropBox {
    CropBox { top: 0, left: 0, height, width }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `int(round((n - len) / 2.0))` and `-((len - n) // 2)`, from Python.
    #[test]
    fn the_centre_is_torchvisions() {
        for (n, len, start) in [
            (256, 224, 16),
            (225, 224, 0),
            (227, 224, 2),
            (229, 224, 2),
            (231, 224, 4),
            (224, 224, 0),
            (223, 224, 0),
            (222, 224, -1),
            (221, 224, -1),
            (1, 224, -111),
        ] {
            assert_eq!(center(n, len), start, "{len} on {n}");
        }
    }
}
