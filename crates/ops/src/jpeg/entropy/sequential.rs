//! Entropy decoding of sequential scans: bits become quantised coefficients (T.81 §F.2.2).
//!
//! This is the hot loop of the product: on photographs seven tenths of a JPEG decoder's time
//! goes here. It is a chain, because where a symbol begins depends on the length of the one
//! before. [`run_two`] therefore interleaves two MCU rows and hides the waiting of each
//! behind the other; [`run_one`] is the same for one. Both are safe code. What a step costs
//! is kept low by
//!
//! * one number for two counts: [`Progress`] holds the bits taken and the place in the block;
//! * one test for all that is not an ordinary coefficient: end of block, a long code, and a
//!   run that leads out of the block all lie at or beyond [`END`];
//! * storing before testing: a block is written through a window as long as a place can
//!   be large, and what is written behind the block is zeroed when the next one begins;
//! * looking at the data once per four symbols (`ENTRY_BITS`), at the end of the data once
//!   per MCU (`ScanData` is padded for it).
//!
//! Coefficients go to their natural places (row by row). Read `entry_points.rs` next.
#![allow(
    clippy::cast_possible_truncation,
    reason = "counts and values are kept in as many bits as they need; the rest is cut off on purpose"
)]

use super::bits::{Bits, Restart};
use super::lookup::{Entry, LOOKUP_BITS, Lookup};
use crate::error::SampleFault;
use crate::jpeg::block::RowBlocks;
use crate::jpeg::file::frame::MAX_MCU_BLOCKS;
use crate::jpeg::zigzag::AFTER;
use crate::jpeg::{Broken, damaged};
use crate::kernels::{Level, avx2_kernel};

#[cfg(target_arch = "x86_64")]
mod bmi;

/// Bytes behind the last MCU that are let pass: libjpeg's bit buffer swallows as many
/// without a word.
const STRAY_BYTES: u64 = 7;

/// A block being decoded: bits taken since the last look at the data in the low byte, the
/// number of the next coefficient above it.
type Progress = u32;

/// From here on a block is at its end, or the symbol is a long one.
const END: Progress = 64 << 8;

const FIRST_LONG: Progress = Entry::LONG_ADVANCE << 8;

/// Ends of a block: its last coefficient, or an end-of-block symbol after 1 to 63.
const FULL: u32 = 64;
const FIRST_ENDED: u32 = Entry::END_OF_BLOCK + 1;
const LAST_ENDED: u32 = Entry::END_OF_BLOCK + 63;

/// The codes of one block of an MCU, and the component whose DC it continues.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockCodes<'a> {
    pub(crate) dc: &'a Lookup,
    pub(crate) ac: &'a Lookup,
    pub(crate) component: usize,
}

/// What all lanes of a scan share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scan<'a> {
    /// Unstuffed data with its padding.
    pub(crate) padded: &'a [u8],
    /// The codes of an MCU's blocks, at most [`MAX_MCU_BLOCKS`].
    pub(crate) blocks: &'a [BlockCodes<'a>],
    /// MCUs between restarts; 0: none.
    pub(crate) restart_interval: u32,
    /// Where restart markers were.
    pub(crate) restarts: &'a [Restart],
}

/// A place between two MCUs from where decoding can go on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EntryPoint {
    /// Bit of the unstuffed data.
    pub(crate) position: u64,
    /// Sum of the DC differences so far, by component.
    pub(crate) dc: [i32; 4],
}

/// One row of MCUs being decoded.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    bits: Bits,
    progress: Progress,
    dc: [i32; 4],
    /// The first bit that is not this lane's.
    end: u64,
    /// The block being decoded: its place in the MCU, and in `row`.
    in_mcu: usize,
    in_row: usize,
    /// MCUs of this run that have not ended.
    mcus_left: usize,
    /// MCUs until the next restart; 0: it is due, or there is none.
    until_restart: u32,
    /// The next restart marker's place among those of the data, and the number it must have.
    next_restart: usize,
    restart_number: u8,
    pub(crate) row: RowBlocks,
}

impl Lane {
    /// Goes to `from`, MCU number `mcu` of the scan, whose data end before bit `end`.
    pub(crate) fn enter(
        &mut self,
        scan: &Scan<'_>,
        from: EntryPoint,
        mcu: u64,
        end: u64,
    ) {
        self.bits = Bits::new(scan.padded, from.position);
        self.dc = from.dc;
        self.end = end;
        self.next_restart = 0;
        let interval = u64::from(scan.restart_interval);
        self.restart_number = (mcu.checked_div(interval).unwrap_or(0) & 7) as u8;
        let done = mcu.checked_rem(interval).unwrap_or(0);
        self.until_restart = u32::try_from(interval - done).unwrap_or(0);
    }

