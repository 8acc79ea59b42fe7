//! The grey of a pixel: grayscale, saturation, and the mean grey that contrast is relative to.
//!
//! Only red, green and blue have a grey; images without three channels stay unchanged. Read `hue.rs` next.
#![allow(
    clippy::cast_possible_truncation,
    reason = "weights sum to one: greys are bytes"
)]

use super::planes::{self, PIXELS, Planes};
use super::values::blend;
use crate::image::Image;
use crate::kernels::Level;
use crate::kernels::compiled::{Work, run};

/// 0.299, half of 0.587, and 0.114 with 16 fraction bits, as Convert.c rounds them. Processors
/// multiply numbers of 15 bits best, and 0.587 would have 16.
const PER_RED: u32 = 19_595;
const PER_GREEN_HALF: u32 = 38_470 / 2;
const PER_BLUE: u32 = 7_471;

/// Every channel becomes the pixel's grey: torchvision's `rgb_to_grayscale` on Pillow's
/// images, `convert("L")`, in every bit. Tensors truncate where this rounds: they are
/// darker by 1 for about half of all colours.
pub(super) fn grayscale(level: Level, image: &mut Image) {
    if image.channels() == 3 {
        planes::change(level, image.pixels_mut(), |planes| run(level, Grey(planes)));
    }
}

/// Away from the pixel's own grey: `ImageEnhance.Color` in every bit. Tensors have another grey
/// and round once more: measured, they differ by 1, seldom 2, in a quarter of all values.
pub(super) fn saturation(level: Level, image: &mut Image, factor: f64) {
    if image.channels() == 3 {
        let factor = factor as f32;
        planes::change(level, image.pixels_mut(), |planes| {
            run(level, Saturate { planes, factor });
        });
    }
}

/// The mean of all greys, rounded half up: what `ImageEnhance.Contrast` goes away from. One
/// channel is a grey already; of other numbers there is no mean. Tensors have another grey
/// and do not round the mean: after contrast they differ by 1 or 2 in one of six values.
pub(super) fn mean(level: Level, image: &Image) -> Option<u8> {
    let pixels = image.pixels();
    let mut sum = 0;
    match image.channels() {
        1 => sum = pixels.chunks(PIXELS).map(|part| run(level, Sum(part))).sum(),
        3 => planes::look_at(level, pixels, |planes| sum += run(level, GreySum(planes))),
        _ => return None,
    }
    let n = (pixels.len() / image.channels()) as u64;
    (n > 0).then(|| ((2 * sum + n) / (2 * n)) as u8)
}

/// The grey of a pixel: Convert.c's `L24`.
#[inline(always)]
fn grey(rgb: [u8; 3]) -> u8 {
    let [r, g, b] = rgb.map(u32::from);
    ((r * PER_RED + 2 * (g * PER_GREEN_HALF) + b * PER_BLUE + (1 << 15)) >> 16) as u8
}

/// The greys of so many pixels.
#[inline(always)]
fn greys([r, g, b]: &Planes) -> [u8; PIXELS] {
    let mut greys = [0; PIXELS];
    for i in 0..PIXELS {
        greys[i] = grey([r[i], g[i], b[i]]);
    }
    greys
}

struct Grey<'a>(&'a mut Planes);

impl Work for Grey<'_> {
    #[inline(always)]
    fn run(self) {
        *self.0 = [greys(self.0); 3];
    }
}

struct Saturate<'a> {
    planes: &'a mut Planes,
    factor: f32,
}

impl Work for Saturate<'_> {
    #[inline(always)]
    fn run(self) {
        let greys = greys(self.planes);
        for plane in self.planes {
            for (value, grey) in plane.iter_mut().zip(greys) {
                *value = blend(grey, *value, self.factor);
            }
        }
    }
}

struct GreySum<'a>(&'a Planes);

impl Work<u64> for GreySum<'_> {
    #[inline(always)]
    fn run(self) -> u64 {
        Sum(&greys(self.0)).run()
    }
}

/// Of at most [`PIXELS`] values, so that 32 bits hold it.
struct Sum<'a>(&'a [u8]);

impl Work<u64> for Sum<'_> {
    #[inline(always)]
    fn run(self) -> u64 {
        u64::from(self.0.iter().map(|&value| u32::from(value)).sum::<u32>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adjust::tests::image_of;

    #[test]
    fn greys_are_those_of_convert_c() {
        for (colour, expected) in [
            ([255, 0, 0], 76),
            ([0, 255, 0], 150),
            ([0, 0, 255], 29),
            ([255, 255, 255], 255),
            ([1, 2, 3], 2),
        ] {
            assert_eq!(grey(colour), expected, "{colour:?}");
        }
    }

    #[test]
    fn without_saturation_an_image_is_grey() {
        let colours = image_of(3, &[255, 0, 0, 0, 255, 0, 9, 9, 9]);
        for level in Level::available() {
            let (mut by_saturation, mut by_grayscale) =
                (colours.clone(), colours.clone());
            saturation(level, &mut by_saturation, 0.0);
            grayscale(level, &mut by_grayscale);
            assert_eq!(by_saturation.pixels(), [76, 76, 76, 150, 150, 150, 9, 9, 9]);
            assert_eq!(by_grayscale, by_saturation);
        }
    }

    #[test]
    fn saturation_goes_beyond_the_colour() {
        let mut image = image_of(3, &[100, 50, 0]);
        saturation(Level::Scalar, &mut image, 2.0);
        // The grey is 59.25, rounded.
        assert_eq!(image.pixels(), [141, 41, 0]);
    }

    #[test]
    fn the_mean_is_of_rounded_greys_and_is_rounded() {
        for level in Level::available() {
            assert_eq!(mean(level, &image_of(3, &[255, 0, 0, 0, 0, 255])), Some(53));
            assert_eq!(mean(level, &image_of(1, &[10, 20, 31])), Some(20));
            assert_eq!(mean(level, &image_of(1, &[10, 11])), Some(11));
            assert_eq!(mean(level, &image_of(1, &[255; 1000])), Some(255));
            assert_eq!(mean(level, &image_of(4, &[1, 2, 3, 4])), None);
        }
    }
}
