//! Ops that change pixel values.

use serde::{Deserialize, Serialize};

use super::Chance;
use crate::recipe::Size;
use crate::recipe::range::{Factors, Hues, KernelSize, Qualities, Sigmas};

family! {
    /// Changes values.
    #[derive(Debug, Clone, Copy, PartialEq, Serialize)]
    pub enum Colour {
        /// Brightness, contrast, saturation and hue, in random order.
        ColorJitter(ColorJitter) = "color_jitter",
        /// No colour.
        Grayscale(Grayscale) = "grayscale",
        /// No colour, at random.
        RandomGrayscale(RandomGrayscale) = "random_grayscale",
        /// Blurred by a random amount.
        GaussianBlur(GaussianBlur) = "gaussian_blur",
        /// Sharper or softer, at random.
        RandomAdjustSharpness(RandomAdjustSharpness) = "random_adjust_sharpness",
        /// Each channel stretched to its full range, at random.
        RandomAutocontrast(Chance) = "random_autocontrast",
        /// Each channel's histogram made even, at random.
        RandomEqualize(Chance) = "random_equalize",
        /// Negative, at random.
        RandomInvert(Chance) = "random_invert",
        /// Fewer bits per value, at random.
        RandomPosterize(RandomPosterize) = "random_posterize",
        /// Bright values inverted, at random.
        RandomSolarize(RandomSolarize) = "random_solarize",
        /// Through a JPEG of random quality and back.
        Jpeg(Jpeg) = "jpeg",
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
    /// 1, or 3 equal ones.
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
