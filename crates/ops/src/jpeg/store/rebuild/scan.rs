//! Coefficients become a sequential scan (T.81 §F.1.2): the inverse of `sequential.rs`.
//!
//! Where the standard leaves a choice it is the usual one: no run of sixteen zeros behind a
//! block's last coefficient, the shortest code of a symbol that has several. Numbers without
//! a code are not noticed here: the file is then another one, which the caller sees by its
//! checksum.
//!
//! What is kept low is the work per coefficient that is not zero: a block is one mask of
//! these, in the order of sending; a run and the number behind it are one look at a table
//! ([`Pairs`]); and their bits are stored at once, without a branch, over the bytes that
//! the next ones will complete. A test whether eight bytes are full would be guessed wrong
//! every tenth time, which costs more (`examples/packing.rs`). AVX-512 does more than one
//! coefficient at a time (`scan/x86.rs`); [`put_block`] says what must come out.
#![allow(
    clippy::cast_possible_truncation,
    reason = "a number has at most 17 bits, a place in the window 9"
)]

use super::wrong;
use crate::error::SampleFault;
use crate::jpeg::block::Block;
use crate::jpeg::coefficients::Coefficients;
use crate::jpeg::file::Opened;
use crate::jpeg::file::code::{Class, Code};
use crate::jpeg::file::frame::Component;
use crate::jpeg::zigzag::{not_zero, place_of};
use crate::kernels::Level;

#[cfg(target_arch = "x86_64")]
mod x86;

/// Appends the entropy-coded data of the scan that `file` has come to. The coefficients have
/// as many blocks as its frame.
pub(super) fn write(
    level: Level,
    coefficients: &Coefficients,
    file: &Opened<'_>,
    fill: u8,
    out: &mut Vec<u8>,
) -> Result<(), SampleFault> {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(proof) => x86::write_avx512(proof, coefficients, file, fill, out),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(proof) => x86::write_avx2(proof, coefficients, file, fill, out),
        #[cfg(target_arch = "aarch64")]
        Level::Neon(_) => write_with(coefficients, file, fill, out, put_block),
        Level::Scalar => write_with(coefficients, file, fill, out, put_block),
    }
}

/// [`write()`] with one way to write a block.
#[inline(always)]
fn write_with(
    coefficients: &Coefficients,
    file: &Opened<'_>,
    fill: u8,
    out: &mut Vec<u8>,
    put_block: impl Fn(&Block, i32, &PartCodes, Bits, &mut Window) -> Bits,
) -> Result<(), SampleFault> {
    let tables = &file.segments.tables;
    let mut codes = [PartCodes::NONE; 4];
    for (codes, part) in codes.iter_mut().zip(file.scan.components()) {
        let dc = tables.code(Class::Dc, part.dc_table)?;
        codes.set(&dc, &tables.code(Class::Ac, part.ac_table)?)?;
    }
    let mut writer = Writer::new(out, fill);
    let mut until_restart = tables.restart_interval;
    let mut lines = Vec::new();
    let [across, down] = file.frame.n_mcus();
    for y in 0..down {
        lines.clear();
        lines.extend(Line::of_mcus(coefficients, file, y));
        for x in 0..across {
            if tables.restart_interval > 0 && until_restart == 0 {
                writer.restart();
                until_restart = tables.restart_interval;
            }
            until_restart = until_restart.saturating_sub(1);
            for &Line { blocks, h, place } in &lines {
                for block in &blocks[x * h..(x + 1) * h] {
                    writer.block(block, &codes[place], place, &put_block);
                }
            }
        }
        writer.pass_on();
    }
    writer.end_segment();
    Ok(())
}

/// A block row of a component.
#[derive(Debug, Clone, Copy)]
struct Line<'a> {
    blocks: &'a [Block],
    /// Blocks of an MCU.
    h: usize,
    /// The component's place in the scan.
    place: usize,
}

impl<'a> Line<'a> {
    /// The lines of row `y` of MCUs, in the order of sending.
    fn of_mcus(
        coefficients: &'a Coefficients,
        file: &Opened<'_>,
        y: usize,
    ) -> impl Iterator<Item = Self> {
        file.scan.components().iter().enumerate().flat_map(move |(place, part)| {
            let Component { h, v, .. } = file.frame.components()[part.component];
            (y * v..(y + 1) * v).map(move |row| Line {
                blocks: coefficients.row(part.component, row),
                h,
                place,
            })
        })
    }
}

