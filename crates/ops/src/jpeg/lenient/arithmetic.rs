//! Arithmetic-coded scans, sequential and progressive (T.81 Annex D, §F.2.4, §G.2; jdarith.c).
//!
//! libjpeg cannot wait for bytes here. As Pillow gives it 64 KiB at a time, a scan that does not
//! lie within what is at hand cannot be decoded. Read `smooth.rs` next.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "coefficients have 16 bits, as libjpeg keeps them"
)]

use super::markers::{Conditioning, Headers, Selected, Spread};
use super::scan::{Mcu, Pass, place_of};
use super::states::{FIXED, STATES, SWITCH};
use super::stream::{Pieces, Stop, Stream};
use crate::jpeg::block::Block;
use crate::jpeg::{damaged, unsupported};

/// Statistics of one table.
const DC_BINS: usize = 64;
const AC_BINS: usize = 256;

/// Tables of each kind.
const N_TABLES: usize = 16;

/// Where the statistics of AC tables begin, and the one that never changes.
const FIRST_AC: usize = N_TABLES * DC_BINS;
const FIXED_BIN: usize = FIRST_AC + N_TABLES * AC_BINS;

const BAD_CODE: &str = "an impossible arithmetic code";

/// The decoder of one scan.
#[derive(Debug)]
pub(super) struct Arithmetic {
    pass: Pass,
    band: [usize; 2],
    shift: u32,
    selected: Vec<Selected>,
    conditioning: Conditioning,
    bins: Vec<u8>,
    sums: [i32; 4],
    contexts: [usize; 4],
    interval: Interval,
    restart_interval: u16,
    until_restart: u16,
    /// Whether a code could not be: the rest stays as it is until the next restart.
    is_lost: bool,
}

/// The interval of the code that is being read.
#[derive(Debug, Default)]
struct Interval {
    base: i64,
    size: i64,
    /// Bits at hand behind the base, or how many are missing at the beginning.
    n_bits: i32,
}

impl Interval {
    fn new() -> Self {
        Self { base: 0, size: 0, n_bits: -16 }
    }
}

/// A magnitude that could not be.
struct Lost;

impl Arithmetic {
    pub(super) fn new(headers: &Headers, spread: Spread) -> Result<Self, Stop> {
        let scan = &headers.scan;
        let pass = Pass::of(spread, scan);
        let mut bins = vec![0; FIXED_BIN + 1];
        bins[FIXED_BIN] = FIXED;
        Ok(Self {
            pass,
            band: scan.band,
            shift: scan.now,
            selected: scan.selected.clone(),
            conditioning: headers.conditioning.clone(),
            bins,
            sums: [0; 4],
            contexts: [0; 4],
            interval: Interval::new(),
            restart_interval: headers.restart_interval,
            until_restart: headers.restart_interval,
            is_lost: false,
        })
    }

    /// Decodes an MCU.
    pub(super) fn mcu(
        &mut self,
        stream: &mut Stream<'_>,
        mcu: &mut Mcu<'_>,
    ) -> Result<(), Stop> {
        if self.restart_interval > 0 {
            if self.until_restart == 0 {
                self.restart(stream)?;
            }
            self.until_restart -= 1;
        }
        if self.is_lost {
            return Ok(());
        }
        for nth in 0..mcu.n_blocks() {
            let (place, block) = mcu.block(nth);
            let read = match self.pass {
                Pass::Whole => self.whole(stream, block, place)?,
                Pass::DcFirst => self.dc(stream, block, place)?,
                Pass::DcRefine => {
                    if self.decide(stream, FIXED_BIN)? {
                        block[0] |= 1 << self.shift;
                    }
                    Ok(())
                }
                Pass::AcFirst => self.ac(stream, block, place)?,
                Pass::AcRefine => self.ac_refine(stream, block, place)?,
            };
            if let Err(Lost) = read {
                stream.warn(BAD_CODE);
                self.is_lost = true;
                return Ok(());
            }
        }
        Ok(())
    }

