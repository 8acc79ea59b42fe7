//! What a JPEG of some quality preserves of an image: Pillow's `save` and `open`, bit for bit.
//!
//! The file itself is never made, because coding and decoding it would give back the same coefficients.
//! Pixels become luma and two chroma planes of half the resolution, these become quantised coefficients
//! (`jpeg/transform/forward.rs`), and from there on it is what a decoder does. Nothing here draws a quality
//! (the recipe does).

use crate::colour::{deinterleave, interleave, ycc_to_rgb};
use crate::image::Image;
use crate::jpeg::Plane;
use crate::jpeg::block::{BlockRow, RowBlocks};
use crate::jpeg::transform::forward::{Divisors, coefficients, halve, rgb_to_ycc, steps};
use crate::jpeg::transform::idct::Steps;
use crate::jpeg::transform::idct::portable::LANES;
use crate::jpeg::upsample::Upsampler;
use crate::kernels::Level;

/// Rows and columns of a block.
const BLOCK: usize = 8;

/// The steps of a table, for both directions.
type Table = (Divisors, Steps);

/// Leaves of images what a JPEG keeps. Keeps its memory from image to image.
#[derive(Debug, Default)]
pub(super) struct Artefacts {
    level: Level,
    /// Red, green and blue of a row of pixels.
    rgb: [Vec<u8>; 3],
    /// Cb of two rows of pixels, and Cr.
    pairs: [[Vec<u8>; 2]; 2],
    /// Samples as they go in: 16 rows of Y, eight of Cb, eight of Cr.
    strips: [Vec<u8>; 3],
    blocks: RowBlocks,
    /// Samples as they come out.
    planes: [Plane; 3],
    upsamplers: [Upsampler; 3],
}

impl Artefacts {
    /// Uses the kernels of `level`.
    pub(super) fn new(level: Level) -> Self {
        Self { level, ..Self::default() }
    }

    /// Makes of `image` what a JPEG of `quality`, 1 to 100, keeps of it. Images of other than one
    /// or three channels stay as they are. Allocates only when the image is larger than ever.
    pub(super) fn artefact(&mut self, image: &mut Image, quality: u8) {
        if image.pixels().is_empty() {
            return;
        }
        let tables =
            steps(quality).map(|steps| (Divisors::new(&steps), Steps::new(&steps)));
        match image.channels() {
            1 => self.grey(image, &tables[0]),
            3 => self.colour(image, &tables),
            _ => {}
        }
    }

    /// Gives memory back if it is more than `keep_bytes`; the bytes that it keeps.
    pub(super) fn release_above(&mut self, keep_bytes: usize) -> usize {
        self.planes.iter_mut().map(|plane| plane.release_above(keep_bytes)).sum()
    }

    fn grey(&mut self, image: &mut Image, table: &Table) {
        let (width, height) = (image.width(), image.height());
        let stride = width.next_multiple_of(LANES);
        let (strip, plane) = (&mut self.strips[0], &mut self.planes[0]);
        strip.resize(BLOCK * stride, 0);
        plane.set_whole([width, height], [1, 1]);
        for (nth, top) in (0..height).step_by(BLOCK).enumerate() {
            for (y, row) in (top..).zip(strip.chunks_exact_mut(stride)) {
                let pixels = &image.pixels()[y.min(height - 1) * width..][..width];
                row[..width].copy_from_slice(pixels);
                repeat_last(row, width);
            }
            through(self.level, (strip, &mut self.blocks), table, (plane, nth));
        }
        for (y, row) in image.pixels_mut().chunks_exact_mut(width).enumerate() {
            row.copy_from_slice(plane.row(y, 0..width));
        }
    }

    fn colour(&mut self, image: &mut Image, tables: &[Table; 2]) {
        let (width, height) = (image.width(), image.height());
        let half = [width.div_ceil(2), height.div_ceil(2)];
        self.planes[0].set_whole([width, height], [1, 1]);
        self.planes[1].set_whole(half, [2, 2]);
        self.planes[2].set_whole(half, [2, 2]);
        for (nth, top) in (0..half[1]).step_by(BLOCK).enumerate() {
            self.convert(image, top);
            let Self { level, strips: [y, cb, cr], blocks, planes, .. } = self;
            let (upper, lower) = y.split_at(y.len() / 2);
            let [plane_y, plane_cb, plane_cr] = planes;
            through(*level, (upper, blocks), &tables[0], (plane_y, 2 * nth));
            if 2 * top + BLOCK < height {
                through(*level, (lower, blocks), &tables[0], (plane_y, 2 * nth + 1));
            }
            through(*level, (cb, blocks), &tables[1], (plane_cb, nth));
            through(*level, (cr, blocks), &tables[1], (plane_cr, nth));
        }
        let Self {
            level, rgb: [r, g, b], planes, upsamplers: [of_y, of_cb, of_cr], ..
        } = self;
        for (y, pixels) in image.pixels_mut().chunks_exact_mut(3 * width).enumerate() {
            let ycc = [
                of_y.row(*level, &planes[0], y, 0..width),
                of_cb.row(*level, &planes[1], y, 0..width),
                of_cr.row(*level, &planes[2], y, 0..width),
            ];
            ycc_to_rgb(*level, ycc, [r, g, b]);
            interleave(*level, [r, g, b], pixels);
        }
    }

