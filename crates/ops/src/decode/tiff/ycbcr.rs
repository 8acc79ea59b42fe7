//! YCbCr as libtiff makes RGB of it for Pillow (`TIFFReadRGBAImage`): tables from the coefficients and
//! the reference values of the file, and chroma that is repeated, not interpolated.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "samples are bytes, factors are at most 4, and reference values are checked"
)]

use super::directory::{Directory, damaged, tag, unsupported};
use crate::error::SampleFault;

/// Bits after the point.
const SHIFT: u32 = 16;
const HALF: i32 = 1 << (SHIFT - 1);

/// How a file's YCbCr becomes RGB.
#[derive(Debug)]
pub(super) struct YCbCr {
    luma: [i32; 256],
    red: [i32; 256],
    green_of_cr: [i32; 256],
    green_of_cb: [i32; 256],
    blue: [i32; 256],
    /// Pixels that share a Cb and a Cr, across and down.
    pub(super) factors: [usize; 2],
}

impl YCbCr {
    /// What the directory says, with `factors` in place of its own if they are known better.
    pub(super) fn of(
        directory: &Directory<'_>,
        factors: Option<[usize; 2]>,
    ) -> Result<Self, SampleFault> {
        const ODD: SampleFault =
            SampleFault::Unsupported { format: "TIFF", feature: "unusual YCbCr" };
        let named = [tag::SUBSAMPLING, tag::COEFFICIENTS, tag::REFERENCE];
        if named.iter().any(|&tag| directory.is_strange(tag)) {
            return Err(ODD);
        }
        let stated = match directory.all(tag::SUBSAMPLING) {
            None => [2, 2],
            Some(all) => {
                let factors = all.array::<2>().ok_or(ODD)?;
                factors.map(|it| usize::try_from(it).unwrap_or(usize::MAX))
            }
        };
        let factors = factors.unwrap_or(stated);
        let [h, v] = factors;
        if !matches!(factors, [4, 1 | 2 | 4] | [2, 1 | 2] | [1, 1 | 2]) {
            return Err(ODD);
        }
        let side = |tag| directory.one(tag).unwrap_or(0) as usize;
        if side(tag::WIDTH) < h || side(tag::HEIGHT) < v {
            return Err(damaged("it is smaller than its chroma's samples"));
        }
        let coefficients = directory.reals(tag::COEFFICIENTS);
        let coefficients = match coefficients {
            None => [0.299, 0.587, 0.114],
            Some(&[r, g, b]) if g != 0.0 => [r, g, b],
            Some(_) => return Err(ODD),
        };
        let range = match directory.reals(tag::REFERENCE) {
            None => [0.0, 255.0, 128.0, 255.0, 128.0, 255.0],
            Some(values) => {
                *values.first_chunk::<6>().filter(|_| values.len() == 6).ok_or(ODD)?
            }
        };
        if range.iter().any(|value| value.is_nan() || value.abs() >= 1e6) {
            return Err(ODD);
        }
        Ok(Self::new(coefficients, range, factors))
    }

    /// In the order and the precision of `TIFFYCbCrToRGBInit`.
    fn new([r, g, b]: [f32; 3], range: [f32; 6], factors: [usize; 2]) -> Self {
        let fixed = |value: f32| {
            let value = if value >= 0.0 { value.min(2.0) } else { 0.0 };
            (f64::from(value * 65536.0) + 0.5) as i32
        };
        let (of_red, of_blue) = (2.0 - 2.0 * r, 2.0 - 2.0 * b);
        let red = fixed(of_red);
        let green_of_cr = -fixed(r * of_red / g);
        let blue = fixed(of_blue);
        let green_of_cb = -fixed(b * of_blue / g);
        let spread = |code: i32, [black, white]: [f32; 2], most: f32| {
            let by = if white == black { 1.0 } else { white - black };
            let value = (code - black as i32) as f32 * most / by;
            value.clamp(-4096.0, 4096.0) as i32
        };
        let [y0, y1, cb0, cb1, cr0, cr1] = range;
        let index = |i: usize| i32::try_from(i).unwrap_or(0);
        let chroma = |i: usize, [black, white]: [f32; 2]| {
            spread(index(i) - 128, [black - 128.0, white - 128.0], 127.0)
        };
        let (cb, cr) = (|i| chroma(i, [cb0, cb1]), |i| chroma(i, [cr0, cr1]));
        use std::array::from_fn;
        Self {
            luma: from_fn(|i| spread(index(i), [y0, y1], 255.0)),
            red: from_fn(|i| (red * cr(i) + HALF) >> SHIFT),
            green_of_cr: from_fn(|i| green_of_cr * cr(i)),
            green_of_cb: from_fn(|i| green_of_cb * cb(i) + HALF),
            blue: from_fn(|i| (blue * cb(i) + HALF) >> SHIFT),
            factors,
        }
    }

