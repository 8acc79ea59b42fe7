//! Files whose coefficients come in several scans: progressive ones (T.81 Annex G), and
//! sequential ones with a scan for each component.
//!
//! All coefficients of the image are held until the last scan has been read. Slower than
//! `sequential.rs`, and without entry points: such files are rare among photographs, and
//! cannot be decoded in parts. A file whose scans leave out some of a component's bits is
//! refused (libjpeg smooths its blocks, which would be a picture of its own).
#![allow(
    clippy::cast_possible_truncation,
    reason = "coefficients have 16 bits, as libjpeg keeps them"
)]

use std::ops::Range;

use super::bits::{Bits, Restart, ScanData, n_restarts};
use super::blocks_left::BlocksLeft;
use super::lookup::Lookup;
use crate::error::SampleFault;
use crate::jpeg::block::Block;
use crate::jpeg::coefficients::Coefficients;
use crate::jpeg::file::Opened;
use crate::jpeg::file::code::Class;
use crate::jpeg::file::frame::{BLOCK, Component, Frame, MAX_MCU_BLOCKS, Process};
use crate::jpeg::file::header::{self, Next, Tables};
use crate::jpeg::transform::idct::Steps;
use crate::jpeg::zigzag::{not_zero, place_of};
use crate::jpeg::{Broken, damaged, unreadable, unsupported};

/// Most scans of a file. Real files have about ten; a hostile one may hold thousands of empty
/// scans, each of which costs a pass over all coefficients.
const MAX_SCANS: usize = 500;

/// Largest shift of a coefficient's first bits (libjpeg's limit).
const MAX_SHIFT: u8 = 13;

/// Bits that [`Bits::refill`] makes valid.
const REFILLED: u32 = 56;

/// The scans of an image, and its coefficients as far as they have come.
#[derive(Debug, Default)]
pub(crate) struct Scans {
    pub(crate) coefficients: Coefficients,
    /// For each component and coefficient, in the order of sending: how many of its lowest
    /// bits are still to come; `None` before its first scan.
    missing: Vec<[Option<u8>; 64]>,
    data: ScanData,
    /// By place in the scan.
    dc: [Lookup; 4],
    ac: [Lookup; 4],
}

/// What a scan brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// All of a block.
    Whole,
    DcFirst,
    DcRefine,
    AcFirst,
    AcRefine,
}

/// One component's part in a scan.
#[derive(Debug, Clone, Copy)]
struct Part {
    component: usize,
    /// Blocks per MCU, across and down.
    h: usize,
    v: usize,
}

impl Scans {
    /// Reads all scans of `file`; returns each component's steps.
    pub(crate) fn decode(
        &mut self,
        file: &mut Opened<'_>,
    ) -> Result<[Steps; 4], SampleFault> {
        let frame = file.frame.clone();
        let [across, down] = frame.n_mcus();
        let per_mcu: usize = frame.components().iter().map(|c| c.h * c.v).sum();
        // A first scan spends a bit or more on a block, or says that many have ended, for
        // which it takes a bit per power of two.
        if across * down * per_mcu / 4096 > file.bytes.len() {
            return Err(damaged("there are too few bytes for its size"));
        }
        self.coefficients.reset(&frame);
        self.missing.clear();
        self.missing.resize(4, [None; 64]);
        let mut steps = [None; 4];
        let mut left = BlocksLeft::default();
        for _ in 0..MAX_SCANS {
            // A component's table is the one defined when its first scan begins.
            for selected in file.scan.components() {
                let slot = &mut steps[selected.component];
                if slot.is_none() {
                    let table = frame.components()[selected.component].table;
                    *slot = Some(Steps::new(&file.segments.tables.steps(table)?));
                }
            }
            let [_, n_blocks] = n_visits(&frame, &file.scan);
            left.take(n_blocks).ok_or_else(too_many_scans)?;
            let behind = self.scan(&frame, file)?;
            file.segments.at = behind;
            match file.segments.next()? {
                Next::Scan(scan) => file.scan = scan,
                Next::End => {
                    self.check_complete(&frame)?;
                    return Ok(steps.map(|steps| steps.unwrap_or(Steps::ZERO)));
                }
            }
        }
        Err(damaged(format_args!("it has more than {MAX_SCANS} scans")))
    }