    /// Fills the strips with what is coded of the image from row `top` of Cb and Cr on. Beyond the
    /// last row and the last column of a plane they go on.
    fn convert(&mut self, image: &Image, top: usize) {
        let (width, height) = (image.width(), image.height());
        let stride = width.next_multiple_of(LANES);
        let half_stride = width.div_ceil(2).next_multiple_of(LANES);
        let Self { level, rgb: [r, g, b], pairs: [pair_cb, pair_cr], strips, .. } = self;
        let [strip_y, strip_cb, strip_cr] = strips;
        for row in [&mut *r, g, b] {
            row.resize(width, 0);
        }
        pair_cb
            .iter_mut()
            .chain(&mut *pair_cr)
            .for_each(|row| row.resize(2 * half_stride, 0));
        strip_y.resize(2 * BLOCK * stride, 0);
        for strip in [&mut *strip_cb, strip_cr] {
            strip.resize(BLOCK * half_stride, 0);
        }
        let mut rows = (2 * top..).zip(strip_y.chunks_exact_mut(stride));
        for nth in 0..BLOCK {
            for ((cb, cr), (y, to_y)) in
                pair_cb.iter_mut().zip(&mut *pair_cr).zip(&mut rows)
            {
                let pixels =
                    &image.pixels()[y.min(height - 1) * 3 * width..][..3 * width];
                deinterleave(*level, pixels, [r, g, b]);
                let ycc = [&mut to_y[..width], &mut cb[..width], &mut cr[..width]];
                rgb_to_ycc(*level, [r, g, b], ycc);
                for row in [to_y, cb, cr] {
                    repeat_last(row, width);
                }
            }
            let place = nth * half_stride;
            for (strip, [upper, lower]) in
                [(&mut *strip_cb, &*pair_cb), (strip_cr, pair_cr)]
            {
                if 2 * (top + nth) < height {
                    halve(*level, [upper, lower], &mut strip[place..][..half_stride]);
                } else {
                    strip.copy_within(place - half_stride..place, place);
                }
            }
        }
    }
}

/// Codes and decodes eight rows of samples into block row `nth` of a plane.
fn through(
    level: Level,
    (samples, blocks): (&[u8], &mut RowBlocks),
    (divisors, steps): &Table,
    (plane, nth): (&mut Plane, usize),
) {
    let n_blocks = plane.size()[0].div_ceil(BLOCK);
    coefficients(level, (samples, n_blocks), divisors, blocks);
    plane.transform(level, nth, BlockRow::of_one(blocks, n_blocks), steps);
}

/// After the first `n` samples the last of them goes on.
fn repeat_last(row: &mut [u8], n: usize) {
    let (samples, rest) = row.split_at_mut(n);
    rest.fill(samples[n - 1]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use bothends_core::recipe::Size;

    fn noise(height: u32, width: u32, channels: u32) -> Image {
        let mut image = Image::default();
        let mut state = height * 31 + width * 7 + channels;
        for (nth, byte) in (0_u32..).zip(image.reshape(Size { height, width }, channels))
        {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = u8::try_from((nth / 3 % 97 + (state >> 25)) % 256).unwrap();
        }
        image
    }

    fn after(level: Level, image: &Image, quality: u8) -> Image {
        let mut image = image.clone();
        Artefacts::new(level).artefact(&mut image, quality);
        image
    }

    #[test]
    fn every_level_is_the_scalar_one() {
        for (height, width) in [(1, 1), (2, 3), (16, 16), (17, 33), (9, 130), (70, 64)] {
            for channels in [1, 3] {
                let image = noise(height, width, channels);
                for quality in [1, 10, 50, 75, 95, 100] {
                    let meaning = after(Level::Scalar, &image, quality);
                    for level in Level::available() {
                        let got = after(level, &image, quality);
                        assert!(got == meaning, "{} {height} {width}", level.name());
                    }
                }
            }
        }
    }

    #[test]
    fn one_grey_is_kept_and_other_channels_are_left_alone() {
        let mut grey = Image::default();
        grey.reshape(Size { height: 21, width: 35 }, 3).fill(128);
        assert_eq!(after(Level::best(), &grey, 1), grey);
        for channels in [2, 4] {
            let image = noise(9, 9, channels);
            assert_eq!(after(Level::best(), &image, 1), image);
        }
    }

    #[test]
    fn the_best_quality_keeps_grey_within_one() {
        let image = noise(40, 50, 1);
        let kept = after(Level::best(), &image, 100);
        for (&kept, &value) in kept.pixels().iter().zip(image.pixels()) {
            assert!(kept.abs_diff(value) <= 1, "{value} became {kept}");
        }
        assert_ne!(after(Level::best(), &image, 10), image);
    }

    #[test]
    fn memory_is_used_again_and_given_back() {
        let mut artefacts = Artefacts::new(Level::best());
        for (height, width) in [(30, 40), (5, 7), (64, 100)] {
            let (mut image, fresh) = (noise(height, width, 3), noise(height, width, 3));
            artefacts.artefact(&mut image, 30);
            assert_eq!(image, after(Level::best(), &fresh, 30));
            artefacts.release_above(0);
        }
        artefacts.artefact(&mut Image::default(), 30);
    }
}
