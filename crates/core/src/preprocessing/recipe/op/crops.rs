//! Ops that make several views of one sample. They come last before the cut.

use serde::{Deserialize, Serialize};

use super::Op;
use crate::recipe::Size;

family! {
    /// Makes several views of one sample.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub enum Crops {
        /// Four corners and the middle.
        FiveCrop(FiveCrop) = "five_crop",
        /// Five crops and those of the mirror image.
        TenCrop(TenCrop) = "ten_crop",
        /// Views that each go their own way.
        MultiCrop(MultiCrop) = "multi_crop",
    }
}

/// torchvision's `FiveCrop`: upper left, upper right, lower left, lower right, middle.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FiveCrop {
    /// Rows and columns of each.
    pub size: Size,
}

/// torchvision's `TenCrop`: the five of [`FiveCrop`], then the five of the mirrored image.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenCrop {
    /// Rows and columns of each.
    pub size: Size,
    /// Mirrored top to bottom instead of left to right.
    #[serde(default)]
    pub vertical_flip: bool,
}

/// Several views of one sample: each copy of each view begins with the image as it is here
/// and goes its own way. The sample at the cut is all views one after the other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MultiCrop {
    /// The kinds of views, in order.
    pub views: Vec<View>,
}

/// Views made in the same way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct View {
    /// How many.
    pub repeat: u32,
    /// What is done to each.
    pub ops: Vec<Op>,
}
