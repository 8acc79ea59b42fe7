//! Huffman codes as decoders read them ([`Lookup`]).
//!
//! A `Lookup` answers for the next [`LOOKUP_BITS`] bits in one read: the length of the code,
//! the size of the value behind it, and how far both move the decoder on in its block. The
//! value's bits are not looked up, so the table is small enough for the fastest cache and
//! quick to make (most files bring codes of their own). What is rare or long is marked
//! [`Entry::LONG`] and is found by the slow, canonical way (T.81 §F.2.2.3). Read
//! `sequential.rs` next.
#![allow(
    clippy::cast_possible_truncation,
    reason = "codes have at most 16 bits, values 15, and entries take their fields apart"
)]

use std::ops::Range;

use crate::error::SampleFault;
use crate::jpeg::damaged;
use crate::jpeg::file::code::{Class, Code};

/// Bits that a [`Lookup`] is indexed by: 4 KiB a table. (12 bits are 4 % slower on
/// photographs, for the cache's sake; `scripts/bench-engine`, 2026-11-21, Zen 5.)
pub(crate) const LOOKUP_BITS: u32 = 10;

/// Longest code and value that a table entry stands for: three of them are decoded between
/// two looks at the data, and there is room for one more (`sequential.rs`).
pub(crate) const ENTRY_BITS: u32 = 14;

/// What the next bits mean.
///
/// Bits 0–7: how many code and value take together. Bits 8–15: by how much the number of
/// the next coefficient grows. Bits 16–31: what makes the value out of these bits, when added
/// to them ([`Self::value`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry(pub(crate) u32);

impl Entry {
    /// Added to the number of the next coefficient at the end of a block: the sum lies
    /// beyond 64 and beyond every run that leads out of the block.
    pub(crate) const END_OF_BLOCK: u32 = 96;

    /// Not in the table. Takes no bits, and moves beyond everything else.
    pub(crate) const LONG: Self = Self(Self::LONG_ADVANCE << 8);

    /// The advance of [`Self::LONG`].
    pub(crate) const LONG_ADVANCE: u32 = 192;

    /// `symbol`, whose code has `length` bits; it stands at the left end of `bits`, and the
    /// first bit of the value behind it.
    #[inline(always)]
    fn new(class: Class, symbol: u8, length: u32, bits: u64) -> Self {
        let size = u32::from(symbol & 15);
        let advance = match (class, symbol >> 4, size) {
            (Class::Dc | Class::Progressive, _, _) => 1,
            (Class::Ac, 15, 0) => 16,
            // libjpeg, too, takes every other run without a value as the end of the block.
            (Class::Ac, _, 0) => Self::END_OF_BLOCK,
            (Class::Ac, run, _) => u32::from(run) + 1,
        };
        // A value whose first bit is 0 is negative (T.81 §F.2.2.1, figure F.12).
        let is_negative = (bits << length).cast_signed() >= 0;
        let below = if is_negative { (1 << size) - 1 } else { 0 };
        let code = (bits >> (64 - length)) as u32;
        let to_value = (code << size).wrapping_add(below).wrapping_neg();
        Self((length + size) | advance << 8 | to_value << 16)
    }

    /// In the table's place for codes that it knows, but cannot answer for.
    fn known(symbol: u8, length: u32) -> Self {
        Self(Self::LONG.0 | (length << 8 | u32::from(symbol)) << 16)
    }

    /// Whether this stands for something that is not in the table.
    #[inline(always)]
    pub(crate) fn is_long(self) -> bool {
        self.step() == Self::LONG.0
    }

    /// How many bits code and value take.
    #[inline(always)]
    pub(crate) fn n_bits(self) -> u32 {
        self.0 & 0xff
    }

    /// Bits and advance, to be added to a block's progress.
    #[inline(always)]
    pub(crate) fn step(self) -> u32 {
        self.0 & 0xffff
    }

    /// The value after the code at the left end of `bits`; 0 where there is none.
    #[inline(always)]
    pub(crate) fn value(self, bits: u64) -> i16 {
        value(self.step(), (self.0 >> 16) as u16, bits)
    }
}

