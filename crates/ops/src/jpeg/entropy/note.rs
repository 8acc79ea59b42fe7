//! What the side index keeps of a JPEG with its entry points: all that decoding a part of its scan
//! needs to know, so that neither the file's headers nor the rest of the scan are read again.
//!
//! All numbers are little-endian:
//!
//! ```text
//! 0   "BENOTE2" and a zero; a note without this is entry points alone (`entry_points.rs`)
//! 8   rows, columns of the image: u16 each
//! 12  colour, components, tables of steps, codes: u8 each (colour as in a store's profile)
//! 16  offset of the scan's data in the record: u32
//! 20  MCUs between restarts, 0 for none: u32
//! 24  blocks from one entry point to the next: u16
//! 26  rows of MCUs that share a checksum: u8; a zero
//! 28  each component: h, v, number of its steps, its place in the scan, DC code, AC code: u8 each
//! …   each table of steps: a byte 1 and 64 × u8, or a byte 2 and 64 × u16, row by row
//! …   each code: how many there are of each length, 16 × u8, and its symbols; or 255 and one of T.81's
//!     own by its number: DC for brightness 0, for colour 1, AC for brightness 2, for colour 3
//! …   checksums: low halves of XXH3-64, u32 each
//! …   entry points
//! ```
//!
//! Between two entry points lie `max(1, blocks ÷ blocks of an MCU)` MCUs. A checksum is of the file's
//! bytes of its rows: from the one in which the first entry point of the first row lies to the one in
//! which that after the last row does, that one included unless its bits all belong to what follows.
//!
//! A photograph's note has 3.0 % of its file's length (246 photographs of ImageNet, 109 kB each; 2.5 %
//! are entry points). Nothing here decodes. A note that was changed leads to an error or to wrong pixels, as wrong entry points do: whoever
//! keeps it keeps the hashes of the image and of the note next to it. Read `progressive.rs` next.

#![deny(
    clippy::arithmetic_side_effects,
    reason = "numbers that a file gives; a release does not check sums in this crate"
)]

use std::ops::Range;

use bothends_core::blocks::Colour;
use bothends_core::recipe::Size;
use twox_hash::XxHash3_64;

use super::lookup::check_code;
use super::point::{FilePoint, per_row};
use crate::image::check_size;
use crate::jpeg::file::code::{Class, Code};
use crate::jpeg::file::frame::{self, Frame, MAX_MCU_BLOCKS, Process};

const MAGIC: &[u8; 8] = b"BENOTE2\0";
const HEADER_BYTES: usize = 28;
const COMPONENT_BYTES: usize = 6;
const COUNTS_BYTES: usize = 16;

/// In place of how many codes have one bit: the code is T.81's.
const STANDARD: u8 = 255;

/// T.81's codes, by their numbers.
const STANDARD_CODES: [(Class, usize); 4] =
    [(Class::Dc, 0), (Class::Dc, 1), (Class::Ac, 0), (Class::Ac, 1)];

/// Most components of an image that has a note: entry points have room for three.
const MAX_COMPONENTS: usize = 3;

/// Most codes: two for each component.
const MAX_CODES: usize = 2 * MAX_COMPONENTS;

/// Blocks from one entry point to the next: what a lane of a GPU decodes alone. Twelve make
/// small batches faster there, and notes half as large again.
pub(crate) const STEP_BLOCKS: usize = 24;

/// Bytes of the scan that a checksum is of, at least.
const CHECK_BYTES: usize = 1024;

/// A note, its sections found. What they say is held against the rules by [`Self::described`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Note<'a> {
    header: &'a [u8; HEADER_BYTES],
    components: &'a [[u8; COMPONENT_BYTES]],
    /// The steps of each table, of one or two bytes.
    steps: [&'a [u8]; MAX_COMPONENTS],
    n_steps: usize,
    /// Of each code how many there are of each length, and the symbols.
    codes: [&'a [u8]; MAX_CODES],
    n_codes: usize,
    checks: &'a [[u8; 4]],
    points: &'a [[u8; 8]],
}

/// A JPEG as its note describes it, held against the rules that its file was: for machines that
/// decode it elsewhere.
#[derive(Debug)]
pub struct ScanNote<'a> {
    note: Note<'a>,
    frame: Frame,
}

/// A block of an MCU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanBlock {
    /// Its component, in the frame's order.
    pub component: usize,
    /// Where it is in the MCU: column and row among its component's.
    pub place: [usize; 2],
    /// Its component's place in the scan, by which entry points have their DC.
    pub dc: usize,
    /// Numbers of its codes: DC, AC.
    pub codes: [usize; 2],
}

