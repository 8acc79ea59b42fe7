//! The size of a sample at the cut, derived from the recipe and from what is known about the records
//! without reading them.
//!
//! A batch is a block of equal samples. A recipe whose output depends on the size of each image is
//! therefore refused here, before anything is read. So is one that no records can fit.

mod work;

pub use work::SampleCost;

use super::draw::{self, Expand};
use super::op::{
    Colour, Control, Crops, ErasingValue, FiveCrop, Geometry, Grayscale, Op, Policy,
    RandomCrop, RandomErasing, TenCrop,
};
use super::step::Fill;
use super::{Recipe, RecipeError, ResizeTo, Size};
use crate::tensor::{SampleShape, Views};

/// What is known of a data set's records without reading them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordShape {
    /// Image files, each of its own size.
    Image,
    /// Unsigned bytes, planar, all of one size.
    Planar {
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
        /// Planes.
        channels: u32,
    },
    /// Bytes that no op looks into, all records equally long.
    Opaque {
        /// Length of a record in bytes.
        len_bytes: u32,
    },
}

impl Recipe {
    /// The shapes of every sample at the cut, view by view, when records are as `record`
    /// says. Without `decode` a sample is its record's bytes: one row, one channel.
    ///
    /// # Errors
    /// [`RecipeError::Shape`] when the size depends on the image or on chance, when an op
    /// cannot work on such records, or when `normalize` has a different number of channels.
    pub fn views(&self, record: RecordShape) -> Result<Views, RecipeError> {
        if self.decodes() {
            self.views_of(self.decoded(record)?)
        } else {
            self.views_at_cut(vec![self.undecoded_shape(record)?])
        }
    }

    /// Whether there can be records that the recipe fits: planes all of one size, whichever
    /// it is, which fit wherever image files do; without `decode`, bytes.
    ///
    /// # Errors
    /// [`RecipeError::FitsNothing`], saying why those of three channels do not fit.
    pub(super) fn fits_something(&self) -> Result<(), RecipeError> {
        let fit = |channels| {
            if self.decodes() {
                let (extent, decider) = (Extent::Alike, "decode");
                self.views_of(Known { extent, channels, decider })
            } else {
                self.views_at_cut(vec![SampleShape { height: 1, width: 1, channels: 1 }])
            }
        };
        let Err(usual) = fit(3) else { return Ok(()) };
        if self.channels_named().any(|channels| fit(channels).is_ok()) {
            return Ok(());
        }
        let RecipeError::Shape { recipe, why, remedy } = usual else { return Err(usual) };
        Err(RecipeError::FitsNothing { recipe, why, remedy })
    }

    fn decodes(&self) -> bool {
        matches!(self.ops.first(), Some(Op::Decode(_)))
    }

    /// Numbers of channels other than three that ops ask for; any other is the same to all ops
    /// as one of these, or does not fit.
    fn channels_named(&self) -> impl Iterator<Item = u32> {
        let means = self.normalise().map(|op| op.mean.len());
        let named = self.n_values_erased().chain(means);
        std::iter::once(1).chain(named.filter_map(|n| u32::try_from(n).ok()))
    }

    /// How long the lists of values are that are put into rectangles after the cut.
    fn n_values_erased(&self) -> impl Iterator<Item = usize> {
        self.after_cut().iter().filter_map(|op| {
            let Op::RandomErasing(RandomErasing { value, .. }) = op else { return None };
            let ErasingValue::Each(values) = value else { return None };
            Some(values.len())
        })
    }

    /// The views that are made of an image of which so much is known.
    fn views_of(&self, image: Known) -> Result<Views, RecipeError> {
        let mut views = vec![image];
        for op in self.before_cut() {
            // Ops that make views are the last.
            let image = views[0];
            views = if let Op::Crops(op) = op {
                self.crops(image, op)?
            } else {
                vec![self.follow(image, op)?]
            };
        }
        let shapes = views.into_iter().map(|known| self.fixed(known));
        self.views_at_cut(shapes.collect::<Result<_, _>>()?)
    }

