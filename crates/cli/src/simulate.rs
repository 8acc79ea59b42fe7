//! `bothends simulate`: scenarios played in virtual time. It finds the scenarios that the
//! flags name, lets `bothends-simulate` play them, and prints; every figure is modelled.

use std::path::Path;
use std::time::{Duration, Instant};

use bothends_core::epoch::Recovery;
use bothends_core::objective::Objective;
use bothends_core::select::StrategyConfig;
use bothends_simulate::scenario::{all, find};
use bothends_simulate::{LABEL, Scenario, ScenarioResult, table};
use serde_json::json;

use crate::args::{RecoveryArg, SimulateArgs};
use crate::progress::Bar;
use crate::{Failed, run, say, sizing};

/// What is played when nobody says.
const STRATEGIES: [&str; 5] = ["cpu", "mte", "wrr", "relaxed", "ordered"];

/// For so long nobody asks what is going on.
const PATIENCE: Duration = Duration::from_secs(2);

/// Plays what the flags say, and prints a table of each scenario.
pub(crate) fn simulate(args: &SimulateArgs) -> Result<(), Failed> {
    if let Some(doctor) = &args.sizing.doctor {
        return sizing::size(&args.sizing, doctor, args.json.as_deref());
    }
    if args.list {
        return list();
    }
    let strategies = strategies(&args.strategy)?;
    let objective = args.objective.as_deref().map(str::parse).transpose();
    let objective = objective.map_err(|e| Failed::Arguments(format!("{e}")))?;
    let mut scenarios = scenarios(args)?;
    for scenario in &mut scenarios {
        override_with(args, objective, scenario);
    }
    let prints_tables = args.json.as_deref() != Some(Path::new("-"));
    let mut bar = Bar::new();
    let began = Instant::now();
    let mut results: Vec<ScenarioResult> = Vec::new();
    for scenario in &scenarios {
        let done = results.len();
        let result = scenario.run(&strategies, &mut |strategy| {
            if began.elapsed() > PATIENCE {
                let (name, n) = (&scenario.name, scenarios.len());
                bar.step(&format!("{done} of {n} scenarios played; {name}: {strategy}"));
            }
        });
        if prints_tables {
            bar.clear();
            say::line(&table(&result));
        }
        results.push(result);
    }
    bar.clear();
    if let Some(path) = &args.json {
        let version = env!("CARGO_PKG_VERSION");
        let json = json!({ "version": version, "label": LABEL, "scenarios": results });
        run::write(path, &serde_json::to_string_pretty(&json)?)?;
    }
    Ok(())
}

fn list() -> Result<(), Failed> {
    let scenarios = all()?;
    let width = scenarios.iter().map(|scenario| scenario.name.len()).max().unwrap_or(0);
    for Scenario { name, about, .. } in &scenarios {
        say::line(&format!("{name:<width$}  {about}"));
    }
    Ok(())
}

/// The strategies by name, each once, in the order given.
fn strategies(names: &[String]) -> Result<Vec<StrategyConfig>, Failed> {
    let given = names.iter().map(String::as_str);
    let standard = STRATEGIES.into_iter().filter(|_| names.is_empty());
    let mut strategies: Vec<StrategyConfig> = Vec::new();
    for name in given.chain(standard) {
        let strategy = name.parse().map_err(|e| Failed::Arguments(format!("{e}")))?;
        if !strategies.contains(&strategy) {
            strategies.push(strategy);
        }
    }
    Ok(strategies)
}

/// The scenarios by name, then those of files.
fn scenarios(args: &SimulateArgs) -> Result<Vec<Scenario>, Failed> {
    if args.scenario.is_empty() && args.config.is_empty() {
        return Err(Failed::Arguments(
            "nothing to simulate: give --scenario NAME, --scenario all, or --config FILE; \
             --list shows the names"
                .to_owned(),
        ));
    }
    let mut scenarios = Vec::new();
    for name in &args.scenario {
        if name == "all" {
            scenarios.extend(all()?);
        } else {
            let found = find(name);
            scenarios.push(found.map_err(|e| Failed::Arguments(e.to_string()))?);
        }
    }
    for path in &args.config {
        scenarios.push(Scenario::load(path)?);
    }
    Ok(scenarios)
}

/// What the flags say wins over what the scenario says.
fn override_with(
    args: &SimulateArgs,
    objective: Option<Objective>,
    scenario: &mut Scenario,
) {
    if let Some(n_seeds) = args.seeds {
        scenario.seeds = (1..=n_seeds).collect();
    }
    for world in &mut scenario.ranks {
        if let Some(objective) = objective {
            world.objective = objective;
        }
        match args.recovery {
            Some(RecoveryArg::On) => world.recovery = Recovery::On,
            Some(RecoveryArg::Off) => world.recovery = Recovery::Off,
            None => {}
        }
    }
}