    /// Gives memory back of which there is more than `keep_bytes`; the bytes that it keeps.
    pub(crate) fn release_above(&mut self, keep_bytes: usize) -> usize {
        self.coefficients.release_above(keep_bytes) + self.data.release_above(keep_bytes)
    }

    /// Every bit of every coefficient must have come.
    fn check_complete(&self, frame: &Frame) -> Result<(), SampleFault> {
        let used = &self.missing[..frame.components().len()];
        if used.iter().flatten().any(|missing| *missing != Some(0)) {
            return Err(unsupported("incomplete progressive"));
        }
        Ok(())
    }

    /// Reads the scan that `file` has come to; returns where the next marker lies.
    fn scan(&mut self, frame: &Frame, file: &Opened<'_>) -> Result<usize, SampleFault> {
        let pass = self.begin_pass(frame, &file.scan)?;
        let tables = &file.segments.tables;
        let code = if pass == Pass::Whole { Tables::code } else { Tables::own_code };
        for (place, selected) in file.scan.components().iter().enumerate() {
            if matches!(pass, Pass::Whole | Pass::DcFirst) {
                let code = code(tables, Class::Dc, selected.dc_table)?;
                self.dc[place].set(Class::Dc, &code)?;
            }
            if matches!(pass, Pass::Whole | Pass::AcFirst | Pass::AcRefine) {
                let code = code(tables, Class::Progressive, selected.ac_table)?;
                self.ac[place].set(Class::Progressive, &code)?;
            }
        }
        let mut data = std::mem::take(&mut self.data);
        let interval = tables.restart_interval;
        let [n_mcus, _] = n_visits(frame, &file.scan);
        let due = n_restarts(n_mcus, interval);
        let behind = data.set(file.bytes, file.scan.data, due);
        let read = behind.and_then(|behind| {
            self.read(frame, (&file.scan, pass), interval, &data).map_err(unreadable)?;
            Ok(behind)
        });
        self.data = data;
        read
    }

    /// What the scan brings, if it may (T.81 §G.1.1.1.1; libjpeg's `start_pass_phuff`).
    fn begin_pass(
        &mut self,
        frame: &Frame,
        scan: &header::Scan,
    ) -> Result<Pass, SampleFault> {
        let ([first, last], [before, now]) = (scan.band, scan.approximation);
        let wrong = || damaged("a scan that does not follow from those before it");
        let pass = match (frame.process, first, before) {
            (Process::Sequential, _, _) => {
                if (scan.band, scan.approximation) != ([0, 63], [0, 0]) {
                    return Err(wrong());
                }
                Pass::Whole
            }
            (Process::Progressive, 0, 0) => Pass::DcFirst,
            (Process::Progressive, 0, _) => Pass::DcRefine,
            (Process::Progressive, _, 0) => Pass::AcFirst,
            (Process::Progressive, _, _) => Pass::AcRefine,
        };
        let is_dc = matches!(pass, Pass::DcFirst | Pass::DcRefine);
        let is_ac = matches!(pass, Pass::AcFirst | Pass::AcRefine);
        let bad_band = is_dc && last != 0 || first > last || last > 63;
        let bad_bits = before != 0 && now + 1 != before || now > MAX_SHIFT;
        if bad_band || bad_bits || is_ac && scan.components().len() != 1 {
            return Err(wrong());
        }
        for selected in scan.components() {
            let missing = &mut self.missing[selected.component];
            if is_ac && missing[0].is_none() {
                return Err(wrong());
            }
            for missing in &mut missing[usize::from(first)..=usize::from(last)] {
                let expected = if pass == Pass::Whole { 0 } else { missing.unwrap_or(0) };
                if before != expected || pass == Pass::Whole && missing.is_some() {
                    return Err(wrong());
                }
                *missing = Some(now);
            }
        }
        Ok(pass)
    }

