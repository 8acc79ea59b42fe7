//! A job in virtual time: a consumer that takes batches in order, the batches that are ready or under way,
//! and a host that makes some of them.
//!
//! It knows neither agents nor queues: `play.rs` asks it what it wants, and tells it what came.

use bothends_core::ids::Ns;

use super::JobModel;

/// Batches ahead of the consumer that the mask of ready ones has room for.
pub(super) const MOST_AHEAD: u32 = 128;

/// What a job has got and lacks.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) model: JobModel,
    /// Batches taken by the consumer.
    pub(super) n_taken: u32,
    /// Bit `i`: batch `n_taken + i` is ready.
    ready: u128,
    /// Nobody has claimed this batch or a later one.
    unclaimed: u32,
    /// Claimed, and lost with an agent.
    returned: Vec<u32>,
    /// When the step ends that the consumer is in, or when it began to wait.
    free_at: Ns,
    consumer: Consumer,
    pub(super) host_works: HostState,
    /// What it got from the pool.
    pub(super) n_of_pool: u32,
    pub(super) n_missed: u32,
    pub(super) longest_wait_ns: u64,
    pub(super) ended: Option<Ns>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Consumer {
    Absent,
    Steps,
    Waits,
}

/// What the host does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostState {
    Idle,
    Makes(u32),
}

impl Job {
    pub(super) fn new(model: JobModel) -> Self {
        Self {
            model,
            n_taken: 0,
            ready: 0,
            unclaimed: 0,
            returned: Vec::new(),
            free_at: Ns(model.from_ns),
            consumer: Consumer::Absent,
            host_works: HostState::Idle,
            n_of_pool: 0,
            n_missed: 0,
            longest_wait_ns: 0,
            ended: None,
        }
    }

    /// The consumer is there.
    pub(super) fn start(&mut self, now: Ns) {
        self.consumer = Consumer::Waits;
        self.free_at = now;
    }

    pub(super) fn is_active(&self) -> bool {
        self.consumer != Consumer::Absent && self.ended.is_none()
    }

    /// The batch that is made next, if any may be.
    fn next_batch(&self) -> Option<u32> {
        if !self.is_active() {
            return None;
        }
        let end = self.n_taken.saturating_add(self.model.ahead.min(MOST_AHEAD));
        let end = end.min(self.model.n_batches.unwrap_or(u32::MAX));
        let next = self.returned.iter().copied().min().unwrap_or(self.unclaimed);
        (next < end).then_some(next)
    }

    /// When the consumer will want the batch that is made next.
    pub(super) fn need(&self) -> Option<Ns> {
        let steps = u64::from(self.next_batch()?.saturating_sub(self.n_taken));
        Some(self.free_at.plus(steps * self.model.step_ns))
    }

    /// The same, unless half of what may be ready is, and the rest can still be made in `lead_ns`: such
    /// a job is fed, and lets others have the pool.
    pub(super) fn near_need(&self, now: Ns, lead_ns: u64) -> Option<Ns> {
        let reserve = u64::from(self.model.ahead / 2) * self.model.step_ns;
        self.need().filter(|need| need.since(now) <= reserve.max(lead_ns))
    }

    /// Somebody makes the next batch.
    pub(super) fn claim(&mut self) -> Option<u32> {
        let batch = self.next_batch()?;
        match self.returned.iter().position(|at| *at == batch) {
            Some(at) => {
                self.returned.swap_remove(at);
            }
            None => self.unclaimed += 1,
        }
        Some(batch)
    }

    /// The batch was not made, and must be.
    pub(super) fn give_back(&mut self, batch: u32) {
        self.returned.push(batch);
    }

    /// The batch has come.
    ///
    /// # Panics
    /// If it came before: a batch is made once.
    pub(super) fn receive(&mut self, batch: u32) {
        let bit = batch
            .checked_sub(self.n_taken)
            .and_then(|at| 1_u128.checked_shl(at))
            .expect("a batch that is under way has not been taken");
        assert_eq!(self.ready & bit, 0, "a batch came twice");
        self.ready |= bit;
    }

    /// A waiting consumer takes the next batch if it is ready; when its step ends.
    pub(super) fn take(&mut self, now: Ns) -> Option<Ns> {
        if self.consumer != Consumer::Waits || self.ready & 1 == 0 {
            return None;
        }
        let waited = now.since(self.free_at);
        // Every job waits for its first batch.
        if self.n_taken > 0 && waited > 0 {
            self.n_missed += 1;
            self.longest_wait_ns = self.longest_wait_ns.max(waited);
        }
        self.ready >>= 1;
        self.n_taken += 1;
        self.consumer = Consumer::Steps;
        self.free_at = now.plus(self.model.step_ns);
        Some(self.free_at)
    }

    /// The step has ended.
    pub(super) fn end_step(&mut self, now: Ns) {
        self.consumer = Consumer::Waits;
        self.free_at = now;
        if Some(self.n_taken) == self.model.n_batches {
            self.ended = Some(now);
        }
    }

    /// The longest wait, with one that has not ended.
    pub(super) fn longest_wait(&self, now: Ns) -> u64 {
        let waits = self.consumer == Consumer::Waits && self.is_active();
        let open = if waits && self.n_taken > 0 { now.since(self.free_at) } else { 0 };
        self.longest_wait_ns.max(open)
    }
}
