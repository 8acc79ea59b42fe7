//! The events of a pool: a queue in virtual time that joins jobs, agents and decisions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bothends_core::ids::Ns;
use bothends_core::pool::lease::{JobIdx, Leases, Policy};
use bothends_core::pool::size::{Need, PoolSize};

use super::agents::{Agents, State};
use super::fairness::entitled;
use super::jobs::{HostState, Job};
use super::made::{Found, Made};
use super::{Placement, PoolWorld, Scaling, Variant, float};

const SECOND: u64 = 1_000_000_000;
/// How often the load of the agents is checked, and how many of the last checks count.
const LOAD_CHECK_NS: u64 = 15 * SECOND;
const LOAD_CHECKS: usize = 20;

/// What became of a pool.
#[derive(Debug, Clone)]
pub struct PoolOutcome {
    /// Batches that consumers took.
    pub n_delivered: u64,
    /// Of each job that asks the pool for anything: what it got, relative to its fair share.
    pub shares: Vec<f64>,
    /// Batches that came too late.
    pub n_missed: u64,
    /// The longest wait of a consumer.
    pub longest_wait_ns: u64,
    /// When the last of the jobs that end has ended; `None` if one has not, or none ends.
    pub ended: Option<Ns>,
    /// The time that agents ran, in all.
    pub on_ns: u64,
    /// The time that they worked, in all.
    pub busy_ns: u64,
    /// Bytes over the uplinks.
    pub uplink_bytes: u64,
    /// Batches that had been made for another job.
    pub n_reused: u64,
    /// Failures of agents.
    pub n_failures: u64,
    /// Decisions for which job an agent works next.
    pub n_decisions: u64,
    /// Batches made by agents for each job, whether it kept them or not.
    pub of_pool: Vec<u32>,
}

/// Plays a pool with one seed.
#[must_use]
pub fn play(world: &PoolWorld, variant: Variant, seed: u64) -> PoolOutcome {
    let mut player = Player::new(world, variant, seed);
    player.begin();
    let end = Ns(world.for_ns);
    while let Some(Reverse(event)) = player.events.pop() {
        if event.at > end {
            break;
        }
        player.now = event.at;
        player.happen(event.what);
    }
    player.now = end;
    player.outcome()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: Ns,
    seq: u64,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    JobStarts(u32),
    StepEnds(u32),
    HostMade(u32),
    /// An agent, with its stamp.
    AgentStarts(u32, u32),
    AgentMade(u32, u32),
    /// It has sent, and may make another batch.
    AgentFree(u32, u32),
    /// An agent, with its life.
    AgentFails(u32, u32),
    AgentBack(u32, u32),
    /// A batch for a job.
    Arrives(u32, u32),
    /// That the agent of this batch has failed is known.
    Lost(u32, u32),
    Present(u32),
    Size,
}

struct Player<'a> {
    world: &'a PoolWorld,
    variant: Variant,
    now: Ns,
    seq: u64,
    events: BinaryHeap<Reverse<Event>>,
    jobs: Vec<Job>,
    agents: Agents,
    leases: Leases,
    /// Of each rack, the jobs whose data it has.
    local: Vec<Leases>,
    made: Made,
    size: Option<PoolSize>,
    /// The numbers of agents that the last checks of the load asked for.
    loads: Vec<u32>,
    busy_before: u64,
    present: u32,
    /// A job must ask for a batch so long before it is needed.
    lead_ns: u64,
    n_reused: u64,
    n_decisions: u64,
    /// Batches made since the size was last decided, and the time for them.
    n_made: u64,
    made_ns: u64,
}

impl<'a> Player<'a> {
    fn new(world: &'a PoolWorld, variant: Variant, seed: u64) -> Self {
        let urgent = world.agents.batch_ns.saturating_add(world.agents.wait_ns);
        let urgent = urgent.saturating_mul(2);
        let n_racks = world.agents.n_racks();
        let mut leases = Leases::new(variant.policy, urgent);
        let mut local = vec![Leases::new(variant.policy, urgent); n_racks as usize];
        for job in &world.jobs {
            leases.add(job.weight);
            if variant.placement == Placement::Local {
                // Every queue has every job, so that a job has the same number in all.
                local.iter_mut().for_each(|leases| {
                    leases.add(job.weight);
                });
            }
        }
        let size = match variant.scaling {
            Scaling::Need(config) => Some(PoolSize::new(config, 0)),
            Scaling::Fixed | Scaling::Load(_) => None,
        };
        Self {
            world,
            variant,
            now: Ns(0),
            seq: 0,
            events: BinaryHeap::new(),
            jobs: world.jobs.iter().map(|model| Job::new(*model)).collect(),
            agents: Agents::new(&world.agents, seed),
            leases,
            local,
            made: Made::new(variant.kept),
            size,
            loads: Vec::new(),
            busy_before: 0,
            present: world.agents.n,
            lead_ns: urgent,
            n_reused: 0,
            n_decisions: 0,
            n_made: 0,
            made_ns: 0,
        }
    }

