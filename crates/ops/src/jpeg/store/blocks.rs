//! A block of a store: quantised coefficients in whole bytes, which are unpacked without a
//! branch on what they are (`docs/store-format.md`, section 3).
//!
//! ```text
//! header 3 bytes │ mask, m bytes │ values, the first 8 of w0 bits, the others of w1 │ exceptions
//! ```
//!
//! [`write_with`] and [`read`] are the meaning; kernels are twins. A block says how long
//! it is in its first bytes, so the next one can begin before this one's values are known: that
//! is what makes it fast. Read `stored.rs` next.
#![allow(
    clippy::cast_possible_truncation,
    reason = "numbers are cut to as many bits as they are kept in"
)]

use std::ops::Range;

use crate::jpeg::Broken;
use crate::jpeg::block::Block;
use crate::jpeg::zigzag::{kept, not_zero, place_of};
use crate::kernels::Level;
use crate::kernels::vectors::soon_read;

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod places;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Bytes that may be looked at from a block's start on: the longest block, and a load of eight
/// bytes from its last one.
pub(crate) const WINDOW: usize = 3 + 8 + 63 + 1 + 63 * 3 + 8;

/// Values that have the first width.
const FIRST_VALUES: usize = 8;

/// The field of the first width when exceptions follow; the width is then 8.
const WITH_EXCEPTIONS: u32 = 9;

/// Largest magnitude that is no exception.
const LARGEST: i16 = 127;

/// The header's fields, checked.
#[derive(Debug, Clone, Copy)]
struct Header {
    dc: i16,
    /// Bit k − 1 stands for coefficient k in zigzag order.
    mask: u64,
    /// Bits of the first values and of the others.
    widths: [u32; 2],
    has_exceptions: bool,
    /// Where the values begin, in bytes from the block's start.
    values: usize,
    /// Where they end.
    end: usize,
}

impl Header {
    /// The header at the start of `window`.
    #[inline(always)]
    fn read(window: &[u8; WINDOW]) -> Result<Self, Broken> {
        let [a, b, c, d, ..] = *window;
        let fields = u32::from_le_bytes([a, b, c, d]);
        let n_mask = (fields >> 12) & 15;
        let (first, others) = ((fields >> 16) & 15, (fields >> 20) & 15);
        let mask = u64::from_le_bytes(*window[3..].first_chunk().expect("in the window"));
        let mask = mask & below(8 * n_mask);
        if n_mask > 8 || first > WITH_EXCEPTIONS || others > 8 || mask >> 63 != 0 {
            return Err(Broken);
        }
        let n = mask.count_ones();
        let n_first = n.min(FIRST_VALUES as u32);
        let first_width = first.min(8);
        let n_bits = n_first * first_width + (n - n_first) * others;
        let values = 3 + n_mask as usize;
        Ok(Self {
            // Twelve bits with their sign.
            dc: ((fields << 4) as u16).cast_signed() >> 4,
            mask,
            widths: [first_width, others],
            has_exceptions: first == WITH_EXCEPTIONS,
            values,
            end: values + n_bits.div_ceil(8) as usize,
        })
    }
}

/// The lowest `n` bits of 64; all where there are more.
#[inline(always)]
fn below(n: u32) -> u64 {
    1_u64.checked_shl(n).map_or(u64::MAX, |bit| bit - 1)
}

/// Unpacks the block at the start of `window` into `block`; returns its length. What `block`
/// holds after an error does not matter.
#[inline(always)]
fn read(window: &[u8; WINDOW], block: &mut Block) -> Result<usize, Broken> {
    let header = Header::read(window)?;
    *block = [0; 64];
    block[0] = header.dc;
    let mut at = header.values;
    let mut mask = header.mask;
    let [mut width, others] = header.widths;
    // Eight values take as many bytes as each has bits.
    while mask != 0 {
        let eight = window[at..].first_chunk().expect("in the window");
        let mut values = u64::from_le_bytes(*eight);
        for _ in 0..8 {
            block[place_of(mask.trailing_zeros() as usize + 1)] = signed(values, width);
            values >>= width;
            mask &= mask - 1;
            if mask == 0 {
                break;
            }
        }
        at += width as usize;
        width = others;
    }
    if header.has_exceptions {
        return exceptions(window, header.end, block);
    }
    Ok(header.end)
}

