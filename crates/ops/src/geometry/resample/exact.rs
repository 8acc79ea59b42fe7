//! Exact numerics: Pillow's resize, bit for bit, fed row by row.
//!
//! The first pass ends in bytes, as Pillow's does. Where that is the one along the rows, every row
//! is narrowed as it comes; where it is the one along the columns, rows are kept as they come, and
//! what is blended of them is narrowed. A pass that changes no size has the weights 1 and 0 and so
//! changes nothing. A row of the sample is made as soon as the rows that it needs have come. Read
//! `planar.rs` next.

use bothends_core::recipe::Interpolation;
use bothends_core::recipe::draw::CropBox;

use super::axis::{Axis, Rounding};
use super::columns::Columns;
use super::lines::Lines;
use super::outlet::Outlet;
use super::scalar::MAX_ROWS;
use super::{FirstPass, Sampling, Target, rows};
use crate::kernels::Level;

/// Most channels of an image.
const MAX_CHANNELS: usize = MAX_ROWS;

/// Resizes one crop after the other; keeps its memory.
#[derive(Debug)]
pub struct Exact {
    level: Level,
    columns: Columns,
    rows: Axis,
    first: FirstPass,
    /// Of every row that came, narrowed or not, its channels side by side.
    kept: Lines<u8>,
    /// One row after the pass along the columns.
    row: Lines<u8>,
    /// The same after both passes, where that along the rows comes last.
    narrowed: Lines<u8>,
}

/// A sample that is being made. [`Self::row`] takes every row of [`Self::needed`], from the top;
/// then [`Self::finish`] it.
#[derive(Debug)]
#[must_use = "a sample without its rows is not finished"]
pub struct ExactSample<'a> {
    exact: &'a mut Exact,
    crop: CropBox,
    n_channels: usize,
    out: Outlet<'a>,
    /// How many rows of the sample are made.
    n_made: usize,
}

impl Exact {
    /// A resizer that uses the kernels of `level`.
    #[must_use]
    pub fn new(level: Level) -> Self {
        Self {
            level,
            columns: Columns::new(level),
            rows: Axis::default(),
            first: FirstPass::Rows,
            kept: Lines::default(),
            row: Lines::default(),
            narrowed: Lines::default(),
        }
    }

    /// Begins with `crop` of an image of `n_channels`, 1 to 4. The sample goes to `out`. Neither
    /// the crop nor the target's window may be empty.
    ///
    /// # Panics
    /// When one of them is, when there are not 1 to 4 channels, or when `out` is not for such a
    /// sample.
    pub fn begin<'a>(
        &'a mut self,
        crop: CropBox,
        n_channels: usize,
        target: &Target,
        out: Outlet<'a>,
    ) -> ExactSample<'a> {
        assert!((1..=MAX_CHANNELS).contains(&n_channels), "one to four channels");
        assert!(out.takes(target.area(), n_channels), "one sample");
        let [down, along] = target.stretches(crop, Sampling::FULL);
        self.columns.set(&along, Rounding::Each);
        self.rows.set(self.level, &down, Rounding::Each);
        // What nearest chooses is the same in any order, and it leaves rows out.
        let chooses = target.interpolation == Interpolation::Nearest;
        self.first = if chooses { FirstPass::Rows } else { target.first };
        let narrow_len = n_channels * self.columns.axis.firsts.len();
        let kept_len = match self.first {
            FirstPass::Rows => narrow_len,
            FirstPass::Columns => n_channels * self.columns.axis.needed().len(),
        };
        self.kept.begin(kept_len, self.rows.n_taps);
        self.row.begin(kept_len, 1);
        if self.first == FirstPass::Columns {
            self.narrowed.begin(narrow_len, 1);
        }
        ExactSample { exact: self, crop, n_channels, out, n_made: 0 }
    }

    /// Gives memory back of which there is more than `keep_bytes`; the bytes that it keeps.
    pub fn release_above(&mut self, keep_bytes: usize) -> usize {
        self.kept.release_above(keep_bytes)
    }
}

