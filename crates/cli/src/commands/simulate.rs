//! `bothends simulate`: scenarios played in virtual time. It finds the scenarios that the
//! flags name, lets `bothends-simulate` play them, and prints; every figure is modelled.

mod sizing;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use bothends_core::objective::Objective;
use bothends_core::select::StrategyConfig;
use bothends_simulate::pool::{self, PoolResult, PoolScenario, pool_table};
use bothends_simulate::remote::{self, RemoteResult, RemoteScenario, remote_table};
use bothends_simulate::scenario::{all, find};
use bothends_simulate::{LABEL, Scenario, ScenarioError, ScenarioResult, table};
use serde_json::json;

use crate::args::simulate::SimulateArgs;
use crate::failed::{Failed, wrong};
use crate::watch::bar::Bar;
use crate::{file, say};

/// Most bytes of a scenario's file: far more than the longest has.
const MOST_SCENARIO_BYTES: u64 = 16 << 20;

/// For so long nobody asks what is going on.
const PATIENCE: Duration = Duration::from_secs(2);

/// Plays what the flags say, and prints a table of each scenario.
pub(crate) fn simulate(args: &SimulateArgs) -> Result<(), Failed> {
    // Each requires the other.
    if let (true, Some(doctor)) = (args.sizing.plan, &args.sizing.doctor) {
        return sizing::size(&args.sizing, doctor, args.json.as_deref());
    }
    if args.list {
        return list();
    }
    let strategies = strategies(&args.strategy)?;
    let objective = args.objective.as_deref().map(str::parse).transpose();
    let objective = objective.map_err(wrong)?;
    let chosen = chosen(args)?;
    check_flags(args, &chosen)?;
    let Chosen { mut scenarios, remote, pools } = chosen;
    for scenario in &mut scenarios {
        override_with(args, objective, scenario);
    }
    let prints_tables = args.json.as_deref() != Some(Path::new("-"));
    let mut bar = Bar::new();
    let began = Instant::now();
    let mut results: Vec<ScenarioResult> = Vec::new();
    for (done, scenario) in scenarios.iter().enumerate() {
        let epochs = scenario.run_epochs(args.epochs, &strategies, &mut |strategy| {
            if began.elapsed() > PATIENCE {
                let (name, n) = (&scenario.name, scenarios.len());
                bar.step(&format!("{done} of {n} scenarios played; {name}: {strategy}"));
            }
        });
        if prints_tables {
            bar.clear();
            epochs.iter().for_each(|result| say::text(&table(result)));
        }
        results.extend(epochs);
    }
    bar.clear();
    let remote: Vec<RemoteResult> = remote.iter().map(RemoteScenario::run).collect();
    if prints_tables {
        remote.iter().for_each(|result| say::text(&remote_table(result)));
    }
    let pools: Vec<PoolResult> = pools.iter().map(PoolScenario::run).collect();
    if prints_tables {
        pools.iter().for_each(|result| say::text(&pool_table(result)));
    }
    if let Some(path) = &args.json {
        let version = env!("CARGO_PKG_VERSION");
        let mut json =
            json!({ "version": version, "label": LABEL, "scenarios": results });
        if !remote.is_empty() {
            json["remote"] = json!(remote);
        }
        if !pools.is_empty() {
            json["pools"] = json!(pools);
        }
        file::write(path, &serde_json::to_string_pretty(&json)?)?;
    }
    Ok(())
}

fn list() -> Result<(), Failed> {
    let scenarios = all()?.into_iter().map(|scenario| (scenario.name, scenario.about));
    let remote = remote::all()?.into_iter();
    let remote = remote.map(|scenario| (scenario.name, scenario.about));
    let pools = pool::all()?.into_iter();
    let pools = pools.map(|scenario| (scenario.name, scenario.about));
    let all: Vec<_> = scenarios.chain(remote).chain(pools).collect();
    let width = all.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, about) in &all {
        say::text(&format!("{name:<width$}  {about}"));
    }
    Ok(())
}

/// The strategies by name, each once, in the order given; where none is, all that need the host.
fn strategies(names: &[String]) -> Result<Vec<StrategyConfig>, Failed> {
    if names.is_empty() {
        let all = StrategyConfig::all().map(|(_, strategy)| strategy);
        return Ok(all.into_iter().filter(|it| *it != StrategyConfig::Csd).collect());
    }
    let mut strategies: Vec<StrategyConfig> = Vec::new();
    for name in names {
        let strategy = name.parse().map_err(wrong)?;
        if !strategies.contains(&strategy) {
            strategies.push(strategy);
        }
    }
    Ok(strategies)
}

/// What is played.
#[derive(Default)]
struct Chosen {
    scenarios: Vec<Scenario>,
    /// Records behind a link.
    remote: Vec<RemoteScenario>,
    /// Jobs that share agents.
    pools: Vec<PoolScenario>,
}

/// Scenarios by name, then those of files.
fn chosen(args: &SimulateArgs) -> Result<Chosen, Failed> {
    if args.scenario.is_empty() && args.config.is_empty() {
        return Err(wrong(
            "nothing to simulate: give --scenario NAME, --scenario all, or --config FILE; \
             --list shows the names"
                .to_owned(),
        ));
    }
    let mut chosen = Chosen::default();
    for name in &args.scenario {
        if name == "all" {
            chosen.scenarios.extend(all()?);
            chosen.remote.extend(remote::all()?);
            chosen.pools.extend(pool::all()?);
        } else if let Some(found) = remote::find(name)? {
            chosen.remote.push(found);
        } else if let Some(found) = pool::find(name)? {
            chosen.pools.push(found);
        } else {
            chosen.scenarios.push(find(name).or_else(with_other_names).map_err(wrong)?);
        }
    }
    for path in &args.config {
        chosen.add_file(path)?;
    }
    if let Some(n_seeds) = args.seeds {
        let remote = chosen.remote.iter_mut().map(|scenario| &mut scenario.seeds);
        let pools = chosen.pools.iter_mut().map(|scenario| &mut scenario.seeds);
        remote.chain(pools).for_each(|seeds| *seeds = (1..=n_seeds).collect());
    }
    Ok(chosen)
}

