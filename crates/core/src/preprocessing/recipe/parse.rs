//! From JSON to a complete recipe: file → op (unknown keys refused, every default filled in) → every
//! parameter in range (`parse/check.rs`) → every op in a valid position (`parse/order.rs`) → shapes that
//! some records can have (`shape.rs`).
//!
//! The defaults are torchvision's and are declared at the fields of the op structs.

mod check;
mod order;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::op::{
    Colour, Control, Crops, Feed, Geometry, Mixing, MultiCrop, Op, Policy, RandomApply,
    RandomChoice, RandomOrder, View, n_streams,
};
use super::{MAX_OPS, Numerics, Path, RECIPE_VERSION, Recipe, RecipeError};

/// Deepest nesting of ops.
const MAX_DEPTH: usize = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRecipe {
    version: u32,
    name: String,
    about: Option<String>,
    source: Option<String>,
    numerics: Option<RawNumerics>,
    repeated_augment: Option<u32>,
    ops: Vec<Map<String, Value>>,
}

/// What stands in the file; the version says the rest.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawNumerics {
    Exact,
    Planar,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawApply {
    transforms: Vec<Map<String, Value>>,
    p: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawChoice {
    transforms: Vec<Map<String, Value>>,
    p: Option<Vec<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOrder {
    transforms: Vec<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMultiCrop {
    views: Vec<RawView>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawView {
    repeat: Option<u32>,
    ops: Vec<Map<String, Value>>,
}

pub(super) fn text(json: &str) -> Result<Recipe, RecipeError> {
    serde_json::from_str(json).map_err(RecipeError::Json).and_then(recipe)
}

pub(super) fn value(value: Value) -> Result<Recipe, RecipeError> {
    serde_json::from_value(value).map_err(RecipeError::Json).and_then(recipe)
}

fn recipe(raw: RawRecipe) -> Result<Recipe, RecipeError> {
    let numerics = match (raw.version, raw.numerics.unwrap_or(RawNumerics::Exact)) {
        (1, RawNumerics::Exact) => Numerics::Exact,
        (2, RawNumerics::Exact) => Numerics::Exact13,
        (1..=RECIPE_VERSION, RawNumerics::Planar) => Numerics::Planar,
        (got, _) => return Err(RecipeError::Version { got }),
    };
    if raw.name.is_empty() {
        return Err(RecipeError::NoName);
    }
    if let Some(got) = raw.repeated_augment
        && !(1..=64).contains(&got)
    {
        return Err(RecipeError::RepeatedAugment { got });
    }
    if raw.ops.len() > MAX_OPS {
        return Err(RecipeError::TooManyOps { n_ops: raw.ops.len() });
    }
    let ops = list(&Path::default(), raw.ops)?;
    let n_ops = usize::try_from(n_streams(&ops)).unwrap_or(usize::MAX);
    if n_ops > MAX_OPS {
        return Err(RecipeError::TooManyOps { n_ops });
    }
    order::check(&ops)?;
    let recipe = Recipe {
        version: raw.version,
        name: raw.name,
        about: raw.about,
        source: raw.source,
        numerics,
        repeated_augment: raw.repeated_augment.filter(|&n| n > 1),
        ops,
    };
    recipe.fits_something()?;
    Ok(recipe)
}

fn list(path: &Path, entries: Vec<Map<String, Value>>) -> Result<Vec<Op>, RecipeError> {
    let ops = entries.into_iter().enumerate();
    ops.map(|(index, entry)| op(path.inside(index), entry)).collect()
}

/// Where in the list an entry stands and what it is: the beginning of every error.
#[derive(Debug, Clone)]
struct Place {
    at: Path,
    op: &'static str,
}

/// How an op's JSON object, without `op`, is read.
type Read = fn(&Place, Map<String, Value>) -> Result<Op, RecipeError>;

/// Every op, by name.
const OPS: [(&str, Read); 39] = [
    ("decode", |at, entry| at.op(entry, Op::Decode)),
    ("random_resized_crop", |at, entry| at.op(entry, Geometry::RandomResizedCrop)),
    ("resize", |at, entry| at.op(entry, Geometry::Resize)),
    ("center_crop", |at, entry| at.op(entry, Geometry::CenterCrop)),
    ("random_crop", |at, entry| at.op(entry, Geometry::RandomCrop)),
    ("pad", |at, entry| at.op(entry, Geometry::Pad)),
    ("random_horizontal_flip", |at, entry| at.op(entry, Geometry::RandomHorizontalFlip)),
    ("random_vertical_flip", |at, entry| at.op(entry, Geometry::RandomVerticalFlip)),
    ("random_rotation", |at, entry| at.op(entry, Geometry::RandomRotation)),
    ("random_affine", |at, entry| at.op(entry, Geometry::RandomAffine)),
    ("random_perspective", |at, entry| at.op(entry, Geometry::RandomPerspective)),
    ("five_crop", |at, entry| at.op(entry, Crops::FiveCrop)),
    ("ten_crop", |at, entry| at.op(entry, Crops::TenCrop)),
    ("multi_crop", multi_crop),
    ("color_jitter", |at, entry| at.op(entry, Colour::ColorJitter)),
    ("grayscale", |at, entry| at.op(entry, Colour::Grayscale)),
    ("random_grayscale", |at, entry| at.op(entry, Colour::RandomGrayscale)),
    ("gaussian_blur", |at, entry| at.op(entry, Colour::GaussianBlur)),
    ("random_adjust_sharpness", |at, entry| at.op(entry, Colour::RandomAdjustSharpness)),
    ("random_autocontrast", |at, entry| at.op(entry, Colour::RandomAutocontrast)),
    ("random_equalize", |at, entry| at.op(entry, Colour::RandomEqualize)),
    ("random_invert", |at, entry| at.op(entry, Colour::RandomInvert)),
    ("random_posterize", |at, entry| at.op(entry, Colour::RandomPosterize)),
    ("random_solarize", |at, entry| at.op(entry, Colour::RandomSolarize)),
    ("jpeg", |at, entry| at.op(entry, Colour::Jpeg)),
    ("auto_augment", |at, entry| at.op(entry, Policy::AutoAugment)),
    ("rand_augment", |at, entry| at.op(entry, Policy::RandAugment)),
    ("timm_rand_augment", |at, entry| at.op(entry, Policy::TimmRandAugment)),
    ("trivial_augment_wide", |at, entry| at.op(entry, Policy::TrivialAugmentWide)),
    ("augmix", |at, entry| at.op(entry, Policy::Augmix)),
    ("random_erasing", |at, entry| at.op(entry, Op::RandomErasing)),
    ("random_apply", random_apply),
    ("random_choice", random_choice),
    ("random_order", random_order),
    ("normalize", |at, entry| at.op(entry, Feed::Normalise)),
    ("to_dtype", |at, entry| at.op(entry, Feed::ToDtype)),
    ("layout", |at, entry| at.op(entry, Feed::Layout)),
    ("mixup", |at, entry| at.op(entry, Mixing::Mixup)),
    ("cutmix", |at, entry| at.op(entry, Mixing::Cutmix)),
];

/// The ops that stand after the cut and nowhere else.
const FEED: [&str; 5] = ["normalize", "to_dtype", "layout", "mixup", "cutmix"];

pub(super) fn names_before_cut() -> Vec<&'static str> {
    let names = OPS.iter().map(|(name, _)| *name);
    names.filter(|name| !FEED.contains(name)).collect()
}

fn op(at: Path, mut entry: Map<String, Value>) -> Result<Op, RecipeError> {
    let Some(Value::String(name)) = entry.remove("op") else {
        return Err(RecipeError::Unnamed { at });
    };
    let Some(&(op, read)) = OPS.iter().find(|(known, _)| *known == name) else {
        let known = OPS.map(|(known, _)| known).to_vec();
        return Err(RecipeError::UnknownOp { at, name, known });
    };
    let place = Place { at, op };
    let op = read(&place, entry)?;
    check::ranges(&place, &op)?;
    Ok(op)
}

fn random_apply(place: &Place, entry: Map<String, Value>) -> Result<Op, RecipeError> {
    let RawApply { transforms, p } = place.read(entry)?;
    let transforms = place.inside(transforms)?;
    Ok(Control::RandomApply(RandomApply { transforms, p: p.unwrap_or(0.5) }).into())
}

fn random_choice(place: &Place, entry: Map<String, Value>) -> Result<Op, RecipeError> {
    let RawChoice { transforms, p } = place.read(entry)?;
    let transforms = place.inside(transforms)?;
    let p = p.unwrap_or_else(|| vec![1.0; transforms.len()]);
    Ok(Control::RandomChoice(RandomChoice { transforms, p }).into())
}

fn random_order(place: &Place, entry: Map<String, Value>) -> Result<Op, RecipeError> {
    let RawOrder { transforms } = place.read(entry)?;
    Ok(Control::RandomOrder(RandomOrder { transforms: place.inside(transforms)? }).into())
}

fn multi_crop(place: &Place, entry: Map<String, Value>) -> Result<Op, RecipeError> {
    let RawMultiCrop { views } = place.read(entry)?;
    let views = views.into_iter().enumerate().map(|(index, RawView { repeat, ops })| {
        let ops = list(&place.at.inside(index), ops)?;
        Ok(View { repeat: repeat.unwrap_or(1), ops })
    });
    let views = views.collect::<Result<_, RecipeError>>()?;
    Ok(Crops::MultiCrop(MultiCrop { views }).into())
}

impl Place {
    fn read<T: DeserializeOwned>(
        &self,
        entry: Map<String, Value>,
    ) -> Result<T, RecipeError> {
        serde_json::from_value(Value::Object(entry)).map_err(|source| {
            RecipeError::Parameters { at: self.at.clone(), op: self.op, source }
        })
    }

    /// An op whose parameters are a `T`.
    fn op<T: DeserializeOwned, F: Into<Op>>(
        &self,
        entry: Map<String, Value>,
        make: fn(T) -> F,
    ) -> Result<Op, RecipeError> {
        self.read(entry).map(|parameters| make(parameters).into())
    }

    /// The ops inside this one.
    fn inside(
        &self,
        transforms: Vec<Map<String, Value>>,
    ) -> Result<Vec<Op>, RecipeError> {
        if self.at.depth() >= MAX_DEPTH {
            let (at, op) = (self.at.clone(), self.op);
            let place = "inside eight others";
            return Err(RecipeError::Order { at, op, place, remedy: "nest fewer ops" });
        }
        list(&self.at, transforms)
    }
}
