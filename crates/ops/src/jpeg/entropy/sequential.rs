//! Entropy decoding of sequential scans: bits become quantised coefficients (T.81 §F.2.2).
//!
//! This is the hot loop of the product: on photographs seven tenths of a JPEG decoder's time
//! goes here. It is a chain, because where a symbol begins depends on the length of the one
//! before. [`run_two`] therefore interleaves two places in a scan and hides the waiting of each
//! after the other; [`run_one`] is the same for one. Both are safe code. What a step costs
//! is kept low by
//!
//! * one number for two counts: [`Progress`] holds the bits taken and the place in the block;
//! * one test for all that is not an ordinary coefficient: end of block, a long code, and a
//!   run that leads out of the block all lie at or beyond [`END`];
//! * storing before testing: a block is written through a window as long as a place can
//!   be large, and what is written after the block is zeroed when the next one begins;
//! * looking at the data once per three symbols (`ENTRY_BITS`), at the end of the data once
//!   per MCU (`ScanData` is padded for it);
//! * looking ahead of the third symbol, not behind it ([`Reader::last_step`]): the load is
//!   done when the symbol's length is known.
//!
//! Coefficients go to the places that `zigzag.rs` says. Read `whole.rs` next.
#![allow(
    clippy::cast_possible_truncation,
    reason = "counts and values are kept in as many bits as they need; the rest is cut off on purpose"
)]

use super::bits::{Restart, ScanData};
use super::lookup::{ENTRY_BITS, Entry, Lookup, Table};
use crate::error::SampleFault;
use crate::jpeg::block::{RowBlocks, WINDOW};
use crate::jpeg::file::frame::MAX_MCU_BLOCKS;
use crate::jpeg::zigzag::AFTER;
use crate::jpeg::{Broken, damaged};
use crate::kernels::{Level, avx2_kernel};

#[cfg(target_arch = "x86_64")]
mod bmi;

/// Bytes after the last MCU that are let pass: libjpeg's bit buffer swallows as many
/// without a word.
const STRAY_BYTES: u64 = 7;

/// A block being decoded: bits taken of the data from the byte last looked at on in the low
/// byte, the number of the next coefficient above it.
type Progress = u32;

/// From here on a block is at its end, or the symbol is a long one.
const END: Progress = 64 << 8;

const FIRST_LONG: Progress = Entry::LONG_ADVANCE << 8;

/// Ends of a block: its last coefficient, or an end-of-block symbol after 1 to 63.
const FULL: u32 = 64;
const FIRST_ENDED: u32 = Entry::END_OF_BLOCK + 1;
const LAST_ENDED: u32 = Entry::END_OF_BLOCK + 63;

// A byte is begun, and four entries are taken, between two looks; the shift by all of it is
// below 64.
const _: () = assert!(7 + 4 * ENTRY_BITS < 64);

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

impl<'a> Scan<'a> {
    /// All of `data`, or the parts of a scan that it has.
    pub(crate) fn new(
        data: &'a ScanData,
        blocks: &'a [BlockCodes<'a>],
        restart_interval: u32,
    ) -> Self {
        let (padded, restarts) = (data.padded(), data.restarts());
        Self { padded, blocks, restart_interval, restarts }
    }
}

/// A place between two MCUs from where decoding can go on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EntryPoint {
    /// Bit of the unstuffed data.
    pub(crate) position: u64,
    /// Sum of the DC differences so far, by component.
    pub(crate) dc: [i32; 4],
}

/// Which of two lanes met what cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BrokenLane {
    First,
    /// The first one can go on.
    Second,
}

/// A place in the data and in a block. Passed by value and kept in variables, so that it stays
/// in registers: what goes through memory waits for the store on every turn.
///
/// 43 or more bits of `next` are valid when a block's coefficients begin, and after
/// [`Self::last_step`]: enough for two entries, and 15 are left for a third one or a DC.
#[derive(Debug, Clone, Copy, Default)]
struct Reader {
    /// The next bits, left-aligned; zeros behind those that are valid.
    next: u64,
    /// The byte from which the bits in `progress` count. The blocks of the largest image take
    /// less than 4 GiB.
    at: u32,
    progress: Progress,
}