/// The value in the lowest `width` bits: there is no zero. Wraps where 128 would come, which
/// is not written.
#[inline(always)]
fn signed(bits: u64, width: u32) -> i16 {
    let sign = ((1_u32 << width) >> 1) as u8;
    let value = (((bits & below(width)) as u8 ^ sign).wrapping_sub(sign)).cast_signed();
    value.wrapping_add(i8::from(value >= 0)).into()
}

/// Puts the exceptions that stand at `at` in their places; returns where they end.
#[cold]
fn exceptions(
    window: &[u8; WINDOW],
    at: usize,
    block: &mut Block,
) -> Result<usize, Broken> {
    let n = usize::from(window[at]);
    let end = at + 1 + 3 * n;
    let list = window.get(at + 1..end).ok_or(Broken)?;
    for exception in list.chunks_exact(3) {
        let [place, low, high] = [exception[0], exception[1], exception[2]];
        if !(1..64).contains(&place) {
            return Err(Broken);
        }
        block[kept(place.into())] = i16::from_le_bytes([low, high]);
    }
    Ok(end)
}

/// Bytes that are written one after the other, in memory that stays for the next image.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Those after the first `len` mean nothing.
    memory: Vec<u8>,
    len: usize,
}

/// Room for the longest block without exceptions, whose last group may begin 59 bytes behind
/// its mask, and a store of eight bytes there.
const ROOM: usize = 3 + 8 + VALUES_ROOM;

/// Room for the values alone.
const VALUES_ROOM: usize = 72;

impl Written {
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.memory[..self.len]
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The next bytes; what is written there counts once `len` does.
    #[inline(always)]
    fn room(&mut self) -> &mut [u8; ROOM] {
        if self.memory.len() < self.len + ROOM {
            self.grow(ROOM);
        }
        let room = &mut self.memory[self.len..self.len + ROOM];
        room.try_into().expect("as long as the room")
    }

    /// Makes room for `n_bytes` more.
    #[cold]
    fn grow(&mut self, n_bytes: usize) {
        self.memory.resize(2 * self.len + n_bytes, 0);
    }

    fn extend(&mut self, bytes: &[u8]) {
        if self.memory.len() < self.len + bytes.len() {
            self.grow(bytes.len());
        }
        self.memory[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// Appends `blocks` to `out`. `None` when the DC of one has more than 12 bits, which no 8-bit
/// JPEG needs; `out` then holds those before it.
pub(crate) fn write_row<'a>(
    level: Level,
    blocks: impl Iterator<Item = &'a Block>,
    out: &mut Written,
) -> Option<()> {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(proof) => x86::write_row_avx512(proof, blocks, out),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(_) => write_with(blocks, out, numbers, press),
        #[cfg(target_arch = "aarch64")]
        Level::Neon(_) => write_with(blocks, out, numbers, press),
        Level::Scalar => write_with(blocks, out, numbers, press),
    }
}

/// The numbers of a block's values, and what is to be known of them.
#[derive(Debug)]
struct Numbers {
    /// Bit k − 1 stands for coefficient k in zigzag order.
    mask: u64,
    /// As they are written, one byte each, eight to a group; behind them zeros.
    groups: [u64; 8],
    /// What the first values, and the others, have in bits besides the sign.
    bits: [u8; 2],
    /// Bit p is set when the coefficient at place p is beyond [`LARGEST`].
    large: u64,
}

/// [`write_row`] with one way to find the numbers of a block, and one to press groups of
/// eight together: as many as the mask says, the first with the first width.
#[inline(always)]
fn write_with<'a>(
    blocks: impl Iterator<Item = &'a Block>,
    out: &mut Written,
    numbers: impl Fn(&Block) -> Numbers,
    press: impl Fn(&Numbers, [u32; 2], &mut [u8; VALUES_ROOM]),
) -> Option<()> {
    for block in blocks {
        if !(-2048..2048).contains(&block[0]) {
            return None;
        }
        let numbers = numbers(block);
        let Numbers { mask, bits, large, .. } = numbers;
        let is_large = large != 0;
        let n = mask.count_ones();
        let n_first = n.min(FIRST_VALUES as u32);
        let n_others = n - n_first;
        // No values, no bits; else a sign next to them.
        let width = |n: u32, bits: u8| if n == 0 { 0 } else { 9 - bits.leading_zeros() };
        let first = if is_large { 8 } else { width(n, bits[0]) };
        let others = width(n_others, bits[1]);
        let n_mask = 8 - mask.leading_zeros() / 8;
        let first_field = if is_large { WITH_EXCEPTIONS } else { first };
        let dc = u32::from(block[0].cast_unsigned() & 0xfff);
        let header = dc | n_mask << 12 | first_field << 16 | others << 20;

        let room = out.room();
        room[..4].copy_from_slice(&header.to_le_bytes());
        room[3..11].copy_from_slice(&mask.to_le_bytes());
        let values = 3 + n_mask as usize;
        let to = &mut room[values..values + VALUES_ROOM];
        press(&numbers, [first, others], to.try_into().expect("as long as the values"));
        let n_bits = n_first * first + n_others * others;
        out.len += values + n_bits.div_ceil(8) as usize;
        if is_large {
            write_exceptions(block, large, out);
        }
    }
    Some(())
}

