//! Huffman-coded scans, sequential (jdhuff.c) and progressive (jdphuff.c).
//!
//! An MCU that breaks off with what is at hand is decoded again later, from its beginning. What
//! a first try left in the blocks stays there, as in libjpeg. Read `arithmetic.rs` next.
#![allow(
    clippy::cast_possible_truncation,
    reason = "coefficients have 16 bits, as libjpeg keeps them"
)]

use super::bits::{Ahead, Buffer, Careful, ReadBits, Table};
use super::markers::{Headers, ScanHeader, Spread};
use super::scan::{Mcu, Pass, place_of};
use super::stream::{Stop, Stream, fault};
use crate::jpeg::block::Block;
use crate::jpeg::file::code::{Class, Code};

/// So many bytes must be at hand for each block of an MCU that is read without looking for an end.
const BYTES_PER_BLOCK: usize = 512;

/// The decoder of one scan.
#[derive(Debug)]
pub(super) struct Huffman {
    pass: Pass,
    band: [usize; 2],
    /// The bit that is sent.
    shift: u32,
    /// By place in the scan.
    dc: Vec<Option<Table>>,
    ac: Vec<Option<Table>>,
    buffer: Buffer,
    sums: [i32; 4],
    /// Blocks from this one on that have nothing more to come in this scan.
    n_ended: u32,
    restart_interval: u16,
    until_restart: u16,
    /// Whether the data of this interval ended too soon: what is left of it stays as it is.
    pub(super) ran_out: bool,
}

impl Huffman {
    pub(super) fn new(headers: &Headers, spread: Spread) -> Result<Self, Stop> {
        let scan = &headers.scan;
        let pass = Pass::of(spread, scan);
        let [mut dc, mut ac] = [Vec::new(), Vec::new()];
        for selected in &scan.selected {
            let has_dc = matches!(pass, Pass::Whole | Pass::DcFirst);
            let code = code(&headers.dc, Class::Dc, (selected.dc_table, pass));
            dc.push(has_dc.then(|| Table::of_dc(code.as_ref())).transpose()?);
            let has_ac = matches!(pass, Pass::Whole | Pass::AcFirst | Pass::AcRefine);
            let code = self::code(&headers.ac, Class::Ac, (selected.ac_table, pass));
            ac.push(has_ac.then(|| Table::new(code.as_ref())).transpose()?);
        }
        Ok(Self {
            pass,
            band: scan.band,
            shift: scan.now,
            dc,
            ac,
            buffer: Buffer::default(),
            sums: [0; 4],
            n_ended: 0,
            restart_interval: headers.restart_interval,
            until_restart: headers.restart_interval,
            ran_out: false,
        })
    }

    /// Whether nothing of the scan changes any more.
    pub(super) fn is_over(&self) -> bool {
        self.ran_out && self.restart_interval == 0
    }

    /// Decodes an MCU. When it is [`Stop::Ended`], it may be tried again.
    pub(super) fn mcu(
        &mut self,
        stream: &mut Stream<'_>,
        mcu: &mut Mcu<'_>,
    ) -> Result<(), Stop> {
        if self.restart_interval > 0 && self.until_restart == 0 {
            self.restart(stream)?;
        }
        if self.pass == Pass::Whole {
            self.whole(stream, mcu)?;
        } else if !self.ran_out || self.pass == Pass::DcRefine {
            self.progressive(stream, mcu)?;
        }
        self.until_restart = self.until_restart.saturating_sub(1);
        Ok(())
    }

    fn restart(&mut self, stream: &mut Stream<'_>) -> Result<(), Stop> {
        self.buffer.clear();
        stream.restart()?;
        self.sums = [0; 4];
        self.n_ended = 0;
        self.until_restart = self.restart_interval;
        if stream.marker.is_none() {
            self.ran_out = false;
        }
        Ok(())
    }

