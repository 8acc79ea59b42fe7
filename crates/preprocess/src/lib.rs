//! A batch made of bytes in memory: what the program `preprocess_batch_v1` does, wherever it runs.
//!
//! `nvme::preprocess` defines the bytes. [`run`] is given three ranges of a device's [`Memory`] and fills the third
//! with samples that are, byte for byte, those that the host makes. It knows no device, no queue and no
//! file, waits for nothing but memory for large images, and starts no thread, so that the same function runs in
//! `firmware-sim` and inside a sandbox.
//!
//! Records and samples pass through buffers of the [`Bench`], one at a time: a record is checked and decoded, and a
//! sample checksummed, while the processor's cache has it. What lies between samples is not written.
//!
//! What a host puts into memory is checked here: whatever it holds, the answer is a status of the command or
//! an outcome of an item.

mod prepared;

use std::hash::Hasher as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bothends_core::blocks::{Blocks, Head as BlocksHead, Profile};
use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::sample::{Record, RecordPart, RowGroups, SampleKey};
use bothends_nvme::Status;
use bothends_nvme::preprocess::{
    Groups, Head, Item, Kind, Made, Outcome, Parameters, Part, RECORDS, RESULTS, Results,
    TABLE,
};
use bothends_ops::{DecodeRoom, OpsError, PixelLimit, Room, SampleFault, Scratch};
use twox_hash::XxHash3_64;

use prepared::Prepared;

/// Images of more pixels are left to the host, which decodes what the run allows: the agent's own bound.
const PIXELS: PixelLimit = PixelLimit { most: 64_000_000, per_byte: 512 };

/// What executions that run at the same time share: how much memory decoding may take.
#[derive(Debug, Clone)]
pub struct Shared(Room);

impl Shared {
    /// For `n_workers` executions at a time, which may take `together_bytes` for large images.
    #[must_use]
    pub fn new(n_workers: u32, together_bytes: u64) -> Self {
        let limits = DecodeRoom {
            together_bytes,
            n_workers,
            pixels: PIXELS,
            ..DecodeRoom::default()
        };
        Self(Room::new(limits))
    }
}

impl Default for Shared {
    /// For one execution alone.
    fn default() -> Self {
        Self(Room::new(DecodeRoom { pixels: PIXELS, ..DecodeRoom::default() }))
    }
}

/// Bytes that a buffer keeps from execution to execution: samples and records are rarely longer.
const MOST_KEPT: usize = 4 << 20;

/// What one worker keeps from execution to execution.
#[derive(Debug)]
pub struct Bench {
    shared: Shared,
    prepared: Option<Prepared>,
    scratch: Scratch,
    buffers: Buffers,
}

/// What has been copied out of memory, and is to be copied into it.
#[derive(Debug, Default)]
struct Buffers {
    table: Vec<u8>,
    record: Vec<u8>,
    sample: Vec<u8>,
}

impl Buffers {
    fn shrink(&mut self) {
        for own in [&mut self.table, &mut self.record, &mut self.sample] {
            own.truncate(MOST_KEPT);
            own.shrink_to(MOST_KEPT);
        }
    }
}

impl Bench {
    /// The bench of a worker.
    #[must_use]
    pub fn new(shared: &Shared) -> Self {
        Self {
            shared: shared.clone(),
            prepared: None,
            scratch: Scratch::default(),
            buffers: Buffers::default(),
        }
    }
}

/// The device's memory as an execution sees it: the ranges that it was given, counted from 1.
pub trait Memory {
    /// Bytes of range `n`.
    ///
    /// # Errors
    /// Invalid Field if there is no such range.
    fn range_bytes(&self, n: usize) -> Result<u32, Status>;

    /// Reads range `n` from byte `at` on.
    ///
    /// # Errors
    /// Invalid Field if the bytes are not all in the range.
    fn read(&self, n: usize, at: u32, to: &mut [u8]) -> Result<(), Status>;

    /// Writes range `n` from byte `at` on.
    ///
    /// # Errors
    /// Invalid Field if the bytes are not all in the range.
    fn write(&mut self, n: usize, at: u32, from: &[u8]) -> Result<(), Status>;