/// A place in the scan where decoding can begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanPoint {
    /// The byte, from the start of the scan's data.
    pub byte: usize,
    /// Whether it begins within that byte.
    pub is_within: bool,
    /// As it is kept: bits 0 to 24 the byte, 25 to 27 the bit, 28 to 63 three DCs of 12 bits.
    pub packed: u64,
}

/// A Huffman code as a DHT segment has it.
#[derive(Debug, Clone, Copy)]
pub struct ScanCode<'a> {
    /// How many codes there are of each length, from 1 bit.
    pub counts: &'a [u8; 16],
    /// What they mean; at most 256.
    pub symbols: &'a [u8],
}

impl<'a> Note<'a> {
    /// Finds the sections; `None` where this is no note.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let [n_components, n_steps, n_codes] =
            [13, 14, 15].map(|at| usize::from(header[at]));
        if !header.starts_with(MAGIC) || header[26] == 0 {
            return None;
        }
        let (components, mut rest) = split::<COMPONENT_BYTES>(rest, n_components)?;
        let mut steps = [&[][..]; MAX_COMPONENTS];
        for steps in steps.get_mut(..n_steps)? {
            let (&step_bytes, behind) = rest.split_first()?;
            let n_bytes = match step_bytes {
                1 => 64,
                2 => 128,
                _ => return None,
            };
            (*steps, rest) = behind.split_at_checked(n_bytes)?;
        }
        let mut codes = [&[][..]; MAX_CODES];
        for code in codes.get_mut(..n_codes)? {
            if let &[STANDARD, number, ref behind @ ..] = rest {
                let &(class, slot) = STANDARD_CODES.get(usize::from(number))?;
                (*code, rest) = (Code::standard_bytes(class, slot), behind);
                continue;
            }
            let counts = rest.first_chunk::<COUNTS_BYTES>()?;
            let n_symbols: usize = counts.iter().map(|&n| usize::from(n)).sum();
            (*code, rest) =
                rest.split_at_checked(COUNTS_BYTES.checked_add(n_symbols)?)?;
        }
        let (checks, points) = (&[][..], &[][..]);
        let mut note =
            Self { header, components, steps, n_steps, codes, n_codes, checks, points };
        let [across, down] = note.n_mcus()?;
        let n_checks = down.div_ceil(usize::from(header[26]));
        (note.checks, rest) = split::<4>(rest, n_checks)?;
        let n_points = per_row(across, note.step()).checked_mul(down)?.checked_add(1)?;
        (note.points, rest) = split::<8>(rest, n_points)?;
        rest.is_empty().then_some(note)
    }

    pub(crate) fn points(self) -> &'a [[u8; 8]] {
        self.points
    }

    /// MCUs from one entry point to the next.
    pub(crate) fn step(self) -> usize {
        let side = |n: u8| usize::from(n & 15);
        let blocks =
            self.components.iter().map(|c| side(c[0]).saturating_mul(side(c[1])));
        step_mcus(self.short(24).into(), blocks.sum())
    }

    fn size(self) -> Size {
        Size { height: self.short(8).into(), width: self.short(10).into() }
    }

    /// MCUs across and down; `None` where the factors are none.
    fn n_mcus(self) -> Option<[usize; 2]> {
        let is_factor = |n: u8| (1..=4).contains(&n);
        if !self.components.iter().all(|c| is_factor(c[0]) && is_factor(c[1])) {
            return None;
        }
        let most = |nth: usize| self.components.iter().map(|c| usize::from(c[nth])).max();
        let Size { height, width } = self.size();
        Some([
            (width as usize).div_ceil(most(0)?.checked_mul(frame::BLOCK)?),
            (height as usize).div_ceil(most(1)?.checked_mul(frame::BLOCK)?),
        ])
    }

    fn short(self, at: usize) -> u16 {
        let bytes = self.header[at..].first_chunk().expect("within the header");
        u16::from_le_bytes(*bytes)
    }

    fn number(self, at: usize) -> u32 {
        let bytes = self.header[at..].first_chunk().expect("within the header");
        u32::from_le_bytes(*bytes)
    }

    /// Where the scan's data begin in the record, in bytes.
    pub(crate) fn data_at(self) -> u32 {
        self.number(16)
    }

    /// MCUs between restarts; 0: there are none.
    pub(crate) fn restart_interval(self) -> u32 {
        self.number(20)
    }

    /// The component in this place of the scan.
    pub(crate) fn component_at(self, place: usize) -> Option<usize> {
        self.components.iter().position(|c| usize::from(c[3]) == place)
    }

    /// The quantisation steps of a component, row by row.
    pub(crate) fn steps(self, component: usize) -> Option<[u16; 64]> {
        let table = usize::from(self.components.get(component)?[2]);
        let table = self.steps[..self.n_steps].get(table)?;
        let (pairs, _) = table.as_chunks();
        let is_narrow = table.len() == 64;
        Some(std::array::from_fn(|k| match is_narrow {
            true => table[k].into(),
            false => u16::from_le_bytes(pairs[k]),
        }))
    }

    /// The codes of a component: DC, AC.
    pub(crate) fn codes(self, component: usize) -> Option<[Code; 2]> {
        let &[.., dc, ac] = self.components.get(component)?;
        let code = |nth: u8| {
            let bytes = self.codes[..self.n_codes].get(usize::from(nth))?;
            Code::read(bytes).ok().map(|(code, _)| code)
        };
        Some([code(dc)?, code(ac)?])
    }

    /// Bytes of the scan's data and their checksum, for each checksum that one of these rows of MCUs has a
    /// share in; `None` in place of what the note does not have.
    pub(crate) fn checks(
        self,
        rows: Range<usize>,
    ) -> Option<impl Iterator<Item = Option<(Range<usize>, u32)>>> {
        let [across, down] = self.n_mcus()?;
        let (per_row, per_check) =
            (per_row(across, self.step()), usize::from(self.header[26]).max(1));
        let point = move |row: usize| {
            let packed = self.points.get(row.min(down).checked_mul(per_row)?)?;
            Some(FilePoint::unpack(u64::from_le_bytes(*packed)))
        };
        let groups = rows.start.div_euclid(per_check)..rows.end.div_ceil(per_check);
        Some(groups.map(move |group| {
            let first = group.checked_mul(per_check)?;
            let bytes =
                checked_range(point(first)?, point(first.checked_add(per_check)?)?);
            Some((bytes, u32::from_le_bytes(*self.checks.get(group)?)))
        }))
    }

    /// The frame, held against the rules.
    pub(crate) fn frame(self) -> Option<Frame> {
        let size = self.size();
        let size = check_size(size.height as usize, size.width as usize).ok()?;
        let colour = [Colour::Grey, Colour::YCbCr, Colour::Rgb];
        let colour = *colour.get(usize::from(self.header[12]))?;
        let n_components = if colour == Colour::Grey { 1 } else { MAX_COMPONENTS };
        // A lone component's factors mean nothing, and are written as 1.
        let are_factors_told =
            n_components > 1 || self.components.iter().all(|c| c[..2] == [1, 1]);
        if self.components.len() != n_components || !are_factors_told {
            return None;
        }
        let mut components = [frame::Component::default(); MAX_COMPONENTS];
        for (component, &[h, v, table, ..]) in components.iter_mut().zip(self.components)
        {
            *component =
                frame::Component { id: 0, h: h.into(), v: v.into(), table: table.into() };
        }
        let components = &components[..n_components];
        let mut frame = Frame::new(size, Process::Sequential, components).ok()?;
        frame.model = colour;
        Some(frame)
    }

    /// All that it says, held against the rules of a file.
    fn described(self) -> Option<ScanNote<'a>> {
        let frame = self.frame()?;
        let blocks = frame.components().iter().map(|c| c.h.saturating_mul(c.v));
        let n_blocks: usize = blocks.sum();
        // Also of codes that no component names: whoever decodes elsewhere makes a table of each.
        for bytes in &self.codes[..self.n_codes] {
            check_code(Class::Ac, &Code::read(bytes).ok()?.0).ok()?;
        }
        let mut places = 0_u8;
        for &[_, _, table, place, dc, ac] in self.components {
            places |= 1_u8.checked_shl(place.into())?;
            let code = |nth: u8, class| {
                let bytes = self.codes[..self.n_codes].get(usize::from(nth));
                let (code, _) = Code::read(bytes?).ok()?;
                check_code(class, &code).ok()
            };
            code(dc, Class::Dc)?;
            code(ac, Class::Ac)?;
            self.steps[..self.n_steps].get(usize::from(table))?;
        }
        let is_in_scan = |place: usize| places >> place & 1 == 1;
        let are_all_in_scan = (0..self.components.len()).all(is_in_scan);
        (n_blocks <= MAX_MCU_BLOCKS && are_all_in_scan)
            .then_some(ScanNote { note: self, frame })
    }
}

