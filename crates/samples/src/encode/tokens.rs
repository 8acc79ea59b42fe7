//! The coefficients of a scan as tokens: symbols that get Huffman codes, and the bits that follow
//! them unchanged.
//!
//! One coder handles all scans. Baseline (T.81 F.1.2) is the first progressive scan (G.1.2) with
//! all bits of all coefficients and an immediate symbol for every end of block. Read
//! `huffman.rs` next.

use super::scans::Scan;
use super::{Block, Component};

/// A Huffman symbol, if any, and the bits after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) symbol: Option<Symbol>,
    /// The low `n_bits` of it are written.
    pub(super) bits: u16,
    pub(super) n_bits: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) table: TableIdx,
    pub(super) value: u8,
}

/// 0 and 1: DC and AC of luma; 2 and 3: of chroma.
pub(super) type TableIdx = u8;

/// Sixteen zeros.
const ZERO_RUN: u8 = 0xF0;

/// The longest run of ended blocks that a symbol can express (T.81 G.1.2.2).
const LONGEST_RUN: u16 = 0x7FFF;

/// With more corrections than this, libjpeg writes the run of ended blocks: its buffer has room
/// for 1000, and the next block may add 63.
const MOST_CORRECTIONS: usize = 1000 - 63;

/// All tokens of a scan.
pub(super) fn of_scan(scan: &Scan, components: &[Component]) -> Vec<Token> {
    let mut coder = Coder::new(scan);
    let parts = &components[scan.components.clone()];
    if let [part] = parts {
        // Not interleaved: blocks that only complete an MCU are left out (T.81 A.2.2).
        for row in part.blocks.chunks_exact(part.per_row).take(part.n_down) {
            for block in &row[..part.n_across] {
                coder.block(scan.components.start, block);
            }
        }
    } else {
        let n_across = parts[0].per_row / parts[0].factor;
        let n_mcus = parts[0].blocks.len() / parts[0].factor.pow(2);
        for (y, x) in (0..n_mcus).map(|mcu| (mcu / n_across, mcu % n_across)) {
            for (idx, part) in parts.iter().enumerate() {
                for row in y * part.factor..(y + 1) * part.factor {
                    let first = row * part.per_row + x * part.factor;
                    for block in &part.blocks[first..first + part.factor] {
                        coder.block(idx, block);
                    }
                }
            }
        }
    }
    coder.tell_ended();
    coder.tokens
}

struct Coder<'a> {
    scan: &'a Scan,
    tokens: Vec<Token>,
    /// The last DC of each component: only differences are stored.
    means: [i16; 3],
    /// The table of the current component's coefficients.
    table: TableIdx,
    /// Blocks that have ended since the last symbol, and the corrections of their coefficients,
    /// which follow the symbol for the run.
    n_ended: u16,
    corrections: Vec<Token>,
    /// Corrections of the current block that follow its next symbol.
    waiting: Vec<Token>,
}

impl<'a> Coder<'a> {
    fn new(scan: &'a Scan) -> Self {
        Self {
            scan,
            tokens: Vec::new(),
            means: [0; 3],
            table: 0,
            n_ended: 0,
            corrections: Vec::new(),
            waiting: Vec::new(),
        }
    }

    fn block(&mut self, component: usize, block: &Block) {
        let (first, last) = self.scan.band;
        let mean_table = if component == 0 { 0 } else { 2 };
        self.table = mean_table + 1;
        if first == 0 {
            self.mean(component, mean_table, block[0]);
        }
        if last > 0 && self.scan.high == 0 {
            self.coefficients(&block[first.max(1)..=last]);
        } else if last > 0 {
            self.refine(&block[first..=last]);
        }
        // Baseline has no runs of ended blocks.
        if first == 0 {
            self.tell_ended();
        }
    }

    fn mean(&mut self, component: usize, table: TableIdx, mean: i16) {
        let mean = mean >> self.scan.low;
        if self.scan.high > 0 {
            self.tokens.push(bit(mean.cast_unsigned()));
        } else {
            let difference = mean - self.means[component];
            self.means[component] = mean;
            self.tokens.push(number(table, 0, difference));
        }
    }

