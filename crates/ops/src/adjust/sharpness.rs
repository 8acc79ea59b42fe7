//! Sharpness: away from a slightly blurred image.
//!
//! Rows are replaced from the top, and rows that are still needed are kept aside. Read `blur.rs` for a
//! blur of any width.
#![allow(clippy::cast_possible_truncation, reason = "a mean of bytes is one")]

use std::mem::swap;

use super::values::blend;
use crate::image::Image;
use crate::kernels::Level;
use crate::kernels::compiled::{Work, run};

/// Rows that are kept from image to image.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// The row above, as it was.
    above: Vec<u8>,
    /// The row itself, as it was.
    current: Vec<u8>,
    /// For each place the sum of three rows.
    sums: Vec<u16>,
}

/// Away from the image blurred by `ImageFilter.SMOOTH`, the eight neighbours 1 ÷ 13 each, the
/// pixel itself 5 ÷ 13: `ImageEnhance.Sharpness` in every bit. The outermost pixels stay as
/// they are, and so does an image of which there are no others. torchvision's tensors blend
/// in another order and differ by 1.
pub(super) fn sharpness(level: Level, image: &mut Image, factor: f64, rows: &mut Rows) {
    let channels = image.channels();
    let row_bytes = image.width() * channels;
    if image.height() < 3 || image.width() < 3 {
        return;
    }
    let factor = factor as f32;
    let Rows { above, current, sums } = rows;
    above.clear();
    above.extend_from_slice(&image.pixels()[..row_bytes]);
    sums.resize(row_bytes, 0);
    let mut left = &mut image.pixels_mut()[row_bytes..];
    while left.len() > row_bytes {
        let (row, below) = left.split_at_mut(row_bytes);
        current.clear();
        current.extend_from_slice(row);
        let rows = [&above[..], current, &below[..row_bytes]];
        run(level, Sharpen { rows, channels, factor, sums, out: row });
        swap(above, current);
        left = below;
    }
}

struct Sharpen<'a> {
    rows: [&'a [u8]; 3],
    channels: usize,
    factor: f32,
    sums: &'a mut [u16],
    out: &'a mut [u8],
}

impl Work for Sharpen<'_> {
    #[inline(always)]
    fn run(self) {
        let Sharpen { rows: [above, current, below], channels, factor, sums, out } = self;
        for (((sum, &a), &b), &c) in sums.iter_mut().zip(above).zip(current).zip(below) {
            *sum = u16::from(a) + u16::from(b) + u16::from(c);
        }
        let inner = channels..out.len() - channels;
        let lefts = &sums[..inner.len()];
        let rights = &sums[2 * channels..];
        let sums = &sums[inner.clone()];
        let values = &current[inner.clone()];
        for (i, out) in out[inner].iter_mut().enumerate() {
            let sum = lefts[i] + sums[i] + rights[i] + 4 * u16::from(values[i]);
            // Never half way between two bytes, so Pillow's fractions round as this does.
            let smooth = (sum + 6) / 13;
            *out = blend(smooth as u8, values[i], factor);
        }
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::recipe::Size;

    use super::*;

    fn sharpened(size: [u32; 2], channels: u32, values: &[u8], factor: f64) -> Vec<u8> {
        let mut image = Image::default();
        let size = Size { height: size[0], width: size[1] };
        image.reshape(size, channels).copy_from_slice(values);
        sharpness(Level::best(), &mut image, factor, &mut Rows::default());
        image.pixels().to_vec()
    }

    #[test]
    fn the_middle_weighs_five_thirteenths() {
        let values = [0, 0, 0, 0, 130, 0, 0, 0, 0];
        assert_eq!(sharpened([3, 3], 1, &values, 0.0), [0, 0, 0, 0, 50, 0, 0, 0, 0]);
        assert_eq!(sharpened([3, 3], 1, &values, 2.0), [0, 0, 0, 0, 210, 0, 0, 0, 0]);
    }

    #[test]
    fn a_neighbour_weighs_a_thirteenth_and_is_still_what_it_was() {
        let mut values = [0; 5 * 4];
        // The first of the inner pixels; it is replaced before the others look at it.
        values[5] = 130;
        let mut expected = [0; 5 * 4];
        [expected[5], expected[6], expected[9], expected[10]] = [50, 10, 10, 10];
        assert_eq!(sharpened([5, 4], 1, &values, 0.0), expected);
    }

    #[test]
    fn an_image_without_inner_pixels_stays() {
        let values: Vec<u8> = (0..30).map(|i| i * 8).collect();
        assert_eq!(sharpened([2, 5], 3, &values, 0.0), values);
        assert_eq!(sharpened([5, 2], 3, &values, 0.0), values);
    }

    #[test]
    fn every_mean_is_rounded_as_pillow_rounds_it() {
        // Pillow: (sum of products with 1 ÷ 13 and 5 ÷ 13 in f32) + 0.5, truncated.
        for sum in 0..=13 * 255_u16 {
            let rounded = (f64::from(sum) / 13.0 + 0.5).floor();
            assert_eq!(f64::from((sum + 6) / 13), rounded, "{sum} thirteenths");
        }
    }
}
