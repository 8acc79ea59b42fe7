//! Writes tokens as bits, with Huffman tables from the standard or made for a scan.
//!
//! Read `markers.rs` next.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Scans;
use super::tokens::Token;

/// A Huffman table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// How many codes have 1, 2, … 16 bits.
    pub(super) counts: [u8; 16],
    /// The symbols, shortest codes first.
    pub(super) symbols: Vec<u8>,
    /// The code and length of every symbol; length 0 means none.
    codes: [(u16, u8); 256],
}

/// The tables of a scan; `None` where no token needs one.
pub(super) type Tables = [Option<Table>; 4];

pub(super) fn tables(tokens: &[Token], scans: Scans) -> Tables {
    let mut counts = [[0; 256]; 4];
    for symbol in tokens.iter().filter_map(|token| token.symbol) {
        counts[usize::from(symbol.table)][usize::from(symbol.value)] += 1;
    }
    [0, 1, 2, 3].map(|idx| {
        let is_used = counts[idx].iter().any(|&n| n > 0);
        is_used.then(|| match scans {
            Scans::Baseline => standard(idx),
            Scans::Progressive => best(&counts[idx]),
        })
    })
}

/// Writes a scan: the code and bits of every token, padded with ones to a whole byte.
pub(super) fn write(file: &mut Vec<u8>, tokens: &[Token], tables: &Tables) {
    let codes = tables.each_ref().map(|table| table.as_ref().map(|table| &table.codes));
    let mut bits = Bits { file, word: 0, n: 0 };
    for token in tokens {
        if let Some(symbol) = token.symbol
            && let Some(codes) = codes[usize::from(symbol.table)]
        {
            let (code, n) = codes[usize::from(symbol.value)];
            bits.push(code, n);
        }
        bits.push(token.bits & ((1 << token.n_bits) - 1), token.n_bits);
        bits.write_bytes();
    }
    bits.push(0x7F, 7);
    bits.write_bytes();
}

/// Collects bits into the bytes of a file.
struct Bits<'a> {
    file: &'a mut Vec<u8>,
    /// The low `n` bits are not in the file yet.
    word: u64,
    n: u8,
}

impl Bits<'_> {
    /// Appends the low `n` of the bits; the others must be 0.
    fn push(&mut self, bits: u16, n: u8) {
        self.word = (self.word << n) | u64::from(bits);
        self.n += n;
    }

    fn write_bytes(&mut self) {
        while self.n >= 8 {
            self.n -= 8;
            let [byte, ..] = (self.word >> self.n).to_le_bytes();
            self.file.push(byte);
            // Otherwise it would look like a marker (T.81 F.1.2.3).
            if byte == 0xFF {
                self.file.push(0);
            }
        }
    }
}

impl Table {
    /// Codes of a length are consecutive numbers, and follow those of the length before
    /// (T.81 Annex C).
    fn new(counts: [u8; 16], symbols: Vec<u8>) -> Self {
        let mut codes = [(0, 0); 256];
        let mut next_code = 0;
        let mut next_symbol = symbols.iter();
        for (length, count) in (1..).zip(counts) {
            for &symbol in next_symbol.by_ref().take(usize::from(count)) {
                codes[usize::from(symbol)] = (next_code, length);
                next_code += 1;
            }
            next_code <<= 1;
        }
        Self { counts, symbols, codes }
    }
}

/// The optimal table for symbols with these frequencies (T.81 K.2). Of symbols with the same
/// frequency, the larger gets the longer code.
fn best(frequencies: &[u32; 256]) -> Table {
    // A symbol that does not exist gets one of the longest codes: all ones, which must not occur.
    let none = (1, 256);
    let real = frequencies.iter().copied().zip(0..).filter(|&(n, _)| n > 0);
    let mut lengths = [0; 257];
    // Join the two rarest groups of symbols, which makes their codes one bit longer, until one
    // group is left.
    let mut groups: BTreeMap<(u32, Reverse<usize>), Vec<usize>> = real
        .chain([none])
        .map(|(n, symbol)| ((n, Reverse(symbol)), vec![symbol]))
        .collect();
    while let Some(((n, name), mut group)) = groups.pop_first() {
        let Some(((n_other, _), mut other)) = groups.pop_first() else { break };
        group.append(&mut other);
        group.iter().for_each(|&symbol| lengths[symbol] += 1);
        groups.insert((n + n_other, name), group);
    }
    let mut symbols: Vec<u8> =
        (0..=255).filter(|&s| lengths[usize::from(s)] > 0).collect();
    symbols.sort_by_key(|&symbol| lengths[usize::from(symbol)]);
    Table::new(at_most_sixteen(&lengths), symbols)
}