impl<'a> ScanNote<'a> {
    /// Reads a note; `None` for one of entry points alone, or that breaks a rule.
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        Note::read(bytes)?.described()
    }

    /// Rows and columns of the image.
    #[must_use]
    pub fn size(&self) -> Size {
        self.frame.size
    }

    pub(crate) fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Where the scan's data begin in the record, in bytes.
    #[must_use]
    pub fn data_at(&self) -> u32 {
        self.note.data_at()
    }

    /// MCUs between restarts; 0: there are none.
    #[must_use]
    pub fn restart_interval(&self) -> u32 {
        self.note.restart_interval()
    }

    /// MCUs from one entry point of a row to the next.
    #[must_use]
    pub fn step(&self) -> usize {
        self.note.step()
    }

    /// Entry points of a row of MCUs.
    #[must_use]
    pub fn points_per_row(&self) -> usize {
        per_row(self.frame.n_mcus()[0], self.step())
    }

    /// Entry point number `nth`, row by row; after the last row's comes the scan's end.
    #[must_use]
    pub fn point(&self, nth: usize) -> Option<ScanPoint> {
        let packed = u64::from_le_bytes(*self.note.points.get(nth)?);
        let FilePoint { byte, bit, .. } = FilePoint::unpack(packed);
        Some(ScanPoint { byte, is_within: bit > 0, packed })
    }

    /// Rows of MCUs that share a checksum.
    #[must_use]
    pub fn rows_per_check(&self) -> usize {
        self.note.header[26].into()
    }

    /// The checksum that row `mcu_row` of MCUs has a share in.
    #[must_use]
    pub fn check(&self, mcu_row: usize) -> Option<u32> {
        let check = self.note.checks.get(mcu_row.checked_div(self.rows_per_check())?);
        check.map(|check| u32::from_le_bytes(*check))
    }

    /// The blocks of an MCU, in the order of the scan.
    pub fn blocks(&self) -> impl Iterator<Item = ScanBlock> {
        let scan = (0..self.note.components.len())
            .filter_map(|place| self.note.component_at(place));
        scan.flat_map(|component| {
            let [h, v, _, place, dc, ac] =
                self.note.components[component].map(usize::from);
            let places = (0..v).flat_map(move |y| (0..h).map(move |x| [x, y]));
            let codes = [dc, ac];
            places.map(move |at| ScanBlock { component, place: at, dc: place, codes })
        })
    }

    /// The quantisation steps of a component, row by row.
    ///
    /// # Panics
    /// When there is no such component.
    #[must_use]
    pub fn steps(&self, component: usize) -> [u16; 64] {
        self.note.steps(component).expect("a component of the image")
    }

    /// The Huffman codes, by the numbers that blocks name.
    pub fn codes(&self) -> impl ExactSizeIterator<Item = ScanCode<'a>> + use<'a> {
        let (codes, n_codes) = (self.note.codes, self.note.n_codes);
        (0..n_codes).map(move |nth| {
            // Found with its counts.
            let (counts, symbols) =
                codes[nth].split_first_chunk().unwrap_or((&[0; COUNTS_BYTES], &[]));
            ScanCode { counts, symbols }
        })
    }
}