    /// Whether the execution may go on. Asked before each sample.
    ///
    /// # Errors
    /// The status with which to end.
    fn check(&self) -> Result<(), Status> {
        Ok(())
    }
}

/// What an execution has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Items that were answered.
    pub n_items: u32,
    /// Bytes of those records that are not coded as an image file is: pixels, bytes as they are, row groups of a store.
    pub bytes: u64,
    /// Bytes of the others.
    pub coded_bytes: u64,
    /// Pixels of the images that were decoded.
    pub pixels: u64,
}

impl Done {
    /// Counts a record of that kind, of which so many pixels were decoded.
    fn add(&mut self, kind: Kind, (item, pixels): (&Item, u64)) {
        let bytes = u64::from(item.record.bytes);
        match kind {
            Kind::Image => {
                let is_coded = item.groups.is_none();
                self.coded_bytes += if is_coded { bytes } else { 0 };
                self.bytes += if is_coded { 0 } else { bytes };
                self.pixels = self.pixels.saturating_add(pixels);
            }
            Kind::Planar { .. } | Kind::Opaque => self.bytes += bytes,
        }
    }
}

/// Makes the samples of an execution, as long as [`Memory::check`] lets it.
///
/// # Errors
/// Invalid Field for a table that is not one, and Invalid Program Data for a recipe that cannot be run here: nothing is
/// written then. Those of `memory`: then some samples are made, and there is no answer.
pub fn run(
    bench: &mut Bench,
    parameters: Parameters,
    memory: &mut impl Memory,
) -> Result<Done, Status> {
    // The bench makes samples while its buffers are lent.
    let mut buffers = std::mem::take(&mut bench.buffers);
    let done = make_all(bench, parameters, memory, &mut buffers);
    buffers.shrink();
    bench.buffers = buffers;
    done
}

fn make_all(
    bench: &mut Bench,
    parameters: Parameters,
    memory: &mut impl Memory,
    Buffers { table, record, sample }: &mut Buffers,
) -> Result<Done, Status> {
    table.resize(memory.range_bytes(TABLE)? as usize, 0);
    memory.read(TABLE, 0, table)?;
    let head = Head::read(table, parameters)?;
    let items = items(table, &head)?;
    let answers = head.made(head.n_items).ok_or(Status::INVALID_FIELD)?;
    if answers.at > memory.range_bytes(RESULTS)? {
        return Err(Status::INVALID_FIELD);
    }
    bench.prepare(&head, table)?;
    // Where no sample has room, none is made.
    let has_room = memory.range_bytes(RESULTS)? >= head.sample_bytes;
    sample.resize(if has_room { head.sample_bytes as usize } else { 0 }, 0);
    let (mut sum, mut hash) = (Results::default(), XxHash3_64::new());
    let mut done = Done { n_items: head.n_items, bytes: 0, coded_bytes: 0, pixels: 0 };
    let mut all = Vec::with_capacity(items.len());
    for item in &items {
        memory.check()?;
        let mut made = Made { outcome: Outcome::Wrong, pixels: 0 };
        let out = Part { at: item.out_at, bytes: head.sample_bytes };
        if is_in(memory, RESULTS, out)? {
            if is_in(memory, RECORDS, item.record)? {
                record.resize(item.record.bytes as usize, 0);
                memory.read(RECORDS, item.record.at, record)?;
                made = bench.attempt(&head, table, (item, record), sample);
                sum.coded_bytes += u64::from(item.record.bytes);
                sum.pixels = sum.pixels.saturating_add(decoded(&made));
                done.add(head.kind, (item, decoded(&made)));
            } else {
                sample.fill(0);
            }
            hash.write(sample);
            memory.write(RESULTS, out.at, sample)?;
        }
        sum.n_failed += u32::from(!made.outcome.is_made());
        all.push(made);
    }
    (sum.n_items, sum.checksum) = (head.n_items, hash.finish());
    answer(&head, &sum, &all, memory)?;
    Ok(done)
}

/// Whether all of `part` is in range `n`.
fn is_in(memory: &impl Memory, n: usize, part: Part) -> Result<bool, Status> {
    let bytes = memory.range_bytes(n)?;
    Ok(part.end().is_some_and(|end| end <= bytes))
}