/// How many codes have each length if none may be longer than 16 bits (T.81 Figure K.3), without
/// the one for the symbol that does not exist.
fn at_most_sixteen(lengths: &[usize; 257]) -> [u8; 16] {
    let mut counts = [0_u8; 64];
    for &length in lengths.iter().filter(|&&length| length > 0) {
        counts[length] += 1;
    }
    for length in (17..64).rev() {
        while counts[length] > 0 {
            // Of two codes with a common prefix, one becomes the prefix; the other shares a
            // shorter code that gets one bit longer.
            let shorter = (1..length - 1).rfind(|&l| counts[l] > 0).unwrap_or(1);
            counts[length] -= 2;
            counts[length - 1] += 1;
            counts[shorter + 1] += 2;
            counts[shorter] -= 1;
        }
    }
    if let Some(longest) = (1..=16).rfind(|&length| counts[length] > 0) {
        counts[longest] -= 1;
    }
    std::array::from_fn(|idx| counts[idx + 1])
}

/// The example tables of T.81, Annex K.3: tables K.3, K.5, K.4 and K.6.
fn standard(idx: usize) -> Table {
    let means = |counts| Table::new(counts, (0..12).collect());
    match idx {
        0 => means([0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0]),
        1 => Table::new(LUMA_COUNTS, LUMA_SYMBOLS.to_vec()),
        2 => means([0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0]),
        _ => Table::new(CHROMA_COUNTS, CHROMA_SYMBOLS.to_vec()),
    }
}

const LUMA_COUNTS: [u8; 16] = [0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125];
const LUMA_SYMBOLS: &[u8; 162] = b"\
    \x01\x02\x03\x00\x04\x11\x05\x12\x21\x31\x41\x06\x13\x51\x61\x07\x22\x71\
    \x14\x32\x81\x91\xA1\x08\x23\x42\xB1\xC1\x15\x52\xD1\xF0\x24\x33\x62\x72\
    \x82\x09\x0A\x16\x17\x18\x19\x1A\x25\x26\x27\x28\x29\x2A\x34\x35\x36\x37\
    \x38\x39\x3A\x43\x44\x45\x46\x47\x48\x49\x4A\x53\x54\x55\x56\x57\x58\x59\
    \x5A\x63\x64\x65\x66\x67\x68\x69\x6A\x73\x74\x75\x76\x77\x78\x79\x7A\x83\
    \x84\x85\x86\x87\x88\x89\x8A\x92\x93\x94\x95\x96\x97\x98\x99\x9A\xA2\xA3\
    \xA4\xA5\xA6\xA7\xA8\xA9\xAA\xB2\xB3\xB4\xB5\xB6\xB7\xB8\xB9\xBA\xC2\xC3\
    \xC4\xC5\xC6\xC7\xC8\xC9\xCA\xD2\xD3\xD4\xD5\xD6\xD7\xD8\xD9\xDA\xE1\xE2\
    \xE3\xE4\xE5\xE6\xE7\xE8\xE9\xEA\xF1\xF2\xF3\xF4\xF5\xF6\xF7\xF8\xF9\xFA";

