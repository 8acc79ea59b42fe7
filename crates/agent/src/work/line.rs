//! The queue of a session's jobs: which row is started next, and which job retires.
//!
//! Workers take rows one at a time, the oldest job's first, and move on to the next job as soon
//! as every row of the one before has been taken: no worker waits at the end of a batch. Jobs
//! overlap, but they retire in order, which cost models rely on. Scouts, who prefetch records,
//! run a bounded number of rows ahead of the workers. Decides, and makes nothing; whoever calls
//! holds the lock.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::vec;

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_csd::{Job, JobId};
use bothends_slots::HostSlot;

use super::batch::{Batch, Outcome, Row};
use super::shares::{SeatId, Want};
use crate::session::{Agreed, RowKey};

/// Most rows that scouts are ahead of the workers.
const MOST_AHEAD: usize = 64;

/// Scouts that caught up rest until their lead has shrunk to this: one wake-up prefetches many.
const TOO_NEAR: usize = MOST_AHEAD / 2;

/// Nobody can do without a batch for longer: a host that says so is served after a minute at the latest.
const MOST_NEED_NS: u64 = 60_000_000_000;

/// Jobs that were accepted and have not retired.
#[derive(Debug, Default)]
pub(crate) struct Line {
    jobs: VecDeque<InLine>,
    /// The latest epoch that was started.
    newest: Option<Begun>,
    is_publishing: bool,
    /// When the last job to retire was done.
    last_end_ns: u64,
}

#[derive(Debug)]
struct InLine {
    batch: Arc<Batch>,
    agreed: Arc<Agreed>,
    /// Not taken by a worker yet.
    rows: vec::IntoIter<Row>,
    n_rows: usize,
    /// Rows whose records scouts have prefetched.
    n_scouted: usize,
    arrival_ns: u64,
    /// When its host needs it.
    due_ns: u64,
    begun_ns: Option<u64>,
    done: Option<(u64, Outcome)>,
}

/// A sample whose record is wanted soon.
pub(crate) type Upcoming = (Arc<Agreed>, EpochIdx, SampleId);

/// What a worker is to do next.
#[derive(Debug)]
pub(crate) enum Claim {
    /// Publish the side index's new entries, then say so ([`Line::published`]).
    Publish(Begun),
    /// Make a sample.
    Row(Turn),
}

/// A row, and the job that it is of.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) batch: Arc<Batch>,
    pub(crate) agreed: Arc<Agreed>,
    pub(crate) row: Row,
}

/// A row of a session that waits for a sample that somebody else makes.
pub(crate) type Waiting = (SeatId, Turn);

/// A job that has retired: done, or refused. Times are nanoseconds since the server started.
#[derive(Debug)]
pub(crate) struct Retired {
    pub(crate) id: JobId,
    pub(crate) outcome: Outcome,
    pub(crate) arrival_ns: u64,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
}

impl Line {
    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Appends a job, to be made in `slot`. One that can never be made counts as done.
    pub(crate) fn push(
        &mut self,
        agreed: &Arc<Agreed>,
        (job, slot): (Job, HostSlot),
        now_ns: u64,
    ) {
        let refused = why_not(agreed, &job, &slot);
        let due_ns = now_ns.saturating_add(job.need_ns.min(MOST_NEED_NS));
        let agreed = Arc::clone(agreed);
        let (batch, rows, done) = match refused {
            Some(reason) => {
                let nothing = Job { samples: Vec::new(), ..job };
                let (batch, rows) = Batch::new(nothing, slot, 0);
                let ended = batch.end();
                (batch, rows, ended.map(|it| Outcome { result: Err(reason), ..it }))
            }
            None => {
                let (batch, rows) = Batch::new(job, slot, agreed.known.sample_bytes);
                let ended = if rows.is_empty() { batch.end() } else { None };
                (batch, rows, ended)
            }
        };
        self.jobs.push_back(InLine {
            batch: Arc::new(batch),
            agreed,
            n_rows: rows.len(),
            n_scouted: 0,
            rows: rows.into_iter(),
            arrival_ns: now_ns,
            due_ns,
            begun_ns: None,
            done: done.map(|outcome| (now_ns, outcome)),
        });
    }

