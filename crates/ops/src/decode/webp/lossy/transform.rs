//! The inverse transforms (RFC 6386 §14.3, §14.4), with the overflows of libwebp on x86-64.
//!
//! Coefficients of intact files fit. Those of damaged ones may not: libwebp's vector code then keeps the low
//! 16 bits of each sum, except where a block has so few coefficients that it takes a shorter way.

use super::predict::{STRIDE, Work};

/// What a block's coefficients need to become pixels; libwebp has a transform for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Extent {
    #[default]
    Empty,
    /// The first coefficient alone.
    First,
    /// None but the first three in zigzag order.
    Three,
    All,
}

/// Both factors of the cosine transform, of 2^16: √2·cos(π/8) less one, and √2·sin(π/8).
const COS: i32 = 20_091;
const SIN: i32 = 35_468;

fn by_cos(value: i32) -> i32 {
    ((value * COS) >> 16) + value
}

fn by_sin(value: i32) -> i32 {
    (value * SIN) >> 16
}

/// The first coefficients of a macroblock's luma, from `n` coefficients of their own.
pub(super) fn second(block: &[i16; 16], n: usize) -> [i16; 16] {
    let input = block.map(i32::from);
    if n <= 1 {
        return [((input[0] + 3) >> 3) as i16; 16];
    }
    let mut columns = [0; 16];
    for i in 0..4 {
        let [a, b, c, d] = [input[i], input[4 + i], input[8 + i], input[12 + i]];
        columns[i] = a + d + b + c;
        columns[4 + i] = a - d + b - c;
        columns[8 + i] = a + d - b - c;
        columns[12 + i] = a - d - b + c;
    }
    let mut out = [0; 16];
    for (row, out) in columns.as_chunks::<4>().0.iter().zip(out.as_chunks_mut::<4>().0) {
        let [a, b, c, d] = *row;
        let all = [a + d + b + c, a - d + b - c, a + d - b - c, a - d - b + c];
        *out = all.map(|sum| ((sum + 3) >> 3) as i16);
    }
    out
}

/// Adds a block to the prediction, from cell `at` on.
pub(super) fn add(block: &[i16; 16], extent: Extent, work: &mut Work, at: usize) {
    match extent {
        Extent::Empty => {}
        Extent::First => {
            let sum = (i32::from(block[0]) + 4) >> 3;
            (0..4).for_each(|y| add_row(work, at + y * STRIDE, [sum; 4]));
        }
        Extent::Three => {
            let [first, right, below] = [block[0], block[1], block[4]].map(i32::from);
            let rows = [by_cos(below), by_sin(below), -by_sin(below), -by_cos(below)];
            for (y, row) in rows.iter().enumerate() {
                let sum = first + 4 + row;
                let (far, near) = (by_cos(right), by_sin(right));
                let sums = [sum + far, sum + near, sum - near, sum - far];
                add_row(work, at + y * STRIDE, sums.map(|sum| sum >> 3));
            }
        }
        Extent::All => add_all(block, work, at),
    }
}

/// The whole transform, in 16 bits.
pub(super) fn add_all(block: &[i16; 16], work: &mut Work, at: usize) {
    let pass = |[a, b, c, d]: [i16; 4]| {
        let [cos, sin]: [fn(i16) -> i16; 2] =
            [|x| by_cos(x.into()) as i16, |x| by_sin(x.into()) as i16];
        let (even, odd) = (a.wrapping_add(c), a.wrapping_sub(c));
        let outer = cos(b).wrapping_add(sin(d));
        let inner = sin(b).wrapping_sub(cos(d));
        [
            even.wrapping_add(outer),
            odd.wrapping_add(inner),
            odd.wrapping_sub(inner),
            even.wrapping_sub(outer),
        ]
    };
    let columns: [[i16; 4]; 4] = std::array::from_fn(|x| {
        pass([block[x], block[4 + x], block[8 + x], block[12 + x]])
    });
    for y in 0..4 {
        let [first, rest @ ..] = columns.map(|column| column[y]);
        let sums = pass([first.wrapping_add(4), rest[0], rest[1], rest[2]]);
        add_row(work, at + y * STRIDE, sums.map(|sum| i32::from(sum >> 3)));
    }
}

fn add_row(work: &mut Work, at: usize, sums: [i32; 4]) {
    for (cell, sum) in work.cells[at..at + 4].iter_mut().zip(sums) {
        *cell = (i32::from(*cell) + sum).clamp(0, 255) as u8;
    }
}
