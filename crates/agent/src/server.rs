//! The device itself: who does the jobs of all its hosts, and when they are answered.
//!
//! Each host talks to a [`Guest`] of its own (`server/guest.rs`), which queues its jobs and answers them.
//! Workers, which live as long as the server, fill the slots row by row. The sessions of all hosts share
//! them (`work/shares.rs`), and in each they start on the next job while the last rows of one are being
//! made (`work/line.rs`). Scouts prefetch records ahead of them. The cost model is asked what each job
//! cost. What sessions hold is bounded (`memory.rs`), and so is their number. All threads are joined when
//! the server is dropped. Nothing here decodes, models, or knows how hosts connect.

mod guest;
mod jobs;
mod openings;
mod refusals;
mod registry;
mod seats;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bothends_core::sample::SampleKey;
use bothends_csd::admission::Peer;
use bothends_csd::{
    Busy, Capabilities, Declined, DeviceStats, Finished, Inquiry, Job, JobId,
    RecordDigest, Refused, Serve, Session, Whose,
};
use bothends_ops::{PixelLimit, Room};
use bothends_slots::{HostSlot, available_bytes};

use crate::costs::{Costs, Hold, ThreadClock, Work};
use crate::memory::{Memory, RETRY, ResultMemory, decode_room};
use crate::session::{RowKey, Tables};
use crate::store::Store;
use crate::work::batch::{Outcome, Row};
use crate::work::line::{Claim, Learns, Retired, Turn, Waiting};
use crate::work::results::{Asked, Flight, Original, Results};
use crate::work::shares::{Effort, SeatId, Spent};
use crate::work::{Attempt, Bench, Site, Unfit};
use seats::{Claimed, Held, State};

pub use guest::Guest;
pub use jobs::{JobCounts, Sharing};
pub use registry::{Asker, Registry};

/// Threads that have records read ahead: two, so that one file that is slow to open does not
/// keep others waiting, and no more than these, however many workers there are.
const MIN_SCOUTS: u32 = 2;
const MAX_SCOUTS: u32 = 8;

/// Hosts that are served at a time unless somebody says otherwise.
pub const SESSIONS: u32 = 64;

/// How a server presents itself and how much it does at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// For people: what results call this device.
    pub name: String,
    /// Whether models stand in for hardware.
    pub emulated: bool,
    /// Worker threads; 0 counts as 1.
    pub n_workers: u32,
    /// Jobs of each host that it accepts before one is answered; 0 counts as 1.
    pub n_slots: u32,
}

/// A device: takes sessions and jobs, makes batches. It serves hosts through its guests, and
/// whoever owns it through itself.
#[derive(Debug)]
pub struct Server<C: Costs> {
    shared: Arc<Shared<C>>,
    /// Workers and scouts.
    threads: Vec<JoinHandle<()>>,
    own: Guest<C>,
}

/// What guests and workers share.
#[derive(Debug)]
struct Shared<C> {
    config: ServerConfig,
    born: Instant,
    store: Arc<dyn Store>,
    learns: Learns,
    tables: Tables,
    /// Samples that several sessions want.
    results: Results<Waiting>,
    /// What all sessions decode in.
    room: Room,
    state: Mutex<State>,
    /// Notified when there may be something for a worker to do, and when the end has come.
    work: Condvar,
    /// Notified when scouts that rest are to go on, and when the end has come.
    ahead: Condvar,
    /// Locked for a moment, also while `state` is; never the other way round.
    costs: Mutex<C>,
    registry: Registry,
}

/// What a device has done and does, all hosts together.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Hosts that are served, and sessions that are open.
    pub hosts: u32,
    /// Sessions that are open.
    pub sessions: u32,
    /// Different data sets of these.
    pub tables: u32,
    /// Bytes that slots and lists of samples may take for these.
    pub held_bytes: u64,
    /// What was counted since the start.
    pub stats: DeviceStats,
    /// Seconds that workers spent on samples, all together.
    pub worker_seconds: f64,
    /// Samples that were not made because of this device's limits.
    pub refused_samples: u64,
    /// What was done for jobs with a name.
    pub jobs: Vec<JobCounts>,
    /// Results that are kept for others.
    pub results: Kept,
    /// Open sessions by run and job, where hosts say of which they are.
    pub runs: Vec<RunCounts>,
    /// Members of a pool that have announced themselves.
    pub members: u64,
}

