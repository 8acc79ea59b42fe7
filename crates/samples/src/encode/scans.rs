//! Which coefficients are in which scan of the file.
//!
//! Read `tokens.rs` next.

use std::ops::Range;

use super::Scans;

/// One pass over some components, with some bits of some of their coefficients.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) components: Range<usize>,
    /// The first and last coefficient, in zigzag order.
    pub(super) band: (usize, usize),
    /// How many low bits earlier scans left out; 0: no earlier scan has these coefficients.
    pub(super) high: u8,
    /// How many low bits this scan leaves out.
    pub(super) low: u8,
}

/// The scans of a file in order: libjpeg's for one and for three components.
pub(super) fn script(scans: Scans, n_components: usize) -> Vec<Scan> {
    const Y: Range<usize> = 0..1;
    const CB: Range<usize> = 1..2;
    const CR: Range<usize> = 2..3;
    let all = 0..n_components;
    let steps = match (scans, n_components) {
        (Scans::Baseline, _) => vec![(all, (0, 63), (0, 0))],
        (Scans::Progressive, 1) => vec![
            (Y, (0, 0), (0, 1)),
            (Y, (1, 5), (0, 2)),
            (Y, (6, 63), (0, 2)),
            (Y, (1, 63), (2, 1)),
            (Y, (0, 0), (1, 0)),
            (Y, (1, 63), (1, 0)),
        ],
        (Scans::Progressive, _) => vec![
            (all.clone(), (0, 0), (0, 1)),
            (Y, (1, 5), (0, 2)),
            (CR, (1, 63), (0, 1)),
            (CB, (1, 63), (0, 1)),
            (Y, (6, 63), (0, 2)),
            (Y, (1, 63), (2, 1)),
            (all, (0, 0), (1, 0)),
            (CR, (1, 63), (1, 0)),
            (CB, (1, 63), (1, 0)),
            (Y, (1, 63), (1, 0)),
        ],
    };
    let scan = |(components, band, (high, low))| Scan { components, band, high, low };
    steps.into_iter().map(scan).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_every_coefficient_is_in_one_scan() {
        for (scans, n) in
            [(Scans::Baseline, 3), (Scans::Progressive, 1), (Scans::Progressive, 3)]
        {
            // How many low bits are still missing; 16 is all of them.
            let mut missing = vec![[16; 64]; n];
            for Scan { components, band: (first, last), high, low } in script(scans, n) {
                for component in &mut missing[components] {
                    for left in &mut component[first..=last] {
                        assert_eq!(*left, if high == 0 { 16 } else { high });
                        *left = low;
                    }
                }
            }
            assert_eq!(missing, vec![[0; 64]; n]);
        }
    }
}
