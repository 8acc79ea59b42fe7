//! How a picture is stored: size, kind of JPEG and bits per pixel, as in ImageNet.
//!
//! Modelled on 500 ImageNet training images: mean file 110 kB, mean 4.7 bits per pixel, most
//! of them 500 pixels wide. Painting happens elsewhere.

use crate::dice::Dice;
use crate::encode::{Sampling, Scans, Spectrum};
use crate::field::{index, pixels};
use crate::scene::Frame;

/// The kind of JPEG of one image. It depends only on the image's number, so every set of more
/// than a few images has all kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) sampling: Sampling,
    pub(crate) scans: Scans,
    /// The EXIF orientation, 2..=8, if it has one.
    pub(crate) orientation: Option<u8>,
}

impl Kind {
    pub(crate) fn of(image: u32) -> Self {
        let sampling = match image % 24 {
            11 => Sampling::Grayscale,
            3 | 17 => Sampling::Full,
            _ => Sampling::Half,
        };
        let scans = if image % 16 == 5 { Scans::Progressive } else { Scans::Baseline };
        let turned = u8::try_from(2 + image / 20 % 7).ok();
        Self { sampling, scans, orientation: turned.filter(|_| image % 20 == 9) }
    }
}

/// The target bits per pixel of a file: (share of the files below, bits per pixel). ImageNet's
/// quartiles are 2.6, 4.7 and 6.4, mostly with chroma at full resolution. At half resolution the
/// upper quarter is out of reach, so the middle is raised to keep the mean.
const BITS_PER_PIXEL: [(f32, f32); 7] = [
    (0.0, 0.7),
    (0.05, 1.4),
    (0.25, 3.2),
    (0.5, 5.2),
    (0.75, 6.8),
    (0.95, 9.0),
    (1.0, 11.0),
];

/// The size and richness of a picture, and the target size of its file.
pub(crate) fn frame(dice: &mut Dice) -> (Frame, usize) {
    let (width, height) = match dice.below(100) {
        0..34 => (500, 375),
        34..46 => (500, 333),
        46..58 => (375, 500),
        58..64 => (333, 500),
        64..70 => (500, 325 + dice.below(90)),
        70..78 => (640, 480),
        78..82 => (700 + dice.below(300), 500 + dice.below(250)),
        82..86 => (110 + dice.below(160), 110 + dice.below(130)),
        _ => (250 + dice.below(280), 220 + dice.below(300)),
    };
    let detail = dice.unit();
    let (width, height) = (width as usize, height as usize);
    let bits = bits_per_pixel(detail) * pixels(width * height);
    (Frame { width, height, detail }, index(bits / 8.0))
}

fn bits_per_pixel(share: f32) -> f32 {
    let above =
        BITS_PER_PIXEL.iter().position(|&(below, _)| share < below).unwrap_or(6).max(1);
    let ((s0, b0), (s1, b1)) = (BITS_PER_PIXEL[above - 1], BITS_PER_PIXEL[above]);
    b0 + (b1 - b0) * (share - s0) / (s1 - s0)
}

/// Encodes RGB bytes as a JPEG of about `target_bytes` by choosing the quality.
pub(crate) fn encode(
    rgb: &[u8],
    width: usize,
    kind: Kind,
    target_bytes: usize,
) -> Vec<u8> {
    let spectrum = Spectrum::new(rgb, width, kind.sampling);
    // The highest quality at which a baseline file is no larger than the target.
    let (mut fits, mut too_large) = (LOWEST_QUALITY, HIGHEST_QUALITY + 1);
    while too_large - fits > 1 {
        let quality = u16::midpoint(fits, too_large);
        let n_bytes = spectrum.encode(quality, Scans::Baseline).len();
        if n_bytes <= target_bytes { fits = quality } else { too_large = quality }
    }
    let mut jpeg = spectrum.encode(fits, kind.scans);
    if let Some(orientation) = kind.orientation {
        insert_orientation(&mut jpeg, orientation);
    }
    jpeg
}

const LOWEST_QUALITY: u16 = 45;
const HIGHEST_QUALITY: u16 = 98;

/// Inserts an EXIF segment after the start-of-image marker, where cameras write it
/// (EXIF 2.32 §4.5.4: APP1 follows SOI): big-endian TIFF with the one tag 0x0112.
fn insert_orientation(jpeg: &mut Vec<u8>, orientation: u8) {
    let mut segment = *b"\xFF\xE1\x00\x22Exif\0\0MM\x00\x2A\0\0\0\x08\0\x01\
                         \x01\x12\0\x03\0\0\0\x01\0\0\0\0\0\0\0\0";
    segment[29] = orientation;
    jpeg.splice(2..2, segment);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_follow_the_table() {
        for (share, bits) in [(0.0, 0.7), (0.25, 3.2), (0.375, 4.2), (0.999_99, 11.0)] {
            assert!((bits_per_pixel(share) - bits).abs() < 0.01, "{share}");
        }
    }

    #[test]
    fn every_kind_is_found_among_forty_eight_images() {
        let kinds: Vec<Kind> = (0..48).map(Kind::of).collect();
        assert!(kinds.iter().any(|k| k.sampling == Sampling::Grayscale));
        assert!(kinds.iter().any(|k| k.sampling == Sampling::Full));
        assert!(kinds.iter().any(|k| k.scans == Scans::Progressive));
        assert!(kinds.iter().any(|k| k.orientation.is_some()));
        let n_half = kinds.iter().filter(|k| k.sampling == Sampling::Half).count();
        assert_eq!(n_half, 42);
    }

    #[test]
    fn the_orientation_segment_is_as_long_as_it_says() {
        let mut jpeg = vec![0xFF, 0xD8, 0xFF, 0xDB];
        insert_orientation(&mut jpeg, 6);
        assert_eq!(jpeg.len(), 4 + 2 + 0x22);
        // Entry: tag 0x0112, type 3 (SHORT), count 1, value left-justified in 4 bytes.
        assert_eq!(jpeg[22..34], [0x01, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0]);
        assert_eq!(jpeg[jpeg.len() - 2..], [0xFF, 0xDB]);
    }
}