    /// Decodes the scan's MCUs.
    fn read(
        &mut self,
        frame: &Frame,
        (scan, pass): (&header::Scan, Pass),
        restart_interval: u32,
        data: &ScanData,
    ) -> Result<(), Broken> {
        let (parts, [across, down]) = mcus(frame, scan).ok_or(Broken)?;
        let mut reader = Reader::new(data, scan);
        let mut until_restart = restart_interval;
        for mcu in 0..across * down {
            if restart_interval > 0 && until_restart == 0 {
                reader.restart(data.restarts())?;
                until_restart = restart_interval;
            }
            until_restart = until_restart.saturating_sub(1);
            let (x, y) = (mcu % across, mcu / across);
            for (place, part) in parts[..scan.components().len()].iter().enumerate() {
                for within in 0..part.h * part.v {
                    let column = x * part.h + within % part.h;
                    let row = y * part.v + within / part.h;
                    let block =
                        self.coefficients.block_mut(part.component, [column, row]);
                    let (dc, ac) = (&self.dc[place], &self.ac[place]);
                    reader.block(pass, block, [dc, ac], place)?;
                }
            }
            reader.check()?;
        }
        reader.check_restarts(data.restarts())
    }
}

/// Of a file whose scans take as long as a slow path would take with them: no other is to begin again.
fn too_many_scans() -> SampleFault {
    let why = "it has too many scans for its size".to_owned();
    SampleFault::Damaged { format: "progressive JPEG", why }
}

/// How a scan's MCUs are made up, and how many there are, across and down; `None` when an
/// MCU would have too many blocks.
fn mcus(frame: &Frame, scan: &header::Scan) -> Option<([Part; 4], [usize; 2])> {
    let mut parts = [Part { component: 0, h: 1, v: 1 }; 4];
    if let [only] = scan.components() {
        // A lone component is not interleaved (T.81 §A.2.2): its blocks, one by one.
        parts[0].component = only.component;
        let blocks = frame.plane_size(only.component).map(|side| side.div_ceil(BLOCK));
        return Some((parts, blocks));
    }
    let mut n_blocks = 0;
    for (part, selected) in parts.iter_mut().zip(scan.components()) {
        let Component { h, v, .. } = frame.components()[selected.component];
        *part = Part { component: selected.component, h, v };
        n_blocks += h * v;
    }
    (n_blocks <= MAX_MCU_BLOCKS).then(|| (parts, frame.n_mcus()))
}

/// MCUs and blocks that a scan visits.
fn n_visits(frame: &Frame, scan: &header::Scan) -> [usize; 2] {
    let Some((parts, [across, down])) = mcus(frame, scan) else { return [0; 2] };
    let parts = &parts[..scan.components().len()];
    let per_mcu: usize = parts.iter().map(|part| part.h * part.v).sum();
    [across * down, across * down * per_mcu]
}

/// The entropy-coded data of one scan.
struct Reader<'a> {
    padded: &'a [u8],
    bits: Bits,
    end: u64,
    /// First and last coefficient of the band, and the bit that is sent.
    band: Range<usize>,
    shift: u8,
    dc: [i32; 4],
    /// Blocks from this one on that have nothing more to come in this scan.
    n_ended: u32,
    restarts_seen: usize,
}

impl<'a> Reader<'a> {
    fn new(data: &'a ScanData, scan: &header::Scan) -> Self {
        let [first, last] = scan.band.map(usize::from);
        Self {
            padded: data.padded(),
            bits: Bits::new(data.padded(), 0),
            end: data.len() as u64 * 8,
            band: first..last + 1,
            shift: scan.approximation[1],
            dc: [0; 4],
            n_ended: 0,
            restarts_seen: 0,
        }
    }

    fn check(&self) -> Result<(), Broken> {
        if self.bits.position() > self.end { Err(Broken) } else { Ok(()) }
    }

    /// No restart marker may be left over in the data that were read.
    fn check_restarts(&self, restarts: &[Restart]) -> Result<(), Broken> {
        let end = self.bits.position().div_ceil(8);
        match restarts.get(self.restarts_seen) {
            Some(next) if (next.at as u64) < end => Err(Broken),
            Some(_) | None => Ok(()),
        }
    }

    /// Goes on behind a restart marker (T.81 §F.2.1.3.1).
    fn restart(&mut self, restarts: &[Restart]) -> Result<(), Broken> {
        let at = self.bits.position().div_ceil(8);
        let found = restarts.get(self.restarts_seen).ok_or(Broken)?;
        if found.at as u64 != at || usize::from(found.number) != self.restarts_seen & 7 {
            return Err(Broken);
        }
        self.restarts_seen += 1;
        self.dc = [0; 4];
        self.n_ended = 0;
        self.bits = Bits::new(self.padded, at * 8);
        Ok(())
    }

