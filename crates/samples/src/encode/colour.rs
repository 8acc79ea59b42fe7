//! Converts RGB to planes of luma and chroma, at the resolution at which they are stored.
//!
//! JFIF's YCbCr in fixed point with 16 fractional bits. Read `dct.rs` next.

use super::Sampling;

/// The samples of one component in row order. The last ones are repeated to the right and
/// downwards until whole MCUs are filled.
#[derive(Debug)]
pub(super) struct Plane {
    /// Blocks of an MCU, horizontally as well as vertically.
    pub(super) factor: usize,
    /// Samples of the picture, across and down.
    pub(super) width: usize,
    pub(super) height: usize,
    /// Samples from one row to the next.
    pub(super) per_row: usize,
    pub(super) samples: Vec<u8>,
}

/// A weighted sum of red, green and blue; weights and offset are in units of 1/65536.
struct Mix {
    weights: [i32; 3],
    add: i32,
}

const Y: Mix = Mix { weights: [19_595, 38_470, 7_471], add: 1 << 15 };
// One unit less than one half, or pure blue would become 256.
const MIDDLE: i32 = (128 << 16) + (1 << 15) - 1;
const CB: Mix = Mix { weights: [-11_058, -21_710, 32_768], add: MIDDLE };
const CR: Mix = Mix { weights: [32_768, -27_439, -5_329], add: MIDDLE };

/// The components of RGB bytes: one for grey, else three.
pub(super) fn planes(rgb: &[u8], width: usize, sampling: Sampling) -> Vec<Plane> {
    let factor = if sampling == Sampling::Half { 2 } else { 1 };
    let plane = |mix| Plane::new(rgb, width, factor, mix);
    match sampling {
        Sampling::Grayscale => vec![plane(&Y)],
        Sampling::Full => vec![plane(&Y), plane(&CB), plane(&CR)],
        Sampling::Half => vec![plane(&Y), plane(&CB).halved(), plane(&CR).halved()],
    }
}

impl Plane {
    fn new(rgb: &[u8], width: usize, factor: usize, mix: &Mix) -> Self {
        let side = 8 * factor;
        let height = rgb.len() / (width * 3);
        let per_row = width.next_multiple_of(side);
        let mut samples = Vec::with_capacity(per_row * height.next_multiple_of(side));
        for row in rgb.chunks_exact(width * 3) {
            samples.extend(row.chunks_exact(3).map(|pixel| mix.of(pixel)));
            repeat_last(&mut samples, 1, per_row - width);
        }
        let n_missing = height.next_multiple_of(side) - height;
        repeat_last(&mut samples, per_row, n_missing);
        Self { factor, width, height, per_row, samples }
    }

    /// The plane at half the resolution: means of two by two samples.
    fn halved(&self) -> Self {
        let (width, height) = (self.width.div_ceil(2), self.height.div_ceil(2));
        let per_row = self.per_row / 2;
        let mut samples = Vec::with_capacity(self.samples.len() / 4);
        for rows in self.samples.chunks_exact(2 * self.per_row).take(height) {
            let (upper, lower) = rows.split_at(self.per_row);
            let pairs = upper.chunks_exact(2).zip(lower.chunks_exact(2));
            samples.extend(pairs.enumerate().map(|(x, (upper, lower))| {
                let four = [upper[0], upper[1], lower[0], lower[1]];
                let sum: u16 = four.map(u16::from).iter().sum();
                // Halves are rounded down and up alternately, or the plane would get brighter.
                let [mean, _] =
                    ((sum + if x % 2 == 0 { 1 } else { 2 }) / 4).to_le_bytes();
                mean
            }));
        }
        repeat_last(&mut samples, per_row, height.next_multiple_of(8) - height);
        Self { factor: 1, width, height, per_row, samples }
    }
}

impl Mix {
    /// 0 to 255: the whole part of the sum.
    fn of(&self, pixel: &[u8]) -> u8 {
        let terms = pixel.iter().zip(self.weights).map(|(&c, w)| i32::from(c) * w);
        let [_, _, whole, _] = (terms.sum::<i32>() + self.add).to_le_bytes();
        whole
    }
}

/// Appends the last `len` samples once more, `n_times`.
fn repeat_last(samples: &mut Vec<u8>, len: usize, n_times: usize) {
    for _ in 0..n_times {
        samples.extend_from_within(samples.len() - len..);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primaries_have_the_colours_of_jfif() {
        // JFIF 1.02, "Conversion to and from RGB".
        for (rgb, ycbcr) in [
            ([0, 0, 0], [0, 128, 128]),
            ([255, 255, 255], [255, 128, 128]),
            ([255, 0, 0], [76, 85, 255]),
            ([0, 255, 0], [150, 44, 21]),
            ([0, 0, 255], [29, 255, 107]),
        ] {
            assert_eq!([Y, CB, CR].map(|mix| mix.of(&rgb)), ycbcr, "{rgb:?}");
        }
    }

    #[test]
    fn the_last_samples_are_repeated_to_whole_mcus() {
        let rgb = [10, 10, 10, 90, 90, 90];
        let [luma] = &planes(&rgb, 2, Sampling::Grayscale)[..] else { panic!() };
        assert_eq!((luma.width, luma.height, luma.per_row), (2, 1, 8));
        assert_eq!(luma.samples, [10, 90, 90, 90, 90, 90, 90, 90].repeat(8));
    }

    #[test]
    fn halves_are_rounded_down_and_up_in_turn() {
        // Both pairs of columns have the mean 10.5.
        let grey = [10, 11, 10, 11, 11, 10, 11, 10];
        let plane =
            Plane { factor: 2, width: 4, height: 2, per_row: 4, samples: grey.into() };
        assert_eq!(plane.halved().samples[..2], [10, 11]);
    }
}
