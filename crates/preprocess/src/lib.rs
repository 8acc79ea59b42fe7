//! A batch made of bytes in memory: what the program `preprocess_batch_v1` does, wherever it runs.
//!
//! `nvme::preprocess` defines the bytes. [`run`] takes three ranges of memory as slices and fills the third
//! with samples that are, byte for byte, those that the host makes. It knows no device, no queue and no
//! file, waits for nothing but memory for large images, and starts no thread, so that the same function runs in
//! `firmware-sim` and inside a sandbox.
//!
//! What a host puts into memory is checked here: whatever it holds, the answer is a status of the command or
//! an outcome of an item.

mod prepared;

use std::hash::Hasher as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bothends_core::blocks::{Blocks, Head as BlocksHead, Profile};
use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::sample::{Record, RowGroups, SampleKey};
use bothends_nvme::Status;
use bothends_nvme::preprocess::{
    Groups, Head, Item, Made, Outcome, Parameters, Part, Results,
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

/// What one worker keeps from execution to execution.
#[derive(Debug)]
pub struct Bench {
    shared: Shared,
    prepared: Option<Prepared>,
    scratch: Scratch,
}

impl Bench {
    /// The bench of a worker.
    #[must_use]
    pub fn new(shared: &Shared) -> Self {
        Self { shared: shared.clone(), prepared: None, scratch: Scratch::default() }
    }
}

/// The ranges of an execution.
#[derive(Debug)]
pub struct Ranges<'a> {
    /// Range 1, as far as records reach ([`reach`]).
    pub records: &'a [u8],
    /// Range 2.
    pub table: &'a [u8],
    /// Range 3, as far as samples reach.
    pub results: &'a mut [u8],
}

/// What an execution has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Items that were answered.
    pub n_items: u32,
    /// Bytes of their records.
    pub coded_bytes: u64,
    /// Pixels of the images that were decoded.
    pub pixels: u64,
}

/// How far an execution reaches into its ranges: bytes of range 1, and of range 3.
///
/// # Errors
/// Invalid Field for a table that is none.
pub fn reach(table: &[u8], parameters: Parameters) -> Result<(u32, u32), Status> {
    let head = Head::read(table, parameters)?;
    let answers = head.made(head.n_items).ok_or(Status::INVALID_FIELD)?;
    let (mut records, mut results) = (0, answers.at);
    for item in items(table, &head)? {
        // What reaches beyond all places is for the item's answer.
        records = records.max(item.record.end().unwrap_or(0));
        let out = Part { at: item.out_at, bytes: head.sample_bytes };
        results = results.max(out.end().unwrap_or(0));
    }
    Ok((records, results))
}

/// Makes the samples of an execution.
///
/// # Errors
/// Invalid Field for a table that is none, and Invalid Program Data for a recipe that cannot be run here.
/// Nothing is written then.
pub fn run(
    bench: &mut Bench,
    parameters: Parameters,
    ranges: Ranges<'_>,
) -> Result<Done, Status> {
    run_while(bench, parameters, ranges, || Ok(()))
}

/// Makes the samples of an execution as long as it may go on, which `check` says before each.
///
/// # Errors
/// Those of [`run`], and that of `check`: then some samples are made, and there is no answer.
pub fn run_while(
    bench: &mut Bench,
    parameters: Parameters,
    ranges: Ranges<'_>,
    check: impl Fn() -> Result<(), Status>,
) -> Result<Done, Status> {
    let Ranges { records, table, results } = ranges;
    let head = Head::read(table, parameters)?;
    let items = items(table, &head)?;
    let answers = head.made(head.n_items).ok_or(Status::INVALID_FIELD)?;
    if answers.at as usize > results.len() {
        return Err(Status::INVALID_FIELD);
    }
    bench.prepare(&head, table)?;
    let (mut sum, mut hash) = (Results::default(), XxHash3_64::new());
    let mut all = Vec::with_capacity(items.len());
    for item in &items {
        check()?;
        let out = Part { at: item.out_at, bytes: head.sample_bytes };
        let made = match (out.of_mut(results), item.record.of(records)) {
            (Some(out), Some(record)) => {
                let made = bench.attempt(&head, table, (item, record), out);
                hash.write(out);
                sum.coded_bytes += u64::from(item.record.bytes);
                sum.pixels = sum.pixels.saturating_add(decoded(&made));
                made
            }
            (Some(out), None) => {
                out.fill(0);
                hash.write(out);
                Made { outcome: Outcome::Wrong, pixels: 0 }
            }
            (None, _) => Made { outcome: Outcome::Wrong, pixels: 0 },
        };
        sum.n_failed += u32::from(!made.outcome.is_made());
        all.push(made);
    }
    (sum.n_items, sum.checksum) = (head.n_items, hash.finish());
    answer(&head, &sum, &all, results).ok_or(Status::INVALID_FIELD)?;
    Ok(Done { n_items: sum.n_items, coded_bytes: sum.coded_bytes, pixels: sum.pixels })
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

/// Writes what has become of all; `None` where there is no room.
fn answer(head: &Head, sum: &Results, all: &[Made], results: &mut [u8]) -> Option<()> {
    let bytes = u32::try_from(Results::BYTES).ok()?;
    let part = Part { at: head.results_at, bytes };
    part.of_mut(results)?.copy_from_slice(&sum.bytes());
    for (n, made) in (0..).zip(all) {
        head.made(n)?.of_mut(results)?.copy_from_slice(&made.bytes());
    }
    Some(())
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
            record.row_groups = Some(row_groups(groups, table).ok_or(wrong)?);
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
