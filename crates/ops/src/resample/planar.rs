//! Planar numerics: every plane is resized straight from its own sampling, colour comes last.
//!
//! The pass along the rows ends in sixty-fourths of a byte's step, so does the pass along the
//! columns, and only the samples are rounded to bytes: once. Without a change of size
//! nothing but the colours is computed, exactly as libjpeg does. Read `colour.rs` next.

use bothends_core::recipe::draw::CropBox;

use super::axis::{Axis, Rounding};
use super::columns::{Columns, MAX_ROWS};
use super::lines::Lines;
use super::{Sampling, Target, rows};
use crate::colour;
use crate::kernels::Level;

/// What the planes hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Brightness, blueness, redness, as JPEG has them.
    YCbCr,
    /// The sample's channels, or grey for all of them.
    AsIs,
}

/// Resizes one crop after the other; keeps its memory.
///
/// Per crop: [`Self::begin`], [`Self::rows`] with every row of [`Self::needed`] of every plane,
/// each plane from the top, [`Self::finish`].
#[derive(Debug)]
pub struct Planar {
    level: Level,
    colour: Colour,
    crop: CropBox,
    grids: Vec<Grid>,
    planes: Vec<Plane>,
}

/// What planes of one sampling have in common.
#[derive(Debug)]
struct Grid {
    sampling: Sampling,
    columns: Columns,
    rows: Axis,
}

#[derive(Debug, Default)]
struct Plane {
    /// Its place among the grids.
    grid: usize,
    n_rows: usize,
    /// Between the passes.
    narrowed: Lines<i16>,
    /// One row after both passes.
    row: Lines<i16>,
}

impl Planar {
    /// A resizer that uses the kernels of `level`.
    #[must_use]
    pub fn new(level: Level) -> Self {
        let nowhere = CropBox { top: 0, left: 0, height: 0, width: 0 };
        let (grids, planes) = (Vec::new(), Vec::new());
        Self { level, colour: Colour::AsIs, crop: nowhere, grids, planes }
    }

    /// Begins with `crop`, in pixels of an image that has a plane for each of `samplings`: one
    /// or three. Neither the crop nor the target's window may be empty.
    ///
    /// # Panics
    /// When one of them is, or when there are planes that `colour` does not know.
    pub fn begin(
        &mut self,
        crop: CropBox,
        samplings: &[Sampling],
        colour: Colour,
        target: &Target,
    ) {
        let known = match colour {
            Colour::YCbCr => samplings.len() == 3,
            Colour::AsIs => matches!(samplings.len(), 1 | 3),
        };
        assert!(known, "planes of grey, of YCbCr or of RGB");
        self.colour = colour;
        self.crop = crop;
        self.planes.resize_with(samplings.len(), Plane::default);
        let mut n_grids = 0;
        for (nth, &sampling) in samplings.iter().enumerate() {
            let made = self.grids[..n_grids].iter().position(|g| g.sampling == sampling);
            self.planes[nth].grid = made.unwrap_or_else(|| {
                let [down, along] = target.stretches(crop, sampling);
                if self.grids.len() == n_grids {
                    self.grids.push(Grid::new(self.level));
                }
                let grid = &mut self.grids[n_grids];
                grid.sampling = sampling;
                grid.columns.set(&along, Rounding::Running);
                grid.rows.set(self.level, &down, Rounding::Running);
                n_grids += 1;
                n_grids - 1
            });
        }
        for plane in &mut self.planes {
            let Grid { columns, rows, .. } = &self.grids[plane.grid];
            let n_columns = columns.axis().firsts().len();
            plane.n_rows = 0;
            // The weights of 0 behind a triangle at the lower edge want rows, too.
            plane.narrowed.reshape(rows.needed().len() + rows.n_taps(), n_columns);
            plane.row.reshape(1, n_columns);
        }
    }

    /// The part of a plane, in its own samples, that the sample is made of.
    ///
    /// # Panics
    /// When there is no such plane.
    #[must_use]
    pub fn needed(&self, plane: usize) -> CropBox {
        let Grid { sampling, columns, rows } = &self.grids[self.planes[plane].grid];
        sampling.needed(self.crop, [rows, columns.axis()])
    }

    /// Takes the next rows of a plane's [`Self::needed`]; several at once go faster.
    ///
    /// # Panics
    /// When one is not as wide, or there are too many.
    pub fn rows<'a>(&mut self, plane: usize, rows: impl IntoIterator<Item = &'a [u8]>) {
        let plane = &mut self.planes[plane];
        let Grid { columns, rows: axis, .. } = &self.grids[plane.grid];
        let mut rows = rows.into_iter();
        loop {
            let mut few = [&[][..]; MAX_ROWS];
            let mut n_few = 0;
            for (place, row) in few.iter_mut().zip(&mut rows) {
                *place = row;
                n_few += 1;
            }
            if n_few == 0 {
                return;
            }
            assert!(plane.n_rows + n_few <= axis.needed().len(), "all rows have come");
            let places = plane.narrowed.at_mut(plane.n_rows, n_few);
            columns.sixty_fourths(&few[..n_few], places);
            plane.n_rows += n_few;
        }
    }

    /// Writes the sample, once all rows have come: rows, columns, channels. One plane may also
    /// become a sample of three channels, all alike.
    ///
    /// # Panics
    /// When a row is missing, or `out` is not one sample long.
    pub fn finish(&mut self, out: &mut [u8]) {
        let Grid { columns, rows, .. } = &self.grids[0];
        let (height, width) = (rows.n_outputs(), columns.axis().n_outputs());
        for plane in &self.planes {
            let rows = &self.grids[plane.grid].rows;
            assert_eq!(plane.n_rows, rows.needed().len(), "every row has come");
        }
        let n_channels = out.len() / (height * width);
        assert_eq!(out.len(), height * width * n_channels, "a sample");
        for (y, out) in out.chunks_exact_mut(width * n_channels).enumerate() {
            for plane in &mut self.planes {
                let rows = &self.grids[plane.grid].rows;
                let first = rows.firsts()[y] as usize;
                let narrowed = plane.narrowed.at(first, rows.n_taps());
                let row = plane.row.at_mut(0, 1);
                rows::sixty_fourths(self.level, narrowed, rows.weights_of(y), row);
            }
            let row = |nth: usize| &self.planes[nth].row.at(0, 1)[..];
            match (self.colour, self.planes.len(), n_channels) {
                (Colour::YCbCr, 3, 3) => {
                    colour::fine_ycc_to_rgb(self.level, [row(0), row(1), row(2)], out);
                }
                (Colour::AsIs, 3, 3) => {
                    colour::fine_to_bytes(self.level, [row(0), row(1), row(2)], out);
                }
                (Colour::AsIs, 1, 3) => {
                    colour::fine_to_bytes(self.level, [row(0); 3], out);
                }
                (Colour::AsIs, 1, 1) => {
                    colour::fine_to_bytes(self.level, [row(0)], out);
                }
                _ => panic!("a sample of {n_channels} channels of those planes"),
            }
        }
    }

    /// Gives memory back of which there is more than `keep_bytes`.
    pub(crate) fn release_above(&mut self, keep_bytes: usize) {
        for plane in &mut self.planes {
            plane.narrowed.release_above(keep_bytes);
        }
    }
}

impl Grid {
    fn new(level: Level) -> Self {
        let columns = Columns::new(level);
        Self { sampling: Sampling::FULL, columns, rows: Axis::default() }
    }
}