    /// Leaves out `n` restart markers of the data: this lane's lie behind them.
    pub(crate) fn pass_restarts(&mut self, n: usize) {
        self.next_restart = n;
    }

    /// Whether there was a restart marker where none belongs.
    pub(crate) fn has_stray_restart(&self, scan: &Scan<'_>) -> bool {
        let next = scan.restarts.get(self.next_restart);
        next.is_some_and(|next| (next.at as u64) < self.bits.position().div_ceil(8))
    }

    /// Whether the last MCU is where the data end, or nearly.
    pub(crate) fn check_end(&self, scan: &Scan<'_>) -> Result<(), SampleFault> {
        let bytes_taken = self.bits.position().div_ceil(8);
        if (self.end / 8).saturating_sub(bytes_taken) > STRAY_BYTES {
            return Err(damaged("stray bytes behind its last block"));
        }
        if self.has_stray_restart(scan) {
            return Err(damaged("a restart marker where none belongs"));
        }
        Ok(())
    }

    /// Begins a new row of blocks, of at most `n_mcus` MCUs.
    pub(crate) fn begin_row(&mut self, scan: &Scan<'_>, n_mcus: usize) {
        self.row.reserve(n_mcus * scan.blocks.len());
        self.in_row = 0;
    }

    /// Where the next MCU begins; takes a restart that is due before it.
    pub(crate) fn entry_point(&mut self, scan: &Scan<'_>) -> Result<EntryPoint, Broken> {
        if scan.restart_interval > 0 && self.until_restart == 0 {
            self.restart(scan)?;
        }
        Ok(EntryPoint { position: self.bits.position(), dc: self.dc })
    }

    /// Sets out for the next `n_mcus` MCUs, at least 1.
    pub(crate) fn begin(&mut self, scan: &Scan<'_>, n_mcus: usize) -> Result<(), Broken> {
        self.entry_point(scan)?;
        self.mcus_left = n_mcus;
        self.in_mcu = 0;
        self.begin_block(scan)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.mcus_left == 0
    }

    /// Where the last MCU ended.
    pub(crate) fn place(&self) -> EntryPoint {
        EntryPoint { position: self.bits.position(), dc: self.dc }
    }

    /// Goes on behind a restart marker (T.81 §F.2.1.3.1).
    #[cold]
    fn restart(&mut self, scan: &Scan<'_>) -> Result<(), Broken> {
        let at = self.bits.position().div_ceil(8);
        let found = scan.restarts.get(self.next_restart).ok_or(Broken)?;
        if found.at as u64 != at || found.number != self.restart_number {
            return Err(Broken);
        }
        self.next_restart += 1;
        self.restart_number = (self.restart_number + 1) & 7;
        self.until_restart = scan.restart_interval;
        self.dc = [0; 4];
        if at * 8 > self.end {
            return Err(Broken);
        }
        self.bits = Bits::new(scan.padded, at * 8);
        Ok(())
    }

    #[inline(always)]
    fn begin_block(&mut self, scan: &Scan<'_>) -> Result<(), Broken> {
        let codes = &scan.blocks[self.in_mcu];
        self.bits = self.bits.refill(scan.padded);
        let next = self.bits.next;
        let mut entry = codes.dc.entries[(next >> (64 - LOOKUP_BITS)) as usize];
        if entry == Entry::LONG {
            entry = codes.dc.long(next).ok_or(Broken)?;
        }
        let difference = if entry.has_value() { entry.value(next) } else { 0 };
        self.bits.next <<= entry.n_bits() & 63;
        self.progress = entry.step();
        let sum = &mut self.dc[codes.component & 3];
        *sum = sum.wrapping_add(i32::from(difference));
        let dc = *sum as i16;
        let block = self.row.block_mut(self.in_row);
        *block = [0; 64];
        block[0] = dc;
        Ok(())
    }

    /// Takes the bits counted in `progress` off those that are valid.
    #[inline(always)]
    fn settle(&mut self) {
        self.bits.n_valid -= self.progress & 0xff;
        self.progress &= !0xff;
    }

    /// Handles whatever led to [`END`]: a long code, or the end of the block and the
    /// beginning of the next.
    #[inline(always)]
    fn turn(&mut self, scan: &Scan<'_>) -> Result<(), Broken> {
        self.settle();
        if self.progress >= FIRST_LONG {
            self.long_symbol(scan)?;
            if self.progress < END {
                return Ok(());
            }
        }
        match self.progress >> 8 {
            FULL | FIRST_ENDED..=LAST_ENDED => {}
            _ => return Err(Broken),
        }
        self.in_row += 1;
        self.in_mcu += 1;
        if self.in_mcu == scan.blocks.len() {
            self.in_mcu = 0;
            self.end_mcu(scan)?;
            if self.mcus_left == 0 {
                return Ok(());
            }
        }
        self.begin_block(scan)
    }