/// Pixels that were decoded for it: those of an image that was refused were not.
fn decoded(made: &Made) -> u64 {
    if made.outcome == Outcome::Beyond { 0 } else { made.pixels }
}

/// All items of the table.
fn items(table: &[u8], head: &Head) -> Result<Vec<Item>, Status> {
    let item = |n| Item::read(head.item(n)?.of(table)?);
    // A table that is too short ends this at its first item beyond.
    (0..head.n_items).map(item).collect::<Option<_>>().ok_or(Status::INVALID_FIELD)
}

/// Writes what has become of all.
fn answer(
    head: &Head,
    sum: &Results,
    all: &[Made],
    memory: &mut impl Memory,
) -> Result<(), Status> {
    let mut bytes = sum.bytes().to_vec();
    bytes.extend(all.iter().flat_map(Made::bytes));
    memory.write(RESULTS, head.results_at, &bytes)
}

impl Bench {
    /// Makes sure that the recipe of `head` is the one that is prepared.
    fn prepare(&mut self, head: &Head, table: &[u8]) -> Result<(), Status> {
        let recipe = head.recipe.of(table).ok_or(Status::INVALID_FIELD)?;
        if !self.prepared.as_ref().is_some_and(|own| own.is_of(head, recipe)) {
            self.prepared = None;
            self.prepared = Some(Prepared::new(head, recipe, &self.shared.0)?);
        }
        Ok(())
    }

    /// Makes one sample in `out`, which is zeros where it cannot be made. A panic costs what this bench has
    /// kept, and the sample.
    fn attempt(
        &mut self,
        head: &Head,
        table: &[u8],
        (item, record): (&Item, &[u8]),
        out: &mut [u8],
    ) -> Made {
        // Whatever a panic leaves half done is in the bench, or in `out`, which is zeroed.
        let made = catch_unwind(AssertUnwindSafe(|| {
            self.make(head, table, (item, record), out)
        }));
        let outcome = made.unwrap_or_else(|_| {
            self.scratch = Scratch::default();
            Err((Outcome::Broke, 0))
        });
        match outcome {
            Ok(made) => made,
            Err((outcome, pixels)) => {
                out.fill(0);
                Made { outcome, pixels }
            }
        }
    }

    fn make(
        &mut self,
        head: &Head,
        table: &[u8],
        (item, bytes): (&Item, &[u8]),
        out: &mut [u8],
    ) -> Result<Made, (Outcome, u64)> {
        let wrong = (Outcome::Wrong, 0);
        let Some(prepared) = &self.prepared else { return Err((Outcome::Broke, 0)) };
        if item.checksum.is_some_and(|known| known != XxHash3_64::oneshot(bytes)) {
            return Err((Outcome::Bad, 0));
        }
        let mut record = Record::new(bytes, prepared::encoding(head.kind));
        if let Some(groups) = item.groups {
            let groups = row_groups(groups, table).ok_or(wrong)?;
            record.part = RecordPart::RowGroups(groups);
        }
        let key = SampleKey {
            seed: head.seed,
            epoch: EpochIdx(head.epoch),
            sample: SampleId(item.sample),
        };
        let made = prepared.pipeline().run(&mut self.scratch, key, record, out);
        let pixels = self.scratch.source_pixels();
        match made {
            Ok(()) if self.scratch.damage().is_some() => {
                Ok(Made { outcome: Outcome::Damaged, pixels })
            }
            Ok(()) => Ok(Made { outcome: Outcome::Made, pixels }),
            Err(OpsError::BadSample(SampleFault::BeyondPixels { size, .. })) => {
                let pixels = u64::from(size.height) * u64::from(size.width);
                Err((Outcome::Beyond, pixels))
            }
            Err(_) => Err((Outcome::Bad, pixels)),
        }
    }
}

fn row_groups(groups: Groups, table: &[u8]) -> Option<RowGroups<'_>> {
    let profile = Profile::read(groups.profile.of(table)?)?;
    let blocks = Blocks::new(profile, BlocksHead::read(groups.head.of(table)?)?)?;
    let first = usize::try_from(groups.first).ok()?;
    (first < blocks.head().n_groups()).then_some(RowGroups { blocks, first })
}
