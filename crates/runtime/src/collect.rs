//! The collector: one thread that asks `core` what to do and does it.
//!
//! Everything that is decided is decided by [`EpochState`]; everything that happens reaches
//! it as an [`Event`]. In between this module only carries things: claims to the prongs,
//! finished batches to the feed. It never waits for anybody but its own event queue, so no
//! prong can hold it up. How it ends is in `shutdown.rs`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bothends_accel::{Joiner, Ring, Slot};
use bothends_core::claim::{Claim, ClaimKind};
use bothends_core::epoch::{EpochState, Finish, Pick};
use bothends_core::ids::{BatchIdx, DeviceIdx, EpochIdx, Ns, Prong, SampleId};
use bothends_core::plan::Plan;
use bothends_csd::{Job, JobId};
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender};

use crate::back::{Failure, Order};
use crate::clock::Clock;
use crate::error::RuntimeError;
use crate::front::FrontJob;
use crate::log::{EventLog, Moment};
use crate::shutdown::{PATIENCE, Stop};
use crate::stall::{Cause, StallGauge};

/// What the prongs, the feed and the consumer tell the collector.
#[derive(Debug)]
pub(crate) enum Event {
    /// Every row of a front batch is made or bad.
    FrontDone { id: u64, work_ns: u64, bad: Vec<u32> },
    /// A device's result is in its slot and matches its checksum.
    BackDone { job: JobId, slot: Slot, len: usize, bad: Vec<u32> },
    /// A job came to nothing.
    BackFailed { job: JobId, failure: Failure },
    /// A result that nobody waits for.
    BackExtra { device: DeviceIdx },
    /// A device is gone.
    BackLost { device: DeviceIdx, why: String },
    /// The feed has taken a batch.
    Room,
    /// The consumer has given a slot back.
    Released,
}

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

/// The way to one device.
#[derive(Debug)]
pub(crate) struct BackLink {
    pub(crate) orders: Sender<Order>,
    /// Jobs the device takes before one is finished.
    pub(crate) slots: u32,
    pub(crate) open: u32,
    pub(crate) up: bool,
    /// When it last finished something or was given something while idle.
    pub(crate) busy_since: Ns,
    /// Results that matched nothing.
    pub(crate) extra: u32,
    /// Why it was lost.
    pub(crate) lost: Option<String>,
    /// Why jobs came to nothing, the latest one.
    pub(crate) last_failure: Option<String>,
    /// Jobs that came to nothing since the last that did not.
    failures: u32,
    /// Time spent on results, for the next epoch's prior.
    pub(crate) work: Work,
}

/// Time a prong spent on the batches it finished.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Work {
    n_batches: u64,
    total_ns: u64,
}

impl Work {
    fn add(&mut self, work_ns: u64) {
        self.n_batches += 1;
        self.total_ns += work_ns;
    }

    /// Mean nanoseconds per batch, where there was one.
    pub(crate) fn mean_ns(self) -> Option<u64> {
        self.total_ns.checked_div(self.n_batches)
    }
}

impl BackLink {
    /// A way to a device that takes `slots` jobs.
    pub(crate) fn new(orders: Sender<Order>, slots: u32) -> Self {
        Self {
            orders,
            slots,
            open: 0,
            up: true,
            busy_since: Ns(0),
            extra: 0,
            lost: None,
            last_failure: None,
            failures: 0,
            work: Work::default(),
        }
    }

    /// Whether it owes an answer for much longer than it takes for one.
    fn is_silent(&self, now: Ns) -> bool {
        let limit_ns = self.work.mean_ns().map_or(FIRST_ANSWER_NS, |mean| 4 * mean);
        self.open > 0 && now.since(self.busy_since) > limit_ns
    }
}

/// How long a device that has never answered may owe an answer.
const FIRST_ANSWER_NS: u64 = 2_000_000_000;

/// Jobs in a row that may come to nothing before a device counts as lost.
const MOST_FAILURES: u32 = 3;

/// The ways out of the collector.
#[derive(Debug)]
pub(crate) struct Links {
    pub(crate) front: Sender<FrontJob>,
    pub(crate) back: Vec<BackLink>,
    /// Capacity `FEED_ROOM`, kept by counting: sending never blocks.
    pub(crate) feed: Sender<Result<Made, RuntimeError>>,
    pub(crate) events: Receiver<Event>,
}

/// Finished batches the feed may hold before it has looked at them.
pub(crate) const FEED_ROOM: u32 = 1;