    /// One pixel.
    pub(super) fn rgb(&self, [y, cb, cr]: [u8; 3]) -> [u8; 3] {
        let [y, cb, cr] = [y, cb, cr].map(usize::from);
        let luma = self.luma[y];
        let green = (self.green_of_cb[cb] + self.green_of_cr[cr]) >> SHIFT;
        [luma + self.red[cr], luma + green, luma + self.blue[cb]]
            .map(|value| u8::try_from(value.clamp(0, 255)).unwrap_or(u8::MAX))
    }

    /// Bytes of a row of blocks; each has its pixels' luma, row by row, a Cb and a Cr.
    pub(super) fn block_row_bytes(&self, width: usize) -> usize {
        width.div_ceil(self.factors[0]).saturating_mul(self.block_bytes())
    }

    /// Bytes of so many rows of a strip or tile.
    pub(super) fn part_bytes(&self, width: usize, rows: usize) -> usize {
        self.block_row_bytes(width).saturating_mul(rows.div_ceil(self.factors[1]))
    }

    /// libtiff counts a strip's bytes in rows of pixels, rounded down.
    pub(super) fn check_rows(&self, width: usize) -> Result<(), SampleFault> {
        match self.block_row_bytes(width).is_multiple_of(self.factors[1]) {
            true => Ok(()),
            false => Err(unsupported("unevenly subsampled YCbCr")),
        }
    }

    fn block_bytes(&self) -> usize {
        let [h, v] = self.factors;
        h * v + 2
    }

    /// Makes RGB of row `y` of a part whose rows have `width` pixels.
    pub(super) fn row(&self, data: &[u8], (y, width): (usize, usize), out: &mut [u8]) {
        let [h, v] = self.factors;
        let stride = self.block_row_bytes(width);
        let rest = data.get((y / v).saturating_mul(stride)..).unwrap_or_default();
        let blocks = rest.chunks_exact(self.block_bytes());
        let pixels = out.as_chunks_mut::<3>().0.chunks_mut(h);
        for (pixels, block) in pixels.zip(blocks) {
            let luma = &block[y % v * h..];
            let [cb, cr] = [block[h * v], block[h * v + 1]];
            for (pixel, y) in pixels.iter_mut().zip(luma) {
                *pixel = self.rgb([*y, cb, cr]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greys_stay_and_the_range_is_spread() {
        let full = [0.0, 255.0, 128.0, 255.0, 128.0, 255.0];
        let coefficients = [0.299, 0.587, 0.114];
        let it = YCbCr::new(coefficients, full, [1, 1]);
        assert_eq!(it.rgb([77, 128, 128]), [77; 3]);
        assert_eq!(it.rgb([76, 85, 255]), [254, 0, 0]);
        let studio = [16.0, 235.0, 128.0, 240.0, 128.0, 240.0];
        let it = YCbCr::new(coefficients, studio, [2, 2]);
        assert_eq!((it.rgb([16, 128, 128]), it.rgb([235, 128, 128])), ([0; 3], [255; 3]));
        assert_eq!(it.part_bytes(3, 3), 24);
    }
}
