//! Planar numerics: every plane is resized straight from its own sampling, colour comes last.
//!
//! The pass along the rows ends in sixty-fourths of a byte's step, so does the pass along the
//! columns, and only the samples are rounded to bytes: once. Without a change of size
//! nothing but the colours is computed, exactly as libjpeg does. A row of the sample is made as
//! soon as the rows that it needs have come, of all planes. Read `nearest.rs` next.

use bothends_core::recipe::draw::CropBox;

use super::axis::{Axis, Rounding, Stretch};
use super::columns::Columns;
use super::lines::Lines;
use super::scalar::MAX_ROWS;
use super::{Sampling, Target, rows};
use crate::colour;
use crate::kernels::Level;
use crate::kernels::vectors;

/// An image as its decoder has it: one plane, or three.
#[derive(Debug, Clone, Copy)]
pub struct Planes<'a> {
    /// What one sample of each stands for.
    pub samplings: &'a [Sampling],
    /// What they hold.
    pub colour: Colour,
}

/// What planes hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Brightness, blueness, redness, as JPEG has them.
    YCbCr,
    /// The sample's channels, or grey for all of them.
    AsIs,
}

/// Resizes one crop after the other; keeps its memory.
#[derive(Debug)]
pub struct Planar {
    level: Level,
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
    /// Between the passes.
    narrowed: Lines<i16>,
    /// One row after both passes.
    row: Lines<i16>,
}

/// A sample that is being made. [`Self::rows`] takes every row of what is [`Self::needed`] of
/// every plane, each plane from the top; then [`Self::finish`] it. It goes fastest when no plane
/// runs far ahead of the others.
#[derive(Debug)]
#[must_use = "a sample without its rows is not finished"]
pub struct PlanarSample<'a> {
    planar: &'a mut Planar,
    crop: CropBox,
    colour: Colour,
    out: &'a mut [u8],
    /// How many rows of the sample are made.
    n_made: usize,
}

impl Planar {
    /// A resizer that uses the kernels of `level`.
    #[must_use]
    pub fn new(level: Level) -> Self {
        Self { level, grids: Vec::new(), planes: Vec::new() }
    }

    /// Begins with `crop`, in pixels, of an image of `planes`. The sample goes to `out`: rows,
    /// columns, channels; of one plane it may also have three, all equal. Neither the crop nor
    /// the target's window may be empty.
    ///
    /// # Panics
    /// When one of them is, when the colours do not go with the number of planes, or when
    /// `out` is not one sample long.
    pub fn begin<'a>(
        &'a mut self,
        planes: Planes<'_>,
        crop: CropBox,
        target: &Target,
        out: &'a mut [u8],
    ) -> PlanarSample<'a> {
        let Planes { samplings, colour } = planes;
        let n_channels = out.len() / target.area();
        let known = matches!(
            (colour, samplings.len(), n_channels),
            (Colour::YCbCr | Colour::AsIs, 3, 3) | (Colour::AsIs, 1, 1 | 3)
        );
        assert!(known, "planes of grey, of YCbCr or of RGB, and a sample of such");
        assert_eq!(out.len(), target.area() * n_channels, "one sample");
        self.planes.resize_with(samplings.len(), Plane::default);
        let mut n_grids = 0;
        for (nth, &sampling) in samplings.iter().enumerate() {
            let made = self.grids[..n_grids].iter().position(|g| g.sampling == sampling);
            let grid = made.unwrap_or(n_grids);
            if grid == n_grids {
                n_grids += 1;
                self.set_grid(grid, sampling, target.stretches(crop, sampling));
            }
            self.planes[nth].begin(grid, &self.grids[grid]);
        }
        PlanarSample { planar: self, crop, colour, out, n_made: 0 }
    }

    fn set_grid(&mut self, nth: usize, sampling: Sampling, [down, along]: [Stretch; 2]) {
        if self.grids.len() == nth {
            self.grids.push(Grid::new(self.level));
        }
        let grid = &mut self.grids[nth];
        grid.sampling = sampling;
        grid.columns.set(&along, Rounding::Running);
        grid.rows.set(self.level, &down, Rounding::Running);
    }

    /// Gives memory back of which there is more than `keep_bytes`; the bytes that it keeps.
    pub fn release_above(&mut self, keep_bytes: usize) -> usize {
        let planes = self.planes.iter_mut();
        planes.map(|plane| plane.narrowed.release_above(keep_bytes)).sum()
    }
}

