//! What can go wrong while a sample is made, by what the caller does next.
//!
//! [`SampleFault`] is about one record, and the bad-sample policy decides. Everything else in [`OpsError`]
//! is about the recipe or the caller and applies to every sample.

use bothends_core::recipe::{MAX_DECODE_BYTES, MAX_IMAGE_PIXELS, MAX_IMAGE_SIDE, Size};
use bothends_core::tensor::SampleShape;

/// Why a pipeline could not be built, or a sample not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpsError {
    /// This record cannot become a sample: apply the bad-sample policy, then go on.
    #[error(transparent)]
    BadSample(#[from] SampleFault),
    /// The recipe asks for something this build cannot do: stop before the first sample.
    #[error("the recipe cannot be run: {why}")]
    Recipe {
        /// What is wrong and what is expected.
        why: String,
    },
    /// The caller's buffer is not one sample long.
    #[error("a sample takes {need} bytes, but the buffer given has {got}")]
    BufferLength {
        /// Bytes given.
        got: usize,
        /// Bytes of one sample.
        need: usize,
    },
}

/// What is wrong with the bytes of one record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleFault {
    /// The first bytes are of no format known here.
    #[error(
        "the record is not a JPEG, PNG, BMP, PNM, GIF, WebP or TIFF image ({len} bytes); remove or \
         replace it"
    )]
    UnknownFormat {
        /// Length of the record in bytes.
        len: usize,
    },
    /// The image is cut short or damaged.
    #[error("the {format} image is damaged: {why}; restore the file")]
    Damaged {
        /// `JPEG`, `packed JPEG`, `PNG` and so on.
        format: &'static str,
        /// The decoder's own words.
        why: String,
    },
    /// The image uses a part of its format that is refused by name.
    #[error("{feature} {format} images are not supported; convert the file")]
    Unsupported {
        /// `JPEG`, `TIFF` and so on.
        format: &'static str,
        /// The part, as an adjective: `lossless`.
        feature: &'static str,
    },
    /// An image without a single pixel.
    #[error("the image has no pixels; remove or replace it")]
    NoPixels,
    /// The recipe makes an image without a single pixel of it.
    #[error(
        "resizing makes this image one of {height}x{width} pixels: it is too thin for the recipe's \
         `max_size`; give a larger one, or remove the image"
    )]
    TooThin {
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
    },
    /// The header claims, or the recipe asks for, more pixels than an image may have.
    #[error(
        "an image of {height}x{width} pixels is too large; at most {} per side and {} in \
         all are accepted",
        MAX_IMAGE_SIDE,
        MAX_IMAGE_PIXELS
    )]
    TooLarge {
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
    },
    /// Decoding it may take more memory than an image may.
    #[error(
        "an image of {}x{} pixels may need {} MiB to be decoded, and at most {} MiB are \
         accepted; store it with fewer pixels",
        size.height, size.width, need_bytes >> 20, MAX_DECODE_BYTES >> 20
    )]
    TooMuchMemory {
        /// Rows and columns.
        size: Size,
        /// What it may take: of a JPEG samples and coefficients, as if it were progressive.
        need_bytes: u64,
    },
    /// Decoding it may take more memory than this run may use for that.
    #[error(
        "an image of {}x{} pixels may need {} MiB to be decoded, and this run may take {} MiB \
         for that; give it as much memory, or store the image with fewer pixels",
        size.height, size.width, need_bytes.div_ceil(1 << 20), most_bytes >> 20
    )]
    BeyondBudget {
        /// Rows and columns.
        size: Size,
        /// What it may take, counted as for [`Self::TooMuchMemory`].
        need_bytes: u64,
        /// What it is allowed.
        most_bytes: u64,
    },
    /// It has more pixels, or more for each byte, than whoever decodes it for others accepts, or the recipe
    /// makes one with more of it.
    #[error(
        "an image of {}x{} pixels is not made here, where this one may have at most {most}; raise \
         the device's --max-pixels, or leave it to the host",
        size.height, size.width
    )]
    BeyondPixels {
        /// Rows and columns.
        size: Size,
        /// Most pixels of one whose file has that length, or of one on the way to a sample.
        most: u64,
    },
    /// A record of fixed size has a different size.
    #[error("the record has {got} bytes where its data set promises {need}")]
    RecordLength {
        /// Bytes found.
        got: usize,
        /// Bytes expected.
        need: usize,
    },
    /// The sample came out with another shape than the recipe promises.
    #[error(
        "the sample came out as {}x{}x{} where the recipe promises {}x{}x{}; \
         add a resize or a crop",
        got.height, got.width, got.channels, need.height, need.width, need.channels
    )]
    Shape {
        /// Rows, columns, channels made.
        got: SampleShape,
        /// Rows, columns, channels promised.
        need: SampleShape,
    },
    /// A crop does not fit into the image.
    #[error(
        "a crop of {}x{} does not fit into an image of {}x{}; resize or pad it first",
        crop.height, crop.width, image.height, image.width
    )]
    CropTooLarge {
        /// The crop.
        crop: Size,
        /// The image with its padding.
        image: Size,
    },
}