impl Chosen {
    /// Adds the scenario of a file of any kind. It is read once: a pipe has nothing for a second reader.
    fn add_file(&mut self, path: &Path) -> Result<(), Failed> {
        let name = path.display().to_string();
        let text = file::read(path, MOST_SCENARIO_BYTES)
            .and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
        let json = text
            .map_err(|source| ScenarioError::Unreadable { file: name.clone(), source })?;
        if let Some(scenario) = RemoteScenario::of_its_kind(&name, &json)? {
            self.remote.push(scenario);
        } else if let Some(scenario) = PoolScenario::of_its_kind(&name, &json)? {
            self.pools.push(scenario);
        } else {
            self.scenarios.push(Scenario::from_json(&name, &json)?);
        }
        Ok(())
    }
}

/// Refuses flags that only scenarios of one job obey, where none is played.
fn check_flags(args: &SimulateArgs, chosen: &Chosen) -> Result<(), Failed> {
    let given = [
        ("--strategy", !args.strategy.is_empty()),
        ("--objective", args.objective.is_some()),
        ("--recovery", args.recovery.is_some()),
        ("--known", args.known.is_some()),
        ("--epochs", args.epochs != 1),
    ];
    let flag = given.iter().find(|(_, is_given)| *is_given);
    let remote = chosen.remote.iter().map(|scenario| &scenario.name);
    let other = remote.chain(chosen.pools.iter().map(|scenario| &scenario.name)).next();
    match (flag, other) {
        (Some((flag, _)), Some(other)) if chosen.scenarios.is_empty() => {
            Err(wrong(format!(
                "`{flag}` is about scenarios of one job, and {other} has variants of its own; \
                 leave it out"
            )))
        }
        (Some(_), Some(_) | None) | (None, Some(_) | None) => Ok(()),
    }
}

/// The name that was meant may be that of a remote scenario, or of one of a pool.
fn with_other_names(error: ScenarioError) -> Result<Scenario, ScenarioError> {
    let ScenarioError::Unknown { name, mut known } = error else { return Err(error) };
    known.extend(remote::all()?.into_iter().map(|scenario| scenario.name));
    known.extend(pool::all()?.into_iter().map(|scenario| scenario.name));
    Err(ScenarioError::Unknown { name, known })
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
        if let Some(recovery) = args.recovery {
            world.recovery = recovery;
        }
        if let Some(known) = args.known {
            world.accelerator.known = known;
            let prior = known.then_some(1.0);
            world.host.prior = prior;
            world.devices.iter_mut().for_each(|device| device.prior = prior);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};

    fn args(more: &[&str]) -> SimulateArgs {
        use clap::Parser as _;
        let line = ["bothends", "simulate"].iter().chain(more);
        let Command::Simulate(args) = Args::try_parse_from(line).unwrap().command else {
            panic!("it is a simulation")
        };
        args
    }

    #[test]
    fn flags_that_nothing_obeys_are_refused() {
        for (flag, value) in [
            ("--strategy", "ordered"),
            ("--objective", "energy"),
            ("--recovery", "off"),
            ("--known", "off"),
            ("--epochs", "3"),
        ] {
            for name in ["pool-large", "long-link"] {
                let Err(Failed::Arguments(why)) =
                    simulate(&args(&["--scenario", name, flag, value]))
                else {
                    panic!("{name} knows no {flag}")
                };
                let expected = format!(
                    "`{flag}` is about scenarios of one job, and {name} has variants of its own; \
                     leave it out"
                );
                assert_eq!(why, expected);
            }
            let both =
                args(&["--scenario", "steady", "--scenario", "pool-large", flag, value]);
            check_flags(&both, &chosen(&both).unwrap()).unwrap();
        }
        let plain = args(&["--scenario", "pool-large", "--seeds", "2"]);
        check_flags(&plain, &chosen(&plain).unwrap()).unwrap();
    }

    /// `--config <(…)`: what was read once is gone.
    #[test]
    fn a_scenario_of_each_kind_comes_through_a_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let configs =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/experiments");
        for name in ["steady.json", "remote/long-link.json", "pool/pool-large.json"] {
            let text = std::fs::read(configs.join(name)).unwrap();
            let pipe = folder.path().join("pipe");
            let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
            assert!(made.success());
            let writer = std::thread::spawn({
                let pipe = pipe.clone();
                move || std::fs::write(pipe, text)
            });
            let mut chosen = Chosen::default();
            chosen.add_file(&pipe).unwrap();
            writer.join().unwrap().unwrap();
            let Chosen { scenarios, remote, pools } = chosen;
            assert_eq!(scenarios.len() + remote.len() + pools.len(), 1, "{name}");
            std::fs::remove_file(&pipe).unwrap();
        }
        let endless = Chosen::default().add_file(Path::new("/dev/zero"));
        assert!(matches!(endless, Err(Failed::Run(_)) | Err(Failed::Arguments(_))));
    }
}
