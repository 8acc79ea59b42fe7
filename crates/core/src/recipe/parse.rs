//! From JSON to a complete recipe: file → raw op (options, unknown keys refused) → op
//! (every default filled in, every parameter in range) → recipe (every op at its place).
//!
//! The defaults are torchvision's and live here alone.

use std::fmt::Debug;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{
    Interpolation, MAX_OPS, MAX_SIDE, Normalise, Numerics, Op, Padding, RECIPE_VERSION,
    Recipe, RecipeError, ResizeTo, Size,
};
use crate::tensor::{Dtype, Layout};

/// The names [`op`] knows, for its error.
const KNOWN: [&str; 10] = [
    "decode",
    "random_resized_crop",
    "resize",
    "center_crop",
    "random_crop",
    "random_horizontal_flip",
    "random_vertical_flip",
    "normalize",
    "to_dtype",
    "layout",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRecipe {
    version: u32,
    name: String,
    numerics: Option<Numerics>,
    ops: Vec<Map<String, Value>>,
}

/// An int for both sides, or [height, width].
#[derive(Deserialize, Clone, Copy)]
#[serde(untagged, expecting = "`size` must be a whole number or [height, width]")]
enum RawSize {
    Square(u32),
    Sides([u32; 2]),
}

/// An int for all sides, [left and right, top and bottom], or [left, top, right, bottom].
#[derive(Deserialize, Clone, Copy)]
#[serde(
    untagged,
    expecting = "`padding` must be a whole number, [left and right, top and bottom] or \
                 [left, top, right, bottom]"
)]
enum RawPadding {
    All(u32),
    Axes([u32; 2]),
    Sides([u32; 4]),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRandomResizedCrop {
    size: RawSize,
    scale: Option<[f64; 2]>,
    ratio: Option<[f64; 2]>,
    interpolation: Option<Interpolation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawResize {
    size: RawSize,
    interpolation: Option<Interpolation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCenterCrop {
    size: RawSize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRandomCrop {
    size: RawSize,
    padding: Option<RawPadding>,
    fill: Option<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFlip {
    p: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNormalise {
    mean: Vec<f64>,
    std: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawToDtype {
    dtype: Dtype,
    scale: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLayout {
    layout: Layout,
}

pub(super) fn recipe(json: &str) -> Result<Recipe, RecipeError> {
    let raw: RawRecipe = serde_json::from_str(json).map_err(RecipeError::Json)?;
    if raw.version != RECIPE_VERSION {
        return Err(RecipeError::Version { got: raw.version });
    }
    if raw.name.is_empty() {
        return Err(RecipeError::NoName);
    }
    if raw.ops.len() > MAX_OPS {
        return Err(RecipeError::TooManyOps { n_ops: raw.ops.len() });
    }
    let ops = raw
        .ops
        .into_iter()
        .enumerate()
        .map(|(index, entry)| op(index, entry))
        .collect::<Result<Vec<_>, _>>()?;
    check_order(&ops)?;
    Ok(Recipe {
        version: raw.version,
        name: raw.name,
        numerics: raw.numerics.unwrap_or(Numerics::Exact),
        ops,
    })
}

/// Where in the list an entry stands and what it is: the beginning of every error.
#[derive(Clone, Copy)]
struct Place {
    index: usize,
    op: &'static str,
}

fn op(index: usize, mut entry: Map<String, Value>) -> Result<Op, RecipeError> {
    let Some(Value::String(name)) = entry.remove("op") else {
        return Err(RecipeError::Unnamed { index });
    };
    let Some(&op) = KNOWN.iter().find(|known| **known == name) else {
        return Err(RecipeError::UnknownOp { index, name, known: KNOWN.to_vec() });
    };
    let place = Place { index, op };
    match op {
        "decode" => place.read(entry).map(|RawNothing {}| Op::Decode),
        "random_resized_crop" => random_resized_crop(place, place.read(entry)?),
        "resize" => resize(place, place.read(entry)?),
        "center_crop" => {
            let RawCenterCrop { size } = place.read(entry)?;
            Ok(Op::CenterCrop { size: place.size(size)? })
        }
        "random_crop" => random_crop(place, place.read(entry)?),
        "random_horizontal_flip" => {
            Ok(Op::RandomHorizontalFlip { p: place.probability(entry)? })
        }
        "random_vertical_flip" => {
            Ok(Op::RandomVerticalFlip { p: place.probability(entry)? })
        }
        "normalize" => normalise(place, place.read(entry)?),
        "to_dtype" => to_dtype(place, &place.read(entry)?),
        "layout" => place.read(entry).map(|RawLayout { layout }| Op::Layout { layout }),
        _ => Err(RecipeError::UnknownOp { index, name, known: KNOWN.to_vec() }),
    }
}

fn random_resized_crop(
    place: Place,
    raw: RawRandomResizedCrop,
) -> Result<Op, RecipeError> {
    let scale = place.require(
        ("scale", "[least, greatest] with 0 < least ≤ greatest ≤ 1"),
        raw.scale.unwrap_or([0.08, 1.0]),
        |[least, greatest]| 0.0 < *least && least <= greatest && *greatest <= 1.0,
    )?;
    let ratio = place.require(
        ("ratio", "[least, greatest] with 0 < least ≤ greatest"),
        raw.ratio.unwrap_or([3.0 / 4.0, 4.0 / 3.0]),
        |[least, greatest]| 0.0 < *least && least <= greatest,
    )?;
    let interpolation = raw.interpolation.unwrap_or(Interpolation::Bilinear);
    Ok(Op::RandomResizedCrop { size: place.size(raw.size)?, scale, ratio, interpolation })
}

fn resize(place: Place, raw: RawResize) -> Result<Op, RecipeError> {
    let size = match raw.size {
        RawSize::Square(side) => ResizeTo::ShortSide(place.side(side)?),
        RawSize::Sides(_) => ResizeTo::Exactly(place.size(raw.size)?),
    };
    let interpolation = raw.interpolation.unwrap_or(Interpolation::Bilinear);
    Ok(Op::Resize { size, interpolation })
}

fn random_crop(place: Place, raw: RawRandomCrop) -> Result<Op, RecipeError> {
    let [left, top, right, bottom] = match raw.padding.unwrap_or(RawPadding::All(0)) {
        RawPadding::All(all) => [all; 4],
        RawPadding::Axes([x, y]) => [x, y, x, y],
        RawPadding::Sides(sides) => sides,
    };
    let [left, top, right, bottom] = place.require(
        ("padding", "at most 16384"),
        [left, top, right, bottom],
        |sides| sides.iter().all(|&side| side <= MAX_SIDE),
    )?;
    Ok(Op::RandomCrop {
        size: place.size(raw.size)?,
        padding: Padding { left, top, right, bottom },
        fill: raw.fill.unwrap_or(0),
    })
}

fn normalise(place: Place, raw: RawNormalise) -> Result<Op, RecipeError> {
    let per_channel = ("mean", "one number per channel");
    let mean = place.require(per_channel, raw.mean, |mean| !mean.is_empty())?;
    let std = place.require(("std", "as many numbers as `mean`"), raw.std, |std| {
        std.len() == mean.len()
    })?;
    let std = place.require(("std", "above 0 in each channel"), std, |std| {
        std.iter().all(|std| *std > 0.0)
    })?;
    Ok(Op::Normalise(Normalise { mean, std }))
}

/// torchvision's default is `scale: false`: floats in 0..255. No feed of ours delivers
/// those, so a float type without `scale: true` is refused, never silently rescaled.
fn to_dtype(place: Place, raw: &RawToDtype) -> Result<Op, RecipeError> {
    let is_float = raw.dtype != Dtype::U8;
    let scale = place.require(
        ("scale", "true for a float type and false for u8"),
        raw.scale.unwrap_or(false),
        |scale| *scale == is_float,
    )?;
    Ok(Op::ToDtype { dtype: raw.dtype, scale })
}

impl Place {
    fn read<T: DeserializeOwned>(
        self,
        entry: Map<String, Value>,
    ) -> Result<T, RecipeError> {
        let Self { index, op } = self;
        serde_json::from_value(Value::Object(entry))
            .map_err(|source| RecipeError::Parameters { index, op, source })
    }

    /// The value, if it keeps the rule `must` of parameter `key`.
    fn require<T: Debug>(
        self,
        (key, must): (&'static str, &'static str),
        value: T,
        rule: impl Fn(&T) -> bool,
    ) -> Result<T, RecipeError> {
        let Self { index, op } = self;
        if rule(&value) {
            return Ok(value);
        }
        Err(RecipeError::Range { index, op, key, got: format!("{value:?}"), must })
    }

    fn side(self, side: u32) -> Result<u32, RecipeError> {
        let rule = ("size", "from 1 to 16384");
        self.require(rule, side, |side| (1..=MAX_SIDE).contains(side))
    }

    fn size(self, raw: RawSize) -> Result<Size, RecipeError> {
        let [height, width] = match raw {
            RawSize::Square(side) => [side, side],
            RawSize::Sides(sides) => sides,
        };
        Ok(Size { height: self.side(height)?, width: self.side(width)? })
    }

    fn probability(self, entry: Map<String, Value>) -> Result<f64, RecipeError> {
        let RawFlip { p } = self.read(entry)?;
        self.require(("p", "from 0 to 1"), p.unwrap_or(0.5), |p| (0.0..=1.0).contains(p))
    }
}

/// Decode first, then everything before the cut, then each op after the cut once.
fn check_order(ops: &[Op]) -> Result<(), RecipeError> {
    let is_decoded = ops.first() == Some(&Op::Decode);
    for (index, op) in ops.iter().enumerate() {
        let before = &ops[..index];
        let misplaced = |place, remedy| {
            Err(RecipeError::Order { index, op: op.name(), place, remedy })
        };
        if *op == Op::Decode {
            if index > 0 {
                return misplaced("behind another op", "`decode` comes first, and once");
            }
            continue;
        }
        if op.is_after_cut() {
            if before.iter().any(|earlier| earlier.name() == op.name()) {
                return misplaced("there a second time", "leave one of the two out");
            }
            continue;
        }
        if !is_decoded {
            return misplaced("before any pixels", "begin the recipe with `decode`");
        }
        if before.iter().any(Op::is_after_cut) {
            return misplaced(
                "behind normalize, to_dtype or layout",
                "move it before them: only those run after the cut",
            );
        }
    }
    Ok(())
}