/// Writes the groups of a block, each in as many bytes as its width has bits.
#[inline(always)]
fn press(numbers: &Numbers, widths: [u32; 2], out: &mut [u8; VALUES_ROOM]) {
    let n_groups = numbers.mask.count_ones().div_ceil(8) as usize;
    let [first, others] = widths;
    let mut at = 0;
    for (nth, &group) in numbers.groups[..n_groups].iter().enumerate() {
        let width = if nth == 0 { first } else { others };
        out[at..at + 8].copy_from_slice(&pressed(group, width).to_le_bytes());
        at += width as usize;
    }
}

/// The low `width` bits of eight bytes, one after the other.
#[inline(always)]
fn pressed(group: u64, width: u32) -> u64 {
    let byte = below(width);
    // Pairs, then fours, then all eight.
    let byte_mask = byte * 0x0101_0101_0101_0101;
    let ones = group & byte_mask;
    let low = ones & 0x00ff_00ff_00ff_00ff;
    let twos = low | (ones >> 8 & 0x00ff_00ff_00ff_00ff) << width;
    let low = twos & 0x0000_ffff_0000_ffff;
    let fours = low | (twos >> 16 & 0x0000_ffff_0000_ffff) << (2 * width);
    (fours & 0xffff_ffff) | (fours >> 32) << (4 * width)
}

#[inline(always)]
fn numbers(block: &Block) -> Numbers {
    let mask = not_zero(block) >> 1;
    let mut numbers = Numbers { mask, groups: [0; 8], bits: [0; 2], large: 0 };
    let mut rest = mask;
    let mut nth = 0;
    while rest != 0 {
        let place = place_of(rest.trailing_zeros() as usize + 1);
        let value = block[place];
        rest &= rest - 1;
        let is_large = value.unsigned_abs() > LARGEST.unsigned_abs();
        numbers.large |= u64::from(is_large) << place;
        let value = value.clamp(-LARGEST, LARGEST);
        let number = value - i16::from(value > 0);
        numbers.bits[usize::from(nth >= FIRST_VALUES)] |=
            (number ^ (number >> 15)).cast_unsigned() as u8;
        let byte = u64::from(number.cast_unsigned() as u8);
        numbers.groups[nth / 8] |= byte << (8 * (nth % 8));
        nth += 1;
    }
    numbers
}

fn write_exceptions(block: &Block, large: u64, out: &mut Written) {
    out.extend(&[large.count_ones() as u8]);
    for natural in 1..64_u8 {
        let place = kept(natural.into());
        if large >> place & 1 != 0 {
            let [low, high] = block[place].to_le_bytes();
            out.extend(&[natural, low, high]);
        }
    }
}

/// A block row as it is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackedRow<'a> {
    /// Its bytes and those behind it, as far as there are any.
    pub(crate) bytes: &'a [u8],
    /// How many of them are its own.
    pub(crate) len: usize,
    /// Blocks.
    pub(crate) n_blocks: usize,
    /// How far ahead bytes are prefetched: the length of a row group, so that most of the next one is in the
    /// cache when its checksum is computed.
    pub(crate) ahead: usize,
}