    /// A band that no earlier scan has.
    fn coefficients(&mut self, band: &[i16]) {
        let mut n_zeros = 0;
        for &coefficient in band {
            let magnitude = self.magnitude(coefficient);
            if magnitude == 0 {
                n_zeros += 1;
                continue;
            }
            self.tell_ended();
            while n_zeros > 15 {
                self.tokens.push(symbol(self.table, ZERO_RUN));
                n_zeros -= 16;
            }
            let value = magnitude.cast_signed() * coefficient.signum();
            self.tokens.push(number(self.table, n_zeros, value));
            n_zeros = 0;
        }
        if n_zeros > 0 {
            self.end_block();
        }
    }

    /// One more bit for a band that earlier scans have (T.81 G.1.2.3).
    fn refine(&mut self, band: &[i16]) {
        let last_new = band.iter().rposition(|&new| self.magnitude(new) == 1);
        let mut n_zeros = 0;
        for (idx, &coefficient) in band.iter().enumerate() {
            let magnitude = self.magnitude(coefficient);
            if magnitude == 0 {
                n_zeros += 1;
                continue;
            }
            // After the last new coefficient, the zeros belong to the end of the block.
            while n_zeros > 15 && last_new.is_some_and(|last| idx <= last) {
                self.tell_ended();
                self.tokens.push(symbol(self.table, ZERO_RUN));
                self.tokens.append(&mut self.waiting);
                n_zeros -= 16;
            }
            if magnitude > 1 {
                self.waiting.push(bit(magnitude));
                continue;
            }
            self.tell_ended();
            self.tokens.push(number(self.table, n_zeros, coefficient.signum()));
            self.tokens.append(&mut self.waiting);
            n_zeros = 0;
        }
        if n_zeros > 0 || !self.waiting.is_empty() {
            self.corrections.append(&mut self.waiting);
            self.end_block();
        }
    }

    /// The bits of an AC coefficient in this scan and earlier ones.
    fn magnitude(&self, coefficient: i16) -> u16 {
        coefficient.unsigned_abs() >> self.scan.low
    }

    fn end_block(&mut self) {
        self.n_ended += 1;
        if self.n_ended == LONGEST_RUN || self.corrections.len() > MOST_CORRECTIONS {
            self.tell_ended();
        }
    }

    /// Writes the run of ended blocks, if there are any: the bit length of their number as a symbol,
    /// then the number without its first bit.
    fn tell_ended(&mut self) {
        let Some(n_bits) = self.n_ended.checked_ilog2() else { return };
        let n_bits = low_byte(n_bits);
        let symbol = Some(Symbol { table: self.table, value: n_bits << 4 });
        self.tokens.push(Token { symbol, bits: self.n_ended, n_bits });
        self.tokens.append(&mut self.corrections);
        self.n_ended = 0;
    }
}

/// A number after `n_zeros` zeros: the run and its bit length as a symbol, then its bits, which
/// are inverted for a negative number (T.81 F.1.2.1.1).
fn number(table: TableIdx, n_zeros: u8, value: i16) -> Token {
    let n_bits = low_byte(u16::BITS - value.unsigned_abs().leading_zeros());
    let symbol = Some(Symbol { table, value: (n_zeros << 4) | n_bits });
    // The sign bit is 0 or −1.
    let bits = (value + (value >> 15)).cast_unsigned();
    Token { symbol, bits, n_bits }
}

fn symbol(table: TableIdx, value: u8) -> Token {
    Token { symbol: Some(Symbol { table, value }), bits: 0, n_bits: 0 }
}

/// The lowest bit of a number.
fn bit(bits: u16) -> Token {
    Token { symbol: None, bits, n_bits: 1 }
}