    /// Whether samples can have these shapes, for what comes after the cut and in all.
    fn views_at_cut(&self, shapes: Vec<SampleShape>) -> Result<Views, RecipeError> {
        self.check_channels(&shapes)?;
        if shapes.len() > 1 && self.after_cut().iter().any(Op::mixes) {
            return Err(self.unfit(
                format!("it mixes samples of {} views", shapes.len()),
                "leave out `mixup` and `cutmix`, or make one view",
            ));
        }
        let n_bytes = |shape: &SampleShape| {
            let sides = [shape.height, shape.width, shape.channels];
            sides.iter().try_fold(1_u32, |product, &side| product.checked_mul(side))
        };
        let total = shapes
            .iter()
            .try_fold(0_u32, |total, shape| total.checked_add(n_bytes(shape)?));
        match total {
            Some(1..) if !shapes.iter().any(|shape| shape.is_empty()) => {
                Ok(Views::new(shapes))
            }
            Some(_) => Err(self.unfit(
                "a sample has no bytes".to_owned(),
                "check that the records are not empty",
            )),
            None => Err(self.unfit(
                "a sample has 4 GiB or more".to_owned(),
                "use smaller crops or records",
            )),
        }
    }

    /// What comes after the cut has one number per channel of every view.
    fn check_channels(&self, shapes: &[SampleShape]) -> Result<(), RecipeError> {
        for channels in shapes.iter().map(|shape| shape.channels as usize) {
            if let Some(n) = self.normalise().map(|op| op.mean.len())
                && n != channels
            {
                return Err(self.unfit(
                    format!("`normalize` has {n} channels and a sample has {channels}"),
                    "give `normalize` one mean and one std per channel",
                ));
            }
            let mut lists = self.n_values_erased();
            if let Some(n) = lists.find(|n| ![1, channels].contains(n)) {
                return Err(self.unfit(
                    format!(
                        "`random_erasing` has {n} values and a sample {channels} channels"
                    ),
                    "give it one number, or one per channel",
                ));
            }
        }
        Ok(())
    }

    fn undecoded_shape(&self, record: RecordShape) -> Result<SampleShape, RecipeError> {
        let width = match record {
            RecordShape::Image => {
                return Err(self.unfit(
                    "it does not decode, and image files differ in length".to_owned(),
                    "use a recipe that begins with `decode`",
                ));
            }
            RecordShape::Planar { height, width, channels } => height
                .checked_mul(width)
                .and_then(|plane| plane.checked_mul(channels))
                .unwrap_or(u32::MAX),
            RecordShape::Opaque { len_bytes } => len_bytes,
        };
        Ok(SampleShape { height: 1, width, channels: 1 })
    }

    fn decoded(&self, record: RecordShape) -> Result<Known, RecipeError> {
        let (channels, extent) = match record {
            RecordShape::Image => (3, Extent::Own),
            RecordShape::Planar { height, width, channels } => {
                (channels, Extent::Exactly(Size { height, width }))
            }
            RecordShape::Opaque { .. } => {
                return Err(self.unfit(
                    "`decode` reads images and the records are not images".to_owned(),
                    "use the recipe `raw`",
                ));
            }
        };
        Ok(Known { extent, channels, decider: "decode" })
    }

    fn crops(&self, image: Known, op: &Crops) -> Result<Vec<Known>, RecipeError> {
        let crops = match op {
            Crops::FiveCrop(FiveCrop { size }) => {
                return Ok(vec![self.corner(image, op.name(), *size)?; 5]);
            }
            Crops::TenCrop(TenCrop { size, .. }) => {
                return Ok(vec![self.corner(image, op.name(), *size)?; 10]);
            }
            Crops::MultiCrop(crops) => crops,
        };
        let mut views = Vec::new();
        for view in &crops.views {
            let known = self.follow_all(image, &view.ops)?;
            views.extend(std::iter::repeat_n(known, view.repeat as usize));
        }
        Ok(views)
    }

    fn corner(
        &self,
        image: Known,
        op: &'static str,
        crop: Size,
    ) -> Result<Known, RecipeError> {
        if let Extent::Exactly(size) = image.extent
            && !crop.fits_in(size)
        {
            return Err(self.unfit(
                format!("`{op}` is larger than the image"),
                "give it a smaller `size`, or `resize` before it",
            ));
        }
        Ok(Known { extent: Extent::Exactly(crop), ..image })
    }

