//! Ops that change values.

use serde::{Deserialize, Serialize};

use super::Chance;
use crate::recipe::Size;
use crate::recipe::range::{Factors, Hues, KernelSize, Qualities, Sigmas};

/// Changes values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Colour {
    /// Brightness, contrast, saturation and hue, in random order.
    ColorJitter(ColorJitter),
    /// No colour.
    Grayscale(Grayscale),
    /// No colour, at random.
    RandomGrayscale(RandomGrayscale),
    /// Blurred by a random amount.
    GaussianBlur(GaussianBlur),
    /// Sharper or softer, at random.
    RandomAdjustSharpness(RandomAdjustSharpness),
    /// Each channel stretched to its full range, at random.
    RandomAutocontrast(Chance),
    /// Each channel's histogram made even, at random.
    RandomEqualize(Chance),
    /// Negative, at random.
    RandomInvert(Chance),
    /// Fewer bits per value, at random.
    RandomPosterize(RandomPosterize),
    /// Bright values inverted, at random.
    RandomSolarize(RandomSolarize),
    /// Through a JPEG of random quality and back.
    Jpeg(Jpeg),
}

impl Colour {
    /// The op's name in JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::ColorJitter(_) => "color_jitter",
            Self::Grayscale(_) => "grayscale",
            Self::RandomGrayscale(_) => "random_grayscale",
            Self::GaussianBlur(_) => "gaussian_blur",
            Self::RandomAdjustSharpness(_) => "random_adjust_sharpness",
            Self::RandomAutocontrast(_) => "random_autocontrast",
            Self::RandomEqualize(_) => "random_equalize",
            Self::RandomInvert(_) => "random_invert",
            Self::RandomPosterize(_) => "random_posterize",
            Self::RandomSolarize(_) => "random_solarize",
            Self::Jpeg(_) => "jpeg",
        }
    }
}

/// torchvision's `ColorJitter`; `None` leaves one out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColorJitter {
    /// Range of the brightness factor.
    #[serde(default)]
    pub brightness: Option<Factors>,
    /// Range of the contrast factor.
    #[serde(default)]
    pub contrast: Option<Factors>,
    /// Range of the saturation factor.
    #[serde(default)]
    pub saturation: Option<Factors>,
    /// Range of the hue's shift in turns, within −½ to ½.
    #[serde(default)]
    pub hue: Option<Hues>,
}

/// torchvision's `Grayscale`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grayscale {
    /// 1, or 3 that are alike.
    #[serde(default = "one")]
    pub num_output_channels: u32,
}

/// torchvision's `RandomGrayscale`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomGrayscale {
    /// Probability.
    #[serde(default = "tenth")]
    pub p: f64,
}

/// torchvision's `GaussianBlur`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GaussianBlur {
    /// Columns and rows of the kernel, odd.
    pub kernel_size: KernelSize,
    /// Range of the standard deviation in pixels.
    #[serde(default)]
    pub sigma: Sigmas,
}

impl GaussianBlur {
    /// Rows and columns of the kernel.
    #[must_use]
    pub fn kernel(&self) -> Size {
        let [width, height] = self.kernel_size.0;
        Size { height, width }
    }
}

/// torchvision's `RandomAdjustSharpness`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomAdjustSharpness {
    /// 0 is blurred, 1 no change, 2 twice as sharp.
    pub sharpness_factor: f64,
    /// Probability.
    #[serde(default = "super::half")]
    pub p: f64,
}

/// torchvision's `RandomPosterize`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomPosterize {
    /// Bits kept, 0 to 8.
    pub bits: u8,
    /// Probability.
    #[serde(default = "super::half")]
    pub p: f64,
}

/// torchvision's `RandomSolarize`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomSolarize {
    /// Values from here on are inverted, 0 to 255.
    pub threshold: f64,
    /// Probability.
    #[serde(default = "super::half")]
    pub p: f64,
}

/// torchvision's `JPEG`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jpeg {
    /// Range of the quality, both ends included, within 1 to 100.
    pub quality: Qualities,
}

fn one() -> u32 {
    1
}

fn tenth() -> f64 {
    0.1
}