/// The codes of a component.
#[derive(Debug)]
struct PartCodes {
    dc: Codes,
    ac: Codes,
    pairs: Pairs,
    #[cfg(target_arch = "x86_64")]
    short: x86::ShortCodes,
}

impl PartCodes {
    const NONE: Self = Self {
        dc: Codes([0; 256]),
        ac: Codes([0; 256]),
        pairs: Pairs([0; 1024]),
        #[cfg(target_arch = "x86_64")]
        short: x86::ShortCodes::NONE,
    };

    fn set(&mut self, dc: &Code, ac: &Code) -> Result<(), SampleFault> {
        self.dc.set(dc)?;
        self.ac.set(ac)?;
        self.pairs.set(&self.ac);
        #[cfg(target_arch = "x86_64")]
        self.short.set(&self.ac);
        Ok(())
    }
}

/// Bits to be written, above their number, which takes 8 bits; 0 where there are none.
type Entry = u32;

/// For each symbol its code.
#[derive(Debug)]
struct Codes([Entry; 256]);

impl Codes {
    fn set(&mut self, code: &Code) -> Result<(), SampleFault> {
        for (symbol, code, length) in code.codes() {
            if code >> length != 0 {
                return Err(wrong("a Huffman table has more codes than fit"));
            }
            let slot = &mut self.0[usize::from(symbol)];
            if *slot == 0 {
                *slot = code << 8 | length;
            }
        }
        Ok(())
    }

    /// The bits of `value` behind a run of at most 15 zeros, and how many they are: at most
    /// 33, in a scan that a file can hold 31.
    #[inline(always)]
    fn bits(&self, run: u32, value: i32) -> (u64, u32) {
        // T.81 §F.1.2.1: the size is told by the code, and negative numbers are sent less one.
        let size = 32 - value.unsigned_abs().leading_zeros();
        let number = u64::from((value + (value >> 31)).cast_unsigned());
        let number = number & ((1 << size) - 1);
        let entry = self.0[((run << 4 | size) & 0xff) as usize];
        (u64::from(entry >> 8) << size | number, (entry & 0xff) + size)
    }
}

/// For each run of up to 15 zeros, and each number from -32 to 31 behind it: the bits of
/// both.
#[derive(Debug)]
struct Pairs([Entry; 16 * 64]);

impl Pairs {
    fn set(&mut self, codes: &Codes) {
        for (run, numbers) in (0..).zip(self.0.chunks_exact_mut(64)) {
            for (value, slot) in (-32..).zip(numbers) {
                let (bits, n) = codes.bits(run, value);
                *slot = (bits as u32) << 8 | n;
            }
        }
    }

    #[inline(always)]
    fn entry(&self, run: u32, value: i32) -> Option<Entry> {
        let column = (value + 32).cast_unsigned();
        let is_here = (column | run << 2) < 64;
        is_here.then(|| self.0[((run << 6 | column) & 1023) as usize])
    }
}

/// A scan being written.
#[derive(Debug)]
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// What fills up the last byte of a segment.
    fill: u8,
    /// The last DC of each component.
    dc: [i32; 4],
    n_restarts: u8,
    /// Bytes without stuffing, and how many of them have come since they were passed on.
    raw: Vec<u8>,
    n_raw: usize,
    /// Begins at most 7 bits behind byte `n_raw`, where these bits stand already.
    bits: Bits,
}

impl<'a> Writer<'a> {
    fn new(out: &'a mut Vec<u8>, fill: u8) -> Self {
        Self {
            out,
            fill,
            dc: [0; 4],
            n_restarts: 0,
            raw: Vec::new(),
            n_raw: 0,
            bits: Bits::default(),
        }
    }

    #[inline(always)]
    fn block(
        &mut self,
        block: &Block,
        codes: &PartCodes,
        place: usize,
        put_block: &impl Fn(&Block, i32, &PartCodes, Bits, &mut Window) -> Bits,
    ) {
        if self.raw.len() < self.n_raw + WINDOW {
            self.raw.resize(2 * self.n_raw + WINDOW, 0);
        }
        let window = &mut self.raw[self.n_raw..self.n_raw + WINDOW];
        let window: &mut Window = window.try_into().expect("as long as a window");
        let dc = i32::from(block[0]);
        let difference = dc - std::mem::replace(&mut self.dc[place], dc);
        let bits = put_block(block, difference, codes, self.bits, window);
        self.n_raw += (bits.position >> 3) as usize;
        self.bits = Bits { position: bits.position & 7, ..bits };
    }