impl ExactSample<'_> {
    /// The part of the image that the sample is made of; lies inside the crop.
    #[must_use]
    pub fn needed(&self) -> CropBox {
        let Exact { columns, rows, .. } = &*self.exact;
        Sampling::FULL.needed(self.crop, [rows, &columns.axis])
    }

    /// Passes over the next row if nothing is made of it, and says whether it has. Nearest leaves
    /// rows out where it makes images smaller.
    pub fn passes_over(&mut self) -> bool {
        self.make_rows();
        let Exact { rows, kept, .. } = &mut *self.exact;
        let first = rows.firsts[self.n_made] as usize;
        let passes_over = kept.n_rows < first;
        if passes_over {
            kept.next(1, first);
        }
        passes_over
    }

    /// Takes the next row: of each channel its bytes.
    ///
    /// # Panics
    /// When it is not as wide as [`Self::needed`], of other channels, or one row too many.
    pub fn row<'r>(&mut self, channels: impl IntoIterator<Item = &'r [u8]>) {
        let mut row = [&[][..]; MAX_CHANNELS];
        let mut n_channels = 0;
        for (place, channel) in row.iter_mut().zip(channels) {
            *place = channel;
            n_channels += 1;
        }
        assert_eq!(n_channels, self.n_channels, "a slice for every channel");
        // Only now, and not behind the row before: by now that has got from the processor's
        // stores to its cache.
        self.make_rows();
        let Exact { columns, rows, first, kept, .. } = &mut *self.exact;
        assert!(kept.n_rows < rows.needed().len(), "all rows have come");
        let keep = rows.firsts[self.n_made] as usize;
        let row = &row[..n_channels];
        match first {
            FirstPass::Rows => {
                let len = n_channels * columns.axis.firsts.len();
                columns.bytes(row, &mut kept.next(1, keep)[..len]);
            }
            FirstPass::Columns => {
                let width = columns.axis.needed().len();
                let places = kept.next(1, keep).chunks_exact_mut(width);
                row.iter()
                    .zip(places)
                    .for_each(|(row, place)| place.copy_from_slice(row));
            }
        }
    }

    /// Ends the sample.
    ///
    /// # Panics
    /// When a row is missing.
    pub fn finish(mut self) {
        self.make_rows();
        assert_eq!(self.n_made, self.exact.rows.n_outputs, "every row has come");
    }

    /// Makes all rows of the sample for which enough rows have come.
    fn make_rows(&mut self) {
        let Exact { level, columns, rows, first, kept, row, narrowed } = &mut *self.exact;
        let width = columns.axis.n_outputs;
        let channel_len = columns.axis.firsts.len();
        let ready = rows.n_ready(self.n_made, kept.n_rows);
        for y in self.n_made..ready {
            let (start, weights) = rows.inputs_of(y);
            let inputs = kept.rows(start, weights.len());
            let blended = row.only();
            rows::bytes(*level, inputs, weights, blended);
            let made = match first {
                FirstPass::Rows => blended,
                FirstPass::Columns => {
                    let made = narrowed.only();
                    let mut wide = [&[][..]; MAX_CHANNELS];
                    let wide = &mut wide[..self.n_channels];
                    let parts = blended.chunks_exact(columns.axis.needed().len());
                    wide.iter_mut().zip(parts).for_each(|(wide, part)| *wide = part);
                    columns.bytes(wide, &mut made[..self.n_channels * channel_len]);
                    made
                }
            };
            let mut channels = [&[][..]; MAX_CHANNELS];
            let channels = &mut channels[..self.n_channels];
            for (nth, channel) in channels.iter_mut().enumerate() {
                *channel = &made[nth * channel_len..][..width];
            }
            self.out.row(*level, (y, rows.n_outputs), channels);
        }
        self.n_made = ready;
    }
}
