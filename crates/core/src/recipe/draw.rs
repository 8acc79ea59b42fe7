//! The random choices of the ops, made from a stream of draws and an image's size: no
//! pixels here.
//!
//! What is drawn, and in which order, is part of an op's meaning (`docs/numbers.md`).
//! Flips need nothing but [`Draws::bernoulli`].

use super::Size;
use crate::arith::{exp, ln};
use crate::rng::Draws;

/// A part of an image, in pixels. Lies inside the image and is not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CropBox {
    /// First row.
    pub top: u32,
    /// First column.
    pub left: u32,
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
}

/// The box of `random_resized_crop` in an image that is not empty: torchvision's
/// `RandomResizedCrop.get_params` with our numbers.
///
/// Up to ten tries, each drawing `uniform` (share of the area) and `uniform` (logarithm of
/// the ratio); the first that fits draws `below` (row) and `below` (column). When none
/// fits: the largest central box whose ratio is in range.
#[must_use]
pub fn random_resized_crop(
    draws: &mut Draws,
    image: Size,
    scale: [f64; 2],
    ratio: [f64; 2],
) -> CropBox {
    let Size { height: image_height, width: image_width } = image;
    let area = f64::from(image_height) * f64::from(image_width);
    let log_ratio = [ln(ratio[0]), ln(ratio[1])];
    for _ in 0..10 {
        let target = area * between(draws, scale);
        let aspect = exp(between(draws, log_ratio));
        let width = (target * aspect).sqrt().round_ties_even();
        let height = (target / aspect).sqrt().round_ties_even();
        let fits = (1.0..=f64::from(image_width)).contains(&width)
            && (1.0..=f64::from(image_height)).contains(&height);
        if fits {
            let (height, width) = (pixels(height), pixels(width));
            let top = draws.below(image_height - height + 1);
            let left = draws.below(image_width - width + 1);
            return CropBox { top, left, height, width };
        }
    }
    central(image, ratio)
}

/// The box of `random_crop` in an image whose size, padding included, is `padded`: draws
/// `below` (row) and `below` (column). `None` when the crop is larger than the image.
#[must_use]
pub fn random_crop(draws: &mut Draws, padded: Size, crop: Size) -> Option<CropBox> {
    let rows = padded.height.checked_sub(crop.height)?;
    let columns = padded.width.checked_sub(crop.width)?;
    let top = draws.below(rows.saturating_add(1));
    let left = draws.below(columns.saturating_add(1));
    Some(CropBox { top, left, height: crop.height, width: crop.width })
}

fn between(draws: &mut Draws, [low, high]: [f64; 2]) -> f64 {
    low + (high - low) * draws.uniform()
}

fn central(image: Size, ratio: [f64; 2]) -> CropBox {
    let Size { height: image_height, width: image_width } = image;
    let (rows, columns) = (f64::from(image_height), f64::from(image_width));
    let (mut height, mut width) = (image_height, image_width);
    if columns / rows < ratio[0] {
        height = pixels((columns / ratio[0]).round_ties_even());
    } else if columns / rows > ratio[1] {
        width = pixels((rows * ratio[1]).round_ties_even());
    }
    // torchvision would make an empty box of a very narrow image.
    let (height, width) = (height.clamp(1, image_height), width.clamp(1, image_width));
    CropBox {
        top: (image_height - height) / 2,
        left: (image_width - width) / 2,
        height,
        width,
    }
}

/// A whole number of pixels as an integer.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "callers bound it by an image's side"
)]
fn pixels(value: f64) -> u32 {
    value as u32
}