fn low_byte(count: u32) -> u8 {
    count.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(band: (usize, usize), high: u8, low: u8) -> Scan {
        Scan { components: 0..1, band, high, low }
    }

    /// The tokens of blocks of brightness as (symbol, its bits).
    fn tokens(scan: &Scan, blocks: Vec<Block>) -> Vec<(Option<u8>, String)> {
        let n = blocks.len();
        let part = Component { factor: 1, n_across: n, n_down: 1, per_row: n, blocks };
        let written = |token: Token| {
            let bits = (0..token.n_bits).rev().map(|i| token.bits >> i & 1);
            let symbol = token.symbol.map(|symbol| symbol.value);
            (symbol, bits.map(|bit| bit.to_string()).collect())
        };
        of_scan(scan, &[part]).into_iter().map(written).collect()
    }

    fn block<const N: usize>(first: [i16; N]) -> Block {
        let mut block = [0; 64];
        block[..N].copy_from_slice(&first);
        block
    }

    /// A token as the tests write it.
    fn told(symbol: impl Into<Option<u8>>, bits: &str) -> (Option<u8>, String) {
        (symbol.into(), bits.into())
    }

    #[test]
    fn baseline_tells_differences_runs_and_ends() {
        let mut second = block([5, 0, 0, -1]);
        second[21] = 6;
        second[63] = 1;
        let wanted = [
            told(4, "1000"),  // 8
            told(0x02, "00"), // −3
            told(0x00, ""),   // end of block
            told(2, "00"),    // 5 − 8 = −3
            told(0x21, "0"),  // −1 after two zeros
            told(ZERO_RUN, ""),
            told(0x13, "110"), // 6 after 17 zeros
            told(ZERO_RUN, ""),
            told(ZERO_RUN, ""),
            told(0x91, "1"), // The last coefficient ends the block.
        ];
        assert_eq!(tokens(&scan((0, 63), 0, 0), vec![block([8, -3]), second]), wanted);
    }

    #[test]
    fn the_first_scan_of_means_rounds_down_and_the_second_adds_the_bit() {
        let blocks = || vec![block([-3]), block([5])];
        let wanted = [told(2, "01"), told(3, "100")]; // −2, then 2 + 2
        assert_eq!(tokens(&scan((0, 0), 0, 1), blocks()), wanted);
        let wanted = [told(None, "1"), told(None, "1")];
        assert_eq!(tokens(&scan((0, 0), 1, 0), blocks()), wanted);
    }

    #[test]
    fn a_band_is_cut_towards_zero_and_ended_blocks_are_counted() {
        let empty = block([7, 1, -1]);
        let blocks = vec![block([0, -3, 1]), empty, empty, empty, block([0, 0, 2])];
        let wanted = [
            told(0x01, "0"), // −1; then five ended blocks, the last after one more number
            told(0x20, "00"), // four: 1 00
            told(0x11, "1"),
            told(0x00, ""),
        ];
        assert_eq!(tokens(&scan((1, 5), 0, 1), blocks), wanted);
    }

    #[test]
    fn refining_tells_new_coefficients_and_corrects_old_ones() {
        let mut long = block([0, 3, 0, 2]);
        long[20] = -1;
        long[22] = 5;
        let wanted = [
            // 15 zeros and the one between the old coefficients, whose bits follow.
            told(ZERO_RUN, ""),
            told(None, "1"),
            told(None, "0"),
            told(0x11, "0"), // −1 after one more zero
            // The end of this block and of the next, and the old coefficients in them.
            told(0x10, "0"),
            told(None, "1"),
            told(None, "1"),
        ];
        let blocks = vec![long, block([0, 0, 7])];
        assert_eq!(tokens(&scan((1, 63), 1, 0), blocks), wanted);
    }

    #[test]
    fn a_run_of_ended_blocks_stops_where_its_symbol_or_libjpegs_buffer_does() {
        let ends = |blocks| -> Vec<_> {
            let tokens = tokens(&scan((1, 63), 1, 0), blocks).into_iter();
            tokens.filter_map(|(symbol, bits)| Some((symbol?, bits))).collect()
        };
        let wanted = [(0xE0, "1".repeat(14)), (0x00, String::new())];
        assert_eq!(ends(vec![block([0]); 0x8000]), wanted);
        // 62 corrections a block: the sixteenth block makes them 992.
        let mut full = [2; 64];
        full[63] = 0;
        let wanted = [(0x40, "0000".to_owned()), (0x00, String::new())];
        assert_eq!(ends(vec![full; 17]), wanted);
        // 937 of them are not too many yet.
        let mut blocks = vec![full; 15];
        blocks.push(block([0, 2, 2, 2, 2, 2, 2, 2]));
        blocks.push(block([0]));
        assert_eq!(ends(blocks), [(0x40, "0001".to_owned())]);
    }
}
