//! Facsimile of groups 3 and 4 (ITU-T T.4 and T.6), with what libtiff makes of damaged codes.
//!
//! A row is a list of runs, white and black in turn. Where its codes are wrong, it ends there: what is missing is
//! white, and what is too much is cut off. The next row begins with the next code, or in group 3 behind the next
//! mark. Codes that end before the last row are refused.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "runs wrap as in libtiff; places in rows are checked"
)]

use fax::BitReader;
use fax::maps::{black, white};

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
    let n_factor = if coding == Coding::Marked2d { 2 } else { 1 };
    let mut rows = Rows::new(bytes, width, n_factor)?;
    let mut bits = Bits::new(bytes);
    for out in out.chunks_exact_mut(width.div_ceil(8).max(1)) {
        rows.begin();
        if coding != Coding::Rows {
            mark(&mut bits, &mut rows.is_marked)?;
        }
        let is_2d = coding == Coding::Marked2d && {
            bits.need(1).ok_or(SHORT)?;
            bits.take(1) == 0
        };
        let read = match is_2d {
            true => rows.read_2d(&mut bits),
            false => rows.read_1d(&mut bits),
        };
        read.map_err(|_| WRONG)?;
        rows.fill(out);
        if coding == Coding::Marked2d {
            rows.swap()?;
        }
        if coding == Coding::Rows {
            bits.n -= bits.n % 8;
        }
    }
    Ok(())
}

/// Goes behind the code before a row (T.4 §4.1.2): eleven zeros or more, and a one. Without one, libtiff reads
/// this strip and all others as if there were none.
fn mark(bits: &mut Bits<'_>, is_begun: &mut bool) -> Result<(), &'static str> {
    if !*is_begun {
        bits.need(11).ok_or(SHORT)?;
        while bits.look(11) != 0 {
            bits.take(1);
            bits.need(11).ok_or(SHORT)?;
        }
    }
    *is_begun = false;
    bits.need(8).ok_or(WRONG)?;
    while bits.look(8) == 0 {
        bits.take(8);
        bits.need(8).ok_or(WRONG)?;
    }
    while bits.take(1) == 0 {}
    Ok(())
}

/// Rows of bits, a one where a pixel is black.
pub(super) fn fax4(
    bytes: &[u8],
    width: usize,
    out: &mut [u8],
) -> Result<(), &'static str> {
    let mut rows = Rows::new(bytes, width, 2)?;
    let mut bits = Bits::new(bytes);
    let mut n_left = out.chunks_exact_mut(width.div_ceil(8).max(1)).len();
    let n_rows = n_left;
    for out in out.chunks_exact_mut(width.div_ceil(8).max(1)) {
        n_left -= 1;
        rows.begin();
        let ended = match rows.read_2d(&mut bits) {
            Err(Stop::Broken) => return Err(WRONG),
            Err(Stop::End | Stop::Code) => true,
            Ok(()) => rows.is_marked,
        };
        // The last row may be cut short, if it is not the only one.
        if ended && (n_left > 0 || n_rows == 1) {
            return Err(WRONG);
        }
        rows.fill(out);
        if !ended {
            rows.swap()?;
        }
    }
    Ok(())
}

/// Bits, the highest first. Behind the end there are zeros for a code that has begun.
#[derive(Debug, Clone, Copy)]
struct Bits<'a> {
    bytes: &'a [u8],
    word: u32,
    n: u32,
}

impl<'a> Bits<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, word: 0, n: 0 }
    }

    /// Makes so many bits be there; nothing if there is none.
    fn need(&mut self, n: u32) -> Option<()> {
        while self.n < n {
            match self.bytes.split_first() {
                Some((byte, rest)) => {
                    self.word = self.word << 8 | u32::from(*byte);
                    self.n += 8;
                    self.bytes = rest;
                }
                None if self.n == 0 => return None,
                None => {
                    self.word <<= n - self.n;
                    self.n = n;
                }
            }
        }
        Some(())
    }

    /// The next bits, and zeros behind them.
    fn look(&self, n: u32) -> u32 {
        let word = u64::from(self.word) << 32 >> self.n;
        ((word & 0xffff_ffff) >> (32 - n)) as u32
    }

    /// Takes bits that are there.
    fn take(&mut self, n: u32) -> u32 {
        let bits = self.look(n);
        self.n = self.n.saturating_sub(n);
        bits
    }
}

impl BitReader for Bits<'_> {
    type Error = ();

    fn peek(&self, bits: u8) -> Option<u16> {
        u16::try_from(self.look(bits.into())).ok()
    }

    fn consume(&mut self, bits: u8) -> Result<(), ()> {
        self.take(bits.into());
        Ok(())
    }

    fn bits_to_byte_boundary(&self) -> u8 {
        0
    }
}

/// The length of a code for a change near one above, and where it is from that (T.6, table 1).
fn vertical(code: u32) -> Option<(u32, i32)> {
    match code {
        0b100_0000.. => Some((1, 0)),
        0b011_0000.. => Some((3, 1)),
        0b010_0000.. => Some((3, -1)),
        0b000_1000.. => None,
        0b000_0110.. => Some((6, 2)),
        0b000_0100.. => Some((6, -2)),
        0b000_0011 => Some((7, 3)),
        0b000_0010 => Some((7, -3)),
        _ => None,
    }
}

