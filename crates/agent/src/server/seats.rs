//! The sessions of all hosts of a device, under one lock: their queues, results and counts.
//!
//! A worker's next sample is chosen among all of them at once, so they are not locked one by one. It
//! decides and makes nothing; whoever calls holds the lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::time::Duration;

use bothends_csd::{DeviceStats, Finished, JobId, Product, Whose};
use bothends_ops::PixelLimit;
use bothends_slots::HostSlot;

use super::jobs::Jobs;
use super::openings::Openings;
use super::refusals::Refusals;
use super::{Counts, Kept, RunCounts, SESSIONS};
use crate::memory::{Memory, ResultMemory};
use crate::session::{Agreed, RowKey, Work};
use crate::work::line::{Claim, Learns, Line, Upcoming, Waiting};
use crate::work::shares::{Charge, Effort, JobNumber, Next, SeatId, Shares, Spent};

/// A job answered within this time after its modelled end was on time.
const ON_TIME_NS: u64 = 200_000;

/// How long what was available for a batch is believed.
const LARGEST_NS: u64 = 100_000_000;

/// What the lock of a server guards.
#[derive(Debug)]
pub(crate) struct State {
    memory: Memory,
    /// The largest batch that is made, as it was at this time.
    largest: Option<(u64, u64)>,
    pub(crate) n_guests_most: u32,
    /// Of the images that sessions may have decoded.
    pub(crate) pixels: PixelLimit,
    pub(crate) seats: BTreeMap<SeatId, Seat>,
    n_seats_ever: SeatId,
    pub(crate) openings: Openings,
    pub(crate) refusals: Refusals,
    pub(crate) jobs: Jobs,
    pub(crate) result_memory: ResultMemory,
    workers: Shares,
    scouts: Shares,
    pub(crate) n_resting_scouts: u32,
    /// Of hosts that have left.
    left: DeviceStats,
    worked_ns: u64,
    /// Samples that this device does not make.
    n_refused: u64,
    pub(crate) ending: bool,
}

/// For whom a thread works, and what that session was charged in advance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claimed {
    pub(crate) seat: SeatId,
    /// `None` of what another session was charged for.
    charge: Option<Charge>,
}

impl Claimed {
    /// A row whose result somebody else was to make.
    pub(crate) fn of_orphan(seat: SeatId) -> Self {
        Self { seat, charge: None }
    }

    fn of(next: Next) -> Result<Self, Rest> {
        match next {
            Next::Serve(seat, charge) => Ok(Self { seat, charge: Some(charge) }),
            Next::Hold(ns) => Err(Rest::For(Duration::from_nanos(ns))),
            Next::Nothing => Err(Rest::UntilNews),
        }
    }
}

/// How long a thread without work rests.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rest {
    /// Until there is something new.
    UntilNews,
    /// Or so much time has passed.
    For(Duration),
}

impl Rest {
    /// Rests until `news` comes or the time is over.
    pub(crate) fn on<'a>(
        self,
        news: &Condvar,
        state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        match self {
            Self::UntilNews => news.wait(state).unwrap_or_else(PoisonError::into_inner),
            Self::For(time) => {
                let woken = news.wait_timeout(state, time);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }
}

/// A host's place.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    pub(crate) agreed: Option<Arc<Agreed>>,
    /// Jobs of this session that may be here at once.
    pub(crate) n_slots: u32,
    /// What its slots take.
    pub(crate) held_bytes: u64,
    /// The job that its session is of, if that has a name.
    pub(crate) job: Option<JobNumber>,
    /// What its latest session is of, as its host calls it.
    pub(crate) whose: Whose,
    /// Whether this session has had a job.
    pub(crate) has_asked: bool,
    pub(crate) line: Line,
    pub(crate) finished: Vec<Held>,
    pub(crate) stats: DeviceStats,
    /// Notified when a job is finished.
    pub(crate) bell: Arc<Condvar>,
}

