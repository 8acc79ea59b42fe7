//! Where the mask of a block tells of each place, for kernels in which every place finds its value.

use crate::jpeg::zigzag::place_of;

/// Where the bits of a mask stand that tell of `N` coefficients.
#[derive(Debug)]
pub(super) struct Places<const N: usize> {
    /// The byte of the mask.
    pub(super) byte: [u8; N],
    /// The bit in it.
    pub(super) bit: [u8; N],
    /// That bit and those below.
    pub(super) up_to: [u8; N],
}

/// For all places, of which each part has `N`.
pub(super) const fn places<const N: usize, const PARTS: usize>() -> [Places<N>; PARTS] {
    const { assert!(N * PARTS == 64, "all places of a block") };
    let mut places =
        [const { Places { byte: [0; N], bit: [0; N], up_to: [0; N] } }; PARTS];
    let mut number = 0;
    while number < 64 {
        let (part, at) = (place_of(number) / N, place_of(number) % N);
        let bit = 1 << (number % 8);
        places[part].byte[at] = (number / 8) as u8;
        places[part].bit[at] = bit;
        places[part].up_to[at] = bit | (bit - 1);
        number += 1;
    }
    places
}
