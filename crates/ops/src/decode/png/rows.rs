//! From inflated bytes to pixels: filters taken back (PNG, third edition, §9) and rows put in place.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "sides are at most 65,500 after the check of the size, and pixels have 8 bytes at most"
)]

use super::super::inflate::Sink;
use super::super::samples::{Number, Samples};
use super::chunks::Chunks;

/// First column, first row, and steps of the passes of an interlaced image (§8.1).
const ADAM7: [[usize; 4]; 7] = [
    [0, 0, 8, 8],
    [4, 0, 8, 8],
    [0, 4, 4, 8],
    [2, 0, 4, 4],
    [0, 2, 2, 4],
    [1, 0, 2, 2],
    [0, 1, 1, 2],
];

/// What the rows of an image are like.
#[derive(Debug)]
pub(super) struct Pixels {
    samples: Samples,
    /// Pixels of a row of the whole image.
    stride: usize,
    /// Where the rows go to: left, top, width, height.
    frame: [usize; 4],
    passes: Vec<[usize; 4]>,
}

impl Pixels {
    /// Those of an image whose size has been checked.
    pub(super) fn of(chunks: &Chunks<'_>) -> Result<Self, &'static str> {
        let (depth, color) = chunks.kind()?;
        let samples = match (color, depth) {
            (0, 16) => Samples::Number(Number::U16Be),
            (0, depth) => Samples::grey(depth.into()),
            (2, 16) => Samples::Bytes { step: 6, at: [0, 2, 4] },
            (2, _) => Samples::Bytes { step: 3, at: [0, 1, 2] },
            (3, depth) => Samples::palette(depth.into(), chunks.palette()?.as_chunks().0),
            (4, 16) => Samples::Bytes { step: 4, at: [0; 3] },
            (4, _) => Samples::Bytes { step: 2, at: [0; 3] },
            (_, 16) => Samples::Bytes { step: 8, at: [0, 2, 4] },
            _ => Samples::Bytes { step: 4, at: [0, 1, 2] },
        };
        let mut frame = chunks.frame().map(|pixels| pixels as usize);
        if frame[2] == 0 || frame[3] == 0 {
            return Err("a frame without pixels");
        }
        // A header after the frame's may have made the image smaller.
        let [width, height] = chunks.size().map(|pixels| pixels as usize);
        let [left, top, across, down] = frame;
        if left.saturating_add(across) > width || top.saturating_add(down) > height {
            return Err("a frame lies outside the image");
        }
        let mut passes = vec![[0, 0, 1, 1]];
        if chunks.is_interlaced() {
            // Pillow does not move an interlaced frame to its place.
            frame[..2].fill(0);
            passes = ADAM7.to_vec();
            passes.retain(|pass| pass[0] < frame[2] && pass[1] < frame[3]);
        }
        Ok(Self { samples, stride: width, frame, passes })
    }

    /// Bytes of all rows, each with its filter.
    pub(super) fn n_bytes(&self) -> u64 {
        let bytes = self.passes.iter().map(|pass| {
            let n_rows = (self.frame[3] - pass[1]).div_ceil(pass[3]);
            n_rows as u64 * (self.row_bytes(pass) as u64 + 1)
        });
        bytes.sum()
    }

    fn width(&self, pass: &[usize; 4]) -> usize {
        (self.frame[2] - pass[0]).div_ceil(pass[2])
    }

    fn row_bytes(&self, pass: &[usize; 4]) -> usize {
        self.samples.row_bytes(self.width(pass))
    }
}

/// Takes inflated bytes and puts rows where they belong.
#[derive(Debug)]
pub(super) struct Rows<'a> {
    pixels: &'a Pixels,
    out: &'a mut [u8],
    pass: usize,
    y: usize,
    /// The row in the making with its filter before it, and the one above.
    row: Vec<u8>,
    above: Vec<u8>,
    filled: usize,
    n_beyond: usize,
    /// A row of a pass as RGB.
    spread: Vec<u8>,
}

impl<'a> Rows<'a> {
    /// Rows of an image that `out` has room for.
    pub(super) fn new(pixels: &'a Pixels, out: &'a mut [u8]) -> Self {
        let (pass, y) = (0, pixels.passes[0][1]);
        let n = pixels.row_bytes(&pixels.passes[0]) + 1;
        let (row, above) = (vec![0; n], vec![0; n]);
        let spread = Vec::new();
        Self { pixels, out, pass, y, row, above, filled: 0, n_beyond: 0, spread }
    }

    /// Whether every row is in place.
    pub(super) fn are_done(&self) -> bool {
        self.pass == self.pixels.passes.len()
    }

    /// Whether some rows are in place, and none is half there.
    pub(super) fn are_begun(&self) -> bool {
        self.filled == 0 && (self.pass, self.y) != (0, self.pixels.passes[0][1])
    }

    /// Bytes that came after the last row.
    pub(super) fn n_beyond(&self) -> usize {
        self.n_beyond
    }

