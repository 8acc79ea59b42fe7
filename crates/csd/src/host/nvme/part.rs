//! A part of a batch as one execution: what is copied to memory, what is written there, and what is read.

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::sample::Encoding;
use bothends_dataset::Table;
use bothends_nvme::commands::{
    BlockSource, Blocks, ByteSource, CopyToBlocks, Execute, FastOnly, Memory,
    SourceFormat,
};
use bothends_nvme::host::Content;
use bothends_nvme::preprocess::{Groups, Head, Item, Kind, Part as Place};
use bothends_nvme::{Data, Sqe};
use bothends_slots::Job;

use super::drive::Drive;
use super::lanes::{Layout, samples_at};
use super::media::{Media, Span};
use crate::words::address::BlockRange;

/// Most sources of one copy, whose number has 8 bits; and most blocks of a source, whose number has 16.
const MOST_SOURCES: usize = 256;
const MOST_BLOCKS: u32 = 1 << 16;

/// What batches of a session have in common.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) table: Table,
    pub(super) media: Media,
    pub(super) recipe: (String, u128),
    pub(super) seed: u64,
    pub(super) sample_bytes: u32,
    pub(super) layout: Layout,
}

/// One execution.
#[derive(Debug)]
pub(super) struct Part {
    /// The first row of the batch that is made, and how many are.
    pub(super) first_row: usize,
    pub(super) head: Head,
    /// What fills the memory, in any order.
    pub(super) fills: Vec<(Sqe, Content)>,
    /// Bytes that are copied from the media.
    pub(super) media_bytes: u64,
}

/// What comes next of a batch.
#[derive(Debug)]
pub(super) enum Next {
    /// These rows.
    Part(Box<Part>),
    /// The row's record does not fit into the device's memory, or is nowhere.
    Beyond,
}

/// A table under way.
#[derive(Debug)]
struct Draft {
    /// After the head and before the items.
    sides: Vec<u8>,
    items: Vec<Item>,
    sources: Vec<BlockSource>,
    records_end: u64,
}

impl Terms {
    /// The execution for the rows of `job` from `first_row` on, as many as fit into a lane.
    pub(super) fn next(
        &self,
        drive: &Drive,
        (job, first_row): (&Job, usize),
        lane: usize,
    ) -> Next {
        let mut draft = Draft {
            sides: self.recipe.0.as_bytes().to_vec(),
            items: Vec::new(),
            sources: Vec::new(),
            records_end: 0,
        };
        let most = self.layout.most_items as usize;
        for sample in job.samples[first_row..].iter().take(most) {
            if self.add(drive, &mut draft, *sample).is_none() {
                break;
            }
        }
        match draft.items.is_empty() {
            true => Next::Beyond,
            false => Next::Part(Box::new(self.part(
                drive,
                draft,
                (job.epoch, first_row, lane),
            ))),
        }
    }

    /// Adds a sample; `None` where its record is nowhere, or there is no room.
    fn add(&self, drive: &Drive, draft: &mut Draft, sample: SampleId) -> Option<()> {
        let piece = self.table.piece(sample, |_| None);
        let Span { first, n_blocks, offset } = self.media.span(piece.extent)?;
        let block = u64::from(drive.media.1);
        let end = draft.records_end + u64::from(n_blocks) * block;
        if !self.layout.takes(draft.items.len(), end) {
            return None;
        }
        let mut sides = Vec::new();
        let at = |len: usize| u32::try_from(Head::BYTES + draft.sides.len() + len).ok();
        let groups = match self.table.blocks(sample) {
            None => None,
            Some(blocks) => {
                let profile_at = at(0)?;
                sides.extend_from_slice(blocks.profile().bytes());
                let head_at = at(sides.len())?;
                let profile_bytes = u32::try_from(sides.len()).ok()?;
                blocks.head().write(&mut sides);
                let head_bytes = u32::try_from(sides.len()).ok()? - profile_bytes;
                Some(Groups {
                    profile: Place { at: profile_at, bytes: profile_bytes },
                    head: Place { at: head_at, bytes: head_bytes },
                    first: 0,
                })
            }
        };
        let all = Head::BYTES
            + draft.sides.len()
            + sides.len()
            + 8
            + (draft.items.len() + 1) * Item::BYTES;
        if all > self.layout.table as usize {
            return None;
        }
        let record_at = u32::try_from(draft.records_end).ok()?.checked_add(offset)?;
        let checksum = self.table.checksum(sample).filter(|_| groups.is_none());
        draft.items.push(Item {
            sample: sample.0,
            record: Place { at: record_at, bytes: piece.extent.len },
            out_at: 0,
            checksum,
            groups,
        });
        draft.sides.append(&mut sides);
        let mut done = 0;
        while done < n_blocks {
            let n = MOST_BLOCKS.min(n_blocks - done);
            let first = first + u64::from(done);
            let fast_only = FastOnly::No;
            let nsid = drive.blocks;
            draft.sources.push(BlockSource { nsid, first, n_blocks: n, fast_only });
            done += n;
        }
        draft.records_end = end;
        Some(())
    }

