//! Facsimile of group 4 (ITU-T T.6), strictly: what libtiff makes of damaged codes depends on the codes, so
//! they are refused.

use std::convert::Infallible;

use fax::maps::{Mode, black, mode, white};
use fax::{BitReader, ByteReader};

use super::directory::SHORT;

const WRONG: &str = "its fax codes are wrong";

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
