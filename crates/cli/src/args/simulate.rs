//! The flags of `bothends simulate`. What they mean together is decided in `commands/simulate.rs`
//! and its `sizing.rs`.

use std::path::PathBuf;

use bothends_core::epoch::Recovery;
use bothends_core::select::StrategyConfig;
use clap::ArgAction;

use super::ACCELERATOR;
use super::words::{KNOWN, RECOVERIES, one_of};

const EXAMPLES: &str = "\
Examples:
  What there is to play:
    bothends simulate --list
  All strategies, with a device that dies in the middle of the epoch:
    bothends simulate --scenario device-dies
  What that would do to strategies without recovery:
    bothends simulate --scenario device-dies --recovery off
  Whether to buy devices, from what doctor measured:
    bothends doctor --data /data/train --csd sim:newport --json doctor.json
    bothends simulate --plan --doctor doctor.json --accelerator resnet50-a100
  How many agents ten such jobs need together:
    bothends simulate --plan --pool --jobs 10 --doctor doctor.json";

fn strategies() -> String {
    format!(
        "A strategy (may repeat): {}; by default, all except csd",
        StrategyConfig::names()
    )
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct SimulateArgs {
    /// A scenario by name (may repeat), or all
    #[arg(long, value_name = "NAME|all", action = ArgAction::Append)]
    pub(crate) scenario: Vec<String>,
    /// A scenario of your own (may repeat)
    #[arg(long, value_name = "FILE", action = ArgAction::Append)]
    pub(crate) config: Vec<PathBuf>,
    /// A strategy (may repeat)
    #[arg(long, value_name = "NAME", action = ArgAction::Append, help = strategies())]
    pub(crate) strategy: Vec<String>,
    /// Whether the host redoes lost and late batches; by default, as in the scenario
    ///
    /// With off, an epoch that loses a batch waits for it forever, as the published schemes do and any
    /// strategy would.
    #[arg(long, value_parser = one_of(RECOVERIES), value_name = "on|off")]
    pub(crate) recovery: Option<Recovery>,
    /// Whether strategies know all rates beforehand, as in a run that remembers those of the previous run;
    /// by default, as in the scenario
    #[arg(long, value_parser = one_of(KNOWN), value_name = "on|off")]
    pub(crate) known: Option<bool>,
    /// What to optimise instead of the scenario's objective: throughput, energy or host-cpu-cap=P (percent)
    #[arg(long, value_name = "GOAL")]
    pub(crate) objective: Option<String>,
    /// Play seeds 1 to N instead of the scenario's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) seeds: Option<u64>,
    /// Play N epochs, each beginning while the previous one drains, and print a table for each
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) epochs: u32,
    /// Write the results as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
    /// List the scenarios without playing any
    #[arg(long)]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) sizing: SizingArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Would devices pay?")]
pub(crate) struct SizingArgs {
    /// Say what devices would do for a host measured with `doctor --data --csd --json`
    #[arg(long, requires = "doctor", conflicts_with_all = SCENARIO_FLAGS)]
    pub(crate) plan: bool,
    /// The file that doctor wrote
    #[arg(long, value_name = "FILE", requires = "plan", conflicts_with_all = SCENARIO_FLAGS)]
    pub(crate) doctor: Option<PathBuf>,
    /// A device that doctor measured; by default, the first
    #[arg(long, value_name = "PRESET", requires = "plan", conflicts_with_all = SCENARIO_FLAGS)]
    pub(crate) preset: Option<String>,
    /// Numbers of devices
    #[arg(long, value_name = "K[,K...]", requires = "plan", conflicts_with_all = SCENARIO_FLAGS, value_delimiter = ',', default_value = "0,1,2,4,8", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) count: Vec<u32>,
    /// The accelerator to feed: a name, or images per second
    #[arg(
        long,
        value_name = "NAME|RATE",
        requires = "plan",
        conflicts_with_all = SCENARIO_FLAGS,
        default_value = ACCELERATOR
    )]
    pub(crate) accelerator: String,
    /// Host workers; by default, the most that doctor measured
    #[arg(long, value_name = "N", requires = "plan", conflicts_with_all = SCENARIO_FLAGS, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) workers: Option<u32>,
    #[command(flatten)]
    pub(crate) of_pool: PoolArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PoolArgs {
    /// Plan a pool of agents like the device instead of devices for this host: how many, over which links,
    /// at what price
    #[arg(long, requires = "plan", conflicts_with = "count", conflicts_with_all = SCENARIO_FLAGS)]
    pub(crate) pool: bool,
    /// The number of jobs like the measured one that share the pool
    #[arg(long, value_name = "N", requires = "pool", conflicts_with = "count", conflicts_with_all = SCENARIO_FLAGS, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) jobs: u32,
    /// The cost of an agent per hour, in any currency
    #[arg(long, value_name = "PRICE", requires = "pool", conflicts_with = "count", conflicts_with_all = SCENARIO_FLAGS, value_parser = price)]
    pub(crate) agent_price: Option<f64>,
}

fn price(text: &str) -> Result<f64, String> {
    let price =
        text.parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0);
    price.ok_or_else(|| "it must be a number, 0 or more".to_owned())
}

/// Flags that play scenarios. Every flag of a plan conflicts with each, not only `--plan` itself: clap
/// takes nothing for missing that is in conflict with what is there.
const SCENARIO_FLAGS: [&str; 9] = [
    "scenario",
    "config",
    "strategy",
    "recovery",
    "known",
    "objective",
    "seeds",
    "epochs",
    "list",
];
