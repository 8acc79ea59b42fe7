//! The nearest pixel: Pillow's choice, bit for bit.
//!
//! Pillow (Geometry.c) has three ways to step through the image, which round differently. A
//! perspective map is computed for every pixel. An affine map is stepped in whole numbers with
//! 16 fraction bits where the corners of the result lie within 32768 pixels of the image's
//! corner; in `f64`, each step added to the sum of those before, where they do not, and where
//! the map only scales and moves. Nothing here blends.

use std::array::from_fn;

use bothends_core::recipe::step::{Map, Warp};

use super::blend::{RGB, window};
use super::fill_pixel;
use super::points::{N, Points, Run, Seen, between, runs};
#[cfg(target_arch = "x86_64")]
use super::x86::{avx2, avx512};
use crate::geometry::gather::Gather;
use crate::image::fill;
use crate::image::{Image, View};
use crate::kernels::{Level, x86_kernel};

/// Makes `out`. Both images have pixels.
pub(super) fn warp(
    level: Level,
    gather: &mut Gather,
    src: View<'_>,
    warp: &Warp,
    out: &mut Image,
) {
    let stepping = match warp.map {
        Map::Affine(map) if map[1] == 0.0 && map[3] == 0.0 => {
            return scaled(gather, src, (map, warp), out);
        }
        Map::Affine(map) => match Fixed::new(map, [out.width(), out.height()]) {
            Some(fixed) => Stepping::Fixed(fixed),
            None => return stepped(src, (map, warp), out),
        },
        Map::Perspective(_) => Stepping::Computed(warp.map),
    };
    x86_kernel!(level, nearest(src, (&stepping, warp), out), runs_of);
}

/// How the places of a block of pixels are found.
#[derive(Debug)]
pub(super) enum Stepping {
    Fixed(Fixed),
    Computed(Map),
}

/// Looks pixels up, in runs of a row.
#[inline(always)]
pub(super) fn runs_of(
    src: View<'_>,
    (stepping, warp): (&Stepping, &Warp),
    out: &mut Image,
) {
    let (channels, size) = (src.channels(), [src.width(), src.height()]);
    let mut points = Points::NONE;
    for run in runs(out.size()) {
        // What is written behind the run is written again by the next one.
        let out = &mut out.pixels_mut()[run.start * channels..];
        let seen = match stepping {
            Stepping::Fixed(fixed) => fixed.find(size, run, &mut points),
            Stepping::Computed(map) => points.find_pixels(map, size, run),
        };
        if seen != Seen::Nothing {
            copy(src, &points, run.n_pixels, out);
        }
        let out = &mut out[..run.n_pixels * channels];
        points.fill_outside(seen, out, channels, warp.fill);
    }
}

/// Copies the pixels at `points` to the first `n_pixels` of `out`.
#[inline(always)]
fn copy(src: View<'_>, Points { x, y, .. }: &Points, n_pixels: usize, out: &mut [u8]) {
    /// Pixels that are copied together.
    const TOGETHER: usize = 16;
    let (bytes, stride) = src.bytes();
    let channels = src.channels();
    let (RGB, Ok(stride), Ok(_)) =
        (channels, u32::try_from(stride), u32::try_from(bytes.len()))
    else {
        let pixels = out.chunks_exact_mut(channels).take(n_pixels);
        for (pixel, (x, y)) in pixels.zip(x.iter().zip(y)) {
            let [x, y] = [x, y].map(|place| place.cast_unsigned() as usize);
            pixel.copy_from_slice(&src.row(y)[x * channels..][..channels]);
        }
        return;
    };
    let mut at = [0; N];
    for (at, (x, y)) in at.iter_mut().zip(x.iter().zip(y)) {
        *at = y.cast_unsigned().wrapping_mul(stride) + x.cast_unsigned().wrapping_mul(3);
    }
    let (groups, _) = at.as_chunks::<TOGETHER>();
    for (nth, at) in groups.iter().enumerate().take(n_pixels.div_ceil(TOGETHER)) {
        let out = &mut out[nth * TOGETHER * RGB..];
        if let Some(out) = out.first_chunk_mut::<{ TOGETHER * RGB + 1 }>() {
            // Four bytes are moved more easily than three; the next pixel covers the fourth.
            for (n, &at) in at.iter().enumerate() {
                let pixel: [u8; RGB + 1] = window(bytes, at as usize);
                out[RGB * n..][..RGB + 1].copy_from_slice(&pixel);
            }
        } else {
            for (out, &at) in out.chunks_exact_mut(RGB).zip(at) {
                out.copy_from_slice(&bytes[at as usize..][..RGB]);
            }
        }
    }
}

/// An affine map in steps of whole numbers with 16 fraction bits: for x and y, what a column
/// adds, what a row adds, and where the first pixel's centre lies. Sums wrap.
#[derive(Debug)]
pub(super) struct Fixed([[i32; 3]; 2]);

