//! Affine and perspective maps: each pixel of the result is looked up elsewhere in the image.
//!
//! Where a pixel is looked up is computed in `f64`, in the order of `core::recipe::step`'s
//! formulas from left to right, without fused operations: Pillow's numbers. A point outside
//! of the image, or one that is no number, is the fill. `Nearest` is Pillow's
//! `Image.transform` bit for bit (`nearest.rs` has its shortcuts). `Bilinear` and `Bicubic` round
//! the point to 1/16384 pixel and blend in integers, rounding to nearest (`curve.rs` is the
//! meaning): within 1 of Pillow, which drops the fraction. Beyond the edge there is the edge's
//! pixel. Nothing here shrinks without aliasing (`resize.rs` does) or chooses a map (the recipe
//! does). Images of three channels are worked on in blocks of a row, with the instructions of
//! the level. Read `warp/points.rs` next.

mod points;

mod curve;

mod blend;

mod nearest;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use bothends_core::recipe::Interpolation;
use bothends_core::recipe::step::{Fill, Warp};

use crate::geometry::gather::Gather;
use crate::image::fill;
use crate::image::{Image, View};
use crate::kernels::Level;
use curve::{Cubic, Curve, Linear};

/// Warps images. Keeps its memory from one image to the next.
#[derive(Debug, Default)]
pub struct Warper {
    level: Level,
    /// What an affine map that only scales and moves takes of every row.
    gather: Gather,
}

impl Warper {
    /// A warper that uses the kernels of `level`.
    #[must_use]
    pub fn new(level: Level) -> Self {
        Self { level, gather: Gather::new(level) }
    }

    /// Makes `out` what is seen of `src` through the map. Filters that only resizing has, which
    /// recipes refuse here, count as the one of as many pixels. Allocates only when `out` or a row
    /// of it grows beyond what it has ever been.
    pub fn warp(&mut self, src: View<'_>, warp: &Warp, out: &mut Image) {
        out.reshape(warp.size, src.shape().channels);
        if out.pixels().is_empty() {
            return;
        }
        if src.height() == 0 || src.width() == 0 {
            return fill(out.pixels_mut(), src.channels(), warp.fill);
        }
        match warp.interpolation {
            Interpolation::Nearest => {
                nearest::warp(self.level, &mut self.gather, src, warp, out);
            }
            Interpolation::Bilinear | Interpolation::Box | Interpolation::Hamming => {
                blended::<2, Linear>(self.level, src, warp, out);
            }
            Interpolation::Bicubic | Interpolation::Lanczos => {
                blended::<4, Cubic>(self.level, src, warp, out);
            }
        }
    }

    /// Gives memory back if it is more than `keep_bytes`; the bytes that it keeps.
    pub(crate) fn release_above(&mut self, keep_bytes: usize) -> usize {
        self.gather.release_above(keep_bytes)
    }
}

/// Interpolates between pixels. The image has pixels, and so has the result.
fn blended<const TAPS: usize, C: Curve<TAPS>>(
    level: Level,
    src: View<'_>,
    warp: &Warp,
    out: &mut Image,
) {
    // Windows are as large as there are taps, and lie at places counted in 32 bits.
    let has_windows = src.width().min(src.height()) >= TAPS
        && u32::try_from(src.bytes().0.len()).is_ok();
    if src.channels() != blend::RGB || !has_windows {
        return curve::blend::<TAPS, C>(src, warp, out);
    }
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(cpu) => x86::avx2::blended::<TAPS, C>(cpu, src, warp, out),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(cpu) => x86::avx512::blended::<TAPS, C>(cpu, src, warp, out),
        #[cfg(target_arch = "aarch64")]
        Level::Neon(cpu) => neon::blended::<TAPS, C>(cpu, src, warp, out),
        Level::Scalar => blend::blend::<TAPS, C>(src, warp, out),
    }
}