/// Sessions of one run and job that are open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Which; without a run, those of all others.
    pub whose: Whose,
    /// How many.
    pub sessions: u32,
}

/// Results that are kept for several sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    /// Bytes that they take.
    pub held_bytes: u64,
    /// Bytes that they may take now.
    pub limit_bytes: u64,
    /// Results for which there was no room.
    pub left_out: u64,
    /// Results that had changed in memory, and were made again.
    pub corrupt: u64,
}

impl<C: Costs + 'static> Server<C> {
    /// Starts a device over `store` whose jobs cost what `costs` says.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start(
        config: ServerConfig,
        store: impl Store + 'static,
        costs: C,
    ) -> std::io::Result<Self> {
        let store: Arc<dyn Store> = Arc::new(store);
        let learns = match store.side_index() {
            Some(_) => Learns::FromEpochs,
            None => Learns::Nothing,
        };
        let n_workers = config.n_workers.max(1);
        let n_scouts = n_workers.clamp(MIN_SCOUTS, MAX_SCOUTS);
        let shared = Arc::new(Shared {
            config,
            born: Instant::now(),
            store,
            learns,
            tables: Tables::default(),
            results: Results::default(),
            room: Room::new(decode_room(available_bytes(), n_workers)),
            state: Mutex::new(State::new(n_workers, n_scouts)),
            work: Condvar::new(),
            ahead: Condvar::new(),
            costs: Mutex::new(costs),
            registry: Registry::default(),
        });
        let seat = shared.state().enter();
        let own = Guest::of(&shared, seat, Peer::default());
        let mut server = Self { shared, threads: Vec::new(), own };
        for worker_idx in 0..n_workers {
            let started = server.spawn(format!("be-agent-{worker_idx}"), Shared::work);
            match started {
                // Fewer workers than asked for still do all the work.
                Err(_) if worker_idx > 0 => break,
                started => started?,
            }
        }
        for scout_idx in 0..n_scouts {
            // Without scouts records are read when they are needed.
            let _ = server.spawn(format!("be-scout-{scout_idx}"), Shared::scout);
        }
        Ok(server)
    }

    fn spawn(&mut self, name: String, run: fn(&Shared<C>)) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name(name).spawn(move || run(&shared))?;
        self.threads.push(thread);
        Ok(())
    }

    /// With so much memory for batches: where it holds fewer of a session's than there are slots,
    /// so many jobs are accepted before one is answered.
    #[must_use]
    pub fn with_memory(self, memory: Memory) -> Self {
        self.shared.state().set_memory(memory);
        self
    }

    /// Keeping results that several sessions want, in so much memory, among these. Without this none are
    /// kept.
    #[must_use]
    pub fn with_results(self, memory: ResultMemory, sharing: Sharing) -> Self {
        let mut state = self.shared.state();
        state.jobs.share_with(sharing);
        state.result_memory = memory;
        drop(state);
        self
    }

    /// Decoding images of so many pixels; larger ones are bad rows, which hosts make themselves.
    /// Without this, all that a host would decode.
    #[must_use]
    pub fn with_pixels(self, pixels: PixelLimit) -> Self {
        self.shared.state().pixels = pixels;
        self
    }

    /// Serving so many hosts at a time; 0 counts as 1.
    #[must_use]
    pub fn with_sessions(self, n_sessions: u32) -> Self {
        self.shared.state().n_guests_most = n_sessions.max(1);
        self
    }

    /// A place for one more host, which has proved nothing.
    ///
    /// # Errors
    /// All places are taken.
    pub fn guest(&self) -> Result<Guest<C>, Busy> {
        self.guest_with(Peer::default())
    }

    /// A place for one more host, which is this one, or has proved this.
    ///
    /// # Errors
    /// All places are taken.
    pub fn guest_with(&self, peer: impl Into<Peer>) -> Result<Guest<C>, Busy> {
        let mut state = self.shared.state();
        let most = state.n_guests_most;
        // The server's own place is not counted.
        if state.seats.len() > most as usize {
            let reason = format!("it serves {most} hosts already, which is its limit");
            return Err(Busy { retry: RETRY, reason });
        }
        // Before another looks how many there are.
        let seat = state.enter();
        drop(state);
        Ok(Guest::of(&self.shared, seat, peer.into()))
    }

    /// The members of a pool that have announced themselves here.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    /// What it has done and does.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let shared = &self.shared;
        let energy = shared.costs().energy(shared.now_ns());
        let tables = u32::try_from(shared.tables.len()).unwrap_or(u32::MAX);
        let list_bytes = shared.tables.bytes();
        let counts = shared.state().counts();
        let stats = DeviceStats {
            cpu_seconds: crate::cpu::process_seconds(),
            energy,
            ..counts.stats
        };
        let held_bytes = counts.held_bytes.saturating_add(list_bytes);
        let results = shared.results.counts();
        let results = Kept {
            held_bytes: results.held_bytes,
            limit_bytes: results.limit_bytes,
            left_out: results.n_left_out,
            corrupt: results.n_corrupt,
        };
        let members = shared.registry.n_members() as u64;
        Counts { tables, held_bytes, stats, results, members, ..counts }
    }
}

