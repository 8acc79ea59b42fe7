//! What a JPEG of some quality keeps of an image. Not done yet: the image stays as it is.

use crate::image::Image;

/// Leaves the image as it is.
pub(super) fn jpeg(_image: &mut Image, _quality: u8) {}
