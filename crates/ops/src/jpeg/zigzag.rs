//! The order in which a block's coefficients are sent (T.81 figure A.6).

/// Natural place (row · 8 + column) of each coefficient in the order of sending.
const NATURAL: [u8; 64] = natural_places();

/// For a decoder that has gone on to coefficient number `next`: the natural place of the one
/// before it, plus one. Where a run or a mark leads out of the block, a place far behind it.
pub(crate) const AFTER: [u8; 256] = places_after();

/// The natural place of coefficient number `zigzag` (below 64).
pub(crate) const fn natural(zigzag: usize) -> usize {
    NATURAL[zigzag] as usize
}

/// Walks the diagonals, up and down in turn.
const fn natural_places() -> [u8; 64] {
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
}

const fn places_after() -> [u8; 256] {
    let mut after = [u8::MAX; 256];
    let mut next = 1;
    while next <= 64 {
        after[next] = NATURAL[next - 1] + 1;
        next += 1;
    }
    after
}

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
