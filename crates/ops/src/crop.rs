//! Crops by position: a window laid over an image, with a fill where it reaches outside.
//!
//! Where a random window lies is drawn by the recipe (`core::recipe`), not here.

use crate::image::{Image, View};

/// Fills `out` with the window of its size whose first pixel is at `[row, column]` of `src`;
/// either may be negative. What lies outside `src` becomes `fill`. `out` has the channels
/// of `src`.
pub fn window(src: View<'_>, [top, left]: [i64; 2], fill: u8, out: &mut Image) {
    debug_assert_eq!(src.channels(), out.channels(), "a window keeps the channels");
    let channels = src.channels();
    let row_bytes = (out.width() * channels).max(1);
    let (skip, from, n_columns) = overlap(left, out.width(), src.width());
    let (first_row, src_row, n_rows) = overlap(top, out.height(), src.height());
    let pixels = out.pixels_mut();
    pixels.fill(fill);
    let rows = pixels.chunks_exact_mut(row_bytes).skip(first_row);
    for (dst, src) in rows.zip(src.rows().skip(src_row).take(n_rows)) {
        dst[skip * channels..][..n_columns * channels]
            .copy_from_slice(&src[from * channels..][..n_columns * channels]);
    }
}

/// Where a window of `len` pixels at `start` meets an axis of `n` pixels: how many pixels
/// of the window come before the axis, where the overlap begins on the axis, how long it is.
fn overlap(start: i64, len: usize, n: usize) -> (usize, usize, usize) {
    let before = usize::try_from(-start).unwrap_or(0).min(len);
    let from = usize::try_from(start).unwrap_or(0).min(n);
    (before, from, (len - before).min(n - from))
}

/// Where torchvision's `center_crop` puts a window of `len` pixels on an axis of `n`:
/// half the rest, a half rounded to even as Python's `round` does; and where the window is
/// longer, half the padding, rounded down.
#[must_use]
pub fn center(n: u32, len: u32) -> i64 {
    if len > n {
        return -i64::from((len - n) / 2);
    }
    let half = (n - len) / 2;
    let rounds_up = (n - len) % 2 == 1 && half % 2 == 1;
    i64::from(half) + i64::from(rounds_up)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bothends_core::recipe::Size;

    fn crop(top: i64, left: i64, height: u32, width: u32) -> Vec<u8> {
        let mut src = Image::default();
        src.reshape(Size { height: 2, width: 3 }, 1).copy_from_slice(&[1, 2, 3, 4, 5, 6]);
        let mut out = Image::default();
        out.reshape(Size { height, width }, 1);
        window(src.view(), [top, left], 9, &mut out);
        out.pixels().to_vec()
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

    /// `int(round((n - len) / 2.0))` and `-((len - n) // 2)`, from Python.
    #[test]
    fn the_centre_is_torchvisions() {
        for (n, len, start) in [
            (256, 224, 16),
            (225, 224, 0),
            (227, 224, 2),
            (229, 224, 2),
            (231, 224, 4),
            (224, 224, 0),
            (223, 224, 0),
            (222, 224, -1),
            (221, 224, -1),
            (1, 224, -111),
        ] {
            assert_eq!(center(n, len), start, "{len} on {n}");
        }
    }
}