    #[inline(always)]
    fn end_mcu(&mut self, scan: &Scan<'_>) -> Result<(), Broken> {
        if self.bits.position() > self.end {
            return Err(Broken);
        }
        self.mcus_left -= 1;
        if scan.restart_interval > 0 {
            self.until_restart -= 1;
            if self.until_restart == 0 && self.mcus_left > 0 {
                self.restart(scan)?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn long_symbol(&mut self, scan: &Scan<'_>) -> Result<(), Broken> {
        self.bits = self.bits.refill(scan.padded);
        let next = self.bits.next;
        let entry = scan.blocks[self.in_mcu].ac.long(next).ok_or(Broken)?;
        self.bits.take(entry.n_bits());
        self.progress = self.progress - FIRST_LONG + (entry.step() & !0xff);
        if entry.has_value() {
            let place = AFTER[usize::from((self.progress >> 8) as u8)];
            self.row.window(self.in_row)[usize::from(place)] = entry.value(next);
        }
        Ok(())
    }
}

/// One coefficient: `$progress` and `$next` move on, the value goes to its place.
macro_rules! coefficient {
    ($next:expr, $progress:expr, $entries:expr, $window:expr) => {
        let entry = $entries[($next >> (64 - LOOKUP_BITS)) as usize];
        $progress += entry.step();
        $window[usize::from(AFTER[usize::from(($progress >> 8) as u8)])] =
            entry.value($next);
        $next <<= entry.n_bits() & 63;
    };
}

/// Decodes the MCUs that `lane` has set out for.
pub(crate) fn run_one(
    level: Level,
    scan: &Scan<'_>,
    lane: &mut Lane,
) -> Result<(), Broken> {
    debug_assert!(scan.blocks.len() <= MAX_MCU_BLOCKS, "checked with the frame");
    avx2_kernel!(level, bmi::run_one(scan, lane), one)
}

/// Decodes until one of the lanes has done the MCUs it has set out for.
pub(crate) fn run_two(
    level: Level,
    scan: &Scan<'_>,
    lanes: [&mut Lane; 2],
) -> Result<(), Broken> {
    avx2_kernel!(level, bmi::run_two(scan, lanes), two)
}

#[inline(always)]
fn one(scan: &Scan<'_>, lane: &mut Lane) -> Result<(), Broken> {
    while lane.mcus_left > 0 {
        let entries = &*scan.blocks[lane.in_mcu].ac.entries;
        let window = lane.row.window(lane.in_row);
        let (mut bits, mut progress) = (lane.bits, lane.progress);
        'block: loop {
            bits.n_valid -= progress & 0xff;
            progress &= !0xff;
            bits = bits.refill(scan.padded);
            for _ in 0..4 {
                coefficient!(bits.next, progress, entries, window);
                if progress >= END {
                    break 'block;
                }
            }
        }
        (lane.bits, lane.progress) = (bits, progress);
        lane.turn(scan)?;
    }
    Ok(())
}

#[inline(always)]
fn two(scan: &Scan<'_>, [a, b]: [&mut Lane; 2]) -> Result<(), Broken> {
    'turns: while a.mcus_left > 0 && b.mcus_left > 0 {
        let entries_a = &*scan.blocks[a.in_mcu].ac.entries;
        let entries_b = &*scan.blocks[b.in_mcu].ac.entries;
        let window_a = a.row.window(a.in_row);
        let window_b = b.row.window(b.in_row);
        let (mut bits_a, mut progress_a) = (a.bits, a.progress);
        let (mut bits_b, mut progress_b) = (b.bits, b.progress);
        // Whose turn it is has a branch of its own: a shared one would be guessed wrong
        // every other time.
        'a: {
            'b: {
                loop {
                    bits_a.n_valid -= progress_a & 0xff;
                    progress_a &= !0xff;
                    bits_a = bits_a.refill(scan.padded);
                    bits_b.n_valid -= progress_b & 0xff;
                    progress_b &= !0xff;
                    bits_b = bits_b.refill(scan.padded);
                    for _ in 0..4 {
                        coefficient!(bits_a.next, progress_a, entries_a, window_a);
                        coefficient!(bits_b.next, progress_b, entries_b, window_b);
                        if progress_a >= END {
                            break 'a;
                        }
                        if progress_b >= END {
                            break 'b;
                        }
                    }
                }
            }
            (a.bits, a.progress) = (bits_a, progress_a);
            (b.bits, b.progress) = (bits_b, progress_b);
            b.turn(scan)?;
            continue 'turns;
        }
        (a.bits, a.progress) = (bits_a, progress_a);
        (b.bits, b.progress) = (bits_b, progress_b);
        a.turn(scan)?;
        if progress_b >= END {
            b.turn(scan)?;
        }
    }
    Ok(())
}
