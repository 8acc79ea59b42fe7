//! The result of a scenario: what each strategy did, over all seeds and ranks, compared with the host
//! alone and with the bound. All figures are modelled, in virtual time.

use bothends_core::epoch::Recovery;
use bothends_core::select::StrategyConfig;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::bound;
use crate::energy::Power;
use crate::play::{Outcome, simulate_epochs_of_ranks};
use crate::scenario::Scenario;
use crate::world::World;

/// The label of every figure.
pub const LABEL: &str = "modelled, virtual time";

/// A scenario and what strategies did in it. Scripts rely on the keys of its JSON.
#[derive(Debug, Clone, Serialize)]
pub struct ScenarioResult {
    /// The scenario's name.
    pub name: String,
    /// Its description.
    pub about: String,
    /// Whether it is steady: nothing changes while it is played.
    pub steady: bool,
    /// Which of how many epochs this is, from 1; `None` if only one is played.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<(u32, u32)>,
    /// Batches of a rank.
    pub batches: u32,
    /// Ranks that step together.
    pub ranks: usize,
    /// Devices of all ranks.
    pub devices: usize,
    /// The objective of the epochs.
    pub objective: String,
    /// `on`, or `off` if the host does not stand in for lost and late devices.
    pub recovery: &'static str,
    /// `on`, or `off` if strategies were not told the rates beforehand.
    pub known: &'static str,
    /// The seeds with which it was played.
    pub seeds: Vec<u64>,
    /// The power model.
    pub power: String,
    /// What was played, with everything that flags changed: the file to play it again with. `null` if it
    /// was not read from a file.
    pub scenario: Value,
    /// The largest speed-up that any scheme could reach; `None` if rates change.
    pub bound: Option<f64>,
    /// By name, in the order requested.
    #[serde(serialize_with = "as_map")]
    pub strategies: Vec<(&'static str, StrategyResult)>,
}

/// What one strategy did: the mean epoch over all ranks. If an epoch did not end, it has no length
/// and nothing that is derived from it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StrategyResult {
    /// Whether every epoch ended.
    pub ended: bool,
    /// Virtual seconds of an epoch.
    pub seconds: Option<f64>,
    /// Relative to `cpu` in the same scenario.
    pub speedup: Option<f64>,
    /// The speed-up as a fraction of the bound.
    pub efficiency: Option<f64>,
    /// The fraction of the time in which accelerators were idle.
    pub idle: Option<f64>,
    /// The most device batches that waited at once, in any rank and epoch.
    pub peak_waiting: u32,
    /// The fraction of batches made by devices.
    pub back: f64,
    /// Device claims that the host redid.
    pub rescued: f64,
    /// Batches made in vain.
    pub wasted: f64,
    /// Seconds in which the host's workers worked.
    pub host_cpu_s: f64,
    /// Seconds in which devices worked.
    pub device_s: f64,
    /// The energy of everything that is there: devices, too, unless the strategy is `cpu`.
    pub joules: Option<f64>,
    /// The standard deviation of an epoch's figures over the seeds; without more than one of them there
    /// is none.
    pub sd: Deviation,
    /// What came of each seed, in the order of the scenario's.
    pub per_seed: Vec<SeedResult>,
}

/// Standard deviations (of a sample) over the seeds, in the units of the figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Deviation {
    /// Of the virtual seconds of an epoch.
    pub seconds: Option<f64>,
    /// Of the speed-up over `cpu` with the same seed.
    pub speedup: Option<f64>,
    /// Of the energy.
    pub joules: Option<f64>,
}

/// An epoch with one seed. If it did not end, it has no figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SeedResult {
    /// The seed.
    pub seed: u64,
    /// Virtual seconds of the epoch.
    pub seconds: Option<f64>,
    /// Relative to `cpu` with the same seed.
    pub speedup: Option<f64>,
    /// The energy of everything.
    pub joules: Option<f64>,
}