    fn restart(&mut self, stream: &mut Stream<'_>) -> Result<(), Stop> {
        // Without a way to wait, here neither.
        let pieces = std::mem::replace(&mut stream.pieces, Pieces::AtHand);
        let found = stream.restart();
        stream.pieces = pieces;
        match found {
            Err(Stop::Ended) => return Err(cannot_wait(stream)),
            found => found?,
        }
        let has_dc = matches!(self.pass, Pass::Whole | Pass::DcFirst);
        let has_ac = matches!(self.pass, Pass::Whole | Pass::AcFirst | Pass::AcRefine);
        for selected in &self.selected {
            if has_dc {
                self.bins[selected.dc_table * DC_BINS..][..DC_BINS].fill(0);
            }
            if has_ac {
                let first = FIRST_AC + selected.ac_table * AC_BINS;
                self.bins[first..][..AC_BINS].fill(0);
            }
        }
        if has_dc {
            (self.sums, self.contexts) = ([0; 4], [0; 4]);
        }
        self.interval = Interval::new();
        self.is_lost = false;
        self.until_restart = self.restart_interval;
        Ok(())
    }

    fn whole(
        &mut self,
        stream: &mut Stream<'_>,
        block: &mut Block,
        place: usize,
    ) -> Result<Result<(), Lost>, Stop> {
        let dc = self.dc(stream, block, place)?;
        if dc.is_err() {
            return Ok(dc);
        }
        self.ac(stream, block, place)
    }

    /// T.81 §F.2.4.1.
    fn dc(
        &mut self,
        stream: &mut Stream<'_>,
        block: &mut Block,
        place: usize,
    ) -> Result<Result<(), Lost>, Stop> {
        let table = self.selected[place].dc_table;
        let first = table * DC_BINS;
        let bin = first + self.contexts[place];
        if self.decide(stream, bin)? {
            let is_negative = self.decide(stream, bin + 1)?;
            let mut bin = bin + 2 + usize::from(is_negative);
            let mut magnitude = i32::from(self.decide(stream, bin)?);
            if magnitude != 0 {
                bin = first + 20;
                while self.decide(stream, bin)? {
                    magnitude <<= 1;
                    if magnitude == 0x8000 {
                        return Ok(Err(Lost));
                    }
                    bin += 1;
                }
            }
            let limit = |bits: u8| (1_i32 << bits) >> 1;
            let large = 4 * usize::from(is_negative);
            self.contexts[place] = if magnitude < limit(self.conditioning.dc_low[table]) {
                0
            } else if magnitude > limit(self.conditioning.dc_high[table]) {
                12 + large
            } else {
                4 + large
            };
            let value = self.value(stream, (magnitude, is_negative), bin + 14)?;
            self.sums[place] = (self.sums[place] + value) & 0xffff;
        } else {
            self.contexts[place] = 0;
        }
        block[0] = (self.sums[place] << self.dc_shift()) as i16;
        Ok(Ok(()))
    }

    fn dc_shift(&self) -> u32 {
        if self.pass == Pass::Whole { 0 } else { self.shift }
    }

    /// T.81 §F.2.4.2.
    fn ac(
        &mut self,
        stream: &mut Stream<'_>,
        block: &mut Block,
        place: usize,
    ) -> Result<Result<(), Lost>, Stop> {
        let table = self.selected[place].ac_table;
        let first = FIRST_AC + table * AC_BINS;
        let [mut k, last] = if self.pass == Pass::Whole { [1, 63] } else { self.band };
        while k <= last {
            let mut bin = first + 3 * (k - 1);
            if self.decide(stream, bin)? {
                break;
            }
            while !self.decide(stream, bin + 1)? {
                (bin, k) = (bin + 3, k + 1);
                if k > last {
                    return Ok(Err(Lost));
                }
            }
            let is_negative = self.decide(stream, FIXED_BIN)?;
            bin += 2;
            let mut magnitude = i32::from(self.decide(stream, bin)?);
            if magnitude != 0 && self.decide(stream, bin)? {
                magnitude = 2;
                let is_low = k <= usize::from(self.conditioning.ac[table]);
                bin = first + if is_low { 189 } else { 217 };
                while self.decide(stream, bin)? {
                    magnitude <<= 1;
                    if magnitude == 0x8000 {
                        return Ok(Err(Lost));
                    }
                    bin += 1;
                }
            }
            let value = self.value(stream, (magnitude, is_negative), bin + 14)?;
            block[place_of(k)] = (value << self.dc_shift()) as i16;
            k += 1;
        }
        Ok(Ok(()))
    }