    fn at(&mut self, at: Ns, what: What) {
        self.seq += 1;
        self.events.push(Reverse(Event { at, seq: self.seq, what }));
    }

    fn begin(&mut self) {
        for (job, model) in (0..).zip(&self.world.jobs) {
            self.at(Ns(model.from_ns), What::JobStarts(job));
        }
        for &(at, n) in &self.world.agents.present {
            self.at(Ns(at), What::Present(n));
        }
        match self.variant.scaling {
            Scaling::Fixed => self.resize(self.world.agents.n),
            Scaling::Load(_) => {
                self.resize(1);
                self.at(Ns(LOAD_CHECK_NS), What::Size);
            }
            Scaling::Need(_) => self.at(Ns(0), What::Size),
        }
    }

    fn happen(&mut self, what: What) {
        match what {
            What::JobStarts(job) => {
                self.jobs[job as usize].start(self.now);
                self.go_on(job);
            }
            What::StepEnds(job) => {
                self.jobs[job as usize].end_step(self.now);
                self.deliver(job);
            }
            What::HostMade(job) => self.host_made(job),
            What::AgentStarts(agent, stamp) => self.start(agent, stamp),
            What::AgentMade(agent, stamp) => self.agent_made(agent, stamp),
            What::AgentFree(agent, stamp) => {
                if self.agents.stamp(agent) == stamp {
                    self.free(agent);
                }
            }
            What::AgentFails(agent, life) => {
                if self.agents.is_life(agent, life) {
                    self.fail(agent);
                }
            }
            What::AgentBack(agent, stamp) => {
                if self.agents.stamp(agent) == stamp {
                    self.agents.set(agent, State::Off, self.now);
                    if self.agents.is_wanted(agent) {
                        self.turn_on(agent);
                    }
                }
            }
            What::Arrives(job, batch) => {
                self.jobs[job as usize].receive(batch);
                self.deliver(job);
            }
            What::Lost(job, batch) => {
                let key = (self.jobs[job as usize].model.work, batch);
                let waiting = self.made.lose(key);
                for job in waiting.into_iter().chain([job]) {
                    self.jobs[job as usize].give_back(batch);
                    self.go_on(job);
                }
            }
            What::Present(n) => {
                self.present = n;
                let size = match self.size.as_ref() {
                    Some(size) => size.size(),
                    None => n,
                };
                self.resize(size);
            }
            What::Size => self.decide_size(),
        }
    }

    // ---- jobs ---------------------------------------------------------------------------

    fn deliver(&mut self, job: u32) {
        if let Some(end) = self.jobs[job as usize].take(self.now) {
            self.at(end, What::StepEnds(job));
        }
        self.go_on(job);
    }

    /// The host works if it can, and the job asks for agents if it needs them.
    fn go_on(&mut self, job: u32) {
        let state = &mut self.jobs[job as usize];
        if let (Some(host_ns), HostState::Idle) = (state.model.host_ns, state.host_works)
            && let Some(batch) = state.claim()
        {
            state.host_works = HostState::Makes(batch);
            self.at(self.now.plus(host_ns), What::HostMade(job));
        }
        self.ask(job);
        while self.need(job).is_some() {
            let Some(agent) = self.find_idle(job) else { return };
            self.free(agent);
        }
    }

    fn host_made(&mut self, job: u32) {
        let state = &mut self.jobs[job as usize];
        if let HostState::Makes(batch) = state.host_works {
            state.host_works = HostState::Idle;
            state.receive(batch);
        }
        self.deliver(job);
    }

    /// The rack that has the data, where that matters.
    fn home(&self, job: u32) -> Option<u32> {
        (self.variant.placement == Placement::Local)
            .then_some(job % self.world.agents.n_racks())
    }

    /// When it needs a batch of the pool, if it wants one.
    fn need(&self, job: u32) -> Option<Ns> {
        let state = &self.jobs[job as usize];
        match self.variant.policy {
            Policy::Need => state.near_need(self.now, self.lead_ns),
            // As much ahead as there is room for.
            Policy::FirstCome | Policy::Fair => state.need(),
        }
    }

    fn ask(&mut self, job: u32) {
        let need = self.need(job);
        let near = self.home_that_runs(job);
        let local = self.home(job).map(|home| &mut self.local[home as usize]);
        let anywhere = need.filter(|_| near.is_none());
        let here = need.filter(|_| near.is_some());
        for (leases, need) in [(Some(&mut self.leases), anywhere), (local, here)] {
            match (leases, need) {
                (Some(leases), Some(need)) => leases.ask(JobIdx(job), need),
                (Some(leases), None) => leases.withdraw(JobIdx(job)),
                (None, _) => {}
            }
        }
    }