fn as_map<S: Serializer>(
    strategies: &[(&'static str, StrategyResult)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(strategies.iter().map(|(name, result)| (name, result)))
}

impl Scenario {
    /// Plays an epoch with every strategy, and with `cpu` for comparison; `starts` is called before each.
    /// Blocks until all have been played.
    pub fn run(
        &self,
        strategies: &[StrategyConfig],
        starts: &mut dyn FnMut(StrategyConfig),
    ) -> ScenarioResult {
        self.run_epochs(1, strategies, starts).remove(0)
    }

    /// As [`Self::run`], with this many successive epochs, at least one. There is a result for each,
    /// compared with the same epoch of `cpu`.
    pub fn run_epochs(
        &self,
        n_epochs: u32,
        strategies: &[StrategyConfig],
        starts: &mut dyn FnMut(StrategyConfig),
    ) -> Vec<ScenarioResult> {
        let n_epochs = n_epochs.max(1);
        starts(StrategyConfig::Cpu);
        let cpu = Sums::of(self, StrategyConfig::Cpu, n_epochs);
        let numbered = |epoch| (n_epochs > 1).then_some((epoch, n_epochs));
        let results =
            (1..).zip(&cpu).map(|(epoch, cpu)| self.result(numbered(epoch), cpu));
        let mut results: Vec<_> = results.collect();
        for &strategy in strategies {
            let played = if strategy == StrategyConfig::Cpu {
                cpu.clone()
            } else {
                starts(strategy);
                Sums::of(self, strategy, n_epochs)
            };
            for ((result, cpu), sums) in results.iter_mut().zip(&cpu).zip(played) {
                let sums = sums.result(cpu, result.bound);
                result.strategies.push((strategy.name(), sums));
            }
        }
        results
    }

    /// The result for an epoch, still without strategies.
    fn result(&self, epoch: Option<(u32, u32)>, cpu: &Sums) -> ScenarioResult {
        // A later epoch may have begun before the previous one ended.
        let bound = self.steady.then(|| cpu.seconds / self.bound_seconds());
        ScenarioResult {
            name: self.name.clone(),
            about: self.about.clone(),
            steady: self.steady,
            epoch,
            batches: self.n_batches(),
            ranks: self.ranks.len(),
            devices: self.n_devices(),
            objective: self.objective().to_string(),
            recovery: match self.recovery() {
                Recovery::On => "on",
                Recovery::Off => "off",
            },
            known: if self.is_known() { "on" } else { "off" },
            seeds: self.seeds.clone(),
            power: self.power.name.clone(),
            scenario: self.as_file(),
            bound,
            strategies: Vec::new(),
        }
    }

    /// The minimum of the total seconds over all seeds: with ranks that step together, the slowest
    /// rank's.
    fn bound_seconds(&self) -> f64 {
        let slowest = self.ranks.iter().map(bound::seconds).fold(0.0, f64::max);
        slowest * count(self.seeds.len())
    }
}

/// Outcomes summed over seeds and ranks.
#[derive(Debug, Clone, Default)]
struct Sums {
    n_seeds: f64,
    some_hang: bool,
    /// Of epochs: ranks step together.
    seconds: f64,
    /// Of accelerators.
    rank_s: f64,
    idle_s: f64,
    peak_waiting: u32,
    batches: f64,
    by_back: f64,
    rescued: f64,
    wasted: f64,
    host_cpu_s: f64,
    device_s: f64,
    joules: f64,
    /// Of each seed by itself.
    seeds: Vec<Alone>,
}

/// One seed's epoch.
#[derive(Debug, Clone, Copy)]
struct Alone {
    seed: u64,
    /// Seconds and joules; `None` if it did not end.
    used: Option<(f64, f64)>,
}

impl Sums {
    /// For each epoch. One that hangs is the last, so those after it count as hanging.
    fn of(scenario: &Scenario, strategy: StrategyConfig, n_epochs: u32) -> Vec<Self> {
        let n_seeds = count(scenario.seeds.len());
        let mut each = vec![Self { n_seeds, ..Self::default() }; n_epochs as usize];
        for (worlds, &seed) in scenario.worlds(strategy).iter().zip(&scenario.seeds) {
            let mut epochs = simulate_epochs_of_ranks(worlds, n_epochs).into_iter();
            for sums in &mut each {
                let used = epochs.next().and_then(|outcomes| {
                    sums.add_ranks(&scenario.power, worlds, &outcomes)
                });
                sums.some_hang |= used.is_none();
                sums.seeds.push(Alone { seed, used });
            }
        }
        each
    }

    /// The seconds and joules of this epoch, if it ended. `worlds` have the devices that there are: the
    /// host alone has none that draw power.
    fn add_ranks(
        &mut self,
        power: &Power,
        worlds: &[World],
        outcomes: &[Outcome],
    ) -> Option<(f64, f64)> {
        let seconds = outcomes.iter().map(|o| o.seconds).fold(0.0, f64::max);
        let ranks = worlds.iter().zip(outcomes);
        let joules = ranks.map(|(world, o)| power.joules(o, world.devices.len())).sum();
        self.seconds += seconds;
        self.joules += joules;
        outcomes.iter().for_each(|outcome| self.add(outcome));
        outcomes.iter().all(|outcome| outcome.ended).then_some((seconds, joules))
    }

    fn add(&mut self, outcome: &Outcome) {
        self.rank_s += outcome.seconds;
        self.idle_s += outcome.idle * outcome.seconds;
        self.peak_waiting = self.peak_waiting.max(outcome.peak_waiting);
        self.batches += f64::from(outcome.batches);
        let by_back: u32 = outcome.back.iter().map(|counts| counts.delivered).sum();
        self.by_back += f64::from(by_back);
        self.rescued += f64::from(outcome.rescued);
        self.wasted += f64::from(outcome.wasted);
        self.host_cpu_s += outcome.host_cpu_s;
        self.device_s += outcome.device_s;
    }

    fn result(&self, cpu: &Self, bound: Option<f64>) -> StrategyResult {
        let speedup = cpu.seconds / self.seconds;
        let per_seed = self.per_seed(cpu);
        let if_ended = |value: f64| (!self.some_hang).then_some(value);
        StrategyResult {
            ended: !self.some_hang,
            seconds: if_ended(self.seconds / self.n_seeds),
            speedup: if_ended(speedup),
            efficiency: bound.and_then(|bound| if_ended(speedup / bound)),
            idle: if_ended(self.idle_s / self.rank_s),
            peak_waiting: self.peak_waiting,
            back: self.by_back / self.batches.max(1.0),
            rescued: self.rescued / self.n_seeds,
            wasted: self.wasted / self.n_seeds,
            host_cpu_s: self.host_cpu_s / self.n_seeds,
            device_s: self.device_s / self.n_seeds,
            joules: if_ended(self.joules / self.n_seeds),
            sd: Deviation {
                seconds: deviation(per_seed.iter().map(|seed| seed.seconds)),
                speedup: deviation(per_seed.iter().map(|seed| seed.speedup)),
                joules: deviation(per_seed.iter().map(|seed| seed.joules)),
            },
            per_seed,
        }
    }

    fn per_seed(&self, cpu: &Self) -> Vec<SeedResult> {
        let pairs = self.seeds.iter().zip(&cpu.seeds);
        let result = |(alone, cpu): (&Alone, &Alone)| SeedResult {
            seed: alone.seed,
            seconds: alone.used.map(|(seconds, _)| seconds),
            speedup: cpu.used.zip(alone.used).map(|((cpu, _), (own, _))| cpu / own),
            joules: alone.used.map(|(_, joules)| joules),
        };
        pairs.map(result).collect()
    }
}

/// The standard deviation of a sample; `None` with less than two values, or where one is not known.
fn deviation(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    let n = count(values.len());
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (n - 1.0)).sqrt())
}

fn count(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}