    fn block(
        &mut self,
        pass: Pass,
        block: &mut Block,
        [dc, ac]: [&Lookup; 2],
        place: usize,
    ) -> Result<(), Broken> {
        match pass {
            Pass::Whole => {
                block[0] = self.dc(dc, place)?;
                self.ac_whole(block, ac)
            }
            Pass::DcFirst => {
                block[0] = self.dc(dc, place)? << self.shift;
                Ok(())
            }
            Pass::DcRefine => {
                if self.bit() {
                    block[0] |= 1 << self.shift;
                }
                Ok(())
            }
            Pass::AcFirst => self.ac_first(block, ac),
            Pass::AcRefine => self.ac_refine(block, ac),
        }
    }

    /// The next `n` bits (at most 32).
    fn take(&mut self, n: u32) -> u32 {
        if self.bits.n_valid < n {
            self.bits = self.bits.refill(self.padded);
        }
        let taken = if n == 0 { 0 } else { self.bits.next >> (64 - n) };
        self.bits.take(n);
        taken as u32
    }

    fn bit(&mut self) -> bool {
        self.take(1) != 0
    }

    fn symbol(&mut self, lookup: &Lookup) -> Result<u8, Broken> {
        if self.bits.n_valid < REFILLED {
            self.bits = self.bits.refill(self.padded);
        }
        let (symbol, length) = lookup.symbol(self.bits.next).ok_or(Broken)?;
        self.bits.take(length);
        Ok(symbol)
    }

    /// A value of `size` bits (T.81 §F.2.2.1, figure F.12).
    fn value(&mut self, size: u32) -> i32 {
        let bits = self.take(size).cast_signed();
        if size > 0 && bits >> (size - 1) == 0 { bits - (1 << size) + 1 } else { bits }
    }

    /// The next DC (T.81 §F.2.2.1).
    fn dc(&mut self, lookup: &Lookup, place: usize) -> Result<i16, Broken> {
        let size = self.symbol(lookup)?;
        let difference = self.value(u32::from(size & 15));
        let sum = &mut self.dc[place];
        *sum = sum.wrapping_add(difference);
        Ok(*sum as i16)
    }

    /// T.81 §F.2.2.2.
    fn ac_whole(&mut self, block: &mut Block, lookup: &Lookup) -> Result<(), Broken> {
        let mut k = 1;
        while k < 64 {
            let symbol = self.symbol(lookup)?;
            let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            if size == 0 {
                if run < 15 {
                    return Ok(());
                }
                k += 16;
                continue;
            }
            k += run;
            *place(block, k, 64)? = self.value(size) as i16;
            k += 1;
        }
        if k == 64 { Ok(()) } else { Err(Broken) }
    }

    /// T.81 §G.1.2.2.
    fn ac_first(&mut self, block: &mut Block, lookup: &Lookup) -> Result<(), Broken> {
        if self.n_ended > 0 {
            self.n_ended -= 1;
            return Ok(());
        }
        let mut k = self.band.start;
        while k < self.band.end {
            let symbol = self.symbol(lookup)?;
            let (run, size) = (symbol >> 4, u32::from(symbol & 15));
            if size == 0 {
                if run < 15 {
                    self.n_ended = (1 << run) - 1 + self.take(u32::from(run));
                    return Ok(());
                }
                k += 16;
                continue;
            }
            k += usize::from(run);
            *place(block, k, self.band.end)? = (self.value(size) << self.shift) as i16;
            k += 1;
        }
        Ok(())
    }

