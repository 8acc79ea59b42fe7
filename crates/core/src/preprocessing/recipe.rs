//! What is done to a sample: a declared, versioned, hashed list of ops.
//!
//! A recipe says *what* to do, and `bothends-ops` does it. Stages: decode → ops on pixels → the cut
//! (u8, rows × columns × channels) → normalise, cast, layout, erasing and mixing at the feed. Nothing
//! here touches a pixel. Reading order: `recipe/op.rs` has the ops. `parse.rs` reads the JSON form and
//! refuses what is not a recipe. `shape.rs` finds the size of a sample at the cut. `decide.rs` makes
//! the random choices (with the numbers of `draw.rs`), which turns ops into the steps of `step.rs`.

mod decide;
pub mod draw;
pub mod erasing;
mod error;
mod mixture;
pub mod op;
mod parse;
pub mod range;
mod shape;
pub mod step;
mod words;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tensor::{Dtype, Layout};

pub use super::size::{
    MAX_DECODE_BYTES, MAX_IMAGE_PIXELS, MAX_IMAGE_SIDE, Padding, ResizeTo, Size,
};
pub use decide::{Decision, Misfit};
pub use error::{Path, RecipeError};
pub use mixture::{BatchKey, Mixture, partner};
pub use op::{Decode, Normalise, Op, Truncated};

use op::{Crops, Feed};
pub use shape::{RecordShape, SampleCost};

/// The newest version of the recipe format and of every op's meaning that this build has. It has
/// all older ones too: a recipe always means what it meant when it was written.
///
/// Version 2 differs from 1 in the order of a resize's passes in exact numerics
/// ([`Numerics::Exact13`]).
pub const RECIPE_VERSION: u32 = 2;

/// Most ops of a recipe, those inside other ops and copies of views included; every op has
/// its own stream of random numbers.
pub const MAX_OPS: usize = 256;

/// Largest height or width of a crop or resize.
pub const MAX_SIDE: u32 = 16_384;

/// The built-in recipes as they stand in `configs/recipes/`.
const BUILTIN: [(&str, &str); 16] = [
    ("imagenet-train", include_str!("../../configs/recipes/imagenet-train.json")),
    ("imagenet-eval", include_str!("../../configs/recipes/imagenet-eval.json")),
    ("cifar10-train", include_str!("../../configs/recipes/cifar10-train.json")),
    ("cifar10-eval", include_str!("../../configs/recipes/cifar10-eval.json")),
    (
        "cifar10-autoaugment",
        include_str!("../../configs/recipes/cifar10-autoaugment.json"),
    ),
    (
        "torchvision-resnet50-v1",
        include_str!("../../configs/recipes/torchvision-resnet50-v1.json"),
    ),
    (
        "torchvision-resnet50-v2",
        include_str!("../../configs/recipes/torchvision-resnet50-v2.json"),
    ),
    (
        "torchvision-resnet50-v2-eval",
        include_str!("../../configs/recipes/torchvision-resnet50-v2-eval.json"),
    ),
    ("timm-a1", include_str!("../../configs/recipes/timm-a1.json")),
    ("timm-a2", include_str!("../../configs/recipes/timm-a2.json")),
    ("timm-a3", include_str!("../../configs/recipes/timm-a3.json")),
    ("timm-a-eval", include_str!("../../configs/recipes/timm-a-eval.json")),
    ("deit", include_str!("../../configs/recipes/deit.json")),
    ("deit-eval", include_str!("../../configs/recipes/deit-eval.json")),
    ("dino", include_str!("../../configs/recipes/dino.json")),
    ("raw", include_str!("../../configs/recipes/raw.json")),
];

/// A complete list of ops, every parameter in range and every default written out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recipe {
    version: u32,
    name: String,
    /// For people; not part of the canonical form.
    #[serde(skip)]
    about: Option<String>,
    /// Where it is from; not part of the canonical form.
    #[serde(skip)]
    source: Option<String>,
    numerics: Numerics,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeated_augment: Option<u32>,
    ops: Vec<Op>,
}

