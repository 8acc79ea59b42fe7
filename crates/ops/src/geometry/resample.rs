//! Resizes planes of 8-bit samples into one sample, in two numerics.
//!
//! Every output is a weighted sum of inputs under a filter as wide as one input, or one output
//! where that is larger (shrinking averages, enlarging interpolates): the triangle of bilinear,
//! the cubic of bicubic, and so on. Nearest takes one input as it is. Resizing runs in two passes,
//! along the rows and along the columns, all in integers. Inputs outside the crop box do not exist.
//!
//! * [`Exact`] takes rows of red, green and blue and gives what Pillow's `Image.resize` gives, in
//!   every bit: the first pass ends in bytes. Up to Pillow 12 that is the pass along the rows; since
//!   13 it is the one along the columns where it saves much ([`FirstPass`]).
//! * [`Planar`] takes the planes of a JPEG as they are, resizes each straight from its own
//!   sampling, and converts to colour last: no upsampled image is ever made, and there is one
//!   rounding to bytes.
//!
//! Rows go in one by one, from the top, and only those columns and rows that `needed` names:
//! no whole image stands in memory between a decoder and this. Of the result only a window
//! may be wanted, and it may be mirrored; both cost nothing.
//!
//! Nothing here decodes, draws numbers or knows a file format. Reading order: `axis` has the
//! weights, `scalar` the two passes, which `columns` and `rows` hand to kernels, `lines` what stands
//! between them, `exact` and `planar` what is made of them, `outlet` where it goes, `nearest` a short cut. `portable`, `x86`
//! and `neon` hold twins of the passes that give the same bytes.

mod axis;
mod columns;
mod exact;
mod lines;
mod nearest;
mod outlet;
mod planar;
mod portable;
mod rows;
mod scalar;

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use bothends_core::recipe::draw::CropBox;
use bothends_core::recipe::{Interpolation, Numerics, Size};

pub use exact::{Exact, ExactSample};
pub(crate) use nearest::Nearest;
pub use outlet::{Outlet, TakesRows};
pub use planar::{Colour, Planar, PlanarSample, Planes};

pub use axis::Stretch;

use axis::Axis;

/// What a crop becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Size of the whole crop after resizing.
    pub size: Size,
    /// The part of that which is the sample.
    pub window: CropBox,
    /// Whether left and right of the sample change places.
    pub mirror: Mirror,
    /// How pixels between pixels are found.
    pub interpolation: Interpolation,
    /// Which pass comes first in exact numerics; in planar ones it is always that along the rows.
    pub first: FirstPass,
}

/// Which pass ends in bytes, from which the other continues. Both orders mean the same picture; single
/// values differ by one or, where weights are negative, by what the first pass cuts off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstPass {
    /// Along the rows: pictures get narrower first.
    Rows,
    /// Along the columns: pictures get lower first.
    Columns,
}

impl FirstPass {
    /// That of numerics, for a crop that becomes `size`.
    #[must_use]
    pub fn of(numerics: Numerics, crop: CropBox, size: Size) -> Self {
        let lost = |from: u32, to: u32| i64::from(from) - i64::from(to);
        let rows = lost(crop.height, size.height);
        let columns = lost(crop.width, size.width);
        match numerics {
            // The condition of Pillow 13's `ImagingResampleInner`: more than twice as many rows go
            // as columns.
            Numerics::Exact13 if rows > 0 && rows > 2 * columns => Self::Columns,
            Numerics::Exact | Numerics::Exact13 | Numerics::Planar => Self::Rows,
        }
    }
}

/// How many pixels of the image one sample of a plane stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// Along the rows; at least 1.
    pub x: u32,
    /// Along the columns; at least 1.
    pub y: u32,
}

/// Whether left and right change places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mirror {
    /// They stay.
    No,
    /// Left becomes right: torchvision's `horizontal_flip`.
    Horizontal,
}

impl Target {
    /// The whole crop, resized to `size`, bilinear, not mirrored.
    #[must_use]
    pub fn whole(size: Size) -> Self {
        let Size { height, width } = size;
        let window = CropBox { top: 0, left: 0, height, width };
        let interpolation = Interpolation::Bilinear;
        let (mirror, first) = (Mirror::No, FirstPass::Rows);
        Self { size, window, mirror, interpolation, first }
    }

    /// Pixels of the sample.
    fn area(&self) -> usize {
        self.window.height as usize * self.window.width as usize
    }

    /// Rows and columns of the sample.
    #[must_use]
    pub fn sample_size(&self) -> Size {
        let CropBox { height, width, .. } = self.window;
        Size { height, width }
    }

    /// How a plane of `sampling` is laid over this target when its image is cropped to `crop`:
    /// from top to bottom, from left to right. Inputs count from the first that the crop
    /// touches.
    ///
    /// # Panics
    /// When the crop or the window is empty.
    #[must_use]
    pub fn stretches(&self, crop: CropBox, sampling: Sampling) -> [Stretch; 2] {
        let Self { size, window, mirror, interpolation, first: _ } = *self;
        let rows = window.top..window.top + window.height;
        let columns = window.left..window.left + window.width;
        let down = [crop.top, crop.height, sampling.y];
        let along = [crop.left, crop.width, sampling.x];
        [
            Stretch::new(down, size.height, rows, interpolation, Mirror::No),
            Stretch::new(along, size.width, columns, interpolation, mirror),
        ]
    }
}

impl Sampling {
    /// A sample for every pixel.
    pub const FULL: Self = Self { x: 1, y: 1 };

    /// The part of a plane that the stretches of `crop` need, from top to bottom, from left to
    /// right.
    fn needed(self, crop: CropBox, [down, along]: [&Axis; 2]) -> CropBox {
        let place = |first: u32, axis: &Axis| {
            let needed = axis.needed();
            let number = |n: usize| u32::try_from(n).expect("a part of a crop");
            (first + number(needed.start), number(needed.len()))
        };
        let (top, height) = place(crop.top / self.y, down);
        let (left, width) = place(crop.left / self.x, along);
        CropBox { top, left, height, width }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of the passes is Pillow's by version: from 13 on columns come first where more than
    /// twice as many rows go as columns.
    #[test]
    fn which_pass_comes_first_is_said_by_the_numerics() {
        use FirstPass::{Columns, Rows};
        let table = [
            ((300, 200), (224, 224), Columns),
            ((300, 300), (224, 224), Rows),
            ((240, 220), (200, 200), Rows),
            ((241, 220), (200, 200), Columns),
            ((240, 219), (200, 200), Columns),
            ((200, 100), (200, 50), Rows),
            ((199, 300), (200, 400), Rows),
            ((201, 200), (200, 200), Columns),
        ];
        for ((height, width), (rows, columns), expected) in table {
            let crop = CropBox { top: 5, left: 7, height, width };
            let size = Size { height: rows, width: columns };
            let first = |numerics| FirstPass::of(numerics, crop, size);
            assert_eq!(first(Numerics::Exact13), expected, "{height} × {width}");
            assert_eq!(first(Numerics::Exact), Rows);
            assert_eq!(first(Numerics::Planar), Rows);
        }
    }
}
