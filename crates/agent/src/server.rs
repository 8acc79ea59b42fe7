//! The device's end of the conversation: who does the jobs, and when they are answered.
//!
//! `submit` queues a job with its slot. Workers, which live as long as the server, fill the slot row by
//! row and start on the next job while the last rows of one are being made (`work/line.rs`). Scouts
//! prefetch records ahead of them. The cost model is asked what each job cost, and `poll` answers a
//! finished job when its time has come. A job occupies one of the server's places from `submit` until it
//! is answered, so nothing here grows without bound. All threads are joined when the server is dropped.
//! Nothing here decodes, models, or knows how hosts connect.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bothends_core::recipe::Recipe;
use bothends_core::sample::SampleKey;
use bothends_csd::{
    Capabilities, CsdError, Declined, DeviceStats, Finished, Inquiry, Job, JobId,
    PROTOCOL_VERSION, Product, RecordDigest, Refused, Serve, Session,
};
use bothends_slots::{HostSlot, available_bytes};

use crate::costs::{Costs, Hold, ThreadClock, Work};
use crate::cpu;
use crate::memory::{Memory, decode_room};
use crate::session::Agreed;
use crate::store::Store;
use crate::work::batch::{Outcome, Row};
use crate::work::line::{Claim, Learns, Line, Retired, Turn};
use crate::work::{Bench, Site};

/// Before the end of a hold the wait becomes a spin, because a sleep may end this much late.
const SPIN: Duration = Duration::from_micros(100);

/// A job answered within this time after its modelled end was on time.
const ON_TIME_NS: u64 = 200_000;

/// Threads that have records read ahead: two, so that one file that is slow to open does not
/// keep others waiting, and no more than these, however many workers there are.
const MIN_SCOUTS: u32 = 2;
const MAX_SCOUTS: u32 = 8;

/// How a server presents itself and how much it does at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// For people: what results call this device.
    pub name: String,
    /// Whether models stand in for hardware.
    pub emulated: bool,
    /// Worker threads; 0 counts as 1.
    pub n_workers: u32,
    /// Jobs that it accepts before one is answered; 0 counts as 1.
    pub n_slots: u32,
}

/// A device: takes sessions and jobs, makes batches.
#[derive(Debug)]
pub struct Server<C: Costs> {
    config: ServerConfig,
    memory: Memory,
    shared: Arc<Shared<C>>,
    /// Workers and scouts.
    threads: Vec<JoinHandle<()>>,
}

/// What `Serve`'s calls and the workers share.
#[derive(Debug)]
struct Shared<C> {
    born: Instant,
    store: Arc<dyn Store>,
    learns: Learns,
    state: Mutex<State>,
    /// Notified when a job is finished.
    finished: Condvar,
    /// Notified when there may be something for a worker to do, and when the end has come.
    work: Condvar,
    /// Notified when scouts that rest are to go on, and when the end has come.
    ahead: Condvar,
    /// Locked for a moment, also while `state` is; never the other way round.
    costs: Mutex<C>,
}

#[derive(Debug, Default)]
struct State {
    agreed: Option<Arc<Agreed>>,
    /// Jobs of this session that may be here at once.
    n_slots: u32,
    line: Line,
    n_resting_scouts: u32,
    finished: Vec<Held>,
    stats: DeviceStats,
    ending: bool,
}

/// A finished job that waits for its time.
#[derive(Debug)]
struct Held {
    job: JobId,
    slot: HostSlot,
    result: Result<Product, String>,
    device_ns: u64,
    /// When it shall be answered; `None` for at once.
    due_ns: Option<u64>,
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
        let shared = Arc::new(Shared {
            born: Instant::now(),
            store,
            learns,
            state: Mutex::new(State::default()),
            finished: Condvar::new(),
            work: Condvar::new(),
            ahead: Condvar::new(),
            costs: Mutex::new(costs),
        });
        let n_workers = config.n_workers.max(1);
        let memory = Memory::default();
        let mut server = Self { config, memory, shared, threads: Vec::new() };
        for worker_idx in 0..n_workers {
            let started = server.spawn(format!("be-agent-{worker_idx}"), Shared::work);
            match started {
                // Fewer workers than asked for still do all the work.
                Err(_) if worker_idx > 0 => break,
                started => started?,
            }
        }
        for scout_idx in 0..n_workers.clamp(MIN_SCOUTS, MAX_SCOUTS) {
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
    pub fn with_memory(mut self, memory: Memory) -> Self {
        self.memory = memory;
        self
    }
}

impl<C: Costs> Server<C> {
    /// Jobs that are accepted before one is answered: in this session, or the most in any.
    fn n_slots(&self) -> u32 {
        let state = self.shared.state();
        let most = self.config.n_slots.max(1);
        state.agreed.as_ref().map_or(most, |_| state.n_slots)
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
        let clock = self.costs().thread_clock();
        while let Some(claim) = self.next_claim() {
            match claim {
                Claim::Row(turn) => self.make(&mut bench, turn, clock),
                Claim::Publish(begun) => {
                    self.publish();
                    self.state().line.published(begun);
                    self.work.notify_all();
                }
            }
        }
    }