impl PlanarSample<'_> {
    /// The part of a plane, in its own samples, that the sample is made of.
    ///
    /// # Panics
    /// When there is no such plane.
    #[must_use]
    pub fn needed(&self, plane: usize) -> CropBox {
        let grid = &self.planar.grids[self.planar.planes[plane].grid];
        grid.sampling.needed(self.crop, [&grid.rows, &grid.columns.axis])
    }

    /// Takes the next rows of a plane; several at once go faster.
    ///
    /// # Panics
    /// When one is not as wide as [`Self::needed`], or there are too many.
    pub fn rows<'r>(&mut self, plane: usize, rows: impl IntoIterator<Item = &'r [u8]>) {
        let Planar { grids, planes, .. } = &mut *self.planar;
        let Plane { grid, narrowed, .. } = &mut planes[plane];
        let Grid { columns, rows: axis, .. } = &grids[*grid];
        let mut rows = rows.into_iter();
        loop {
            let mut few = [&[][..]; MAX_ROWS];
            let mut n_few = 0;
            for (place, row) in few.iter_mut().zip(&mut rows) {
                *place = row;
                n_few += 1;
            }
            if n_few == 0 {
                break;
            }
            assert!(narrowed.n_rows + n_few <= axis.needed().len(), "all have come");
            let keep = axis.firsts[self.n_made] as usize;
            columns.sixty_fourths(&few[..n_few], narrowed.next(n_few, keep));
        }
        self.make_rows();
    }

    /// Ends the sample.
    ///
    /// # Panics
    /// When a row is missing.
    pub fn finish(self) {
        let n_rows = self.planar.grids[0].rows.n_outputs;
        assert_eq!(self.n_made, n_rows, "every row has come, of all planes");
    }

    /// Makes all rows of the sample for which enough rows have come.
    fn make_rows(&mut self) {
        let Planar { level, grids, planes } = &mut *self.planar;
        let n_ready = |plane: &Plane| {
            grids[plane.grid].rows.n_ready(self.n_made, plane.narrowed.n_rows)
        };
        let ready = planes.iter().map(n_ready).min().unwrap_or(0);
        let row_bytes = self.out.len() / grids[0].rows.n_outputs;
        for y in self.n_made..ready {
            vectors::soon_written(self.out, (y + 1) * row_bytes, row_bytes);
            for Plane { grid, narrowed, row } in &mut *planes {
                let (first, weights) = grids[*grid].rows.inputs_of(y);
                let inputs = narrowed.rows(first, weights.len());
                rows::sixty_fourths(*level, inputs, weights, row.only());
                if grids[*grid].rows.is_signed() {
                    rows::limit(*level, row.only());
                }
            }
            let row = |nth: usize| planes[nth].row.rows(0, 1);
            let out = &mut self.out[y * row_bytes..][..row_bytes];
            let n_channels = row_bytes / grids[0].columns.axis.n_outputs;
            match (self.colour, planes.len(), n_channels) {
                (Colour::YCbCr, ..) => {
                    colour::fine_ycc_to_rgb(*level, [row(0), row(1), row(2)], out);
                }
                (Colour::AsIs, 3, _) => {
                    colour::fine_to_bytes(*level, [row(0), row(1), row(2)], out);
                }
                (Colour::AsIs, _, 3) => {
                    colour::fine_to_bytes(*level, [row(0); 3], out);
                }
                (Colour::AsIs, ..) => colour::fine_to_bytes(*level, [row(0)], out),
            }
        }
        self.n_made = ready;
    }
}

impl Grid {
    fn new(level: Level) -> Self {
        let columns = Columns::new(level);
        Self { sampling: Sampling::FULL, columns, rows: Axis::default() }
    }
}

impl Plane {
    fn begin(&mut self, nth: usize, grid: &Grid) {
        let len = grid.columns.axis.firsts.len();
        self.grid = nth;
        self.narrowed.begin(len, grid.rows.n_taps);
        self.row.begin(len, 1);
    }
}