    fn whole(&mut self, stream: &mut Stream<'_>, mcu: &mut Mcu<'_>) -> Result<(), Stop> {
        if self.ran_out {
            return Ok(());
        }
        let is_far_from_end = self.restart_interval == 0
            && stream.n_at_hand() >= BYTES_PER_BLOCK * mcu.n_blocks()
            && stream.marker.is_none();
        if is_far_from_end {
            let mut bits = Ahead::new(stream, self.buffer);
            let sums = self.whole_blocks(&mut bits, mcu)?;
            if let Some((at, buffer)) = bits.done() {
                (stream.at, self.buffer, self.sums) = (at, buffer, sums);
                return Ok(());
            }
        }
        let mut bits = Careful::new(stream, self.buffer);
        let sums = self.whole_blocks(&mut bits, mcu)?;
        self.ran_out = bits.ran_out;
        (self.buffer, self.sums) = (bits.done(), sums);
        Ok(())
    }

    fn whole_blocks(
        &self,
        bits: &mut impl ReadBits,
        mcu: &mut Mcu<'_>,
    ) -> Result<[i32; 4], Stop> {
        let mut sums = self.sums;
        for nth in 0..mcu.n_blocks() {
            let (place, block) = mcu.block(nth);
            let [dc, ac] = [table(&self.dc, place)?, table(&self.ac, place)?];
            let size = bits.symbol(dc)?;
            sums[place] = sums[place].wrapping_add(bits.value(size)?);
            block[0] = sums[place] as i16;
            let mut k = 1;
            while k < 64 {
                let symbol = bits.symbol(ac)?;
                let (run, size) = (usize::from(symbol >> 4), symbol & 15);
                if size == 0 && run < 15 {
                    break;
                }
                k += run;
                if size > 0 {
                    block[place_of(k)] = bits.value(size)? as i16;
                }
                k += 1;
            }
        }
        Ok(sums)
    }

    fn progressive(
        &mut self,
        stream: &mut Stream<'_>,
        mcu: &mut Mcu<'_>,
    ) -> Result<(), Stop> {
        let mut bits = Careful::new(stream, self.buffer);
        let (mut sums, mut n_ended) = (self.sums, self.n_ended);
        for nth in 0..mcu.n_blocks() {
            let (place, block) = mcu.block(nth);
            match self.pass {
                Pass::Whole => {}
                Pass::DcFirst => {
                    let size = bits.symbol(table(&self.dc, place)?)?;
                    let sum = sums[place].checked_add(bits.value(size)?);
                    sums[place] = sum.ok_or_else(|| fault("a DC beyond 32 bits"))?;
                    block[0] = (sums[place] << self.shift) as i16;
                }
                Pass::DcRefine => {
                    if bits.bit()? {
                        block[0] |= 1 << self.shift;
                    }
                }
                Pass::AcFirst => n_ended = self.ac_first(&mut bits, block, place)?,
                Pass::AcRefine => {
                    let before = *block;
                    let refined = self.ac_refine(&mut bits, block, place);
                    if refined.is_err() {
                        forget_new(block, &before);
                    }
                    n_ended = refined?;
                }
            }
        }
        self.ran_out |= bits.ran_out;
        self.buffer = bits.done();
        (self.sums, self.n_ended) = (sums, n_ended);
        Ok(())
    }

    /// T.81 §G.1.2.2; how many blocks after this one have ended.
    fn ac_first(
        &self,
        bits: &mut Careful<'_, '_>,
        block: &mut Block,
        place: usize,
    ) -> Result<u32, Stop> {
        if self.n_ended > 0 {
            return Ok(self.n_ended - 1);
        }
        let table = table(&self.ac, place)?;
        let [mut k, last] = self.band;
        while k <= last {
            let symbol = bits.symbol(table)?;
            let (run, size) = (symbol >> 4, symbol & 15);
            if size == 0 && run < 15 {
                return Ok(end_run(bits, run)? - 1);
            }
            k += usize::from(run);
            if size > 0 {
                block[place_of(k)] = (bits.value(size)? << self.shift) as i16;
            }
            k += 1;
        }
        Ok(0)
    }

