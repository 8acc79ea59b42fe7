//! The picture being worked on: `Image` owns pixels, `View` looks at a rectangle of them.
//!
//! Pixels are unsigned bytes, rows from the top, columns from the left, channels
//! interleaved, no padding. Nothing here changes a pixel's value. Read `decode.rs` next.

use bothends_core::recipe::draw::CropBox;
use bothends_core::recipe::step::Fill;
use bothends_core::recipe::{MAX_IMAGE_PIXELS, MAX_IMAGE_SIDE, Size};
use bothends_core::tensor::SampleShape;

use crate::error::SampleFault;

/// Pixels in memory that is kept from sample to sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    shape: SampleShape,
    pixels: Vec<u8>,
}

impl Default for Image {
    /// An image without pixels.
    fn default() -> Self {
        let shape = SampleShape { height: 0, width: 0, channels: 0 };
        Self { shape, pixels: Vec::new() }
    }
}

impl Image {
    /// Rows, columns, channels.
    #[must_use]
    pub fn shape(&self) -> SampleShape {
        self.shape
    }

    /// Rows and columns.
    #[must_use]
    pub fn size(&self) -> Size {
        Size { height: self.shape.height, width: self.shape.width }
    }

    /// Rows.
    #[must_use]
    pub fn height(&self) -> usize {
        self.shape.height as usize
    }

    /// Columns.
    #[must_use]
    pub fn width(&self) -> usize {
        self.shape.width as usize
    }

    /// Bytes of one pixel.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.shape.channels as usize
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
    pub fn reshape(&mut self, size: Size, channels: u32) -> &mut [u8] {
        self.shape = SampleShape { height: size.height, width: size.width, channels };
        self.pixels.resize(self.shape.len(), 0);
        &mut self.pixels
    }

    /// Forgets the pixels and gives the memory back if it is more than `keep_bytes`; the bytes that it
    /// keeps.
    pub(crate) fn release_above(&mut self, keep_bytes: usize) -> usize {
        if self.pixels.capacity() > keep_bytes {
            *self = Self::default();
        }
        self.pixels.capacity()
    }

    /// Of every pixel only the first byte is left. Works in place.
    pub(crate) fn keep_first_channel(&mut self) {
        let from = self.channels().max(1);
        for i in 0..self.height() * self.width() {
            self.pixels[i] = self.pixels[i * from];
        }
        self.reshape(self.size(), 1);
    }

    /// Repeats the first byte of every pixel three times: grey to RGB. Works in place.
    pub(crate) fn widen_grey(&mut self) {
        let from = self.channels();
        let n_pixels = self.height() * self.width();
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
        self.reshape(self.size(), 3);
    }

    /// The whole image.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View {
            shape: self.shape,
            stride: self.width() * self.channels(),
            pixels: &self.pixels,
        }
    }
}

/// A rectangle of an image, looked at without copying.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    shape: SampleShape,
    /// Bytes from one row to the next.
    stride: usize,
    /// From the first pixel of the rectangle on; runs past its last.
    pixels: &'a [u8],
}

impl<'a> View<'a> {
    /// Rows.
    #[must_use]
    pub fn height(self) -> usize {
        self.shape.height as usize
    }

    /// Columns.
    #[must_use]
    pub fn width(self) -> usize {
        self.shape.width as usize
    }

    /// Bytes of one pixel.
    #[must_use]
    pub fn channels(self) -> usize {
        self.shape.channels as usize
    }

    /// Rows, columns, channels.
    #[must_use]
    pub fn shape(self) -> SampleShape {
        self.shape
    }

    /// The part `crop` of this view; `None` when it does not lie inside.
    #[must_use]
    pub fn crop(self, crop: CropBox) -> Option<Self> {
        let CropBox { top, left, height, width } = crop;
        let inside = top.checked_add(height)? <= self.shape.height
            && left.checked_add(width)? <= self.shape.width;
        if !inside {
            return None;
        }
        let first = top as usize * self.stride + left as usize * self.channels();
        let pixels = self.pixels.get(first..).unwrap_or(&[]);
        Some(Self { shape: SampleShape { height, width, ..self.shape }, pixels, ..self })
    }