    /// Clears what rows will not cover.
    pub(super) fn prepare(&mut self) {
        let [left, top, width, height] = self.pixels.frame;
        if left + top > 0 || width * height * 3 != self.out.len() {
            self.clear();
        }
    }

    /// Sets all pixels to what Pillow has before the first row: zeros of the file's own kind.
    pub(super) fn clear(&mut self) {
        let width = self.pixels.stride;
        let zeros = vec![0; self.pixels.samples.row_bytes(width)];
        for row in self.out.chunks_exact_mut(width * 3) {
            self.pixels.samples.unpack(&zeros, row);
        }
    }

    fn finish_row(&mut self) -> Result<(), &'static str> {
        let bpp = self.pixels.samples.bits().div_ceil(8);
        let (filter, row) = (self.row[0], &mut self.row[1..]);
        unfilter(filter, bpp, &self.above[1..], row)?;
        let [left, top, width, height] = self.pixels.frame;
        let [x0, _, dx, dy] = self.pixels.passes[self.pass];
        let from = ((top + self.y) * self.pixels.stride + left) * 3;
        let to = &mut self.out[from..][..width * 3];
        if dx == 1 && x0 == 0 {
            self.pixels.samples.unpack(row, to);
        } else {
            let n = self.pixels.width(&self.pixels.passes[self.pass]);
            self.spread.resize(n * 3, 0);
            self.pixels.samples.unpack(row, &mut self.spread);
            let columns = to.as_chunks_mut::<3>().0.iter_mut().skip(x0).step_by(dx);
            for (to, from) in columns.zip(self.spread.as_chunks::<3>().0) {
                *to = *from;
            }
        }
        std::mem::swap(&mut self.row, &mut self.above);
        self.filled = 0;
        self.y += dy;
        if self.y >= height {
            self.pass += 1;
            if let Some(pass) = self.pixels.passes.get(self.pass) {
                self.y = pass[1];
                let n = self.pixels.row_bytes(pass) + 1;
                self.row.resize(n, 0);
                self.above.clear();
                self.above.resize(n, 0);
            }
        }
        Ok(())
    }
}

impl Sink for Rows<'_> {
    fn take(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
        while !bytes.is_empty() {
            if self.are_done() {
                self.n_beyond += bytes.len();
                return Ok(());
            }
            let n = bytes.len().min(self.row.len() - self.filled);
            let (now, later) = bytes.split_at(n);
            self.row[self.filled..][..n].copy_from_slice(now);
            self.filled += n;
            bytes = later;
            if self.filled == self.row.len() {
                self.finish_row()?;
            }
        }
        Ok(())
    }
}

/// Takes a filter back (§9.2). Both rows are equally long.
fn unfilter(
    filter: u8,
    bpp: usize,
    above: &[u8],
    row: &mut [u8],
) -> Result<(), &'static str> {
    match (filter, bpp) {
        (0, _) => {}
        (2, _) => {
            for (byte, above) in row.iter_mut().zip(above) {
                *byte = byte.wrapping_add(*above);
            }
        }
        (1 | 3 | 4, 1) => along::<1>(filter, above, row),
        (1 | 3 | 4, 2) => along::<2>(filter, above, row),
        (1 | 3 | 4, 3) => along::<3>(filter, above, row),
        (1 | 3 | 4, 4) => along::<4>(filter, above, row),
        (1 | 3 | 4, 6) => along::<6>(filter, above, row),
        (1 | 3 | 4, 8) => along::<8>(filter, above, row),
        _ => return Err("an unknown filter"),
    }
    Ok(())
}

/// The filters that refer to the pixel before, of `N` bytes.
fn along<const N: usize>(filter: u8, above: &[u8], row: &mut [u8]) {
    let rows = row.as_chunks_mut::<N>().0.iter_mut().zip(above.as_chunks::<N>().0);
    let mut left = [0; N];
    match filter {
        1 => {
            for (pixel, _) in rows {
                for i in 0..N {
                    pixel[i] = pixel[i].wrapping_add(left[i]);
                }
                left = *pixel;
            }
        }
        3 => {
            for (pixel, above) in rows {
                for i in 0..N {
                    let mean = (u16::from(left[i]) + u16::from(above[i])) >> 1;
                    pixel[i] = pixel[i].wrapping_add(mean.to_le_bytes()[0]);
                }
                left = *pixel;
            }
        }
        _ => {
            let mut corner = [0; N];
            for (pixel, above) in rows {
                for i in 0..N {
                    let nearest = paeth(left[i], above[i], corner[i]);
                    pixel[i] = pixel[i].wrapping_add(nearest);
                }
                left = *pixel;
                corner = *above;
            }
        }
    }
}

/// Of three neighbours the one that is closest to their slope (§9.4).
fn paeth(left: u8, above: u8, corner: u8) -> u8 {
    let [a, b, c] = [left, above, corner].map(i16::from);
    let (pa, pb) = (b - c, a - c);
    let (da, db, dc) = (pa.abs(), pb.abs(), (pa + pb).abs());
    let other = if db <= dc { above } else { corner };
    if da <= db && da <= dc { left } else { other }
}