/// The entries for all that the next bits can be. Their halves are apart, because each is then read by
/// an instruction of its own and nothing has to be taken apart or masked.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    /// [`Entry::step`].
    steps: [u16; 1 << LOOKUP_BITS],
    /// Bits 16–31.
    to_values: [u16; 1 << LOOKUP_BITS],
}

impl Table {
    /// The number of the entry for the bits at the left end of `bits`.
    #[inline(always)]
    pub(crate) fn number(bits: u64) -> usize {
        (bits >> (64 - LOOKUP_BITS)) as usize
    }

    /// [`Entry::step`] of an entry.
    #[inline(always)]
    pub(crate) fn step(&self, number: usize) -> u32 {
        u32::from(self.steps[number])
    }

    /// [`Entry::value`] of an entry whose step this is.
    #[inline(always)]
    pub(crate) fn value(&self, number: usize, step: u32, bits: u64) -> i16 {
        value(step, self.to_values[number], bits)
    }

    fn entry(&self, bits: u64) -> Entry {
        let number = Self::number(bits);
        Entry(self.step(number) | u32::from(self.to_values[number]) << 16)
    }

    fn fill(&mut self, numbers: Range<usize>, entry: Entry) {
        self.steps[numbers.clone()].fill(entry.step() as u16);
        self.to_values[numbers].fill((entry.0 >> 16) as u16);
    }
}

/// Code and value are one number. What the code is in it, and what a negative value lacks, is known to
/// the table (`to_value`), whose index holds the code and the value's first bit.
#[inline(always)]
fn value(step: u32, to_value: u16, bits: u64) -> i16 {
    let number = bits.wrapping_shr(step.wrapping_neg());
    (number as u16).wrapping_add(to_value).cast_signed()
}

/// A code made ready for decoding.
#[derive(Debug, Clone)]
pub(crate) struct Lookup {
    pub(crate) entries: Table,
    /// For each length: the end of its codes, left-aligned in 16 bits, and what leads from a
    /// code to its place among the symbols.
    limits: [u32; 17],
    offsets: [u32; 17],
    /// What it was made of, so that the same table is not made twice.
    class: Class,
    code: Code,
}

impl Default for Lookup {
    /// Of a code without codes.
    fn default() -> Self {
        Self {
            entries: Table {
                steps: [Entry::LONG.step() as u16; 1 << LOOKUP_BITS],
                to_values: [0; 1 << LOOKUP_BITS],
            },
            limits: [0; 17],
            offsets: [0; 17],
            class: Class::Dc,
            code: NO_CODE,
        }
    }
}

/// Refuses what libjpeg refuses: more codes than there is room for, a code of ones only, a DC
/// difference of more than 15 bits.
pub(crate) fn check_code(class: Class, code: &Code) -> Result<(), SampleFault> {
    let (mut next, mut n_symbols) = (0_u32, 0);
    for (length, &n) in (1..=16).zip(&code.counts) {
        next += u32::from(n);
        n_symbols += usize::from(n);
        if n > 0 && next >= 1 << length {
            return Err(damaged("a Huffman table has more codes than fit"));
        }
        next <<= 1;
    }
    let symbols = &code.symbols[..n_symbols];
    if class == Class::Dc && symbols.iter().any(|&symbol| symbol > 15) {
        return Err(damaged("a Huffman table has a DC difference above 15 bits"));
    }
    Ok(())
}

/// A code without codes.
const NO_CODE: Code = Code { counts: [0; 16], symbols: [0; 256] };

impl Lookup {
    /// The code that it was made of.
    pub(crate) fn code(&self) -> &Code {
        &self.code
    }

    /// Makes the table for `code`.
    pub(crate) fn set(&mut self, class: Class, code: &Code) -> Result<(), SampleFault> {
        // A refused code leaves `NO_CODE` behind, with an earlier table.
        if self.class == class && self.code == *code && self.code != NO_CODE {
            return Ok(());
        }
        self.code = NO_CODE;
        (self.limits, self.offsets, self.class) = ([0; 17], [0; 17], class);
        self.set_canonical(class, code)?;
        self.fill(class, code);
        self.code.clone_from(code);
        Ok(())
    }

