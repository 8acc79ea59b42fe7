//! Checks that the parameters of each op are in range.

use std::fmt::Debug;
use std::ops::RangeInclusive;

use super::Place;
use crate::recipe::op::{
    Augmix, ColorJitter, Colour, Control, Crops, ErasingValue, Feed, Geometry, Mixing,
    MultiCrop, Normalise, Op, Policy, RandAugment, RandomAffine, RandomErasing,
    RandomResizedCrop, Resize, TimmRandAugment, ToDtype,
};
use crate::recipe::{Interpolation, MAX_SIDE, Padding, RecipeError, ResizeTo, Size};
use crate::tensor::Dtype;

/// A parameter and what it must be.
type Rule = (&'static str, &'static str);

type Checked = Result<(), RecipeError>;

/// Most ops that a policy puts in a row, and most chains.
const MAX_ROW: u32 = 16;

/// Most views of a sample.
const MAX_VIEWS: u32 = 64;

pub(super) fn ranges(place: &Place, op: &Op) -> Checked {
    match op {
        Op::Decode(_) | Op::Feed(Feed::Layout(_)) => Ok(()),
        Op::Geometry(op) => geometry(place, op),
        Op::Colour(op) => colour(place, op),
        Op::Policy(op) => policy(place, op),
        Op::RandomErasing(op) => random_erasing(place, op),
        Op::Control(op) => control(place, op),
        Op::Crops(Crops::FiveCrop(op)) => place.size(op.size),
        Op::Crops(Crops::TenCrop(op)) => place.size(op.size),
        Op::Crops(Crops::MultiCrop(op)) => multi_crop(place, op),
        Op::Feed(Feed::Normalise(op)) => normalise(place, op),
        Op::Feed(Feed::ToDtype(op)) => to_dtype(place, op),
        Op::Mixing(Mixing::Mixup(op) | Mixing::Cutmix(op)) => {
            place.alpha(op.alpha)?;
            let rule = ("num_classes", "at least 1; or leave it out");
            op.num_classes.map_or(Ok(()), |n| place.require(rule, &n, |n| *n > 0))
        }
    }
}

fn geometry(place: &Place, op: &Geometry) -> Checked {
    match op {
        Geometry::RandomHorizontalFlip(op) | Geometry::RandomVerticalFlip(op) => {
            place.probability(op.p)
        }
        Geometry::RandomResizedCrop(op) => random_resized_crop(place, op),
        Geometry::Resize(op) => resize(place, op),
        Geometry::CenterCrop(op) => place.size(op.size),
        Geometry::RandomCrop(op) => {
            place.padding(op.padding)?;
            place.size(op.size)
        }
        Geometry::Pad(op) => place.border(op.padding),
        Geometry::RandomRotation(op) => {
            place.warping(op.interpolation)?;
            place.center(op.center)?;
            place.range(DEGREES, op.degrees.0, |degrees| degrees.abs() <= MOST_DEGREES)
        }
        Geometry::RandomAffine(op) => random_affine(place, op),
        Geometry::RandomPerspective(op) => {
            place.warping(op.interpolation)?;
            place.unit("distortion_scale", op.distortion_scale)?;
            place.probability(op.p)
        }
    }
}

fn control(place: &Place, op: &Control) -> Checked {
    let rule = ("transforms", "at least one op");
    place.require(rule, &op.inside().len(), |n| *n > 0)?;
    match op {
        Control::RandomApply(op) => place.probability(op.p),
        Control::RandomOrder(_) => Ok(()),
        Control::RandomChoice(op) => {
            let rule =
                ("p", "a weight for each op, none below 0, not all 0, with a finite sum");
            let possible = 0.0..f64::INFINITY;
            place.require(rule, &op.p, |p| {
                p.len() == op.transforms.len()
                    && p.iter().all(|p| possible.contains(p))
                    && p.iter().sum::<f64>() > 0.0
                    && possible.contains(&p.iter().sum::<f64>())
            })
        }
    }
}

