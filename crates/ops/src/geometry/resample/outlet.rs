//! Where the rows of a sample go as they are made.

use std::fmt::Debug;

use crate::colour;
use crate::kernels::{Level, vectors};

/// Takes rows of red, green and blue from the top, each once, before they are pixels.
pub trait TakesRows: Debug {
    /// Takes row `y`: of each channel its bytes, all equally many.
    fn row(&mut self, y: usize, channels: [&[u8]; 3]);
}

/// Where the rows of a sample go.
#[derive(Debug)]
pub enum Outlet<'a> {
    /// Rows, columns, channels; of one channel there may be three, all equal.
    Pixels(&'a mut [u8]),
    /// Whoever makes something else of them; one channel comes as three equal ones.
    Rows(&'a mut dyn TakesRows),
}

impl Outlet<'_> {
    /// Whether a sample of so many pixels of `n_channels` may go there.
    pub(super) fn takes(&self, n_pixels: usize, n_channels: usize) -> bool {
        match self {
            Self::Pixels(out) => {
                let is_spread = n_channels == 1 && out.len() == 3 * n_pixels;
                out.len() == n_pixels * n_channels || is_spread
            }
            Self::Rows(_) => matches!(n_channels, 1 | 3),
        }
    }

    /// Row `y` of `n_rows`, its channels in this order.
    pub(super) fn row(
        &mut self,
        level: Level,
        (y, n_rows): (usize, usize),
        channels: &[&[u8]],
    ) {
        match (self, channels) {
            (Self::Rows(taker), &[grey]) => taker.row(y, [grey; 3]),
            (Self::Rows(taker), &[red, green, blue]) => taker.row(y, [red, green, blue]),
            (Self::Rows(_), _) => {}
            (Self::Pixels(sample), channels) => {
                let row_bytes = sample.len() / n_rows;
                vectors::soon_written(sample, (y + 1) * row_bytes, row_bytes);
                pixels(level, channels, &mut sample[y * row_bytes..][..row_bytes]);
            }
        }
    }
}

/// Puts the channels of a row side by side.
fn pixels(level: Level, channels: &[&[u8]], out: &mut [u8]) {
    match *channels {
        [grey] if grey.len() == out.len() => out.copy_from_slice(grey),
        [grey] => colour::interleave(level, [grey; 3], out),
        [red, green, blue] => colour::interleave(level, [red, green, blue], out),
        _ => {
            for (nth, &bytes) in channels.iter().enumerate() {
                let places = out.iter_mut().skip(nth).step_by(channels.len());
                places.zip(bytes).for_each(|(place, &byte)| *place = byte);
            }
        }
    }
}
