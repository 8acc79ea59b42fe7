//! Sets a rectangle of an image to one value. The recipe draws the rectangle, not this file.

use bothends_core::recipe::draw::CropBox;
use bothends_core::recipe::step::Fill;

use crate::image::{Image, fill};

/// Sets the pixels of `area`, as far as it lies inside, to `value`: red, green and blue. Images of
/// other than three channels take the first for all of them.
pub(crate) fn erase(image: &mut Image, area: CropBox, value: [u8; 3]) {
    let (width, channels) = (image.width(), image.channels());
    let [top, left, rows, columns] =
        [area.top, area.left, area.height, area.width].map(|pixels| pixels as usize);
    let left = left.min(width);
    let columns = left * channels..left.saturating_add(columns).min(width) * channels;
    let row_bytes = (width * channels).max(1);
    for row in image.pixels_mut().chunks_exact_mut(row_bytes).skip(top).take(rows) {
        fill(&mut row[columns.clone()], channels, Fill(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bothends_core::recipe::Size;

    fn erased(channels: u32, [top, left, height, width]: [u32; 4]) -> Vec<u8> {
        let mut image = Image::default();
        image.reshape(Size { height: 2, width: 3 }, channels).fill(0);
        erase(&mut image, CropBox { top, left, height, width }, [1, 2, 3]);
        image.pixels().to_vec()
    }

    #[test]
    fn the_area_and_nothing_else() {
        assert_eq!(erased(1, [0, 1, 2, 1]), [0, 1, 0, 0, 1, 0]);
        assert_eq!(
            erased(3, [1, 0, 1, 2]),
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 1, 2, 3, 0, 0, 0]
        );
        assert_eq!(erased(2, [0, 2, 1, 1]), [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn an_area_over_the_edge_is_cut() {
        assert_eq!(erased(1, [1, 2, u32::MAX, u32::MAX]), [0, 0, 0, 0, 0, 1]);
        assert_eq!(erased(1, [5, 5, 1, 1]), [0; 6]);
        assert_eq!(erased(1, [0, 0, 0, 3]), [0; 6]);
        let mut empty = Image::default();
        erase(&mut empty, CropBox { top: 0, left: 0, height: 9, width: 9 }, [1; 3]);
        assert_eq!(empty, Image::default());
    }
}
