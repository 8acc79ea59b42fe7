//! From a file to planes: the one place that knows the order of the steps.
//!
//! Five ways lead to the same planes. A sequential file with its components in one scan is
//! decoded *straight* through (`entropy/whole.rs`) and leaves entry points behind; with entry points
//! it is decoded where the region lies only, two rows at a time, and its note will do in place of the rest of the
//! file (`decoder/noted.rs`); anything else (progressive, several scans) goes through the coefficients of the whole
//! image (`entropy/progressive.rs`). And a store has the coefficients already (`decoder/stored.rs`).
//! Without entry points the whole scan is read, whatever the region: a sample is good or bad
//! by its file, not by the crop that was drawn.

mod noted;
mod stored;

pub use self::noted::Noted;

use std::ops::Range;

use super::block::BlockRow;
use super::coefficients::Coefficients;
use super::entropy::bits::{ScanData, n_restarts, places};
use super::entropy::entry_points::{Builder, EntryPoints};
use super::entropy::lookup::Lookup;
use super::entropy::note::{NewNote, NoteComponent};
use super::entropy::point::{FilePoint, per_row};
use super::entropy::progressive::Scans;
use super::entropy::sequential::{
    BlockCodes, BrokenLane, EntryPoint, Lane, Scan, run_one, run_two,
};
use super::entropy::whole::{DecodedRow, Guessing, TakeRows, Whole};
use super::file::Opened;
use super::file::code::Class;
use super::file::frame::{self, ColourModel, Frame, MAX_MCU_BLOCKS, Process};
use super::file::header::{self, Next};
use super::planes::{Chroma, McuBox, Plane, Region};
use super::transform::idct::Steps;
use super::{Broken, damaged};
use crate::error::SampleFault;
use crate::kernels::Level;

/// How far a sample is made. Only benchmarks stop early: what a stage takes is the difference
/// of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Headers are read; tables of codes and of resize weights are made.
    Tables,
    /// Entropy-coded data are coefficients.
    Entropy,
    /// Coefficients are planes.
    Planes,
    /// Planes are a sample.
    Sample,
}

/// Decodes files, one after the other; keeps its memory.
#[derive(Debug)]
pub struct Decoder {
    level: Level,
    /// [`Stage::Sample`], but while a benchmark runs.
    pub(crate) until: Stage,
    /// The default, except in tests.
    pub(crate) guessing: Guessing,
    pub(super) data: ScanData,
    /// By slot: the code of DC and that of AC.
    pub(super) codes: Box<[[Lookup; 2]; 4]>,
    pub(super) lanes: [Lane; 2],
    /// Memory for progressive files, as soon as there was one.
    pub(super) scans: Option<Box<Scans>>,
    planes: [Plane; 4],
    n_planes: usize,
    /// What the planes of the last image are.
    pub(super) model: ColourModel,
    pub(super) points: Builder,
    spans: Vec<Span>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new(Level::of_process())
    }
}

impl Decoder {
    /// A decoder that uses the kernels of `level`.
    #[must_use]
    pub fn new(level: Level) -> Self {
        Self {
            level,
            until: Stage::Sample,
            guessing: Guessing::default(),
            data: ScanData::default(),
            codes: Default::default(),
            lanes: Default::default(),
            scans: None,
            planes: Default::default(),
            n_planes: 0,
            model: ColourModel::Grey,
            points: Builder::default(),
            spans: Vec::new(),
        }
    }

    /// The planes of the last image, one for each component.
    #[must_use]
    pub fn planes(&self) -> &[Plane] {
        &self.planes[..self.n_planes]
    }

    /// The kernels used.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// The entry points of the last image in their stored form, if it was decoded without
    /// and can have some; else empty.
    #[must_use]
    pub fn entry_points(&self) -> &[u8] {
        self.points.stored()
    }

    /// Gives back every buffer of more than `keep_bytes`; the bytes of those that it keeps.
    pub(crate) fn release_above(&mut self, keep_bytes: usize) -> usize {
        let lanes = self.lanes.iter_mut().map(|lane| lane.row.release_above(keep_bytes));
        let planes = self.planes.iter_mut().map(|plane| plane.release_above(keep_bytes));
        let scans = self.scans.iter_mut().map(|scans| scans.release_above(keep_bytes));
        self.data.release_above(keep_bytes)
            + lanes.chain(planes).chain(scans).sum::<usize>()
    }

