//! The bits of Huffman-coded data, and the codes in them, as libjpeg reads them (jdhuff.c).
//!
//! There are two ways, and when which of them is taken is part of the meaning: [`Careful`] reads
//! bytes up to the next marker or the end of what is at hand, and zeros behind a marker;
//! [`Ahead`] looks for no end, and whoever takes it does so only far from one and gives up what
//! it decoded if there was a marker after all. Both take a code that does not exist for symbol 0.
//! Read `huffman.rs` next.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "codes have at most 17 bits, values 15; none is negative"
)]

use super::stream::{Stop, Stream, fault};
use crate::jpeg::file::code::Code;

/// How many bits a look-up answers for.
const LOOKAHEAD: u32 = 8;

/// The buffer is filled until it has so many bits.
const FULL: u32 = 57;

/// A code made ready for decoding.
#[derive(Debug, Clone)]
pub(super) struct Table {
    /// For the next eight bits: length of the code, and its symbol; length 9: a longer code.
    lookup: [(u8, u8); 1 << LOOKAHEAD],
    /// By length: the last code, or -1, and what leads from a code to its symbol's place. No
    /// code of 17 bits is beyond the last.
    last: [i32; 18],
    offset: [i32; 18],
    symbols: [u8; 256],
}

impl Table {
    /// Of AC, or of whatever a progressive scan means by it.
    pub(super) fn new(code: Option<&Code>) -> Result<Self, Stop> {
        let code = code.ok_or_else(|| fault("a Huffman table is not defined"))?;
        let mut table = Self {
            lookup: [(LOOKAHEAD as u8 + 1, 0); 1 << LOOKAHEAD],
            last: [-1; 18],
            offset: [0; 18],
            symbols: code.symbols,
        };
        table.last[17] = 0xf_ffff;
        let (mut next, mut place) = (0_i32, 0_i32);
        for (length, &n) in (1_usize..).zip(&code.counts) {
            let n = i32::from(n);
            // No code may consist of ones alone.
            if n > 0 && next + n >= 1 << length {
                return Err(fault("a Huffman table has more codes than fit"));
            }
            if n > 0 {
                table.offset[length] = place - next;
                table.last[length] = next + n - 1;
            }
            for _ in 0..n {
                table.look_up(next, length, place);
                (next, place) = (next + 1, place + 1);
            }
            next <<= 1;
        }
        Ok(table)
    }

    /// Of DC: differences of at most 15 bits.
    pub(super) fn of_dc(code: Option<&Code>) -> Result<Self, Stop> {
        let table = Self::new(code)?;
        let n_symbols = code.iter().flat_map(|code| code.counts).map(usize::from).sum();
        if table.symbols.iter().take(n_symbols).any(|&symbol| symbol > 15) {
            return Err(fault("a Huffman table has a DC difference above 15 bits"));
        }
        Ok(table)
    }

    fn look_up(&mut self, code: i32, length: usize, place: i32) {
        if length <= LOOKAHEAD as usize {
            let n_behind = LOOKAHEAD as usize - length;
            let first = (code as usize) << n_behind;
            let entry = (length as u8, self.symbol(place));
            self.lookup[first..first + (1 << n_behind)].fill(entry);
        }
    }

    fn symbol(&self, place: i32) -> u8 {
        self.symbols[(place & 0xff) as usize]
    }
}

/// Bits that were read and not yet used; kept from MCU to MCU.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Buffer {
    bits: u64,
    n: u32,
}

impl Buffer {
    pub(super) fn clear(&mut self) {
        self.n = 0;
    }

    /// The next `n`, which are there.
    fn peek(&self, n: u32) -> i32 {
        ((self.bits >> (self.n - n)) as i32) & ((1 << n) - 1)
    }
}

/// Reads bits and what they stand for.
pub(super) trait ReadBits {
    /// Makes `n` bits valid, at most 17.
    fn need(&mut self, n: u32) -> Result<(), Stop>;

    /// The symbol of the next code.
    fn symbol(&mut self, table: &Table) -> Result<u8, Stop>;

    /// The bits that are valid.
    fn buffer(&mut self) -> &mut Buffer;

    /// The next `n` bits.
    fn take(&mut self, n: u32) -> Result<i32, Stop> {
        self.need(n)?;
        let buffer = self.buffer();
        let taken = buffer.peek(n);
        buffer.n -= n;
        Ok(taken)
    }

    fn bit(&mut self) -> Result<bool, Stop> {
        Ok(self.take(1)? != 0)
    }

    /// A value of `size` bits (T.81 figure F.12).
    fn value(&mut self, size: u8) -> Result<i32, Stop> {
        let size = u32::from(size);
        if size == 0 {
            return Ok(0);
        }
        let bits = self.take(size)?;
        Ok(if bits >> (size - 1) == 0 { bits - (1 << size) + 1 } else { bits })
    }

    /// A code of `length` bits or more; its symbol, and whether it exists.
    fn long(&mut self, table: &Table, mut length: u32) -> Result<Option<u8>, Stop> {
        let mut code = self.take(length)?;
        while code > table.last[length as usize] {
            code = code << 1 | self.take(1)?;
            length += 1;
        }
        let place = code + table.offset[length as usize];
        Ok((length <= 16).then(|| table.symbol(place)))
    }
}