impl Reader {
    /// Begins at bit `position`.
    fn new(padded: &[u8], position: u64) -> Self {
        let (at, progress) = ((position >> 3) as u32, (position & 7) as Progress);
        Self { next: 0, at, progress }.refill(padded)
    }

    /// Looks at the data again: 57 or more bits are valid. The caller stays within the padding.
    #[inline(always)]
    fn refill(mut self, padded: &[u8]) -> Self {
        let word = self.look(padded);
        self.next = word << (self.progress & 63);
        self
    }

    /// Bytes from the next one on; `progress` counts from there.
    #[inline(always)]
    fn look(&mut self, padded: &[u8]) -> u64 {
        self.at += u32::from(self.progress as u8 >> 3);
        self.progress &= !0xf8;
        let at = self.at as usize;
        u64::from_be_bytes(padded[at..at + 8].try_into().expect("eight bytes"))
    }

    /// One coefficient: what it moves on by, and its value.
    #[inline(always)]
    fn step(&mut self, table: &Table) -> i16 {
        let number = Table::number(self.next);
        let step = table.step(number);
        self.progress += step;
        let value = table.value(number, step, self.next);
        self.next <<= step & 63;
        value
    }

    /// [`Self::step`] and [`Self::refill`]: data are looked at before it is known where the
    /// coefficient ends, which takes the reading off the chain.
    #[inline(always)]
    fn last_step(&mut self, table: &Table, padded: &[u8]) -> i16 {
        let word = self.look(padded);
        let number = Table::number(self.next);
        let step = table.step(number);
        self.progress += step;
        let value = table.value(number, step, self.next);
        self.next = word << (self.progress & 63);
        value
    }

    /// The place of the last coefficient in its window.
    #[inline(always)]
    fn place(self) -> usize {
        usize::from(AFTER[usize::from((self.progress >> 8) as u8)])
    }

    /// The number of the next bit.
    #[inline(always)]
    fn position(self) -> u64 {
        8 * u64::from(self.at) + u64::from(self.progress & 0xff)
    }
}

/// Consecutive MCUs being decoded: a row of the image, a part of one, or some more.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    reader: Reader,
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
    trail: Trail,
}

