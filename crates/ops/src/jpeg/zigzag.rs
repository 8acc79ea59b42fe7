//! The order in which a block's coefficients are sent (T.81 figure A.6), and the order in which they are
//! kept ([`Block`]): the one in which the inverse DCT combines them.
//!
//! Its kernels multiply rows 2 and 6, 7 and 1, 5 and 3 in pairs, and after them columns in the same
//! way. Kept as pairs, coefficients need no shuffles before that. Rows 0 and 4 stay whole, since their sum
//! and difference come first. DC is the first one.

use super::block::Block;

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

/// Natural place (row · 8 + column) of each coefficient in the order of sending, which walks the
/// diagonals, up and down in turn.
const NATURAL: [u8; 64] = {
    let mut places = [0; 64];
    let (mut row, mut column, mut zigzag): (u8, u8, usize) = (0, 0, 0);
    while zigzag < 64 {
        places[zigzag] = row * 8 + column;
        zigzag += 1;
        let goes_up = (row + column) % 2 == 0;
        match (goes_up, row, column) {
            (true, _, 7) => row += 1,
            (true, 0, _) => column += 1,
            (true, _, _) => (row, column) = (row - 1, column + 1),
            (false, 7, _) => column += 1,
            (false, _, 0) => row += 1,
            (false, _, _) => (row, column) = (row + 1, column - 1),
        }
    }
    places
};

/// The order of columns in which the inverse DCT combines them, and in which each row is kept.
pub(crate) const COLUMNS: [usize; 8] = [0, 4, 2, 6, 7, 1, 5, 3];

/// The rows whose coefficients are kept in turn, in pairs: from place 16 on, each sixteen places.
pub(crate) const ROWS_IN_TURN: [[usize; 2]; 3] = [[2, 6], [7, 1], [5, 3]];

/// For each natural place the place in a [`Block`]. Eight neighbours are rows 0, 4, the left and right halves
/// of rows 2 and 6 in turn, then of 7 and 1, and of 5 and 3.
const KEPT: [u8; 64] = {
    /// For each row the first of its places, and how far these are apart.
    const ROWS: [[u8; 2]; 8] =
        [[0, 1], [33, 2], [16, 2], [49, 2], [8, 1], [48, 2], [17, 2], [32, 2]];
    let mut places = [0; 64];
    let mut row = 0;
    while row < 8 {
        let [mut place, apart] = ROWS[row];
        let mut nth = 0;
        while nth < 8 {
            places[8 * row + COLUMNS[nth]] = place;
            place += apart;
            nth += 1;
        }
        row += 1;
    }
    places
};

/// For each coefficient in the order of sending its place in a [`Block`].
const PLACES: [u8; 64] = {
    let mut places = [0; 64];
    let mut number = 0;
    while number < 64 {
        places[number] = KEPT[NATURAL[number] as usize];
        number += 1;
    }
    places
};

/// For a decoder that has gone on to coefficient number `next`: the place of the one
/// before it, plus one. Where a run or a mark leads out of the block, a place far behind it.
pub(crate) const AFTER: [u8; 256] = {
    let mut after = [u8::MAX; 256];
    let mut next = 1;
    while next <= 64 {
        after[next] = PLACES[next - 1] + 1;
        next += 1;
    }
    after
};

/// The natural place of coefficient number `zigzag` (below 64): row by row, as tables of steps are kept.
pub(crate) const fn natural(zigzag: usize) -> usize {
    NATURAL[zigzag] as usize
}

/// The place of coefficient number `zigzag` (below 64) in a [`Block`].
pub(crate) const fn place_of(zigzag: usize) -> usize {
    PLACES[zigzag] as usize
}

/// The place in a [`Block`] of the coefficient in this row and column, as `8 · row + column`.
pub(crate) const fn kept(natural: usize) -> usize {
    KEPT[natural] as usize
}

/// Bit k is set when coefficient number k, in the order of sending, is not zero.
#[inline(always)]
pub(crate) fn not_zero(block: &Block) -> u64 {
    // Eight bytes of 0 or 1 become eight bits: the first the lowest.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let bytes = block.map(|coefficient| u8::from(coefficient != 0));
    let (rows, _) = bytes.as_chunks::<8>();
    rows.iter().zip(&SENT).fold(0, |mask, (&row, sent)| {
        let columns = u64::from_le_bytes(row).wrapping_mul(GATHER) >> 56;
        mask | sent[columns as usize]
    })
}

/// For each eight neighbours of a block and each set of these: the bits of these coefficients in the order
/// of sending.
static SENT: [[u64; 256]; 8] = {
    let mut sent = [[0; 256]; 8];
    let mut k = 0;
    while k < 64 {
        let (row, column) = (place_of(k) / 8, place_of(k) % 8);
        let mut columns = 0;
        while columns < 256 {
            sent[row][columns] |= ((columns as u64 >> column) & 1) << k;
            columns += 1;
        }
        k += 1;
    }
    sent
};

#[cfg(test)]
mod tests {
    use super::*;

    /// T.81 figure A.6, read row by row: the number of each place.
    #[test]
    fn the_order_is_the_standards() {
        let numbers = [
            0, 1, 5, 6, 14, 15, 27, 28, 2, 4, 7, 13, 16, 26, 29, 42, 3, 8, 12, 17, 25,
            30, 41, 43, 9, 11, 18, 24, 31, 40, 44, 53, 10, 19, 23, 32, 39, 45, 52, 54,
            20, 22, 33, 38, 46, 51, 55, 60, 21, 34, 37, 47, 50, 56, 59, 61, 35, 36, 48,
            49, 57, 58, 62, 63,
        ];
        for (at, number) in numbers.into_iter().enumerate() {
            assert_eq!(natural(number), at);
            assert_eq!(place_of(number), kept(at));
            assert_eq!(usize::from(AFTER[number + 1]), kept(at) + 1);
        }
        assert!(AFTER[65..].iter().all(|&place| place > 64));
    }

    /// Row · 8 + column of what is kept at each place.
    #[test]
    fn blocks_are_kept_as_the_transform_combines_them() {
        let expected = [
            0, 4, 2, 6, 7, 1, 5, 3, 32, 36, 34, 38, 39, 33, 37, 35, 16, 48, 20, 52, 18,
            50, 22, 54, 23, 55, 17, 49, 21, 53, 19, 51, 56, 8, 60, 12, 58, 10, 62, 14,
            63, 15, 57, 9, 61, 13, 59, 11, 40, 24, 44, 28, 42, 26, 46, 30, 47, 31, 41,
            25, 45, 29, 43, 27,
        ];
        for (place, at) in expected.into_iter().enumerate() {
            assert_eq!(kept(at), place);
        }
    }
}