impl<C: Costs> Shared<C> {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A thread that broke left the state as it was before its last step.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn costs(&self) -> MutexGuard<'_, C> {
        self.costs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker's loop, until the end.
    fn work(&self) {
        let mut bench = Bench::default();
        let costs = self.costs();
        let (clock, share_clock) = (costs.thread_clock(), costs.share_clock());
        drop(costs);
        let mut last = None;
        while let Some((claimed, claim)) = self.next_claim(last.take()) {
            let began_ns = share_clock();
            let seat = claimed.seat;
            let (refused_ns, on) = match claim {
                Claim::Row(turn) => self.make(&mut bench, (seat, turn), clock),
                Claim::Publish(begun) => {
                    self.publish();
                    let mut state = self.state();
                    if let Some(seat) = state.seats.get_mut(&seat) {
                        seat.line.published(begun);
                    }
                    drop(state);
                    self.work.notify_all();
                    (0, Effort::Making)
                }
            };
            let took_ns = share_clock().saturating_sub(began_ns);
            last = Some((claimed, Spent { took_ns, refused_ns, on }));
        }
    }

    /// A scout's loop, until the end: it prefetches records ahead of the workers. Whether that
    /// succeeds changes nothing but how long they wait.
    fn scout(&self) {
        let clock = self.costs().thread_clock();
        let mut state = self.state();
        while !state.ending {
            let (claimed, (agreed, epoch, sample)) = match state.scout(self.now_ns()) {
                Ok(scouted) => scouted,
                Err(rest) => {
                    state.n_resting_scouts += 1;
                    state = rest.on(&self.ahead, state);
                    state.n_resting_scouts -= 1;
                    continue;
                }
            };
            drop(state);
            let began_ns = self.now_ns();
            let site = Site { agreed: &agreed, store: &*self.store, clock };
            site.read_ahead(SampleKey { seed: agreed.seed, epoch, sample });
            drop(agreed);
            let now_ns = self.now_ns();
            state = self.state();
            state.scouted(claimed, now_ns - began_ns, now_ns);
        }
    }

    /// Says how much memory results may take next to what sessions have.
    fn limit_results(&self, state: &State) {
        let kept_bytes = self.results.counts().held_bytes;
        let held_bytes = state.held_bytes().saturating_add(self.tables.bytes());
        let memory = (state.memory(), state.result_memory);
        self.results.limit(memory.1.limit(memory.0, (held_bytes, kept_bytes)));
    }

