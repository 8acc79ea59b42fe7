//! JPEG through libjpeg-turbo: accurate integer IDCT ("islow") and "fancy" upsampling,
//! libjpeg's defaults and therefore Pillow's and torchvision's pixels.
//!
//! Baseline, extended, progressive and arithmetic-coded; grey, YCbCr, RGB, CMYK and YCCK.
//! It does not read EXIF, apply ICC profiles, or decode lossless and 12-bit files (refused
//! by name). Every libjpeg *warning* (premature end, damaged entropy data, stray bytes
//! between segments) is a fault: Pillow lets some of these pass with guessed pixels, and
//! guessed pixels must not enter a training run in silence.

use turbojpeg::{Colorspace, Decompressor, PixelFormat};

use super::{Codec, check_size};
use crate::error::{OpsError, SampleFault};
use crate::image::Image;

/// Most scans of a progressive file. Real files have about ten; a hostile one may hold
/// thousands of empty scans, each of which costs a pass over all coefficients.
const MAX_SCANS: u32 = 500;

/// JPEG keeps nothing between samples. The library would: a handle remembers the tables of
/// the file before, so that a file without tables would be decoded by its predecessor's, and
/// after an error in a header it refuses every later file. A new handle for each image
/// costs less than a microsecond.
#[derive(Debug)]
pub(super) struct Jpeg;

impl Codec for Jpeg {
    /// Start of image (T.81 §B.1.1.3) and the first byte of whatever marker follows.
    fn recognises(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(&[0xff, 0xd8, 0xff])
    }

    fn decode(&self, bytes: &[u8], out: &mut Image) -> Result<(), OpsError> {
        let mut decompressor = start().map_err(OpsError::DecoderStart)?;
        decode(&mut decompressor, bytes, out)?;
        Ok(())
    }
}

fn decode(
    decompressor: &mut Decompressor,
    bytes: &[u8],
    out: &mut Image,
) -> Result<(), SampleFault> {
    let header = decompressor.read_header(bytes).map_err(damaged)?;
    if header.is_lossless {
        return Err(SampleFault::Unsupported { format: "JPEG", feature: "lossless" });
    }
    let size = check_size(header.height, header.width)?;
    let (format, channels) = match header.colorspace {
        // The library turns grey and YCbCr into RGB by itself; four inks stay four.
        Colorspace::RGB | Colorspace::YCbCr | Colorspace::Gray => (PixelFormat::RGB, 3),
        Colorspace::CMYK | Colorspace::YCCK => (PixelFormat::CMYK, 4),
    };
    let target = turbojpeg::Image {
        pixels: out.reshape(size, channels),
        width: header.width,
        pitch: header.width * format.size(),
        height: header.height,
        format,
    };
    // A warning comes back as an error here, whatever pixels were written.
    decompressor.decompress(bytes, target).map_err(damaged)?;
    if format == PixelFormat::CMYK {
        out.narrow(rgb_of_inverted_cmyk);
    }
    Ok(())
}

fn start() -> Result<Decompressor, turbojpeg::Error> {
    let mut decompressor = Decompressor::new()?;
    decompressor.set_scan_limit(MAX_SCANS)?;
    Ok(decompressor)
}

/// Pillow reads every four-ink JPEG as Adobe writes it, inverted: 255 is no ink. Its
/// `convert("RGB")` then takes the share of light that each ink lets through.
fn rgb_of_inverted_cmyk([cyan, magenta, yellow, light]: [u8; 4]) -> [u8; 3] {
    [cyan, magenta, yellow]
        .map(|no_ink| light.saturating_sub(times_over_255(255 - no_ink, light)))
}

/// a·b / 255, rounded to nearest, in integers (exact for all a, b).
fn times_over_255(a: u8, b: u8) -> u8 {
    let product = u32::from(a) * u32::from(b) + 128;
    let rounded = (product + (product >> 8)) >> 8;
    u8::try_from(rounded).expect("255 * 255 / 255 is 255")
}

/// Puts the library's words into ours. 12-bit files are only found out by its message.
fn damaged(error: turbojpeg::Error) -> SampleFault {
    let why = error.to_string();
    let why = why.trim_start_matches("TurboJPEG error: ").to_owned();
    if why.contains("precision") {
        return SampleFault::Unsupported { format: "JPEG", feature: "12-bit" };
    }
    SampleFault::Damaged { format: "JPEG", why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_over_255_is_rounded_to_nearest() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let exact = f64::from(a) * f64::from(b) / 255.0;
                assert_eq!(f64::from(times_over_255(a, b)), exact.round(), "{a} {b}");
            }
        }
    }

    #[test]
    fn inks_take_light_away() {
        assert_eq!(rgb_of_inverted_cmyk([255, 255, 255, 255]), [255, 255, 255]);
        assert_eq!(rgb_of_inverted_cmyk([0, 255, 255, 255]), [0, 255, 255]);
        assert_eq!(rgb_of_inverted_cmyk([255, 255, 255, 0]), [0, 0, 0]);
        assert_eq!(rgb_of_inverted_cmyk([255, 128, 0, 128]), [128, 64, 0]);
    }
}