fn colour(place: &Place, op: &Colour) -> Checked {
    match op {
        Colour::RandomAutocontrast(op)
        | Colour::RandomEqualize(op)
        | Colour::RandomInvert(op) => place.probability(op.p),
        Colour::ColorJitter(op) => color_jitter(place, op),
        Colour::Grayscale(op) => {
            let rule = ("num_output_channels", "1 or 3");
            place.require(rule, &op.num_output_channels, |n| [1, 3].contains(n))
        }
        Colour::RandomGrayscale(op) => place.probability(op.p),
        Colour::GaussianBlur(op) => {
            let rule = ("kernel_size", "odd and from 1 to 255");
            let odd = |k: &u32| k % 2 == 1 && *k <= 255;
            place.require(rule, &op.kernel_size.0, |sides| sides.iter().all(odd))?;
            let rule = ("sigma", "[least, greatest] with 0 < least ≤ greatest ≤ 1000");
            place.range(rule, op.sigma.0, |s| 0.0 < s && s <= 1000.0)
        }
        Colour::RandomAdjustSharpness(op) => {
            let rule = ("sharpness_factor", "from 0 to 1000000");
            place.within(rule, op.sharpness_factor, 0.0..=1e6)?;
            place.probability(op.p)
        }
        Colour::RandomPosterize(op) => {
            place.require(("bits", "from 0 to 8"), &op.bits, |bits| *bits <= 8)?;
            place.probability(op.p)
        }
        Colour::RandomSolarize(op) => {
            let rule = ("threshold", "from 0 to 255");
            place.within(rule, op.threshold, 0.0..=255.0)?;
            place.probability(op.p)
        }
        Colour::Jpeg(op) => {
            let rule = ("quality", "[least, greatest] with 1 ≤ least ≤ greatest ≤ 100");
            place.require(rule, &op.quality.0, |[low, high]| {
                1 <= *low && low <= high && *high <= 100
            })
        }
    }
}

fn policy(place: &Place, op: &Policy) -> Checked {
    match op {
        Policy::AutoAugment(op) => place.warping(op.interpolation),
        Policy::RandAugment(op) => rand_augment(place, op),
        Policy::TimmRandAugment(op) => timm_rand_augment(place, op),
        Policy::TrivialAugmentWide(op) => {
            place.warping(op.interpolation)?;
            place.bins(op.num_magnitude_bins)
        }
        Policy::Augmix(op) => augmix(place, op),
    }
}

fn random_resized_crop(place: &Place, op: &RandomResizedCrop) -> Checked {
    let rule = ("scale", "[least, greatest] with 0 < least ≤ greatest ≤ 1");
    place.range(rule, op.scale, |share| 0.0 < share && share <= 1.0)?;
    place.ratio(op.ratio)?;
    place.size(op.size)
}

fn resize(place: &Place, op: &Resize) -> Checked {
    let least = match op.size {
        // The longer side is no shorter than this one, unless it is limited.
        ResizeTo::ShortSide(side) if op.max_size.is_none() => {
            return place.size(Size { height: side, width: side });
        }
        ResizeTo::ShortSide(side) => {
            place.side(side)?;
            side
        }
        ResizeTo::Exactly(size) => {
            place.size(size)?;
            u32::MAX
        }
    };
    let Some(max_size) = op.max_size else { return Ok(()) };
    let rule = (
        "max_size",
        "above `size`, which must be one number, and at most 16384; or leave it out",
    );
    place.require(rule, &max_size, |max| least < *max && *max <= MAX_SIDE)
}

const DEGREES: Rule = (
    "degrees",
    "a number from 0 to 36000, or [least, greatest] with least ≤ greatest within −36000 to 36000",
);
const MOST_DEGREES: f64 = 36_000.0;

fn random_affine(place: &Place, op: &RandomAffine) -> Checked {
    place.warping(op.interpolation)?;
    place.center(op.center)?;
    place.range(DEGREES, op.degrees.0, |degrees| degrees.abs() <= MOST_DEGREES)?;
    if let Some(translate) = op.translate {
        let rule = ("translate", "two shares from 0 to 1; or leave it out");
        place.require(rule, &translate, |shares| {
            shares.iter().all(|s| (0.0..=1.0).contains(s))
        })?;
    }
    if let Some(scale) = op.scale {
        let rule = ("scale", "[least, greatest] with 0.001 ≤ least ≤ greatest ≤ 1000");
        place.range(rule, scale.0, |s| (1e-3..=1e3).contains(&s))?;
    }
    let Some(shear) = op.shear else { return Ok(()) };
    let rule = ("shear", "two or four numbers, [least, greatest], within −89 to 89");
    let [x, to_x, y, to_y] = shear.0;
    place.require(rule, &shear.0, |shear| {
        x <= to_x && y <= to_y && shear.iter().all(|s| s.abs() <= 89.0)
    })
}

