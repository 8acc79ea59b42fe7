//! Decode, crop, resize and flip as one step, where an image is a JPEG.
//!
//! Only the part of the image that the resize looks at is decoded; rows go from the decoder
//! to the resizer one by one, and no whole image is made on the way. In `exact` numerics
//! rows of red, green and blue are resized, and the bytes are those of decoding, cropping,
//! resizing and flipping one after the other. In `planar` numerics the planes are, as they
//! are stored. What is cropped and how is `pipeline.rs`'s to say, which is to be read next.

use bothends_core::recipe::Numerics;

use crate::decode::ImageDecoder;
use crate::error::SampleFault;
use crate::image::Image;
use crate::jpeg::{Chroma, ColourModel, EntryPoints, Opened, Region};
use crate::resample::{Colour, Sampling};
use crate::resize::{Crop, Resizer};

/// A JPEG whose headers have been read, and what an earlier visit left to know about it.
pub(crate) type Visit<'a> = (Opened<'a>, Option<EntryPoints<'a>>);

/// Makes `crop` of a file into `out`, an RGB image.
pub(crate) fn crop_jpeg(
    (file, entry_points): Visit<'_>,
    decoder: &mut ImageDecoder,
    resizer: &mut Resizer,
    crop: &Crop,
    out: &mut Image,
) -> Result<(), SampleFault> {
    let model = file.model();
    let has_four_inks = matches!(model, ColourModel::Cmyk | ColourModel::Ycck);
    out.reshape(crop.target.sample_size(), 3);
    if crop.numerics == Numerics::Planar && !has_four_inks {
        return crop_planes((file, entry_points), decoder, resizer, crop, out);
    }
    let n_planes = if model == ColourModel::Grey { 1 } else { 3 };
    let region = Region::of(resizer.begin(crop, n_planes));
    decoder.jpeg.decode(file, &region, Chroma::Upsampled, entry_points)?;
    for y in region.rows {
        let rgb = decoder.rows.row(&decoder.jpeg, y, &region.columns);
        resizer.row(crop.numerics, rgb.into_iter().take(n_planes));
    }
    resizer.finish(crop.numerics, out);
    Ok(())
}

/// Planar numerics: each plane from its own sampling.
fn crop_planes(
    (file, entry_points): Visit<'_>,
    decoder: &mut ImageDecoder,
    resizer: &mut Resizer,
    crop: &Crop,
    out: &mut Image,
) -> Result<(), SampleFault> {
    let colour = match file.model() {
        ColourModel::YCbCr => Colour::YCbCr,
        ColourModel::Grey | ColourModel::Rgb | ColourModel::Cmyk | ColourModel::Ycck => {
            Colour::AsIs
        }
    };
    let Resizer { planar, samplings, .. } = resizer;
    samplings.clear();
    samplings.extend(file.ratios().map(Sampling::of));
    planar.begin(crop.part, samplings, colour, &crop.target);
    let pixels = |nth: usize| samplings[nth].pixels(planar.needed(nth));
    let mut region = pixels(0);
    for nth in 1..samplings.len() {
        region.include(&pixels(nth));
    }
    decoder.jpeg.decode(file, &region, Chroma::AsStored, entry_points)?;
    for (nth, plane) in decoder.jpeg.planes().iter().enumerate() {
        let needed = Region::of(planar.needed(nth));
        for y in needed.rows {
            planar.row(nth, plane.row(y, needed.columns.clone()));
        }
    }
    planar.finish(out.pixels_mut());
    Ok(())
}
