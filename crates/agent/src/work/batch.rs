//! One job under way: rows are completed in any order and hashed in row order.
//!
//! The checksum of a result is sequential, so a row is hashed as soon as every row before it is:
//! by the worker that completes the missing one, while the bytes are still in cache and the
//! other workers go on. There is no second pass over the batch, and nobody waits here. Which
//! rows are made, and when, is up to `line.rs`.

use std::hash::Hasher as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_csd::{Job, JobId, Product};
use bothends_slots::{HostSlot, Joiner, Part};
use twox_hash::XxHash3_64;

use super::{Attempt, Fault, Origin};
use crate::costs::SampleWork;

/// A job whose rows are being made.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) id: JobId,
    pub(crate) epoch: EpochIdx,
    progress: Mutex<Progress>,
    /// Of the rows hashed so far. Only the worker that hashes takes it.
    hash: Mutex<Hash>,
}

/// A row that waits for a worker.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) row: usize,
    pub(crate) sample: SampleId,
    pub(crate) part: Part,
}

/// What became of a job.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) slot: HostSlot,
    pub(crate) result: Result<Product, String>,
    /// In the order of their rows; none where nothing was made.
    pub(crate) samples: Vec<SampleWork>,
    /// How many of them are copies of what was made for others.
    pub(crate) n_shared: u64,
    /// Bytes that were read for them.
    pub(crate) read_bytes: u64,
}

#[derive(Debug)]
struct Progress {
    /// `None` once the job is done.
    joiner: Option<Joiner>,
    /// Made and not hashed, by row.
    made: Vec<Option<(Part, Attempt)>>,
    /// Hashed, in the order of their rows.
    attempts: Vec<Attempt>,
    len: usize,
    is_hashing: bool,
}

#[derive(Default)]
struct Hash(XxHash3_64);

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hash")
    }
}

impl Batch {
    /// The job, to be made in `slot`, and the rows to make.
    ///
    /// # Panics
    /// When the samples do not fit into the slot; the caller has looked.
    pub(crate) fn new(job: Job, slot: HostSlot, sample_bytes: usize) -> (Self, Vec<Row>) {
        let n_rows = job.samples.len();
        let (joiner, parts) = slot.into_parts(sample_bytes, n_rows);
        let rows = job.samples.into_iter().zip(parts).enumerate();
        let rows = rows.map(|(row, (sample, part))| Row { row, sample, part }).collect();
        let mut made = Vec::new();
        made.resize_with(n_rows, || None);
        let progress = Progress {
            joiner: Some(joiner),
            made,
            attempts: Vec::with_capacity(n_rows),
            len: n_rows * sample_bytes,
            is_hashing: false,
        };
        let (progress, hash) = (Mutex::new(progress), Mutex::new(Hash::default()));
        (Self { id: job.id, epoch: job.epoch, progress, hash }, rows)
    }

    /// Completes a row and hashes what can be hashed now. Whoever completes the batch gets its
    /// outcome.
    pub(crate) fn row_done(
        &self,
        row: usize,
        part: Part,
        attempt: Attempt,
    ) -> Option<Outcome> {
        let mut progress = self.progress();
        progress.made[row] = Some((part, attempt));
        if progress.is_hashing {
            // The worker that is hashing will find this row before it stops.
            return None;
        }
        progress.is_hashing = true;
        while let Some((part, attempt)) = progress.next_made() {
            drop(progress);
            self.hash.lock().unwrap_or_else(PoisonError::into_inner).0.write(&part);
            drop(part);
            progress = self.progress();
            progress.attempts.push(attempt);
        }
        progress.is_hashing = false;
        let is_done = progress.attempts.len() == progress.made.len();
        drop(progress);
        is_done.then(|| self.end()).flatten()
    }

    /// The outcome, once every row is hashed; at once for a job without rows.
    pub(crate) fn end(&self) -> Option<Outcome> {
        let mut progress = self.progress();
        let slot = progress.joiner.take()?.join().ok()?;
        let attempts = std::mem::take(&mut progress.attempts);
        let result = refuse_if_starved(&attempts).map(|()| {
            let rows = |is: fn(&Attempt) -> bool| {
                let rows = (0..).zip(&attempts).filter(|(_, attempt)| is(attempt));
                rows.map(|(row, _)| row).collect()
            };
            Product {
                len: progress.len,
                checksum: self
                    .hash
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
                    .finish(),
                bad: rows(|attempt| attempt.fault.is_some()),
                damaged: rows(|attempt| attempt.is_damaged),
            }
        });
        let works = attempts.iter().map(|attempt| attempt.work);
        let samples = if result.is_ok() { works.collect() } else { Vec::new() };
        let n_shared =
            attempts.iter().filter(|it| it.origin == Origin::Shared).count() as u64;
        let read_bytes = attempts.iter().map(|it| it.read_bytes).sum();
        Some(Outcome { slot, result, samples, n_shared, read_bytes })
    }

    /// The slot of a job of which no row was begun; the rows must have been dropped before.
    pub(crate) fn take_back(&self) -> Option<HostSlot> {
        self.progress().joiner.take()?.join().ok()
    }

    /// Nobody leaves it half changed.
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    /// The next row to be hashed, if it is made.
    fn next_made(&mut self) -> Option<(Part, Attempt)> {
        let next = self.attempts.len();
        self.made.get_mut(next)?.take()
    }
}

/// A job of which nothing could be read is not made of bad samples: the data are not here. Nor is
/// one in which a worker broke or the machine failed: the host makes it, or another attempt does.
fn refuse_if_starved(attempts: &[Attempt]) -> Result<(), String> {
    let failed = attempts.iter().find_map(|attempt| match &attempt.fault {
        Some(Fault::Broke) => Some(BROKE),
        Some(Fault::Machine(reason)) => Some(reason.as_str()),
        Some(Fault::Unread(_) | Fault::Bad | Fault::Beyond(_)) | None => None,
    });
    if let Some(reason) = failed {
        return Err(reason.to_owned());
    }
    let mut reasons = attempts.iter().map(|attempt| match &attempt.fault {
        Some(Fault::Unread(reason)) => Some(reason),
        Some(Fault::Machine(_) | Fault::Broke | Fault::Bad | Fault::Beyond(_)) | None => {
            None
        }
    });
    match reasons.next() {
        Some(Some(reason)) if reasons.all(|reason| reason.is_some()) => {
            Err(reason.clone())
        }
        Some(_) | None => Ok(()),
    }
}

const BROKE: &str = "a worker panicked on a sample; its message is in the device's log";
