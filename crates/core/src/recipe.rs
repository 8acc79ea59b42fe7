//! What is done to a sample: a declared, versioned, hashed list of ops.
//!
//! A recipe says *what*; `bothends-ops` does it. Stages: decode → geometric ops and flips →
//! the cut (u8, rows × columns × channels) → normalise, cast and layout at the feed. Nothing
//! here touches a pixel. `recipe/parse.rs` reads the JSON form and refuses what is not a
//! recipe, `recipe/shape.rs` finds the size of a sample at the cut, `recipe/draw.rs` makes
//! the random choices.

pub mod draw;
mod parse;
mod shape;
pub mod step;

use serde::{Deserialize, Serialize};

use crate::tensor::{Dtype, Layout};

pub use shape::RecordShape;

/// The version of the recipe format and of every op's meaning that this build has.
pub const RECIPE_VERSION: u32 = 1;

/// Most ops of a recipe; every op has its own stream of random numbers.
pub const MAX_OPS: usize = 256;

/// Largest height or width of a crop or resize.
pub const MAX_SIDE: u32 = 16_384;

/// The built-in recipes as they stand in `configs/recipes/`.
const BUILTIN: [(&str, &str); 5] = [
    ("imagenet-train", include_str!("../../../configs/recipes/imagenet-train.json")),
    ("imagenet-eval", include_str!("../../../configs/recipes/imagenet-eval.json")),
    ("cifar10-train", include_str!("../../../configs/recipes/cifar10-train.json")),
    ("cifar10-eval", include_str!("../../../configs/recipes/cifar10-eval.json")),
    ("raw", include_str!("../../../configs/recipes/raw.json")),
];

/// A complete list of ops, every parameter in range and every default written out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recipe {
    version: u32,
    name: String,
    numerics: Numerics,
    ops: Vec<Op>,
}

/// How pixels are computed; part of the hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Numerics {
    /// Upsample, convert to colour, then resize as Pillow does, bit for bit.
    Exact,
    /// Resize the planes, each from its own sampling, then convert to colour.
    Planar,
}

/// One op, named as in torchvision's `transforms.v2`, with its parameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    /// A record becomes pixels: JPEG or PNG to red, green, blue; raw planes interleaved.
    Decode,
    /// A random box of the image, resized to `size`.
    RandomResizedCrop {
        /// Rows and columns of the result.
        size: Size,
        /// Least and greatest share of the image's area.
        scale: [f64; 2],
        /// Least and greatest width ÷ height of the box.
        ratio: [f64; 2],
        /// How the box is resampled.
        interpolation: Interpolation,
    },
    /// The whole image, resized.
    Resize {
        /// To what.
        size: ResizeTo,
        /// How it is resampled.
        interpolation: Interpolation,
    },
    /// The middle of the image; zeros around it where it is smaller.
    CenterCrop {
        /// Rows and columns of the result.
        size: Size,
    },
    /// A random part of the padded image.
    RandomCrop {
        /// Rows and columns of the result.
        size: Size,
        /// Rows and columns added around the image before.
        padding: Padding,
        /// The value of added elements.
        fill: u8,
    },
    /// Left and right exchanged at random.
    RandomHorizontalFlip {
        /// Probability.
        p: f64,
    },
    /// Top and bottom exchanged at random.
    RandomVerticalFlip {
        /// Probability.
        p: f64,
    },
    /// After the cut: (value ÷ 255 − mean) ÷ std of the channel.
    #[serde(rename = "normalize")]
    Normalise(Normalise),
    /// After the cut: the element type delivered where the caller asks for no other.
    ToDtype {
        /// The type.
        dtype: Dtype,
        /// Floats lie in 0..1 (true unless `dtype` is `u8`).
        scale: bool,
    },
    /// After the cut: the layout delivered where the caller asks for no other.
    Layout {
        /// The order of dimensions.
        layout: Layout,
    },
}

/// How pixels between pixels are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interpolation {
    /// The pixel whose area holds the point.
    Nearest,
    /// Triangle filter; where an image is made smaller, as wide as the reduction, so that
    /// nothing aliases.
    Bilinear,
    /// Cubic convolution with a = −½, widened in the same way.
    Bicubic,
}

/// Rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(into = "[u32; 2]")]
pub struct Size {
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
}

impl From<Size> for [u32; 2] {
    fn from(size: Size) -> Self {
        [size.height, size.width]
    }
}

/// The size that `resize` aims at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum ResizeTo {
    /// The shorter side gets this length, the longer one follows.
    ShortSide(u32),
    /// Exactly this, whatever the proportions.
    Exactly(Size),
}

/// Elements added around an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(into = "[u32; 4]")]
pub struct Padding {
    /// Columns before the first.
    pub left: u32,
    /// Rows above the first.
    pub top: u32,
    /// Columns after the last.
    pub right: u32,
    /// Rows below the last.
    pub bottom: u32,
}

impl From<Padding> for [u32; 4] {
    fn from(padding: Padding) -> Self {
        [padding.left, padding.top, padding.right, padding.bottom]
    }
}

/// Mean and standard deviation of each channel, of values in 0..1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Normalise {
    /// What is subtracted; one per channel.
    pub mean: Vec<f64>,
    /// What is divided by; as many, each above 0.
    pub std: Vec<f64>,
}

