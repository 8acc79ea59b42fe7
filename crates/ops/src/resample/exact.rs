//! Exact numerics: Pillow's resize, bit for bit, fed row by row.
//!
//! The pass along the rows ends in bytes, as Pillow's does. A pass that changes no size has
//! the weights 1 and 0 and so changes nothing. Read `planar.rs` next.

use bothends_core::recipe::draw::CropBox;

use super::axis::{Axis, Rounding};
use super::columns::{Columns, MAX_ROWS};
use super::lines::Lines;
use super::{Sampling, Target, rows};
use crate::colour;
use crate::kernels::Level;

/// Most channels of an image.
const MAX_PLANES: usize = MAX_ROWS;

/// Resizes one crop after the other; keeps its memory.
///
/// Per crop: [`Self::begin`], [`Self::row`] for every row of [`Self::needed`] from the top,
/// [`Self::finish`].
#[derive(Debug)]
pub struct Exact {
    level: Level,
    columns: Columns,
    rows: Axis,
    crop: CropBox,
    n_planes: usize,
    /// Outputs of one plane in one row, and how many of them are wanted.
    plane_len: usize,
    n_rows: usize,
    /// Between the passes: of every row that came, its planes side by side.
    narrowed: Lines<u8>,
    /// One row after both passes.
    row: Lines<u8>,
}

impl Exact {
    /// A resizer that uses the kernels of `level`.
    #[must_use]
    pub fn new(level: Level) -> Self {
        Self {
            level,
            columns: Columns::new(level),
            rows: Axis::default(),
            crop: CropBox { top: 0, left: 0, height: 0, width: 0 },
            n_planes: 0,
            plane_len: 0,
            n_rows: 0,
            narrowed: Lines::default(),
            row: Lines::default(),
        }
    }

    /// Begins with `crop` of an image of `n_planes` channels. Neither the crop nor the
    /// target's window may be empty.
    ///
    /// # Panics
    /// When one of them is, or when there are not one to four channels.
    pub fn begin(&mut self, crop: CropBox, n_planes: usize, target: &Target) {
        assert!((1..=MAX_PLANES).contains(&n_planes), "one to four channels");
        let [rows, columns] = target.stretches(crop, Sampling::FULL);
        self.columns.set(&columns, Rounding::Each);
        self.rows.set(self.level, &rows, Rounding::Each);
        self.crop = crop;
        self.n_planes = n_planes;
        self.n_rows = 0;
        self.plane_len = self.columns.axis().firsts().len();
        // The weights of 0 behind a triangle at the lower edge want rows, too.
        let n_lines = self.rows.needed().len() + self.rows.n_taps();
        self.narrowed.reshape(n_lines, self.plane_len * n_planes);
        self.row.reshape(1, self.plane_len * n_planes);
    }

    /// The part of the image that the sample is made of; lies inside the crop.
    #[must_use]
    pub fn needed(&self) -> CropBox {
        Sampling::FULL.needed(self.crop, [&self.rows, self.columns.axis()])
    }

    /// Takes the next row of [`Self::needed`]: of each channel its bytes.
    ///
    /// # Panics
    /// When it is not as wide, or of other channels, or one row too many.
    pub fn row<'a>(&mut self, planes: impl IntoIterator<Item = &'a [u8]>) {
        assert!(self.n_rows < self.rows.needed().len(), "all rows have come");
        let mut channels = [&[][..]; MAX_PLANES];
        let mut n_planes = 0;
        for plane in planes {
            assert!(n_planes < self.n_planes, "a channel for every slice");
            channels[n_planes] = plane;
            n_planes += 1;
        }
        assert_eq!(n_planes, self.n_planes, "a slice for every channel");
        let line = self.narrowed.at_mut(self.n_rows, 1);
        let places = &mut line[..n_planes * self.plane_len];
        self.columns.bytes(&channels[..n_planes], places);
        self.n_rows += 1;
    }

    /// Writes the sample, once all rows have come: rows, columns, channels. An image of one
    /// channel may also become a sample of three, all alike.
    ///
    /// # Panics
    /// When a row is missing, or `out` is not one sample long.
    pub fn finish(&mut self, out: &mut [u8]) {
        assert_eq!(self.n_rows, self.rows.needed().len(), "every row has come");
        let width = self.columns.axis().n_outputs();
        let row_bytes = out.len() / self.rows.n_outputs();
        let n_channels = row_bytes / width;
        assert_eq!(out.len(), self.rows.n_outputs() * width * n_channels, "a sample");
        let spread = n_channels == 3 && self.n_planes == 1;
        assert!(n_channels == self.n_planes || spread, "a sample of those channels");
        for (y, out) in out.chunks_exact_mut(row_bytes).enumerate() {
            let first = self.rows.firsts()[y] as usize;
            let rows = self.narrowed.at(first, self.rows.n_taps());
            rows::bytes(self.level, rows, self.rows.weights_of(y), self.row.at_mut(0, 1));
            let row = self.row.at(0, 1);
            let plane = |nth: usize| &row[nth * self.plane_len..][..width];
            match (self.n_planes, n_channels) {
                (1, 1) => out.copy_from_slice(plane(0)),
                (1, _) => colour::interleave(self.level, [plane(0); 3], out),
                (3, _) => {
                    colour::interleave(self.level, [plane(0), plane(1), plane(2)], out);
                }
                (_, n) => {
                    for (nth, channel) in (0..n).map(|nth| (nth, plane(nth))) {
                        let places = out.iter_mut().skip(nth).step_by(n);
                        places.zip(channel).for_each(|(place, &byte)| *place = byte);
                    }
                }
            }
        }
    }

    /// Gives memory back of which there is more than `keep_bytes`.
    pub(crate) fn release_above(&mut self, keep_bytes: usize) {
        self.narrowed.release_above(keep_bytes);
    }
}
