//! Decode, crop, resize and flip as one step, if the image is a JPEG or a store has it.
//!
//! Only the part of the image that the resize reads is decoded. Rows go from the decoder to the resizer one
//! by one, and no whole image is made on the way. With `exact` numerics, rows of red, green and blue are
//! resized, and the bytes equal those of separate decoding, cropping, resizing and flipping. With `planar`
//! numerics the stored planes are resized. `pipeline.rs`, which to read next, decides what is cropped and
//! how.

use bothends_core::recipe::Numerics;
use bothends_core::recipe::draw::CropBox;

use crate::decode::ImageDecoder;
use crate::decode::picture::Picture;
use crate::error::SampleFault;
use crate::geometry::resample::{Colour, Outlet, Planes, Sampling, TakesRows};
use crate::geometry::resize::{Crop, Making, Resizer};
use crate::jpeg::{Chroma, ColourModel, Region, Stage};

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
    let model = picture.frame().model;
    let has_four_inks = matches!(model, ColourModel::Cmyk | ColourModel::Ycck);
    if crop.numerics == Numerics::Planar && !has_four_inks {
        return crop_planes(picture, decoder, resizer, crop, out);
    }
    let n_planes = n_planes(model);
    let sample = resizer.begin(crop, n_planes, out);
    make(sample, n_planes, picture, decoder)
}

/// The same in exact numerics, whatever those of `crop` are, for who takes rows as they are made.
/// After an error none was.
pub(crate) fn crop_rows(
    picture: Picture<'_>,
    decoder: &mut ImageDecoder,
    resizer: &mut Resizer,
    crop: &Crop,
    rows: &mut dyn TakesRows,
) -> Result<(), SampleFault> {
    let n_planes = n_planes(picture.frame().model);
    let out = Outlet::Rows(rows);
    let sample = resizer.exact.begin(crop.part, n_planes, &crop.ordered(), out);
    make(Making::Exact(sample), n_planes, picture, decoder)
}

fn n_planes(model: ColourModel) -> usize {
    if model == ColourModel::Grey { 1 } else { 3 }
}

/// Decodes what the sample needs and makes it of that, row by row.
fn make(
    mut sample: Making<'_>,
    n_planes: usize,
    picture: Picture<'_>,
    decoder: &mut ImageDecoder,
) -> Result<(), SampleFault> {
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
    let colour = match picture.frame().model {
        ColourModel::YCbCr => Colour::YCbCr,
        ColourModel::Grey | ColourModel::Rgb | ColourModel::Cmyk | ColourModel::Ycck => {
            Colour::AsIs
        }
    };
    let Resizer { planar, samplings, .. } = resizer;
    let frame = picture.frame();
    let ratios = (0..frame.components().len()).map(|nth| frame.ratio(nth));
    samplings.clear();
    samplings.extend(ratios.map(sampling));
    let planes = Planes { samplings, colour };
    let mut sample = planar.begin(planes, crop.part, &crop.target, out);
    let pixels = |nth: usize| pixels(samplings[nth], sample.needed(nth));
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

/// Of a plane whose samples stand for as many pixels across and down.
pub(super) fn sampling([across, down]: [usize; 2]) -> Sampling {
    let pixels = |n| u32::try_from(n).expect("at most four");
    Sampling { x: pixels(across), y: pixels(down) }
}

/// The pixels that samples of a plane stand for.
pub(super) fn pixels(per_sample: Sampling, samples: CropBox) -> Region {
    let range = |start: u32, len: u32, per: u32| {
        (start * per) as usize..((start + len) * per) as usize
    };
    let CropBox { top, left, height, width } = samples;
    let Sampling { x, y } = per_sample;
    Region { rows: range(top, height, y), columns: range(left, width, x) }
}