    /// T.81 §G.1.2.3: a new coefficient of ±1 bit behind a run of zeros; coefficients that
    /// are not zero lie in between and take a bit each.
    fn ac_refine(&mut self, block: &mut Block, lookup: &Lookup) -> Result<(), Broken> {
        let one = 1_i16 << self.shift;
        let mut k = self.band.start;
        while self.n_ended == 0 && k < self.band.end {
            let symbol = self.symbol(lookup)?;
            let (mut run, size) = (symbol >> 4, symbol & 15);
            let new = match (size, run) {
                (0, 15) => 0,
                (0, _) => {
                    self.n_ended = (1 << run) + self.take(u32::from(run));
                    break;
                }
                (1, _) if self.bit() => one,
                (1, _) => -one,
                (_, _) => return Err(Broken),
            };
            loop {
                let coefficient = place(block, k, self.band.end)?;
                k += 1;
                if *coefficient != 0 {
                    self.refine(coefficient, one);
                } else if run == 0 {
                    *coefficient = new;
                    break;
                } else {
                    run -= 1;
                }
                if k == self.band.end {
                    // A run may end with the band only when it is of zeros alone.
                    if new != 0 {
                        return Err(Broken);
                    }
                    break;
                }
            }
        }
        if self.n_ended > 0 {
            // The bits from `k` to the end of the band, which has 64 at most.
            let from_k = u64::MAX.checked_shl(k as u32).unwrap_or(0);
            let to_end = u64::MAX >> (64 - self.band.end);
            let mut rest = not_zero(block) & from_k & to_end;
            while rest != 0 {
                self.refine(&mut block[place_of(rest.trailing_zeros() as usize)], one);
                rest &= rest - 1;
            }
            self.n_ended -= 1;
        }
        Ok(())
    }

    /// One more bit of a coefficient that is not zero.
    fn refine(&mut self, coefficient: &mut i16, one: i16) {
        if self.bit() && *coefficient & one == 0 {
            *coefficient += if *coefficient >= 0 { one } else { -one };
        }
    }
}

/// Coefficient number `k` in the order of sending, if it lies before `end`.
fn place(block: &mut Block, k: usize, end: usize) -> Result<&mut i16, Broken> {
    if k < end { Ok(&mut block[place_of(k)]) } else { Err(Broken) }
}

#[cfg(test)]
mod tests {
    use bothends_core::sample::{Encoding, Record};

    use crate::decode::decode;
    use crate::image::Image;

    /// Blocks of an image of 4224 x 4224 pixels.
    const BLOCKS: usize = 528 * 528;

    /// A grey image whose AC comes that many times, always as zeros.
    fn with_ac_scans(n: usize) -> Vec<u8> {
        let mut file = b"\xff\xd8\xff\xdb\0\x43\0".to_vec();
        file.extend([1; 64]);
        file.extend([0xff, 0xc2, 0, 11, 8, 0x10, 0x80, 0x10, 0x80, 1, 1, 0x11, 0]);
        // One code of a bit: of DC for zero, of AC for the end of 2^14 blocks and more.
        for [class, symbol] in [[0x00, 0], [0x10, 0xe0]] {
            file.extend([0xff, 0xc4, 0, 20, class, 1]);
            file.extend([0; 15]);
            file.push(symbol);
        }
        file.extend([0xff, 0xda, 0, 8, 1, 1, 0, 0, 0, 0]);
        file.extend([0; BLOCKS / 8]);
        for _ in 0..n {
            // A bit for the code and 14 for how many more blocks: none.
            file.extend([0xff, 0xda, 0, 8, 1, 1, 0, 1, 63, 0]);
            file.extend([0; 2 * BLOCKS / (1 << 14)]);
        }
        file.extend([0xff, 0xd9]);
        file
    }

    fn decoded(file: &[u8]) -> Result<Image, String> {
        let mut image = Image::default();
        let done = decode(Record::new(file, Encoding::Image), &mut image);
        done.map(|()| image).map_err(|fault| fault.to_string())
    }

    /// A few bytes say that nothing comes for all blocks, which took a visit to each.
    #[test]
    fn scans_of_empty_blocks_do_not_work_without_end() {
        let image = decoded(&with_ac_scans(40)).unwrap();
        assert!(image.pixels().iter().all(|value| *value == 128));
        // 2^27 blocks and one scan more, which no slow path begins again.
        let fault = decoded(&with_ac_scans((1 << 27) / BLOCKS)).map(drop).unwrap_err();
        assert!(fault.contains("progressive JPEG image is damaged"), "{fault}");
        assert!(fault.contains("too many scans for its size"), "{fault}");
    }
}