    /// The rack that has the data, where that matters and any of its agents runs.
    fn home_that_runs(&self, job: u32) -> Option<u32> {
        self.home(job).filter(|home| self.agents.n_on_in(*home) > 0)
    }

    /// Agents have stopped: the jobs whose data they have may need others.
    fn ask_elsewhere(&mut self) {
        if self.variant.placement == Placement::Local {
            let jobs = (0..).zip(&self.world.jobs);
            jobs.for_each(|(job, _)| self.go_on(job));
        }
    }

    // ---- agents -------------------------------------------------------------------------

    /// An agent that has nothing to do and may work for this job.
    fn find_idle(&mut self, job: u32) -> Option<u32> {
        match self.home_that_runs(job) {
            Some(home) => self.agents.find_idle_in(home),
            None => self.agents.find_idle(),
        }
    }

    fn turn_on(&mut self, agent: u32) {
        let stamp = self.agents.set(agent, State::Starts, self.now);
        let at = self.now.plus(self.world.agents.start_ns);
        self.at(at, What::AgentStarts(agent, stamp));
    }

    fn start(&mut self, agent: u32, stamp: u32) {
        if self.agents.stamp(agent) != stamp {
            return;
        }
        let life = self.agents.live(agent);
        if let Some(at) = self.agents.draw_failure(self.now) {
            self.at(at, What::AgentFails(agent, life));
        }
        self.free(agent);
    }

    /// The agent works for the next job, or is idle.
    fn free(&mut self, agent: u32) {
        if !self.agents.is_wanted(agent) {
            self.agents.set(agent, State::Off, self.now);
            self.ask_elsewhere();
            return;
        }
        loop {
            let Some(job) = self.next_job(agent) else {
                self.agents.set(agent, State::Idle, self.now);
                return;
            };
            self.n_decisions += 1;
            let batch = self.jobs[job as usize].claim();
            let batch = batch.expect("a job that asks has a batch to make");
            let key = (self.jobs[job as usize].model.work, batch);
            let found = self.made.look(key, job);
            match found {
                Found::Nothing => self.make(agent, job, batch),
                Found::UnderWay => {}
                Found::Kept => {
                    self.n_reused += 1;
                    self.hand_out(agent, job, batch);
                }
            }
            self.ask(job);
            if found != Found::UnderWay {
                return;
            }
        }
    }

    fn next_job(&mut self, agent: u32) -> Option<u32> {
        let local = self.local.get_mut(self.agents.rack(agent) as usize);
        let near = local.and_then(|leases| leases.next(self.now));
        let job = near.or_else(|| self.leases.next(self.now))?;
        Some(job.0)
    }

    fn make(&mut self, agent: u32, job: u32, batch: u32) {
        let mut begins = self.now;
        if self.home(job) != Some(self.agents.rack(agent)) {
            let rack = job % self.world.agents.n_racks();
            let bytes = self.jobs[job as usize].model.record_bytes;
            begins = self.agents.send(rack, bytes, self.now).1;
        }
        let work_ns = self.agents.draw_batch();
        let at = begins.plus(work_ns).plus(self.world.agents.wait_ns);
        self.leases.charge(JobIdx(job), work_ns);
        if let Some(home) = self.home(job) {
            self.local[home as usize].charge(JobIdx(job), work_ns);
        }
        let stamp = self.agents.set(agent, State::Makes(job, batch), self.now);
        self.agents.busy_ns += work_ns;
        self.n_made += 1;
        self.made_ns += at.since(self.now);
        self.at(at, What::AgentMade(agent, stamp));
    }

    fn agent_made(&mut self, agent: u32, stamp: u32) {
        let State::Makes(job, batch) = self.agents.state(agent) else { return };
        if self.agents.stamp(agent) != stamp {
            return;
        }
        let key = (self.jobs[job as usize].model.work, batch);
        let waiting = self.made.finish(key);
        self.n_reused += waiting.len() as u64;
        for other in waiting {
            self.send(agent, other, batch);
        }
        self.hand_out(agent, job, batch);
    }

    /// The agent sends a batch; it goes on as soon as the bytes are on their way, because it
    /// has room for one more.
    fn hand_out(&mut self, agent: u32, job: u32, batch: u32) {
        let begins = self.send(agent, job, batch);
        let stamp = self.agents.set(agent, State::Sends, self.now);
        self.at(begins, What::AgentFree(agent, stamp));
    }

    fn send(&mut self, agent: u32, job: u32, batch: u32) -> Ns {
        let job_state = &mut self.jobs[job as usize];
        job_state.n_of_pool += 1;
        let bytes = job_state.model.batch_bytes;
        let (begins, arrives) =
            self.agents.send(self.agents.rack(agent), bytes, self.now);
        self.at(arrives, What::Arrives(job, batch));
        begins
    }

