//! Decode, crop, resize and flip as one step, where an image is a JPEG or a store has it.
//!
//! Only the part of the image that the resize looks at is decoded; rows go from the decoder
//! to the resizer one by one, and no whole image is made on the way. In `exact` numerics
//! rows of red, green and blue are resized, and the bytes are those of decoding, cropping,
//! resizing and flipping one after the other. In `planar` numerics the planes are, as they
//! are stored. What is cropped and how is `pipeline.rs`'s to say, which is to be read next.

use bothends_core::recipe::Numerics;

use crate::decode::ImageDecoder;
use crate::error::SampleFault;
use crate::jpeg::{Chroma, ColourModel, Region, Stage};
use crate::picture::Picture;
use crate::resample::{Colour, Planes};
use crate::resize::{Crop, Resizer};

/// Rows of pixels that a plane is ahead of the others: a multiple of every ratio.
const STRIP_ROWS: usize = 24;

/// Makes `crop` of a picture into `out`, rows of red, green and blue. After an error `out` is
/// unchanged.
pub(crate) fn crop_picture(
    picture: Picture<'_>,
    decoder: &mut ImageDecoder,
    resizer: &mut Resizer,
    crop: &Crop,
    out: &mut [u8],
) -> Result<(), SampleFault> {
    let model = picture.model();
    let has_four_inks = matches!(model, ColourModel::Cmyk | ColourModel::Ycck);
    if crop.numerics == Numerics::Planar && !has_four_inks {
        return crop_planes(picture, decoder, resizer, crop, out);
    }
    let n_planes = if model == ColourModel::Grey { 1 } else { 3 };
    let mut sample = resizer.begin(crop, n_planes, out);
    let region = Region::of(sample.needed());
    picture.decode(&mut decoder.jpeg, &region, Chroma::Upsampled)?;
    if decoder.jpeg.until < Stage::Sample {
        return Ok(());
    }
    for y in region.rows {
        if sample.passes_over() {
            continue;
        }
        let rgb = decoder.rows.row(&decoder.jpeg, y, &region.columns);
        sample.row(rgb.into_iter().take(n_planes));
    }
    sample.finish();
    Ok(())
}

/// Planar numerics: each plane from its own sampling.
fn crop_planes(
    picture: Picture<'_>,
    decoder: &mut ImageDecoder,
    resizer: &mut Resizer,
    crop: &Crop,
    out: &mut [u8],
) -> Result<(), SampleFault> {
    let colour = match picture.model() {
        ColourModel::YCbCr => Colour::YCbCr,
        ColourModel::Grey | ColourModel::Rgb | ColourModel::Cmyk | ColourModel::Ycck => {
            Colour::AsIs
        }
    };
    let Resizer { planar, samplings, .. } = resizer;
    picture.samplings(samplings);
    let planes = Planes { samplings, colour };
    let mut sample = planar.begin(planes, crop.part, &crop.target, out);
    let pixels = |nth: usize| samplings[nth].pixels(sample.needed(nth));
    let mut region = pixels(0);
    for nth in 1..samplings.len() {
        region.include(&pixels(nth));
    }
    picture.decode(&mut decoder.jpeg, &region, Chroma::AsStored)?;
    if decoder.jpeg.until < Stage::Sample {
        return Ok(());
    }
    // Planes take turns, a strip of pixel rows each, so that none runs far ahead.
    let needed = [0, 1, 2].map(|nth| {
        let nth = nth.min(samplings.len() - 1);
        Region::of(sample.needed(nth))
    });
    for strip in region.rows.clone().step_by(STRIP_ROWS) {
        for (nth, plane) in decoder.jpeg.planes().iter().enumerate() {
            let [_, down] = plane.ratio();
            let strip = strip / down..(strip + STRIP_ROWS) / down;
            let Region { rows, columns } = &needed[nth];
            let rows = rows.start.max(strip.start)..rows.end.min(strip.end);
            sample.rows(nth, rows.map(|y| plane.row(y, columns.clone())));
        }
    }
    sample.finish();
    Ok(())
}
