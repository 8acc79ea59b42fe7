//! Crops by position: a window over an image, with padding where it extends beyond it.
//!
//! The recipe draws the position of a random window (`core::recipe`), not this file.

use bothends_core::recipe::step::{Around, Fill, Window};

use crate::image::fill;
use crate::image::{Image, View};

/// Makes `out` the window of `src`. An image without pixels has nothing around it but a fill,
/// of 0 where none is asked for.
pub fn window(src: View<'_>, window: &Window, out: &mut Image) {
    out.reshape(window.size, src.shape().channels);
    match window.around {
        _ if out.pixels().is_empty() => {}
        Around::Fill(fill) => filled(src, window, fill, out),
        _ if src.shape().is_empty() => filled(src, window, Fill::default(), out),
        Around::Edge | Around::Reflect | Around::Symmetric => repeated(src, window, out),
    }
}

/// Around the image there is one value.
fn filled(src: View<'_>, window: &Window, around: Fill, out: &mut Image) {
    let channels = src.channels();
    let row_bytes = out.width() * channels;
    let (skip, from, n_columns) = overlap(window.left, out.width(), src.width());
    let (first_row, src_row, n_rows) = overlap(window.top, out.height(), src.height());
    let (before, inside) = out.pixels_mut().split_at_mut(first_row * row_bytes);
    let (inside, after) = inside.split_at_mut(n_rows * row_bytes);
    fill(before, channels, around);
    fill(after, channels, around);
    for (dst, src) in inside.chunks_exact_mut(row_bytes).zip(src.rows().skip(src_row)) {
        let (left, dst) = dst.split_at_mut(skip * channels);
        let (dst, right) = dst.split_at_mut(n_columns * channels);
        fill(left, channels, around);
        dst.copy_from_slice(&src[from * channels..][..dst.len()]);
        fill(right, channels, around);
    }
}

/// Around the image, which has pixels, there are pixels of its own.
fn repeated(src: View<'_>, window: &Window, out: &mut Image) {
    let channels = src.channels();
    let row_bytes = out.width() * channels;
    let (skip, from, n_columns) = overlap(window.left, out.width(), src.width());
    let places = |behind: usize, start: i64, len: usize| {
        let behind = i64::try_from(behind).unwrap_or(i64::MAX);
        Places::new(window.around, start.saturating_add(behind), len)
    };
    let before = places(0, window.left, src.width());
    let behind = places(skip + n_columns, window.left, src.width());
    let rows = places(0, window.top, src.height());
    for (dst, y) in out.pixels_mut().chunks_exact_mut(row_bytes).zip(rows) {
        let src = src.row(y);
        let (left, dst) = dst.split_at_mut(skip * channels);
        let (dst, right) = dst.split_at_mut(n_columns * channels);
        dst.copy_from_slice(&src[from * channels..][..dst.len()]);
        for (pixels, places) in [(left, before), (right, behind)] {
            copy_pixels(src, places, pixels, channels);
        }
    }
}

/// Copies the pixels at `places` of a row.
fn copy_pixels(
    src: &[u8],
    places: impl Iterator<Item = usize>,
    dst: &mut [u8],
    channels: usize,
) {
    if channels == 3 {
        let (src, dst) = (src.as_chunks::<3>().0, dst.as_chunks_mut::<3>().0);
        return dst.iter_mut().zip(places).for_each(|(pixel, x)| *pixel = src[x]);
    }
    for (pixel, x) in dst.chunks_exact_mut(channels).zip(places) {
        pixel.copy_from_slice(&src[x * channels..][..channels]);
    }
}

/// Where the pixels of an axis and of what lies around it are in the image, from one on.
#[derive(Debug, Clone, Copy)]
enum Places {
    /// The nearest.
    Edge { at: i64, last: i64 },
    /// Forth, and back from `last`: what is behind the axis' end is that much less than `last`.
    Mirrored { at: i64, len: i64, last: i64, period: i64 },
}

impl Places {
    /// From `at` on, on an axis of `len` pixels, at least one.
    fn new(around: Around, at: i64, len: usize) -> Self {
        let len = i64::try_from(len).expect("an image in memory");
        let (last, period) = match around {
            Around::Fill(_) | Around::Edge => return Self::Edge { at, last: len - 1 },
            Around::Reflect => (2 * len - 2, (2 * len - 2).max(1)),
            Around::Symmetric => (2 * len - 1, 2 * len),
        };
        Self::Mirrored { at: at.rem_euclid(period), len, last, period }
    }
}

impl Iterator for Places {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let place = match self {
            Self::Edge { at, last } => {
                let place = (*at).clamp(0, *last);
                *at = at.saturating_add(1);
                place
            }
            Self::Mirrored { at, len, last, period } => {
                let place = if *at < *len { *at } else { *last - *at };
                *at = if *at + 1 == *period { 0 } else { *at + 1 };
                place
            }
        };
        usize::try_from(place).ok()
    }
}