const CHROMA_COUNTS: [u8; 16] = [0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 119];
const CHROMA_SYMBOLS: &[u8; 162] = b"\
    \x00\x01\x02\x03\x11\x04\x05\x21\x31\x06\x12\x41\x51\x07\x61\x71\x13\x22\
    \x32\x81\x08\x14\x42\x91\xA1\xB1\xC1\x09\x23\x33\x52\xF0\x15\x62\x72\xD1\
    \x0A\x16\x24\x34\xE1\x25\xF1\x17\x18\x19\x1A\x26\x27\x28\x29\x2A\x35\x36\
    \x37\x38\x39\x3A\x43\x44\x45\x46\x47\x48\x49\x4A\x53\x54\x55\x56\x57\x58\
    \x59\x5A\x63\x64\x65\x66\x67\x68\x69\x6A\x73\x74\x75\x76\x77\x78\x79\x7A\
    \x82\x83\x84\x85\x86\x87\x88\x89\x8A\x92\x93\x94\x95\x96\x97\x98\x99\x9A\
    \xA2\xA3\xA4\xA5\xA6\xA7\xA8\xA9\xAA\xB2\xB3\xB4\xB5\xB6\xB7\xB8\xB9\xBA\
    \xC2\xC3\xC4\xC5\xC6\xC7\xC8\xC9\xCA\xD2\xD3\xD4\xD5\xD6\xD7\xD8\xD9\xDA\
    \xE2\xE3\xE4\xE5\xE6\xE7\xE8\xE9\xEA\xF2\xF3\xF4\xF5\xF6\xF7\xF8\xF9\xFA";

#[cfg(test)]
mod tests {
    use super::super::tokens::Symbol;
    use super::*;

    #[test]
    fn codes_of_the_standard_are_the_standards() {
        // T.81 Tables K.3, K.5 and K.6: symbol, code, length.
        for (idx, symbol, code, length) in [
            (0, 0, 0b00, 2),
            (0, 11, 0b1_1111_1110, 9),
            (1, 0x00, 0b1010, 4),
            (1, 0x11, 0b1100, 4),
            (1, 0xF0, 0b111_1111_1001, 11),
            (1, 0xFA, 0xFFFE, 16),
            (3, 0x00, 0b00, 2),
            (3, 0xF0, 0b11_1111_1010, 10),
        ] {
            assert_eq!(standard(idx).codes[symbol], (code, length), "{idx} {symbol:#x}");
        }
    }

    #[test]
    fn frequent_symbols_get_short_codes() {
        let mut frequencies = [0; 256];
        for (symbol, n) in [(7, 100), (3, 20), (200, 20), (9, 1)] {
            frequencies[symbol] = n;
        }
        let table = best(&frequencies);
        assert_eq!(table.symbols, [7, 3, 200, 9]);
        // The all-ones code of four bits stays unused.
        assert_eq!(table.counts[..5], [1, 1, 1, 1, 0]);
        assert_eq!(table.codes[9], (0b1110, 4));
    }

    #[test]
    fn a_lonely_symbol_gets_one_bit() {
        let mut frequencies = [0; 256];
        frequencies[5] = 1000;
        assert_eq!(best(&frequencies).codes[5], (0, 1));
    }

    #[test]
    fn no_code_is_longer_than_sixteen_bits() {
        // Each as frequent as the previous two together: every code is one bit longer.
        let mut frequencies = [0; 256];
        let (mut a, mut b) = (1, 1);
        for frequency in &mut frequencies[..30] {
            *frequency = a;
            (a, b) = (b, a + b);
        }
        let table = best(&frequencies);
        assert_eq!(table.symbols.len(), 30);
        assert_eq!(table.counts.iter().map(|&n| usize::from(n)).sum::<usize>(), 30);
        // Of all codes of 16 bits, only the one of all ones is left.
        let used =
            (1..).zip(table.counts).map(|(length, n)| u32::from(n) << (16 - length));
        assert_eq!(used.sum::<u32>(), 0xFFFF);
    }

    #[test]
    fn a_full_byte_gets_a_zero_and_the_last_one_is_filled_with_ones() {
        let symbol = Some(Symbol { table: 0, value: 1 });
        let tokens = [
            Token { symbol, bits: 0xFFFF, n_bits: 1 },
            Token { symbol: None, bits: 0x1F, n_bits: 5 },
            Token { symbol: None, bits: 0x0A, n_bits: 4 },
        ];
        let mut file = vec![9];
        // Code 1 of two bits, hence 0b11 as there are three shorter ones.
        let table = Table::new(
            [0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            vec![4, 3, 2, 1],
        );
        write(&mut file, &tokens, &[Some(table), None, None, None]);
        assert_eq!(file, [9, 0xFF, 0x00, 0b1010_1111]);
    }
}