    fn wake_scouts(&self, state: &State) {
        if state.n_resting_scouts > 0 && state.is_unscouted() {
            self.ahead.notify_all();
        }
    }

    /// Books what was done last and waits for something to do; `None` at the end.
    fn next_claim(&self, last: Option<(Claimed, Spent)>) -> Option<(Claimed, Claim)> {
        let mut state = self.state();
        if let Some((claimed, spent)) = last {
            state.worked(claimed, spent, self.now_ns());
        }
        loop {
            if state.ending {
                return None;
            }
            if let Some((seat, turn)) = self.results.orphan() {
                return Some((Claimed::of_orphan(seat), Claim::Row(turn)));
            }
            match state.claim(self.now_ns(), self.learns) {
                Ok(claim) => {
                    self.wake_scouts(&state);
                    return Some(claim);
                }
                Err(rest) => state = rest.on(&self.work, state),
            }
        }
    }

    /// Makes a sample, or copies one that is made, or leaves that to who makes it; returns the time that it
    /// would have taken if it was refused, else 0, and which of these it was.
    fn make(
        &self,
        bench: &mut Bench,
        waiting: Waiting,
        clock: ThreadClock,
    ) -> (u64, Effort) {
        let Turn { batch, agreed, row } = &waiting.1;
        let key = agreed.row_key(batch.epoch, row.sample);
        let Some(key) = key.filter(|_| !self.results.is_off()) else {
            return (self.make_own(bench, waiting, clock), Effort::Making);
        };
        match self.results.ask(key, waiting, &self.work) {
            Asked::Waits => (0, Effort::Copying),
            Asked::Here(made, waiting) => {
                self.hand_out(bench, (made.original(), key), waiting, clock)
            }
            Asked::Yours(flight, waiting) => {
                (self.make_for_all(bench, flight, waiting, clock), Effort::Making)
            }
        }
    }

    /// Makes a sample, and copies it for those who want it now; returns what it counts as if it was refused.
    fn make_for_all(
        &self,
        bench: &mut Bench,
        flight: Flight<'_, Waiting>,
        (seat, mut turn): Waiting,
        clock: ThreadClock,
    ) -> u64 {
        let key = flight.key();
        let attempt = self.attempt(bench, &mut turn, clock);
        let made = attempt.original(&turn.row.part);
        let mut others = match made {
            Some(_) => self.state().claim_equals(key, self.now_ns(), self.learns),
            None => Vec::new(),
        };
        let n_next = u32::try_from(others.len()).unwrap_or(u32::MAX);
        let n_others = turn.agreed.equals.n_others();
        let left = n_others.map(|n_others| n_others.saturating_sub(n_next));
        others.extend(flight.land(made.zip(left), self.now_ns()));
        for other in others {
            match made {
                Some(made) => drop(self.hand_out(bench, (made, key), other, clock)),
                // Its own session may be luckier: a file may be back.
                None => drop(self.make_own(bench, other, clock)),
            }
        }
        let refused_ns = attempt.refused_ns();
        self.complete(seat, turn, attempt);
        refused_ns
    }