/// Where a window of `len` pixels at `start` meets an axis of `n` pixels: how many pixels
/// of the window come before the axis, where the overlap begins on the axis, how long it is.
fn overlap(start: i64, len: usize, n: usize) -> (usize, usize, usize) {
    let before = start.checked_neg().map_or(len, |n| usize::try_from(n).unwrap_or(0));
    let before = before.min(len);
    let from = usize::try_from(start).unwrap_or(0).min(n);
    (before, from, (len - before).min(n - from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bothends_core::recipe::Size;

    fn counted(height: u32, width: u32, channels: u32) -> Image {
        let mut image = Image::default();
        let bytes = image.reshape(Size { height, width }, channels);
        bytes.iter_mut().zip(1..).for_each(|(byte, value)| *byte = value);
        image
    }

    fn seen(src: &Image, [top, left]: [i64; 2], size: [u32; 2], around: Around) -> Image {
        let [height, width] = size;
        let mut out = Image::default();
        let size = Size { height, width };
        window(src.view(), &Window { top, left, size, around }, &mut out);
        out
    }

    fn crop(top: i64, left: i64, height: u32, width: u32) -> Vec<u8> {
        let around = Around::Fill(Fill([9, 8, 7]));
        seen(&counted(2, 3, 1), [top, left], [height, width], around).pixels().to_vec()
    }

    /// One row of three pixels, 1 2 3, with five before and six behind.
    fn row(around: Around) -> Vec<u8> {
        seen(&counted(1, 3, 1), [0, -5], [1, 14], around).pixels().to_vec()
    }

    /// `numpy.pad` with 5 and 6.
    #[test]
    fn what_is_around_is_numpys() {
        assert_eq!(row(Around::Edge), [1, 1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3, 3]);
        assert_eq!(row(Around::Reflect), [2, 1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3, 2, 1]);
        assert_eq!(row(Around::Symmetric), [2, 3, 3, 2, 1, 1, 2, 3, 3, 2, 1, 1, 2, 3]);
    }

    #[test]
    fn rows_are_as_columns() {
        for around in [Around::Edge, Around::Reflect, Around::Symmetric] {
            let column = seen(&counted(3, 1, 1), [-5, 0], [14, 1], around);
            assert_eq!(column.pixels(), row(around), "{around:?}");
        }
    }

    #[test]
    fn around_one_pixel_there_is_that_pixel() {
        for around in [Around::Edge, Around::Reflect, Around::Symmetric] {
            for channels in 1..=5 {
                let all = seen(&counted(1, 1, channels), [-2, -3], [5, 6], around);
                let one: Vec<u8> = (1..).take(channels as usize).collect();
                assert_eq!(all.pixels(), one.repeat(30), "{around:?}");
            }
        }
    }

    #[test]
    fn a_fill_has_a_value_for_each_of_three_channels() {
        let fill = Around::Fill(Fill([9, 8, 7]));
        let rgb = seen(&counted(1, 1, 3), [-1, -1], [2, 3], fill);
        assert_eq!(rgb.pixels(), [9, 8, 7, 9, 8, 7, 9, 8, 7, 9, 8, 7, 1, 2, 3, 9, 8, 7]);
        assert_eq!(seen(&counted(1, 1, 2), [0, 0], [1, 2], fill).pixels(), [1, 2, 9, 9]);
    }

    #[test]
    fn far_away_and_without_pixels_there_is_something_too() {
        let fill = Around::Fill(Fill([9; 3]));
        for around in [fill, Around::Edge, Around::Reflect, Around::Symmetric] {
            for at in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX] {
                for (height, width) in [(0, 0), (0, 3), (3, 0), (2, 3)] {
                    for size in [[0, 0], [0, 2], [2, 0], [3, 4]] {
                        let image = counted(height, width, 3);
                        let out = seen(&image, [at, at], size, around);
                        assert_eq!(out.pixels().len(), (size[0] * size[1] * 3) as usize);
                    }
                }
            }
        }
        assert_eq!(seen(&counted(0, 0, 1), [0, 0], [1, 1], Around::Edge).pixels(), [0]);
    }

    #[test]
    fn a_window_inside_is_a_crop() {
        assert_eq!(crop(0, 0, 2, 3), [1, 2, 3, 4, 5, 6]);
        assert_eq!(crop(1, 1, 1, 2), [5, 6]);
    }

    #[test]
    fn a_window_over_the_edge_is_filled() {
        assert_eq!(crop(-1, -1, 2, 2), [9, 9, 9, 1]);
        assert_eq!(crop(1, 2, 2, 2), [6, 9, 9, 9]);
        assert_eq!(crop(-1, -1, 4, 5).iter().filter(|&&v| v == 9).count(), 20 - 6);
        for (top, left) in [(2, 0), (0, 3), (-2, 0), (0, -2), (50, 50), (-50, -50)] {
            assert_eq!(crop(top, left, 2, 2), [9, 9, 9, 9], "{top} {left}");
        }
    }
}