/// How pixels are computed. The word in JSON and the recipe's version say it together; both are
/// part of the hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Numerics {
    /// `exact` of version 1: upsample, convert to colour, then resize as Pillow did up to 12, bit
    /// for bit.
    Exact,
    /// `exact` of version 2: the same, but resize as Pillow does since 13, bit for bit.
    #[serde(rename = "exact")]
    Exact13,
    /// `planar` of every version: resize the planes, each from its own sampling, then convert to
    /// colour.
    Planar,
}

impl Numerics {
    /// The oldest recipe version that has them.
    fn since(self) -> u32 {
        match self {
            Self::Exact | Self::Planar => 1,
            Self::Exact13 => 2,
        }
    }

    /// Which they are, for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Exact => "exact, as Pillow up to 12",
            Self::Exact13 => "exact, as Pillow since 13",
            Self::Planar => "planar",
        }
    }
}

/// How pixels between pixels are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interpolation {
    /// The pixel whose area holds the point.
    Nearest,
    /// Triangle filter; where an image is made smaller, as wide as the reduction, so that
    /// nothing aliases.
    #[default]
    Bilinear,
    /// Cubic convolution with a = −½, widened in the same way.
    Bicubic,
    /// The mean of the pixels that an output covers. Only of what resizes, as the following.
    Box,
    /// A sinc in a Hamming window of one pixel, widened in the same way.
    Hamming,
    /// A sinc in a Lanczos window of three pixels, widened in the same way.
    Lanczos,
}

impl Recipe {
    /// Reads the JSON form. Missing parameters get torchvision's defaults.
    ///
    /// # Errors
    /// [`RecipeError`] names the first op and key that is wrong, and the remedy.
    pub fn from_json(json: &str) -> Result<Self, RecipeError> {
        parse::text(json)
    }

    /// As [`Self::from_json`], where the JSON has been read already.
    ///
    /// # Errors
    /// As there; without line and column, which only a text has.
    pub fn from_value(value: Value) -> Result<Self, RecipeError> {
        parse::value(value)
    }

    /// The built-in recipe of this name, if there is one. A name alone is the version under which
    /// the recipe was first published, so that its stream never changes; `NAME@VERSION` is the
    /// same list of ops in another version.
    ///
    /// # Panics
    /// Never: every built-in recipe is parsed by a test.
    #[must_use]
    pub fn builtin(name: &str) -> Option<Self> {
        let (name, version) = match name.split_once('@') {
            Some((name, version)) => (name, Some(version.parse().ok()?)),
            None => (name, None),
        };
        let (_, json) = BUILTIN.iter().find(|(builtin, _)| *builtin == name)?;
        let recipe =
            Self::from_json(json).expect("every built-in recipe is parsed by a test");
        version.map_or(Some(recipe.clone()), |version| recipe.with_version(version))
    }