/// Unpacks the blocks `wanted` of a row to the first places of `out`. Where they go as far as
/// the row, its length is checked.
///
/// # Panics
/// When there is no room for them.
pub(crate) fn unpack_row(
    level: Level,
    row: PackedRow<'_>,
    wanted: Range<usize>,
    out: &mut [Block],
) -> Result<(), Broken> {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(proof) => x86::unpack_one_avx512(proof, [row], wanted, [out]),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(proof) => x86::unpack_one_avx2(proof, [row], wanted, [out]),
        #[cfg(target_arch = "aarch64")]
        Level::Neon(proof) => neon::unpack_one(proof, [row], wanted, [out]),
        Level::Scalar => unpack_with([row], wanted, [out], read),
    }
}

/// As [`unpack_row`], of two rows of equally many blocks: a block of each in turn. A block's place
/// depends on the one before it in its row, and while the processor waits for the one it
/// unpacks the other.
///
/// # Panics
/// When there is no room for them.
pub(crate) fn unpack_rows(
    level: Level,
    rows: [PackedRow<'_>; 2],
    wanted: Range<usize>,
    out: [&mut [Block]; 2],
) -> Result<(), Broken> {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(proof) => x86::unpack_two_avx512(proof, rows, wanted, out),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(proof) => x86::unpack_two_avx2(proof, rows, wanted, out),
        #[cfg(target_arch = "aarch64")]
        Level::Neon(proof) => neon::unpack_two(proof, rows, wanted, out),
        Level::Scalar => unpack_with(rows, wanted, out, read),
    }
}