    /// Works out the canonical decoder.
    fn set_canonical(&mut self, class: Class, code: &Code) -> Result<(), SampleFault> {
        check_code(class, code)?;
        let (mut next, mut idx) = (0_u32, 0_u32);
        for (length, &n) in (1..=16).zip(&code.counts) {
            self.offsets[length] = idx.wrapping_sub(next);
            next += u32::from(n);
            idx += u32::from(n);
            self.limits[length] = next << (16 - length);
            next <<= 1;
        }
        Ok(())
    }

    fn fill(&mut self, class: Class, code: &Code) {
        let mut from = 0;
        let mut symbols = code.symbols.iter();
        let mut next = 0_u64;
        for (length, &n) in (1..=LOOKUP_BITS).zip(&code.counts) {
            for &symbol in symbols.by_ref().take(usize::from(n)) {
                let end = from + (1 << (LOOKUP_BITS - length));
                let positive = usize::midpoint(from, end);
                let size = u32::from(symbol & 15);
                // The first bit of the value belongs to the index.
                let is_long =
                    length + size > ENTRY_BITS || (size > 0 && length == LOOKUP_BITS);
                let entry = |sign: u64| match class {
                    Class::Progressive => Entry(length | u32::from(symbol) << 8),
                    Class::Dc | Class::Ac if is_long => Entry::known(symbol, length),
                    Class::Dc | Class::Ac => {
                        let bits = next << (64 - length) | sign << (63 - length);
                        Entry::new(class, symbol, length, bits)
                    }
                };
                self.entries.fill(from..positive, entry(0));
                self.entries.fill(positive..end, entry(1));
                from = end;
                next += 1;
            }
            next <<= 1;
        }
        self.entries.fill(from..1 << LOOKUP_BITS, Entry::LONG);
    }

    /// The slow way: the entry for the bits at the left end of `bits`, of which 31 or more
    /// are valid; `None` when they are no code.
    #[inline(always)]
    pub(crate) fn long(&self, bits: u64) -> Option<Entry> {
        let entry = self.entries.entry(bits);
        let (symbol, length) = match entry.0 >> 16 {
            known if known > 0 && entry.is_long() => (known as u8, known >> 8),
            _ => self.searched(bits)?,
        };
        Some(Entry::new(self.class, symbol, length, bits))
    }

    #[cold]
    #[inline(never)]
    fn searched(&self, bits: u64) -> Option<(u8, u32)> {
        self.long_symbol(bits)
    }

    /// The symbol at the left end of `bits`, and the length of its code; `None` when it is
    /// no code.
    #[inline]
    pub(crate) fn symbol(&self, bits: u64) -> Option<(u8, u32)> {
        let entry = self.entries.entry(bits);
        if self.class == Class::Progressive && entry != Entry::LONG {
            return Some(((entry.0 >> 8) as u8, entry.n_bits()));
        }
        self.long_symbol(bits)
    }

