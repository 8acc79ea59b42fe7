//! The size of a sample at the cut, found from the recipe and what is known of the records
//! without reading them.
//!
//! A batch is a block of equal samples, so a recipe whose output depends on each image's
//! own size is refused here, before anything is read.

use super::{Op, Recipe, RecipeError, ResizeTo, Size};
use crate::tensor::SampleShape;

/// What is known of a data set's records without reading them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordShape {
    /// Image files, each of its own size.
    Image,
    /// Unsigned bytes, planar, all of one size.
    Planar {
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
        /// Planes.
        channels: u32,
    },
    /// Bytes that no op looks into, all records equally long.
    Opaque {
        /// Length of a record in bytes.
        len_bytes: u32,
    },
}

impl ResizeTo {
    /// The size an image of size `image` gets (torchvision's `_compute_resized_output_size`):
    /// with a short side, the long one is ⌊short side · long ÷ short⌋.
    #[must_use]
    pub fn apply(self, image: Size) -> Size {
        let Self::ShortSide(side) = self else {
            let Self::Exactly(size) = self else { return image };
            return size;
        };
        let Size { height, width } = image;
        let (short, long) = (height.min(width), height.max(width));
        let scaled = u64::from(side) * u64::from(long) / u64::from(short.max(1));
        let long = u32::try_from(scaled).unwrap_or(u32::MAX);
        if width <= height {
            Size { height: long, width: side }
        } else {
            Size { height: side, width: long }
        }
    }
}

impl Recipe {
    /// The shape of every sample at the cut, when records are as `record` says. Without
    /// `decode` a sample is its record's bytes: one row, one channel.
    ///
    /// # Errors
    /// [`RecipeError::Shape`] when the size depends on the image, when an op cannot work on
    /// such records, or when `normalize` has another number of channels.
    pub fn shape(&self, record: RecordShape) -> Result<SampleShape, RecipeError> {
        let shape = if self.ops.first() == Some(&Op::Decode) {
            self.decoded_shape(record)?
        } else {
            self.undecoded_shape(record)?
        };
        let n_channels = self.normalise().map(|normalise| normalise.mean.len());
        if n_channels.is_some_and(|n| n != shape.channels as usize) {
            return Err(self.unfit(
                format!(
                    "`normalize` has {} channels and a sample has {}",
                    n_channels.unwrap_or_default(),
                    shape.channels
                ),
                "give `normalize` one mean and one std per channel",
            ));
        }
        let n_bytes = [shape.height, shape.width, shape.channels]
            .iter()
            .try_fold(1_u32, |product, &side| product.checked_mul(side));
        match n_bytes {
            Some(1..) => Ok(shape),
            Some(0) => Err(self.unfit(
                "a sample has no bytes".to_owned(),
                "check that the records are not empty",
            )),
            None => Err(self.unfit(
                "a sample has 4 GiB or more".to_owned(),
                "use smaller crops or records",
            )),
        }
    }

    fn undecoded_shape(&self, record: RecordShape) -> Result<SampleShape, RecipeError> {
        let width = match record {
            RecordShape::Image => {
                return Err(self.unfit(
                    "it does not decode, and image files differ in length".to_owned(),
                    "use a recipe that begins with `decode`",
                ));
            }
            RecordShape::Planar { height, width, channels } => height
                .checked_mul(width)
                .and_then(|plane| plane.checked_mul(channels))
                .unwrap_or(u32::MAX),
            RecordShape::Opaque { len_bytes } => len_bytes,
        };
        Ok(SampleShape { height: 1, width, channels: 1 })
    }

    fn decoded_shape(&self, record: RecordShape) -> Result<SampleShape, RecipeError> {
        let (channels, mut size) = match record {
            RecordShape::Image => (3, None),
            RecordShape::Planar { height, width, channels } => {
                (channels, Some(Size { height, width }))
            }
            RecordShape::Opaque { .. } => {
                return Err(self.unfit(
                    "`decode` reads images and the records are not images".to_owned(),
                    "use the recipe `raw`",
                ));
            }
        };
        // The op that decides the size, for the message.
        let mut decider = "decode";
        for op in self.before_cut() {
            size = match op {
                Op::RandomResizedCrop { size, .. } | Op::CenterCrop { size } => {
                    Some(*size)
                }
                Op::Resize { size: ResizeTo::Exactly(size), .. } => Some(*size),
                Op::Resize { size: to, .. } => {
                    decider = op.name();
                    size.map(|size| to.apply(size))
                }
                Op::RandomCrop { size: crop, padding, .. } => {
                    let too_small = size.is_some_and(|Size { height, width }| {
                        height + padding.top + padding.bottom < crop.height
                            || width + padding.left + padding.right < crop.width
                    });
                    if too_small {
                        return Err(self.unfit(
                            "`random_crop` is larger than the padded image".to_owned(),
                            "give it a smaller `size` or more `padding`",
                        ));
                    }
                    Some(*crop)
                }
                Op::Decode
                | Op::RandomHorizontalFlip { .. }
                | Op::RandomVerticalFlip { .. }
                | Op::Normalise(_)
                | Op::ToDtype { .. }
                | Op::Layout { .. } => size,
            };
        }
        let Some(Size { height, width }) = size else {
            return Err(self.unfit(
                format!("the size of a sample after `{decider}` depends on the image"),
                "add `center_crop`, or give `resize` a [height, width]",
            ));
        };
        Ok(SampleShape { height, width, channels })
    }

    fn unfit(&self, why: String, remedy: &'static str) -> RecipeError {
        RecipeError::Shape { recipe: self.name.clone(), why, remedy }
    }
}
