//! Inflates a damaged or unusual zlib stream and says what zlib would say about it.
//!
//! Pillow gives zlib room for one row at a time and takes what came out, so its verdict depends on how
//! far zlib looks ahead: up to the next symbol that needs room. A checksum counts where it lies within
//! that reach. Whole and sound streams are `fdeflate`'s; this is the exact reading of the rest, a few times
//! slower.
//! RFC 1950 and 1951.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "bits, lengths and distances of deflate are below 2^17; positions are within slices"
)]

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// All room is used, and nothing wrong lies within zlib's reach.
    Full,
    /// The stream ended, with its right checksum.
    Stream,
    /// There are no more bytes.
    Input,
    /// zlib reports an error.
    Damaged(&'static str),
}

/// What became of a stream.
#[derive(Debug)]
pub(super) struct Inflated {
    /// How it ended.
    pub(super) end: End,
    /// The pieces that were read when the last byte came out, and at the end.
    pub(super) pieces_of_end: [usize; 2],
}

/// Codes of one alphabet, by length and then by value.
#[derive(Debug, Default, Clone)]
struct Codes {
    counts: [u16; 16],
    symbols: Vec<u16>,
    /// By the next [`FIRST`] bits: the symbol, and the length of its code in the lowest four; 0 where the
    /// code is longer, or there is none.
    first: Vec<u16>,
    /// One code of one bit: its other value is an error at once.
    is_single: bool,
}

/// Bits of the first look for a symbol.
const FIRST: u32 = 10;
const FIRST_LENGTH: u16 = 10;

const TOO_MUCH: &str = "an invalid Huffman code";
const CODE: &str = "a code without a meaning";

/// Why decoding stops within a block.
enum Stop {
    Input,
    Full,
    Damaged(&'static str),
}

/// Takes what comes out of a stream, in order.
pub(super) trait Sink {
    /// Takes the next bytes, or says why they are wrong.
    fn take(&mut self, bytes: &[u8]) -> Result<(), &'static str>;
}

/// How far back a stream may refer (RFC 1951 §2).
const WINDOW: usize = 1 << 15;

/// The pieces of a stream, read bit by bit, and its output.
struct Reader<'a, S> {
    pieces: &'a [&'a [u8]],
    piece: usize,
    at: usize,
    hold: u64,
    n_held: u32,
    sink: &'a mut S,
    /// The last bytes that came out, [`WINDOW`] of them at least if there were as many.
    window: Vec<u8>,
    n_taken: usize,
    sum: Adler,
    room: u64,
    /// The piece that was read when the last byte came out.
    piece_of_output: usize,
}

/// Inflates `pieces` into `sink`, which has room for so many bytes.
/// Pieces are what Pillow hands to zlib in one call each.
pub(super) fn inflate<S: Sink>(pieces: &[&[u8]], sink: &mut S, room: u64) -> Inflated {
    let mut reader = Reader {
        pieces,
        piece: 0,
        at: 0,
        hold: 0,
        n_held: 0,
        sink,
        window: Vec::with_capacity(4 * WINDOW),
        n_taken: 0,
        sum: Adler::default(),
        room,
        piece_of_output: 0,
    };
    let mut end = match reader.stream() {
        Ok(()) if reader.room == 0 => End::Full,
        Ok(()) => End::Stream,
        Err(Stop::Damaged(why)) => End::Damaged(why),
        Err(Stop::Full) => End::Full,
        // What lies beyond the reach of the call that filled the room is never seen.
        Err(Stop::Input) if reader.room == 0 => End::Full,
        Err(Stop::Input) => End::Input,
    };
    if let Err(Stop::Damaged(why)) = reader.flush() {
        end = End::Damaged(why);
    }
    Inflated { end, pieces_of_end: [reader.piece_of_output, reader.piece] }
}

