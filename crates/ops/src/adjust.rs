//! Changes of pixel values: brightness, colour, sharpness and so on, in place.
//!
//! Adjustments that Pillow has equal Pillow's in every bit, as torchvision's back-end for its images calls
//! them. Each function says what it matches and how far torchvision's tensors are from it. An adjustment is
//! a plain loop, compiled for every CPU family (`kernels/compiled.rs`); only tables and blurs have
//! hand-written kernels. `erase` and `mix` are separate steps. Nothing here draws a number or moves a
//! pixel. Reading order: as the modules are listed.

mod values;

mod table;

mod grey;
mod hue;
mod planes;

mod blur;
mod sharpness;
mod spread;

mod artefact;

pub(crate) mod erase;
pub(crate) mod mix;

use bothends_core::recipe::step::Adjust;

use self::artefact::Artefacts;
pub use self::table::Table;
use crate::image::Image;
use crate::kernels::Level;

/// Does adjustments, with the kernels of one level. Keeps its memory from image to image.
#[derive(Debug, Default)]
pub struct Adjuster {
    level: Level,
    rows: sharpness::Rows,
    spread: spread::Spread,
    blurrer: blur::Blurrer,
    artefacts: Artefacts,
}

impl Adjuster {
    /// With the kernels of `level`.
    #[must_use]
    pub fn new(level: Level) -> Self {
        Self { level, artefacts: Artefacts::new(level), ..Self::default() }
    }

    /// Changes the values of `image`. What only colours have is only done to three channels:
    /// saturation, hue, grayscale; contrast to one or three. Everything else is done to any
    /// number of channels, each by itself.
    pub fn adjust(&mut self, image: &mut Image, adjust: &Adjust) {
        if image.pixels().is_empty() {
            return;
        }
        let level = self.level;
        match *adjust {
            Adjust::Brightness(factor) => {
                Table::away_from(0, factor).apply(level, image.pixels_mut());
            }
            Adjust::Contrast(factor) => {
                if let Some(mean) = grey::mean(level, image) {
                    Table::away_from(mean, factor).apply(level, image.pixels_mut());
                }
            }
            Adjust::Saturation(factor) => grey::saturation(level, image, factor),
            Adjust::Hue(turns) => hue::hue(level, image, turns),
            Adjust::Grayscale => grey::grayscale(level, image),
            Adjust::Sharpness(factor) => {
                sharpness::sharpness(level, image, factor, &mut self.rows);
            }
            Adjust::Blur(blur) => self.blurrer.blur(level, image, &blur),
            Adjust::Autocontrast => self.spread.autocontrast(level, image),
            Adjust::Equalize => self.spread.equalize(level, image),
            Adjust::Invert => values::change(level, image.pixels_mut(), values::invert),
            Adjust::Posterize { bits } => {
                values::change(level, image.pixels_mut(), values::posterize(bits));
            }
            Adjust::Solarize { threshold } => {
                values::change(level, image.pixels_mut(), values::solarize(threshold));
            }
            Adjust::SolarizeAdd { addition } => {
                values::change(level, image.pixels_mut(), values::solarize_add(addition));
            }
            Adjust::Jpeg { quality } => self.artefacts.artefact(image, quality),
        }
    }