/// A finished job that waits for its time.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) job: JobId,
    pub(crate) slot: HostSlot,
    pub(crate) result: Result<Product, String>,
    pub(crate) device_ns: u64,
    /// When it shall be answered; `None` for at once.
    pub(crate) due_ns: Option<u64>,
}

impl State {
    pub(crate) fn new(n_workers: u32, n_scouts: u32) -> Self {
        Self {
            memory: Memory::default(),
            largest: None,
            n_guests_most: SESSIONS,
            pixels: PixelLimit::NONE,
            seats: BTreeMap::new(),
            n_seats_ever: 0,
            openings: Openings::of(n_workers),
            refusals: Refusals::default(),
            jobs: Jobs::default(),
            result_memory: ResultMemory::Off,
            workers: Shares::of(n_workers as usize),
            scouts: Shares::of(n_scouts as usize),
            n_resting_scouts: 0,
            left: DeviceStats::default(),
            worked_ns: 0,
            n_refused: 0,
            ending: false,
        }
    }

    pub(crate) fn memory(&self) -> Memory {
        self.memory
    }

    pub(crate) fn set_memory(&mut self, memory: Memory) {
        (self.memory, self.largest) = (memory, None);
    }

    /// The largest batch that is made at `now_ns`, in bytes. Finding that out takes the kernel
    /// longer than an answer takes otherwise, and hosts may ask without end.
    pub(crate) fn largest_batch_bytes(&mut self, now_ns: u64) -> u64 {
        let fresh =
            self.largest.filter(|(at_ns, _)| now_ns.saturating_sub(*at_ns) < LARGEST_NS);
        let (_, bytes) =
            fresh.unwrap_or_else(|| (now_ns, self.memory.largest_batch_bytes()));
        self.largest = fresh.or(Some((now_ns, bytes)));
        bytes
    }

    pub(crate) fn enter(&mut self) -> (SeatId, Arc<Condvar>) {
        let seat = self.n_seats_ever;
        self.n_seats_ever += 1;
        self.workers.enter(seat);
        self.scouts.enter(seat);
        let bell = Arc::clone(&self.seats.entry(seat).or_default().bell);
        (seat, bell)
    }

    pub(crate) fn leave(&mut self, seat: SeatId) {
        self.workers.leave(seat);
        self.scouts.leave(seat);
        if let Some(seat) = self.seats.remove(&seat) {
            self.left = sum(&self.left, &seat.stats);
        }
    }

    /// What the next worker does, and for whom.
    ///
    /// # Errors
    /// There is nothing to do now: for how long, unless something changes before.
    pub(crate) fn claim(
        &mut self,
        now_ns: u64,
        learns: Learns,
    ) -> Result<(Claimed, Claim), Rest> {
        let seats = &mut self.seats;
        let wants = |id| {
            let line = &seats.get(&id)?.line;
            line.has_claim(learns).then(|| line.want()).flatten()
        };
        let claimed = Claimed::of(self.workers.next(now_ns, wants))?;
        let seat = seats.get_mut(&claimed.seat);
        let claim = seat.and_then(|seat| seat.line.claim(now_ns, learns));
        claim.map(|claim| (claimed, claim)).ok_or(Rest::UntilNews)
    }

    /// A worker has done what it claimed.
    pub(crate) fn worked(&mut self, claimed: Claimed, spent: Spent, now_ns: u64) {
        let Claimed { seat, charge } = claimed;
        self.worked_ns = self.worked_ns.saturating_add(spent.took_ns);
        self.n_refused += u64::from(spent.refused_ns > 0);
        if let Some(charge) = charge {
            self.workers.done(seat, charge, spent, now_ns);
        }
        let job = self.seats.get(&seat).and_then(|seat| seat.job);
        self.jobs.worked(job, spent.took_ns);
    }

    /// A session of this job, with this weight, has begun at a seat.
    pub(crate) fn begin(
        &mut self,
        seat: SeatId,
        (job, weight): (Option<JobNumber>, u64),
    ) {
        self.workers.weigh(seat, job, weight);
        self.scouts.weigh(seat, job, weight);
        if let Some(seat) = self.seats.get_mut(&seat) {
            (seat.job, seat.has_asked) = (job, false);
        }
    }

