//! Where the pixels of a row lie in the image: a run of them at a time.
//!
//! Loops over arrays that compilers make vectors of, for any level. Nothing here looks at a
//! pixel. Read `curve.rs` next.

use bothends_core::recipe::Size;
use bothends_core::recipe::step::{Fill, Map};

use super::fill_pixel;
use crate::image::fill;

/// Pixels of a run at most.
pub(super) const N: usize = 64;

/// Fraction bits of a point.
pub(super) const FRACTION_BITS: u32 = 14;

/// Longest side of an image: what comes after is outside. (No decoder here makes such images.)
const MAX_SIDE: usize = (1 << (31 - FRACTION_BITS)) - 1;

/// A whole pixel in fractions.
pub(super) const ONE: i32 = 1 << FRACTION_BITS;

/// 0, 1, 2, …
static STEPS: [f64; N] = {
    let mut steps = [0.0; N];
    let mut n = 1;
    while n < N {
        steps[n] = steps[n - 1] + 1.0;
        n += 1;
    }
    steps
};

/// For the pixels of a run of the result, points of the image.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Points {
    /// Columns and rows, from the centre of the first pixel on, in units of 1/[`ONE`]. A point
    /// outside is that of the second pixel, which has its neighbours where there are any.
    pub(super) x: [i32; N],
    pub(super) y: [i32; N],
    is_inside: [bool; N],
}

/// How many points of a run lie inside the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    Nothing,
    Part,
    All,
}

impl Points {
    /// To be found.
    pub(super) const NONE: Self = Self { x: [0; N], y: [0; N], is_inside: [false; N] };

    /// Finds the points of `run` in an image of `size` (columns, rows).
    #[inline(always)]
    pub(super) fn find(&mut self, map: &Map, size: [usize; 2], run: Run) -> Seen {
        let Self { x: xs, y: ys, is_inside } = self;
        match ends(map, size, run) {
            Seen::Nothing => Seen::Nothing,
            Seen::All => {
                each(map, run, |n, x, y| {
                    (xs[n], ys[n]) = (units(x), units(y));
                });
                Seen::All
            }
            Seen::Part => {
                let contains = area(size);
                each(map, run, |n, x, y| {
                    is_inside[n] = contains(x, y);
                    let (x, y) = if is_inside[n] { (x, y) } else { (1.5, 1.5) };
                    (xs[n], ys[n]) = (units(x), units(y));
                });
                seen(is_inside, run.n_pixels)
            }
        }
    }

    /// As [`Self::find`], but in whole pixels: those that the points lie in. A point outside
    /// is that of the first.
    #[inline(always)]
    pub(super) fn find_pixels(&mut self, map: &Map, size: [usize; 2], run: Run) -> Seen {
        let Self { x: xs, y: ys, is_inside } = self;
        let contains = area(size);
        each(map, run, |n, x, y| {
            is_inside[n] = contains(x, y);
            let (x, y) = if is_inside[n] { (x, y) } else { (0.0, 0.0) };
            (xs[n], ys[n]) = (integer(x.floor()), integer(y.floor()));
        });
        seen(is_inside, run.n_pixels)
    }

    /// Takes pixels, as [`Self::find_pixels`] finds them, from `pixel`. It is known what is seen,
    /// or which part of it is looked up.
    #[inline(always)]
    pub(super) fn take_pixels(
        &mut self,
        (seen_at_ends, size): (Seen, [usize; 2]),
        n_pixels: usize,
        pixel: impl Fn(i32) -> [i32; 2],
    ) -> Seen {
        let places = self.x.iter_mut().zip(&mut self.y);
        match seen_at_ends {
            Seen::Nothing => Seen::Nothing,
            Seen::All => {
                for (n, (to_x, to_y)) in (0..).zip(places) {
                    [*to_x, *to_y] = pixel(n);
                }
                Seen::All
            }
            Seen::Part => {
                let [width, height] =
                    size.map(|side| u32::try_from(side).unwrap_or(u32::MAX));
                for (n, ((to_x, to_y), is_inside)) in
                    (0..).zip(places.zip(&mut self.is_inside))
                {
                    let [x, y] = pixel(n);
                    // What is below 0 is far past the end.
                    *is_inside =
                        (x.cast_unsigned() < width) & (y.cast_unsigned() < height);
                    (*to_x, *to_y) = if *is_inside { (x, y) } else { (0, 0) };
                }
                seen(&mut self.is_inside, n_pixels)
            }
        }
    }

    /// Fills those pixels of a run whose points lie outside.
    pub(super) fn fill_outside(
        &self,
        seen: Seen,
        out: &mut [u8],
        channels: usize,
        value: Fill,
    ) {
        match seen {
            Seen::Nothing => fill(out, channels, value),
            Seen::Part => {
                let pixels = out.chunks_exact_mut(channels).zip(&self.is_inside);
                for (pixel, _) in pixels.filter(|(_, is_inside)| !**is_inside) {
                    fill_pixel(pixel, value);
                }
            }
            Seen::All => {}
        }
    }
}

