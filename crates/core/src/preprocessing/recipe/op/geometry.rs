//! Ops that move pixels.

use serde::{Deserialize, Serialize};

use super::Chance;
use crate::recipe::range::{Angles, Scales, Shears};
use crate::recipe::step::{Around, Fill};
use crate::recipe::{Interpolation, Padding, ResizeTo, Size};

family! {
    /// Moves pixels.
    #[derive(Debug, Clone, Copy, PartialEq, Serialize)]
    pub enum Geometry {
        /// A random box of the image, resized.
        RandomResizedCrop(RandomResizedCrop) = "random_resized_crop",
        /// The whole image, resized.
        Resize(Resize) = "resize",
        /// The middle of the image; zeros around it where it is smaller.
        CenterCrop(CenterCrop) = "center_crop",
        /// A random part of the padded image.
        RandomCrop(RandomCrop) = "random_crop",
        /// More image around the image.
        Pad(Pad) = "pad",
        /// Left and right exchanged at random.
        RandomHorizontalFlip(Chance) = "random_horizontal_flip",
        /// Top and bottom exchanged at random.
        RandomVerticalFlip(Chance) = "random_vertical_flip",
        /// Turned by a random angle.
        RandomRotation(RandomRotation) = "random_rotation",
        /// Turned, moved, scaled and sheared at random.
        RandomAffine(RandomAffine) = "random_affine",
        /// Seen from a random place.
        RandomPerspective(RandomPerspective) = "random_perspective",
    }
}

/// torchvision's `RandomResizedCrop`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomResizedCrop {
    /// Rows and columns of the result.
    pub size: Size,
    /// Least and greatest share of the image's area.
    #[serde(default = "any_area")]
    pub scale: [f64; 2],
    /// Least and greatest width ÷ height of the box.
    #[serde(default = "mild_ratio")]
    pub ratio: [f64; 2],
    /// How the box is resampled.
    #[serde(default)]
    pub interpolation: Interpolation,
}

/// torchvision's `Resize`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// To what.
    pub size: ResizeTo,
    /// Most pixels of the longer side, where only the shorter one is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_size: Option<u32>,
    /// How it is resampled.
    #[serde(default)]
    pub interpolation: Interpolation,
}

/// torchvision's `CenterCrop`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CenterCrop {
    /// Rows and columns of the result.
    pub size: Size,
}

/// torchvision's `RandomCrop`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomCrop {
    /// Rows and columns of the result.
    pub size: Size,
    /// Rows and columns added around the image before.
    #[serde(default)]
    pub padding: Padding,
    /// Whether an image that is still too small gets as much more on both sides as it
    /// lacks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pad_if_needed: bool,
    /// The value of added elements.
    #[serde(default)]
    pub fill: Fill,
    /// What is added.
    #[serde(default, skip_serializing_if = "PaddingMode::is_constant")]
    pub padding_mode: PaddingMode,
}

/// torchvision's `Pad`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pad {
    /// Rows and columns added.
    pub padding: Padding,
    /// The value of added elements.
    #[serde(default)]
    pub fill: Fill,
    /// What is added.
    #[serde(default)]
    pub padding_mode: PaddingMode,
}

/// What is added around an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PaddingMode {
    /// The fill.
    #[default]
    Constant,
    /// The nearest pixel.
    Edge,
    /// The image mirrored at the middle of its outermost pixels.
    Reflect,
    /// The image mirrored at its edge.
    Symmetric,
}

impl PaddingMode {
    pub(crate) fn is_constant(&self) -> bool {
        *self == Self::Constant
    }

    /// What lies around an image with this mode and fill.
    #[must_use]
    pub fn around(self, fill: Fill) -> Around {
        match self {
            Self::Constant => Around::Fill(fill),
            Self::Edge => Around::Edge,
            Self::Reflect => Around::Reflect,
            Self::Symmetric => Around::Symmetric,
        }
    }
}

/// torchvision's `RandomRotation`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomRotation {
    /// Range of the angle, counter-clockwise.
    pub degrees: Angles,
    /// How pixels between pixels are found.
    #[serde(default = "super::nearest")]
    pub interpolation: Interpolation,
    /// Whether the result is large enough for the whole turned image.
    #[serde(default)]
    pub expand: bool,
    /// What stays in place, [column, row] from the upper left; by default the middle.
    #[serde(default)]
    pub center: Option<[f64; 2]>,
    /// What lies around the image.
    #[serde(default)]
    pub fill: Fill,
}

/// torchvision's `RandomAffine`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomAffine {
    /// Range of the angle, clockwise.
    pub degrees: Angles,
    /// Most columns and rows by which it is moved, as shares of the image's.
    #[serde(default)]
    pub translate: Option<[f64; 2]>,
    /// Range of the magnification.
    #[serde(default)]
    pub scale: Option<Scales>,
    /// Range of the shear along rows, and along columns.
    #[serde(default)]
    pub shear: Option<Shears>,
    /// How pixels between pixels are found.
    #[serde(default = "super::nearest")]
    pub interpolation: Interpolation,
    /// What lies around the image.
    #[serde(default)]
    pub fill: Fill,
    /// What stays in place, [column, row] from the upper left; by default the middle.
    #[serde(default)]
    pub center: Option<[f64; 2]>,
}

/// torchvision's `RandomPerspective`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomPerspective {
    /// How far corners may move, as a share of half a side.
    #[serde(default = "super::half")]
    pub distortion_scale: f64,
    /// Probability.
    #[serde(default = "super::half")]
    pub p: f64,
    /// How pixels between pixels are found.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// What lies around the image.
    #[serde(default)]
    pub fill: Fill,
}

fn any_area() -> [f64; 2] {
    [0.08, 1.0]
}

fn mild_ratio() -> [f64; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}
