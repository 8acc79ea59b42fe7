//! The agents of a pool in virtual time: which of them run, what each makes, and the uplinks that they
//! share.

use bothends_core::ids::Ns;

use super::{AgentModel, float, nanoseconds, seconds};
use crate::noise::Noise;

/// What an agent does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Not running; it runs once it is wanted.
    Off,
    Starts,
    Idle,
    /// A batch of a job.
    Makes(u32, u32),
    /// What it has made waits for the uplink.
    Sends,
    Failed,
}

#[derive(Debug, Clone, Copy)]
struct Agent {
    state: State,
    /// Goes up with each state, so that an event of an earlier one is known.
    stamp: u32,
    /// Goes up with each start.
    life: u32,
    /// Since when it runs.
    on_since: Ns,
}

/// All agents of a pool.
#[derive(Debug)]
pub(super) struct Agents {
    model: AgentModel,
    agents: Vec<Agent>,
    /// Idle, for each rack; some entries are no longer true.
    idle: Vec<Vec<u32>>,
    /// Racks in which an agent may be idle, and whether a rack is among them.
    racks: Vec<u32>,
    listed: Vec<bool>,
    /// When the uplink of a rack is free.
    links: Vec<Ns>,
    noise: Noise,
    /// The number that should run.
    target: u32,
    pub(super) n_on: u32,
    /// The same of each rack.
    on_in: Vec<u32>,
    pub(super) on_ns: u64,
    pub(super) busy_ns: u64,
    pub(super) uplink_bytes: u64,
    pub(super) n_failures: u64,
}

impl Agents {
    pub(super) fn new(model: &AgentModel, seed: u64) -> Self {
        let off = Agent { state: State::Off, stamp: 0, life: 0, on_since: Ns(0) };
        let n_racks = model.n_racks() as usize;
        Self {
            model: model.clone(),
            agents: vec![off; model.n as usize],
            idle: vec![Vec::new(); n_racks],
            racks: Vec::new(),
            listed: vec![false; n_racks],
            links: vec![Ns(0); n_racks],
            noise: Noise::new(seed, 0x706f),
            target: 0,
            n_on: 0,
            on_in: vec![0; n_racks],
            on_ns: 0,
            busy_ns: 0,
            uplink_bytes: 0,
            n_failures: 0,
        }
    }

    pub(super) fn rack(&self, agent: u32) -> u32 {
        // Neighbours are in different racks, so that a small pool uses all uplinks.
        agent % self.model.n_racks()
    }

    pub(super) fn state(&self, agent: u32) -> State {
        self.agents[agent as usize].state
    }

    pub(super) fn stamp(&self, agent: u32) -> u32 {
        self.agents[agent as usize].stamp
    }

    pub(super) fn n_on_in(&self, rack: u32) -> u32 {
        self.on_in[rack as usize]
    }

    pub(super) fn is_wanted(&self, agent: u32) -> bool {
        agent < self.target
    }

    /// Sets a state; the stamp that its events carry.
    pub(super) fn set(&mut self, agent: u32, state: State, now: Ns) -> u32 {
        let rack = self.rack(agent) as usize;
        let it = &mut self.agents[agent as usize];
        match (it.state.runs(), state.runs()) {
            (false, true) => {
                it.on_since = now;
                self.n_on += 1;
                self.on_in[rack] += 1;
            }
            (true, false) => {
                self.on_ns += now.since(it.on_since);
                self.n_on -= 1;
                self.on_in[rack] -= 1;
            }
            _ => {}
        }
        it.state = state;
        it.stamp = it.stamp.wrapping_add(1);
        let stamp = it.stamp;
        if state == State::Idle {
            if !std::mem::replace(&mut self.listed[rack], true) {
                self.racks.push(self.rack(agent));
            }
            self.idle[rack].push(agent);
        }
        stamp
    }

    /// Changes the number that should run; those to start. Those that stop first finish what they make.
    pub(super) fn resize(&mut self, target: u32, now: Ns) -> Vec<u32> {
        let target = target.min(self.model.n);
        let old = std::mem::replace(&mut self.target, target);
        for agent in target..old {
            if matches!(self.state(agent), State::Idle | State::Starts) {
                self.set(agent, State::Off, now);
            }
        }
        (old..target).filter(|agent| self.state(*agent) == State::Off).collect()
    }

    /// An idle agent of any rack.
    pub(super) fn find_idle(&mut self) -> Option<u32> {
        while let Some(rack) = self.racks.last().copied() {
            if let Some(agent) = self.find_idle_in(rack) {
                return Some(agent);
            }
            self.racks.pop();
            self.listed[rack as usize] = false;
        }
        None
    }

    /// An idle agent of a rack.
    pub(super) fn find_idle_in(&mut self, rack: u32) -> Option<u32> {
        while let Some(agent) = self.idle[rack as usize].pop() {
            if self.state(agent) == State::Idle {
                return Some(agent);
            }
        }
        None
    }

    /// How long it makes this batch.
    pub(super) fn draw_batch(&mut self) -> u64 {
        nanoseconds(seconds(self.model.batch_ns) * self.noise.factor(self.model.cv))
    }

    /// When an agent that runs now fails; `None` if none fails.
    pub(super) fn draw_failure(&mut self, now: Ns) -> Option<Ns> {
        let (between, _) = self.model.failures?;
        Some(now.plus(self.draw_time(between)))
    }

    pub(super) fn draw_repair(&mut self, now: Ns) -> Ns {
        let repair = self.model.failures.map_or(0, |(_, repair)| repair);
        now.plus(self.draw_time(repair))
    }

    /// Exponential.
    fn draw_time(&mut self, mean_ns: u64) -> u64 {
        nanoseconds(-seconds(mean_ns) * self.noise.uniform().ln())
    }

    /// Bytes over the uplink of a rack, behind those that are on it: when they begin and when the
    /// last has arrived.
    pub(super) fn send(&mut self, rack: u32, bytes: u64, now: Ns) -> (Ns, Ns) {
        self.uplink_bytes += bytes;
        let Some(rate) = self.model.uplink_bytes_per_s else { return (now, now) };
        let link = &mut self.links[rack as usize];
        let from = now.max(*link);
        *link = from.plus(nanoseconds(float(bytes) / rate));
        (from, *link)
    }

    /// A new life, which a failure ends.
    pub(super) fn live(&mut self, agent: u32) -> u32 {
        let life = &mut self.agents[agent as usize].life;
        *life = life.wrapping_add(1);
        *life
    }

    pub(super) fn is_life(&self, agent: u32, life: u32) -> bool {
        self.agents[agent as usize].life == life
    }

    /// It is over.
    pub(super) fn stop_all(&mut self, now: Ns) {
        for agent in 0..self.model.n {
            if self.state(agent).runs() {
                self.set(agent, State::Off, now);
            }
        }
    }
}

impl State {
    pub(super) fn runs(self) -> bool {
        matches!(self, Self::Idle | Self::Makes(..) | Self::Sends)
    }
}
