//! Facsimile of groups 3 and 4 (ITU-T T.4 and T.6), strictly: what libtiff makes of damaged codes
//! depends on the codes, so they are refused.

use std::convert::Infallible;

use fax::maps::{Mode, black, mode, white};
use fax::{BitReader, ByteReader};

use super::directory::{Directory, SHORT, tag, unsupported};
use crate::error::SampleFault;

const WRONG: &str = "its fax codes are wrong";

/// How rows of group 3 follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    /// Each begins with a byte (TIFF 6.0 §10).
    Rows,
    /// A code precedes each row.
    Marked,
    /// The same, with a bit for whether the row is coded by the one above.
    Marked2d,
}

impl Coding {
    pub(super) fn of(directory: &Directory<'_>) -> Result<Self, SampleFault> {
        if directory.is_strange(tag::FAX_OPTIONS) {
            return Err(unsupported("unusually tagged"));
        }
        // Fill bits before the code, if any, are skipped whether they were announced or not.
        match directory.one(tag::FAX_OPTIONS).unwrap_or(0) & 3 {
            0 => Ok(Self::Marked),
            1 => Ok(Self::Marked2d),
            _ => Err(unsupported("uncompressed fax-compressed")),
        }
    }
}

/// Rows of bits as [`fax4`] gives them.
pub(super) fn fax3(
    bytes: &[u8],
    width: usize,
    coding: Coding,
    out: &mut [u8],
) -> Result<(), &'static str> {
    let width = u32::try_from(width).map_err(|_| WRONG)?;
    let padded = bytes.iter().copied().chain([0; 2]).map(Ok::<u8, Infallible>);
    let mut bits = ByteReader::new(padded).map_err(|_| WRONG)?;
    let (mut above, mut edges) = (Vec::new(), Vec::new());
    out.fill(0);
    for out in out.chunks_exact_mut(width.div_ceil(8).max(1) as usize) {
        let mut is_2d = false;
        if coding != Coding::Rows {
            end_of_line(&mut bits)?;
        }
        if coding == Coding::Marked2d {
            is_2d = bits.peek(1).ok_or(SHORT)? == 0;
            skip(&mut bits, 1)?;
        }
        let row = Row { above: &above, edges: &mut edges, width };
        match is_2d {
            true => row.read(&mut bits)?,
            false => row.read_runs(&mut bits)?,
        }
        if coding == Coding::Rows {
            let n = bits.bits_to_byte_boundary();
            skip(&mut bits, n)?;
        }
        fill_black(&edges, out);
        std::mem::swap(&mut above, &mut edges);
        edges.clear();
    }
    Ok(())
}

/// The code before a row (T.4 §4.1.2): eleven zeros or more, and a one.
fn end_of_line(bits: &mut impl BitReader) -> Result<(), &'static str> {
    if bits.peek(11).ok_or(SHORT)? != 0 {
        return Err(WRONG);
    }
    while bits.peek(1).ok_or(SHORT)? == 0 {
        skip(bits, 1)?;
    }
    skip(bits, 1)
}

fn skip(bits: &mut impl BitReader, n: u8) -> Result<(), &'static str> {
    bits.consume(n).map_err(|_| SHORT)
}

/// Rows of bits, a one where a pixel is black.
pub(super) fn fax4(
    bytes: &[u8],
    width: usize,
    out: &mut [u8],
) -> Result<(), &'static str> {
    let width = u32::try_from(width).map_err(|_| WRONG)?;
    // Codes may end with the strip; a code is looked up by more bits than it has.
    let padded = bytes.iter().copied().chain([0; 2]).map(Ok::<u8, Infallible>);
    let mut bits = ByteReader::new(padded).map_err(|_| WRONG)?;
    let (mut above, mut row) = (Vec::new(), Vec::new());
    out.fill(0);
    for out in out.chunks_exact_mut(width.div_ceil(8).max(1) as usize) {
        Row { above: &above, edges: &mut row, width }.read(&mut bits)?;
        fill_black(&row, out);
        std::mem::swap(&mut above, &mut row);
        row.clear();
    }
    Ok(())
}

/// Every second stretch between `edges` is black; they rise, and end with the row.
fn fill_black(edges: &[u32], out: &mut [u8]) {
    for stretch in edges.as_chunks::<2>().0 {
        for x in stretch[0]..stretch[1] {
            if let Some(byte) = out.get_mut((x / 8) as usize) {
                *byte |= 0x80 >> (x % 8);
            }
        }
    }
}

/// A row on its way.
struct Row<'a> {
    /// Where colours change in the row above, the first time to black.
    above: &'a [u32],
    /// And in this one, as far as it is read.
    edges: &'a mut Vec<u32>,
    width: u32,
}

impl Row<'_> {
    /// Reads a whole row (T.6 §2.2).
    fn read(mut self, bits: &mut impl BitReader) -> Result<(), &'static str> {
        // The last change in this row, and the first one above that is to its right.
        let (mut at, mut i) = (0, 0);
        let mut is_first = true;
        while at < self.width {
            if !is_first {
                let right = self.above.get(i..).unwrap_or_default();
                let n_left = right.iter().take_while(|edge| **edge <= at).count();
                i = i.saturating_add(n_left);
            }
            is_first = false;
            // The first of them that changes to the other colour, and the next.
            let is_black = self.edges.len() % 2;
            let b1 = i.saturating_add((i % 2) ^ is_black);
            let edge = |i: usize| self.above.get(i).copied().unwrap_or(self.width);
            match mode::decode(bits).ok_or(SHORT)? {
                Mode::Pass => at = edge(b1.saturating_add(1)),
                Mode::Vertical(delta) => {
                    let change =
                        edge(b1).checked_add_signed(delta.into()).ok_or(WRONG)?;
                    at = self.change(at, change)?;
                }
                Mode::Horizontal => {
                    for i in 0..2 {
                        let run = match (i ^ is_black) & 1 {
                            0 => run(|| white::decode(bits))?,
                            _ => run(|| black::decode(bits))?,
                        };
                        let change = at.checked_add(run).ok_or(WRONG)?;
                        at = self.change(at, change)?;
                    }
                }
                Mode::Extension | Mode::EOF => return Err(WRONG),
            }
        }
        if self.edges.len() % 2 == 1 && self.edges.last() != Some(&self.width) {
            self.edges.push(self.width);
        }
        Ok(())
    }

    /// Reads a whole row of runs of white and black in turn (T.4 §4.1).
    fn read_runs(mut self, bits: &mut impl BitReader) -> Result<(), &'static str> {
        let mut at = 0;
        while at < self.width {
            let run = match self.edges.len() % 2 {
                0 => run(|| white::decode(bits))?,
                _ => run(|| black::decode(bits))?,
            };
            let change = at.checked_add(run).ok_or(WRONG)?;
            // As many pairs of no pixels as a file likes would cost memory.
            if self.edges.len() / 2 > self.width as usize {
                return Err(WRONG);
            }
            at = self.change(at, change)?;
        }
        Ok(())
    }

    /// Changes the colour.
    fn change(&mut self, before: u32, at: u32) -> Result<u32, &'static str> {
        if at < before || at > self.width {
            return Err(WRONG);
        }
        self.edges.push(at);
        Ok(at)
    }
}

/// The length of a run (T.4 §4.1): make-up codes, and one below 64.
fn run(mut code: impl FnMut() -> Option<u16>) -> Result<u32, &'static str> {
    let mut sum = 0_u32;
    loop {
        let part = u32::from(code().ok_or(WRONG)?);
        sum = sum.checked_add(part).ok_or(WRONG)?;
        if part < 64 {
            return Ok(sum);
        }
    }
}
