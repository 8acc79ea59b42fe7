//! The ops, with the names (`transforms.v2`, the class in snake case), parameters, defaults and
//! distributions of torchvision where it has them.
//!
//! The struct of an op is its JSON object, including defaults. `parse.rs` reads it and checks the
//! ranges of its parameters. `decide` says what an op draws, and `bothends-ops` what it does to pixels.
//! Ops come in families, one file each, in the order in which they appear in a recipe.

/// A family of ops: its enum, in which each op has its name in JSON, and what follows from it.
macro_rules! family {
    (
        $(#[$about_family:meta])*
        pub enum $family:ident { $($(#[$about:meta])* $op:ident($its:ty) = $name:literal,)* }
    ) => {
        $(#[$about_family])*
        #[serde(tag = "op")]
        pub enum $family {
            $($(#[$about])* #[serde(rename = $name)] $op($its),)*
        }

        impl $family {
            /// The op's name in JSON.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$op(_) => $name,)*
                }
            }
        }

        impl From<$family> for crate::recipe::op::Op {
            fn from(op: $family) -> Self {
                Self::$family(op)
            }
        }
    };
}

mod colour;
mod control;
mod crops;
mod feed;
mod geometry;
mod mixing;
mod policy;

use serde::{Deserialize, Serialize, Serializer};

use crate::recipe::Interpolation;

pub use colour::{
    ColorJitter, Colour, GaussianBlur, Grayscale, Jpeg, RandomAdjustSharpness,
    RandomGrayscale, RandomPosterize, RandomSolarize,
};
pub use control::{Control, RandomApply, RandomChoice, RandomOrder};
pub use crops::{Crops, FiveCrop, MultiCrop, TenCrop, View};
pub use feed::{Feed, LayoutOp, Normalise, ToDtype};
pub use geometry::{
    CenterCrop, Geometry, Pad, PaddingMode, RandomAffine, RandomCrop, RandomPerspective,
    RandomResizedCrop, RandomRotation, Resize,
};
pub use mixing::{Mixing, Share};
pub use policy::{
    Augmix, AutoAugment, AutoAugmentPolicy, ErasingValue, Policy, RandAugment,
    RandomErasing, TimmInterpolation, TimmRandAugment, TrivialAugmentWide,
};

/// `decode`: a record becomes pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decode {
    /// What becomes of an image whose file ends early. Not written where it is the default:
    /// recipes that do not ask keep their hashes.
    #[serde(default, skip_serializing_if = "Truncated::is_default")]
    pub truncated: Truncated,
}

/// What becomes of an image whose file ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Truncated {
    /// It is a bad sample, as in Pillow.
    #[default]
    Refuse,
    /// What a JPEG lacks is filled in as Pillow does with `ImageFile.LOAD_TRUNCATED_IMAGES`. Other formats
    /// are refused all the same.
    Fill,
}

impl Truncated {
    /// With a reference, as serde calls it.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// One op with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// A record becomes pixels: an image to red, green, blue; raw planes interleaved.
    Decode(Decode),
    /// Pixels moved.
    Geometry(Geometry),
    /// Values changed.
    Colour(Colour),
    /// Ops drawn.
    Policy(Policy),
    /// A random rectangle erased (Zhong et al., arXiv 1708.04896): before the cut where it
    /// stands before it, else at the feed, in normalised values.
    RandomErasing(RandomErasing),
    /// Ops inside this one.
    Control(Control),
    /// Several views made.
    Crops(Crops),
    /// After the cut: what a delivered element is.
    Feed(Feed),
    /// After the cut: samples of a batch mixed.
    Mixing(Mixing),
}

/// The only parameter of ops that are done or not.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chance {
    /// Probability.
    #[serde(default = "half")]
    pub p: f64,
}

fn half() -> f64 {
    0.5
}

fn one() -> f64 {
    1.0
}

fn nearest() -> Interpolation {
    Interpolation::Nearest
}

impl Serialize for Op {
    /// An object whose first key is `op`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(tag = "op", rename_all = "snake_case")]
        enum Single<'a> {
            Decode(&'a Decode),
            RandomErasing(&'a RandomErasing),
        }
        match self {
            Self::Decode(op) => Single::Decode(op).serialize(serializer),
            Self::RandomErasing(op) => Single::RandomErasing(op).serialize(serializer),
            Self::Geometry(op) => op.serialize(serializer),
            Self::Colour(op) => op.serialize(serializer),
            Self::Policy(op) => op.serialize(serializer),
            Self::Control(op) => op.serialize(serializer),
            Self::Crops(op) => op.serialize(serializer),
            Self::Feed(op) => op.serialize(serializer),
            Self::Mixing(op) => op.serialize(serializer),
        }
    }
}

impl Op {
    /// The op's name in JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Decode(_) => "decode",
            Self::RandomErasing(_) => "random_erasing",
            Self::Geometry(op) => op.name(),
            Self::Colour(op) => op.name(),
            Self::Policy(op) => op.name(),
            Self::Control(op) => op.name(),
            Self::Crops(op) => op.name(),
            Self::Feed(op) => op.name(),
            Self::Mixing(op) => op.name(),
        }
    }

    /// Whether the op can only stand after the cut, at the feed. (`random_erasing` can
    /// stand on both sides.)
    #[must_use]
    pub fn is_after_cut(&self) -> bool {
        matches!(self, Self::Feed(_)) || self.mixes()
    }

    /// Whether the op mixes the samples of a batch.
    #[must_use]
    pub fn mixes(&self) -> bool {
        match self {
            Self::Mixing(_) => true,
            Self::Control(
                control @ (Control::RandomApply(_) | Control::RandomChoice(_)),
            ) => control.inside().first().is_some_and(Self::mixes),
            Self::Decode(_)
            | Self::Geometry(_)
            | Self::Colour(_)
            | Self::Policy(_)
            | Self::RandomErasing(_)
            | Self::Control(Control::RandomOrder(_))
            | Self::Crops(_)
            | Self::Feed(_) => false,
        }
    }

    /// The ops inside a control op, in order; none in others.
    #[must_use]
    pub fn inside(&self) -> &[Self] {
        if let Self::Control(control) = self { control.inside() } else { &[] }
    }

    /// Streams of random numbers that the op and the ops inside it have: one for each op,
    /// and for each copy of a view's op.
    #[must_use]
    pub fn n_streams(&self) -> u32 {
        let views = if let Self::Crops(Crops::MultiCrop(crops)) = self {
            &crops.views[..]
        } else {
            &[]
        };
        let views = views
            .iter()
            .map(|view| view.repeat.saturating_mul(n_streams(&view.ops)))
            .fold(0, u32::saturating_add);
        n_streams(self.inside()).saturating_add(views).saturating_add(1)
    }
}

/// Streams of all these ops.
#[must_use]
pub(crate) fn n_streams(ops: &[Op]) -> u32 {
    ops.iter().map(Op::n_streams).fold(0, u32::saturating_add)
}