/// MCUs from one entry point to the next where these are `blocks` apart.
pub(crate) fn step_mcus(blocks: usize, blocks_per_mcu: usize) -> usize {
    blocks.checked_div(blocks_per_mcu).unwrap_or(blocks).max(1)
}

fn split<const N: usize>(bytes: &[u8], n: usize) -> Option<(&[[u8; N]], &[u8])> {
    let (own, rest) = bytes.split_at_checked(n.checked_mul(N)?)?;
    Some((own.as_chunks().0, rest))
}

/// A component as a note has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoteComponent<'a> {
    pub(crate) h: usize,
    pub(crate) v: usize,
    pub(crate) steps: &'a [u16; 64],
    /// Its place in the scan.
    pub(crate) place: usize,
    pub(crate) codes: [&'a Code; 2],
}

/// What a note consists of, besides its entry points.
#[derive(Debug)]
pub(crate) struct NewNote<'a> {
    pub(crate) frame: &'a Frame,
    /// In the frame's order.
    pub(crate) components: &'a [NoteComponent<'a>],
    pub(crate) restart_interval: u32,
    /// Where the scan's data begin in the record, and the record from there on.
    pub(crate) data_at: usize,
    pub(crate) data: &'a [u8],
}

impl NewNote<'_> {
    /// Writes the note to `out`; leaves it empty where something does not fit.
    pub(crate) fn write(&self, points: &[u64], out: &mut Vec<u8>) {
        out.clear();
        if self.try_write(points, out).is_none() {
            out.clear();
        }
    }

    fn try_write(&self, points: &[u64], out: &mut Vec<u8>) -> Option<()> {
        let frame = self.frame;
        let mut tables = Known::<[u16; 64], MAX_COMPONENTS>::default();
        let mut codes = Known::<Code, MAX_CODES>::default();
        let mut components = [[0; COMPONENT_BYTES]; MAX_COMPONENTS];
        for (place, component) in components.iter_mut().zip(self.components) {
            let table = tables.number_of(component.steps)?;
            let [dc, ac] = component.codes.map(|code| codes.number_of(code));
            let small = |n: usize| u8::try_from(n).ok();
            let [h, v] = [small(component.h)?, small(component.v)?];
            *place = [h, v, table, small(component.place)?, dc?, ac?];
        }
        let [_, down] = frame.n_mcus();
        let per_row = points.len().checked_sub(1)?.checked_div(down)?;
        let end = FilePoint::unpack(*points.last()?).byte;
        let rows = CHECK_BYTES.checked_mul(down)?.div_ceil(end.max(1)).clamp(1, 255);
        out.extend(MAGIC);
        out.extend(u16::try_from(frame.size.height).ok()?.to_le_bytes());
        out.extend(u16::try_from(frame.size.width).ok()?.to_le_bytes());
        out.push(frame.model as u8);
        let lens = [self.components.len(), tables.len, codes.len];
        out.extend(lens.map(|n| u8::try_from(n).unwrap_or(u8::MAX)));
        out.extend(u32::try_from(self.data_at).ok()?.to_le_bytes());
        out.extend(self.restart_interval.to_le_bytes());
        out.extend(u16::try_from(STEP_BLOCKS).ok()?.to_le_bytes());
        out.extend([u8::try_from(rows).ok()?, 0]);
        out.extend(components[..self.components.len()].as_flattened());
        tables.items.iter().flatten().for_each(|table| write_steps(table, out));
        codes.items.iter().flatten().for_each(|code| write_code(code, out));
        for row in (0..down).step_by(rows) {
            let [from, to] = [row, row.saturating_add(rows).min(down)].map(|row| {
                let point = points.get(row.checked_mul(per_row)?)?;
                Some(FilePoint::unpack(*point))
            });
            let bytes = self.data.get(checked_range(from?, to?))?;
            out.extend(short_checksum(bytes).to_le_bytes());
        }
        out.extend(points.iter().flat_map(|point| point.to_le_bytes()));
        Some(())
    }
}