    /// Decodes what `region` needs into [`Self::planes`]. With entry points that fit, only
    /// that is read; with others, or none, all of the file.
    ///
    /// # Errors
    /// [`SampleFault`] when the file is damaged or of a kind that is refused by name.
    pub fn decode(
        &mut self,
        mut file: Opened<'_>,
        region: &Region,
        chroma: Chroma,
        entry_points: Option<EntryPoints<'_>>,
    ) -> Result<(), SampleFault> {
        let mcus = McuBox::of(&file.frame, region, chroma);
        self.n_planes = file.frame.components().len();
        self.model = file.frame.model;
        self.points.clear();
        let is_whole = file.scan.components().len() == self.n_planes;
        if file.frame.process == Process::Sequential && is_whole {
            let kind = ScanKind::new(&file)?;
            self.set_codes(&file, &file.scan)?;
            if self.until == Stage::Tables {
                return Ok(());
            }
            if let Some(points) = entry_points
                && let Some(bytes) = file.bytes.get(file.scan.data..)
            {
                let restart_interval = file.segments.tables.restart_interval;
                let scan =
                    ScanBytes { frame: &file.frame, bytes, from: 0, restart_interval };
                if self.decode_from(points, &scan, &kind, &mcus).is_ok() {
                    return Ok(());
                }
            }
            return self.decode_straight(&mut file, &kind, &mcus);
        }
        if self.until == Stage::Tables {
            return Ok(());
        }
        let mut scans = self.scans.take().unwrap_or_default();
        let decoded = scans.decode(&mut file);
        if let Ok(steps) = &decoded
            && self.until > Stage::Entropy
        {
            self.set_planes(&file.frame, &mcus);
            self.transform_all(&scans.coefficients, &file.frame, steps, &mcus);
        }
        self.scans = Some(scans);
        decoded.map(|_| ())
    }

    /// Makes the tables that a sequential scan of `file` is decoded with.
    pub(super) fn set_codes(
        &mut self,
        file: &Opened<'_>,
        scan: &header::Scan,
    ) -> Result<(), SampleFault> {
        if (scan.band, scan.approximation) != ([0, 63], [0, 0]) {
            return Err(damaged("a sequential scan of a part of the coefficients"));
        }
        for (place, component) in scan.components().iter().enumerate() {
            let tables = &file.segments.tables;
            let [dc, ac] = &mut self.codes[place];
            dc.set(Class::Dc, &tables.code(Class::Dc, component.dc_table)?)?;
            ac.set(Class::Ac, &tables.code(Class::Ac, component.ac_table)?)?;
        }
        Ok(())
    }

    /// Planes of `frame` are to be made, as far as `mcus` go.
    pub(super) fn begin(&mut self, frame: &Frame, mcus: &McuBox) {
        (self.n_planes, self.model) = (frame.components().len(), frame.model);
        self.set_planes(frame, mcus);
    }

    fn set_planes(&mut self, frame: &Frame, mcus: &McuBox) {
        for (component, plane) in self.planes[..self.n_planes].iter_mut().enumerate() {
            plane.set(frame, component, mcus);
        }
    }

    /// All of the scan, from its first bit to its last.
    fn decode_straight(
        &mut self,
        file: &mut Opened<'_>,
        kind: &ScanKind,
        mcus: &McuBox,
    ) -> Result<(), SampleFault> {
        let restart_interval = self.take_only_scan(file, kind)?;
        self.set_planes(&file.frame, mcus);
        let blocks = kind.codes(&self.codes);
        let whole = Whole {
            level: self.level,
            scan: Scan::new(&self.data, &blocks[..kind.n_blocks], restart_interval),
            end: 8 * self.data.len() as u64,
            size: file.frame.n_mcus(),
            guessing: self.guessing,
        };
        let mut planes = ToPlanes {
            level: self.level,
            mcus: if self.until > Stage::Entropy { Some(mcus) } else { None },
            kind,
            points: &mut self.points,
            planes: &mut self.planes,
        };
        whole.read(&mut self.lanes, &mut planes)?;
        self.note_points(file, kind, restart_interval);
        Ok(())
    }

