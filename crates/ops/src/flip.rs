//! Mirrors an image in place. Whether a sample is flipped is drawn by the recipe.

use crate::image::Image;

/// Left becomes right: torchvision's `horizontal_flip`.
pub fn horizontal(image: &mut Image) {
    let (width, channels) = (image.width(), image.channels());
    let row_bytes = (width * channels).max(1);
    for row in image.pixels_mut().chunks_exact_mut(row_bytes) {
        let (mut left, mut right) = (0, row_bytes);
        while right - left >= 2 * channels {
            right -= channels;
            for channel in 0..channels {
                row.swap(left + channel, right + channel);
            }
            left += channels;
        }
    }
}

/// Top becomes bottom: torchvision's `vertical_flip`.
pub fn vertical(image: &mut Image) {
    let row_bytes = (image.width() * image.channels()).max(1);
    let mut rows = image.pixels_mut().chunks_exact_mut(row_bytes);
    while let (Some(upper), Some(lower)) = (rows.next(), rows.next_back()) {
        upper.swap_with_slice(lower);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bothends_core::recipe::Size;

    fn image(height: u32, width: u32, channels: u32) -> Image {
        let mut image = Image::default();
        for (value, byte) in (0..).zip(image.reshape(Size { height, width }, channels)) {
            *byte = value;
        }
        image
    }

    #[test]
    fn pixels_change_places_and_channels_do_not() {
        let mut flipped = image(2, 3, 2);
        horizontal(&mut flipped);
        assert_eq!(flipped.pixels(), [4, 5, 2, 3, 0, 1, 10, 11, 8, 9, 6, 7]);
        vertical(&mut flipped);
        assert_eq!(flipped.pixels(), [10, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1]);
    }

    #[test]
    fn twice_is_not_at_all() {
        for (height, width) in (0..7).flat_map(|h| (0..7).map(move |w| (h, w))) {
            let before = image(height, width, 3);
            for flip in [horizontal, vertical] {
                let mut after = before.clone();
                flip(&mut after);
                assert!(width < 2 || height < 2 || after != before);
                flip(&mut after);
                assert_eq!(after, before, "{height} x {width}");
            }
        }
    }
}