/// Front batches under way at once: one being decoded, one being read.
pub(crate) const FRONT_DEPTH: usize = 2;

/// A front batch under way.
#[derive(Debug)]
struct FrontOpen {
    claim: Claim,
    rows: Vec<Option<SampleId>>,
    joiner: Joiner,
}

/// What the collector thread owns for one epoch.
#[derive(Debug)]
pub(crate) struct Collector {
    pub(crate) epoch: EpochState,
    pub(crate) plan: Arc<Plan>,
    /// Whether batches are delivered in plan order.
    pub(crate) keeps_order: bool,
    pub(crate) epoch_idx: EpochIdx,
    pub(crate) sample_bytes: usize,
    pub(crate) n_workers: u32,
    pub(crate) ring: Ring,
    pub(crate) links: Links,
    pub(crate) clock: Clock,
    pub(crate) gauge: Arc<StallGauge>,
    pub(crate) log: EventLog,
    pub(crate) stop: Stop,
    pub(crate) under: Under,
}

/// What is under way.
#[derive(Debug, Default)]
pub(crate) struct Under {
    front: HashMap<u64, FrontOpen>,
    back: HashMap<JobId, Claim>,
    made: HashMap<BatchIdx, Made>,
    next_id: u64,
    feed_used: u32,
    n_delivered: u32,
    front_work: Work,
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
    pub(crate) back: Vec<BackLink>,
    /// For each device, whether it owes an answer that it should have given.
    pub(crate) silent: Vec<bool>,
    pub(crate) front_work: Work,
    pub(crate) log: EventLog,
}

impl Collector {
    /// The loop of the collector thread.
    pub(crate) fn run(mut self) -> Collected {
        for device in (0..self.links.back.len()).filter(|d| !self.links.back[*d].up) {
            self.epoch.device_lost(device_idx(device), Ns(0));
        }
        while !self.stop.is_set() && !self.under.ended {
            self.pump();
            if self.under.ended {
                break;
            }
            let now = self.clock.now();
            let wake_ns = self.epoch.wake_at(now).map_or(u64::MAX, |at| at.since(now));
            let patience = PATIENCE.min(Duration::from_nanos(wake_ns.max(1)));
            match self.links.events.recv_timeout(patience) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            while let Ok(event) = self.links.events.try_recv() {
                self.take(event);
            }
        }
        let now = self.clock.now();
        let silent = self.links.back.iter().map(|link| link.is_silent(now)).collect();
        for (_, claim) in self.under.back.drain() {
            // The epoch is over without it; that is no loss of the device's.
            self.epoch.refused(claim, now);
        }
        for (_, open) in self.under.front.drain() {
            self.epoch.refused(open.claim, now);
        }
        let front_work = self.under.front_work;
        let Self { epoch, links, log, .. } = self;
        Collected { epoch, back: links.back, silent, front_work, log }
    }
}

// ---- what is decided, done ------------------------------------------------------------

impl Collector {
    /// Does everything that can be done now.
    fn pump(&mut self) {
        self.deliver();
        while self.start_front() {}
        for device in 0..self.links.back.len() {
            while self.start_back(device) {}
        }
    }

