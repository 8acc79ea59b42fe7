//! What a macroblock says: modes of prediction (RFC 6386 §11) and coefficients (§13).

use super::bools::Bools;
use super::head::{Head, Steps};
use super::predict::{Mode, Small};
use super::tables::SMALL_MODES;
use super::transform::{Extent, second};

/// A macroblock; kept from one to the next for its memory.
#[derive(Debug)]
pub(super) struct Macroblock {
    pub(super) segment: usize,
    is_skipped: bool,
    /// `None` if each small block has a mode of its own.
    pub(super) luma: Option<Mode>,
    pub(super) small: [Small; 16],
    pub(super) chroma: Mode,
    /// Luma, Cb and Cr.
    pub(super) blocks: [[i16; 16]; 24],
    pub(super) extents: [Extent; 24],
}

/// What the next macroblocks have to know of those above and to the left.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Neighbour {
    small: [Small; 4],
    /// Whether blocks at the edge have coefficients: luma, Cb, Cr, and the block of first ones.
    has: [bool; 9],
}

const SECOND: usize = 8;

impl Macroblock {
    pub(super) fn new() -> Self {
        Self {
            segment: 0,
            is_skipped: false,
            luma: None,
            small: [Small::Mean; 16],
            chroma: Mode::Mean,
            blocks: [[0; 16]; 24],
            extents: [Extent::Empty; 24],
        }
    }

    /// Whether it has coefficients.
    pub(super) fn has_any(&self) -> bool {
        self.extents.iter().any(|&extent| extent != Extent::Empty)
    }

    /// Reads the next one of the first partition.
    pub(super) fn read_modes(
        &mut self,
        head: &mut Head<'_>,
        above: &mut Neighbour,
        left: &mut Neighbour,
    ) {
        let it = &mut head.modes;
        self.segment = match head.segment_of {
            None => 0,
            Some([top, low, high]) => match it.bit(top) {
                false => usize::from(it.bit(low)),
                true => 2 + usize::from(it.bit(high)),
            },
        };
        self.is_skipped = head.skip.is_some_and(|probability| it.bit(probability));
        self.luma = match it.bit(145) {
            false => None,
            true => Some(match it.bit(156) {
                false if it.bit(163) => Mode::Vertical,
                false => Mode::Mean,
                true if it.bit(128) => Mode::TrueMotion,
                true => Mode::Horizontal,
            }),
        };
        match self.luma {
            Some(mode) => {
                let mode = match mode {
                    Mode::Mean => Small::Mean,
                    Mode::Vertical => Small::Vertical,
                    Mode::Horizontal => Small::Horizontal,
                    Mode::TrueMotion => Small::TrueMotion,
                };
                (above.small, left.small) = ([mode; 4], [mode; 4]);
            }
            None => {
                for (i, mode) in self.small.iter_mut().enumerate() {
                    let (above, left) = (&mut above.small[i % 4], &mut left.small[i / 4]);
                    *mode = small(it, &SMALL_MODES[*above as usize][*left as usize]);
                    (*above, *left) = (*mode, *mode);
                }
            }
        }
        self.chroma = match it.bit(142) {
            false => Mode::Mean,
            true if !it.bit(114) => Mode::Vertical,
            true if it.bit(183) => Mode::TrueMotion,
            true => Mode::Horizontal,
        };
    }

    /// Reads its coefficients, if it has any, from partition `partition`.
    pub(super) fn read_coefficients(
        &mut self,
        head: &mut Head<'_>,
        partition: usize,
        above: &mut Neighbour,
        left: &mut Neighbour,
    ) {
        self.extents = [Extent::Empty; 24];
        if self.is_skipped {
            let n = if self.luma.is_some() { SECOND + 1 } else { SECOND };
            above.has[..n].fill(false);
            left.has[..n].fill(false);
            return;
        }
        self.blocks = [[0; 16]; 24];
        let quantizer = head.quantizers[self.segment];
        let (it, all) = (&mut head.tokens[partition], &head.probabilities);
        let (kind, first) = if self.luma.is_some() { (0, 1) } else { (3, 0) };
        if self.luma.is_some() {
            let mut block = [0; 16];
            let context = usize::from(above.has[SECOND]) + usize::from(left.has[SECOND]);
            let mut tokens = Tokens { it, kind: &all[1], steps: quantizer.second };
            let n = tokens.read(context, 0, &mut block);
            (above.has[SECOND], left.has[SECOND]) = (n > 0, n > 0);
            for (block, value) in self.blocks.iter_mut().zip(second(&block, n)) {
                block[0] = value;
            }
        }
        let blocks = self.blocks.iter_mut().zip(&mut self.extents);
        for (i, (block, extent)) in blocks.enumerate() {
            // Column and row at the edges, and which kind it is.
            let (x, y, kind, first, steps) = match i {
                0..16 => (i % 4, i / 4, kind, first, quantizer.luma),
                _ => {
                    let (part, i) = (4 + (i - 16) / 4 * 2, i % 4);
                    (part + i % 2, part + i / 2, 2, 0, quantizer.chroma)
                }
            };
            let context = usize::from(above.has[x]) + usize::from(left.has[y]);
            let mut tokens = Tokens { it, kind: &all[kind], steps };
            let n = tokens.read(context, first, block);
            (above.has[x], left.has[y]) = (n > first, n > first);
            *extent = match n {
                4.. => Extent::All,
                2 | 3 => Extent::Three,
                _ if block[0] != 0 => Extent::First,
                _ => Extent::Empty,
            };
        }
    }
}

