//! The collector: one thread that asks `core` what to do and does it.
//!
//! Everything that is decided is decided by [`EpochState`]; everything that happens is heard
//! from a producer. In between this module only carries things: claims to the producers,
//! finished batches to the feed. It never waits for anybody but its own bell, so no producer
//! can hold it up. How it ends is in `threads/shutdown.rs`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bothends_core::claim::{Claim, ClaimKind};
use bothends_core::epoch::{EpochState, Finish, Pick};
use bothends_core::ids::{BatchIdx, DeviceIdx, EpochIdx, Ns, Prong, SampleId};
use bothends_core::plan::Plan;
use bothends_figures::What;
use bothends_slots::{
    Completion, Job, JobId, Outcome, Polled, Rejected, Rejection, Ring, Slot,
};
use crossbeam::channel::Sender;

use crate::collect::bell::Ear;
use crate::collect::clock::Clock;
use crate::collect::line::{Line, LineReport};
use crate::collect::log::EventLog;
use crate::collect::stall::{Cause, StallGauge};
use crate::error::RuntimeError;
use crate::threads::shutdown::{PATIENCE, Stop};

/// A finished batch on its way to the feed.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) batch: BatchIdx,
    pub(crate) prong: Prong,
    /// Row by row: the sample, or `None` for a masked row.
    pub(crate) rows: Vec<Option<SampleId>>,
    pub(crate) slot: Slot,
    /// Rows that could not be made.
    pub(crate) bad: Vec<u32>,
}

/// Finished batches the feed may hold before it has looked at them.
pub(crate) const FEED_ROOM: usize = 1;

/// What the collector thread owns for one epoch.
#[derive(Debug)]
pub(crate) struct Collector {
    pub(crate) epoch: EpochState,
    pub(crate) plan: Arc<Plan>,
    /// Whether batches are delivered in plan order.
    pub(crate) keeps_order: bool,
    pub(crate) epoch_idx: EpochIdx,
    pub(crate) ring: Ring,
    /// The host's workers first, then the devices in their order.
    pub(crate) lines: Vec<Line>,
    /// More room than is ever used: sending never blocks.
    pub(crate) feed: Sender<Result<Made, RuntimeError>>,
    pub(crate) ear: Ear,
    pub(crate) clock: Clock,
    pub(crate) gauge: Arc<StallGauge>,
    pub(crate) log: EventLog,
    pub(crate) stop: Stop,
    pub(crate) under: Under,
}

/// What is under way.
#[derive(Debug, Default)]
pub(crate) struct Under {
    claims: HashMap<JobId, Claim>,
    made: HashMap<BatchIdx, Made>,
    next_id: u64,
    n_delivered: u32,
    ended: bool,
}

impl Under {
    /// Nothing yet; the ids of jobs are above `id`.
    pub(crate) fn after(id: u64) -> Self {
        Self { next_id: id, ..Self::default() }
    }
}

/// What is left of an epoch when its collector has ended.
#[derive(Debug)]
pub(crate) struct Collected {
    pub(crate) epoch: EpochState,
    pub(crate) front: LineReport,
    /// In the order of the devices.
    pub(crate) back: Vec<LineReport>,
    pub(crate) log: EventLog,
}

impl Collector {
    /// The loop of the collector thread.
    pub(crate) fn run(mut self) -> Collected {
        for line in self.lines.iter().filter(|line| !line.is_up()) {
            if let Prong::Back(device) = line.prong() {
                self.epoch.device_lost(device, Ns(0));
            }
        }
        while !self.stop.is_set() && !self.under.ended {
            self.hear();
            self.pump();
            if self.under.ended {
                break;
            }
            let now = self.clock.now();
            let wake_ns = self.epoch.wake_at(now).map_or(u64::MAX, |at| at.since(now));
            self.ear.listen(PATIENCE.min(Duration::from_nanos(wake_ns.max(1))));
        }
        let now = self.clock.now();
        for (_, claim) in self.under.claims.drain() {
            // The epoch is over without it; that is no loss of the producer's.
            self.epoch.refused(claim, now);
        }
        // Without a line, the end of its thread.
        let mut reports = self.lines.into_iter().map(|line| line.end(now));
        let front = reports.next().unwrap_or_default();
        Collected { epoch: self.epoch, front, back: reports.collect(), log: self.log }
    }
}