    /// Whether there is something for a worker to do now ([`Self::claim`]).
    pub(crate) fn has_claim(&self, learns: Learns) -> bool {
        let Some(idx) = self.waiting() else { return false };
        !self.begins_epoch(idx, learns) || self.may_publish(idx)
    }

    /// What of it workers are wanted for: the batch that is needed first.
    pub(crate) fn want(&self) -> Option<Want> {
        let mut n_samples = 0;
        let wants = self.jobs.iter().filter(|job| job.rows.len() > 0).map(|job| {
            n_samples += job.rows.len() as u64;
            Want { due_ns: job.due_ns, n_samples }
        });
        wants.min_by_key(|want| want.due_ns)
    }

    /// What a worker does next; `None` where there is nothing to do now. With a side index, new
    /// entries are published between the last sample of one epoch and the first of the next;
    /// once, even if jobs of both epochs alternate.
    pub(crate) fn claim(&mut self, now_ns: u64, learns: Learns) -> Option<Claim> {
        let idx = self.waiting()?;
        if self.begins_epoch(idx, learns) {
            let is_free = self.may_publish(idx);
            self.is_publishing |= is_free;
            return is_free.then(|| Claim::Publish(self.jobs[idx].epoch()));
        }
        let job = &mut self.jobs[idx];
        let row = job.rows.next()?;
        job.begun_ns.get_or_insert(now_ns);
        let (batch, agreed) = (Arc::clone(&job.batch), Arc::clone(&job.agreed));
        Some(Claim::Row(Turn { batch, agreed, row }))
    }

    /// The row that a worker would take next, if it is this sample: to be given a copy of one that was made.
    pub(crate) fn claim_equal(
        &mut self,
        key: RowKey,
        now_ns: u64,
        learns: Learns,
    ) -> Option<Turn> {
        let job = &self.jobs[self.waiting()?];
        let row = job.rows.as_slice().first()?;
        if job.agreed.row_key(job.batch.epoch, row.sample) != Some(key) {
            return None;
        }
        match self.claim(now_ns, learns)? {
            Claim::Row(turn) => Some(turn),
            // Whoever comes next publishes.
            Claim::Publish(_) => {
                self.is_publishing = false;
                None
            }
        }
    }

    /// The oldest job with rows that nobody has taken.
    fn waiting(&self) -> Option<usize> {
        self.jobs.iter().position(|job| job.rows.len() > 0)
    }

    fn begins_epoch(&self, idx: usize, learns: Learns) -> bool {
        let job = &self.jobs[idx];
        learns == Learns::FromEpochs
            && job.begun_ns.is_none()
            && self.newest.as_ref().is_none_or(|newest| job.epoch().is_after(newest))
    }

    /// Whether all earlier jobs have retired, and no other worker is publishing.
    fn may_publish(&self, idx: usize) -> bool {
        idx == 0 && !self.is_publishing
    }

    /// The sample whose record to prefetch next; `None` while the lead is long enough.
    pub(crate) fn scout(&mut self) -> Option<Upcoming> {
        let idx = self.unscouted(MOST_AHEAD - 1)?;
        let job = &mut self.jobs[idx];
        let row = job.rows.as_slice().get(job.n_ahead())?;
        job.n_scouted = row.row + 1;
        Some((Arc::clone(&job.agreed), job.batch.epoch, row.sample))
    }

    /// Whether there is a record to prefetch ([`Self::scout`]).
    pub(crate) fn has_scout(&self) -> bool {
        self.unscouted(MOST_AHEAD - 1).is_some()
    }

    /// Whether resting scouts should resume.
    pub(crate) fn is_unscouted(&self) -> bool {
        self.unscouted(TOO_NEAR).is_some()
    }