    fn long_symbol(&self, bits: u64) -> Option<(u8, u32)> {
        let peek = (bits >> 48) as u32;
        // Limits never fall; the lengths of the codes that end before this one are counted.
        let n_before = self.limits[1..].iter().filter(|&&limit| limit <= peek).count();
        let length = n_before + 1;
        let offset = self.offsets.get(length)?;
        let idx = (peek >> (16 - length)).wrapping_add(*offset);
        Some((self.code.symbols[idx as usize & 255], length as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T.81 tables F.1 and F.2: sizes and the values that belong to them.
    #[test]
    fn a_value_is_read_from_its_bits() {
        for (bits, size, value) in [
            (0, 1, -1),
            (1, 1, 1),
            (0b00, 2, -3),
            (0b01, 2, -2),
            (0b10, 2, 2),
            (0b11, 2, 3),
            (0, 15, -32_767),
            (0x7fff, 15, 32_767),
        ] {
            for length in [1, 7, 16] {
                let code = (1_u64 << length) - 1;
                let left = (code << size | bits) << (64 - length - u32::from(size));
                let entry = Entry::new(Class::Dc, size, length, left);
                assert_eq!(entry.value(left), value, "{bits:b} of {size}");
                assert_eq!(entry.value(left | 3), value, "{bits:b} of {size}");
            }
        }
    }

    #[test]
    fn the_lookup_and_the_canonical_way_agree() {
        for (class, slot) in
            [Class::Dc, Class::Ac].into_iter().flat_map(|c| [(c, 0), (c, 1)])
        {
            let mut lookup = Lookup::default();
            lookup.set(class, &Code::standard(class, slot)).unwrap();
            let mut n_short = 0;
            for idx in 0..1_u64 << LOOKUP_BITS {
                let bits = idx << (64 - LOOKUP_BITS);
                let entry = lookup.entries.entry(bits);
                let slow = lookup.long_symbol(bits);
                let made =
                    slow.map(|(symbol, length)| Entry::new(class, symbol, length, bits));
                assert_eq!(lookup.long(bits), made, "{idx:b}");
                if slow.is_some_and(|(symbol, _)| symbol & 15 == 0) {
                    assert_eq!(made.map(|entry| entry.value(bits)), Some(0));
                }
                if !entry.is_long() {
                    n_short += 1;
                    assert_eq!(made, Some(entry), "{idx:b}");
                }
            }
            assert!(n_short > 900, "{class:?} {slot}: {n_short}");
        }
    }

    /// T.81 tables K.3 and K.5: codes and their meaning.
    #[test]
    fn known_codes_are_read() {
        let mut dc = Lookup::default();
        dc.set(Class::Dc, &Code::standard(Class::Dc, 0)).unwrap();
        let mut ac = Lookup::default();
        ac.set(Class::Ac, &Code::standard(Class::Ac, 0)).unwrap();
        let at = |bits: u64, n: u32| bits << (64 - n);
        assert_eq!(dc.symbol(at(0b00, 2)), Some((0, 2)));
        assert_eq!(dc.symbol(at(0b1_1111_1110, 9)), Some((11, 9)));
        assert_eq!(ac.symbol(at(0b1010, 4)), Some((0x00, 4)));
        assert_eq!(ac.symbol(at(0b111_1111_1001, 11)), Some((0xf0, 11)));
        assert_eq!(ac.symbol(at(0b1111_1111_1111_1110, 16)), Some((0xfa, 16)));
        assert_eq!(ac.symbol(at(0xffff, 16)), None);
    }

    #[test]
    fn codes_that_cannot_be_are_refused() {
        let with = |counts: [u8; 16], symbol| {
            let mut bytes = counts.to_vec();
            bytes.resize(16 + 256, symbol);
            let (code, _) = Code::read(&bytes).unwrap();
            Lookup::default().set(Class::Dc, &code)
        };
        let mut counts = [0; 16];
        counts[0] = 2;
        assert!(with(counts, 1).is_err(), "a code of ones only");
        counts[0] = 1;
        counts[1] = 2;
        assert!(with(counts, 1).is_err(), "no room for so many");
        counts[1] = 1;
        assert!(with(counts, 1).is_ok());
        counts[1] = 0;
        assert!(with(counts, 1).is_ok());
        assert!(with(counts, 16).is_err(), "a difference of 16 bits");
    }

    #[test]
    fn a_refused_code_leaves_nothing_behind() {
        let mut lookup = Lookup::default();
        let good = Code::standard(Class::Ac, 0);
        lookup.set(Class::Ac, &good).unwrap();
        let bad = Code { counts: [2; 16], ..good.clone() };
        assert!(lookup.set(Class::Ac, &bad).is_err());
        lookup.set(Class::Ac, &good).unwrap();
        assert_eq!(lookup.symbol(0b1010 << 60), Some((0, 4)));
        assert!(lookup.set(Class::Ac, &bad).is_err());
        lookup.set(Class::Ac, &NO_CODE).unwrap();
        assert_eq!(lookup.entries.entry(0b1010 << 60), Entry::LONG);
    }
}