    /// Copies a sample that is made; where that is of no use, makes it. As [`Self::make`].
    fn hand_out(
        &self,
        bench: &mut Bench,
        (made, key): (Original<'_>, RowKey),
        (seat, mut turn): Waiting,
        clock: ThreadClock,
    ) -> (u64, Effort) {
        let site = Site { agreed: &turn.agreed, store: &*self.store, clock };
        match Bench::copy(site, made, &mut turn.row.part) {
            Ok(attempt) => {
                self.complete(seat, turn, attempt);
                (0, Effort::Copying)
            }
            Err(unfit) => {
                if unfit == Unfit::Corrupt {
                    self.results.corrupt(key);
                }
                (self.make_own(bench, (seat, turn), clock), Effort::Making)
            }
        }
    }

    /// Makes a sample for one session alone; as [`Self::make_for_all`].
    fn make_own(
        &self,
        bench: &mut Bench,
        (seat, mut turn): Waiting,
        clock: ThreadClock,
    ) -> u64 {
        let attempt = self.attempt(bench, &mut turn, clock);
        let refused_ns = attempt.refused_ns();
        self.complete(seat, turn, attempt);
        refused_ns
    }

    fn attempt(&self, bench: &mut Bench, turn: &mut Turn, clock: ThreadClock) -> Attempt {
        let Turn { batch, agreed, row: Row { sample, part, .. } } = turn;
        let site = Site { agreed, store: &*self.store, clock };
        let key = SampleKey { seed: agreed.seed, epoch: batch.epoch, sample: *sample };
        bench.attempt(site, key, part)
    }

    /// A row is made, or cannot be.
    fn complete(&self, seat: SeatId, turn: Turn, attempt: Attempt) {
        let Turn { batch, row: Row { row, part, .. }, .. } = turn;
        if let Some(outcome) = batch.row_done(row, part, attempt) {
            let mut state = self.state();
            if let Some(seat) = state.seats.get_mut(&seat) {
                seat.line.done(&batch, outcome, self.now_ns());
            }
            self.retire(&mut state, seat);
        }
    }

    /// Retires jobs that are done: asks what they cost and leaves their results to `poll`.
    fn retire(&self, state: &mut State, seat: SeatId) {
        let Some(seat) = state.seats.get_mut(&seat) else { return };
        while let Some(retired) = seat.line.retire() {
            let Retired { id, outcome, arrival_ns, start_ns, end_ns } = retired;
            let Outcome { slot, result, samples, n_shared, read_bytes } = outcome;
            let work = Work { arrival_ns, start_ns, end_ns, samples: &samples };
            let cost = self.costs().job(&work);
            let device_ns = cost.end_ns.saturating_sub(cost.start_ns);
            let due_ns = match cost.hold {
                Hold::No => None,
                Hold::UntilEnd => Some(cost.end_ns),
            };
            seat.stats.media_read_bytes += read_bytes;
            seat.stats.busy_seconds += Duration::from_nanos(device_ns).as_secs_f64();
            seat.stats.samples += samples.len() as u64;
            seat.stats.shared_samples += n_shared;
            state.jobs.made(seat.job, samples.len() as u64, n_shared);
            seat.finished.push(Held { job: id, slot, result, device_ns, due_ns });
        }
        seat.bell.notify_all();
        // The first job of an epoch waits until all before it are done.
        self.work.notify_all();
    }

    fn publish(&self) {
        if let Some(index) = self.store.side_index() {
            index.publish();
        }
    }
}

/// The one host of a server that nobody else shares.
impl<C: Costs> Serve for Server<C> {
    fn hello(&mut self) -> Capabilities {
        self.own.hello()
    }

    fn open(&mut self, session: Session) -> Result<(), Declined> {
        self.own.open(session)
    }

    fn attest(&mut self, inquiry: &Inquiry) -> Result<Vec<Option<RecordDigest>>, String> {
        self.own.attest(inquiry)
    }

    fn submit(&mut self, job: Job, slot: HostSlot) -> Result<(), Box<Refused>> {
        self.own.submit(job, slot)
    }

    fn poll(&mut self, timeout: Duration) -> Option<Finished> {
        self.own.poll(timeout)
    }

    fn revoke(&mut self, job: JobId) {
        self.own.revoke(job);
    }

    fn forget(&mut self, job: JobId) {
        self.own.forget(job);
    }

    fn stats(&mut self) -> DeviceStats {
        self.own.stats()
    }

    fn close(&mut self) {
        self.own.close();
    }
}

impl<C: Costs> Drop for Server<C> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.ending = true;
        state.seats.values_mut().for_each(seats::Seat::drop_jobs);
        drop(state);
        self.shared.work.notify_all();
        self.shared.ahead.notify_all();
        for thread in self.threads.drain(..) {
            // One that broke has nothing more to say.
            let _ = thread.join();
        }
    }
}