// ---- what is decided, done ------------------------------------------------------------

impl Collector {
    /// Does everything that can be done now.
    fn pump(&mut self) {
        self.deliver();
        for line in 0..self.lines.len() {
            while self.start(line) {}
        }
    }

    fn deliver(&mut self) {
        while self.feed.len() < FEED_ROOM {
            match self.epoch.next_delivery(self.clock.now()) {
                Pick::Deliver(batch) => self.hand_over(batch),
                Pick::Wait => {
                    self.gauge.waits_for(self.waits_for());
                    return;
                }
                Pick::End => {
                    self.under.ended = true;
                    return;
                }
            }
        }
        self.gauge.waits_for(Cause::Copy);
    }

    fn hand_over(&mut self, batch: BatchIdx) {
        let now = self.clock.now();
        let Some(made) = self.under.made.remove(&batch) else {
            self.fail(RuntimeError::Thread { thread: "collector" });
            return;
        };
        self.log.add(now, batch, made.prong, What::Delivered);
        self.epoch.delivered(batch, now);
        self.under.n_delivered += 1;
        // A feed that is gone means that the epoch is being cancelled.
        let _ = self.feed.send(Ok(made));
    }

    /// Gives one producer one batch to make; false when there is none to give.
    fn start(&mut self, line: usize) -> bool {
        if !self.lines[line].has_room() {
            return false;
        }
        let Some(slot) = self.ring.take(Duration::ZERO) else { return false };
        let now = self.clock.now();
        let claim = match self.lines[line].prong() {
            Prong::Front => self.epoch.next_front(now),
            Prong::Back(device) => self.epoch.next_back(device, now),
        };
        let Some(claim) = claim else { return false };
        let batch = claim.batch();
        let what = match claim.kind() {
            ClaimKind::First => What::Claimed,
            ClaimKind::Rescue => What::Rescued,
        };
        self.log.add(now, batch, claim.prong(), what);
        self.under.next_id += 1;
        let id = JobId(self.under.next_id);
        // Masked rows are at the end; a producer makes the rows before them.
        let samples = self.plan.samples(batch).flatten().collect();
        let job = Job { id, epoch: self.epoch_idx, batch, samples };
        match self.lines[line].submit(job, slot, now) {
            Ok(()) => {
                self.under.claims.insert(id, claim);
                true
            }
            Err(rejected) => {
                self.not_taken(line, claim, *rejected);
                false
            }
        }
    }

    fn not_taken(&mut self, line: usize, claim: Claim, rejected: Rejected) {
        match rejected.why {
            Rejection::Lost(lost) => {
                self.epoch.give_back(claim, self.clock.now());
                self.lost(line, lost.to_string());
            }
            Rejection::Full => self.epoch.refused(claim, self.clock.now()),
            Rejection::Impossible(why) => self.broken(line, claim, why),
        }
    }

    /// For stall attribution: what the consumer's next batch is waiting for.
    fn waits_for(&self) -> Cause {
        let wanted = self.keeps_order.then_some(BatchIdx(self.under.n_delivered));
        let under = |is_front: bool| {
            let claims = self.under.claims.values();
            claims.filter(move |claim| (claim.prong() == Prong::Front) == is_front)
        };
        let has = |is_front: bool| {
            under(is_front).any(|claim| wanted.is_none_or(|batch| claim.batch() == batch))
        };
        let now = self.clock.now();
        let idle =
            under(true).next().is_none() && !self.lines.iter().any(|line| line.owes(now));
        // What is made and not delivered waits for another batch, which nobody has a slot for.
        if idle && self.ring.free() == 0 {
            Cause::Consumer
        } else if has(false) && !has(true) {
            Cause::Device
        } else {
            Cause::Front
        }
    }

    fn fail(&mut self, error: RuntimeError) {
        let _ = self.feed.send(Err(error));
        self.under.ended = true;
    }
}

// ---- what happened --------------------------------------------------------------------

impl Collector {
    /// Takes in what the producers say.
    fn hear(&mut self) {
        for line in 0..self.lines.len() {
            while self.lines[line].is_up() {
                match self.lines[line].poll() {
                    Ok(Polled::Completion(completion)) => self.answered(line, completion),
                    Ok(Polled::Extra) => {}
                    Ok(Polled::Nothing) => break,
                    Err(lost) => self.lost(line, lost.to_string()),
                }
            }
        }
    }