    /// The names of the built-in recipes.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(name, _)| *name)
    }

    /// The canonical JSON: one line, keys in a fixed order, every default written out.
    /// Reading it gives the same recipe.
    ///
    /// # Panics
    /// Never: strings, numbers and lists have a JSON form.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings, numbers and lists have a JSON form")
    }

    /// XXH3-128 of [`Self::to_json`]: host and device compare it before they work together.
    #[must_use]
    pub fn hash(&self) -> u128 {
        twox_hash::XxHash3_128::oneshot(self.to_json().as_bytes())
    }

    /// The recipe's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is, for people, if it says so.
    #[must_use]
    pub fn about(&self) -> Option<&str> {
        self.about.as_deref()
    }

    /// Where it is from, if it says so.
    #[must_use]
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// The version of format and ops.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What becomes of images whose files end early.
    #[must_use]
    pub fn truncated(&self) -> Truncated {
        match self.ops.first() {
            Some(Op::Decode(op)) => op.truncated,
            _ => Truncated::Refuse,
        }
    }

    /// The same, except for what becomes of such images. Without `decode` there are none.
    #[must_use]
    pub fn with_truncated(mut self, truncated: Truncated) -> Self {
        if let Some(Op::Decode(op)) = self.ops.first_mut() {
            op.truncated = truncated;
        }
        self
    }

    /// How pixels are computed.
    #[must_use]
    pub fn numerics(&self) -> Numerics {
        self.numerics
    }

    /// The same ops, computed in another way. Exact numerics bring their version along.
    #[must_use]
    pub fn with_numerics(self, numerics: Numerics) -> Self {
        let version = match numerics {
            Numerics::Exact | Numerics::Exact13 => numerics.since(),
            Numerics::Planar => self.version,
        };
        Self { version, numerics, ..self }
    }

    /// The same in another version, if this build has that: what it leaves to its version may
    /// then mean something else.
    #[must_use]
    pub fn with_version(self, version: u32) -> Option<Self> {
        let numerics = match (self.numerics, version) {
            (_, 0) => return None,
            (Numerics::Planar, ..=RECIPE_VERSION) => Numerics::Planar,
            (Numerics::Exact | Numerics::Exact13, 1) => Numerics::Exact,
            (Numerics::Exact | Numerics::Exact13, 2) => Numerics::Exact13,
            _ => return None,
        };
        Some(Self { version, numerics, ..self })
    }

    /// How many consecutive positions of an epoch are the same sample, each augmented independently
    /// (Hoffer et al., arXiv 1901.09335; the `RASampler` of torchvision's references): 1
    /// where the recipe says nothing.
    #[must_use]
    pub fn repeated_augment(&self) -> u32 {
        self.repeated_augment.unwrap_or(1)
    }

    /// All ops in order. Numbered through, each before the ops inside it and copies of views
    /// one after the other, they have their `op_index` in
    /// [`Draws::new`](crate::rng::Draws::new).
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The ops before the cut, in order: what a worker or a device does. Their places are
    /// the same as in [`Self::ops`].
    #[must_use]
    pub fn before_cut(&self) -> &[Op] {
        &self.ops[..self.n_before_cut()]
    }

    /// Whether a sample at the cut is the same in every epoch and with every seed: nothing before it is
    /// drawn. Says no of ops that may draw.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.before_cut().iter().all(|op| {
            use op::Geometry::{CenterCrop, Pad, Resize};
            matches!(op, Op::Geometry(Resize(_) | CenterCrop(_) | Pad(_)) | Op::Decode(_))
        })
    }

    /// The ops after the cut, in order: what the feed does.
    #[must_use]
    pub fn after_cut(&self) -> &[Op] {
        &self.ops[self.n_before_cut()..]
    }

    fn n_before_cut(&self) -> usize {
        self.ops.iter().take_while(|op| !op.is_after_cut()).count()
    }

    /// The names of the ops before the cut in order, those inside other ops after these, for
    /// comparison with what a device can do.
    #[must_use]
    pub fn names_before_cut(&self) -> Vec<&'static str> {
        names(self.before_cut())
    }

    /// The names of all ops that can stand before the cut: what a device that runs this
    /// build can do.
    #[must_use]
    pub fn known_before_cut() -> Vec<&'static str> {
        parse::names_before_cut()
    }

    /// What is done to each channel at the feed, if anything.
    #[must_use]
    pub fn normalise(&self) -> Option<&Normalise> {
        self.ops.iter().find_map(|op| {
            if let Op::Feed(Feed::Normalise(op)) = op { Some(op) } else { None }
        })
    }

    /// The element type the recipe asks for, if it does.
    #[must_use]
    pub fn dtype(&self) -> Option<Dtype> {
        self.ops.iter().find_map(|op| {
            if let Op::Feed(Feed::ToDtype(to)) = op { Some(to.dtype) } else { None }
        })
    }

    /// The layout the recipe asks for, if it does.
    #[must_use]
    pub fn layout(&self) -> Option<Layout> {
        self.ops.iter().find_map(|op| {
            if let Op::Feed(Feed::Layout(op)) = op { Some(op.layout) } else { None }
        })
    }
}

fn names(ops: &[Op]) -> Vec<&'static str> {
    let inside = |op: &Op| {
        if let Op::Crops(Crops::MultiCrop(crops)) = op {
            crops.views.iter().flat_map(|view| names(&view.ops)).collect()
        } else {
            names(op.inside())
        }
    };
    ops.iter().flat_map(|op| std::iter::once(op.name()).chain(inside(op))).collect()
}

#[cfg(test)]
mod tests;
