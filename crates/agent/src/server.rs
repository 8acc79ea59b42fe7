//! The device's end of the conversation: who does the jobs, and when they are answered.
//!
//! `submit` puts a job into a queue; one thread, the dispatcher, does the jobs in order with
//! `work.rs` and asks the cost model what each cost; `poll` answers a finished job when its
//! time has come. A job occupies one of the server's slots from `submit` until it is
//! answered, so nothing here grows without bound. The dispatcher is joined when the server is
//! dropped. Nothing here decodes, models, or knows how hosts come in.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bothends_core::ids::EpochIdx;
use bothends_core::recipe::Recipe;
use bothends_csd::{
    Capabilities, CsdError, DeviceStats, Finished, Job, JobId, PROTOCOL_VERSION, Product,
    Refused, Serve, Session,
};

use crate::costs::{Costs, Hold, Work};
use crate::cpu;
use crate::memory::Memory;
use crate::session::Agreed;
use crate::store::Store;
use crate::work::{self, Bench, Made, Task};

/// Before the end of a hold the wait becomes a spin, because a sleep may end this much late.
const SPIN: Duration = Duration::from_micros(100);

/// A job answered within this time after its modelled end was on time.
const ON_TIME_NS: u64 = 200_000;

/// Record formats that `ops` decodes.
const FORMATS: [&str; 3] = ["jpeg", "png", "raw"];

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
    store: Arc<dyn Store>,
    shared: Arc<Shared<C>>,
    /// `None` only while dropping.
    dispatcher: Option<JoinHandle<()>>,
}

/// What `Serve`'s calls and the dispatcher share.
#[derive(Debug)]
struct Shared<C> {
    born: Instant,
    state: Mutex<State>,
    /// Told when a job is queued or finished, and when the end has come.
    changed: Condvar,
    costs: Mutex<C>,
}

#[derive(Debug, Default)]
struct State {
    agreed: Option<Arc<Agreed>>,
    /// Jobs of this session that may be here at once.
    n_slots: u32,
    queued: VecDeque<Queued>,
    /// The job being done and the flag that tells its workers to give up.
    running: Option<Arc<AtomicBool>>,
    finished: Vec<Held>,
    stats: DeviceStats,
    ending: bool,
}

#[derive(Debug)]
struct Queued {
    job: Job,
    agreed: Arc<Agreed>,
    arrival_ns: u64,
}

/// A finished job that waits for its time.
#[derive(Debug)]
struct Held {
    job: JobId,
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
        let shared = Arc::new(Shared {
            born: Instant::now(),
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
            costs: Mutex::new(costs),
        });
        let n_workers = config.n_workers.max(1) as usize;
        let dispatcher =
            std::thread::Builder::new().name("be-dispatcher".to_owned()).spawn({
                let (shared, store) = (Arc::clone(&shared), Arc::clone(&store));
                move || shared.dispatch(&*store, n_workers)
            })?;
        let (memory, dispatcher) = (Memory::default(), Some(dispatcher));
        Ok(Self { config, memory, store, shared, dispatcher })
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

    /// The dispatcher's loop: jobs in order until the end.
    fn dispatch(&self, store: &dyn Store, n_workers: usize) {
        let mut benches: Vec<Bench> = Vec::new();
        benches.resize_with(n_workers, Bench::default);
        let clock = self.costs().thread_clock();
        let mut newest: Option<Begun> = None;
        while let Some((queued, dropped)) = self.next_job() {
            let begun = Begun::of(&queued);
            // Jobs of two epochs may come by turns: what one of them teaches is made known once.
            if newest.as_ref().is_none_or(|newest| begun.is_after(newest)) {
                if let Some(index) = store.side_index() {
                    index.publish();
                }
                newest = Some(begun);
            }
            let start_ns = self.now_ns();
            let task = Task { agreed: &queued.agreed, store, clock, dropped: &dropped };
            let made = work::run(task, &queued.job, &mut benches);
            if !dropped.load(Ordering::Relaxed) {
                self.finish(&queued, start_ns, made);
            }
        }
    }