    /// Makes a note of the entry points of the scan that was just decoded.
    fn note_points(&mut self, file: &Opened<'_>, kind: &ScanKind, restart_interval: u32) {
        let frame = &file.frame;
        let tables = kind.parts.map(|part| part.steps.table());
        let mut components = [None; 4];
        for (place, part) in kind.parts().iter().enumerate() {
            let [dc, ac] = &self.codes[place];
            components[part.component] = Some(NoteComponent {
                h: part.h,
                v: part.v,
                steps: &tables[place],
                place,
                codes: [dc.code(), ac.code()],
            });
        }
        // There is no note of four components; of others all are there.
        let [Some(first), second, third, None] = components else { return };
        let all = [first, second.unwrap_or(first), third.unwrap_or(first)];
        let origin = file.scan.data;
        let note = NewNote {
            frame,
            components: &all[..kind.n_parts],
            restart_interval,
            data_at: origin,
            data: file.bytes.get(origin..).unwrap_or_default(),
        };
        let mut place = places(file.bytes, origin);
        self.points.finish(&note, |byte| place(byte) - origin);
    }

    /// Takes the data of the scan that holds all components, and reads on to the end of the file;
    /// the scan's restart interval. Tables that come behind a scan are not for it.
    pub(super) fn take_only_scan(
        &mut self,
        file: &mut Opened<'_>,
        kind: &ScanKind,
    ) -> Result<u32, SampleFault> {
        let restart_interval = file.segments.tables.restart_interval;
        let [across, down] = file.frame.n_mcus();
        let n_mcus = across * down;
        let due = n_restarts(n_mcus, restart_interval);
        let behind = self.data.set(file.bytes, file.scan.data, due)?;
        file.segments.at = behind;
        if let Next::Scan(_) = file.segments.next()? {
            return Err(damaged("a scan after the one that held all components"));
        }
        // A block takes two bits or more: no memory for blocks that cannot be there.
        if n_mcus * kind.n_blocks > self.data.len() * 4 {
            return Err(damaged("there are too few bytes for its size"));
        }
        Ok(restart_interval)
    }

    /// The part of the scan that `mcus` lie in, two rows at a time. Whatever is wrong, the
    /// straight way will tell.
    fn decode_from(
        &mut self,
        points: EntryPoints<'_>,
        bytes: &ScanBytes<'_>,
        kind: &ScanKind,
        mcus: &McuBox,
    ) -> Result<(), Broken> {
        self.gather(points, bytes, mcus)?;
        self.set_planes(bytes.frame, mcus);
        let blocks = kind.codes(&self.codes);
        let restart_interval = bytes.restart_interval;
        let scan = Scan::new(&self.data, &blocks[..kind.n_blocks], restart_interval);
        let first = mcus.across.start % points.step();
        let n_mcus = first + mcus.across.len();
        let mut waiting = self.spans.iter();
        let mut at_work = [None; 2];
        loop {
            for (lane, span) in self.lanes.iter_mut().zip(&mut at_work) {
                if span.is_none()
                    && let Some(next) = waiting.next()
                {
                    lane.enter(&scan, next.from, next.mcu, next.end);
                    lane.pass_restarts(next.restarts);
                    lane.begin_row(&scan, n_mcus);
                    lane.begin(&scan, n_mcus)?;
                    *span = Some(next);
                }
            }
            let [a, b] = &mut self.lanes;
            match at_work {
                [Some(_), Some(_)] => {
                    run_two(self.level, &scan, [a, b]).map_err(|_: BrokenLane| Broken)?;
                }
                [Some(_), None] => run_one(self.level, &scan, a)?,
                [None, Some(_)] => run_one(self.level, &scan, b)?,
                [None, None] => return Ok(()),
            }
            for (lane, at_work) in self.lanes.iter().zip(&mut at_work) {
                if let Some(span) = at_work.take_if(|_| lane.is_done()) {
                    span.check(lane.place())?;
                    if lane.has_stray_restart(&scan) {
                        return Err(Broken);
                    }
                    if self.until == Stage::Entropy {
                        continue;
                    }
                    let row = DecodedRow { y: span.y, blocks: &lane.row, from: 0 };
                    let part = RowPart { row, y: span.y, first };
                    kind.transform(self.level, &part, mcus, &mut self.planes);
                }
            }
        }
    }

