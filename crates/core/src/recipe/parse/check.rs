//! Whether an op's parameters are in range, each by itself.

use std::fmt::Debug;

use super::Place;
use crate::recipe::op::{
    Augmix, ColorJitter, Colour, Control, Crops, ErasingValue, Feed, Geometry, Mixing,
    MultiCrop, Normalise, Op, Policy, RandAugment, RandomAffine, RandomErasing,
    RandomResizedCrop, Resize, TimmRandAugment, ToDtype,
};
use crate::recipe::{MAX_SIDE, Padding, RecipeError, ResizeTo, Size};
use crate::tensor::Dtype;

/// A parameter and what it must be.
type Rule = (&'static str, &'static str);

type Checked = Result<(), RecipeError>;

/// Most ops that a policy puts in a row, and most chains.
const MAX_ROW: u32 = 16;

/// Most views of a sample.
const MAX_VIEWS: u32 = 64;

const P: Rule = ("p", "from 0 to 1");

pub(super) fn repeated_augment(n: Option<u32>) -> Checked {
    if n.is_none_or(|n| (1..=64).contains(&n)) {
        return Ok(());
    }
    Err(RecipeError::RepeatedAugment { got: n.unwrap_or_default() })
}

pub(super) fn ranges(place: &Place, op: &Op) -> Checked {
    match op {
        Op::Decode | Op::Feed(Feed::Layout(_)) => Ok(()),
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
        Op::Mixing(Mixing::Mixup(op)) => mixing(place, op.alpha, op.num_classes),
        Op::Mixing(Mixing::Cutmix(op)) => mixing(place, op.alpha, op.num_classes),
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
        Geometry::Pad(op) => place.padding(op.padding),
        Geometry::RandomRotation(op) => {
            place.center(op.center)?;
            place.range(DEGREES, op.degrees.0, |degrees| degrees.abs() <= MOST_DEGREES)
        }
        Geometry::RandomAffine(op) => random_affine(place, op),
        Geometry::RandomPerspective(op) => {
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
            let rule = ("p", "a weight for each op, none below 0, not all 0");
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
            place.require(rule, &op.sharpness_factor, |f| (0.0..=1e6).contains(f))?;
            place.probability(op.p)
        }
        Colour::RandomPosterize(op) => {
            place.require(("bits", "from 0 to 8"), &op.bits, |bits| *bits <= 8)?;
            place.probability(op.p)
        }
        Colour::RandomSolarize(op) => {
            let rule = ("threshold", "from 0 to 255");
            place.require(rule, &op.threshold, |t| (0.0..=255.0).contains(t))?;
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
        Policy::AutoAugment(_) => Ok(()),
        Policy::RandAugment(op) => rand_augment(place, op),
        Policy::TimmRandAugment(op) => timm_rand_augment(place, op),
        Policy::TrivialAugmentWide(op) => place.bins(op.num_magnitude_bins),
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
        ResizeTo::ShortSide(side) => {
            place.side(side)?;
            side
        }
        ResizeTo::Exactly(size) => {
            place.size(size)?;
            u32::MAX
        }
    };
    let rule = (
        "max_size",
        "above `size`, which must be one number, and at most 16384; or leave it out",
    );
    place.require(rule, &op.max_size, |max_size| {
        max_size.is_none_or(|max| least < max && max <= MAX_SIDE)
    })
}

const DEGREES: Rule =
    ("degrees", "a number ≥ 0, or [least, greatest] with least ≤ greatest");
const MOST_DEGREES: f64 = 36_000.0;

fn random_affine(place: &Place, op: &RandomAffine) -> Checked {
    place.center(op.center)?;
    place.range(DEGREES, op.degrees.0, |degrees| degrees.abs() <= MOST_DEGREES)?;
    let rule = ("translate", "two shares from 0 to 1");
    place.require(rule, &op.translate, |translate| {
        translate.is_none_or(|shares| shares.iter().all(|s| (0.0..=1.0).contains(s)))
    })?;
    if let Some(scale) = op.scale {
        let rule = ("scale", "[least, greatest] with 0 < least ≤ greatest ≤ 1000");
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
    let rule = "a number ≥ 0, or [least, greatest] with 0 ≤ least ≤ greatest";
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
    let given = [op.brightness, op.contrast, op.saturation].iter().any(Option::is_some);
    let rule = ("brightness", "given, or contrast, saturation or hue");
    place.require(rule, &op.brightness, |_| given || op.hue.is_some())
}

fn rand_augment(place: &Place, op: &RandAugment) -> Checked {
    place.bins(op.num_magnitude_bins)?;
    place.row("num_ops", op.num_ops)?;
    let rule = ("magnitude", "below `num_magnitude_bins`");
    place.require(rule, &op.magnitude, |&m| m < op.num_magnitude_bins)
}

fn timm_rand_augment(place: &Place, op: &TimmRandAugment) -> Checked {
    place.row("num_layers", op.num_layers)?;
    place.require(("magnitude", "from 0 to 10"), &op.magnitude, |m| {
        (0.0..=10.0).contains(m)
    })?;
    place.require(("magnitude_std", "from 0 to 100"), &op.magnitude_std, |s| {
        (0.0..=100.0).contains(s)
    })?;
    place.probability(op.p)
}

fn augmix(place: &Place, op: &Augmix) -> Checked {
    place
        .require(("severity", "from 1 to 10"), &op.severity, |s| (1..=10).contains(s))?;
    place.row("mixture_width", op.mixture_width)?;
    place.row("chain_depth", op.chain_depth.unwrap_or(1))?;
    place.alpha(op.alpha)
}

fn random_erasing(place: &Place, op: &RandomErasing) -> Checked {
    place.probability(op.p)?;
    let rule = ("scale", "[least, greatest] with 0 ≤ least ≤ greatest ≤ 1");
    place.range(rule, op.scale, |share| (0.0..=1.0).contains(&share))?;
    place.ratio(op.ratio)?;
    let given = match &op.value {
        ErasingValue::All(value) => std::slice::from_ref(value),
        ErasingValue::Each(values) => values,
        ErasingValue::Random(_) => return Ok(()),
    };
    let rule = ("value", "finite numbers, one or one per channel");
    place.require(rule, &given, |values| {
        !values.is_empty() && values.iter().all(|value| value.is_finite())
    })
}

fn normalise(place: &Place, op: &Normalise) -> Checked {
    let Normalise { mean, std } = op;
    let rule = ("mean", "one finite number per channel");
    place.require(rule, mean, |mean| {
        !mean.is_empty() && mean.iter().all(|m| m.is_finite())
    })?;
    place.require(("std", "as many numbers as `mean`"), std, |std| {
        std.len() == mean.len()
    })?;
    place.require(("std", "above 0 in each channel"), std, |std| {
        std.iter().all(|std| (f64::MIN_POSITIVE..f64::INFINITY).contains(std))
    })
}

fn to_dtype(place: &Place, op: &ToDtype) -> Checked {
    let is_float = op.dtype != Dtype::U8;
    let rule = ("scale", "true for a float type and false for u8");
    place.require(rule, &op.scale, |scale| *scale == is_float)
}

fn mixing(place: &Place, alpha: f64, num_classes: Option<u32>) -> Checked {
    place.alpha(alpha)?;
    let rule = ("num_classes", "at least 1; or leave it out");
    place.require(rule, &num_classes, |n| n.is_none_or(|n| n > 0))
}

impl Place {
    /// Whether the value keeps the rule of its parameter.
    fn require<T: Debug>(
        &self,
        (key, must): Rule,
        value: &T,
        rule: impl Fn(&T) -> bool,
    ) -> Checked {
        if rule(value) {
            return Ok(());
        }
        let (at, op, got) = (self.at.clone(), self.op, format!("{value:?}"));
        Err(RecipeError::Range { at, op, key, got, must })
    }

    /// Whether both ends keep the rule and are in order.
    fn range(&self, rule: Rule, range: [f64; 2], each: impl Fn(f64) -> bool) -> Checked {
        self.require(rule, &range, |&[low, high]| low <= high && each(low) && each(high))
    }

    fn side(&self, side: u32) -> Checked {
        let rule = ("size", "from 1 to 16384");
        self.require(rule, &side, |side| (1..=MAX_SIDE).contains(side))
    }

    fn size(&self, size: Size) -> Checked {
        self.side(size.height)?;
        self.side(size.width)
    }

    fn padding(&self, padding: Padding) -> Checked {
        let sides: [u32; 4] = padding.into();
        self.require(("padding", "at most 16384"), &sides, |sides| {
            sides.iter().all(|&side| side <= MAX_SIDE)
        })
    }

    fn probability(&self, p: f64) -> Checked {
        self.require(P, &p, |p| (0.0..=1.0).contains(p))
    }

    fn unit(&self, key: &'static str, value: f64) -> Checked {
        self.require((key, "from 0 to 1"), &value, |value| (0.0..=1.0).contains(value))
    }

    fn ratio(&self, ratio: [f64; 2]) -> Checked {
        let rule = ("ratio", "[least, greatest] with 0 < least ≤ greatest");
        self.range(rule, ratio, |r| 0.0 < r && r.is_finite())
    }

    fn center(&self, center: Option<[f64; 2]>) -> Checked {
        let rule = ("center", "[column, row], or leave it out for the middle");
        self.require(rule, &center, |center| {
            center.is_none_or(|center| center.iter().all(|c| c.abs() <= 1e6))
        })
    }

    fn bins(&self, n_bins: u32) -> Checked {
        let rule = ("num_magnitude_bins", "from 2 to 1000");
        self.require(rule, &n_bins, |n| (2..=1000).contains(n))
    }

    fn row(&self, key: &'static str, n: u32) -> Checked {
        self.require((key, "from 1 to 16"), &n, |n| (1..=MAX_ROW).contains(n))
    }

    fn alpha(&self, alpha: f64) -> Checked {
        let rule = ("alpha", "from 0.001 to 1000");
        self.require(rule, &alpha, |alpha| (1e-3..=1e3).contains(alpha))
    }
}