/// Both of these, with one way to read a block.
#[inline(always)]
fn unpack_with<const N: usize>(
    rows: [PackedRow<'_>; N],
    wanted: Range<usize>,
    out: [&mut [Block]; N],
    read: impl Fn(&[u8; WINDOW], &mut Block) -> Result<usize, Broken>,
) -> Result<(), Broken> {
    let mut padded = [0; WINDOW];
    let mut at = [0; N];
    for _ in 0..wanted.start {
        for (at, row) in at.iter_mut().zip(&rows) {
            soon_read(row.bytes, *at + row.ahead, 1);
            *at += skip(window(row.bytes, *at, &mut padded)?)?;
        }
    }
    let mut out = out.map(|blocks| blocks[..wanted.len()].iter_mut());
    for _ in wanted.clone() {
        for ((at, row), out) in at.iter_mut().zip(&rows).zip(&mut out) {
            let block = out.next().expect("as many as are wanted");
            soon_read(row.bytes, *at + row.ahead, 1);
            *at += read(window(row.bytes, *at, &mut padded)?, block)?;
        }
    }
    for (at, row) in at.into_iter().zip(rows) {
        let is_whole = wanted.end == row.n_blocks;
        if at > row.len || (is_whole && at != row.len) {
            return Err(Broken);
        }
    }
    Ok(())
}

/// The length of the block at the start of `window`.
#[inline(always)]
fn skip(window: &[u8; WINDOW]) -> Result<usize, Broken> {
    let header = Header::read(window)?;
    if header.has_exceptions {
        return exceptions(window, header.end, &mut [0; 64]);
    }
    Ok(header.end)
}

/// The bytes from `at` on; after the last one, zeros in `padded`.
#[inline(always)]
fn window<'a>(
    bytes: &'a [u8],
    at: usize,
    padded: &'a mut [u8; WINDOW],
) -> Result<&'a [u8; WINDOW], Broken> {
    #[cold]
    fn pad<'a>(rest: &[u8], padded: &'a mut [u8; WINDOW]) -> &'a [u8; WINDOW] {
        let (own, behind) = padded.split_at_mut(rest.len());
        own.copy_from_slice(rest);
        behind.fill(0);
        padded
    }
    let rest = bytes.get(at..).ok_or(Broken)?;
    Ok(rest.first_chunk().unwrap_or_else(|| pad(rest, padded)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_with(level: Level, bytes: &[u8]) -> Result<(usize, Block), Broken> {
        let mut row = [[0; 64]; 1];
        // One block of a row that has another one: its length is not held against it.
        let packed = PackedRow { bytes, len: usize::MAX, n_blocks: 2, ahead: 64 };
        unpack_row(level, packed, 0..1, &mut row)?;
        let len = skip(window(bytes, 0, &mut [0; WINDOW])?)?;
        Ok((len, row[0]))
    }

    fn write_with_level(level: Level, block: &Block, out: &mut Vec<u8>) -> Option<()> {
        let mut written = Written::default();
        let whole = write_row(level, std::iter::once(block), &mut written);
        out.extend_from_slice(written.as_slice());
        whole
    }

    fn write(block: &Block, out: &mut Vec<u8>) -> Option<()> {
        write_with_level(Level::Scalar, block, out)
    }

    fn check_round_trip(block: &Block) {
        let mut bytes = Vec::new();
        write(block, &mut bytes).expect("DC has 12 bits");
        assert!(bytes.len() <= WINDOW);
        for level in Level::available() {
            let mut same = Vec::new();
            write_with_level(level, block, &mut same).expect("DC has 12 bits");
            assert_eq!(same, bytes, "{level:?}");
        }
        for level in Level::available() {
            let read = read_with(level, &bytes);
            assert_eq!(read, Ok((bytes.len(), *block)), "{level:?}: {bytes:?}");
        }
    }

    /// A few coefficients of magnitudes as images have them, and some extremes.
    fn coefficients() -> impl Strategy<Value = Block> {
        let value = prop_oneof![
            4 => Just(0_i16),
            3 => -1..=1_i16,
            3 => -20..=20_i16,
            1 => -140..=140_i16,
            1 => any::<i16>(),
        ];
        let all = prop::collection::vec(value, 64);
        (all, 1..=64_usize, -2048..2048_i16).prop_map(|(values, n, dc)| {
            let mut block = [0; 64];
            for (k, value) in values.into_iter().enumerate().take(n) {
                block[place_of(k)] = value;
            }
            block[0] = dc;
            block
        })
    }

    #[test]
    fn extremes_come_back() {
        let mut only = [0; 64];
        check_round_trip(&only);
        for place in 1..64 {
            for value in [-32768, -2047, -129, -128, -127, -1, 1, 127, 128, 129, 32767] {
                only[place] = value;
                check_round_trip(&only);
                check_round_trip(&[value.clamp(-2048, 2047); 64]);
            }
            only[place] = 0;
        }
        for dc in [-2048, -1, 2047] {
            only[0] = dc;
            check_round_trip(&only);
        }
    }

    /// All 63 values, in every pair of widths; groups of eight differ.
    #[test]
    fn full_blocks_come_back() {
        let value = |k: i16, width: u32| {
            let magnitude = k * 37 % (1 << (width - 1)).min(LARGEST) + 1;
            if k * k % 11 < 5 { -magnitude } else { magnitude }
        };
        for widths in (0..64).map(|pair| [pair / 8 + 1, pair % 8 + 1]) {
            let mut block = [0; 64];
            for k in 1..64_u8 {
                let width = widths[usize::from(k > 8)];
                block[place_of(k.into())] = value(k.into(), width);
            }
            check_round_trip(&block);
        }
    }

    /// By hand from the specification: DC −3, coefficients 1 and 3 in zigzag order 2 and −1.
    #[test]
    fn a_block_has_the_bytes_of_the_specification() {
        let mut block = [0; 64];
        (block[0], block[place_of(1)], block[place_of(3)]) = (-3, 2, -1);
        let mut bytes = Vec::new();
        write(&block, &mut bytes).unwrap();
        // 0xffd and one byte of mask; widths 2 and 0; bits 1 and 3; 2 is 1 = 01, −1 is 11.
        assert_eq!(bytes, [0xfd, 0x1f, 0x02, 0b101, 0b1101]);
    }

    /// By hand as well: exceptions come in the order of row · 8 + column, however a block is kept.
    #[test]
    fn exceptions_are_written_row_by_row() {
        let mut block = [0; 64];
        (block[kept(8)], block[kept(3)]) = (300, -200);
        let mut bytes = Vec::new();
        write(&block, &mut bytes).unwrap();
        // Coefficients 2 and 6 in zigzag order: 127 is 126, −127 is itself, of 8 bits each.
        let values = [0x00, 0x10, 0x09, 0b10_0010, 126, 0x81];
        let exceptions = [2, 3, 0x38, 0xff, 8, 0x2c, 0x01];
        assert_eq!(bytes, [&values[..], &exceptions].concat());
        check_round_trip(&block);
    }

    #[test]
    fn a_dc_of_more_than_12_bits_is_refused() {
        for dc in [-2049, 2048, i16::MIN, i16::MAX] {
            let mut block = [0; 64];
            block[0] = dc;
            let mut bytes = Vec::new();
            assert_eq!(write(&block, &mut bytes), None);
            assert!(bytes.is_empty());
        }
    }

    #[test]
    fn a_row_is_read_in_parts() {
        let blocks: Vec<Block> = (0..20_i16).map(|n| [n * 10 - 90; 64]).collect();
        let mut bytes = Vec::new();
        blocks.iter().for_each(|block| write(block, &mut bytes).unwrap());
        let mut out = [[0; 64]; 20];
        for level in Level::available() {
            let row =
                PackedRow { bytes: &bytes, len: bytes.len(), n_blocks: 20, ahead: 64 };
            for wanted in [0..20, 7..20, 3..5, 19..20, 8..8] {
                unpack_row(level, row, wanted.clone(), &mut out).unwrap();
                for (nth, block) in blocks[wanted].iter().enumerate() {
                    assert_eq!(out[nth], *block);
                }
            }
            for len in [0, bytes.len() - 1, bytes.len() + 1] {
                let wrong = PackedRow { len, ..row };
                assert_eq!(unpack_row(level, wrong, 0..20, &mut out), Err(Broken));
            }
            let cut = PackedRow { bytes: &bytes[..bytes.len() / 2], ..row };
            assert_eq!(unpack_row(level, cut, 0..20, &mut out), Err(Broken));
        }
    }

    /// The second row's error must not hide behind the first one's success, or vice versa.
    #[test]
    fn either_of_two_rows_may_be_broken() {
        let mut bytes = Vec::new();
        (0..9_i16).for_each(|n| write(&[n; 64], &mut bytes).unwrap());
        let good = PackedRow { bytes: &bytes, len: bytes.len(), n_blocks: 9, ahead: 64 };
        let long = PackedRow { len: bytes.len() + 1, ..good };
        // The header of the last block, which takes 43 bytes, means nothing.
        let mut damaged = bytes.clone();
        damaged[bytes.len() - 42..].fill(0xff);
        let damaged = PackedRow { bytes: &damaged, ..good };
        let (mut a, mut b) = ([[0; 64]; 9], [[0; 64]; 9]);
        for level in Level::available() {
            let mut two = |rows| unpack_rows(level, rows, 0..9, [&mut a, &mut b]);
            assert_eq!(two([good, good]), Ok(()));
            for bad in [damaged, long] {
                assert_eq!(two([good, bad]), Err(Broken));
                assert_eq!(two([bad, good]), Err(Broken));
            }
        }
    }

    proptest! {
        #[test]
        fn every_block_comes_back(block in coefficients()) {
            check_round_trip(&block);
        }

        #[test]
        fn two_rows_are_each_of_them_alone(
            blocks in prop::collection::vec([coefficients(), coefficients()], 1..12),
            part in [0..12_usize, 0..12],
        ) {
            let n_blocks = blocks.len();
            let [a, b] = part.map(|place| place.min(n_blocks));
            let wanted = a.min(b)..a.max(b);
            let bytes = [0, 1].map(|nth: usize| {
                let mut bytes = Vec::new();
                blocks.iter().for_each(|two| write(&two[nth], &mut bytes).unwrap());
                bytes
            });
            let rows = bytes.each_ref().map(|bytes| {
                PackedRow { bytes, len: bytes.len(), n_blocks, ahead: 64 }
            });
            for level in Level::available() {
                // As another image has left them.
                let (mut a, mut b) = (vec![[-7; 64]; 12], vec![[9; 64]; 12]);
                unpack_rows(level, rows, wanted.clone(), [&mut a, &mut b]).unwrap();
                for (place, two) in blocks[wanted.clone()].iter().enumerate() {
                    prop_assert_eq!([a[place], b[place]], *two);
                }
            }
        }

        #[test]
        fn kernels_agree_whatever_the_bytes(
            bytes in prop::collection::vec(any::<u8>(), 0..=WINDOW + 9),
            fields in any::<[u8; 2]>(),
        ) {
            let mut bytes = bytes;
            // Fields that make sense, most of the time.
            if let [_, second, third, ..] = &mut bytes[..] {
                *second = (*second & 15) | ((fields[0] % 10) << 4);
                *third = (fields[1] % 11) | ((fields[1] / 29) << 4);
            }
            let scalar = read_with(Level::Scalar, &bytes);
            for level in Level::available() {
                prop_assert_eq!(read_with(level, &bytes), scalar);
            }
        }
    }
}