    /// A session has a job: from its first one on, others keep for it what it may want too.
    pub(crate) fn asks(&mut self, seat: SeatId) {
        let Some(seat) = self.seats.get_mut(&seat) else { return };
        if !std::mem::replace(&mut seat.has_asked, true) {
            self.count_equals();
        }
    }

    /// The session at a seat has ended; what nobody else can have results of any more.
    pub(crate) fn end(&mut self, seat: SeatId) -> Option<Work> {
        let seat = self.seats.get_mut(&seat)?;
        let job = seat.job.take();
        let agreed = seat.agreed.take();
        // What workers are still at for it is kept for nobody.
        agreed.iter().for_each(|agreed| agreed.equals.are(0));
        let work = agreed.and_then(|agreed| agreed.work());
        self.jobs.leave(job);
        self.count_equals();
        let is_other =
            |seat: &Seat| seat.agreed.as_ref().is_some_and(|it| it.work() == work);
        work.filter(|_| !self.seats.values().any(is_other))
    }

    /// The rows that others would have made next and that are this sample.
    pub(crate) fn claim_equals(
        &mut self,
        key: RowKey,
        now_ns: u64,
        learns: Learns,
    ) -> Vec<Waiting> {
        let seats = self.seats.iter_mut();
        let rows = seats.filter_map(|(id, seat)| {
            let turn = seat.line.claim_equal(key, now_ns, learns)?;
            Some((*id, turn))
        });
        rows.collect()
    }

    /// Tells sessions how many are equal to them. Keeping a result costs a copy, which some would have made
    /// without end by opening sessions and asking for nothing; so only those that have asked count.
    fn count_equals(&self) {
        let asking = || {
            let seats = self.seats.values().filter(|seat| seat.has_asked);
            seats.filter_map(|seat| seat.agreed.as_deref())
        };
        let mut n_asking: HashMap<Work, u32> = HashMap::new();
        for work in asking().filter_map(Agreed::work) {
            *n_asking.entry(work).or_default() += 1;
        }
        for agreed in asking() {
            let n = agreed.work().and_then(|work| n_asking.get(&work));
            agreed.equals.are(n.copied().unwrap_or(1));
        }
    }

    /// The record that the next scout prefetches.
    ///
    /// # Errors
    /// As [`Self::claim`].
    pub(crate) fn scout(&mut self, now_ns: u64) -> Result<(Claimed, Upcoming), Rest> {
        let seats = &mut self.seats;
        let wants = |id| {
            let line = &seats.get(&id)?.line;
            line.has_scout().then(|| line.want()).flatten()
        };
        let claimed = Claimed::of(self.scouts.next(now_ns, wants))?;
        let record = seats.get_mut(&claimed.seat).and_then(|seat| seat.line.scout());
        record.map(|record| (claimed, record)).ok_or(Rest::UntilNews)
    }

    /// A scout has prefetched what it claimed.
    pub(crate) fn scouted(&mut self, claimed: Claimed, took_ns: u64, now_ns: u64) {
        let Claimed { seat, charge } = claimed;
        if let Some(charge) = charge {
            let spent = Spent { took_ns, refused_ns: 0, on: Effort::Making };
            self.scouts.done(seat, charge, spent, now_ns);
        }
    }

    /// Whether resting scouts should resume.
    pub(crate) fn is_unscouted(&self) -> bool {
        self.seats.values().any(|seat| seat.line.is_unscouted())
    }

    /// Whether another host has jobs here.
    pub(crate) fn is_anybody_else_busy(&self, seat: SeatId) -> bool {
        self.seats.iter().any(|(id, other)| *id != seat && other.line.len() > 0)
    }

