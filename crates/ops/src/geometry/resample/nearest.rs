//! Nearest on whole pixels: what `Exact` does with planes, for images whose channels lie together.
//!
//! Both give the same bytes; taking pixels apart and putting them together again would cost more
//! than choosing them. Nothing here computes. Read `axis.rs` for which pixel is chosen.

use bothends_core::recipe::draw::CropBox;

use super::axis::{Axis, Rounding};
use super::{Sampling, Target};
use crate::geometry::gather::Gather;
use crate::image::View;
use crate::kernels::Level;

/// Resizes one crop after the other; keeps its memory.
#[derive(Debug)]
pub(crate) struct Nearest {
    rows: Axis,
    columns: Axis,
    gather: Gather,
}

impl Nearest {
    /// A resizer that uses the kernels of `level`.
    pub(crate) fn new(level: Level) -> Self {
        let (rows, columns) = (Axis::default(), Axis::default());
        Self { rows, columns, gather: Gather::new(level) }
    }

    /// Makes the target of `crop` of `src`, which has one to four channels, into `out`. The
    /// target's interpolation is nearest, and its window not empty.
    ///
    /// # Panics
    /// When the crop does not lie in `src`, or `out` is not one sample long.
    pub(crate) fn crop(
        &mut self,
        src: View<'_>,
        crop: CropBox,
        target: &Target,
        out: &mut [u8],
    ) {
        let Self { rows, columns, gather } = self;
        let [down, along] = target.stretches(crop, Sampling::FULL);
        rows.set(Level::Scalar, &down, Rounding::Each);
        columns.set(Level::Scalar, &along, Rounding::Each);
        let part = Sampling::FULL.needed(crop, [rows, columns]);
        let inside = src.crop(part).expect("the crop lies in the image");
        let columns = &columns.firsts[..columns.n_outputs];
        let row_bytes = columns.len() * src.channels();
        gather.set(inside.width(), src.channels(), columns.iter().copied());
        assert_eq!(out.len(), rows.n_outputs * row_bytes, "one sample");
        let mut before = None;
        for (y, &row) in rows.firsts[..rows.n_outputs].iter().enumerate() {
            let (made, later) = out.split_at_mut(y * row_bytes);
            let out = &mut later[..row_bytes];
            if before == Some(row) {
                out.copy_from_slice(&made[(y - 1) * row_bytes..]);
                continue;
            }
            before = Some(row);
            gather.take(inside.row(row as usize), out);
        }
    }
}