    fn fixed(&self, known: Known) -> Result<SampleShape, RecipeError> {
        let Size { height, width } = match known.extent {
            Extent::Exactly(size) => size,
            // Whatever it is, it is that of all samples.
            Extent::Alike => Size { height: 1, width: 1 },
            Extent::Own => {
                return Err(self.unfit(
                    format!(
                        "the size of a sample after `{}` depends on the image",
                        known.decider
                    ),
                    "add `center_crop`, or give `resize` a [height, width]",
                ));
            }
        };
        Ok(SampleShape { height, width, channels: known.channels })
    }

    fn unfit(&self, why: String, remedy: &'static str) -> RecipeError {
        RecipeError::Shape { recipe: self.name.clone(), why, remedy }
    }
}

/// What is known of an image without looking at it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Known {
    extent: Extent,
    channels: u32,
    /// The op that decided the size, for the message.
    decider: &'static str,
}

/// What is known of an image's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// It.
    Exactly(Size),
    /// It may be that of all images, which is not known here.
    Alike,
    /// Each image has its own.
    Own,
}

impl Extent {
    /// What is known where the size becomes what `to` makes of it.
    fn map(self, to: impl FnOnce(Size) -> Size) -> Self {
        if let Self::Exactly(size) = self { Self::Exactly(to(size)) } else { self }
    }
}

impl Recipe {
    fn follow_all(&self, image: Known, ops: &[Op]) -> Result<Known, RecipeError> {
        ops.iter().try_fold(image, |image, op| self.follow(image, op))
    }

    /// What is known after an op.
    fn follow(&self, image: Known, op: &Op) -> Result<Known, RecipeError> {
        self.check_fill(image, op)?;
        match op {
            Op::Geometry(op) => self.follow_geometry(image, op),
            Op::Control(control) => self.follow_control(image, control, op),
            Op::Colour(Colour::Grayscale(op)) => self.grayscale(image, op),
            Op::Decode(_)
            | Op::Colour(_)
            | Op::Policy(_)
            | Op::RandomErasing(_)
            | Op::Crops(_)
            | Op::Feed(_)
            | Op::Mixing(_) => Ok(image),
        }
    }

    fn grayscale(&self, image: Known, op: &Grayscale) -> Result<Known, RecipeError> {
        if [1, 3].contains(&image.channels) {
            return Ok(Known { channels: op.num_output_channels, ..image });
        }
        Err(self.unfit(
            format!(
                "`grayscale` takes colours or grey and an image has {} channels",
                image.channels
            ),
            "leave it out",
        ))
    }

    fn follow_geometry(&self, image: Known, op: &Geometry) -> Result<Known, RecipeError> {
        let extent = match op {
            Geometry::RandomResizedCrop(op) => Extent::Exactly(op.size),
            Geometry::CenterCrop(op) => Extent::Exactly(op.size),
            Geometry::Resize(op) => match op.size {
                ResizeTo::Exactly(size) => Extent::Exactly(size),
                ResizeTo::ShortSide(_) => image.extent.map(|size| op.target(size)),
            },
            Geometry::RandomCrop(op) => Extent::Exactly(self.random_crop(image, op)?),
            Geometry::Pad(op) => image.extent.map(|size| op.padding.around(size)),
            Geometry::RandomRotation(op) if op.expand => match op.degrees.0 {
                [low, high] if low < high => Extent::Own,
                [angle, _] => image.extent.map(|size| {
                    let center = op.center.unwrap_or(size.middle());
                    draw::rotation_map(angle, size, center, Expand::Yes).1
                }),
            },
            Geometry::RandomHorizontalFlip(_)
            | Geometry::RandomVerticalFlip(_)
            | Geometry::RandomRotation(_)
            | Geometry::RandomAffine(_)
            | Geometry::RandomPerspective(_) => return Ok(image),
        };
        if let Extent::Exactly(size) = extent
            && !size.is_possible()
        {
            let (name, Size { height, width }) = (op.name(), size);
            return Err(self.unfit(
                format!("`{name}` makes images of {height} by {width} pixels"),
                "use sides from 1 to 65500 and at most 178956970 pixels",
            ));
        }
        Ok(Known { extent, decider: op.name(), ..image })
    }