    /// Collects the data of the MCU rows of `mcus`, from the entry point before the first MCU
    /// wanted to the one after the last.
    fn gather(
        &mut self,
        points: EntryPoints<'_>,
        bytes: &ScanBytes<'_>,
        mcus: &McuBox,
    ) -> Result<(), Broken> {
        let [across, down] = bytes.frame.n_mcus();
        let step = points.step();
        let per_row = per_row(across, step);
        if points.len() != per_row * down + 1 {
            return Err(Broken);
        }
        self.data.clear();
        self.spans.clear();
        for y in mcus.down.clone() {
            let first = mcus.across.start / step;
            let last = mcus.across.end.div_ceil(step);
            let from = points.get(y * per_row + first).ok_or(Broken)?;
            let to = points.get(y * per_row + last).ok_or(Broken)?;
            let range = bytes.get(from.byte..to.byte + usize::from(to.bit > 0))?;
            let restarts = self.data.restarts().len();
            // Without its stuffing, which the file's own length counts.
            let range = self.data.push_range(range);
            // Points that run backwards by a byte still make an empty range.
            let n_whole =
                range.len().checked_sub(usize::from(to.bit > 0)).ok_or(Broken)?;
            let whole_bytes = range.start + n_whole;
            let end = whole_bytes as u64 * 8 + u64::from(to.bit);
            // Restarts change the DC, and leave bits behind that belong to no MCU.
            let is_exact =
                mcus.across.end.is_multiple_of(step) || mcus.across.end == across;
            let is_exact = is_exact && bytes.restart_interval == 0;
            self.spans.push(Span {
                y: y - mcus.down.start,
                mcu: (y * across + first * step) as u64,
                from: point(from, range.start as u64 * 8 + u64::from(from.bit)),
                end,
                restarts,
                to: is_exact.then(|| point(to, end)),
            });
        }
        self.data.seal();
        Ok(())
    }

    pub(super) fn transform_all(
        &mut self,
        coefficients: &Coefficients,
        frame: &Frame,
        steps: &[Steps; 4],
        mcus: &McuBox,
    ) {
        for (component, plane) in self.planes[..self.n_planes].iter_mut().enumerate() {
            let c = frame.components()[component];
            for y in 0..mcus.down.len() * c.v {
                let blocks = coefficients.block_row(
                    component,
                    mcus.down.start * c.v + y,
                    mcus.across.start * c.h..mcus.across.end * c.h,
                );
                plane.transform(self.level, y, blocks, &steps[component]);
            }
        }
    }
}

/// Data of a scan as a file has them.
struct ScanBytes<'a> {
    frame: &'a Frame,
    bytes: &'a [u8],
    /// Where the first of them lies among the scan's data.
    from: usize,
    /// MCUs between restarts; 0: there are none.
    restart_interval: u32,
}

impl<'a> ScanBytes<'a> {
    /// The bytes in these places of the scan's data.
    fn get(&self, places: Range<usize>) -> Result<&'a [u8], Broken> {
        let own = |place: usize| place.checked_sub(self.from);
        let range = own(places.start).zip(own(places.end)).ok_or(Broken)?;
        self.bytes.get(range.0..range.1).ok_or(Broken)
    }
}

fn point(point: FilePoint, position: u64) -> EntryPoint {
    let [a, b, c] = point.dc;
    EntryPoint { position, dc: [a, b, c, 0] }
}

/// Makes planes of a whole scan, and notes its entry points.
struct ToPlanes<'a> {
    level: Level,
    /// Those that are wanted.
    mcus: Option<&'a McuBox>,
    kind: &'a ScanKind,
    points: &'a mut Builder,
    planes: &'a mut [Plane; 4],
}

impl TakeRows for ToPlanes<'_> {
    fn wants(&self, y: usize) -> bool {
        self.mcus.is_some_and(|mcus| mcus.down.contains(&y))
    }

    fn point(&mut self, point: EntryPoint) {
        self.points.push(point);
    }

    fn row(&mut self, row: DecodedRow<'_>) -> Result<(), SampleFault> {
        if let Some(mcus) = self.mcus {
            let y = row.y - mcus.down.start;
            let part = RowPart { y, first: mcus.across.start, row };
            self.kind.transform(self.level, &part, mcus, self.planes);
        }
        Ok(())
    }
}

