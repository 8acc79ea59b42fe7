//! The producer interface: how a batch is made, whoever makes it.
//!
//! The destination travels with the work. A producer that can write into the slot directly does so, be
//! it a worker thread, a socket or a device; when it answers, the batch is in the slot. The host's
//! workers, a device in this process, behind a socket or behind a shared directory all implement this
//! one trait, and `conformance::produce` tests them.

use std::error::Error;
use std::fmt::Debug;
use std::time::Duration;

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};

use crate::slot::Slot;

/// A submission, unique within a run (a batch claimed twice has two job ids).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// One batch to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Names the submission.
    pub id: JobId,
    /// The epoch, which every sample's random numbers are keyed by.
    pub epoch: EpochIdx,
    /// Its place in the plan; for people.
    pub batch: BatchIdx,
    /// The samples, row by row.
    pub samples: Vec<SampleId>,
    /// For how many nanoseconds from now whoever wants the batch can do without it; 0 where it is wanted
    /// at once, or that is not known. A producer that works for several may make other batches first.
    pub need_ns: u64,
}

/// An answered job, with the slot that came with it.
#[derive(Debug)]
pub struct Completion {
    /// Which.
    pub job: JobId,
    /// The slot. Where the outcome is [`Outcome::Made`], its first `samples.len()` rows hold
    /// them; what is behind is as it was.
    pub slot: Slot,
    /// What became of the job.
    pub outcome: Outcome,
    /// Nanoseconds that the producer worked for it, where it counts them.
    pub work_ns: Option<u64>,
    /// Nanoseconds by which an emulated device was behind its model; 0 where it was not, and of all others.
    /// `None` of an emulated device that does not say.
    pub lateness_ns: Option<u64>,
}

/// What became of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The samples are in the slot.
    Made {
        /// Rows that could not be made, in ascending order; their bytes are of no use.
        bad: Vec<u32>,
        /// Rows that were made in spite of a damaged record, in ascending order; none of them
        /// is among the bad ones.
        damaged: Vec<Damaged>,
    },
    /// It came to nothing, through the producer's fault.
    Failed {
        /// One line for people.
        reason: String,
    },
    /// It was not begun, and now never will be: it was revoked in time, or there was no room
    /// after all.
    NotBegun,
}

/// A row whose record is damaged, made all the same, with the pixels that Pillow gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// The row.
    pub row: u32,
    /// What is wrong with its record, for people; `None` where the producer does not say.
    pub what: Option<String>,
}

/// What a producer has to say.
#[derive(Debug)]
pub enum Polled {
    /// A job is answered.
    Completion(Completion),
    /// An answer that nobody waits for: repeated, or of a job that was abandoned.
    Extra,
    /// Nothing in the time given.
    Nothing,
}

/// The producer is gone, with whatever it had. Its slots have been given back.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Lost(#[from] pub Box<dyn Error + Send + Sync>);

/// A job that was not taken; it comes back with its slot.
#[derive(Debug, thiserror::Error)]
#[error("a job was not taken: {why}")]
pub struct Rejected {
    /// The job, untouched.
    pub job: Job,
    /// Its slot, untouched.
    pub slot: Slot,
    /// Why.
    pub why: Rejection,
}

/// Why a job was not taken.
#[derive(Debug, thiserror::Error)]
pub enum Rejection {
    /// As many jobs as the producer takes are under way: submit again after an answer.
    #[error("the producer has no room")]
    Full,
    /// The job, or its slot, is none that this producer can ever do.
    #[error("{0}")]
    Impossible(String),
    /// The producer is gone.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// Makes batches in the slots that come with them.
///
/// # Contract
///
/// 1. A submitted job is answered exactly once, with its own slot, in any order; a revoked
///    one too. By this the host knows that the producer lives and has room.
/// 2. Until then the slot is the producer's. It writes the rows of the job and nothing behind.
/// 3. At most a stated number of jobs is under way; one more is [`Rejection::Full`] and comes
///    back with its slot.
/// 4. `submit` and `revoke` return at once. `poll` returns at its timeout; once an answer has
///    begun to arrive, when it is whole.
/// 5. After `abandon` nothing that was submitted before is answered. A slot that something
///    else still writes to comes back when that has ended, all others at once.
/// 6. Once lost, always lost: every call says so. Dropping a producer gives its slots back.
///
/// `conformance::produce` holds these as callable checks.
pub trait Producer: Send + Debug {
    /// Hands a job over, with the slot to make it in.
    ///
    /// # Errors
    /// [`Rejected`] with both in it.
    fn submit(&mut self, job: Job, slot: Slot) -> Result<(), Box<Rejected>>;

    /// Waits up to `timeout` for an answer.
    ///
    /// # Errors
    /// [`Lost`].
    fn poll(&mut self, timeout: Duration) -> Result<Polled, Lost>;

    /// A job's result is not wanted any more; it is answered all the same. Does nothing where
    /// there is no such job.
    ///
    /// # Errors
    /// [`Lost`].
    fn revoke(&mut self, job: JobId) -> Result<(), Lost>;

    /// Nobody waits for what is under way: between two epochs.
    ///
    /// # Errors
    /// [`Lost`].
    fn abandon(&mut self) -> Result<(), Lost>;
}
