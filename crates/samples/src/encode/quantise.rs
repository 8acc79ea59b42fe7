//! Quantises coefficients: the only loss besides half-resolution chroma.
//!
//! The tables are the examples of T.81, Annex K.1, scaled for the quality as libjpeg scales
//! them. Read `scans.rs` next.

use super::Block;

/// Table K.1, for luma, in row order.
const LUMA: [u16; 64] = [
    16, 11, 10, 16, 24, 40, 51, 61, //
    12, 12, 14, 19, 26, 58, 60, 55, //
    14, 13, 16, 24, 40, 57, 69, 56, //
    14, 17, 22, 29, 51, 87, 80, 62, //
    18, 22, 37, 56, 68, 109, 103, 77, //
    24, 35, 55, 64, 81, 104, 113, 92, //
    49, 64, 78, 87, 103, 121, 120, 101, //
    72, 92, 95, 98, 112, 100, 103, 99,
];

/// Table K.2, for chroma, without the rows and columns in which everything is 99.
const CHROMA: [[u16; 4]; 4] =
    [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]];

/// The places of the coefficients in a block, from coarsest to finest (T.81 Figure A.6).
const ZIGZAG: [usize; 64] = {
    let mut order = [0; 64];
    let (mut x, mut y, mut i) = (0, 0, 0);
    while i < 64 {
        order[i] = y * 8 + x;
        i += 1;
        // Up the even diagonals, down the odd ones, and along the edge to the next.
        let up = (x + y) % 2 == 0;
        match (up, x, y) {
            (true, 7, _) => y += 1,
            (true, _, 0) => x += 1,
            (true, ..) => (x, y) = (x + 1, y - 1),
            (false, _, 7) => x += 1,
            (false, 0, _) => y += 1,
            (false, ..) => (x, y) = (x - 1, y + 1),
        }
    }
    order
};

/// The divisors of a component, in zigzag order; the second component and later ones are chroma.
pub(super) fn table(component: usize, quality: u16) -> [u16; 64] {
    let percent = if quality < 50 { 5000 / quality } else { 200 - 2 * quality };
    ZIGZAG.map(|place| {
        let (y, x) = (place / 8, place % 8);
        let base = match component {
            0 => LUMA[place],
            _ if x < 4 && y < 4 => CHROMA[y][x],
            _ => 99,
        };
        ((u32::from(base) * u32::from(percent) + 50) / 100).clamp(1, 255) as u16
    })
}

/// The block divided by the table and rounded, half away from zero; in zigzag order.
pub(super) fn block(coefficients: &Block, table: &[u16; 64]) -> Block {
    let mut out = [0; 64];
    for ((to, place), &divisor) in out.iter_mut().zip(ZIGZAG).zip(table) {
        let coefficient = coefficients[place];
        // The transform leaves eight times the coefficient.
        let magnitude = (coefficient.unsigned_abs() + 4 * divisor) / (8 * divisor);
        let magnitude = magnitude.cast_signed();
        *to = if coefficient < 0 { -magnitude } else { magnitude };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zigzag_visits_every_place_once() {
        assert_eq!(ZIGZAG[..10], [0, 1, 8, 16, 9, 2, 3, 10, 17, 24]);
        assert_eq!(ZIGZAG[60..], [47, 55, 62, 63][..]);
        let mut places = ZIGZAG;
        places.sort_unstable();
        assert!(places.into_iter().eq(0..64));
    }

    #[test]
    fn the_quality_scales_the_tables() {
        assert_eq!(table(0, 50)[..4], [16, 11, 12, 14]);
        assert_eq!(table(0, 45)[..4], [18, 12, 13, 16]);
        assert_eq!(table(1, 98)[..6], [1, 1, 1, 1, 1, 1]);
        assert_eq!(table(1, 90)[63], 20);
        assert_eq!(table(2, 1)[..2], [255; 2]);
    }

    #[test]
    fn halves_are_rounded_away_from_zero() {
        let mut coefficients = [0; 64];
        coefficients[..4].copy_from_slice(&[40, -40, 39, -39]);
        let quantised = block(&coefficients, &[10; 64]);
        assert_eq!([0, 1, 5, 6].map(|i| quantised[i]), [1, -1, 0, 0]);
    }
}