    /// What the slots of all sessions take, in bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.seats.values().map(|seat| seat.held_bytes).fold(0, u64::saturating_add)
    }

    /// What is known here of the device's work.
    pub(crate) fn counts(&self) -> Counts {
        let stats = self.seats.values().fold(self.left.clone(), |all, seat| {
            let n_open = u32::try_from(seat.line.len()).unwrap_or(u32::MAX);
            let queued = all.queued.saturating_add(n_open);
            DeviceStats { queued, ..sum(&all, &seat.stats) }
        });
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let open = self.seats.values().filter(|seat| seat.agreed.is_some());
        Counts {
            // The server's own place is not counted.
            hosts: count(self.seats.len()).saturating_sub(1),
            sessions: count(open.count()),
            tables: 0,
            held_bytes: self.held_bytes(),
            stats,
            worker_seconds: Duration::from_nanos(self.worked_ns).as_secs_f64(),
            refused_samples: self.n_refused,
            jobs: self.jobs.counts(),
            results: Kept::default(),
            members: 0,
            runs: self.runs(),
        }
    }

    /// The open sessions of each run and job: those of a few runs, and the rest together.
    fn runs(&self) -> Vec<RunCounts> {
        let mut runs: BTreeMap<Whose, u32> = BTreeMap::new();
        for seat in self.seats.values().filter(|seat| seat.agreed.is_some()) {
            let is_known = seat.whose.run.is_some();
            let has_room = runs.len() < MOST_RUNS || runs.contains_key(&seat.whose);
            if is_known {
                let whose = if has_room { seat.whose.clone() } else { Whose::default() };
                *runs.entry(whose).or_default() += 1;
            }
        }
        let counted = |(whose, sessions)| RunCounts { whose, sessions };
        runs.into_iter().map(counted).collect()
    }
}

/// Runs that the metrics tell apart: each is a time series of its own.
const MOST_RUNS: usize = 64;

/// What two hosts counted, together.
fn sum(a: &DeviceStats, b: &DeviceStats) -> DeviceStats {
    DeviceStats {
        jobs: a.jobs + b.jobs,
        samples: a.samples + b.samples,
        shared_samples: a.shared_samples + b.shared_samples,
        media_read_bytes: a.media_read_bytes + b.media_read_bytes,
        busy_seconds: a.busy_seconds + b.busy_seconds,
        late_completions: a.late_completions + b.late_completions,
        max_lateness_seconds: a.max_lateness_seconds.max(b.max_lateness_seconds),
        ..a.clone()
    }
}

impl Seat {
    pub(crate) fn n_taken(&self) -> usize {
        self.line.len() + self.finished.len()
    }

    /// Forgets all jobs; workers finish the samples that they are at.
    pub(crate) fn drop_jobs(&mut self) {
        self.line.clear();
        self.finished.clear();
    }

    /// The finished job whose time has come first, or the time until it comes.
    pub(crate) fn next_due(&self, now_ns: u64) -> Option<(usize, u64)> {
        let waits = self.finished.iter().enumerate();
        let waits =
            waits.map(|(i, held)| (i, held.due_ns.unwrap_or(0).saturating_sub(now_ns)));
        waits.min_by_key(|&(i, wait_ns)| (wait_ns, i))
    }

    /// Takes a finished job out at `now_ns`, at or after its time.
    pub(crate) fn answer(&mut self, held_idx: usize, now_ns: u64) -> Finished {
        let held = self.finished.remove(held_idx);
        let after_ns = held.due_ns.map_or(0, |due_ns| now_ns.saturating_sub(due_ns));
        let lateness_ns = if after_ns > ON_TIME_NS { after_ns } else { 0 };
        self.stats.jobs += 1;
        if lateness_ns > 0 {
            self.stats.late_completions += 1;
            let lateness = Duration::from_nanos(lateness_ns).as_secs_f64();
            self.stats.max_lateness_seconds =
                self.stats.max_lateness_seconds.max(lateness);
        }
        Finished {
            job: held.job,
            slot: held.slot,
            result: held.result,
            device_ns: held.device_ns,
            lateness_ns,
        }
    }
}