    /// What is known after `control`, which is `op`.
    fn follow_control(
        &self,
        image: Known,
        control: &Control,
        op: &Op,
    ) -> Result<Known, RecipeError> {
        match control {
            Control::RandomApply(apply) => {
                let done = self.follow_all(image, &apply.transforms)?;
                match apply.p {
                    1.0 => Ok(done),
                    0.0 => Ok(image),
                    _ => self.either(image, done, op),
                }
            }
            Control::RandomChoice(choice) => {
                let ops = choice.transforms.iter().zip(&choice.p);
                let mut chosen = ops.filter(|(_, p)| **p > 0.0).map(|(op, _)| op);
                let first =
                    chosen.next().map_or(Ok(image), |op| self.follow(image, op))?;
                chosen.try_fold(first, |known, other| {
                    self.either(known, self.follow(image, other)?, op)
                })
            }
            Control::RandomOrder(order) => {
                order.transforms.iter().try_fold(image, |known, inside| {
                    self.either(known, self.follow(image, inside)?, op)
                })
            }
        }
    }

    /// What is known where chance decides between two.
    fn either(&self, one: Known, other: Known, op: &Op) -> Result<Known, RecipeError> {
        if one.channels != other.channels {
            return Err(self.unfit(
                format!(
                    "the number of channels of a sample after `{}` is random",
                    op.name()
                ),
                "use `random_grayscale`, or set `num_output_channels` to the number there is before",
            ));
        }
        let extent = match (one.extent, other.extent) {
            (own, others) if own == others => return Ok(one),
            (Extent::Exactly(_), Extent::Exactly(_)) => {
                return Err(self.unfit(
                    format!("the size of a sample after `{}` is random", op.name()),
                    "make every path through it end in the same size",
                ));
            }
            (Extent::Own, _) | (_, Extent::Own) => Extent::Own,
            // There may be a size that makes them equal.
            (Extent::Alike, _) | (_, Extent::Alike) => Extent::Alike,
        };
        Ok(Known { extent, decider: op.name(), ..one })
    }

    fn random_crop(&self, image: Known, op: &RandomCrop) -> Result<Size, RecipeError> {
        if let Extent::Exactly(size) = image.extent
            && !op.pad_if_needed
            && !op.size.fits_in(op.padding.around(size))
        {
            return Err(self.unfit(
                "`random_crop` is larger than the padded image".to_owned(),
                "give it a smaller `size` or more `padding`",
            ));
        }
        Ok(op.size)
    }

    /// A fill of three values needs three channels.
    fn check_fill(&self, image: Known, op: &Op) -> Result<(), RecipeError> {
        let Some((Fill([red, green, blue]), remedy)) = op.fill() else { return Ok(()) };
        if image.channels == 3 || red == green && green == blue {
            return Ok(());
        }
        let (name, channels) = (op.name(), image.channels);
        Err(self.unfit(
            format!(
                "`{name}` fills with three values and an image has {channels} channels"
            ),
            remedy,
        ))
    }
}

impl Op {
    /// What is put around an image or into it, and the remedy where that is too much.
    fn fill(&self) -> Option<(Fill, &'static str)> {
        if let Self::RandomErasing(op) = self {
            return Some((op.value.as_fill(), "give `value` one number"));
        }
        self.fill_around().map(|fill| (fill, "give `fill` one number"))
    }

    /// What lies around an image, in ops that say it.
    fn fill_around(&self) -> Option<Fill> {
        match self {
            Self::Geometry(op) => match op {
                Geometry::RandomCrop(op) => Some(op.fill),
                Geometry::Pad(op) => Some(op.fill),
                Geometry::RandomRotation(op) => Some(op.fill),
                Geometry::RandomAffine(op) => Some(op.fill),
                Geometry::RandomPerspective(op) => Some(op.fill),
                Geometry::RandomResizedCrop(_)
                | Geometry::Resize(_)
                | Geometry::CenterCrop(_)
                | Geometry::RandomHorizontalFlip(_)
                | Geometry::RandomVerticalFlip(_) => None,
            },
            Self::Policy(op) => Some(match op {
                Policy::AutoAugment(op) => op.fill,
                Policy::RandAugment(op) => op.fill,
                Policy::TimmRandAugment(op) => op.fill,
                Policy::TrivialAugmentWide(op) => op.fill,
                Policy::Augmix(op) => op.fill,
            }),
            Self::Decode(_)
            | Self::Colour(_)
            | Self::RandomErasing(_)
            | Self::Control(_)
            | Self::Crops(_)
            | Self::Feed(_)
            | Self::Mixing(_) => None,
        }
    }
}
