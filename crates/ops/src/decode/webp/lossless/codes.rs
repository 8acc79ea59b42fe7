//! Prefix codes of a lossless image ("Decoding and Building the Prefix Codes"), as libwebp takes them.

use super::bits::Bits;

/// Bits of the first look.
const FIRST: usize = 8;
const MOST: usize = 15;
/// An entry of the first look for codes that are longer.
const LONGER: u16 = u16::MAX;

/// In which order the lengths of the lengths' codes are stored.
const ORDER: [usize; 19] =
    [17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// A code. Of one symbol only, it takes no bits.
#[derive(Debug)]
pub(super) struct Code {
    /// By the next bits: the symbol, and the length of its code in the lowest four bits.
    first: Box<[u16]>,
    mask: u16,
    /// Symbols with longer codes, in the order of these.
    symbols: Box<[u16]>,
    /// For each length: the first code, how many there are, and where their symbols begin.
    longer: [[u16; 3]; MOST + 1],
}

impl Code {
    /// A code of symbols with these lengths; none is there where it is 0.
    pub(super) fn new(lens: &[u8]) -> Option<Self> {
        let mut counts = [0_u16; MOST + 1];
        lens.iter().for_each(|&len| counts[usize::from(len)] += 1);
        counts[0] = 0;
        let n_symbols: u16 = counts.iter().sum();
        if n_symbols == 1 {
            let symbol = lens.iter().position(|&len| len > 0)? as u16;
            let first = Box::new([symbol << 4]);
            let longer = [[0; 3]; MOST + 1];
            return Some(Self { first, mask: 0, symbols: Box::default(), longer });
        }
        // Complete, and no more than that.
        let filled = (1..=MOST).map(|len| u32::from(counts[len]) << (MOST - len));
        if filled.sum::<u32>() != 1 << MOST {
            return None;
        }
        let longest = (1..=MOST).rev().find(|&len| counts[len] > 0)?;
        let n_bits = longest.min(FIRST);
        let mut first = vec![LONGER; 1 << n_bits].into_boxed_slice();
        let (mut code, mut begin, mut longer) = (0_u16, 0, [[0; 3]; MOST + 1]);
        for len in 1..=MOST {
            code <<= 1;
            longer[len] = [code, counts[len], begin];
            code += counts[len];
            if len > FIRST {
                begin += counts[len];
            }
        }
        let mut symbols = vec![0; begin.into()].into_boxed_slice();
        let mut next = longer;
        for (symbol, &len) in lens.iter().enumerate().filter(|(_, len)| **len > 0) {
            let (len, symbol) = (usize::from(len), symbol as u16);
            let [code, _, place] = &mut next[len];
            if len > FIRST {
                symbols[usize::from(*place)] = symbol;
                *place += 1;
                continue;
            }
            let start = usize::from(code.reverse_bits() >> (16 - len));
            *code += 1;
            for entry in first[start..].iter_mut().step_by(1 << len) {
                *entry = symbol << 4 | len as u16;
            }
        }
        Some(Self { first, mask: (1 << n_bits) - 1, symbols, longer })
    }

    /// Reads one from a file.
    pub(super) fn read(bits: &mut Bits<'_>, n_symbols: usize) -> Option<Self> {
        let mut lens = vec![0_u8; n_symbols.max(256)];
        if bits.flag() {
            // One symbol or two; one that the alphabet lacks does not count.
            let is_two = bits.flag();
            let n_bits = if bits.flag() { 8 } else { 1 };
            lens[bits.number(n_bits) as usize] = 1;
            if is_two {
                lens[bits.number(8) as usize] = 1;
            }
        } else {
            read_lens(bits, &mut lens[..n_symbols])?;
        }
        if bits.is_past_end() {
            return None;
        }
        Self::new(&lens[..n_symbols])
    }

    /// Whether it has one symbol, which takes no bits.
    pub(super) fn is_single(&self) -> bool {
        self.mask == 0
    }

    /// Bytes that it takes.
    pub(super) fn n_bytes(&self) -> usize {
        size_of::<Self>() + 2 * (self.first.len() + self.symbols.len())
    }

    /// The next symbol.
    #[inline]
    pub(super) fn symbol(&self, bits: &mut Bits<'_>) -> usize {
        let next = bits.peek();
        let entry = self.first[usize::from(next & self.mask)];
        if entry != LONGER {
            bits.skip(u32::from(entry & 15));
            return usize::from(entry >> 4);
        }
        let next = next.reverse_bits();
        for (len, [code, count, begin]) in self.longer.iter().enumerate().skip(FIRST + 1)
        {
            let i = (next >> (16 - len)).wrapping_sub(*code);
            if i < *count {
                bits.skip(len as u32);
                return usize::from(self.symbols[usize::from(begin + i)]);
            }
        }
        // A complete code has no other.
        0
    }
}

/// Lengths, which are coded themselves.
fn read_lens(bits: &mut Bits<'_>, lens: &mut [u8]) -> Option<()> {
    let mut of_lens = [0; ORDER.len()];
    let n = 4 + bits.number(4) as usize;
    for &i in &ORDER[..n] {
        of_lens[i] = bits.number(3) as u8;
    }
    let code = Code::new(&of_lens)?;
    let mut n_codes = lens.len();
    if bits.flag() {
        let n_bits = 2 + 2 * bits.number(3);
        n_codes = 2 + bits.number(n_bits) as usize;
        if n_codes > lens.len() {
            return None;
        }
    }
    let (mut at, mut last) = (0, 8);
    while at < lens.len() && n_codes > 0 {
        n_codes -= 1;
        let (value, n) = match code.symbol(bits) {
            16 => (last, 3 + bits.number(2) as usize),
            17 => (0, 3 + bits.number(3) as usize),
            18 => (0, 11 + bits.number(7) as usize),
            len => {
                let len = len as u8;
                last = if len == 0 { last } else { len };
                (len, 1)
            }
        };
        lens.get_mut(at..at + n)?.fill(value);
        at += n;
    }
    Some(())
}