/// Whether points lie inside an image of `size` (columns, rows).
#[inline(always)]
fn area(size: [usize; 2]) -> impl Fn(f64, f64) -> bool {
    let [width, height] = size.map(|side| side.min(MAX_SIDE) as f64);
    move |x, y| (x >= 0.0) & (x < width) & (y >= 0.0) & (y < height)
}

/// As [`between`], of an affine map: its points are in order, rounded as they are.
#[inline(always)]
fn ends(map: &Map, size: [usize; 2], run: Run) -> Seen {
    let Map::Affine(map) = *map else { return Seen::Part };
    let [column, row] = run.first;
    let at = |column: usize| affine(map, centre(column), centre(row));
    let sides = size.map(|side| side.min(MAX_SIDE) as f64);
    between(at(column), at(column + run.n_pixels - 1), sides)
}

/// What a first and a last point, with points in order between them, say of all these.
#[inline(always)]
pub(super) fn between(first: [f64; 2], last: [f64; 2], sides: [f64; 2]) -> Seen {
    let mut seen = Seen::All;
    for axis in 0..2 {
        let (ends, side) = ([first[axis], last[axis]], sides[axis]);
        if ends.iter().all(|&at| at < 0.0) || ends.iter().all(|&at| at >= side) {
            return Seen::Nothing;
        }
        if !ends.iter().all(|at| (0.0..side).contains(at)) {
            seen = Seen::Part;
        }
    }
    seen
}

/// How many of the first `n_pixels` are inside; of the others none.
#[inline(always)]
fn seen(is_inside: &mut [bool; N], n_pixels: usize) -> Seen {
    is_inside[n_pixels..].fill(false);
    let n_inside: u8 = is_inside.iter().map(|&is_inside| u8::from(is_inside)).sum();
    match usize::from(n_inside) {
        0 => Seen::Nothing,
        n if n == n_pixels => Seen::All,
        _ => Seen::Part,
    }
}

/// Calls `put` with [`N`] numbers from 0 on and the points of the run's pixels of these numbers;
/// after the last pixel it is that one's point again.
#[inline(always)]
fn each(map: &Map, run: Run, mut put: impl FnMut(usize, f64, f64)) {
    let [column, y] = run.first.map(centre);
    let last = run.n_pixels as f64 - 1.0;
    // (Not `min`, which asks for what is no number.)
    match *map {
        Map::Affine(map) => {
            for (n, &step) in STEPS.iter().enumerate() {
                let step = if step < last { step } else { last };
                let [at_x, at_y] = affine(map, column + step, y);
                put(n, at_x, at_y);
            }
        }
        Map::Perspective([a, b, c, d, e, f, g, h]) => {
            for (n, &step) in STEPS.iter().enumerate() {
                let step = if step < last { step } else { last };
                let x = column + step;
                let w = g * x + h * y + 1.0;
                put(n, (a * x + b * y + c) / w, (d * x + e * y + f) / w);
            }
        }
    }
}

#[inline(always)]
fn affine([a, b, c, d, e, f]: [f64; 6], x: f64, y: f64) -> [f64; 2] {
    [a * x + b * y + c, d * x + e * y + f]
}

/// Where a pixel's centre lies.
#[inline(always)]
fn centre(pixel: usize) -> f64 {
    pixel as f64 + 0.5
}

/// A coordinate less half a pixel in units of 1/[`ONE`], rounded to nearest, of two even to the even.
#[inline(always)]
fn units(at: f64) -> i32 {
    integer(at * f64::from(ONE) - f64::from(ONE / 2))
}

/// A number of 32 bits, rounded to nearest, of two even to the even. (No `as`: it looks for
/// numbers that are too large, one by one.)
#[expect(clippy::cast_possible_truncation, reason = "it is meant")]
#[inline(always)]
fn integer(number: f64) -> i32 {
    // From 2^52 on an f64 has no fraction, so a sum is rounded, and its last bits are the number.
    const BIG: f64 = 1.5 * (1_u64 << 52) as f64;
    ((number + BIG).to_bits() as u32).cast_signed()
}

/// Up to [`N`] pixels of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    /// Column and row of the first pixel.
    pub(super) first: [usize; 2],
    /// Its place among all pixels of the image.
    pub(super) start: usize,
    pub(super) n_pixels: usize,
}

/// The runs of an image, from the top.
pub(super) fn runs(image: Size) -> impl Iterator<Item = Run> {
    let [width, height] = [image.width, image.height].map(|side| side as usize);
    let run = move |row: usize, column: usize| {
        let (first, start) = ([column, row], row * width + column);
        Run { first, start, n_pixels: N.min(width - column) }
    };
    (0..height).flat_map(move |y| (0..width).step_by(N).map(move |x| run(y, x)))
}