/// The mode of a small block (§11.2).
fn small(it: &mut Bools<'_>, p: &[u8; 9]) -> Small {
    let mut bit = |node: usize| it.bit(p[node]);
    if !bit(0) {
        return Small::Mean;
    }
    if !bit(1) {
        return Small::TrueMotion;
    }
    if !bit(2) {
        return Small::Vertical;
    }
    if !bit(3) {
        return match bit(4) {
            false => Small::Horizontal,
            true if bit(5) => Small::VerticalRight,
            true => Small::RightDown,
        };
    }
    if !bit(6) {
        return Small::LeftDown;
    }
    match bit(7) {
        false => Small::VerticalLeft,
        true if bit(8) => Small::HorizontalUp,
        true => Small::HorizontalDown,
    }
}

/// Where a block's coefficients come from.
struct Tokens<'a, 'b> {
    it: &'a mut Bools<'b>,
    kind: &'a [[[u8; 11]; 3]; 8],
    steps: Steps,
}

const BANDS: [usize; 16] = [0, 1, 2, 3, 6, 4, 5, 6, 6, 6, 6, 6, 6, 6, 6, 7];
const ZIGZAG: [usize; 16] = [0, 1, 4, 8, 5, 2, 3, 6, 9, 12, 13, 10, 7, 11, 14, 15];
/// Probabilities of the further bits of large values (§13.2).
const FURTHER: [&[u8]; 4] = [
    &[173, 148, 140],
    &[176, 155, 140, 135],
    &[180, 157, 141, 134, 130],
    &[254, 254, 243, 230, 196, 177, 153, 140, 133, 130, 129],
];

impl Tokens<'_, '_> {
    /// Reads a block from coefficient `first` on; how many there are, zeros before the last included.
    fn read(&mut self, context: usize, first: usize, block: &mut [i16; 16]) -> usize {
        let (mut n, mut context) = (first, context);
        while n < 16 {
            let mut p = &self.kind[BANDS[n]][context];
            if !self.it.bit(p[0]) {
                return n;
            }
            while !self.it.bit(p[1]) {
                n += 1;
                if n == 16 {
                    return n;
                }
                p = &self.kind[BANDS[n]][0];
            }
            let value = if self.it.bit(p[2]) { self.large(p) } else { 1 };
            context = if value == 1 { 1 } else { 2 };
            let value = if self.it.sign() { -value } else { value };
            // libwebp keeps 16 bits, of which damaged files may have more.
            block[ZIGZAG[n]] = (value * self.steps[usize::from(n > 0)]) as i16;
            n += 1;
        }
        n
    }

    /// A value of two or more.
    fn large(&mut self, p: &[u8; 11]) -> i32 {
        let it = &mut *self.it;
        if !it.bit(p[3]) {
            return match it.bit(p[4]) {
                false => 2,
                true => 3 + i32::from(it.bit(p[5])),
            };
        }
        if !it.bit(p[6]) {
            return match it.bit(p[7]) {
                false => 5 + i32::from(it.bit(159)),
                true => {
                    let high = 2 * i32::from(it.bit(165));
                    7 + high + i32::from(it.bit(145))
                }
            };
        }
        let high = usize::from(it.bit(p[8]));
        let class = 2 * high + usize::from(it.bit(p[9 + high]));
        let further =
            FURTHER[class].iter().fold(0, |value, p| value << 1 | i32::from(it.bit(*p)));
        3 + (8 << class) + further
    }
}