    /// T.81 §G.1.2.3; how many blocks after this one have ended.
    fn ac_refine(
        &self,
        bits: &mut Careful<'_, '_>,
        block: &mut Block,
        place: usize,
    ) -> Result<u32, Stop> {
        let table = table(&self.ac, place)?;
        let [mut k, last] = self.band;
        let mut n_ended = self.n_ended;
        while n_ended == 0 && k <= last {
            let symbol = bits.symbol(table)?;
            let (mut run, size) = (symbol >> 4, symbol & 15);
            if size == 0 && run < 15 {
                n_ended = end_run(bits, run)?;
                break;
            }
            if size > 1 {
                bits.warn("a Huffman code that is not in its table");
            }
            let is_positive = size > 0 && bits.bit()?;
            while k <= last {
                let coefficient = &mut block[place_of(k)];
                if *coefficient != 0 {
                    self.refine(bits, coefficient)?;
                } else if run == 0 {
                    break;
                } else {
                    run -= 1;
                }
                k += 1;
            }
            if size > 0 {
                let one = 1 << self.shift;
                block[place_of(k)] = if is_positive { one } else { -one };
            }
            k += 1;
        }
        if n_ended == 0 {
            return Ok(0);
        }
        for k in k..=last {
            let coefficient = &mut block[place_of(k)];
            if *coefficient != 0 {
                self.refine(bits, coefficient)?;
            }
        }
        Ok(n_ended - 1)
    }

    /// One more bit of a coefficient that is not zero.
    fn refine(
        &self,
        bits: &mut Careful<'_, '_>,
        coefficient: &mut i16,
    ) -> Result<(), Stop> {
        let one = 1 << self.shift;
        if bits.bit()? && *coefficient & one == 0 {
            let step = if *coefficient >= 0 { one } else { -one };
            *coefficient = coefficient.wrapping_add(step);
        }
        Ok(())
    }
}

/// Blocks that end here, this one included, by the symbol's high half.
fn end_run(bits: &mut Careful<'_, '_>, run: u8) -> Result<u32, Stop> {
    let more = if run == 0 { 0 } else { bits.take(run.into())? };
    Ok((1 << run) + more.cast_unsigned())
}

/// Coefficients that became other than zero in an MCU that is read again later do so then.
fn forget_new(block: &mut Block, before: &Block) {
    for (now, &before) in block.iter_mut().zip(before) {
        if before == 0 {
            *now = 0;
        }
    }
}

fn table(tables: &[Option<Table>], place: usize) -> Result<&Table, Stop> {
    let table = tables.get(place).and_then(Option::as_ref);
    table.ok_or_else(|| fault("a Huffman table is not defined"))
}

/// The code in `slot`. A sequential file that brings none means the standard one.
fn code(
    codes: &[Option<Code>; 4],
    class: Class,
    (slot, pass): (usize, Pass),
) -> Option<Code> {
    let own = codes.get(slot)?.clone();
    let has_standard = pass == Pass::Whole && slot < 2;
    own.or_else(|| has_standard.then(|| Code::standard(class, slot)))
}

/// What libjpeg demands of a progressive scan (`start_pass_phuff_decoder`).
pub(super) fn check_progressive(scan: &ScanHeader) -> Result<(), Stop> {
    let [first, last] = scan.band;
    let is_band = match first {
        0 => last == 0,
        _ => first <= last && last < 64 && scan.selected.len() == 1,
    };
    let is_next_bit = scan.before == 0 || scan.now + 1 == scan.before;
    if !is_band || !is_next_bit || scan.now > 13 {
        return Err(fault("a scan that does not follow from those before it"));
    }
    Ok(())
}