/// Of a run.
#[derive(Debug, Clone, Copy)]
enum Colour {
    White,
    Black,
}

/// Rows on their way.
struct Rows {
    width: i32,
    /// The runs of this row, and room for as many as libtiff has.
    runs: Vec<u32>,
    n_runs: usize,
    /// Those of the row above.
    above: Vec<u32>,
    /// How many places of both this strip has written: libtiff also looks at those of other rows.
    n_written: [usize; 2],
    /// Where this row's last change is, and the length of a run that goes on.
    at: i32,
    run: i32,
    /// Whether a mark has begun where codes were read.
    is_marked: bool,
}

/// Why a row ends.
enum Stop {
    /// There are no more bits.
    End,
    /// A code is wrong or a mark; the rest of the row is made up.
    Code,
    /// There are more runs than libtiff has room for, or it looks at what lies behind the runs above.
    Broken,
}

impl Rows {
    fn new(bytes: &[u8], width: usize, factor: usize) -> Result<Self, &'static str> {
        let n = (width + 1).next_multiple_of(32) * factor;
        let width = i32::try_from(width).map_err(|_| WRONG)?;
        let mut above = vec![0; if bytes.is_empty() { 0 } else { n }];
        if let Some(first) = above.first_mut() {
            *first = width.cast_unsigned();
        }
        let runs = vec![0; above.len()];
        let (at, run, n_runs) = (0, 0, 0);
        let (n_written, is_marked) = ([0, 2], false);
        Ok(Self { width, runs, n_runs, above, n_written, at, run, is_marked })
    }

    fn begin(&mut self) {
        (self.at, self.run, self.n_runs) = (0, 0, 0);
    }

    /// Ends a run, `more` after what it has.
    fn push(&mut self, more: i32) -> Result<(), Stop> {
        let run = self.run.wrapping_add(more).cast_unsigned();
        *self.runs.get_mut(self.n_runs).ok_or(Stop::Broken)? = run;
        self.n_runs += 1;
        self.n_written[0] = self.n_written[0].max(self.n_runs);
        self.at = self.at.wrapping_add(more);
        self.run = 0;
        Ok(())
    }

    /// Reads a run of white or black.
    fn run(&mut self, bits: &mut Bits<'_>, colour: Colour) -> Result<(), Stop> {
        loop {
            let longest = match colour {
                Colour::White => 12,
                Colour::Black => 13,
            };
            bits.need(longest).ok_or(Stop::End)?;
            let before = *bits;
            let code = match colour {
                Colour::White => white::decode(bits),
                Colour::Black => black::decode(bits),
            };
            match code {
                Some(part @ ..64) => return self.push(part.into()),
                Some(part) => {
                    self.at = self.at.wrapping_add(part.into());
                    self.run = self.run.wrapping_add(part.into());
                }
                None => {
                    *bits = before;
                    return Err(Stop::Code);
                }
            }
        }
    }

    /// Reads a row of runs of white and black in turn (T.4 §4.1).
    fn read_1d(&mut self, bits: &mut Bits<'_>) -> Result<(), Stop> {
        let stop = self.runs_of_row(bits).err();
        if matches!(stop, Some(Stop::Code)) && bits.look(11) == 0 {
            bits.take(11);
            self.is_marked = true;
        }
        self.end(stop)
    }

    fn runs_of_row(&mut self, bits: &mut Bits<'_>) -> Result<(), Stop> {
        loop {
            self.run(bits, Colour::White)?;
            if self.at >= self.width {
                return Ok(());
            }
            self.run(bits, Colour::Black)?;
            if self.at >= self.width {
                return Ok(());
            }
            if self.runs[..self.n_runs].ends_with(&[0, 0]) {
                self.n_runs -= 2;
            }
        }
    }

    /// Reads a row coded by the one above (T.6 §2.2).
    fn read_2d(&mut self, bits: &mut Bits<'_>) -> Result<(), Stop> {
        let stop = self.changes_of_row(bits).err();
        self.end(stop)
    }

    fn changes_of_row(&mut self, bits: &mut Bits<'_>) -> Result<(), Stop> {
        let (mut b1, mut next) = (0, 0);
        self.step(&mut b1, &mut next);
        while self.at < self.width {
            if self.n_runs >= self.runs.len() || next > self.n_written[1] {
                return Err(Stop::Broken);
            }
            bits.need(7).ok_or(Stop::End)?;
            let code = bits.look(7);
            let Some((n, delta)) = vertical(code) else {
                self.other(bits, code, (&mut b1, &mut next))?;
                continue;
            };
            bits.take(n);
            self.catch_up(&mut b1, &mut next)?;
            if delta < 0 && b1 < self.at.wrapping_sub(delta) {
                return Err(Stop::Code);
            }
            self.push(b1.wrapping_sub(self.at).wrapping_add(delta))?;
            if delta < 0 {
                next = next.checked_sub(1).ok_or(Stop::Broken)?;
                let run = self.above.get(next).copied().unwrap_or(0);
                b1 = b1.wrapping_sub(run.cast_signed());
            } else {
                self.step(&mut b1, &mut next);
            }
        }
        if self.run != 0 {
            if self.run.wrapping_add(self.at) < self.width {
                // A last change is due.
                bits.need(1).ok_or(Stop::End)?;
                if bits.look(1) == 0 {
                    return Err(Stop::Code);
                }
                bits.take(1);
            }
            self.push(0)?;
        }
        Ok(())
    }

    /// Reads the rest of a code that is no change near one above.
    fn other(
        &mut self,
        bits: &mut Bits<'_>,
        code: u32,
        (b1, next): (&mut i32, &mut usize),
    ) -> Result<(), Stop> {
        match code {
            // Two runs.
            0b001_0000.. => {
                bits.take(3);
                let colours = match self.n_runs % 2 {
                    0 => [Colour::White, Colour::Black],
                    _ => [Colour::Black, Colour::White],
                };
                self.run(bits, colours[0])?;
                self.run(bits, colours[1])?;
                self.catch_up(b1, next)
            }
            // The run goes on below one above.
            0b000_1000.. => {
                bits.take(4);
                self.catch_up(b1, next)?;
                self.step(b1, next);
                self.run = self.run.wrapping_add(b1.wrapping_sub(self.at));
                self.at = *b1;
                self.step(b1, next);
                Ok(())
            }
            // An extension, or a mark.
            code => {
                bits.take(7);
                let rest = self.width.wrapping_sub(self.at).cast_unsigned();
                *self.runs.get_mut(self.n_runs).ok_or(Stop::Broken)? = rest;
                self.n_runs += 1;
                self.n_written[0] = self.n_written[0].max(self.n_runs);
                if code == 0 {
                    bits.need(4).ok_or(Stop::End)?;
                    bits.take(4);
                    self.is_marked = true;
                }
                Err(Stop::Code)
            }
        }
    }

    /// Goes to the next change above, or behind the last one.
    fn step(&self, b1: &mut i32, next: &mut usize) {
        let run = self.above.get(*next).copied().unwrap_or(0);
        *b1 = b1.wrapping_add(run.cast_signed());
        *next += 1;
    }

    /// Goes to the change above that is to the right of the last one here.
    fn catch_up(&self, b1: &mut i32, next: &mut usize) -> Result<(), Stop> {
        while self.n_runs > 0 && *b1 <= self.at && *b1 < self.width {
            if *next >= self.n_written[1] {
                return Err(Stop::Broken);
            }
            self.step(b1, next);
            self.step(b1, next);
        }
        Ok(())
    }

    /// Makes the runs as long as the row.
    fn end(&mut self, stop: Option<Stop>) -> Result<(), Stop> {
        match stop {
            Some(Stop::Broken) => Err(Stop::Broken),
            Some(Stop::Code) | None => self.make_up(),
            Some(Stop::End) => self.make_up().and(Err(Stop::End)),
        }
    }

    fn make_up(&mut self) -> Result<(), Stop> {
        if self.run != 0 {
            self.push(0)?;
        }
        if self.at == self.width {
            return Ok(());
        }
        while self.at > self.width && self.n_runs > 0 {
            self.n_runs -= 1;
            self.at = self.at.wrapping_sub(self.runs[self.n_runs].cast_signed());
        }
        if self.at < self.width {
            self.at = self.at.max(0);
            if self.n_runs % 2 == 1 {
                self.push(0)?;
            }
            self.push(self.width.wrapping_sub(self.at))?;
        } else if self.at > self.width {
            self.push(self.width)?;
            self.push(0)?;
        }
        Ok(())
    }

    /// Blackens every second run, and cuts runs off at the right edge, for the next row, too.
    fn fill(&mut self, out: &mut [u8]) {
        out.fill(0);
        if self.n_runs % 2 == 1
            && let Some(run) = self.runs.get_mut(self.n_runs)
        {
            *run = 0;
            self.n_written[0] = self.n_written[0].max(self.n_runs + 1);
        }
        let (width, mut x) = (self.width.cast_unsigned(), 0_u32);
        let n = self.n_runs.next_multiple_of(2).min(self.runs.len());
        for (i, run) in self.runs[..n].iter_mut().enumerate() {
            if x.wrapping_add(*run) > width || *run > width {
                *run = width.wrapping_sub(x);
            }
            let end = x.saturating_add(*run).min(width);
            for x in (x..end).filter(|_| i % 2 == 1) {
                if let Some(byte) = out.get_mut((x / 8) as usize) {
                    *byte |= 0x80 >> (x % 8);
                }
            }
            x = end;
        }
    }

    /// Makes this row the one above.
    fn swap(&mut self) -> Result<(), &'static str> {
        if self.n_runs < self.runs.len() {
            self.push(0).map_err(|_| WRONG)?;
        }
        std::mem::swap(&mut self.runs, &mut self.above);
        self.n_written.swap(0, 1);
        Ok(())
    }
}