/// Where the MCUs of a lane began, if it is to mark it.
#[derive(Debug, Default)]
struct Trail {
    is_kept: bool,
    /// Behind a restart marker where one comes before the MCU.
    marks: Vec<EntryPoint>,
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
        self.trail.is_kept = false;
        self.reader = Reader::new(scan.padded, from.position);
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
        next.is_some_and(|next| (next.at as u64) < self.reader.position().div_ceil(8))
    }

    /// Whether the last MCU is where the data end, or nearly.
    pub(crate) fn check_end(&self, scan: &Scan<'_>) -> Result<(), SampleFault> {
        let bytes_taken = self.reader.position().div_ceil(8);
        if (self.end / 8).saturating_sub(bytes_taken) > STRAY_BYTES {
            return Err(damaged("stray bytes after its last block"));
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

    /// The next MCU is number `n` of the row.
    pub(crate) fn go_to(&mut self, scan: &Scan<'_>, n: usize) {
        self.in_row = n * scan.blocks.len();
    }

    /// Sets out for `n_mcus` MCUs from where it has entered, into a row of their own, and marks where
    /// each of them begins ([`Self::marks`]).
    pub(crate) fn set_out(
        &mut self,
        scan: &Scan<'_>,
        n_mcus: usize,
    ) -> Result<(), Broken> {
        self.begin_row(scan, n_mcus);
        self.trail.is_kept = true;
        self.trail.marks.clear();
        self.trail.marks.push(self.place());
        self.begin(scan, n_mcus)
    }

    /// Where the MCUs began that were decoded since [`Self::set_out`], and where the next one does: at
    /// least one place.
    pub(crate) fn marks(&self) -> &[EntryPoint] {
        &self.trail.marks
    }

    /// Where the next MCU begins; takes a restart that is due before it.
    pub(crate) fn entry_point(&mut self, scan: &Scan<'_>) -> Result<EntryPoint, Broken> {
        if scan.restart_interval > 0 && self.until_restart == 0 {
            self.restart(scan)?;
        }
        Ok(EntryPoint { position: self.reader.position(), dc: self.dc })
    }

    /// Sets out for the next `n_mcus` MCUs, at least 1.
    pub(crate) fn begin(&mut self, scan: &Scan<'_>, n_mcus: usize) -> Result<(), Broken> {
        self.entry_point(scan)?;
        self.mcus_left = n_mcus;
        self.in_mcu = 0;
        self.reader = self.begin_block(scan, self.reader)?;
        Ok(())
    }

    pub(crate) fn is_done(&self) -> bool {
        self.mcus_left == 0
    }

    /// Where the last MCU ended.
    pub(crate) fn place(&self) -> EntryPoint {
        EntryPoint { position: self.reader.position(), dc: self.dc }
    }

    /// Goes on behind a restart marker (T.81 §F.2.1.3.1).
    #[cold]
    fn restart(&mut self, scan: &Scan<'_>) -> Result<(), Broken> {
        let at = self.reader.position().div_ceil(8);
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
        self.reader = Reader::new(scan.padded, at * 8);
        Ok(())
    }

    #[inline(always)]
    fn begin_block(
        &mut self,
        scan: &Scan<'_>,
        mut reader: Reader,
    ) -> Result<Reader, Broken> {
        let codes = &scan.blocks[self.in_mcu];
        reader.progress &= 0xff;
        let mut difference = reader.last_step(&codes.dc.entries, scan.padded);
        if reader.progress >= FIRST_LONG {
            let entry = codes.dc.long(reader.next).ok_or(Broken)?;
            difference = entry.value(reader.next);
            reader.progress = (reader.progress & 0xff) + entry.step();
            reader = reader.refill(scan.padded);
        }
        let sum = &mut self.dc[codes.component & 3];
        *sum = sum.wrapping_add(i32::from(difference));
        let dc = *sum as i16;
        let window = self.row.window(self.in_row);
        window[1..=64].fill(0);
        window[1] = dc;
        Ok(reader)
    }

    /// Handles whatever led to [`END`]: a long code, or the end of the block and the
    /// beginning of the next.
    #[inline(always)]
    fn turn(&mut self, scan: &Scan<'_>, mut reader: Reader) -> Result<Reader, Broken> {
        if reader.progress >= FIRST_LONG {
            reader = self.long_symbol(scan, reader)?;
            if reader.progress < END {
                return Ok(reader);
            }
        }
        match reader.progress >> 8 {
            FULL | FIRST_ENDED..=LAST_ENDED => {}
            _ => return Err(Broken),
        }
        self.in_row += 1;
        self.in_mcu += 1;
        if self.in_mcu == scan.blocks.len() {
            self.in_mcu = 0;
            reader = self.end_mcu(scan, reader)?;
            if self.mcus_left == 0 {
                return Ok(reader);
            }
        }
        self.begin_block(scan, reader)
    }

    #[inline(always)]
    fn end_mcu(&mut self, scan: &Scan<'_>, mut reader: Reader) -> Result<Reader, Broken> {
        if reader.position() > self.end {
            return Err(Broken);
        }
        self.mcus_left -= 1;
        if scan.restart_interval > 0 {
            self.until_restart -= 1;
            if self.until_restart == 0 {
                if self.mcus_left == 0 {
                    return Ok(reader);
                }
                self.reader = reader;
                self.restart(scan)?;
                reader = self.reader;
            }
        }
        if self.trail.is_kept {
            let mark = EntryPoint { position: reader.position(), dc: self.dc };
            self.trail.marks.push(mark);
        }
        Ok(reader)
    }

    #[inline(always)]
    fn long_symbol(&mut self, scan: &Scan<'_>, reader: Reader) -> Result<Reader, Broken> {
        let mut reader = reader.refill(scan.padded);
        let next = reader.next;
        let entry = scan.blocks[self.in_mcu].ac.long(next).ok_or(Broken)?;
        reader.next <<= entry.n_bits() & 63;
        reader.progress = reader.progress - FIRST_LONG + entry.step();
        let place = AFTER[usize::from((reader.progress >> 8) as u8)];
        self.row.window(self.in_row)[usize::from(place)] = entry.value(next);
        Ok(reader.refill(scan.padded))
    }

    /// What the block at hand is decoded with: the table and the place.
    #[inline(always)]
    fn block<'a>(&mut self, scan: &Scan<'a>) -> (&'a Table, &mut [i16; WINDOW]) {
        (&scan.blocks[self.in_mcu].ac.entries, self.row.window(self.in_row))
    }
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
) -> Result<(), BrokenLane> {
    avx2_kernel!(level, bmi::run_two(scan, lanes), two)
}

