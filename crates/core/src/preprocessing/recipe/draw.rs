//! The random choices of the ops, from a stream of draws and the size of an image. No pixels here.
//!
//! What is drawn, and in which order, is part of the meaning of an op (`docs/numbers.md`). This file has
//! the boxes, `draw/map.rs` the geometric maps, and `draw/policy.rs` the ops of policies. Ops that need
//! one uniform number or none draw it where they are decided.

mod map;
mod policy;

pub use map::{AffineChoice, Expand, affine, perspective, perspective_map, rotation_map};
pub use policy::{
    Choice, Kind, augmix_chain, auto_augment, rand_augment, timm_rand_augment,
    trivial_augment_wide,
};

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
        let [width, height] = sides(draws, area, scale, log_ratio);
        let fits = (1.0..=f64::from(image_width)).contains(&width)
            && (1.0..=f64::from(image_height)).contains(&height);
        let crop = Size { height: pixels(height), width: pixels(width) };
        if fits && let Some(part) = random_crop(draws, image, crop) {
            return part;
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

/// The rectangle of `random_erasing`: torchvision's `RandomErasing.make_params` with our
/// numbers. Up to ten tries, each drawing `between` (share of the area) and `between`
/// (logarithm of height ÷ width); the first that is smaller than the image both ways draws
/// `below` (row) and `below` (column). `None` when none is, or one that is empty.
#[must_use]
pub fn random_erasing(
    draws: &mut Draws,
    image: Size,
    scale: [f64; 2],
    ratio: [f64; 2],
) -> Option<CropBox> {
    let Size { height: image_height, width: image_width } = image;
    let area = f64::from(image_height) * f64::from(image_width);
    let log_ratio = [ln(ratio[0]), ln(ratio[1])];
    for _ in 0..10 {
        let [height, width] = sides(draws, area, scale, log_ratio);
        if height < f64::from(image_height) && width < f64::from(image_width) {
            let area = Size { height: pixels(height), width: pixels(width) };
            let drawn = random_crop(draws, image, area);
            return drawn.filter(|_| area.height > 0 && area.width > 0);
        }
    }
    None
}

/// Two whole sides whose product is a drawn share of `area`, and whose quotient, the first by
/// the second, has a drawn logarithm.
fn sides(draws: &mut Draws, area: f64, scale: [f64; 2], log_ratio: [f64; 2]) -> [f64; 2] {
    let target = area * draws.between(scale);
    let aspect = exp(draws.between(log_ratio));
    [target * aspect, target / aspect].map(|square| square.sqrt().round_ties_even())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{EpochIdx, SampleId};
    use crate::sample::SampleKey;
    use proptest::prelude::*;

    const SCALE: [f64; 2] = [0.08, 1.0];
    const RATIO: [f64; 2] = [3.0 / 4.0, 4.0 / 3.0];

    fn draws(seed: u64, sample: u64) -> Draws {
        let key = SampleKey { seed, epoch: EpochIdx(0), sample: SampleId(sample) };
        Draws::new(key, 1)
    }

    fn size(height: u32, width: u32) -> Size {
        Size { height, width }
    }

    /// Boxes computed by a Python program written from `docs/numbers.md`.
    #[test]
    fn golden_boxes() {
        for (sample, image, [top, left, height, width]) in GOLDEN_BOXES {
            let got = random_resized_crop(
                &mut draws(42, sample),
                size(image[0], image[1]),
                SCALE,
                RATIO,
            );
            assert_eq!(got, CropBox { top, left, height, width }, "sample {sample}");
        }
    }

    const GOLDEN_BOXES: [(u64, [u32; 2], [u32; 4]); 11] = [
        (0, [375, 500], [4, 142, 304, 348]),
        (1, [375, 500], [79, 24, 275, 259]),
        (2, [500, 375], [255, 85, 228, 187]),
        (3, [333, 500], [17, 251, 158, 140]),
        (4, [1200, 1600], [212, 13, 478, 592]),
        (5, [17, 33], [5, 20, 12, 9]),
        (6, [1, 1], [0, 0, 1, 1]),
        (1099511627783, [375, 500], [51, 97, 227, 182]),
        (8, [30, 500], [0, 230, 30, 40]),
        (9, [500, 30], [230, 0, 40, 30]),
        (10, [65000, 65500], [14430, 2959, 48770, 46908]),
    ];

    /// torchvision's own loop with Python's `random` and `math` has a mean area share of
    /// 0.433 on such images (200,000 boxes): boxes that do not fit are drawn again.
    #[test]
    fn boxes_are_spread_as_torchvision_spreads_them() {
        let n = 20_000_u32;
        let (mut area, mut centre) = (0.0, [0.0; 2]);
        for sample in 0..n {
            let crop = random_resized_crop(
                &mut draws(7, u64::from(sample)),
                size(375, 500),
                SCALE,
                RATIO,
            );
            area += f64::from(crop.height * crop.width) / (375.0 * 500.0);
            centre[0] += f64::from(2 * crop.top + crop.height) / (2.0 * 375.0);
            centre[1] += f64::from(2 * crop.left + crop.width) / (2.0 * 500.0);
        }
        let n = f64::from(n);
        assert!((area / n - 0.433).abs() < 0.008, "mean area {}", area / n);
        assert!((centre[0] / n - 0.5).abs() < 0.005, "{centre:?}");
        assert!((centre[1] / n - 0.5).abs() < 0.005, "{centre:?}");
    }

    #[test]
    fn a_strip_falls_back_to_its_middle() {
        let strip = |height, width| {
            random_resized_crop(&mut draws(1, 1), size(height, width), SCALE, RATIO)
        };
        assert_eq!(strip(1000, 3), CropBox { top: 498, left: 0, height: 4, width: 3 });
        assert_eq!(strip(3, 1000), CropBox { top: 0, left: 498, height: 3, width: 4 });
    }

    #[test]
    fn a_crop_as_large_as_the_image_is_the_image() {
        let whole = CropBox { top: 0, left: 0, height: 5, width: 7 };
        assert_eq!(random_crop(&mut draws(0, 0), size(5, 7), size(5, 7)), Some(whole));
        assert_eq!(random_crop(&mut draws(0, 0), size(5, 7), size(6, 7)), None);
        assert_eq!(random_crop(&mut draws(0, 0), size(5, 7), size(5, 8)), None);
    }

    #[test]
    fn every_offset_of_a_padded_crop_occurs() {
        let mut seen = [[false; 9]; 9];
        for sample in 0..2_000 {
            let crop =
                random_crop(&mut draws(3, sample), size(40, 40), size(32, 32)).unwrap();
            seen[crop.top as usize][crop.left as usize] = true;
        }
        assert!(seen.iter().flatten().all(|&seen| seen));
    }

    proptest! {
        #[test]
        fn a_box_lies_inside_its_image(
            height in 1_u32..70_000,
            width in 1_u32..70_000,
            seed: u64,
            sample: u64,
            low in 1e-9_f64..1.0,
            ratio in (1e-3_f64..1e3, 1.0_f64..1e3),
        ) {
            let crop = random_resized_crop(
                &mut draws(seed, sample),
                size(height, width),
                [low, 1.0],
                [ratio.0, ratio.0 * ratio.1],
            );
            prop_assert!(crop.height > 0 && crop.width > 0);
            prop_assert!(crop.top + crop.height <= height);
            prop_assert!(crop.left + crop.width <= width);
        }
    }
}