fn multi_crop(place: &Place, op: &MultiCrop) -> Checked {
    let n_views: Vec<u32> = op.views.iter().map(|view| view.repeat).collect();
    let rule = ("repeat", "at least 1 in each view, 64 in all");
    place.require(rule, &n_views, |n_views| {
        !n_views.contains(&0)
            && n_views.iter().fold(0, |sum: u32, n| sum.saturating_add(*n)) <= MAX_VIEWS
    })?;
    place.require(("views", "at least one view"), &op.views.len(), |n| *n > 0)
}

fn color_jitter(place: &Place, op: &ColorJitter) -> Checked {
    let rule = "a number from 0 to 999999, or [least, greatest] with 0 ≤ least ≤ greatest ≤ 1000000";
    let factors = [
        ("brightness", op.brightness),
        ("contrast", op.contrast),
        ("saturation", op.saturation),
    ];
    for (key, factors) in factors {
        if let Some(factors) = factors {
            place.range((key, rule), factors.0, |f| (0.0..=1e6).contains(&f))?;
        }
    }
    if let Some(hue) = op.hue {
        let rule = ("hue", "a number from 0 to 0.5, or a range within −0.5 to 0.5");
        place.range(rule, hue.0, |hue| hue.abs() <= 0.5)?;
    }
    if op.hue.is_some() || factors.iter().any(|(_, factors)| factors.is_some()) {
        return Ok(());
    }
    let rule = ("brightness", "given, or contrast, saturation or hue");
    Err(place.refusal(rule, "left out".to_owned()))
}

fn rand_augment(place: &Place, op: &RandAugment) -> Checked {
    place.warping(op.interpolation)?;
    place.bins(op.num_magnitude_bins)?;
    place.row("num_ops", op.num_ops)?;
    let rule = ("magnitude", "below `num_magnitude_bins`");
    place.require(rule, &op.magnitude, |&m| m < op.num_magnitude_bins)
}

fn timm_rand_augment(place: &Place, op: &TimmRandAugment) -> Checked {
    place.row("num_layers", op.num_layers)?;
    place.within(("magnitude", "from 0 to 10"), op.magnitude, 0.0..=10.0)?;
    place.within(("magnitude_std", "from 0 to 100"), op.magnitude_std, 0.0..=100.0)?;
    place.probability(op.p)
}

fn augmix(place: &Place, op: &Augmix) -> Checked {
    place.warping(op.interpolation)?;
    place.within(("severity", "from 1 to 10"), op.severity, 1..=10)?;
    place.row("mixture_width", op.mixture_width)?;
    place.row("chain_depth", op.chain_depth.unwrap_or(1))?;
    place.alpha(op.alpha)
}

fn random_erasing(place: &Place, op: &RandomErasing) -> Checked {
    place.probability(op.p)?;
    let rule = ("scale", "[least, greatest] with 0 ≤ least ≤ greatest ≤ 1");
    place.range(rule, op.scale, |share| (0.0..=1.0).contains(&share))?;
    place.ratio(op.ratio)?;
    let rule =
        ("value", "one number or one per channel, each from −3.4e38 to 3.4e38 (f32)");
    match &op.value {
        ErasingValue::All(value) => place.require(rule, value, is_single),
        ErasingValue::Each(values) => place.require(rule, values, |values| {
            !values.is_empty() && values.iter().all(is_single)
        }),
        ErasingValue::Random(_) => Ok(()),
    }
}

fn normalise(place: &Place, op: &Normalise) -> Checked {
    let Normalise { mean, std } = op;
    let rule = ("mean", "one finite number per channel, from −3.4e38 to 3.4e38 (f32)");
    place.require(rule, mean, |mean| !mean.is_empty() && mean.iter().all(is_single))?;
    place.require(("std", "as many numbers as `mean`"), std, |std| {
        std.len() == mean.len()
    })?;
    // The feed divides in f32.
    let rule = ("std", "above 0 in each channel, from 1.2e-38 to 3.4e38 (f32)");
    let possible = f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX);
    place.require(rule, std, |std| std.iter().all(|std| possible.contains(std)))?;
    let rule = ("std", "so large that (1 + |mean|) ÷ std is at most 3.4e38 (f32)");
    place.require(rule, std, |std| {
        let mut pairs = mean.iter().zip(std);
        pairs.all(|(mean, std)| is_single(&((1.0 + mean.abs()) / std)))
    })
}