#[inline(always)]
fn one(scan: &Scan<'_>, lane: &mut Lane) -> Result<(), Broken> {
    let mut reader = lane.reader.refill(scan.padded);
    while lane.mcus_left > 0 {
        let (table, window) = lane.block(scan);
        'block: loop {
            for _ in 0..2 {
                let value = reader.step(table);
                window[reader.place()] = value;
                if reader.progress >= END {
                    break 'block;
                }
            }
            let value = reader.last_step(table, scan.padded);
            window[reader.place()] = value;
            if reader.progress >= END {
                break 'block;
            }
        }
        reader = lane.turn(scan, reader)?;
    }
    lane.reader = reader;
    Ok(())
}

#[inline(always)]
fn two(scan: &Scan<'_>, [a, b]: [&mut Lane; 2]) -> Result<(), BrokenLane> {
    let mut reader_a = a.reader.refill(scan.padded);
    let mut reader_b = b.reader.refill(scan.padded);
    let (mut table_a, mut window_a) = a.block(scan);
    let (mut table_b, mut window_b) = b.block(scan);
    'turns: loop {
        // Whose turn it is has a branch of its own: a shared one would be guessed wrong
        // every other time.
        'a: {
            'b: {
                loop {
                    for _ in 0..2 {
                        let value_a = reader_a.step(table_a);
                        window_a[reader_a.place()] = value_a;
                        let value_b = reader_b.step(table_b);
                        window_b[reader_b.place()] = value_b;
                        if reader_a.progress >= END {
                            break 'a;
                        }
                        if reader_b.progress >= END {
                            break 'b;
                        }
                    }
                    let value_a = reader_a.last_step(table_a, scan.padded);
                    window_a[reader_a.place()] = value_a;
                    let value_b = reader_b.last_step(table_b, scan.padded);
                    window_b[reader_b.place()] = value_b;
                    if reader_a.progress >= END {
                        break 'a;
                    }
                    if reader_b.progress >= END {
                        break 'b;
                    }
                }
            }
            reader_a = reader_a.refill(scan.padded);
            let Ok(turned) = b.turn(scan, reader_b) else {
                a.reader = reader_a;
                return Err(BrokenLane::Second);
            };
            reader_b = turned;
            if b.mcus_left == 0 {
                break 'turns;
            }
            (table_b, window_b) = b.block(scan);
            continue 'turns;
        }
        reader_a = a.turn(scan, reader_a).map_err(|Broken| BrokenLane::First)?;
        if reader_b.progress >= END {
            let Ok(turned) = b.turn(scan, reader_b) else {
                a.reader = reader_a;
                return Err(BrokenLane::Second);
            };
            reader_b = turned;
        } else {
            reader_b = reader_b.refill(scan.padded);
        }
        if a.mcus_left == 0 || b.mcus_left == 0 {
            break 'turns;
        }
        (table_a, window_a) = a.block(scan);
        (table_b, window_b) = b.block(scan);
    }
    (a.reader, b.reader) = (reader_a, reader_b);
    Ok(())
}