    /// An execution of nothing on lane 0, which says whether the program takes the recipe.
    pub(super) fn probe(&self, drive: &Drive) -> Part {
        let draft = Draft {
            sides: self.recipe.0.as_bytes().to_vec(),
            items: Vec::new(),
            sources: Vec::new(),
            records_end: 0,
        };
        self.part(drive, draft, (EpochIdx(0), 0, 0))
    }

    fn part(
        &self,
        drive: &Drive,
        mut draft: Draft,
        (epoch, first_row, lane): (EpochIdx, usize, usize),
    ) -> Part {
        draft.sides.resize(draft.sides.len().next_multiple_of(8), 0);
        // All of these are less than what `add` has held against the ranges.
        let of = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let n_items = draft.items.len() as u64;
        let samples_at = samples_at(n_items);
        let at = u32::try_from(Head::BYTES).unwrap_or(u32::MAX);
        let head = Head {
            kind: kind(self.table.encoding()),
            n_items: of(n_items),
            sample_bytes: self.sample_bytes,
            seed: self.seed,
            epoch: epoch.0,
            recipe_hash: self.recipe.1,
            recipe: Place { at, bytes: of(self.recipe.0.len() as u64) },
            items_at: at + of(draft.sides.len() as u64),
            results_at: 0,
        };
        let mut table = head.bytes().to_vec();
        table.append(&mut draft.sides);
        for (nth, item) in (0_u64..).zip(&mut draft.items) {
            item.out_at = of(samples_at + nth * u64::from(self.sample_bytes));
            table.extend_from_slice(&item.bytes());
        }
        let [records, tables, _] = self.layout.ranges(lane, drive.memory);
        let mut fills = copies(drive, &draft.sources, records.from);
        fills.extend(writes(drive, &table, tables.from));
        Part { first_row, head, fills, media_bytes: draft.records_end }
    }
}

impl Part {
    /// What runs the program on lane `lane`, whose set has this number.
    pub(super) fn execute(&self, drive: &Drive, range_set: u16) -> Sqe {
        let parameters = self.head.parameters();
        let execute = Execute {
            program: drive.program,
            range_set,
            n_ranges: 0,
            data_bytes: 0,
            parameter_1: parameters.0,
            parameter_2: parameters.1,
        };
        execute.entry(drive.programs, Data::NONE)
    }

    /// How many rows it makes.
    pub(super) fn n_rows(&self) -> usize {
        self.head.n_items as usize
    }

    /// Bytes of its samples.
    pub(super) fn sample_bytes(&self) -> usize {
        self.n_rows() * self.head.sample_bytes as usize
    }

    /// Bytes of its answers, which come before its samples.
    pub(super) fn answer_bytes(&self) -> usize {
        usize::try_from(samples_at(self.head.n_items.into())).unwrap_or(usize::MAX)
    }

    /// Bytes of its results: answers and samples.
    pub(super) fn result_bytes(&self) -> usize {
        self.answer_bytes() + self.sample_bytes()
    }

