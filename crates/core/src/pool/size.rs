//! How many agents a pool needs: from what consumers take, what hosts make themselves, and what one agent
//! makes.
//!
//! [`demand`] is the arithmetic: with c the rate of a consumer that never waits, f the rate of its host
//! and s the rate of an agent, a job needs (c·(1 + margin) − f) / s agents, and a pool the sum over its
//! jobs, rounded up. [`PoolSize`] adds time: measured rates are noisy, an agent takes a while to start, and
//! stopping one that is needed again a moment later costs more than keeping it. It never reads a clock and
//! starts nothing; whoever asks it does.

use crate::ids::Ns;

const SECOND: u64 = 1_000_000_000;
/// Sums and quotients of rates are not exact; a difference below this fraction is none.
const ROUNDING: f64 = 1e-9;

/// The rates of one job, in any unit that the rate of an agent is in, too (samples per second, say).
/// A rate that is negative or not a number counts as 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Need {
    /// What its consumer takes while it does not wait; 0 if there is none at present.
    pub consumer: f64,
    /// What its host makes without the pool.
    pub host: f64,
}

/// What the jobs ask of the pool together, as a rate: the sum of c·(1 + margin) − f over the jobs whose
/// host does not suffice.
#[must_use]
pub fn demand(needs: &[Need], margin: f64) -> f64 {
    let margin = rate(margin);
    let of = |need: &Need| {
        let asked = rate(need.consumer) * (1.0 + margin);
        let missing = asked - rate(need.host);
        // Rounding is no reason for an agent.
        if missing > asked * ROUNDING { missing } else { 0.0 }
    };
    needs.iter().map(of).sum()
}

/// The number of agents for a demand, between the bounds. Without a rate of an agent, one agent finds
/// out; without a demand, none is needed.
#[must_use]
pub fn wanted(demand: f64, agent_rate: Option<f64>, bounds: Bounds) -> u32 {
    let agents = match agent_rate.map(rate).filter(|rate| *rate > 0.0) {
        Some(rate) => demand / rate,
        None => demand.min(1.0),
    };
    bounds.clamp(count(agents))
}

/// The least and the most agents of a pool. If they contradict each other, `max` holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Kept even if nobody waits.
    pub min: u32,
    /// Never exceeded.
    pub max: u32,
}

impl Bounds {
    fn clamp(self, n: u32) -> u32 {
        n.max(self.min).min(self.max)
    }
}

/// How a pool follows its demand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SizeConfig {
    /// Its least and most agents.
    pub bounds: Bounds,
    /// What is made beyond what consumers take, as a fraction of that.
    pub margin: f64,
    /// How much more than with the margin is made before agents are stopped, as a fraction of what
    /// consumers take.
    pub hysteresis: f64,
    /// Rates are averaged over about this time.
    pub smooth_ns: u64,
    /// The time after a change in which the pool does not grow: new agents are starting.
    pub cool_down_ns: u64,
    /// For so long demand must have been less before agents are stopped.
    pub keep_ns: u64,
    /// A pool grows at most to this multiple of its size in one step, and at least to this number of
    /// agents; at least 2.
    pub growth: u32,
}

impl SizeConfig {
    /// The default for a pool of up to `max` agents.
    #[must_use]
    pub fn up_to(max: u32) -> Self {
        Self {
            bounds: Bounds { min: 0, max },
            margin: 0.1,
            hysteresis: 0.1,
            smooth_ns: 8 * SECOND,
            cool_down_ns: 10 * SECOND,
            keep_ns: 60 * SECOND,
            growth: 4,
        }
    }
}

/// The number of agents that a pool should have, over time.
///
/// It grows as soon as the average demand exceeds its size, and shrinks once the demand has been less,
/// by the hysteresis, for the whole of `keep_ns`. A job that comes or goes counts at once.
#[derive(Debug, Clone)]
pub struct PoolSize {
    config: SizeConfig,
    size: u32,
    last: Option<Last>,
    /// The end of the time in which it does not grow.
    calm_until: Ns,
    /// Since when fewer agents have sufficed, and the most that were needed since.
    less: Option<(Ns, u32)>,
}

