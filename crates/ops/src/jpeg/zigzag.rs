//! The order in which a block's coefficients are sent (T.81 figure A.6).

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

/// For a decoder that has gone on to coefficient number `next`: the natural place of the one
/// before it, plus one. Where a run or a mark leads out of the block, a place far behind it.
pub(crate) const AFTER: [u8; 256] = {
    let mut after = [u8::MAX; 256];
    let mut next = 1;
    while next <= 64 {
        after[next] = NATURAL[next - 1] + 1;
        next += 1;
    }
    after
};

/// The natural place of coefficient number `zigzag` (below 64).
pub(crate) const fn natural(zigzag: usize) -> usize {
    NATURAL[zigzag] as usize
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

/// For each row of a block and each set of its columns: the bits of these coefficients in
/// the order of sending.
static SENT: [[u64; 256]; 8] = {
    let mut sent = [[0; 256]; 8];
    let mut k = 0;
    while k < 64 {
        let (row, column) = (natural(k) / 8, natural(k) % 8);
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
        for (place, number) in numbers.into_iter().enumerate() {
            assert_eq!(natural(number), place);
            assert_eq!(usize::from(AFTER[number + 1]), place + 1);
        }
        assert!(AFTER[65..].iter().all(|&place| place > 64));
    }
}