impl<S: Sink> Reader<'_, S> {
    /// Takes bytes ahead, but none of the next piece: bits that are held have been handed over.
    fn refill(&mut self) {
        let piece = self.pieces.get(self.piece).copied().unwrap_or_default();
        let rest = piece.get(self.at..).unwrap_or_default();
        let n = rest.len().min(((64 - self.n_held) / 8) as usize);
        for byte in &rest[..n] {
            self.hold |= u64::from(*byte) << self.n_held;
            self.n_held += 8;
        }
        self.at += n;
    }

    fn need(&mut self, n: u32) -> Result<(), Stop> {
        while self.n_held < n {
            let byte = loop {
                let piece = self.pieces.get(self.piece).ok_or(Stop::Input)?;
                if let Some(&byte) = piece.get(self.at) {
                    break byte;
                }
                if self.room == 0 || self.piece + 1 >= self.pieces.len() {
                    return Err(Stop::Input);
                }
                self.piece += 1;
                self.at = 0;
            };
            self.at += 1;
            self.hold |= u64::from(byte) << self.n_held;
            self.n_held += 8;
        }
        Ok(())
    }

    fn bits(&mut self, n: u32) -> Result<usize, Stop> {
        self.need(n)?;
        let value = self.hold & ((1 << n) - 1);
        self.hold >>= n;
        self.n_held -= n;
        Ok(usize::try_from(value).unwrap_or(0))
    }

    /// Goes on to a whole byte.
    fn align(&mut self) {
        let n = self.n_held & 7;
        self.hold >>= n;
        self.n_held -= n;
    }

    fn put(&mut self, byte: u8) -> Result<(), Stop> {
        if self.room == 0 {
            return Err(Stop::Full);
        }
        self.room -= 1;
        self.piece_of_output = self.piece;
        if self.window.len() == 4 * WINDOW {
            self.flush()?;
            self.window.copy_within(3 * WINDOW.., 0);
            self.window.truncate(WINDOW);
            self.n_taken = WINDOW;
        }
        self.window.push(byte);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Stop> {
        let fresh = &self.window[self.n_taken..];
        self.sum.add(fresh);
        self.n_taken = self.window.len();
        self.sink.take(fresh).map_err(Stop::Damaged)
    }

    fn stream(&mut self) -> Result<(), Stop> {
        let head = self.bits(16)?;
        let (method, flags) = (head & 0xff, head >> 8);
        if (method << 8 | flags) % 31 != 0 {
            return Err(Stop::Damaged("a wrong zlib header"));
        }
        if method & 15 != 8 || method >> 4 > 7 {
            return Err(Stop::Damaged("an unknown compression method"));
        }
        if flags & 0x20 != 0 {
            return Err(Stop::Damaged("an unknown preset dictionary"));
        }
        let (literals, distances) = fixed();
        loop {
            let is_last = self.bits(1)? == 1;
            match self.bits(2)? {
                0 => self.stored()?,
                1 => self.block(&literals, &distances)?,
                2 => {
                    let (literals, distances) = self.tables()?;
                    self.block(&literals, &distances)?;
                }
                _ => return Err(Stop::Damaged("a block of an unknown type")),
            }
            if is_last {
                break;
            }
        }
        self.align();
        let sum = self.bits(32)?;
        let sum = u32::try_from(sum).unwrap_or(0).swap_bytes();
        self.flush()?;
        if sum != self.sum.value() {
            return Err(Stop::Damaged("a wrong checksum"));
        }
        Ok(())
    }

    fn stored(&mut self) -> Result<(), Stop> {
        self.align();
        let (len, check) = (self.bits(16)?, self.bits(16)?);
        if len != !check & 0xffff {
            return Err(Stop::Damaged("a stored block of a wrong length"));
        }
        for _ in 0..len {
            if self.room == 0 {
                return Err(Stop::Full);
            }
            let byte = self.bits(8)?;
            self.put(byte.to_le_bytes()[0])?;
        }
        Ok(())
    }

    fn tables(&mut self) -> Result<(Codes, Codes), Stop> {
        const ORDER: [usize; 19] =
            [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
        let counts = self.bits(14)?;
        let n_literals = (counts & 31) + 257;
        let n_distances = (counts >> 5 & 31) + 1;
        let n_lengths = (counts >> 10) + 4;
        if n_literals > 286 || n_distances > 30 {
            return Err(Stop::Damaged(TOO_MUCH));
        }
        let mut lengths = [0_u8; 320];
        for &at in &ORDER[..n_lengths] {
            lengths[at] = self.bits(3)?.to_le_bytes()[0];
        }
        let codes = Codes::new(&lengths[..19], 0).ok_or(Stop::Damaged(TOO_MUCH))?;
        let all = n_literals + n_distances;
        let mut lengths = [0_u8; 320];
        let mut at = 0;
        while at < all {
            let symbol = self.symbol(&codes)?;
            let (value, n) = match symbol {
                16 if at == 0 => return Err(Stop::Damaged(TOO_MUCH)),
                16 => (lengths[at - 1], 3 + self.bits(2)?),
                17 => (0, 3 + self.bits(3)?),
                18 => (0, 11 + self.bits(7)?),
                length => (length.to_le_bytes()[0], 1),
            };
            let run = lengths[..all].get_mut(at..at + n);
            run.ok_or(Stop::Damaged(TOO_MUCH))?.fill(value);
            at += n;
        }
        if lengths[256] == 0 {
            return Err(Stop::Damaged("a block without an end"));
        }
        let literals = Codes::new(&lengths[..n_literals], 1);
        let distances = Codes::new(&lengths[n_literals..all], 1);
        literals.zip(distances).ok_or(Stop::Damaged(TOO_MUCH))
    }

    fn symbol(&mut self, codes: &Codes) -> Result<u16, Stop> {
        if self.n_held < 2 * FIRST {
            self.refill();
        }
        let next = usize::try_from(self.hold & ((1 << FIRST) - 1)).unwrap_or(0);
        let entry = codes.first.get(next).copied().unwrap_or(0);
        let length = u32::from(entry & 15);
        if length > 0 && length <= self.n_held {
            self.hold >>= length;
            self.n_held -= length;
            return Ok(entry >> 4);
        }
        let (mut code, mut first, mut index) = (0_usize, 0_usize, 0_usize);
        for length in 1..16 {
            code |= self.bits(1)?;
            let count = usize::from(codes.counts[length]);
            if code < first + count {
                return Ok(codes.symbols[index + code - first]);
            }
            if codes.is_single || codes.symbols.is_empty() {
                break;
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        Err(Stop::Damaged(CODE))
    }

    fn block(&mut self, literals: &Codes, distances: &Codes) -> Result<(), Stop> {
        const LENGTHS: [(u16, u32); 29] = lengths();
        const DISTANCES: [(u16, u32); 30] = distances_of();
        loop {
            let symbol = self.symbol(literals)?;
            if symbol < 256 {
                self.put(symbol.to_le_bytes()[0])?;
                continue;
            }
            if symbol == 256 {
                return Ok(());
            }
            let wrong = || Stop::Damaged(CODE);
            let (base, extra) =
                *LENGTHS.get(usize::from(symbol) - 257).ok_or_else(wrong)?;
            let length = usize::from(base) + self.bits(extra)?;
            let symbol = self.symbol(distances)?;
            let (base, extra) = *DISTANCES.get(usize::from(symbol)).ok_or_else(wrong)?;
            let distance = usize::from(base) + self.bits(extra)?;
            for _ in 0..length {
                if self.room == 0 {
                    return Err(Stop::Full);
                }
                let from = self.window.len().checked_sub(distance);
                let from =
                    from.ok_or(Stop::Damaged("a distance beyond its beginning"))?;
                self.put(self.window[from])?;
            }
        }
    }
}

impl Codes {
    /// `None` where zlib refuses the lengths. `n_incomplete` is 1 where one code alone may stand.
    fn new(lengths: &[u8], n_incomplete: usize) -> Option<Self> {
        let mut codes = Self::default();
        for &length in lengths {
            codes.counts[usize::from(length)] += 1;
        }
        codes.counts[0] = 0;
        let mut left = 1_i32;
        for &count in &codes.counts[1..] {
            left = (left << 1) - i32::from(count);
            if left < 0 {
                return None;
            }
        }
        let longest =
            (1..16_u8).rev().find(|&length| codes.counts[usize::from(length)] > 0);
        let is_complete = left == 0 || longest.is_none();
        if !is_complete && (n_incomplete == 0 || longest != Some(1)) {
            return None;
        }
        // The lengths' own code may not be empty: zlib asks for a symbol and finds none.
        codes.is_single = left > 0;
        for length in 1..16 {
            let of_length = lengths.iter().enumerate().filter(|(_, l)| **l == length);
            let symbols = of_length.filter_map(|(symbol, _)| u16::try_from(symbol).ok());
            codes.symbols.extend(symbols);
        }
        codes.set_first();
        Some(codes)
    }

    fn set_first(&mut self) {
        self.first.resize(1 << FIRST, 0);
        let (mut code, mut symbols) = (0_u16, self.symbols.iter());
        for length in 1..=FIRST_LENGTH {
            for symbol in symbols.by_ref().take(self.counts[usize::from(length)].into()) {
                let start = usize::from(code.reverse_bits() >> (16 - length));
                for entry in self.first[start..].iter_mut().step_by(1 << length) {
                    *entry = symbol << 4 | length;
                }
                code += 1;
            }
            code <<= 1;
        }
    }
}

fn fixed() -> (Codes, Codes) {
    let mut lengths = [8_u8; 288];
    lengths[144..256].fill(9);
    lengths[256..280].fill(7);
    let complete = |lengths: &[u8]| Codes::new(lengths, 0).unwrap_or_default();
    (complete(&lengths), complete(&[5; 32]))
}

/// Length codes 257 to 285: the least length and the bits that are added (RFC 1951 §3.2.5).
const fn lengths() -> [(u16, u32); 29] {
    let mut table = [(258, 0); 29];
    let (mut i, mut base) = (0_u32, 3);
    while i < 28 {
        let extra = if i < 8 { 0 } else { i / 4 - 1 };
        table[i as usize] = (base, extra);
        base += 1 << extra;
        i += 1;
    }
    table
}

/// Distance codes, in the same way.
const fn distances_of() -> [(u16, u32); 30] {
    let mut table = [(0, 0); 30];
    let (mut i, mut base) = (0_u32, 1_u16);
    while i < 30 {
        let extra = if i < 4 { 0 } else { i / 2 - 1 };
        table[i as usize] = (base, extra);
        base = base.wrapping_add(1 << extra);
        i += 1;
    }
    table
}

/// Adler-32 (RFC 1950 §8.2).
#[derive(Debug)]
struct Adler {
    a: u32,
    b: u32,
}

impl Default for Adler {
    fn default() -> Self {
        Self { a: 1, b: 0 }
    }
}

impl Adler {
    fn add(&mut self, bytes: &[u8]) {
        const MODULUS: u32 = 65_521;
        // As many as fit before the sums must be brought back below the modulus.
        for part in bytes.chunks(5552) {
            for &byte in part {
                self.a += u32::from(byte);
                self.b += self.a;
            }
            self.a %= MODULUS;
            self.b %= MODULUS;
        }
    }

    fn value(&self) -> u32 {
        self.b << 16 | self.a
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Sink for Vec<u8> {
        fn take(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
            self.extend_from_slice(bytes);
            Ok(())
        }
    }

    fn inflated(pieces: &[&[u8]]) -> (Vec<u8>, End) {
        let mut out = Vec::new();
        let Inflated { end, .. } = inflate(pieces, &mut out, 1 << 20);
        (out, end)
    }

    /// Of pieces of a byte, symbols are read bit by bit; of whole streams, by tables.
    #[test]
    fn tables_say_what_the_bits_say() {
        let mut seed = 1_u32;
        let mut random = move || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed >> 16
        };
        let mut n_ended = 0;
        for round in 0..300 {
            let spread = 1 + random() % 255;
            let text: Vec<u8> = (0..2000)
                .map(
                    |i| if i % 7 == 0 { 0 } else { (random() % spread).to_le_bytes()[0] },
                )
                .collect();
            let mut stream = fdeflate::compress_to_vec(&text);
            // Of the first ten, nothing is damaged.
            if round >= 10 {
                let at = random() as usize % stream.len();
                stream[at] ^= 1 << (random() % 8);
            }
            let bytes: Vec<&[u8]> = stream.chunks(1).collect();
            let (out, end) = inflated(&[&stream]);
            assert_eq!((&out, end), (&inflated(&bytes).0, inflated(&bytes).1), "{round}");
            if round < 10 {
                assert_eq!((out, end), (text, End::Stream));
            }
            n_ended += u32::from(end == End::Stream);
        }
        assert!(n_ended >= 10, "{n_ended}");
    }
}