impl Op {
    /// The op's name in JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::RandomResizedCrop { .. } => "random_resized_crop",
            Self::Resize { .. } => "resize",
            Self::CenterCrop { .. } => "center_crop",
            Self::RandomCrop { .. } => "random_crop",
            Self::RandomHorizontalFlip { .. } => "random_horizontal_flip",
            Self::RandomVerticalFlip { .. } => "random_vertical_flip",
            Self::Normalise(_) => "normalize",
            Self::ToDtype { .. } => "to_dtype",
            Self::Layout { .. } => "layout",
        }
    }

    /// Whether the op stands after the cut, at the feed.
    #[must_use]
    pub fn is_after_cut(&self) -> bool {
        matches!(self, Self::Normalise(_) | Self::ToDtype { .. } | Self::Layout { .. })
    }
}

impl Recipe {
    /// Reads the JSON form. Missing parameters get torchvision's defaults.
    ///
    /// # Errors
    /// [`RecipeError`] names the first op and key that is wrong, and the remedy.
    pub fn from_json(json: &str) -> Result<Self, RecipeError> {
        parse::recipe(json)
    }

    /// The built-in recipe of this name, if there is one.
    ///
    /// # Panics
    /// Never: every built-in recipe is parsed by a test.
    #[must_use]
    pub fn builtin(name: &str) -> Option<Self> {
        let (_, json) = BUILTIN.iter().find(|(builtin, _)| *builtin == name)?;
        Some(Self::from_json(json).expect("every built-in recipe is parsed by a test"))
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
        xxhash_rust::xxh3::xxh3_128(self.to_json().as_bytes())
    }

    /// The recipe's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version of format and ops.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// How pixels are computed.
    #[must_use]
    pub fn numerics(&self) -> Numerics {
        self.numerics
    }

    /// The same ops, computed in another way.
    #[must_use]
    pub fn with_numerics(self, numerics: Numerics) -> Self {
        Self { numerics, ..self }
    }

    /// All ops in order. An op's place in this list is its `op_index` in
    /// [`Draws::new`](crate::rng::Draws::new).
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The ops before the cut, in order: what a worker or a device does. Their places are
    /// the same as in [`Self::ops`].
    #[must_use]
    pub fn before_cut(&self) -> &[Op] {
        &self.ops[..self.ops.iter().take_while(|op| !op.is_after_cut()).count()]
    }

    /// The ops' names in order, for comparison with what a device can do.
    pub fn op_names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.ops.iter().map(Op::name)
    }

    /// What is done to each channel at the feed, if anything.
    #[must_use]
    pub fn normalise(&self) -> Option<&Normalise> {
        self.ops.iter().find_map(|op| {
            if let Op::Normalise(normalise) = op { Some(normalise) } else { None }
        })
    }

    /// The element type the recipe asks for, if it does.
    #[must_use]
    pub fn dtype(&self) -> Option<Dtype> {
        self.ops.iter().find_map(|op| {
            if let Op::ToDtype { dtype, .. } = op { Some(*dtype) } else { None }
        })
    }

    /// The layout the recipe asks for, if it does.
    #[must_use]
    pub fn layout(&self) -> Option<Layout> {
        self.ops.iter().find_map(|op| {
            if let Op::Layout { layout } = op { Some(*layout) } else { None }
        })
    }
}

/// Why a text is not a recipe, or a recipe does not fit the data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// Not JSON, or not the outer object of a recipe.
    #[error("the recipe cannot be read; it is an object with version, name and ops")]
    Json(#[source] serde_json::Error),
    /// Another version of the format.
    #[error(
        "the recipe has version {got} and this build reads version {RECIPE_VERSION}; \
         use the release that wrote it"
    )]
    Version {
        /// As given.
        got: u32,
    },
    /// A recipe without a name.
    #[error("`name` is empty; give the recipe a name")]
    NoName,
    /// Too long a list.
    #[error("the recipe has {n_ops} ops; at most {MAX_OPS} are possible")]
    TooManyOps {
        /// As given.
        n_ops: usize,
    },
    /// A list entry without `"op": "name"`.
    #[error("op {index} has no name; write {{\"op\": \"decode\"}}, or another op's name")]
    Unnamed {
        /// Place in the list, from 0.
        index: usize,
    },
    /// A name that no op has.
    #[error("op {index} is `{name}`, which this build does not have; it has {}", known.join(", "))]
    UnknownOp {
        /// Place in the list, from 0.
        index: usize,
        /// As given.
        name: String,
        /// The names there are.
        known: Vec<&'static str>,
    },
    /// An op with a wrong, missing or unknown key.
    #[error("op {index} `{op}` cannot be read")]
    Parameters {
        /// Place in the list, from 0.
        index: usize,
        /// The op.
        op: &'static str,
        /// Which key, and what is possible.
        source: serde_json::Error,
    },
    /// A parameter out of range.
    #[error("op {index} `{op}`: `{key}` is {got}; it must be {must}")]
    Range {
        /// Place in the list, from 0.
        index: usize,
        /// The op.
        op: &'static str,
        /// The parameter.
        key: &'static str,
        /// As given.
        got: String,
        /// What is possible.
        must: &'static str,
    },
    /// An op at a place where it has no meaning.
    #[error("op {index} `{op}` stands {place}; {remedy}")]
    Order {
        /// Place in the list, from 0.
        index: usize,
        /// The op.
        op: &'static str,
        /// What is wrong with its place.
        place: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// The recipe does not fit the records it would be used on.
    #[error("recipe `{recipe}` does not fit the data: {why}; {remedy}")]
    Shape {
        /// The recipe's name.
        recipe: String,
        /// What does not fit.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
}

#[cfg(test)]
mod tests;
