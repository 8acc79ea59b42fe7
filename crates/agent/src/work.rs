//! One job: every sample read, decoded and augmented into its place in one buffer.
//!
//! The samples of a job are shared among the workers one by one, so a job is finished as soon
//! as it can be and jobs are finished in order. Workers are scoped threads: they live for one
//! job, borrow its buffer without copies, and keep what is costly to make (a [`Bench`]) from
//! job to job. Nothing here waits for a model or knows a queue: `server.rs` does.

use std::iter::{Enumerate, Zip};
use std::slice::{ChunksExactMut, Iter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::one_line;
use bothends_core::sample::{Encoding, Extent, SampleKey};
use bothends_csd::{Job, Product, is_of_machine};
use bothends_dataset::{Piece, WrongChecksum};
use bothends_ops::Scratch;
use bothends_side_index::Name;
use xxhash_rust::xxh3::xxh3_64;

use crate::costs::{SampleWork, ThreadClock};
use crate::session::Agreed;
use crate::store::Store;

/// What one worker keeps from job to job.
#[derive(Debug, Default)]
pub(crate) struct Bench {
    record: Vec<u8>,
    scratch: Scratch,
    /// What is known of the record being worked on.
    note: Vec<u8>,
}

/// What the workers of one job share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task<'a> {
    pub(crate) agreed: &'a Agreed,
    pub(crate) store: &'a dyn Store,
    pub(crate) clock: ThreadClock,
    /// Set when nobody wants the result any more.
    pub(crate) dropped: &'a AtomicBool,
}

/// A job's samples and what they took, in the order of their rows.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) product: Product,
    pub(crate) samples: Vec<SampleWork>,
}

/// How one sample went.
#[derive(Debug)]
struct Attempt {
    row: u32,
    work: SampleWork,
    fault: Option<Fault>,
}

/// Why a sample was not made.
#[derive(Debug)]
enum Fault {
    /// Its bytes could not be read.
    Unread(String),
    /// This machine could not read, whatever the file holds.
    Machine(String),
    /// Its bytes are no such sample.
    Bad,
}

/// Samples that wait for a worker: row, id, and the place for the result.
type Waiting<'a> = Mutex<Zip<Enumerate<Iter<'a, SampleId>>, ChunksExactMut<'a, u8>>>;

/// Does `job` on one worker per bench. Blocks until it is done.
///
/// # Errors
/// One line: the job is too large, no sample of it could be read, or a worker broke.
pub(crate) fn run(
    task: Task<'_>,
    job: &Job,
    benches: &mut [Bench],
) -> Result<Made, String> {
    let Task { agreed, .. } = task;
    if job.samples.len() > agreed.max_batch as usize {
        return Err(format!(
            "job {} has {} samples, but the session was opened for at most {}",
            job.id.0,
            job.samples.len(),
            agreed.max_batch
        ));
    }
    let mut bytes = vec![0; job.samples.len() * agreed.sample_bytes];
    let places = bytes.chunks_exact_mut(agreed.sample_bytes);
    let waiting = Mutex::new(job.samples.iter().enumerate().zip(places));
    let mut attempts = share(task, job.epoch, &waiting, benches)?;
    attempts.sort_unstable_by_key(|attempt| attempt.row);
    refuse_if_starved(&attempts)?;
    let bad = attempts.iter().filter(|attempt| attempt.fault.is_some());
    let bad = bad.map(|attempt| attempt.row).collect();
    let checksum = xxh3_64(&bytes);
    let samples = attempts.iter().map(|attempt| attempt.work).collect();
    Ok(Made { product: Product { bytes, checksum, bad }, samples })
}

/// Runs one worker per bench until no sample waits.
fn share(
    task: Task<'_>,
    epoch: EpochIdx,
    waiting: &Waiting<'_>,
    benches: &mut [Bench],
) -> Result<Vec<Attempt>, String> {
    thread::scope(|scope| {
        let mut workers = Vec::with_capacity(benches.len());
        for (worker_idx, bench) in benches.iter_mut().enumerate() {
            let name = format!("be-worker-{worker_idx}");
            let worker = thread::Builder::new()
                .name(name)
                .spawn_scoped(scope, move || task.work(epoch, waiting, bench));
            match worker {
                Ok(worker) => workers.push(worker),
                // Fewer workers than asked for still finish the job.
                Err(_) if !workers.is_empty() => break,
                Err(error) => {
                    return Err(format!("cannot start a worker thread ({error})"));
                }
            }
        }
        // All are joined before the first that broke is looked at.
        let done: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        let done: Result<Vec<_>, _> = done.into_iter().collect();
        let broke = |_| {
            "a worker broke on a sample; its words are in the device's log".to_owned()
        };
        Ok(done.map_err(broke)?.into_iter().flatten().collect())
    })
}