    /// Waits for the next job and makes it the running one; `None` at the end.
    fn next_job(&self) -> Option<(Queued, Arc<AtomicBool>)> {
        let mut state = self.state();
        loop {
            if state.ending {
                return None;
            }
            if let Some(queued) = state.queued.pop_front() {
                let dropped = Arc::new(AtomicBool::new(false));
                state.running = Some(Arc::clone(&dropped));
                return Some((queued, dropped));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Asks what a job cost and puts its result where `poll` finds it.
    fn finish(&self, queued: &Queued, start_ns: u64, made: Result<Made, String>) {
        let (arrival_ns, end_ns) = (queued.arrival_ns, self.now_ns());
        let (samples, result) = match made {
            Ok(Made { product, samples }) => (samples, Ok(product)),
            Err(reason) => (Vec::new(), Err(reason)),
        };
        let work = Work { arrival_ns, start_ns, end_ns, samples: &samples };
        let cost = self.costs().job(&work);
        let device_ns = cost.end_ns.saturating_sub(cost.start_ns);
        let due_ns = match cost.hold {
            Hold::No => None,
            Hold::UntilEnd => Some(cost.end_ns),
        };
        let mut state = self.state();
        // Close or a new session may have come since the last sample.
        if state.running.take().is_none() {
            return;
        }
        let read = samples.iter().map(|sample| u64::from(sample.extent.len));
        state.stats.media_read_bytes += read.sum::<u64>();
        state.stats.busy_seconds += Duration::from_nanos(device_ns).as_secs_f64();
        state.stats.samples += samples.len() as u64;
        state.finished.push(Held { job: queued.job.id, result, device_ns, due_ns });
        drop(state);
        self.changed.notify_all();
    }
}

/// The epoch that a device has got to: of which session, and which.
#[derive(Debug)]
struct Begun {
    session: Weak<Agreed>,
    epoch: EpochIdx,
}

impl Begun {
    fn of(queued: &Queued) -> Self {
        Self { session: Arc::downgrade(&queued.agreed), epoch: queued.job.epoch }
    }

    fn is_after(&self, newest: &Self) -> bool {
        !self.session.ptr_eq(&newest.session) || self.epoch > newest.epoch
    }
}

impl State {
    fn n_taken(&self) -> usize {
        self.queued.len() + usize::from(self.running.is_some()) + self.finished.len()
    }

    /// Forgets all jobs; the running one is told to give up.
    fn drop_jobs(&mut self) {
        self.queued.clear();
        self.finished.clear();
        if let Some(dropped) = self.running.take() {
            dropped.store(true, Ordering::Relaxed);
        }
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
            formats: FORMATS.map(str::to_owned).into(),
            slots: self.n_slots(),
            power_states: self.shared.costs().power_states(),
        }
    }

    fn open(&mut self, session: Session) -> Result<(), String> {
        self.close();
        let agreed = Agreed::new(&session, &*self.store)?;
        let n_slots = self.memory.slots_of(agreed.batch_bytes(), self.config.n_slots)?;
        let mut state = self.shared.state();
        (state.agreed, state.n_slots) = (Some(Arc::new(agreed)), n_slots);
        Ok(())
    }

    fn submit(&mut self, job: Job) -> Result<(), Box<Refused>> {
        let arrival_ns = self.shared.now_ns();
        let mut state = self.shared.state();
        let Some(agreed) = state.agreed.clone() else {
            let reason = "a job came before a session was opened".to_owned();
            let source = CsdError::SessionRefused { reason };
            return Err(Box::new(Refused { job, source }));
        };
        if state.n_taken() >= state.n_slots as usize {
            return Err(Box::new(Refused { job, source: CsdError::Full }));
        }
        state.queued.push_back(Queued { job, agreed, arrival_ns });
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
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
            let woken = self.shared.changed.wait_timeout(state, wait);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn revoke(&mut self, job: JobId) {
        let mut state = self.shared.state();
        let Some(at) = state.queued.iter().position(|queued| queued.job.id == job) else {
            return;
        };
        state.queued.remove(at);
        let result = Err("revoked before it was begun".to_owned());
        state.finished.push(Held { job, result, device_ns: 0, due_ns: None });
        drop(state);
        self.shared.changed.notify_all();
    }

    fn stats(&mut self) -> DeviceStats {
        let now_ns = self.shared.now_ns();
        let energy = self.shared.costs().energy(now_ns);
        let state = self.shared.state();
        // A job that is held is one at which the modelled device still works.
        let is_held = |held: &&Held| held.due_ns.is_some_and(|due_ns| due_ns > now_ns);
        let n_held = state.finished.iter().filter(is_held).count();
        let n_open = state.queued.len() + usize::from(state.running.is_some()) + n_held;
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
        if let Some(index) = self.store.side_index() {
            index.publish();
        }
    }
}

impl<C: Costs> Drop for Server<C> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.ending = true;
        state.drop_jobs();
        drop(state);
        self.shared.changed.notify_all();
        if let Some(dispatcher) = self.dispatcher.take() {
            // A dispatcher that broke has nothing more to say.
            let _ = dispatcher.join();
        }
    }
}
