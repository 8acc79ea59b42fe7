//! Crops of plain JPEGs: the rows of MCUs that one needs, as its note in the side index tells.
//!
//! A note has been held against its checksum, but whoever wrote it may have lied: entry points are
//! looked at here until kernels can follow them without looking. Read `decoder.rs` next.

use std::ops::Range;

use bothends_ops::CropLayout;
use bothends_ops::jpeg::{ScanNote, ScanPoint};
use bothends_ops::resize::Crop;

use crate::lists::number;
use crate::words::{
    BLOCK_TILE, CheckWords, LANE_TILE, LUT_BITS, MAX_MCU_BLOCKS, MAX_SLOTS, PIECE,
    ScanWords, SlotWords, Symbols, TableWords,
};
use crate::{Batch, NotHere, Placed};

/// Most codes longer than a table's index that are worth memory; encoders' tables have some
/// hundreds.
const MOST_LONG_CODES: u32 = 8192;

/// Bytes that are looked at behind a range: whether a 00 follows its last FF.
const AHEAD_BYTES: u64 = 2;

/// Room between the unstuffed rows of a scan, in bytes, and after the last.
const ROW_ROOM: u64 = 16;
const END_ROOM: u64 = 64;

impl Batch {
    /// Adds a crop of a JPEG of `record_bytes` that its note describes; else as
    /// [`Self::add_stored`].
    ///
    /// # Errors
    /// [`NotHere`]; the batch is then as before.
    pub fn add_jpeg(
        &mut self,
        row: u32,
        (note, record_bytes): (&ScanNote<'_>, u32),
        crop: &Crop,
    ) -> Result<Placed, NotHere> {
        let layout = CropLayout::of_note(note, crop).ok_or(NotHere::FourInks)?;
        self.whole(|batch| {
            let rows = Rows::new(note, &layout).ok_or(NotHere::OtherForm)?;
            let placed = batch.place_rows(note, &rows, record_bytes)?;
            let mut words = batch.crop(row, crop, &layout)?;
            for (nth, component) in
                words.components[..words.n_components as usize].iter_mut().enumerate()
            {
                let n_blocks = component.blocks_x * component.blocks_y;
                component.blocks = batch.take(128 * u64::from(n_blocks))?;
                component.steps = batch.steps(&note.steps(nth));
            }
            let n_tiles = (words.n_blocks as usize).div_ceil(BLOCK_TILE);
            words.first_block_tile = number(batch.lists.coefficient_tiles.len());
            words.jpeg = number(batch.lists.scans.len());
            let id = number(batch.len());
            batch.lists.coefficient_tiles.extend(std::iter::repeat_n(id, n_tiles));
            batch.scan(note, &layout, (&rows, placed.at))?;
            batch.lists.crops.push(words);
            Ok(placed)
        })
    }

    /// A place for the bytes of the rows, and their checksums.
    fn place_rows(
        &mut self,
        note: &ScanNote<'_>,
        rows: &Rows,
        record_bytes: u32,
    ) -> Result<Placed, NotHere> {
        let data_at = u64::from(note.data_at());
        let scan_bytes = u64::from(record_bytes).saturating_sub(data_at);
        let Range { start, end } = rows.bytes;
        if end > scan_bytes {
            return Err(NotHere::OtherForm);
        }
        let bytes = start..(end + AHEAD_BYTES).min(scan_bytes);
        let placed = self.place(data_at + bytes.start..data_at + bytes.end)?;
        let crop = number(self.len());
        let per_check = note.rows_per_check();
        for first in rows.checked.clone().step_by(per_check) {
            let last = (first + per_check).min(rows.checked.end);
            let [from, to] =
                [rows.first_point(note, first), rows.first_point(note, last)]
                    .map(|point| point.ok_or(NotHere::OtherForm));
            let range = (from?.byte as u64)..end_of(to?);
            let inside =
                start <= range.start && range.start <= range.end && range.end <= end;
            let sum = note.check(first).filter(|_| inside).ok_or(NotHere::OtherForm)?;
            let place = |byte: u64| placed.at + number_of_bytes(byte - start);
            self.lists.checks.push(CheckWords {
                crop,
                from: place(range.start),
                to: place(range.end),
                sum,
            });
        }
        Ok(placed)
    }

    /// The scan of a crop whose first uploaded byte lies at `at`.
    fn scan(
        &mut self,
        note: &ScanNote<'_>,
        layout: &CropLayout,
        (rows, at): (&Rows, u32),
    ) -> Result<(), NotHere> {
        let [across, down] = &layout.mcus;
        let step = note.step();
        let [first, end] = [across.start / step, across.end.div_ceil(step)];
        let mut scan = ScanWords {
            crop: number(self.len()),
            // Points count from the scan's first byte, which need not be there.
            data: at.wrapping_sub(number_of_bytes(rows.bytes.start)),
            points: number(self.lists.points.len()),
            segments: number(end - first),
            first_mcu: number(first * step),
            step: number(step),
            mcu_x: number(across.start),
            mcu_end_x: number(across.end),
            rows: number(down.len()),
            restart_interval: note.restart_interval(),
            first_row: number(self.lists.scan_rows.len()),
            ..ScanWords::default()
        };
        let spanned = self.points(note, down.clone(), first..end, &rows.bytes)?;
        let room = (spanned + down.len() as u64 * ROW_ROOM + END_ROOM)
            .next_multiple_of(PIECE as u64);
        scan.words = self.take(room)?;
        scan.n_words = u32::try_from(room / 4).map_err(|_| NotHere::NoRoom)?;
        scan.positions = self.take(4 * u64::from(scan.rows * (scan.segments + 1)))?;
        self.codes(note, &mut scan)?;
        for (place, block) in scan.blocks.iter_mut().zip(note.blocks()) {
            let fields = [
                (block.component, 0),
                (block.place[0], 4),
                (block.place[1], 8),
                (block.codes[0], 12),
                (block.codes[1], 16),
                (block.dc, 20),
            ];
            *place = fields.iter().map(|&(value, at)| number(value) << at).sum();
            scan.n_blocks += 1;
        }
        let id = number(self.lists.scans.len());
        self.lists.scan_rows.extend(std::iter::repeat_n(id, down.len()));
        let n_lanes = (scan.segments * scan.rows) as usize;
        let tiles = 0..number(n_lanes.div_ceil(LANE_TILE));
        self.lists.lanes.extend(tiles.map(|tile| [id, tile]));
        self.lists.scans.push(scan);
        Ok(())
    }

    /// Lists the entry points of some rows; how many bytes lie between the first and the last. They
    /// lie in `bytes`, and none before another that is listed earlier.
    fn points(
        &mut self,
        note: &ScanNote<'_>,
        rows: Range<usize>,
        segments: Range<usize>,
        bytes: &Range<u64>,
    ) -> Result<u64, NotHere> {
        let per_row = note.points_per_row();
        let (mut begin, mut before) = (None, bytes.start);
        for row in rows {
            for segment in segments.start..=segments.end {
                let point =
                    note.point(row * per_row + segment).ok_or(NotHere::OtherForm)?;
                let byte = point.byte as u64;
                begin.get_or_insert(byte);
                if byte < before || end_of(point) > bytes.end {
                    return Err(NotHere::OtherForm);
                }
                before = byte;
                self.lists.points.push(point.packed);
            }
        }
        Ok(before + 1 - begin.unwrap_or(before))
    }

    /// Room for the tables of the scan's codes, and what they are made of.
    fn codes(
        &mut self,
        note: &ScanNote<'_>,
        scan: &mut ScanWords,
    ) -> Result<(), NotHere> {
        for (slot, code) in scan.slots.iter_mut().zip(note.codes()) {
            let (mut next, mut base) = (0_u32, 0);
            for (length, &n) in (1..=16).zip(code.counts) {
                next = (next << 1) + u32::from(n);
                if length == LUT_BITS {
                    base = next << (16 - LUT_BITS);
                }
            }
            let n_long = next.saturating_sub(base);
            if n_long > MOST_LONG_CODES {
                return Err(NotHere::OtherForm);
            }
            let n_entries = u64::from((1 << LUT_BITS) + n_long);
            *slot =
                SlotWords { table: self.take(4 * n_entries)?, base, n_long, unused: 0 };
            let mut symbols = Symbols::default();
            symbols.0[..code.symbols.len()].copy_from_slice(code.symbols);
            self.lists.tables.push(TableWords {
                counts: *code.counts,
                symbols,
                slot: *slot,
            });
            scan.n_slots += 1;
        }
        self.shared.tables = self.shared.tables.max(scan.n_slots * (4 << LUT_BITS));
        Ok(())
    }
}

const _: () = assert!(MAX_SLOTS == 6 && MAX_MCU_BLOCKS == 10, "as notes have");

/// The rows of MCUs that are read for a crop: whole ones, so that they can be held against their
/// checksums.
struct Rows {
    checked: Range<usize>,
    /// From the scan's first byte.
    bytes: Range<u64>,
}

impl Rows {
    fn new(note: &ScanNote<'_>, layout: &CropLayout) -> Option<Self> {
        let [_, down] = &layout.mcus;
        let per_check = note.rows_per_check();
        let end = down.end.next_multiple_of(per_check).min(layout.n_mcus[1]);
        let mut rows =
            Self { checked: down.start / per_check * per_check..end, bytes: 0..0 };
        let first = rows.first_point(note, rows.checked.start)?.byte as u64;
        let end = end_of(rows.first_point(note, rows.checked.end)?);
        rows.bytes = first..end;
        (first <= end).then_some(rows)
    }

    /// The first entry point of a row of MCUs; after the last row, the scan's end.
    fn first_point(&self, note: &ScanNote<'_>, row: usize) -> Option<ScanPoint> {
        note.point(row * note.points_per_row())
    }
}

/// The byte behind what comes before an entry point.
fn end_of(point: ScanPoint) -> u64 {
    point.byte as u64 + u64::from(point.is_within)
}

/// Bytes of a scan: entry points count fewer than 2^25.
fn number_of_bytes(n: u64) -> u32 {
    u32::try_from(n).expect("entry points have 25 bits for it")
}