    fn deliver(&mut self) {
        while self.under.feed_used < FEED_ROOM {
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
        self.log.add(now, batch, made.prong, Moment::Delivered);
        self.epoch.delivered(batch, now);
        self.under.feed_used += 1;
        self.under.n_delivered += 1;
        // A feed that is gone means that the epoch is being cancelled.
        let _ = self.links.feed.send(Ok(made));
    }

    /// Starts one front batch; false when there is none to start.
    fn start_front(&mut self) -> bool {
        if self.under.front.len() >= FRONT_DEPTH {
            return false;
        }
        let Some(slot) = self.ring.take(Duration::ZERO) else { return false };
        let now = self.clock.now();
        let Some(claim) = self.epoch.next_front(now) else { return false };
        let batch = claim.batch();
        let moment = match claim.kind() {
            ClaimKind::First => Moment::Claimed,
            ClaimKind::Rescue => Moment::Rescued,
        };
        self.log.add(now, batch, Prong::Front, moment);
        let rows: Vec<_> = self.plan.samples(batch).collect();
        let (joiner, parts) = slot.into_parts(self.sample_bytes, rows.len());
        let id = self.next_id();
        let job_rows = rows.iter().copied().zip(parts).collect();
        self.under.front.insert(id, FrontOpen { claim, rows, joiner });
        let job = FrontJob { id, epoch: self.epoch_idx, rows: job_rows };
        self.links.front.send(job).is_ok()
    }

    /// Gives one device one batch; false when there is none to give.
    fn start_back(&mut self, device: usize) -> bool {
        let link = &self.links.back[device];
        if !link.up || link.open >= link.slots {
            return false;
        }
        let Some(slot) = self.ring.take(Duration::ZERO) else { return false };
        let now = self.clock.now();
        let Some(claim) = self.epoch.next_back(device_idx(device), now) else {
            return false;
        };
        let batch = claim.batch();
        self.log.add(now, batch, claim.prong(), Moment::Claimed);
        // Masked rows are at the end; a device makes the rows before them.
        let samples = self.plan.samples(batch).flatten().collect();
        let id = JobId(self.next_id());
        self.under.back.insert(id, claim);
        let link = &mut self.links.back[device];
        if link.open == 0 {
            link.busy_since = now;
        }
        link.open += 1;
        let job = Job { id, epoch: self.epoch_idx, batch, samples };
        // A device thread that is gone has said so, or will.
        let _ = link.orders.send(Order::Submit { job, slot });
        true
    }

    fn next_id(&mut self) -> u64 {
        self.under.next_id += 1;
        self.under.next_id
    }

    /// For stall attribution: what the consumer's next batch is waiting for.
    fn waits_for(&self) -> Cause {
        let wanted = self.keeps_order.then_some(BatchIdx(self.under.n_delivered));
        let front_has = |wanted: Option<BatchIdx>| match wanted {
            Some(batch) => {
                self.under.front.values().any(|open| open.claim.batch() == batch)
            }
            None => !self.under.front.is_empty(),
        };
        let back_has = |wanted: Option<BatchIdx>| match wanted {
            Some(batch) => self.under.back.values().any(|claim| claim.batch() == batch),
            None => !self.under.back.is_empty(),
        };
        let now = self.clock.now();
        let owes = |link: &BackLink| link.open > 0 && !link.is_silent(now);
        let idle = self.under.front.is_empty() && !self.links.back.iter().any(owes);
        // What is made and not delivered waits for another batch, which nobody has a slot for.
        if idle && self.ring.free() == 0 {
            Cause::Consumer
        } else if back_has(wanted) && !front_has(wanted) {
            Cause::Device
        } else {
            Cause::Front
        }
    }

    fn fail(&mut self, error: RuntimeError) {
        let _ = self.links.feed.send(Err(error));
        self.under.ended = true;
    }
}

// ---- what happened --------------------------------------------------------------------

impl Collector {
    fn take(&mut self, event: Event) {
        match event {
            Event::FrontDone { id, work_ns, bad } => self.front_done(id, work_ns, bad),
            Event::BackDone { job, slot, len, bad } => {
                self.back_done(job, slot, len, bad);
            }
            Event::BackFailed { job, failure } => self.back_failed(job, failure),
            Event::BackExtra { device } => {
                if let Some(link) = self.links.back.get_mut(usize::from(device.0)) {
                    link.extra += 1;
                }
            }
            Event::BackLost { device, why } => self.back_lost(device, why),
            Event::Room => self.under.feed_used = self.under.feed_used.saturating_sub(1),
            Event::Released => {}
        }
    }

    fn front_done(&mut self, id: u64, work_ns: u64, bad: Vec<u32>) {
        let Some(FrontOpen { claim, rows, joiner }) = self.under.front.remove(&id) else {
            return;
        };
        let now = self.clock.now();
        let batch = claim.batch();
        let Ok(slot) = joiner.join() else {
            self.fail(RuntimeError::Thread { thread: "worker" });
            return;
        };
        self.log.add(now, batch, Prong::Front, Moment::Made);
        let work_ns = work_ns / u64::from(self.n_workers.max(1));
        self.under.front_work.add(work_ns);
        if matches!(self.epoch.finish(claim, work_ns, now), Finish::Committed) {
            self.revoke(batch);
            let made = Made { batch, prong: Prong::Front, rows, slot, bad };
            self.under.made.insert(batch, made);
        }
    }

    /// The host has made a batch that devices may still be busy with.
    fn revoke(&self, batch: BatchIdx) {
        for (job, claim) in &self.under.back {
            let Prong::Back(device) = claim.prong() else { continue };
            if claim.batch() == batch
                && let Some(link) = self.links.back.get(usize::from(device.0))
            {
                let _ = link.orders.send(Order::Revoke(*job));
            }
        }
    }