/// Averages, and when they were brought up to date.
#[derive(Debug, Clone, Copy)]
struct Last {
    at: Ns,
    n_jobs: usize,
    demand: f64,
    /// With the hysteresis added to the margin: what is kept.
    kept: f64,
    agent_rate: Option<f64>,
}

impl PoolSize {
    /// A pool that has `size` agents now.
    #[must_use]
    pub fn new(config: SizeConfig, size: u32) -> Self {
        Self { config, size, last: None, calm_until: Ns(0), less: None }
    }

    /// The number of agents that the pool should have from now on. To be asked regularly, several times
    /// in `smooth_ns`; `agent_rate` is the mean of the agents that work, if any do.
    pub fn observe(&mut self, needs: &[Need], agent_rate: Option<f64>, now: Ns) -> u32 {
        let last = self.average(needs, agent_rate, now);
        let wanted = wanted(last.demand, last.agent_rate, self.config.bounds);
        // The bounds may have been given to a pool that is outside them.
        self.size = self.config.bounds.clamp(self.size);
        if wanted > self.size {
            self.less = None;
            self.grow(wanted, now);
        } else {
            self.shrink(last, now);
        }
        self.size
    }

    /// The size that was last decided.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    fn average(&mut self, needs: &[Need], agent_rate: Option<f64>, now: Ns) -> Last {
        let SizeConfig { margin, hysteresis, .. } = self.config;
        let fresh = Last {
            at: now,
            n_jobs: needs.len(),
            demand: demand(needs, margin),
            kept: demand(needs, margin + rate(hysteresis)),
            agent_rate: agent_rate.map(rate).filter(|rate| *rate > 0.0),
        };
        let last = match self.last {
            Some(last) => last.toward(fresh, self.config.smooth_ns),
            None => fresh,
        };
        self.last = Some(last);
        last
    }

    fn grow(&mut self, wanted: u32, now: Ns) {
        if now < self.calm_until {
            return;
        }
        let growth = self.config.growth.max(2);
        self.size = wanted.min(self.size.saturating_mul(growth).max(growth));
        self.calm_until = now.plus(self.config.cool_down_ns);
    }

    fn shrink(&mut self, last: Last, now: Ns) {
        let enough = wanted(last.kept, last.agent_rate, self.config.bounds);
        if enough >= self.size {
            self.less = None;
            return;
        }
        let (since, most) = self.less.unwrap_or((now, enough));
        let most = most.max(enough);
        self.less = Some((since, most));
        if now.since(since) >= self.config.keep_ns {
            self.size = most;
            self.less = None;
        }
    }
}

impl Last {
    /// The average with a new observation, which weighs more the longer the last one is ago. No
    /// exponential: its last bit may differ between platforms.
    fn toward(self, fresh: Self, smooth_ns: u64) -> Self {
        let passed = float(fresh.at.since(self.at));
        let weight = passed / (passed + float(smooth_ns)).max(1.0);
        let mean = |old: f64, new: f64| (new - old).mul_add(weight, old);
        let agent_rate = match (self.agent_rate, fresh.agent_rate) {
            (Some(old), Some(new)) => Some(mean(old, new)),
            (old, new) => new.or(old),
        };
        if self.n_jobs != fresh.n_jobs {
            return Self { agent_rate, ..fresh };
        }
        let demand = mean(self.demand, fresh.demand);
        let kept = mean(self.kept, fresh.kept);
        Self { demand, kept, agent_rate, ..fresh }
    }
}

/// A rate as one can count on it.
fn rate(rate: f64) -> f64 {
    if rate.is_finite() { rate.max(0.0) } else { 0.0 }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and the number is not negative"
)]
fn count(agents: f64) -> u32 {
    (agents * (1.0 - ROUNDING)).ceil() as u32
}

#[allow(clippy::cast_precision_loss, reason = "times are estimates")]
fn float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests;