    /// T.81 figure F.24.
    fn value(
        &mut self,
        stream: &mut Stream<'_>,
        (mut magnitude, is_negative): (i32, bool),
        bin: usize,
    ) -> Result<i32, Stop> {
        let mut value = magnitude;
        magnitude >>= 1;
        while magnitude != 0 {
            if self.decide(stream, bin)? {
                value |= magnitude;
            }
            magnitude >>= 1;
        }
        value += 1;
        Ok(if is_negative { -value } else { value })
    }

    /// T.81 §G.1.3.3.
    fn ac_refine(
        &mut self,
        stream: &mut Stream<'_>,
        block: &mut Block,
        place: usize,
    ) -> Result<Result<(), Lost>, Stop> {
        let first = FIRST_AC + self.selected[place].ac_table * AC_BINS;
        let one = 1_i16 << self.shift;
        let [mut k, last] = self.band;
        let ended = (1..=last).rev().find(|&k| block[place_of(k)] != 0).unwrap_or(0);
        while k <= last {
            let mut bin = first + 3 * (k - 1);
            if k > ended && self.decide(stream, bin)? {
                break;
            }
            loop {
                let coefficient = &mut block[place_of(k)];
                if *coefficient != 0 {
                    if self.decide(stream, bin + 2)? {
                        let step = if *coefficient < 0 { -one } else { one };
                        *coefficient = coefficient.wrapping_add(step);
                    }
                    break;
                }
                if self.decide(stream, bin + 1)? {
                    let is_negative = self.decide(stream, FIXED_BIN)?;
                    *coefficient = if is_negative { -one } else { one };
                    break;
                }
                (bin, k) = (bin + 3, k + 1);
                if k > last {
                    return Ok(Err(Lost));
                }
            }
            k += 1;
        }
        Ok(Ok(()))
    }

    /// One decision (T.81 §D.2).
    fn decide(&mut self, stream: &mut Stream<'_>, bin: usize) -> Result<bool, Stop> {
        let own = &mut self.interval;
        while own.size < 0x8000 {
            own.n_bits -= 1;
            if own.n_bits < 0 {
                own.base = own.base.wrapping_shl(8) | i64::from(byte(stream)?);
                own.n_bits += 8;
                if own.n_bits < 0 {
                    own.n_bits += 1;
                    if own.n_bits == 0 {
                        own.size = 0x8000;
                    }
                }
            }
            own.size <<= 1;
        }
        let number = self.bins[bin];
        let state = STATES[usize::from(number & !SWITCH)];
        let less_likely = i64::from(state.less_likely);
        own.size -= less_likely;
        let limit = own.size << own.n_bits;
        let likely = number & SWITCH;
        // The smaller part belongs to the less likely decision, whichever part that is.
        let is_exchanged = own.size < less_likely;
        let is_upper = own.base >= limit;
        if is_upper {
            own.base -= limit;
            own.size = less_likely;
        } else if own.size >= 0x8000 {
            return Ok(likely != 0);
        }
        if is_upper == is_exchanged {
            self.bins[bin] = likely ^ state.after_more;
            Ok(likely != 0)
        } else {
            self.bins[bin] = likely ^ (state.after_less | state.switch);
            Ok(likely == 0)
        }
    }
}

/// The next byte; 0 behind a marker.
fn byte(stream: &mut Stream<'_>) -> Result<u8, Stop> {
    if stream.marker.is_some() {
        return Ok(0);
    }
    let mut next = || {
        if !stream.has(stream.at) {
            return Err(cannot_wait(stream));
        }
        stream.at += 1;
        Ok(stream.get(stream.at - 1))
    };
    let mut byte = next()?;
    if byte != 0xff {
        return Ok(byte);
    }
    while byte == 0xff {
        byte = next()?;
    }
    if byte == 0 {
        return Ok(0xff);
    }
    stream.marker = Some(byte);
    Ok(0)
}

fn cannot_wait(stream: &Stream<'_>) -> Stop {
    if stream.is_at_end() {
        damaged("it ends in the middle of its entropy-coded data").into()
    } else {
        unsupported("long arithmetic-coded").into()
    }
}