impl Fixed {
    /// `None` where a corner of the result, of `size` (columns, rows), lies too far out.
    fn new(map: [f64; 6], [width, height]: [usize; 2]) -> Option<Self> {
        let [a, b, c, d, e, f] = map;
        let (width, height) = (width as f64, height as f64);
        let corners = [(0.0, 0.0), (width, height), (0.0, height), (width, 0.0)];
        let is_near = |[a, b, c]: [f64; 3]| {
            corners.iter().all(|(x, y)| (x * a + y * b + c).abs() < 32768.0)
        };
        let axes = [[a, b, c], [d, e, f]];
        let fixed = |value: f64| whole((value * 65536.0 + 0.5).floor());
        let steps =
            |[a, b, c]: [f64; 3]| [fixed(a), fixed(b), fixed(c + a * 0.5 + b * 0.5)];
        axes.into_iter().all(is_near).then(|| Self(axes.map(steps)))
    }

    /// Finds the pixels of `run` in an image of `size` (columns, rows).
    #[inline(always)]
    fn find(&self, size: [usize; 2], run: Run, points: &mut Points) -> Seen {
        let [column, row] = run.first.map(|n| i32::try_from(n).unwrap_or(i32::MAX));
        let starts = self.0.map(|[by_column, by_row, start]| {
            let down = start.wrapping_add(by_row.wrapping_mul(row));
            down.wrapping_add(by_column.wrapping_mul(column))
        });
        let steps = self.0.map(|[by_column, ..]| by_column);
        // Sums that do not wrap, to see from those at the ends that none between does.
        let behind = |n: usize| {
            from_fn(|axis| f64::from(starts[axis]) + f64::from(steps[axis]) * n as f64)
        };
        let sides = size.map(|side| side.min(1 << 15) as f64 * 65536.0);
        let seen = between(behind(0), behind(run.n_pixels - 1), sides);
        let last = i32::try_from(run.n_pixels - 1).unwrap_or(i32::MAX);
        points.take_pixels((seen, size), run.n_pixels, |n| {
            // After the last pixel it is that one again.
            let n = n.min(last);
            let at = |axis: usize| starts[axis].wrapping_add(steps[axis].wrapping_mul(n));
            [at(0) >> 16, at(1) >> 16]
        })
    }
}

/// An affine map that only scales and moves: the columns are the same for all rows.
fn scaled(
    gather: &mut Gather,
    src: View<'_>,
    (map, warp): ([f64; 6], &Warp),
    out: &mut Image,
) {
    let (channels, width) = (out.channels(), out.width());
    let ([x_step, .., y_step, _], [x, y]) = (map, start(map));
    let all = steps(x, x_step).take(width).map(|x| place(x, src.width()));
    let n_before = all.clone().take_while(Option::is_none).count();
    // An image's side is 16 bits.
    let columns = all.skip(n_before).map_while(|x| u32::try_from(x?).ok());
    gather.set(src.width(), channels, columns);
    let places = &gather.columns;
    let inside = n_before * channels..(n_before + places.len()) * channels;
    let (first, n_bytes) = (places.first().copied().unwrap_or(0), inside.len());
    let is_run = (first..).zip(places).all(|(next, &x)| next == x);
    let rows = out.pixels_mut().chunks_exact_mut(width * channels);
    for (row, y) in rows.zip(steps(y, y_step)) {
        let Some(y) = place(y, src.height()).filter(|_| !inside.is_empty()) else {
            fill(row, channels, warp.fill);
            continue;
        };
        fill(&mut row[..inside.start], channels, warp.fill);
        fill(&mut row[inside.end..], channels, warp.fill);
        let (from, pixels) = (src.row(y), &mut row[inside.clone()]);
        if is_run {
            pixels.copy_from_slice(&from[first as usize * channels..][..n_bytes]);
            continue;
        }
        gather.take(from, pixels);
    }
}

/// Any other affine map.
fn stepped(src: View<'_>, (map, warp): ([f64; 6], &Warp), out: &mut Image) {
    let (channels, row_bytes) = (out.channels(), out.width() * out.channels());
    let [a, b, _, d, e, _] = map;
    let [x, y] = start(map);
    let firsts = steps(x, b).zip(steps(y, e));
    for (row, (x, y)) in out.pixels_mut().chunks_exact_mut(row_bytes).zip(firsts) {
        let pixels = row.chunks_exact_mut(channels);
        for (pixel, (x, y)) in pixels.zip(steps(x, a).zip(steps(y, d))) {
            match (place(x, src.width()), place(y, src.height())) {
                (Some(x), Some(y)) => {
                    pixel.copy_from_slice(&src.row(y)[x * channels..][..channels]);
                }
                _ => fill_pixel(pixel, warp.fill),
            }
        }
    }
}

/// The point of the first pixel's centre.
fn start([a, b, c, d, e, f]: [f64; 6]) -> [f64; 2] {
    [c + b * 0.5 + a * 0.5, f + e * 0.5 + d * 0.5]
}

/// `first`, and forever `step` more.
fn steps(first: f64, step: f64) -> impl Iterator<Item = f64> + Clone {
    std::iter::successors(Some(first), move |at| Some(at + step))
}

/// The pixel that a coordinate lies in, of `len`.
fn place(at: f64, len: usize) -> Option<usize> {
    #[expect(clippy::cast_possible_truncation, reason = "a fraction is dropped")]
    #[expect(clippy::cast_sign_loss, reason = "it has none")]
    (at >= 0.0 && at < len as f64).then_some(at as usize)
}

/// The whole part.
#[expect(clippy::cast_possible_truncation, reason = "what is too large is not used")]
#[inline(always)]
fn whole(value: f64) -> i32 {
    value as i32
}
