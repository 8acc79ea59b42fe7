//! What is done to one sample once everything is decided: the ops of a recipe without their randomness.
//!
//! A recipe says "rotate by up to 30 degrees"; a step says by how much. `recipe/decide.rs` turns ops
//! into steps and `bothends-ops` carries them out, and neither knows the other. A step holds numbers
//! only: carrying it out draws nothing and never fails.

use serde::{Deserialize, Serialize};

use super::draw::CropBox;
use super::{Interpolation, Size};
use crate::arith::exp;

/// One thing that is done to an image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// A part of the image, resized.
    Resize {
        /// The part, in pixels.
        part: CropBox,
        /// Rows and columns of the result.
        size: Size,
        /// How pixels between pixels are found.
        interpolation: Interpolation,
    },
    /// A window laid over the image: a crop where it lies inside, padding where it does not.
    Window(Window),
    /// Left and right exchanged.
    MirrorColumns,
    /// Top and bottom exchanged.
    MirrorRows,
    /// Each pixel of the result looked up elsewhere in the image.
    Warp(Warp),
    /// Values changed, sizes and places not.
    Adjust(Adjust),
    /// One value per channel in place of a part of the image.
    Erase {
        /// The part.
        area: CropBox,
        /// What is put there.
        fill: Fill,
    },
    /// Only the first channel is kept.
    FirstChannel,
    /// The first channel three times.
    ThreeChannels,
    /// A weighted sum of several images made from this one.
    Mix(Mix),
}

impl Step {
    /// Rows and columns of the image that the step makes, where it may make one of another size.
    #[must_use]
    pub fn new_size(&self) -> Option<Size> {
        match self {
            Self::Resize { size, .. } => Some(*size),
            Self::Window(window) => Some(window.size),
            Self::Warp(warp) => Some(warp.size),
            Self::MirrorColumns
            | Self::MirrorRows
            | Self::Adjust(_)
            | Self::Erase { .. }
            | Self::FirstChannel
            | Self::ThreeChannels
            | Self::Mix(_) => None,
        }
    }
}

/// How images are summed up (`AugMix`): `Begin`, then the steps of a chain and its `Chain`,
/// and so for every chain, then `End`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mix {
    /// The sum is the image times the weight; the image is kept.
    Begin {
        /// Weight of the image itself.
        weight: f32,
    },
    /// The image times the weight is added to the sum; the image is the one kept again.
    Chain {
        /// Weight of the chain.
        weight: f32,
    },
    /// The image is the sum, its fractions cut off.
    End,
}

/// A rectangle of an image and of what lies around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// First row; may be negative.
    pub top: i64,
    /// First column; may be negative.
    pub left: i64,
    /// Rows and columns.
    pub size: Size,
    /// What lies around the image.
    pub around: Around,
}

/// What lies around an image (torchvision's `padding_mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Around {
    /// One value per channel.
    Fill(Fill),
    /// The nearest pixel of the image.
    Edge,
    /// The image mirrored at the middle of its outermost pixels: c b a b c.
    Reflect,
    /// The image mirrored at its edge: b a a b c.
    Symmetric,
}

/// The value of elements that no pixel of the image stands for: red, green, blue. Images of
/// other channels take the first for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Fill(pub [u8; 3]);

/// An image seen through a map of the plane.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Warp {
    /// Where each pixel of the result lies in the image.
    pub map: Map,
    /// Rows and columns of the result.
    pub size: Size,
    /// How pixels between pixels are found.
    pub interpolation: Interpolation,
    /// What lies around the image.
    pub fill: Fill,
}

/// From the result to the image: pixel (column x, row y) of the result is looked up at the
/// point whose coordinates are given by X = x + ½ and Y = y + ½; pixel (0, 0) of the image
/// covers 0..1 of both. The same as the `data` of Pillow's `Image.transform`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Map {
    /// (aX + bY + c, dX + eY + f) for [a, b, c, d, e, f].
    Affine([f64; 6]),
    /// ((aX + bY + c) ÷ w, (dX + eY + f) ÷ w), w = gX + hY + 1, for [a, b, c, d, e, f, g, h].
    Perspective([f64; 8]),
}

/// A change of values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Adjust {
    /// Away from black (0 is black, 1 no change).
    Brightness(f64),
    /// Away from the mean grey (0 is grey, 1 no change).
    Contrast(f64),
    /// Away from the pixel's own grey (0 is grey, 1 no change).
    Saturation(f64),
    /// Along the colour wheel, in turns: −½ to ½.
    Hue(f64),
    /// Every channel becomes the pixel's grey.
    Grayscale,
    /// Away from the blurred image (0 is blurred, 1 no change).
    Sharpness(f64),
    /// Gaussian blur.
    Blur(Blur),
    /// Each channel stretched to 0..255.
    Autocontrast,
    /// Each channel's histogram made even.
    Equalize,
    /// 255 − value.
    Invert,
    /// Only so many upper bits are kept, 0 to 8.
    Posterize {
        /// How many.
        bits: u8,
    },
    /// Values from `threshold` on (0 to 256) are inverted.
    Solarize {
        /// The first value that is.
        threshold: u16,
    },
    /// `addition` is added to values below 128, up to 255.
    SolarizeAdd {
        /// What is added.
        addition: u8,
    },
    /// What a JPEG of this quality (1 to 100) keeps, chroma at half of both resolutions.
    Jpeg {
        /// libjpeg's scale.
        quality: u8,
    },
}

/// A Gaussian kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Blur {
    /// Rows and columns of the kernel, both odd.
    pub kernel: Size,
    /// Standard deviation in pixels, above 0.
    pub sigma: f64,
}

/// The weights of a Gaussian kernel of `len` pixels, in 131072ths: of the pairs of pixels that are
/// equally far from the middle, outwards from the middle pixel, which is both of its pair.
/// Running sums are rounded, so that all come to 65536, less one where there is only the middle.
/// A pair that weighs less than half of the smallest number is left out, with all beyond.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "parts of one, in 65536ths; one itself is 65535"
)]
pub fn blur_weights(len: u32, sigma: f64) -> impl Iterator<Item = u16> {
    const ONE: f64 = 65_536.0;
    let bell = move |distance: u32| {
        let sigmas = f64::from(distance) / sigma;
        exp(-0.5 * (sigmas * sigmas))
    };
    let mut total = 0.5;
    let mut last = 0;
    for distance in 1..=len / 2 {
        let weight = bell(distance);
        if weight * ONE < 0.5 * (total + weight) {
            break;
        }
        total += weight;
        last = distance;
    }
    let (mut sum, mut given) = (0.0, 0.0);
    (0..=last).map(move |distance| {
        sum += if distance == 0 { 0.5 } else { bell(distance) };
        let rounded = (sum / total * ONE + 0.5).floor();
        let weight = rounded - given;
        given = rounded;
        weight as u16
    })
}

impl Serialize for Fill {
    /// One number if all three are equal.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [red, green, blue] = self.0;
        if red == green && green == blue {
            red.serialize(serializer)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Fill {
    fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "`fill` must be a whole number from 0 to 255 or [red, green, blue]"
        )]
        enum Raw {
            All(u8),
            Each([u8; 3]),
        }
        Ok(match Raw::deserialize(source)? {
            Raw::All(value) => Self([value; 3]),
            Raw::Each(values) => Self(values),
        })
    }
}