/// Reads an MCU that may end in a marker, or with what is at hand.
#[derive(Debug)]
pub(super) struct Careful<'s, 'a> {
    stream: &'s mut Stream<'a>,
    pub(super) at: usize,
    pub(super) buffer: Buffer,
    /// Whether zeros were read behind a marker.
    pub(super) ran_out: bool,
}

impl<'s, 'a> Careful<'s, 'a> {
    pub(super) fn new(stream: &'s mut Stream<'a>, buffer: Buffer) -> Self {
        let at = stream.at;
        Self { stream, at, buffer, ran_out: false }
    }

    /// The MCU has been read: the stream goes on behind it.
    pub(super) fn done(self) -> Buffer {
        self.stream.at = self.at;
        self.buffer
    }

    pub(super) fn warn(&mut self, what: &'static str) {
        self.stream.warn(what);
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        if !self.stream.has(self.at) {
            return Err(Stop::Ended);
        }
        self.at += 1;
        Ok(self.stream.get(self.at - 1))
    }

    /// Fills the buffer, up to a marker; then with zeros if `n` bits are not there.
    fn fill(&mut self, n: u32) -> Result<(), Stop> {
        while self.stream.marker.is_none() && self.buffer.n < FULL {
            let mut byte = self.byte()?;
            if byte == 0xff {
                while byte == 0xff {
                    byte = self.byte()?;
                }
                if byte != 0 {
                    self.stream.marker = Some(byte);
                    break;
                }
                byte = 0xff;
            }
            self.buffer.bits = self.buffer.bits << 8 | u64::from(byte);
            self.buffer.n += 8;
        }
        if self.stream.marker.is_some() && n > self.buffer.n {
            self.stream.warn("its entropy-coded data end too soon");
            self.ran_out = true;
            self.buffer.bits <<= FULL - self.buffer.n;
            self.buffer.n = FULL;
        }
        Ok(())
    }
}

impl ReadBits for Careful<'_, '_> {
    fn need(&mut self, n: u32) -> Result<(), Stop> {
        if self.buffer.n < n { self.fill(n) } else { Ok(()) }
    }

    fn symbol(&mut self, table: &Table) -> Result<u8, Stop> {
        let mut length = 1;
        if self.buffer.n < LOOKAHEAD {
            self.fill(0)?;
        }
        if self.buffer.n >= LOOKAHEAD {
            let (n_bits, symbol) = table.lookup[self.buffer.peek(LOOKAHEAD) as usize];
            length = u32::from(n_bits);
            if length <= LOOKAHEAD {
                self.buffer.n -= length;
                return Ok(symbol);
            }
        }
        let found = self.long(table, length)?;
        if found.is_none() {
            self.stream.warn("a Huffman code that is not in its table");
        }
        Ok(found.unwrap_or(0))
    }

    fn buffer(&mut self) -> &mut Buffer {
        &mut self.buffer
    }
}

/// Reads an MCU far from the end of what is at hand.
#[derive(Debug)]
pub(super) struct Ahead<'s, 'a> {
    stream: &'s Stream<'a>,
    at: usize,
    buffer: Buffer,
    saw_marker: bool,
}

impl<'s, 'a> Ahead<'s, 'a> {
    pub(super) fn new(stream: &'s Stream<'a>, buffer: Buffer) -> Self {
        Self { stream, at: stream.at, buffer, saw_marker: false }
    }

    /// Where the MCU ends, if there was no marker on the way.
    pub(super) fn done(self) -> Option<(usize, Buffer)> {
        (!self.saw_marker).then_some((self.at, self.buffer))
    }

    fn fill(&mut self) {
        /// It is filled six bytes at a time, when so few bits are left.
        const FEW: u32 = 16;
        if self.buffer.n > FEW {
            return;
        }
        for _ in 0..6 {
            let mut byte = self.stream.get(self.at);
            self.at += 1;
            if byte == 0xff {
                if self.stream.get(self.at) == 0 {
                    self.at += 1;
                } else {
                    self.saw_marker = true;
                    self.at -= 1;
                    byte = 0;
                }
            }
            self.buffer.bits = self.buffer.bits << 8 | u64::from(byte);
            self.buffer.n += 8;
        }
    }
}

impl ReadBits for Ahead<'_, '_> {
    fn need(&mut self, _: u32) -> Result<(), Stop> {
        self.fill();
        Ok(())
    }

    fn symbol(&mut self, table: &Table) -> Result<u8, Stop> {
        self.fill();
        let (n_bits, symbol) = table.lookup[self.buffer.peek(LOOKAHEAD) as usize];
        let length = u32::from(n_bits);
        if length <= LOOKAHEAD {
            self.buffer.n -= length;
            return Ok(symbol);
        }
        // The bits of one code are there; the buffer is not filled in the middle of it.
        let mut code = self.buffer.peek(length);
        self.buffer.n -= length;
        let mut length = length as usize;
        while code > table.last[length] {
            code = code << 1 | self.buffer.peek(1);
            self.buffer.n -= 1;
            length += 1;
        }
        let symbol = table.symbol(code + table.offset[length]);
        Ok(if length > 16 { 0 } else { symbol })
    }

    fn buffer(&mut self) -> &mut Buffer {
        &mut self.buffer
    }
}