    /// The bytes of row `y` (`y < height`), `width * channels` of them.
    pub(crate) fn row(self, y: usize) -> &'a [u8] {
        &self.pixels[y * self.stride..][..self.width() * self.channels()]
    }

    /// All rows, from the top.
    pub(crate) fn rows(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.height()).map(move |y| self.row(y))
    }

    /// All bytes from the first pixel on, and how many there are from one row to the next.
    /// Between rows, and after the last, there may be others.
    pub(crate) fn bytes(self) -> (&'a [u8], usize) {
        (self.pixels, self.stride)
    }

    /// Copies the rectangle into `out`, which takes its shape.
    pub fn copy_to(self, out: &mut Image) {
        let SampleShape { height, width, channels } = self.shape;
        let pixels = out.reshape(Size { height, width }, channels);
        let row_bytes = (self.width() * self.channels()).max(1);
        for (dst, src) in pixels.chunks_exact_mut(row_bytes).zip(self.rows()) {
            dst.copy_from_slice(src);
        }
    }
}

/// Refuses sizes that no image has, before memory is taken for them.
pub(crate) fn check_size(height: usize, width: usize) -> Result<Size, SampleFault> {
    let side = |pixels: usize| {
        u32::try_from(pixels).ok().filter(|&pixels| pixels <= MAX_IMAGE_SIDE)
    };
    match (side(height), side(width)) {
        (Some(0), _) | (_, Some(0)) => Err(SampleFault::NoPixels),
        (Some(rows), Some(columns))
            if u64::from(rows) * u64::from(columns) <= MAX_IMAGE_PIXELS.into() =>
        {
            Ok(Size { height: rows, width: columns })
        }
        _ => Err(SampleFault::TooLarge { height, width }),
    }
}

/// Sets `pixels` to one value.
pub(crate) fn fill(pixels: &mut [u8], channels: usize, Fill(values): Fill) {
    if channels == 3 && values != [values[0]; 3] {
        pixels.as_chunks_mut().0.fill(values);
    } else {
        pixels.fill(values[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(height: u32, width: u32, channels: u32) -> Image {
        let mut image = Image::default();
        for (value, byte) in (0..).zip(image.reshape(Size { height, width }, channels)) {
            *byte = value;
        }
        image
    }

    #[test]
    fn sizes_are_checked_before_memory_is_taken() {
        const SIDE: usize = MAX_IMAGE_SIDE as usize;
        for (height, width, fits) in [
            (1, 1, true),
            (SIDE, 1, true),
            (SIDE + 1, 1, false),
            (13_377, 13_377, true),
            (13_377, 13_378, false),
            (usize::MAX, usize::MAX, false),
            (0, 5, false),
            (5, 0, false),
        ] {
            assert_eq!(check_size(height, width).is_ok(), fits, "{height} x {width}");
        }
    }

    #[test]
    fn a_crop_is_the_rectangle_and_nothing_else() {
        let image = counted(4, 5, 1);
        let view = image.view().crop(CropBox { top: 1, left: 2, height: 2, width: 3 });
        let mut cut = Image::default();
        view.unwrap().copy_to(&mut cut);
        assert_eq!(cut.pixels(), [7, 8, 9, 12, 13, 14]);
        assert_eq!((cut.height(), cut.width(), cut.channels()), (2, 3, 1));
    }

    #[test]
    fn a_crop_beyond_the_edge_is_none() {
        let image = counted(4, 5, 1);
        for (top, left, height, width) in
            [(0, 0, 5, 1), (0, 0, 1, 6), (3, 0, 2, 1), (0, u32::MAX, 1, 2)]
        {
            let crop = CropBox { top, left, height, width };
            assert!(image.view().crop(crop).is_none(), "{crop:?}");
        }
    }

    #[test]
    fn grey_becomes_rgb_from_any_number_of_channels() {
        for from in 1..=4 {
            let mut image = counted(1, 3, from);
            let greys: Vec<u8> =
                image.pixels().iter().copied().step_by(from as usize).collect();
            image.widen_grey();
            let expected: Vec<u8> = greys.iter().flat_map(|&g| [g, g, g]).collect();
            assert_eq!(image.pixels(), expected, "from {from} channels");
        }
    }

    #[test]
    fn the_first_channel_is_every_third_byte() {
        let mut image = counted(2, 2, 3);
        image.keep_first_channel();
        assert_eq!((image.channels(), image.pixels()), (1, &[0, 3, 6, 9][..]));
    }
}