    fn back_done(&mut self, job: JobId, mut slot: Slot, len: usize, bad: Vec<u32>) {
        let Some((claim, work_ns)) = self.close_back(job) else { return };
        let now = self.clock.now();
        let batch = claim.batch();
        let rows: Vec<_> = self.plan.samples(batch).collect();
        let n_valid = rows.iter().flatten().count();
        if len != n_valid * self.sample_bytes {
            let why =
                format!("its result has {len} bytes where {n_valid} samples were asked");
            self.back_broken(claim, why);
            return;
        }
        // A few bad samples are the data's fault; mostly bad ones are the device's.
        if bad.len() * 2 > n_valid {
            let n_bad = bad.len();
            let why = format!(
                "it could not preprocess {n_bad} of {n_valid} samples; does it have the data?"
            );
            self.back_broken(claim, why);
            return;
        }
        slot[len..].fill(0);
        let prong = claim.prong();
        if let Prong::Back(device) = prong
            && let Some(link) = self.links.back.get_mut(usize::from(device.0))
        {
            link.failures = 0;
            link.work.add(work_ns);
        }
        self.log.add(now, batch, prong, Moment::Made);
        if matches!(self.epoch.finish(claim, work_ns, now), Finish::Committed) {
            self.under.made.insert(batch, Made { batch, prong, rows, slot, bad });
        }
    }

    fn back_failed(&mut self, job: JobId, failure: Failure) {
        let now = self.clock.now();
        match failure {
            Failure::NotBegun => {
                if let Some(claim) = self.take_back(job) {
                    self.epoch.refused(claim, now);
                }
            }
            Failure::Broken(why) => {
                if let Some((claim, _)) = self.close_back(job) {
                    self.log.add(now, claim.batch(), claim.prong(), Moment::Lost);
                    self.back_broken(claim, why);
                }
            }
        }
    }

    /// A claim of a device came to nothing through the device's fault.
    fn back_broken(&mut self, claim: Claim, why: String) {
        let now = self.clock.now();
        let prong = claim.prong();
        self.epoch.give_back(claim, now);
        let Prong::Back(device) = prong else { return };
        let Some(link) = self.links.back.get_mut(usize::from(device.0)) else { return };
        link.failures += 1;
        if link.up && link.failures >= MOST_FAILURES {
            let n = link.failures;
            self.back_lost(
                device,
                format!("{n} jobs in a row came to nothing; the last: {why}"),
            );
        } else {
            link.last_failure = Some(why);
        }
    }

    fn back_lost(&mut self, device: DeviceIdx, why: String) {
        let now = self.clock.now();
        let Some(link) = self.links.back.get_mut(usize::from(device.0)) else { return };
        link.up = false;
        link.open = 0;
        link.lost = Some(why);
        self.epoch.device_lost(device, now);
        let gone: Vec<_> = self
            .under
            .back
            .iter()
            .filter(|(_, claim)| claim.prong() == Prong::Back(device))
            .map(|(job, _)| *job)
            .collect();
        for claim in gone.iter().filter_map(|job| self.under.back.remove(job)) {
            self.log.add(now, claim.batch(), claim.prong(), Moment::Lost);
            self.epoch.give_back(claim, now);
        }
    }

    /// Takes a job off its device's account.
    fn take_back(&mut self, job: JobId) -> Option<Claim> {
        let claim = self.under.back.remove(&job)?;
        if let Prong::Back(device) = claim.prong()
            && let Some(link) = self.links.back.get_mut(usize::from(device.0))
        {
            link.open = link.open.saturating_sub(1);
        }
        Some(claim)
    }

    /// The same for a job the device worked for; how long, as the host saw it: from its
    /// submission or the device's previous answer, whichever was later.
    fn close_back(&mut self, job: JobId) -> Option<(Claim, u64)> {
        let claim = self.take_back(job)?;
        let now = self.clock.now();
        let Prong::Back(device) = claim.prong() else { return None };
        let link = self.links.back.get_mut(usize::from(device.0))?;
        let work_ns = now.since(link.busy_since);
        link.busy_since = now;
        Some((claim, work_ns))
    }
}

pub(crate) fn device_idx(device: usize) -> DeviceIdx {
    DeviceIdx(u16::try_from(device).unwrap_or(u16::MAX))
}
