//! Many jobs on one pool of agents, in virtual time: who gets how much, who waits, and what it costs.
//!
//! The decisions are those of `bothends_core::pool`: for which job a free agent works next (`lease`), and
//! how many agents there should be (`size`). Everything else is a model: `jobs.rs` has consumers with
//! their hosts, `agents.rs` agents that fail and come back, and the uplinks that they share, `made.rs` results
//! kept for jobs that do the same work, `play.rs` the events that join them. `lockstep.rs` plays the
//! ranks of one job that step together. A [`PoolScenario`] is read from a file of
//! `configs/experiments/pool`.
//!
//! One queue serves all agents, as if every agent knew every job. Real agents know the jobs that are
//! connected to them, so a real pool can be less fair than this one, and not more.

mod agents;
mod jobs;
mod made;
mod play;
mod raw;

mod fairness;
mod lockstep;
mod table;

use bothends_core::pool::lease::Policy;
use bothends_core::pool::size::SizeConfig;
use serde::Serialize;
use serde_json::Value;

pub use fairness::{entitled, jain};
pub use lockstep::{Lockstep, LockstepRow};
pub use play::{PoolOutcome, play};
pub use raw::{all, find};
pub use table::pool_table;

use crate::remote::{median, nanoseconds};
use crate::result::LABEL;
use crate::scenario::with_seeds;

/// A pool with a name, and how it is played.
#[derive(Debug, Clone)]
pub struct PoolScenario {
    /// Its name on the command line and in results.
    pub name: String,
    /// A description for people, on one line.
    pub about: String,
    /// Each seed is played once.
    pub seeds: Vec<u64>,
    /// What is compared; at least one.
    pub variants: Vec<Variant>,
    /// What is played.
    pub world: World,
    /// What it was read from; [`Value::Null`] if from nothing.
    pub file: Value,
}

/// What a scenario is about.
#[derive(Debug, Clone)]
pub enum World {
    /// Jobs that share agents.
    Jobs(PoolWorld),
    /// Ranks that step together.
    Lockstep(Lockstep),
}

/// How a pool is run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Variant {
    /// The order in which jobs are served.
    pub policy: Policy,
    /// Where a job's batches are made.
    pub placement: Placement,
    /// How the number of agents follows the jobs.
    pub scaling: Scaling,
    /// Batches that are kept for jobs that do the same work; 0 keeps none.
    pub kept: u32,
}

/// Where a job's batches are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// By any agent.
    Anywhere,
    /// By agents of the rack that has the data, while any of them runs.
    Local,
}

/// How the number of agents follows the jobs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scaling {
    /// All agents run all the time.
    Fixed,
    /// By the need of the consumers: `core`'s `PoolSize`.
    Need(SizeConfig),
    /// By the load of the agents: so that they work this part of the time, checked each 15 s, with the
    /// largest number of the last 5 minutes (the rule of Kubernetes' horizontal autoscaler).
    Load(f64),
}

/// Jobs, agents, and what is between them. Times are nanoseconds.
#[derive(Debug, Clone)]
pub struct PoolWorld {
    /// How long it is played.
    pub for_ns: u64,
    /// The jobs.
    pub jobs: Vec<JobModel>,
    /// The agents.
    pub agents: AgentModel,
}

/// A job: a consumer, its host, and what it may ask of the pool.
#[derive(Debug, Clone, Copy)]
pub struct JobModel {
    /// The time of a step of its consumer.
    pub step_ns: u64,
    /// The time in which its host makes a batch; `None` if it makes none.
    pub host_ns: Option<u64>,
    /// Its weight among jobs that starve.
    pub weight: u32,
    /// Batches that may be ready or under way.
    pub ahead: u32,
    /// Bytes of a finished batch.
    pub batch_bytes: u64,
    /// Bytes of its records as stored.
    pub record_bytes: u64,
    /// When it starts.
    pub from_ns: u64,
    /// The batches after which it ends; `None` if it goes on.
    pub n_batches: Option<u32>,
    /// Jobs with the same number do the same work.
    pub work: u32,
}

/// The agents of a pool: equal, except for noise.
#[derive(Debug, Clone)]
pub struct AgentModel {
    /// How many there are at most.
    pub n: u32,
    /// The mean time for which an agent works on a batch.
    pub batch_ns: u64,
    /// The time for which it waits for its storage, without any work.
    pub wait_ns: u64,
    /// Coefficient of variation of the work on a batch.
    pub cv: f64,
    /// The mean time between failures of an agent, and until it is back.
    pub failures: Option<(u64, u64)>,
    /// The time after which a host knows that an agent has failed.
    pub noticed_ns: u64,
    /// The time that an agent takes to start.
    pub start_ns: u64,
    /// How many there are from a time on, in rising order; before the first, all.
    pub present: Vec<(u64, u32)>,
    /// Agents that share an uplink.
    pub per_rack: u32,
    /// What an uplink carries; `None` if it is never the limit.
    pub uplink_bytes_per_s: Option<f64>,
}

impl AgentModel {
    fn n_racks(&self) -> u32 {
        self.n.div_ceil(self.per_rack.max(1)).max(1)
    }
}