    /// The first job with a row that was not prefetched, if the lead up to there is no longer.
    fn unscouted(&self, longest: usize) -> Option<usize> {
        let mut n_ahead = 0;
        for (idx, job) in self.jobs.iter().enumerate() {
            let ahead = job.n_ahead();
            n_ahead += ahead;
            if n_ahead > longest {
                return None;
            }
            if ahead < job.rows.len() {
                return Some(idx);
            }
        }
        None
    }

    /// The side index has been published.
    pub(crate) fn published(&mut self, begun: Begun) {
        (self.newest, self.is_publishing) = (Some(begun), false);
    }

    /// A job is done. Ignored if it has been dropped in the meantime.
    pub(crate) fn done(&mut self, batch: &Arc<Batch>, outcome: Outcome, now_ns: u64) {
        if let Some(job) = self.jobs.iter_mut().find(|it| Arc::ptr_eq(&it.batch, batch)) {
            job.done = Some((now_ns, outcome));
        }
    }

    /// Retires the oldest job, if it is done. Jobs overlap by a sample or so; as they are
    /// accounted for, each starts no earlier than the one before ended.
    pub(crate) fn retire(&mut self) -> Option<Retired> {
        self.jobs.front()?.done.as_ref()?;
        let job = self.jobs.pop_front()?;
        let (end_ns, outcome) = job.done?;
        let (arrival_ns, id) = (job.arrival_ns, job.batch.id);
        let end_ns = end_ns.max(self.last_end_ns);
        let begun_ns = job.begun_ns.unwrap_or(end_ns);
        let start_ns = begun_ns.max(self.last_end_ns);
        self.last_end_ns = end_ns;
        Some(Retired { id, outcome, arrival_ns, start_ns, end_ns })
    }

    /// Removes a job that has not been started; its slot.
    pub(crate) fn take_back(&mut self, id: JobId) -> Option<HostSlot> {
        let waits = |job: &InLine| {
            job.batch.id == id && job.begun_ns.is_none() && job.done.is_none()
        };
        let idx = self.jobs.iter().position(waits)?;
        let InLine { batch, rows, .. } = self.jobs.remove(idx)?;
        drop(rows);
        batch.take_back()
    }

    /// Drops a job. Its slot is free once the rows in the workers' hands are finished.
    pub(crate) fn forget(&mut self, id: JobId) {
        self.jobs.retain(|job| job.batch.id != id);
    }

    /// Drops all jobs, likewise.
    pub(crate) fn clear(&mut self) {
        self.jobs.clear();
    }
}

impl InLine {
    fn epoch(&self) -> Begun {
        Begun { session: Arc::downgrade(&self.agreed), epoch: self.batch.epoch }
    }

    /// Rows that were prefetched and not taken by a worker yet.
    fn n_ahead(&self) -> usize {
        let n_begun = self.n_rows - self.rows.len();
        self.n_scouted.saturating_sub(n_begun)
    }
}

/// Whether there is a side index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Learns {
    Nothing,
    FromEpochs,
}

/// An epoch of a session.
#[derive(Debug)]
pub(crate) struct Begun {
    session: Weak<Agreed>,
    epoch: EpochIdx,
}

impl Begun {
    fn is_after(&self, newest: &Self) -> bool {
        !self.session.ptr_eq(&newest.session) || self.epoch > newest.epoch
    }
}

/// Why a job cannot be made, in one line.
fn why_not(agreed: &Agreed, job: &Job, slot: &HostSlot) -> Option<String> {
    let (id, n_samples) = (job.id.0, job.samples.len());
    if n_samples > agreed.max_batch as usize {
        let max_batch = agreed.max_batch;
        return Some(format!(
            "job {id} has {n_samples} samples, but the session was opened for at most \
             {max_batch}"
        ));
    }
    let bytes = n_samples.checked_mul(agreed.known.sample_bytes);
    let fits = bytes.is_some_and(|bytes| bytes <= slot.len());
    (!fits)
        .then(|| format!("the {n_samples} samples of job {id} do not fit into its slot"))
}
