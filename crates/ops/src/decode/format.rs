//! The formats of encoded images: one line of each table for each.

use bothends_core::recipe::Size;

use super::{bmp, gif, png, pnm, tiff, webp};
use crate::error::{OpsError, SampleFault};
use crate::image::Image;
use crate::jpeg::lenient;

/// A format of encoded images, told by the first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// `jpeg.rs` decodes it, since it need not decode all of it.
    Jpeg,
    Png,
    Bmp,
    Pnm,
    Gif,
    WebP,
    Tiff,
}

impl Format {
    /// The format of a file.
    pub(crate) fn of(bytes: &[u8]) -> Result<Self, SampleFault> {
        let is = |recognises: fn(&[u8]) -> bool| recognises(bytes);
        // Start of image (T.81 §B.1.1.3) and the first byte of whatever marker follows.
        match bytes {
            [0xff, 0xd8, 0xff, ..] => Ok(Self::Jpeg),
            _ if is(png::recognises) => Ok(Self::Png),
            _ if is(bmp::recognises) => Ok(Self::Bmp),
            _ if is(pnm::recognises) => Ok(Self::Pnm),
            _ if is(gif::recognises) => Ok(Self::Gif),
            _ if is(webp::recognises) => Ok(Self::WebP),
            _ if is(tiff::recognises) => Ok(Self::Tiff),
            _ => Err(SampleFault::UnknownFormat { len: bytes.len() }),
        }
    }

    /// What the names of such files end with, most often.
    pub(super) fn ending(self) -> &'static str {
        match self {
            Self::Jpeg => "jpg",
            Self::Png => "png",
            Self::Bmp => "bmp",
            Self::Pnm => "ppm",
            Self::Gif => "gif",
            Self::WebP => "webp",
            Self::Tiff => "tif",
        }
    }

    /// The size of an image, and the bytes that decoding it may take at most; 0 where its first bytes
    /// do not say.
    pub(super) fn need_bytes(bytes: &[u8]) -> (Size, u64) {
        match Self::of(bytes) {
            Ok(Self::Png) => png::need_bytes(bytes),
            Ok(Self::Bmp) => bmp::need_bytes(bytes),
            Ok(Self::Pnm) => pnm::need_bytes(bytes),
            Ok(Self::Gif) => gif::need_bytes(bytes),
            Ok(Self::WebP) => webp::need_bytes(bytes),
            Ok(Self::Tiff) => tiff::need_bytes(bytes),
            Ok(Self::Jpeg) => lenient::need_bytes(bytes),
            Err(_) => (Size { height: 0, width: 0 }, 0),
        }
    }

    /// Decodes all of a file of this format, which is not JPEG.
    pub(super) fn decode(self, bytes: &[u8], out: &mut Image) -> Result<(), OpsError> {
        match self {
            Self::Png => png::decode(bytes, out),
            Self::Bmp => bmp::decode(bytes, out),
            Self::Pnm => pnm::decode(bytes, out),
            Self::Gif => gif::decode(bytes, out),
            Self::WebP => webp::decode(bytes, out),
            Self::Tiff => tiff::decode(bytes, out),
            Self::Jpeg => Err(SampleFault::UnknownFormat { len: bytes.len() }.into()),
        }
    }
}
