//! What a recipe draws for each record, so that other programs can be given the same work.

use bothends_core::ids::EpochIdx;
use bothends_core::recipe::{Decision, Size};
use bothends_core::sample::Encoding;
use bothends_ops::decode::ImageDecoder;
use bothends_ops::image::Image;
use bothends_ops::jpeg::Opened;
use bothends_ops::resample::Mirror;
use bothends_ops::{OpsError, Pipeline};
use serde::Serialize;

use super::OpsBench;
use crate::BenchError;
use crate::records::{DataSet, Records};

/// What is drawn for one record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Drawn {
    /// The file, from the data set's root.
    pub path: String,
    /// Rows of the image.
    pub height: u32,
    /// Columns of the image.
    pub width: u32,
    /// The part that is resized: top, left, height, width.
    #[serde(rename = "box")]
    pub part: [u32; 4],
    /// Whether it is flipped horizontally.
    pub flip: bool,
}

/// What the recipe draws for the records of a measurement, in their order: seed as given,
/// epoch 0. Reads all of them.
///
/// # Errors
/// [`BenchError::NoBoxes`]; as [`OpsBench::run`].
pub fn boxes(bench: &OpsBench) -> Result<Vec<Drawn>, BenchError> {
    let data = DataSet::open(&bench.data, bench.limit)?;
    let mut decision = Decision::default();
    let pipeline =
        Pipeline::new(&bench.recipe, bench.recipe.views(data.table.record_shape()?)?);
    let records = Records::read(&data, bench.seed)?;
    let drawn = |idx: usize| {
        let wrong = records.bad_sample(idx);
        let size = size(&records, idx).map_err(&wrong)?;
        let crop = pipeline
            .crop_of(records.key(idx, EpochIdx(0)), size, &mut decision)
            .map_err(wrong)?;
        let crop = crop.ok_or(BenchError::NoBoxes)?;
        Ok(Drawn {
            path: records.name(idx).to_owned(),
            height: size.height,
            width: size.width,
            part: [crop.part.top, crop.part.left, crop.part.height, crop.part.width],
            flip: crop.target.mirror == Mirror::Horizontal,
        })
    };
    (0..records.len()).map(drawn).collect()
}

/// Rows and columns of an image, from the headers if it is a JPEG.
fn size(records: &Records, idx: usize) -> Result<Size, OpsError> {
    let record = records.record(idx);
    if record.encoding == Encoding::Image && record.bytes.starts_with(&[0xff, 0xd8]) {
        return Ok(Opened::new(record.bytes)?.size());
    }
    let mut image = Image::default();
    ImageDecoder::default().decode(record, &mut image)?;
    Ok(image.size())
}