    /// Ends a segment and puts the next restart marker behind it.
    fn restart(&mut self) {
        self.end_segment();
        self.out.extend([0xff, 0xd0 | self.n_restarts]);
        self.n_restarts = (self.n_restarts + 1) & 7;
        self.dc = [0; 4];
    }

    /// Fills up the last byte and passes all on.
    fn end_segment(&mut self) {
        let n_spare = (self.bits.position.wrapping_neg() & 7) as u32;
        if n_spare > 0 {
            let fill = u64::from(self.fill) * ((1 << n_spare) - 1);
            let [.., last] = (self.bits.word << n_spare | fill).to_be_bytes();
            self.raw[self.n_raw] = last;
            self.n_raw += 1;
        }
        self.bits = Bits::default();
        self.pass_on();
    }

    /// Appends what is whole to the file, with a zero behind each FF, or it would look like a
    /// marker (T.81 §F.1.2.3).
    fn pass_on(&mut self) {
        let mut rest = &self.raw[..self.n_raw];
        while let Some(before) = memchr::memchr(0xff, rest) {
            self.out.extend_from_slice(&rest[..=before]);
            self.out.push(0);
            rest = &rest[before + 1..];
        }
        self.out.extend_from_slice(rest);
        self.n_raw = 0;
    }
}

/// Bytes that a block may be written to, and what a store of eight bytes reaches beyond: 64
/// numbers and three runs of sixteen zeros take fewer than 512.
type Window = [u8; WINDOW];
const WINDOW: usize = 512 + 7;

/// Appends a block, whose DC differs from the last one by `difference`.
#[inline(always)]
fn put_block(
    block: &Block,
    difference: i32,
    codes: &PartCodes,
    bits: Bits,
    window: &mut Window,
) -> Bits {
    let mut bits = bits.put(codes.dc.bits(0, difference), window);
    let mut rest = not_zero(block) & !1;
    let mut next = 1;
    while rest != 0 {
        let k = rest.trailing_zeros();
        rest &= rest - 1;
        let run = k - next;
        next = k + 1;
        let value = i32::from(block[place_of(k as usize)]);
        bits = match codes.pairs.entry(run, value) {
            Some(entry) => bits.put((u64::from(entry >> 8), entry & 0xff), window),
            None => bits.put_rare(&codes.ac, run, value, window),
        };
    }
    if next < 64 {
        // The end of the block has the symbol that a zero behind no zeros would have.
        bits = bits.put(codes.ac.bits(0, 0), window);
    }
    bits
}

/// Bits that can be put at once: what is left of eight bytes behind the seven bits that may
/// stand in the first already.
#[cfg(any(test, target_arch = "x86_64"))]
const MOST_BITS: u32 = 57;

/// Where writing to a window has come to. Passed by value, and of two words, so that it stays
/// in registers.
#[derive(Debug, Clone, Copy, Default)]
struct Bits {
    /// The last bits, the low ones; those before them mean nothing.
    word: u64,
    /// How many bits stand in the window.
    position: u64,
}

impl Bits {
    /// Appends the low `n` of `bits`, at most [`MOST_BITS`]; those above them are 0.
    #[inline(always)]
    fn put(self, (bits, n): (u64, u32), window: &mut Window) -> Self {
        let word = self.word << n | bits;
        let n_last = (self.position & 7) as u32 + n;
        let bytes = (word << (n_last.wrapping_neg() & 63)).to_be_bytes();
        let at = (self.position >> 3) as usize & 511;
        window[at..at + 8].copy_from_slice(&bytes);
        Self { word, position: self.position + u64::from(n) }
    }

