//! Nearest on whole pixels: what `Exact` does with planes, for images whose channels lie together.
//!
//! Both give the same bytes; taking pixels apart and putting them together again would cost more
//! than choosing them. Nothing here computes. Read `axis.rs` for which pixel is chosen.

use bothends_core::recipe::draw::CropBox;

use super::axis::{Axis, Rounding};
use super::{Sampling, Target};
use crate::image::View;
use crate::kernels::Level;

/// Resizes one crop after the other; keeps its memory.
#[derive(Debug, Default)]
pub(crate) struct Nearest {
    rows: Axis,
    columns: Axis,
}

impl Nearest {
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
        let Self { rows, columns } = self;
        let [down, along] = target.stretches(crop, Sampling::FULL);
        rows.set(Level::Scalar, &down, Rounding::Each);
        columns.set(Level::Scalar, &along, Rounding::Each);
        let part = Sampling::FULL.needed(crop, [rows, columns]);
        let inside = src.crop(part).expect("the crop lies in the image");
        let columns = &columns.firsts()[..columns.n_outputs()];
        let row_bytes = columns.len() * src.channels();
        assert_eq!(out.len(), rows.n_outputs() * row_bytes, "one sample");
        let mut before = None;
        for (y, &row) in rows.firsts()[..rows.n_outputs()].iter().enumerate() {
            let (made, later) = out.split_at_mut(y * row_bytes);
            let out = &mut later[..row_bytes];
            if before == Some(row) {
                out.copy_from_slice(&made[(y - 1) * row_bytes..]);
                continue;
            }
            before = Some(row);
            let row = inside.row(row as usize);
            match src.channels() {
                1 => choose::<1>(row, columns, out),
                2 => choose::<2>(row, columns, out),
                3 => choose::<3>(row, columns, out),
                _ => choose::<4>(row, columns, out),
            }
        }
    }
}

/// The pixels of a row at `columns`.
fn choose<const N: usize>(row: &[u8], columns: &[u32], out: &mut [u8]) {
    let (pixels, _) = row.as_chunks::<N>();
    let (places, _) = out.as_chunks_mut::<N>();
    for (place, &column) in places.iter_mut().zip(columns) {
        *place = pixels[column as usize];
    }
}
