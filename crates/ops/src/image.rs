//! The picture being worked on: `Image` owns pixels, `View` looks at a rectangle of them.
//!
//! Pixels are unsigned bytes, rows from the top, columns from the left, channels
//! interleaved, no padding. Nothing here changes a pixel's value. Read `decode.rs` next.

/// A rectangle inside an image, in pixels. Rows `top .. top + height`, columns
/// `left .. left + width`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rect {
    /// First row.
    pub top: usize,
    /// First column.
    pub left: usize,
    /// Number of rows.
    pub height: usize,
    /// Number of columns.
    pub width: usize,
}

/// Pixels in memory that is kept from sample to sample.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Image {
    height: usize,
    width: usize,
    channels: usize,
    pixels: Vec<u8>,
}

impl Image {
    /// Rows.
    #[must_use]
    pub fn height(&self) -> usize {
        self.height
    }

    /// Columns.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Bytes of one pixel.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// All pixels, `height * width * channels` bytes.
    #[must_use]
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// All pixels, to be changed in place.
    pub fn pixels_mut(&mut self) -> &mut [u8] {
        &mut self.pixels
    }

    /// Takes a new shape and hands out its pixels, whose values are left over from before.
    /// Allocates only when the image grows beyond what it has ever been.
    pub fn reshape(&mut self, height: usize, width: usize, channels: usize) -> &mut [u8] {
        (self.height, self.width, self.channels) = (height, width, channels);
        self.pixels.resize(height * width * channels, 0);
        &mut self.pixels
    }

    /// Takes the first `channels` bytes of every pixel as the new pixel, `convert`ed:
    /// from four channels to three, and the like. Works in place.
    pub(crate) fn narrow<const FROM: usize, const TO: usize>(
        &mut self,
        convert: impl Fn([u8; FROM]) -> [u8; TO],
    ) {
        const { assert!(TO <= FROM, "pixel i is written no later than it is read") };
        debug_assert_eq!(self.channels, FROM, "the image has pixels of FROM bytes");
        for i in 0..self.height * self.width {
            let mut pixel = [0; FROM];
            pixel.copy_from_slice(&self.pixels[i * FROM..][..FROM]);
            self.pixels[i * TO..][..TO].copy_from_slice(&convert(pixel));
        }
        self.reshape(self.height, self.width, TO);
    }

    /// Repeats the first byte of every pixel three times: grey to RGB. Works in place.
    pub(crate) fn widen_grey(&mut self) {
        let from = self.channels;
        let n_pixels = self.height * self.width;
        self.pixels.resize(n_pixels * from.max(3), 0);
        let spread = |pixels: &mut [u8], i: usize| {
            let grey = pixels[i * from];
            pixels[i * 3..][..3].fill(grey);
        };
        // The end that is written must not overtake the end that is read.
        if from < 3 {
            (0..n_pixels).rev().for_each(|i| spread(&mut self.pixels, i));
        } else {
            (0..n_pixels).for_each(|i| spread(&mut self.pixels, i));
        }
        self.reshape(self.height, self.width, 3);
    }

    /// The whole image.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View {
            height: self.height,
            width: self.width,
            channels: self.channels,
            stride: self.width * self.channels,
            pixels: &self.pixels,
        }
    }
}

/// A rectangle of an image, looked at without copying.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    height: usize,
    width: usize,
    channels: usize,
    /// Bytes from one row to the next.
    stride: usize,
    /// From the first pixel of the rectangle on; runs past its last.
    pixels: &'a [u8],
}

impl<'a> View<'a> {
    /// Rows.
    #[must_use]
    pub fn height(self) -> usize {
        self.height
    }

    /// Columns.
    #[must_use]
    pub fn width(self) -> usize {
        self.width
    }

    /// Bytes of one pixel.
    #[must_use]
    pub fn channels(self) -> usize {
        self.channels
    }

    /// The rectangle `rect` of this view; `None` when it does not lie inside.
    #[must_use]
    pub fn crop(self, rect: Rect) -> Option<Self> {
        let inside = rect.top.checked_add(rect.height)? <= self.height
            && rect.left.checked_add(rect.width)? <= self.width;
        if !inside {
            return None;
        }
        let first = rect.top * self.stride + rect.left * self.channels;
        let pixels = self.pixels.get(first..).unwrap_or(&[]);
        Some(Self { height: rect.height, width: rect.width, pixels, ..self })
    }

    /// The bytes of row `y` (`y < height`), `width * channels` of them.
    pub(crate) fn row(self, y: usize) -> &'a [u8] {
        &self.pixels[y * self.stride..][..self.width * self.channels]
    }

    /// All rows, from the top.
    pub(crate) fn rows(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.height).map(move |y| self.row(y))
    }

    /// Copies the rectangle into `out`, which takes its shape.
    pub fn copy_to(self, out: &mut Image) {
        let pixels = out.reshape(self.height, self.width, self.channels);
        let row_bytes = (self.width * self.channels).max(1);
        for (dst, src) in pixels.chunks_exact_mut(row_bytes).zip(self.rows()) {
            dst.copy_from_slice(src);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(height: usize, width: usize, channels: usize) -> Image {
        let mut image = Image::default();
        for (value, byte) in (0..).zip(image.reshape(height, width, channels)) {
            *byte = value;
        }
        image
    }

    #[test]
    fn a_crop_is_the_rectangle_and_nothing_else() {
        let image = counted(4, 5, 1);
        let view = image.view().crop(Rect { top: 1, left: 2, height: 2, width: 3 });
        let mut cut = Image::default();
        view.unwrap().copy_to(&mut cut);
        assert_eq!(cut.pixels(), [7, 8, 9, 12, 13, 14]);
        assert_eq!((cut.height(), cut.width(), cut.channels()), (2, 3, 1));
    }

    #[test]
    fn a_crop_beyond_the_edge_is_none() {
        let image = counted(4, 5, 1);
        for (top, left, height, width) in
            [(0, 0, 5, 1), (0, 0, 1, 6), (3, 0, 2, 1), (0, usize::MAX, 1, 2)]
        {
            let rect = Rect { top, left, height, width };
            assert!(image.view().crop(rect).is_none(), "{rect:?}");
        }
    }

    #[test]
    fn grey_becomes_rgb_from_any_number_of_channels() {
        for from in 1..=4 {
            let mut image = counted(1, 3, from);
            let greys: Vec<u8> = image.pixels().iter().copied().step_by(from).collect();
            image.widen_grey();
            let expected: Vec<u8> = greys.iter().flat_map(|&g| [g, g, g]).collect();
            assert_eq!(image.pixels(), expected, "from {from} channels");
        }
    }

    #[test]
    fn narrowing_sees_every_pixel_before_it_is_overwritten() {
        let mut image = counted(1, 3, 4);
        image.narrow(|[r, _, b, a]: [u8; 4]| [a, b, r]);
        assert_eq!(image.pixels(), [3, 2, 0, 7, 6, 4, 11, 10, 8]);
    }
}
