//! An epoch as the collector has it: what is decided about it, what is made of it, and its
//! moments. Several may be under way, of which the first is the consumers'; the ones behind it
//! are prefetched. Nothing here talks to a producer (`collect/collector.rs` does).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bothends_core::claim::Claim;
use bothends_core::epoch::{EpochConfig, EpochState, Standing};
use bothends_core::ids::{BatchIdx, DeviceIdx, EpochIdx, Ns, Prong, SampleId};
use bothends_core::plan::Plan;
use bothends_figures::What;
use bothends_slots::{Damaged, Job, JobId, Slot};
use crossbeam::channel::Sender;

use crate::collect::log::EventLog;
use crate::collect::producer::{Line, LineReport, place};
use crate::error::RuntimeError;
use crate::threads::shutdown::Stop;

/// A made batch on its way to the feed.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) batch: BatchIdx,
    pub(crate) prong: Prong,
    /// The number of the connection that it came over, of a device's.
    pub(crate) connection: u64,
    /// Row by row: the sample, or `None` for a masked row.
    pub(crate) rows: Vec<Option<SampleId>>,
    pub(crate) slot: Slot,
    /// Rows that could not be made.
    pub(crate) bad: Vec<u32>,
    /// Rows that were made in spite of damage.
    pub(crate) damaged: Vec<Damaged>,
    /// On its way to a feed that converts it: until it has a slot for that.
    pub(crate) lacking: Option<Lacks>,
}

/// Which batch, and where it comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) batch: BatchIdx,
    pub(crate) prong: Prong,
    pub(crate) connection: u64,
}

impl Made {
    pub(crate) fn origin(&self) -> Origin {
        let Self { batch, prong, connection, .. } = *self;
        Origin { batch, prong, connection }
    }
}

/// Batches of an epoch that are handed over and want a slot to be converted in. Clones count the
/// same ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lacking(Arc<AtomicU32>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lacks(Lacking);

impl Lacking {
    pub(crate) fn one(&self) -> Lacks {
        self.0.fetch_add(1, Ordering::Relaxed);
        Lacks(self.clone())
    }