/// What a lane decodes between two entry points.
#[derive(Debug, Clone, Copy)]
struct Span {
    /// The row of MCUs, counted from the first one wanted.
    y: usize,
    /// The first MCU's number in the scan.
    mcu: u64,
    from: EntryPoint,
    /// The first bit behind.
    end: u64,
    /// Restart markers before it, among those of the data.
    restarts: usize,
    /// Where decoding must have led to, if that is known.
    to: Option<EntryPoint>,
}

impl Span {
    fn check(&self, reached: EntryPoint) -> Result<(), Broken> {
        if self.to.is_some_and(|to| to != reached) { Err(Broken) } else { Ok(()) }
    }
}

/// How the MCUs of a scan of all components are made up.
#[derive(Debug)]
pub(super) struct ScanKind {
    /// For each component, in the order of the scan.
    parts: [Part; 4],
    n_parts: usize,
    pub(super) n_blocks: usize,
}

/// One component's blocks in an MCU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) component: usize,
    /// The first of them.
    pub(super) first: usize,
    pub(super) h: usize,
    pub(super) v: usize,
    steps: Steps,
}

/// A decoded row of MCUs.
struct RowPart<'a> {
    row: DecodedRow<'a>,
    /// Its number, counted from the first one wanted.
    y: usize,
    /// MCUs before the first one wanted.
    first: usize,
}

impl ScanKind {
    pub(super) fn new(file: &Opened<'_>) -> Result<Self, SampleFault> {
        Self::of(file.scan.components().iter().map(|selected| {
            let c = file.frame.components()[selected.component];
            Ok((selected.component, c, file.segments.tables.steps(c.table)?))
        }))
    }

    /// Of components in the order of the scan, by their numbers; at most four.
    fn of(
        components: impl Iterator<
            Item = Result<(usize, frame::Component, [u16; 64]), SampleFault>,
        >,
    ) -> Result<Self, SampleFault> {
        let none = Part { component: 0, first: 0, h: 0, v: 0, steps: Steps::ZERO };
        let mut kind = Self { parts: [none; 4], n_parts: 0, n_blocks: 0 };
        for next in components {
            let (component, c, steps) = next?;
            let (first, steps) = (kind.n_blocks, Steps::new(&steps));
            let part = Part { component, first, h: c.h, v: c.v, steps };
            kind.parts[kind.n_parts] = part;
            kind.n_parts += 1;
            kind.n_blocks += c.h * c.v;
        }
        if kind.n_parts > 1 && kind.n_blocks > MAX_MCU_BLOCKS {
            return Err(damaged("more than 10 blocks in an MCU"));
        }
        Ok(kind)
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts[..self.n_parts]
    }

    /// The codes of an MCU's blocks; the first `n_blocks` are meant.
    pub(super) fn codes<'a>(
        &self,
        codes: &'a [[Lookup; 2]; 4],
    ) -> [BlockCodes<'a>; MAX_MCU_BLOCKS] {
        std::array::from_fn(|block| {
            let is_of = |part: &Part| block < part.first + part.h * part.v;
            let place = self.parts().iter().position(is_of).unwrap_or(0);
            let [dc, ac] = &codes[place];
            BlockCodes { dc, ac, component: place }
        })
    }

    /// Makes samples of a decoded row of MCUs.
    fn transform(
        &self,
        level: Level,
        part: &RowPart<'_>,
        mcus: &McuBox,
        planes: &mut [Plane; 4],
    ) {
        for &Part { component, first, h, v, steps } in self.parts() {
            for row in 0..v {
                let blocks = BlockRow {
                    row: part.row.blocks,
                    in_mcu: part.row.from + first + row * h,
                    across: h,
                    per_mcu: self.n_blocks,
                    first: part.first * h,
                    n_blocks: mcus.across.len() * h,
                };
                planes[component].transform(level, part.y * v + row, blocks, &steps);
            }
        }
    }
}
