//! Rows of red, green and blue from a decoder's planes: upsampling and colour, a row at a time,
//! so that no whole image in colour ever stands in memory.
//!
//! Four inks become RGB as in Pillow, which reads every such file as Adobe writes it,
//! inverted: 255 is no ink. Its `convert("RGB")` then takes the share of light that each ink
//! lets through.

use std::ops::Range;

use super::decoder::Decoder;
use super::file::frame::ColourModel;
use super::upsample::Upsampler;
use crate::colour;

/// Makes rows of pixels; keeps its memory.
#[derive(Debug, Default)]
pub(crate) struct PixelRows {
    upsamplers: [Upsampler; 4],
    rgb: [Vec<u8>; 3],
}

impl PixelRows {
    /// Row `y` of the image that `decoder` has decoded, in `columns`: red, green and blue.
    /// Of a grey image three times the same.
    pub(crate) fn row<'a>(
        &'a mut self,
        decoder: &'a Decoder,
        y: usize,
        columns: &Range<usize>,
    ) -> [&'a [u8]; 3] {
        let Self { upsamplers, rgb } = self;
        let level = decoder.level();
        let planes = decoder.planes();
        let mut rows = [&[][..]; 4];
        for ((row, plane), upsampler) in rows.iter_mut().zip(planes).zip(upsamplers) {
            *row = upsampler.row(level, plane, y, columns.clone());
        }
        let [a, b, c, light] = rows;
        match decoder.model {
            ColourModel::Grey => return [a; 3],
            ColourModel::Rgb => return [a, b, c],
            ColourModel::YCbCr | ColourModel::Ycck | ColourModel::Cmyk => {}
        }
        rgb.iter_mut().for_each(|row| row.resize(columns.len(), 0));
        let [red, green, blue] = rgb;
        if decoder.model == ColourModel::Cmyk {
            for (out, ink) in [&mut *red, green, blue].into_iter().zip([a, b, c]) {
                out.copy_from_slice(ink);
            }
        } else {
            colour::ycc_to_rgb(level, [a, b, c], [red, green, blue]);
        }
        if !light.is_empty() {
            // Of YCCK, what came out are the inks themselves: jdcolor.c inverts them.
            let is_ink = decoder.model == ColourModel::Ycck;
            for row in [&mut *red, green, blue] {
                for (value, &light) in row.iter_mut().zip(light) {
                    let ink = if is_ink { *value } else { 255 - *value };
                    *value = light.saturating_sub(times_over_255(ink, light));
                }
            }
        }
        [red, green, blue]
    }
}

/// a·b / 255, rounded to nearest, in integers (exact for all a, b).
fn times_over_255(a: u8, b: u8) -> u8 {
    let product = u32::from(a) * u32::from(b) + 128;
    let rounded = (product + (product >> 8)) >> 8;
    u8::try_from(rounded).expect("255 * 255 / 255 is 255")
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
}