    pub(crate) fn n(&self) -> u32 {
        // Acquire: whoever sees that it lacks nothing sees that its slot is taken.
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for Lacks {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

/// Which of the epochs of an engine; they begin in this order.
pub(crate) type EpochNumber = u64;

/// What the collector is told of an epoch.
#[derive(Debug)]
pub(crate) struct Brief {
    pub(crate) number: EpochNumber,
    pub(crate) config: EpochConfig,
    pub(crate) plan: Arc<Plan>,
    pub(crate) epoch: EpochIdx,
    /// More room than is ever used: sending never blocks.
    pub(crate) feed: Sender<Result<Made, RuntimeError>>,
    pub(crate) log: EventLog,
    /// Whether its consumers have asked for it; else it is prefetched.
    pub(crate) is_wanted: bool,
    /// Set once nobody wants it any more.
    pub(crate) stop: Stop,
}

/// An epoch under way.
#[derive(Debug)]
pub(crate) struct Underway {
    pub(crate) number: EpochNumber,
    pub(crate) plan: Arc<Plan>,
    pub(crate) state: EpochState,
    pub(crate) made: HashMap<BatchIdx, Made>,
    pub(crate) n_delivered: u32,
    pub(crate) lacking: Lacking,
    /// The front's first, then the devices' in their order.
    pub(crate) reports: Vec<LineReport>,
    /// `None` once every batch has been handed over, or none ever will be.
    pub(crate) feed: Option<Sender<Result<Made, RuntimeError>>>,
    /// Whether batches are delivered in plan order.
    keeps_order: bool,
    stop: Stop,
    epoch: EpochIdx,
    log: EventLog,
    /// The clock of its decisions begins here; that of its moments when consumers want it.
    began: Instant,
    wanted_since: Option<Instant>,
}

/// What is left of an epoch when it has ended.
#[derive(Debug)]
pub(crate) struct Collected {
    pub(crate) state: EpochState,
    pub(crate) front: LineReport,
    /// In the order of the devices.
    pub(crate) back: Vec<LineReport>,
    pub(crate) log: EventLog,
}

impl Underway {
    /// Begins with what is known of the producers by now, from the epoch before that is still
    /// under way among others.
    pub(crate) fn begin(
        brief: Brief,
        lines: &[Line],
        known: &[LineReport],
        before: Option<&EpochState>,
    ) -> Self {
        let Brief { number, mut config, plan, epoch, feed, log, is_wanted, stop } = brief;
        let prior = |line: usize| known.get(line).and_then(LineReport::mean_ns);
        config.front.prior_ns = prior(0).or(config.front.prior_ns);
        for (device, line) in config.devices.iter_mut().zip(1..) {
            device.prior_ns = prior(line).or(device.prior_ns);
        }
        for (device, config) in (0..).map(DeviceIdx).zip(&mut config.devices) {
            config.standing =
                before.map_or(Standing::New, |state| state.standing(device));
        }
        let keeps_order = config.strategy.keeps_order();
        let mut state = EpochState::new(config);
        for line in lines.iter().filter(|line| !line.takes_part()) {
            if let Prong::Back(device) = line.prong() {
                state.device_lost(device, Ns(0));
            }
        }
        let now = Instant::now();
        Self {
            number,
            plan,
            state,
            made: HashMap::new(),
            n_delivered: 0,
            lacking: Lacking::default(),
            reports: vec![LineReport::default(); lines.len()],
            feed: Some(feed),
            keeps_order,
            stop,
            epoch,
            log,
            began: now,
            wanted_since: is_wanted.then_some(now),
        }
    }

    /// Consumers have asked for it.
    pub(crate) fn want(&mut self) {
        self.wanted_since.get_or_insert_with(Instant::now);
    }

    /// Nanoseconds since it began, as `core` wants them.
    pub(crate) fn now(&self) -> Ns {
        nanoseconds(self.began.elapsed())
    }

    /// Adds a moment; what happened before consumers wanted the epoch was there when it began.
    pub(crate) fn note(&mut self, batch: BatchIdx, prong: Prong, what: What) {
        let since = self.wanted_since.map_or(Duration::ZERO, |since| since.elapsed());
        self.log.add(nanoseconds(since), batch, prong, what);
    }

    /// Which epoch of the run it is.
    pub(crate) fn epoch(&self) -> EpochIdx {
        self.epoch
    }

    /// The job of making a batch. Masked rows are at the end; a producer makes the rows before
    /// them.
    pub(crate) fn job(&self, id: JobId, batch: BatchIdx) -> Job {
        let samples = self.plan.samples(batch).flatten().collect();
        let need_ns = self.state.need_ns(batch, self.now());
        Job { id, epoch: self.epoch, batch, samples, need_ns }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.feed.is_none()
    }

    /// Whether nobody wants the rest of it.
    pub(crate) fn is_cancelled(&self) -> bool {
        !self.has_ended() && self.stop.is_set()
    }

    /// Nothing more of it is made or handed over; `claims` are those under way.
    pub(crate) fn cancel(&mut self, claims: Vec<Claim>) {
        self.feed = None;
        self.made.clear();
        self.refuse(claims);
    }

    /// It is over without these, which is no loss of their producers'.
    fn refuse(&mut self, claims: Vec<Claim>) {
        let now = self.now();
        claims.into_iter().for_each(|claim| self.state.refused(claim, now));
    }

    /// Whether a producer that it has no batch for may go on to the next epoch.
    pub(crate) fn may_go_on(&self, prong: Prong) -> bool {
        self.has_ended() || self.state.may_go_on(prong, self.now())
    }

    /// The batch that is to be delivered next, where that is known before it is made.
    pub(crate) fn wanted_batch(&self) -> Option<BatchIdx> {
        self.keeps_order.then_some(BatchIdx(self.n_delivered))
    }

    /// A producer is gone, and what it had goes back to the plan.
    pub(crate) fn lost(&mut self, prong: Prong, claims: Vec<Claim>) {
        let now = self.now();
        if let Prong::Back(device) = prong {
            self.state.device_lost(device, now);
        }
        for claim in claims {
            self.note(claim.batch(), claim.prong(), What::Lost);
            self.state.give_back(claim, now);
        }
    }

    /// Ends it, with the claims that are still under way.
    pub(crate) fn end(mut self, claims: Vec<Claim>) -> Collected {
        self.refuse(claims);
        let mut reports = self.reports.into_iter();
        let front = reports.next().unwrap_or_default();
        Collected { state: self.state, front, back: reports.collect(), log: self.log }
    }

    /// The report on a producer.
    pub(crate) fn report(&mut self, prong: Prong) -> &mut LineReport {
        &mut self.reports[place(prong)]
    }
}

fn nanoseconds(time: Duration) -> Ns {
    Ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
