//! Ops after the cut, which define the delivered elements.

use serde::{Deserialize, Serialize};

use crate::tensor::{Dtype, Layout};

family! {
    /// Stands after the cut and says what is delivered.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub enum Feed {
        /// (value ÷ 255 − mean) ÷ std of the channel.
        Normalise(Normalise) = "normalize",
        /// The element type delivered where the caller asks for no other.
        ToDtype(ToDtype) = "to_dtype",
        /// The layout delivered where the caller asks for no other.
        Layout(LayoutOp) = "layout",
    }
}

/// Mean and standard deviation of each channel, of values in 0..1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normalise {
    /// What is subtracted; one per channel.
    pub mean: Vec<f64>,
    /// What is divided by; as many, each above 0.
    pub std: Vec<f64>,
}

/// An element type.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToDtype {
    /// The type.
    pub dtype: Dtype,
    /// Floats lie in 0..1. torchvision's default is false, floats in 0..255; no feed of ours
    /// delivers those, so a float type needs true here, and u8 false.
    #[serde(default)]
    pub scale: bool,
}

/// A layout.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutOp {
    /// The order of dimensions.
    pub layout: Layout,
}