/// A variant's figures: medians over the seeds.
#[derive(Debug, Clone, Serialize)]
pub struct PoolRow {
    /// See [`Variant::name`].
    pub variant: String,
    /// Batches delivered per second, by hosts and agents.
    pub batches_per_s: f64,
    /// The same as a part of what all consumers could take.
    pub fed: f64,
    /// Jain's index over what jobs got of the pool, relative to their fair share of it: 1 is fair.
    pub jain: f64,
    /// The least that a job got, relative to its fair share, if any job may have a share.
    pub least: Option<f64>,
    /// The part of the batches for which a consumer had to wait.
    pub missed: f64,
    /// The longest wait of a consumer in seconds, after its first batch.
    pub longest_wait_s: f64,
    /// When the last job that ends has ended, in seconds, if all have.
    pub ended_s: Option<f64>,
    /// Agents that ran, on average.
    pub agents: f64,
    /// The part of that time in which they worked.
    pub busy: f64,
    /// Bytes over the uplinks.
    pub uplink_bytes: f64,
    /// Batches that were not made because another job had made them.
    pub reused: f64,
    /// Failures of agents.
    pub failures: f64,
    /// Decisions for which job an agent works next.
    pub decisions: f64,
}

/// All of a scenario.
#[derive(Debug, Clone, Serialize)]
pub struct PoolResult {
    /// The scenario's name.
    pub name: String,
    /// Its description.
    pub about: String,
    /// That it is modelled.
    pub label: &'static str,
    /// The seeds played.
    pub seeds: Vec<u64>,
    /// The number of jobs; 0 in a scenario of ranks in lock-step.
    pub jobs: usize,
    /// The most agents.
    pub agents: u32,
    /// How long it was played, in seconds.
    pub seconds: f64,
    /// One for each variant.
    pub rows: Vec<PoolRow>,
    /// One for each number of ranks, in a scenario of ranks in lock-step.
    pub lockstep: Vec<LockstepRow>,
    /// What was played, with these seeds: the file to play it again with.
    pub scenario: Value,
}

impl Variant {
    /// The name in tables and results.
    #[must_use]
    pub fn name(self) -> String {
        let policy = match self.policy {
            Policy::FirstCome => "first come",
            Policy::Fair => "by weight",
            Policy::Need => "by need",
        };
        let mut name = policy.to_owned();
        if self.placement == Placement::Local {
            name += ", local";
        }
        match self.scaling {
            Scaling::Fixed => {}
            Scaling::Need(_) => name += ", scaled by need",
            Scaling::Load(load) => {
                name += &format!(", scaled by {:.0} % load", load * 100.0);
            }
        }
        if self.kept > 0 {
            name += ", results kept";
        }
        name
    }
}

impl PoolScenario {
    /// Plays every variant with every seed.
    #[must_use]
    pub fn run(&self) -> PoolResult {
        let mut result = PoolResult {
            name: self.name.clone(),
            about: self.about.clone(),
            label: LABEL,
            seeds: self.seeds.clone(),
            jobs: 0,
            agents: 0,
            seconds: 0.0,
            rows: Vec::new(),
            lockstep: Vec::new(),
            scenario: with_seeds(&self.file, &self.seeds),
        };
        match &self.world {
            World::Lockstep(lockstep) => result.lockstep = lockstep.rows(&self.seeds),
            World::Jobs(world) => {
                result.jobs = world.jobs.len();
                result.agents = world.agents.n;
                result.seconds = seconds(world.for_ns);
                let rows = self.variants.iter().map(|variant| self.row(world, *variant));
                result.rows = rows.collect();
            }
        }
        result
    }

    fn row(&self, world: &PoolWorld, variant: Variant) -> PoolRow {
        let seeds = self.seeds.iter();
        let outcomes: Vec<_> = seeds.map(|seed| play(world, variant, *seed)).collect();
        let of = |figure: &dyn Fn(&PoolOutcome) -> f64| {
            median(outcomes.iter().map(figure).collect())
        };
        let least = |it: &PoolOutcome| it.shares.iter().copied().min_by(f64::total_cmp);
        let least: Vec<f64> = outcomes.iter().filter_map(least).collect();
        let takes: f64 = world.jobs.iter().map(|job| job.could_take(world.for_ns)).sum();
        PoolRow {
            variant: variant.name(),
            batches_per_s: of(&|it| float(it.n_delivered) / seconds(world.for_ns)),
            fed: of(&|it| float(it.n_delivered) / takes.max(1.0)),
            jain: of(&|it| jain(&it.shares)),
            least: (!least.is_empty()).then(|| median(least)),
            missed: of(&|it| float(it.n_missed) / float(it.n_delivered.max(1))),
            longest_wait_s: of(&|it| seconds(it.longest_wait_ns)),
            ended_s: (outcomes.iter().all(|it| it.ended.is_some()))
                .then(|| of(&|it| it.ended.map_or(0.0, |at| seconds(at.0)))),
            agents: of(&|it| float(it.on_ns) / float(world.for_ns)),
            busy: of(&|it| float(it.busy_ns) / float(it.on_ns.max(1))),
            uplink_bytes: of(&|it| float(it.uplink_bytes)),
            reused: of(&|it| float(it.n_reused)),
            failures: of(&|it| float(it.n_failures)),
            decisions: of(&|it| float(it.n_decisions)),
        }
    }
}

impl JobModel {
    /// The batches that its consumer could take in this time without a wait.
    fn could_take(&self, for_ns: u64) -> f64 {
        let most = self.n_batches.map_or(f64::INFINITY, f64::from);
        (float(for_ns.saturating_sub(self.from_ns)) / float(self.step_ns.max(1)))
            .min(most)
    }
}

/// Exact below 2^53.
#[allow(clippy::cast_precision_loss, reason = "figures are estimates")]
fn float(n: u64) -> f64 {
    n as f64
}

fn seconds(ns: u64) -> f64 {
    float(ns) / 1e9
}