/// Whether a number is finite in f32 too, in which the feed computes.
fn is_single(number: &f64) -> bool {
    number.abs() <= f64::from(f32::MAX)
}

fn to_dtype(place: &Place, op: &ToDtype) -> Checked {
    let is_float = op.dtype != Dtype::U8;
    let rule = ("scale", "true for a float type and false for u8");
    place.require(rule, &op.scale, |scale| *scale == is_float)
}

impl Place {
    /// Whether the value keeps the rule of its parameter.
    fn require<T: Debug>(
        &self,
        parameter: Rule,
        value: &T,
        rule: impl Fn(&T) -> bool,
    ) -> Checked {
        if rule(value) {
            return Ok(());
        }
        Err(self.refusal(parameter, format!("{value:?}")))
    }

    /// Whether pixels between pixels can be found like that where an image is no rectangle of
    /// another: the remaining filters are for resizing.
    fn warping(&self, interpolation: Interpolation) -> Checked {
        use Interpolation::{Bicubic, Bilinear, Nearest};
        let rule = ("interpolation", "nearest, bilinear or bicubic");
        self.require(rule, &interpolation, |by| [Nearest, Bilinear, Bicubic].contains(by))
    }

    fn refusal(&self, (key, must): Rule, got: String) -> RecipeError {
        RecipeError::Range { at: self.at.clone(), op: self.op, key, got, must }
    }

    /// Whether a number lies in a range.
    fn within<T: PartialOrd + Debug>(
        &self,
        rule: Rule,
        number: T,
        range: RangeInclusive<T>,
    ) -> Checked {
        self.require(rule, &number, |number| range.contains(number))
    }

    /// Whether both ends keep the rule and are in order.
    fn range(&self, rule: Rule, range: [f64; 2], each: impl Fn(f64) -> bool) -> Checked {
        self.require(rule, &range, |&[low, high]| low <= high && each(low) && each(high))
    }

    fn side(&self, side: u32) -> Checked {
        self.within(("size", "from 1 to 16384"), side, 1..=MAX_SIDE)
    }

    fn size(&self, size: Size) -> Checked {
        self.side(size.height)?;
        self.side(size.width)?;
        let rule = ("size", "of at most 178956970 pixels in all; make a side shorter");
        self.require(rule, &<[u32; 2]>::from(size), |_| size.is_possible())
    }

    fn padding(&self, padding: Padding) -> Checked {
        let sides: [u32; 4] = padding.into();
        self.require(("padding", "at most 16384"), &sides, |sides| {
            sides.iter().all(|&side| side <= MAX_SIDE)
        })
    }

    /// Padding that becomes pixels.
    fn border(&self, padding: Padding) -> Checked {
        self.padding(padding)?;
        let pixel = Size { height: 1, width: 1 };
        let rule = (
            "padding",
            "at most 178956970 pixels around a single one; make a side shorter",
        );
        self.require(rule, &<[u32; 4]>::from(padding), |_| {
            padding.around(pixel).is_possible()
        })
    }

    fn probability(&self, p: f64) -> Checked {
        self.unit("p", p)
    }

    fn unit(&self, key: &'static str, value: f64) -> Checked {
        self.within((key, "from 0 to 1"), value, 0.0..=1.0)
    }

    fn ratio(&self, ratio: [f64; 2]) -> Checked {
        let rule = ("ratio", "[least, greatest] with 0 < least ≤ greatest");
        self.range(rule, ratio, |r| 0.0 < r && r.is_finite())
    }

    fn center(&self, center: Option<[f64; 2]>) -> Checked {
        let rule = (
            "center",
            "[column, row] within −1000000 to 1000000; or leave it out for the middle",
        );
        center.map_or(Ok(()), |center| {
            self.require(rule, &center, |center| center.iter().all(|c| c.abs() <= 1e6))
        })
    }

    fn bins(&self, n_bins: u32) -> Checked {
        self.within(("num_magnitude_bins", "from 2 to 1000"), n_bins, 2..=1000)
    }

    fn row(&self, key: &'static str, n: u32) -> Checked {
        self.within((key, "from 1 to 16"), n, 1..=MAX_ROW)
    }

    fn alpha(&self, alpha: f64) -> Checked {
        self.within(("alpha", "from 0.001 to 1000"), alpha, 1e-3..=1e3)
    }
}