/// One pixel of the fill.
#[inline(always)]
fn fill_pixel(pixel: &mut [u8], Fill(values): Fill) {
    match pixel.try_into() {
        Ok(pixel) => {
            let pixel: &mut [u8; 3] = pixel;
            *pixel = values;
        }
        Err(_) => pixel.fill(values[0]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bothends_core::recipe::Size;
    use bothends_core::recipe::draw::CropBox;
    use bothends_core::recipe::step::{Around, Map, Window};
    use proptest::prelude::*;

    use crate::geometry::crop::window;

    const ALL: [Interpolation; 3] =
        [Interpolation::Nearest, Interpolation::Bilinear, Interpolation::Bicubic];
    const FILL: Fill = Fill([7, 8, 9]);

    fn noise(height: u32, width: u32, channels: u32) -> Image {
        let mut image = Image::default();
        let mut state = height * 31 + width * 7 + channels;
        for byte in image.reshape(Size { height, width }, channels) {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = u8::try_from(state >> 24).unwrap();
        }
        image
    }

    fn warped(src: &Image, map: Map, size: Size, interpolation: Interpolation) -> Image {
        let warp = Warp { map, size, interpolation, fill: FILL };
        let mut out = Image::default();
        Warper::default().warp(src.view(), &warp, &mut out);
        out
    }

    /// What is written at the top of this file and in `curve.rs`, with nothing made fast.
    fn meaning(src: &Image, warp: &Warp) -> Image {
        let mut out = Image::default();
        out.reshape(warp.size, src.shape().channels);
        match warp.interpolation {
            _ if src.pixels().is_empty() || out.pixels().is_empty() => {
                fill(out.pixels_mut(), src.channels(), warp.fill);
            }
            Interpolation::Nearest => {
                nearest::warp(
                    Level::Scalar,
                    &mut Gather::new(Level::Scalar),
                    src.view(),
                    warp,
                    &mut out,
                );
            }
            Interpolation::Bilinear | Interpolation::Box | Interpolation::Hamming => {
                curve::blend::<2, Linear>(src.view(), warp, &mut out);
            }
            Interpolation::Bicubic | Interpolation::Lanczos => {
                curve::blend::<4, Cubic>(src.view(), warp, &mut out);
            }
        }
        out
    }

    /// A turn by `degrees` and a scale round the middle, as the recipe makes it.
    fn turn(degrees: f64, scale: f64, size: Size) -> Map {
        let (sin, cos) = degrees.to_radians().sin_cos();
        let (a, b) = (cos * scale, sin * scale);
        let (x, y) = (f64::from(size.width) / 2.0, f64::from(size.height) / 2.0);
        Map::Affine([a, b, x - a * x - b * y, -b, a, y + b * x - a * y])
    }

    #[test]
    fn the_identity_is_a_copy() {
        for map in [
            Map::Affine([1.0, 0.0, 0.0, 0.0, 1.0, 0.0]),
            Map::Perspective([1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]),
        ] {
            for (height, width) in [(1, 1), (3, 2), (5, 70), (33, 64), (2, 200)] {
                for (channels, interpolation) in
                    (1..=4).flat_map(|n| ALL.map(|interpolation| (n, interpolation)))
                {
                    let image = noise(height, width, channels);
                    let same = warped(&image, map, image.size(), interpolation);
                    assert!(
                        same == image,
                        "{height} {width} {channels} {interpolation:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_quarter_turn_is_a_permutation() {
        for interpolation in ALL {
            let image = noise(9, 70, 3);
            let map = Map::Affine([0.0, 1.0, 0.0, -1.0, 0.0, 9.0]);
            let turned =
                warped(&image, map, Size { height: 70, width: 9 }, interpolation);
            for (y, x) in (0..70).flat_map(|y| (0..9).map(move |x| (y, x))) {
                let from = &image.pixels()[((8 - x) * 70 + y) * 3..][..3];
                assert_eq!(&turned.pixels()[(y * 9 + x) * 3..][..3], from, "{y} {x}");
            }
        }
    }

    #[test]
    fn whole_pixels_aside_is_a_window() {
        let image = noise(20, 90, 3);
        for (top, left) in [(0, 3), (-4, 0), (7, -9), (19, 89), (-30, 2), (2, 100)] {
            let size = Size { height: 15, width: 80 };
            let mut expected = Image::default();
            let around = Around::Fill(FILL);
            window(image.view(), &Window { top, left, size, around }, &mut expected);
            let (x, y) = (left as f64, top as f64);
            let map = Map::Affine([1.0, 0.0, x, 0.0, 1.0, y]);
            for interpolation in ALL {
                let moved = warped(&image, map, size, interpolation);
                assert!(moved == expected, "{top} {left} {interpolation:?}");
            }
        }
    }

    /// By hand: pixels 0 and 200, looked up at a quarter, a half and three quarters between
    /// their centres; beyond the outer centres they go on, beyond the edges there is the fill.
    #[test]
    fn between_pixels_are_their_means() {
        let mut image = Image::default();
        image.reshape(Size { height: 1, width: 2 }, 1).copy_from_slice(&[0, 200]);
        let map = Map::Affine([0.25, 0.0, -0.375, 0.0, 1.0, 0.0]);
        let size = Size { height: 1, width: 11 };
        let linear = warped(&image, map, size, Interpolation::Bilinear);
        assert_eq!(linear.pixels(), [7, 0, 0, 0, 50, 100, 150, 200, 200, 7, 7]);
        // The cubic at a quarter: −9/64, 57/64, 19/64, −3/64 of 0, 0, 200, 200; behind the
        // last centre of 0, 200, 200, 200.
        let cubic = warped(&image, map, size, Interpolation::Bicubic);
        assert_eq!(cubic.pixels(), [7, 0, 0, 0, 50, 100, 150, 200, 228, 7, 7]);
    }

    #[test]
    fn a_cubic_overshoots_and_is_limited() {
        let mut image = Image::default();
        image
            .reshape(Size { height: 1, width: 8 }, 1)
            .copy_from_slice(&[0, 0, 0, 0, 240, 240, 240, 240]);
        let map = Map::Affine([1.0, 0.0, 0.5, 0.0, 1.0, 0.0]);
        let cubic = warped(&image, map, image.size(), Interpolation::Bicubic);
        // Half way: −1/8, 5/8, 5/8, −1/8.
        assert_eq!(cubic.pixels(), [0, 0, 0, 120, 255, 240, 240, 7]);
    }

    #[test]
    fn a_point_without_a_place_is_filled() {
        let image = noise(8, 8, 3);
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        let huge = [nan, inf, -inf, 1e300, -1e300, 1e18];
        let size = Size { height: 3, width: 70 };
        for (interpolation, number) in ALL.into_iter().flat_map(|i| huge.map(|n| (i, n)))
        {
            for map in [
                Map::Affine([1.0, 0.0, number, 0.0, 1.0, 0.0]),
                Map::Affine([1.0, 0.1, 0.0, 0.0, 1.0, number]),
                Map::Perspective([1.0, 0.0, number, 0.0, 1.0, 0.0, 0.0, 0.0]),
            ] {
                let out = warped(&image, map, size, interpolation);
                let filled = out.pixels().chunks_exact(3).all(|pixel| pixel == FILL.0);
                assert!(filled, "{interpolation:?} {map:?}");
            }
        }
    }

    /// The plane's horizon runs through the image: w is 0 along a column.
    #[test]
    fn the_horizon_is_filled() {
        let map = Map::Perspective([1.0, 0.0, 0.0, 0.0, 1.0, 0.0, -2.0 / 7.0, 0.0]);
        let image = noise(8, 8, 3);
        for interpolation in ALL {
            let out = warped(&image, map, image.size(), interpolation);
            for row in out.pixels().chunks_exact(8 * 3) {
                assert_eq!(row[3 * 3..][..3], FILL.0, "{interpolation:?}");
            }
        }
    }

    /// A pixel holds its upper and left edge, not the lower and the right one.
    #[test]
    fn an_edge_belongs_to_one_pixel() {
        let image = noise(4, 6, 3);
        for (interpolation, half) in ALL.into_iter().flat_map(|i| [(i, 0.5), (i, -0.5)]) {
            for map in [
                Map::Affine([1.0, 0.0, half, 0.0, 1.0, half]),
                Map::Affine([1.0, 1e-300, half, 0.0, 1.0, half]),
                Map::Perspective([1.0, 0.0, half, 0.0, 1.0, half, 0.0, 0.0]),
            ] {
                let out = warped(&image, map, image.size(), interpolation);
                for (nth, pixel) in out.pixels().chunks_exact(3).enumerate() {
                    let is_last = nth / 6 == 3 || nth % 6 == 5;
                    assert_eq!(pixel == FILL.0, is_last && half > 0.0, "{map:?} {nth}");
                }
            }
        }
    }

    /// A step that is just above 2 is 2 in 16 fraction bits, however many there are; in a
    /// map that is stepped in `f64` it adds up.
    #[test]
    fn steps_to_the_nearest_pixel_are_rounded_as_pillows() {
        let mut image = Image::default();
        let row: Vec<u8> = (0..200).collect();
        image.reshape(Size { height: 1, width: 200 }, 1).copy_from_slice(&row);
        let seen = |shear| {
            let step = 2.0 + 0.4 / 65_536.0;
            let map = Map::Affine([step, shear, -0.0001, 0.0, 1.0, 0.0]);
            let size = Size { height: 1, width: 90 };
            warped(&image, map, size, Interpolation::Nearest).pixels()[89]
        };
        assert_eq!([seen(1e-9), seen(0.0)], [178, 179]);
        // A place is rounded to nearest, too: 1 less 0.4 of a 65536th is 1.
        let start = 0.5 - 0.4 / 65_536.0;
        for (shear, pixel) in [(1e-9, 1), (0.0, 0)] {
            let map = Map::Affine([1.0, shear, start, 0.0, 1.0, 0.0]);
            let out = warped(&image, map, image.size(), Interpolation::Nearest);
            assert_eq!(out.pixels()[0], pixel);
        }
    }

    #[test]
    fn memory_is_kept_and_given_back() {
        let mut warper = Warper::default();
        let image = noise(9, 50, 3);
        let map = Map::Affine([0.5, 0.0, 0.0, 0.0, 0.5, 0.0]);
        let warp = Warp { map, size: image.size(), interpolation: ALL[0], fill: FILL };
        let mut out = Image::default();
        warper.warp(image.view(), &warp, &mut out);
        assert!(warper.gather.capacity_bytes() > 0);
        warper.release_above(1 << 20);
        assert!(warper.gather.capacity_bytes() > 0);
        warper.release_above(0);
        assert_eq!(warper.gather.capacity_bytes(), 0);
    }

    fn any_map() -> impl Strategy<Value = Map> {
        let number =
            prop_oneof![-3.0..3.0, -0.01..0.01, any::<f64>(), -1e5..1e5, Just(0.0)];
        let affine = prop::array::uniform6(number.clone()).prop_map(Map::Affine);
        let perspective = prop::array::uniform8(number).prop_map(Map::Perspective);
        let turned = (-180.0..180.0, 0.3..3.0)
            .prop_map(|(by, scale)| turn(by, scale, Size { height: 30, width: 60 }));
        let tilted = (prop::array::uniform6(-2.0..2.0), -0.02..0.02, -0.02..0.02)
            .prop_map(|([a, b, c, d, e, f], g, h)| {
                Map::Perspective([a, b, c * 30.0, d, e, f * 30.0, g, h])
            });
        prop_oneof![affine, perspective, turned.clone(), turned, tilted.clone(), tilted]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1500))]

        /// Of any map, for images down to none.
        #[test]
        fn every_level_is_the_meaning(
            map in any_map(),
            from in (0..40_u32, 0..80_u32, 1..=4_u32),
            to in (0..20_u32, 0..150_u32),
            which in 0..3_usize,
            cut in (0..3_u32, 0..3_u32),
        ) {
            let image = noise(from.0, from.1, from.2);
            let size = Size { height: to.0, width: to.1 };
            let warp = Warp { map, size, interpolation: ALL[which], fill: FILL };
            // A part of an image has other pixels around it, which must not be seen.
            let (top, left) = (cut.0.min(from.0), cut.1.min(from.1));
            let part = CropBox { top, left, height: from.0 - top, width: from.1 - left };
            let view = image.view().crop(part).unwrap();
            let mut alone = Image::default();
            view.copy_to(&mut alone);
            let expected = meaning(&alone, &warp);
            for level in Level::available() {
                let mut out = noise(3, 3, 3);
                Warper::new(level).warp(view, &warp, &mut out);
                prop_assert!(out == expected, "{}", level.name());
            }
        }
    }
}
