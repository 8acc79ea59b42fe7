//! PNG through the `png` crate, brought to 8-bit RGB as Pillow's `convert("RGB")` does.
//!
//! All colour types and depths, interlaced or not; the first image of an animated file.
//! Alpha and `tRNS` are dropped, gamma and profiles ignored.

use std::io::Cursor;

use bothends_core::recipe::{MAX_IMAGE_PIXELS, Size};
use png::{BitDepth, ColorType, Decoder, DecodingError, Limits, Transformations};

use crate::decode::room::check_room;
use crate::error::{OpsError, SampleFault};
use crate::image::{Image, check_size};

/// PNG, third edition, §5.2.
pub(super) fn recognises(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x89PNG\r\n\x1a\n")
}

/// The size of an image, and the bytes that its pixels may take at most: with alpha, which a file
/// can add to any colour type (`tRNS`), at its depth. 0 where there is no header (§11.2.1).
pub(super) fn need_bytes(bytes: &[u8]) -> (Size, u64) {
    let header = bytes.get(16..25).and_then(|ihdr| ihdr.split_first_chunk::<8>());
    let Some((&[w0, w1, w2, w3, h0, h1, h2, h3], depth)) = header else {
        return (Size { height: 0, width: 0 }, 0);
    };
    let width = u32::from_be_bytes([w0, w1, w2, w3]);
    let height = u32::from_be_bytes([h0, h1, h2, h3]);
    let pixel_bytes = if depth[0] == 16 { 8 } else { 4 };
    let n_pixels = u64::from(height).saturating_mul(u64::from(width));
    (Size { height, width }, n_pixels.saturating_mul(pixel_bytes))
}

/// Decodes all of `bytes` into `out`; the crate allocates its window for each image.
pub(super) fn decode(bytes: &[u8], out: &mut Image) -> Result<(), OpsError> {
    let mut decoder = Decoder::new(Cursor::new(bytes));
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_limits(Limits { bytes: MAX_IMAGE_PIXELS as usize });
    // Palettes become colours and 1, 2, 4 bits become 8; 16 bits stay for `Depth`.
    decoder.set_transformations(Transformations::EXPAND);
    let header = decoder.read_header_info().map_err(damaged)?;
    let size = check_size(header.height as usize, header.width as usize)?;
    check_room(size, need_bytes(bytes).1)?;
    let is_grey = header.color_type == ColorType::Grayscale;

    let mut reader = decoder.read_info().map_err(damaged)?;
    let (color, depth) = reader.output_color_type();
    let pixels = out.reshape(size, pixel_bytes(color, depth));
    reader.next_frame(pixels).map_err(damaged)?;

    match (color, depth) {
        // A grey file with `tRNS` comes with alpha: four bytes instead of two.
        (ColorType::Grayscale, BitDepth::Sixteen) => {
            out.narrow(|[high, low]: [u8; 2]| [clip_grey(high, low)]);
            out.widen_grey();
        }
        (ColorType::GrayscaleAlpha, BitDepth::Sixteen) if is_grey => {
            out.narrow(|[high, low, _, _]: [u8; 4]| [clip_grey(high, low)]);
            out.widen_grey();
        }
        (ColorType::Grayscale | ColorType::GrayscaleAlpha, _) => out.widen_grey(),
        (ColorType::Rgba, BitDepth::Sixteen) => {
            out.narrow(|[r, _, g, _, b, _, _, _]: [u8; 8]| [r, g, b]);
        }
        (ColorType::Rgba, _) => out.narrow(|[r, g, b, _]: [u8; 4]| [r, g, b]),
        (ColorType::Rgb, BitDepth::Sixteen) => {
            out.narrow(|[r, _, g, _, b, _]: [u8; 6]| [r, g, b]);
        }
        (ColorType::Rgb | ColorType::Indexed, _) => {}
    }
    Ok(())
}

/// Pillow reads 16-bit grey as integers and clips them at 255 on the way to RGB, where it
/// takes the high byte of every other 16-bit kind. Same pixels, so same oddity.
fn clip_grey(high: u8, low: u8) -> u8 {
    if high == 0 { low } else { 255 }
}

fn pixel_bytes(color: ColorType, depth: BitDepth) -> u32 {
    let samples = match color {
        ColorType::Grayscale | ColorType::Indexed => 1,
        ColorType::GrayscaleAlpha => 2,
        ColorType::Rgb => 3,
        ColorType::Rgba => 4,
    };
    if depth == BitDepth::Sixteen { samples << 1 } else { samples }
}

fn damaged(error: DecodingError) -> SampleFault {
    SampleFault::Damaged { format: "PNG", why: error.to_string() }
}
