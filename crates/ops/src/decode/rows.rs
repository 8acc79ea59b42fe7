//! Rows that a file stores as they are, put in place.

use bothends_core::recipe::Size;

use super::samples::Samples;
use crate::image::Image;

/// Which row comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The uppermost.
    Down,
    /// The lowermost.
    Up,
}

/// Makes RGB of rows that begin every `stride` bytes of `data`. The size has been checked.
pub(super) fn place(
    (data, stride): (&[u8], usize),
    samples: &Samples,
    (size, order): (Size, Order),
    out: &mut Image,
) -> Result<(), &'static str> {
    let row_bytes = samples.row_bytes(size.width as usize);
    if stride < row_bytes {
        return Err("its rows are shorter than their pixels");
    }
    let n_between = (size.height as usize).saturating_sub(1);
    let need = n_between.saturating_mul(stride).saturating_add(row_bytes);
    if data.len() < need {
        return Err("it ends before its last row");
    }
    let out_bytes = (size.width as usize).saturating_mul(3);
    let rows = data.chunks(stride).map(|row| row.get(..row_bytes).unwrap_or(row));
    let out = out.reshape(size, 3).chunks_exact_mut(out_bytes);
    let one = |(out, row): (&mut [u8], &[u8])| samples.unpack(row, out);
    match order {
        Order::Down => out.zip(rows).for_each(one),
        Order::Up => out.rev().zip(rows).for_each(one),
    }
    Ok(())
}