fn write_steps(table: &[u16; 64], out: &mut Vec<u8>) {
    let [low, high] = [0, 1].map(|half| table.map(|step| step.to_le_bytes()[half]));
    if high == [0; 64] {
        out.push(1);
        out.extend(low);
    } else {
        out.push(2);
        out.extend(table.iter().flat_map(|step| step.to_le_bytes()));
    }
}

fn write_code(code: &Code, out: &mut Vec<u8>) {
    let begin = out.len();
    let n_symbols: usize = code.counts.iter().map(|&n| usize::from(n)).sum();
    out.extend(code.counts);
    out.extend(&code.symbols[..n_symbols]);
    let is_it = |&(class, slot): &(Class, usize)| {
        out[begin..] == *Code::standard_bytes(class, slot)
    };
    if let Some(number) = STANDARD_CODES.iter().position(is_it) {
        out.truncate(begin);
        out.extend([STANDARD, u8::try_from(number).unwrap_or(u8::MAX)]);
    }
}

/// The bytes of the file that lie between two entry points, from the start of the scan's data.
fn checked_range(from: FilePoint, to: FilePoint) -> Range<usize> {
    from.byte..to.byte.saturating_add(usize::from(to.bit > 0))
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
pub(crate) fn short_checksum(bytes: &[u8]) -> u32 {
    XxHash3_64::oneshot(bytes) as u32
}

/// Things that differ, by their numbers.
#[derive(Debug)]
struct Known<'a, T, const N: usize> {
    items: [Option<&'a T>; N],
    len: usize,
}

impl<T, const N: usize> Default for Known<'_, T, N> {
    fn default() -> Self {
        Self { items: [None; N], len: 0 }
    }
}

impl<'a, T: PartialEq, const N: usize> Known<'a, T, N> {
    /// The number of `item`, a new one where it is new; `None` where there is no room for it.
    fn number_of(&mut self, item: &'a T) -> Option<u8> {
        let same = |other: &Option<&T>| other.is_some_and(|other| other == item);
        let nth = self.items.iter().position(same).unwrap_or(self.len);
        *self.items.get_mut(nth)? = Some(item);
        self.len = self.len.max(nth.saturating_add(1));
        u8::try_from(nth).ok()
    }
}