    fn fail(&mut self, agent: u32) {
        let state = self.agents.state(agent);
        if !state.runs() {
            return;
        }
        self.agents.n_failures += 1;
        if let State::Makes(job, batch) = state {
            let at = self.now.plus(self.world.agents.noticed_ns);
            self.at(at, What::Lost(job, batch));
        }
        let stamp = self.agents.set(agent, State::Failed, self.now);
        let back = self.agents.draw_repair(self.now);
        self.at(back, What::AgentBack(agent, stamp));
        self.ask_elsewhere();
    }

    // ---- the number of agents -----------------------------------------------------------

    fn resize(&mut self, size: u32) {
        for agent in self.agents.resize(size.min(self.present), self.now) {
            self.turn_on(agent);
        }
        self.ask_elsewhere();
    }

    fn decide_size(&mut self) {
        let (size, pause) = match self.variant.scaling {
            Scaling::Fixed => return,
            Scaling::Need(_) => (self.size_by_need(), SECOND),
            Scaling::Load(load) => (self.size_by_load(load), LOAD_CHECK_NS),
        };
        self.resize(size);
        self.at(self.now.plus(pause), What::Size);
    }

    fn size_by_need(&mut self) -> u32 {
        let rate = |ns: u64| 1e9 / float(ns.max(1));
        let active = self.jobs.iter().filter(|job| job.is_active());
        let need = |job: &Job| Need {
            consumer: rate(job.model.step_ns),
            host: job.model.host_ns.map_or(0.0, rate),
        };
        let needs: Vec<Need> = active.map(need).collect();
        let made = (self.n_made > 0).then(|| self.made_ns / self.n_made);
        (self.n_made, self.made_ns) = (0, 0);
        match &mut self.size {
            Some(size) => size.observe(&needs, made.map(rate), self.now),
            None => 0,
        }
    }

    fn size_by_load(&mut self, load: f64) -> u32 {
        let busy = float(self.agents.busy_ns - self.busy_before) / float(LOAD_CHECK_NS);
        self.busy_before = self.agents.busy_ns;
        // Kubernetes leaves a size alone that is within a tenth.
        let wanted = busy / load;
        let is_near = (wanted / f64::from(self.agents.n_on.max(1)) - 1.0).abs() <= 0.1;
        let wanted = if is_near { f64::from(self.agents.n_on) } else { wanted.ceil() };
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "`as` saturates"
        )]
        let wanted = (wanted as u32).max(1).min(self.world.agents.n);
        self.loads.push(wanted);
        let recent = self.loads.iter().rev().take(LOAD_CHECKS);
        recent.copied().max().unwrap_or(1)
    }

    // ---- the end ------------------------------------------------------------------------

    fn outcome(mut self) -> PoolOutcome {
        self.agents.stop_all(self.now);
        let sum =
            |of: &dyn Fn(&Job) -> u32| self.jobs.iter().map(of).map(u64::from).sum();
        let finite: Vec<_> =
            self.jobs.iter().filter(|job| job.model.n_batches.is_some()).collect();
        let ended: Option<Vec<Ns>> = finite.iter().map(|job| job.ended).collect();
        PoolOutcome {
            n_delivered: sum(&|job| job.n_taken),
            shares: self.shares(),
            n_missed: sum(&|job| job.n_missed),
            longest_wait_ns: (self.jobs.iter().map(|job| job.longest_wait(self.now)))
                .max()
                .unwrap_or(0),
            ended: ended.and_then(|ended| ended.into_iter().max()),
            on_ns: self.agents.on_ns,
            busy_ns: self.agents.busy_ns,
            uplink_bytes: self.agents.uplink_bytes,
            n_reused: self.n_reused,
            n_failures: self.agents.n_failures,
            n_decisions: self.n_decisions,
            of_pool: self.jobs.iter().map(|job| job.n_of_pool).collect(),
        }
    }

    fn shares(&self) -> Vec<f64> {
        let demand = |job: &Job| {
            let by_host = job.model.host_ns.map_or(0.0, |host_ns| {
                (float(job.model.step_ns) / float(host_ns.max(1))).min(1.0)
            });
            job.model.could_take(self.world.for_ns) * (1.0 - by_host)
        };
        let asking: Vec<_> = self.jobs.iter().filter(|job| demand(job) > 0.5).collect();
        let capacity =
            float(self.agents.on_ns) / float(self.world.agents.batch_ns.max(1));
        let demands: Vec<_> =
            asking.iter().map(|job| (demand(job), f64::from(job.model.weight))).collect();
        let entitled = entitled(&demands, capacity);
        let got = asking.iter().map(|job| f64::from(job.n_of_pool));
        got.zip(entitled).map(|(got, due)| got / due.max(f64::MIN_POSITIVE)).collect()
    }
}