    /// A scout's loop, until the end: it prefetches records ahead of the workers. Whether that
    /// succeeds changes nothing but how long they wait.
    fn scout(&self) {
        let clock = self.costs().thread_clock();
        let mut state = self.state();
        while !state.ending {
            let Some((agreed, epoch, sample)) = state.line.scout() else {
                state.n_resting_scouts += 1;
                state = self.ahead.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.n_resting_scouts -= 1;
                continue;
            };
            drop(state);
            let site = Site { agreed: &agreed, store: &*self.store, clock };
            site.read_ahead(SampleKey { seed: agreed.seed, epoch, sample });
            drop(agreed);
            state = self.state();
        }
    }

    fn wake_scouts(&self, state: &State) {
        if state.n_resting_scouts > 0 && state.line.is_unscouted() {
            self.ahead.notify_all();
        }
    }

    /// Waits for something to do; `None` at the end.
    fn next_claim(&self) -> Option<Claim> {
        let mut state = self.state();
        loop {
            if state.ending {
                return None;
            }
            if let Some(claim) = state.line.claim(self.now_ns(), self.learns) {
                self.wake_scouts(&state);
                return Some(claim);
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn make(&self, bench: &mut Bench, turn: Turn, clock: ThreadClock) {
        let Turn { batch, agreed, row: Row { row, sample, mut part } } = turn;
        let site = Site { agreed: &agreed, store: &*self.store, clock };
        let key = SampleKey { seed: agreed.seed, epoch: batch.epoch, sample };
        let attempt = bench.attempt(site, key, &mut part);
        if let Some(outcome) = batch.row_done(row, part, attempt) {
            let mut state = self.state();
            state.line.done(&batch, outcome, self.now_ns());
            self.retire(&mut state);
        }
    }

    /// Retires jobs that are done: asks what they cost and leaves their results to `poll`.
    fn retire(&self, state: &mut State) {
        while let Some(retired) = state.line.retire() {
            let Retired { id, outcome, arrival_ns, start_ns, end_ns } = retired;
            let Outcome { slot, result, samples } = outcome;
            let work = Work { arrival_ns, start_ns, end_ns, samples: &samples };
            let cost = self.costs().job(&work);
            let device_ns = cost.end_ns.saturating_sub(cost.start_ns);
            let due_ns = match cost.hold {
                Hold::No => None,
                Hold::UntilEnd => Some(cost.end_ns),
            };
            let read = samples.iter().map(|sample| u64::from(sample.extent.len));
            state.stats.media_read_bytes += read.sum::<u64>();
            state.stats.busy_seconds += Duration::from_nanos(device_ns).as_secs_f64();
            state.stats.samples += samples.len() as u64;
            state.finished.push(Held { job: id, slot, result, device_ns, due_ns });
        }
        self.finished.notify_all();
        // The first job of an epoch waits until all before it are done.
        self.work.notify_all();
    }

    fn publish(&self) {
        if let Some(index) = self.store.side_index() {
            index.publish();
        }
    }
}

impl State {
    fn n_taken(&self) -> usize {
        self.line.len() + self.finished.len()
    }

    /// Forgets all jobs; workers finish the samples that they are at.
    fn drop_jobs(&mut self) {
        self.line.clear();
        self.finished.clear();
    }

    /// The finished job whose time has come first, or the time until it comes.
    fn next_due(&self, now_ns: u64) -> Option<(usize, u64)> {
        let waits = self.finished.iter().enumerate();
        let waits =
            waits.map(|(i, held)| (i, held.due_ns.unwrap_or(0).saturating_sub(now_ns)));
        waits.min_by_key(|&(i, wait_ns)| (wait_ns, i))
    }

    /// Takes a finished job out at `now_ns`, at or after its time.
    fn answer(&mut self, held_idx: usize, now_ns: u64) -> Finished {
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

impl<C: Costs> Serve for Server<C> {
    fn hello(&mut self) -> Capabilities {
        let known = Recipe::known_before_cut();
        Capabilities {
            protocol_version: PROTOCOL_VERSION,
            name: self.config.name.clone(),
            emulated: self.config.emulated,
            ops: known.into_iter().map(str::to_owned).collect(),
            slots: self.n_slots(),
            max_batch_bytes: self.memory.largest_batch_bytes(),
        }
    }

    fn open(&mut self, session: Session) -> Result<(), Declined> {
        self.close();
        let room = decode_room(available_bytes(), self.config.n_workers);
        let agreed = Agreed::new(&session, &*self.shared.store, room)?;
        let n_slots = self.memory.slots_of(agreed.batch_bytes(), self.config.n_slots)?;
        let mut state = self.shared.state();
        (state.agreed, state.n_slots) = (Some(Arc::new(agreed)), n_slots);
        Ok(())
    }

    fn submit(&mut self, job: Job, slot: HostSlot) -> Result<(), Box<Refused>> {
        let arrival_ns = self.shared.now_ns();
        let mut state = self.shared.state();
        let Some(agreed) = state.agreed.clone() else {
            let reason = "a job came before a session was opened".to_owned();
            let source = CsdError::SessionRefused { reason };
            return Err(Box::new(Refused { job, slot, source }));
        };
        if state.n_taken() >= state.n_slots as usize {
            return Err(Box::new(Refused { job, slot, source: CsdError::Full }));
        }
        state.line.push(&agreed, (job, slot), arrival_ns);
        self.shared.wake_scouts(&state);
        self.shared.retire(&mut state);
        Ok(())
    }

    fn attest(&mut self, inquiry: &Inquiry) -> Result<Vec<Option<RecordDigest>>, String> {
        let agreed = self.shared.state().agreed.clone();
        let agreed = agreed.ok_or("a question came before a session was opened")?;
        agreed.attest(&*self.shared.store, inquiry)
    }

    fn poll(&mut self, timeout: Duration) -> Option<Finished> {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.state();
        loop {
            let now_ns = self.shared.now_ns();
            let due = state.next_due(now_ns);
            if let Some((held_idx, 0)) = due {
                return Some(state.answer(held_idx, now_ns));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let hold =
                due.map_or(Duration::MAX, |(_, wait_ns)| Duration::from_nanos(wait_ns));
            if hold <= SPIN {
                drop(state);
                let until = Instant::now() + hold.min(left);
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
                state = self.shared.state();
                continue;
            }
            let wait = left.min(hold - SPIN);
            let woken = self.shared.finished.wait_timeout(state, wait);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn revoke(&mut self, job: JobId) {
        let mut state = self.shared.state();
        let Some(slot) = state.line.take_back(job) else { return };
        let result = Err("revoked before it was begun".to_owned());
        state.finished.push(Held { job, slot, result, device_ns: 0, due_ns: None });
        self.shared.retire(&mut state);
    }

    fn forget(&mut self, job: JobId) {
        let mut state = self.shared.state();
        state.line.forget(job);
        state.finished.retain(|held| held.job != job);
        self.shared.retire(&mut state);
    }

    fn stats(&mut self) -> DeviceStats {
        let now_ns = self.shared.now_ns();
        let energy = self.shared.costs().energy(now_ns);
        let state = self.shared.state();
        // A job that is held is one at which the modelled device still works.
        let is_held = |held: &&Held| held.due_ns.is_some_and(|due_ns| due_ns > now_ns);
        let n_held = state.finished.iter().filter(is_held).count();
        let n_open = state.line.len() + n_held;
        DeviceStats {
            queued: u32::try_from(n_open).unwrap_or(u32::MAX),
            cpu_seconds: cpu::process_seconds(),
            energy,
            ..state.stats.clone()
        }
    }

    fn close(&mut self) {
        let mut state = self.shared.state();
        state.agreed = None;
        state.drop_jobs();
        drop(state);
        // The next host may be long in coming.
        self.shared.publish();
    }
}

impl<C: Costs> Drop for Server<C> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.ending = true;
        state.drop_jobs();
        drop(state);
        self.shared.work.notify_all();
        self.shared.ahead.notify_all();
        for thread in self.threads.drain(..) {
            // One that broke has nothing more to say.
            let _ = thread.join();
        }
    }
}