    /// Gives memory back if it is more than `keep_bytes`; the bytes that it keeps.
    pub(crate) fn release_above(&mut self, keep_bytes: usize) -> usize {
        self.blurrer.release_above(keep_bytes) + self.artefacts.release_above(keep_bytes)
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::recipe::Size;
    use bothends_core::recipe::step::Blur;
    use proptest::prelude::*;

    use super::*;

    /// One row of pixels.
    pub(super) fn image_of(channels: u32, values: &[u8]) -> Image {
        let mut image = Image::default();
        let width = u32::try_from(values.len()).unwrap() / channels;
        image.reshape(Size { height: 1, width }, channels).copy_from_slice(values);
        image
    }

    #[expect(clippy::cast_possible_truncation, reason = "noise")]
    fn noise(size: [u32; 2], channels: u32, seed: usize) -> Image {
        let mut image = Image::default();
        let pixels = image.reshape(Size { height: size[0], width: size[1] }, channels);
        for (i, pixel) in pixels.iter_mut().enumerate() {
            let mixed = (i + 1).wrapping_mul(seed | 1).wrapping_mul(0x9E37_79B9);
            *pixel = (mixed >> 15) as u8;
        }
        image
    }

    fn all(factor: f64, number: u8) -> [Adjust; 13] {
        let kernel = Size { height: u32::from(number % 9) | 1, width: 5 };
        [
            Adjust::Brightness(factor),
            Adjust::Contrast(factor),
            Adjust::Saturation(factor),
            Adjust::Hue((factor - 1.0) / 2.0),
            Adjust::Grayscale,
            Adjust::Sharpness(factor),
            Adjust::Blur(Blur { kernel, sigma: factor + 0.01 }),
            Adjust::Autocontrast,
            Adjust::Equalize,
            Adjust::Invert,
            Adjust::Posterize { bits: number % 9 },
            Adjust::Solarize { threshold: u16::from(number) },
            Adjust::SolarizeAdd { addition: number },
        ]
    }

    proptest! {
        #[test]
        fn every_level_gives_the_same_bytes(
            size in [0..40_u32, 0..90_u32],
            channels in 1..=5_u32,
            (factor, number) in (0.0..2.0_f64, any::<u8>()),
            seed in any::<usize>(),
        ) {
            let before = noise(size, channels, seed);
            for adjust in all(factor, number) {
                let mut expected = before.clone();
                Adjuster::new(Level::Scalar).adjust(&mut expected, &adjust);
                for level in Level::available() {
                    let mut image = before.clone();
                    Adjuster::new(level).adjust(&mut image, &adjust);
                    prop_assert!(image == expected, "{:?} by {}", adjust, level.name());
                }
            }
        }

        #[test]
        fn a_table_does_what_the_adjustment_does(
            (factor, number) in (0.0..3.0_f64, any::<u8>()),
        ) {
            let values: Vec<u8> = (0..=255).collect();
            let mut n_tables = 0;
            for adjust in all(factor, number) {
                let Some(table) = Table::of(&adjust) else { continue };
                n_tables += 1;
                let (mut by_table, mut image) = (values.clone(), image_of(1, &values));
                table.apply(Level::best(), &mut by_table);
                Adjuster::default().adjust(&mut image, &adjust);
                prop_assert_eq!(image.pixels(), by_table, "{:?}", adjust);
            }
            prop_assert_eq!(n_tables, 5);
        }

        #[test]
        fn memory_of_another_image_does_not_show(
            sizes in [[0..20_u32, 0..20_u32], [0..20_u32, 0..20_u32]],
            channels in [1..=5_u32, 1..=5_u32],
            (factor, number) in (0.0..2.0_f64, any::<u8>()),
        ) {
            let mut adjuster = Adjuster::default();
            for adjust in all(factor, number) {
                adjuster.adjust(&mut noise(sizes[0], channels[0], 3), &adjust);
                let (mut again, mut fresh) =
                    (noise(sizes[1], channels[1], 5), noise(sizes[1], channels[1], 5));
                adjuster.adjust(&mut again, &adjust);
                Adjuster::default().adjust(&mut fresh, &adjust);
                prop_assert!(again == fresh, "{:?}", adjust);
            }
        }
    }

    #[test]
    fn what_is_no_change_changes_nothing() {
        for channels in 1..=4 {
            let before = noise([30, 41], channels, 7);
            for adjust in [
                Adjust::Brightness(1.0),
                Adjust::Contrast(1.0),
                Adjust::Saturation(1.0),
                Adjust::Hue(0.0),
                Adjust::Sharpness(1.0),
                Adjust::Posterize { bits: 8 },
                Adjust::Solarize { threshold: 256 },
                Adjust::SolarizeAdd { addition: 0 },
            ] {
                let mut after = before.clone();
                Adjuster::default().adjust(&mut after, &adjust);
                assert!(after == before, "{adjust:?} of {channels} channels");
            }
        }
    }

    #[test]
    fn twice_inverted_is_not_at_all() {
        let before = noise([30, 41], 3, 11);
        let mut after = before.clone();
        let mut adjuster = Adjuster::default();
        adjuster.adjust(&mut after, &Adjust::Invert);
        assert!(after != before);
        adjuster.adjust(&mut after, &Adjust::Solarize { threshold: 0 });
        assert_eq!(after, before);
    }

    #[test]
    fn only_three_channels_are_a_colour() {
        for channels in [1, 2, 4, 5] {
            let before = noise([9, 9], channels, 13);
            for adjust in [Adjust::Saturation(0.3), Adjust::Hue(0.3), Adjust::Grayscale] {
                let mut after = before.clone();
                Adjuster::default().adjust(&mut after, &adjust);
                assert!(after == before, "{adjust:?} of {channels} channels");
            }
        }
    }

    #[test]
    fn contrast_goes_away_from_the_mean() {
        for (channels, before, after) in [
            (1, &[10, 20, 31][..], &[0, 20, 42][..]),
            (3, &[255, 0, 0, 0, 0, 255], &[255, 0, 0, 0, 0, 255]),
            (3, &[90, 100, 110, 90, 100, 110], &[82, 102, 122, 82, 102, 122]),
            (2, &[10, 20, 30, 40], &[10, 20, 30, 40]),
        ] {
            let mut image = image_of(channels, before);
            Adjuster::default().adjust(&mut image, &Adjust::Contrast(2.0));
            assert_eq!(image.pixels(), after);
        }
    }
}