    /// Appends a run of any length and any number behind it.
    #[cold]
    #[inline(never)]
    fn put_rare(
        mut self,
        codes: &Codes,
        mut run: u32,
        value: i32,
        window: &mut Window,
    ) -> Self {
        while run > 15 {
            self = self.put(codes.bits(15, 0), window);
            run -= 16;
        }
        self.put(codes.bits(run, value), window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `write` makes a writer append.
    fn written(fill: u8, write: impl Fn(&mut Writer<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, fill);
        write(&mut writer);
        writer.end_segment();
        out
    }

    fn standard() -> PartCodes {
        let mut codes = PartCodes::NONE;
        codes.set(&Code::standard(Class::Dc, 0), &Code::standard(Class::Ac, 0)).unwrap();
        codes
    }

    /// Bits written one by one, by way of text.
    fn bytes_of(mut bits: String, fill: char) -> Vec<u8> {
        while !bits.len().is_multiple_of(8) {
            bits.push(fill);
        }
        let bytes = bits.as_bytes().chunks(8).map(|byte| {
            u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 2).unwrap()
        });
        bytes
            .flat_map(|byte| [Some(byte), (byte == 0xff).then_some(0)])
            .flatten()
            .collect()
    }

    #[test]
    fn bits_become_bytes_whatever_their_number() {
        for (n_puts, n) in
            (0..50_u64).flat_map(|n_puts| (0..=MOST_BITS).map(move |n| (n_puts, n)))
        {
            let number = |i: u64| {
                let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                mixed.checked_shr(64 - n).unwrap_or(0)
            };
            let text: String = (0..n_puts)
                .map(|i| format!("{:064b}", number(i))[64 - n as usize..].to_owned())
                .collect();
            for (fill, digit) in [(0, '0'), (1, '1')] {
                let bytes = written(fill, |writer| {
                    writer.raw.resize(WINDOW, 0);
                    let window: &mut Window =
                        writer.raw.as_mut_slice().try_into().unwrap();
                    for i in 0..n_puts {
                        writer.bits = writer.bits.put((number(i), n), window);
                    }
                    writer.n_raw = (writer.bits.position / 8) as usize;
                    writer.bits.position %= 8;
                });
                assert_eq!(bytes, bytes_of(text.clone(), digit), "{n_puts} of {n} bits");
            }
        }
    }

    #[test]
    fn a_mask_names_each_coefficient_by_its_number() {
        assert_eq!(not_zero(&[0; 64]), 0);
        assert_eq!(not_zero(&[-1; 64]), u64::MAX);
        for k in 0..64 {
            let mut block = [0; 64];
            block[place_of(k)] = 1 << (k % 16);
            assert_eq!(not_zero(&block), 1 << k);
        }
    }

    /// T.81 tables F.1, F.2, K.3 and K.5.
    #[test]
    fn a_block_is_written_as_the_standard_says() {
        let mut block = [0; 64];
        block[0] = 5;
        block[place_of(1)] = -1;
        block[place_of(19)] = 2;
        block[place_of(20)] = 100;
        let bits = concat!(
            "100",
            "101", // 5, of 3 bits
            "00",
            "0", // −1
            "11111111001",
            "11011",
            "10", // 16 zeros; one more and 2
            "11111000",
            "1100100", // 100, of 7 bits
            "1010",    // the end of the block
        );
        let bytes = written(1, |writer| writer.block(&block, &standard(), 0, &put_block));
        assert_eq!(bytes, bytes_of(bits.into(), '1'));
    }

    #[test]
    fn a_last_coefficient_ends_its_block_and_a_restart_the_differences() {
        let bytes = written(0, |writer| {
            writer.block(&[1; 64], &standard(), 0, &put_block);
            writer.restart();
            writer.block(&[1; 64], &standard(), 0, &put_block);
        });
        let each = bytes_of(format!("0101{}", "001".repeat(63)), '0');
        assert_eq!(bytes, [&each, &[0xff, 0xd0][..], &each].concat());
    }

    /// The longest codes there can be, before the largest numbers.
    #[test]
    fn no_block_is_too_long_for_its_window() {
        let mut codes = PartCodes::NONE;
        codes.dc.0 = [0xffff << 8 | 16; 256];
        codes.ac.0 = [0xffff << 8 | 16; 256];
        codes.pairs.set(&codes.ac);
        let bytes =
            written(1, |writer| writer.block(&[i16::MIN; 64], &codes, 0, &put_block));
        assert_eq!(bytes, [0xff, 0, 0xff, 0, 0x7f, 0xff, 0].repeat(64));
    }
}