    /// What reads the results out of memory from `from` on, each with where its bytes begin among all.
    pub(super) fn reads(&self, drive: &Drive, from: u64) -> Vec<(Sqe, u32, usize)> {
        // Whole dwords: what is read too much is dropped.
        let all = self.result_bytes().next_multiple_of(4);
        let most = (drive.transfer as usize / 4 * 4).max(4);
        let read = |at: usize| {
            let bytes = u32::try_from((all - at).min(most)).unwrap_or(u32::MAX);
            let read = Memory::Read { from: from + at as u64, bytes };
            (read.entry(drive.memory, Data::NONE), bytes, at)
        };
        (0..all).step_by(most).map(read).collect()
    }

    /// What copies the results, in memory from `from` on, to `blocks`.
    pub(super) fn place(drive: &Drive, from: u64, blocks: BlockRange) -> (Sqe, Content) {
        let bytes = blocks.n_blocks * u64::from(drive.media.1);
        let source = ByteSource {
            nsid: drive.memory,
            from,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            fast_only: FastOnly::No,
        };
        let (first, format) = (blocks.first, SourceFormat::Bytes);
        let copy = CopyToBlocks { first, n_sources: 1, format };
        let entry = Blocks::Copy(copy).entry(drive.blocks, Data::NONE);
        (entry, Content::ToController(source.bytes().to_vec()))
    }

    /// What reads them from the blocks, as [`Part::reads`] does from memory.
    pub(super) fn reads_of_blocks(
        drive: &Drive,
        BlockRange { first, n_blocks }: BlockRange,
    ) -> Vec<(Sqe, u32, usize)> {
        let block = drive.media.1;
        let most = (drive.transfer / block).clamp(1, MOST_BLOCKS);
        let all = usize::try_from(n_blocks).unwrap_or(usize::MAX);
        let read = |done: usize| {
            let n = u32::try_from(all - done).map_or(most, |left| left.min(most));
            let read = Blocks::Read { first: first + done as u64, n_blocks: n };
            (read.entry(drive.blocks, Data::NONE), n * block, done * block as usize)
        };
        (0..all).step_by(most as usize).map(read).collect()
    }

    /// What zeroes, in memory from `from` on, what goes to the last of `blocks`: nobody is to find there what an earlier
    /// execution has left.
    pub(super) fn clear(drive: &Drive, from: u64, blocks: BlockRange) -> (Sqe, Content) {
        let block = drive.media.1;
        let from = from + blocks.n_blocks.saturating_sub(1) * u64::from(block);
        let fill = Memory::Fill { from, bytes: block };
        (fill.entry(drive.memory, Data::NONE), Content::None)
    }
}

/// Copies of blocks to memory from `to` on.
fn copies(drive: &Drive, sources: &[BlockSource], mut to: u64) -> Vec<(Sqe, Content)> {
    let block = u64::from(drive.media.1);
    let mut all = Vec::new();
    for sources in sources.chunks(MOST_SOURCES) {
        let bytes = sources.iter().map(|own| u64::from(own.n_blocks) * block).sum();
        let copy = Memory::Copy {
            bytes,
            to,
            n_sources: u32::try_from(sources.len()).unwrap_or(u32::MAX),
            format: SourceFormat::Blocks2,
        };
        let data = sources.iter().flat_map(BlockSource::bytes).collect();
        let entry = copy.entry(drive.memory, Data::NONE);
        all.push((entry, Content::ToController(data)));
        to += bytes;
    }
    all
}

/// Writes of `bytes` to memory from `to` on.
fn writes(drive: &Drive, bytes: &[u8], mut to: u64) -> Vec<(Sqe, Content)> {
    let mut all = Vec::new();
    for part in bytes.chunks(drive.transfer as usize) {
        let mut data = part.to_vec();
        data.resize(data.len().next_multiple_of(4), 0);
        let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let write = Memory::Write { to, bytes };
        all.push((write.entry(drive.memory, Data::NONE), Content::ToController(data)));
        to += u64::from(bytes);
    }
    all
}

fn kind(encoding: Encoding) -> Kind {
    match encoding {
        Encoding::Image => Kind::Image,
        Encoding::Planar { channels, height, width } => {
            Kind::Planar { channels, height, width }
        }
        Encoding::Opaque => Kind::Opaque,
    }
}