/// A job of which nothing could be read is not made of bad samples: the data are not here. Nor is
/// one in which the machine failed: the host makes it, or another attempt does.
fn refuse_if_starved(attempts: &[Attempt]) -> Result<(), String> {
    let failed = attempts.iter().find_map(|attempt| match &attempt.fault {
        Some(Fault::Machine(reason)) => Some(reason),
        Some(Fault::Unread(_) | Fault::Bad) | None => None,
    });
    if let Some(reason) = failed {
        return Err(reason.clone());
    }
    let mut reasons = attempts.iter().map(|attempt| match &attempt.fault {
        Some(Fault::Unread(reason)) => Some(reason),
        Some(Fault::Machine(_) | Fault::Bad) | None => None,
    });
    match reasons.next() {
        Some(Some(reason)) if reasons.all(|reason| reason.is_some()) => {
            Err(reason.clone())
        }
        Some(_) | None => Ok(()),
    }
}

impl Task<'_> {
    /// One worker's loop.
    fn work(
        self,
        epoch: EpochIdx,
        waiting: &Waiting<'_>,
        bench: &mut Bench,
    ) -> Vec<Attempt> {
        let mut attempts = Vec::new();
        while !self.dropped.load(Ordering::Relaxed) {
            // A worker that broke did not hold the lock in the middle of anything.
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(((row, &id), place)) = next else { break };
            let row = u32::try_from(row).unwrap_or(u32::MAX);
            let key = SampleKey { seed: self.agreed.seed, epoch, sample: id };
            attempts.push(self.attempt(row, key, place, bench));
        }
        attempts
    }

    fn attempt(
        self,
        row: u32,
        key: SampleKey,
        place: &mut [u8],
        bench: &mut Bench,
    ) -> Attempt {
        let begun_ns = (self.clock)();
        let Agreed { table, pipeline, .. } = self.agreed;
        let piece =
            table.piece(key.sample, |blocks| pipeline.groups_for(key, blocks).ok());
        let fault = self.make(key, piece, place, bench).err();
        if fault.is_some() {
            place.fill(0);
        }
        let work = SampleWork {
            extent: piece.extent,
            source_pixels: bench.scratch.source_pixels(),
            cpu_ns: (self.clock)().saturating_sub(begun_ns),
            output_bytes: u32::try_from(place.len()).unwrap_or(u32::MAX),
        };
        Attempt { row, work, fault }
    }

    fn make(
        self,
        key: SampleKey,
        piece: Piece,
        place: &mut [u8],
        bench: &mut Bench,
    ) -> Result<(), Fault> {
        let Agreed { table, pipeline, .. } = self.agreed;
        let Extent { file, offset, len } = piece.extent;
        let path = table.file_path(file);
        let Bench { record: bytes, scratch, note } = bench;
        let age =
            self.store.read(&path, offset, len, bytes).map_err(
                |e| match is_of_machine(&e.source) {
                    true => Fault::Machine(one_line(&e)),
                    false => Fault::Unread(one_line(&e)),
                },
            )?;
        let record = table.record(key.sample, piece, bytes);
        let mut record = record.map_err(|WrongChecksum| Fault::Bad)?;
        // What a store holds needs no entry points.
        let is_indexed =
            record.encoding == Encoding::Image && record.row_groups.is_none();
        let index = self.store.side_index().filter(|_| is_indexed);
        let index =
            index.map(|index| (index, Name::new(table.index_key(key.sample), age)));
        if index.is_some_and(|(index, name)| index.look_up(name, bytes, note)) {
            record.entry_points = note;
        }
        pipeline.run(scratch, key, record, place).map_err(|_| Fault::Bad)?;
        let new = scratch.new_entry_points();
        if let Some((index, name)) = index.filter(|_| !new.is_empty()) {
            index.keep(name, bytes, new);
        }
        Ok(())
    }
}