    fn answered(&mut self, line: usize, completion: Completion) {
        let Completion { job, slot, outcome, work_ns } = completion;
        let Some(claim) = self.under.claims.remove(&job) else { return };
        let now = self.clock.now();
        match outcome {
            Outcome::NotBegun => self.epoch.refused(claim, now),
            Outcome::Failed { reason } => {
                self.lines[line].worked(work_ns, now);
                self.log.add(now, claim.batch(), claim.prong(), What::Lost);
                self.broken(line, claim, reason);
            }
            Outcome::Made { bad } => {
                let work_ns = self.lines[line].worked(work_ns, now);
                self.made(line, claim, (slot, bad), work_ns);
            }
        }
    }

    fn made(
        &mut self,
        line: usize,
        claim: Claim,
        (slot, bad): (Slot, Vec<u32>),
        work_ns: u64,
    ) {
        let now = self.clock.now();
        let (batch, prong) = (claim.batch(), claim.prong());
        let rows: Vec<_> = self.plan.samples(batch).collect();
        let n_valid = rows.iter().flatten().count();
        if let Some(why) = self.not_an_answer(&slot, &bad, n_valid) {
            self.broken(line, claim, why.to_owned());
            return;
        }
        // A few bad samples are the data's fault; mostly bad ones are the device's.
        if prong != Prong::Front && bad.len() * 2 > n_valid {
            let n_bad = bad.len();
            let why = format!(
                "it could not preprocess {n_bad} of {n_valid} samples; does it have the data?"
            );
            self.broken(line, claim, why);
            return;
        }
        self.lines[line].made(work_ns);
        self.log.add(now, batch, prong, What::Made);
        if matches!(self.epoch.finish(claim, work_ns, now), Finish::Committed) {
            self.revoke(batch);
            self.under.made.insert(batch, Made { batch, prong, rows, slot, bad });
        }
    }

    /// What no sound producer answers with: whoever comes after this counts on it.
    fn not_an_answer(
        &self,
        slot: &Slot,
        bad: &[u32],
        n_valid: usize,
    ) -> Option<&'static str> {
        if slot.len() != self.ring.slot_bytes() {
            return Some("it answered with a slot that it was not given");
        }
        let is_within = bad.last().is_none_or(|row| (*row as usize) < n_valid);
        let is_ascending = bad.is_sorted_by(|a, b| a < b);
        (!is_within || !is_ascending).then_some("it named bad rows that there are not")
    }

    /// A batch is made that others may still be busy with.
    fn revoke(&mut self, batch: BatchIdx) {
        let claims = self.under.claims.iter();
        let late = claims.filter(|(_, claim)| claim.batch() == batch);
        let late: Vec<_> = late.map(|(job, claim)| (*job, claim.prong())).collect();
        for (job, prong) in late {
            if let Some(line) = self.lines.iter().position(|line| line.prong() == prong)
                && let Err(lost) = self.lines[line].revoke(job)
            {
                self.lost(line, lost.to_string());
            }
        }
    }

    /// A claim came to nothing through its producer's fault.
    fn broken(&mut self, line: usize, claim: Claim, why: String) {
        self.epoch.give_back(claim, self.clock.now());
        if let Some(why) = self.lines[line].failed(why) {
            self.lost(line, why);
        }
    }

    /// A producer is gone, and what it had goes back to the plan. Without the host's own
    /// workers there is no epoch.
    fn lost(&mut self, line: usize, why: String) {
        let Prong::Back(device) = self.lines[line].prong() else {
            self.fail(RuntimeError::Thread { thread: "worker" });
            return;
        };
        let now = self.clock.now();
        self.lines[line].close(why);
        self.epoch.device_lost(device, now);
        let claims = self.under.claims.iter();
        let gone = claims.filter(|(_, claim)| claim.prong() == Prong::Back(device));
        let gone: Vec<_> = gone.map(|(job, _)| *job).collect();
        for claim in gone.iter().filter_map(|job| self.under.claims.remove(job)) {
            self.log.add(now, claim.batch(), claim.prong(), What::Lost);
            self.epoch.give_back(claim, now);
        }
    }
}

pub(crate) fn device_idx(device: usize) -> DeviceIdx {
    DeviceIdx(u16::try_from(device).unwrap_or(u16::MAX))
}
