//! Scenarios: named worlds, as described by the files of `configs/experiments`.
//!
//! A [`Scenario`] is complete and in range; `raw.rs` reads one from JSON and reports what is wrong
//! with it, `builtin.rs` lists those that are compiled in, `fault.rs` parses a fault. `result.rs`
//! plays a scenario.

mod builtin;
mod fault;
mod raw;

use std::path::Path;

use bothends_core::epoch::Recovery;
use bothends_core::nearest::nearest;
use bothends_core::objective::Objective;
use bothends_core::select::StrategyConfig;
use serde_json::{Value, json};

use crate::energy::Power;
use crate::world::World;

/// A world of one or more ranks, with a name and the seeds with which it is played.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Its name on the command line and in results.
    pub name: String,
    /// A description for people, on one line.
    pub about: String,
    /// Whether nothing changes while it is played: no fault, absence, drift or slowdown.
    pub steady: bool,
    /// Each seed is played once.
    pub seeds: Vec<u64>,
    /// The power of everything.
    pub power: Power,
    /// Each rank's world; strategy and seed are set by [`Self::worlds`].
    pub ranks: Vec<World>,
    /// What it was read from; [`Value::Null`] if from nothing.
    pub file: Value,
}

impl Scenario {
    /// Reads a scenario; `file` is its name in errors.
    ///
    /// # Errors
    /// A [`ScenarioError`] that names the file and the key.
    pub fn from_json(file: &str, json: &str) -> Result<Self, ScenarioError> {
        raw::scenario(file, json)
    }

    /// Reads the scenario of a file.
    ///
    /// # Errors
    /// A [`ScenarioError`] that names the file and the key.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let file = path.display().to_string();
        let json = std::fs::read_to_string(path)
            .map_err(|source| ScenarioError::Unreadable { file: file.clone(), source })?;
        Self::from_json(&file, &json)
    }

    /// The worlds to play with a strategy: for each seed, those of the ranks.
    #[must_use]
    pub fn worlds(&self, strategy: StrategyConfig) -> Vec<Vec<World>> {
        let each_seed = |seed: &u64| {
            let ranks = (0_u64..).zip(&self.ranks);
            ranks
                .map(|(rank, world)| ready(world, strategy, seed ^ (rank << 32)))
                .collect()
        };
        self.seeds.iter().map(each_seed).collect()
    }

    /// The objective of its epochs.
    #[must_use]
    pub fn objective(&self) -> Objective {
        self.ranks.first().map(|world| world.objective).unwrap_or_default()
    }

    /// Whether the host stands in for lost and late devices.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.ranks.first().map(|world| world.recovery).unwrap_or_default()
    }

    /// Whether strategies are told the rates beforehand.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.ranks.first().is_some_and(|world| world.accelerator.known)
    }

    /// The file to read this scenario from: what it was read from, with the power model in full and
    /// with everything in it that a caller may have changed since, apart from the worlds' other fields.
    #[must_use]
    pub fn as_file(&self) -> Value {
        let mut file = with_seeds(&self.file, &self.seeds);
        if let Value::Object(keys) = &mut file {
            let recovery = match self.recovery() {
                Recovery::On => "on",
                Recovery::Off => "off",
            };
            keys.insert("objective".to_owned(), json!(self.objective().to_string()));
            keys.insert("recovery".to_owned(), json!(recovery));
            keys.insert("known".to_owned(), json!(self.is_known()));
            keys.insert("power".to_owned(), json!(self.power));
        }
        file
    }

    /// Batches of a rank.
    #[must_use]
    pub fn n_batches(&self) -> u32 {
        self.ranks.first().map_or(0, |world| world.n_batches)
    }

    /// Devices of all ranks.
    #[must_use]
    pub fn n_devices(&self) -> usize {
        self.ranks.iter().map(|world| world.devices.len()).sum()
    }
}

/// A scenario's file with the seeds with which it is played.
pub(crate) fn with_seeds(file: &Value, seeds: &[u64]) -> Value {
    let mut file = file.clone();
    if let Value::Object(keys) = &mut file {
        keys.insert("seeds".to_owned(), json!(seeds));
    }
    file
}

fn ready(world: &World, strategy: StrategyConfig, seed: u64) -> World {
    let mut world = World { strategy, seed, ..world.clone() };
    match strategy {
        // The host alone: unused devices only cost time here.
        StrategyConfig::Cpu => world.devices.clear(),
        // The whole second part of its epoch waits for the devices' storage.
        StrategyConfig::Mte(_) => {
            world.devices.iter_mut().for_each(|device| device.buffer = u32::MAX);
        }
        StrategyConfig::Csd
        | StrategyConfig::Wrr(_)
        | StrategyConfig::Relaxed
        | StrategyConfig::Ordered
        | StrategyConfig::OrderedBaseline => {}
    }
    world
}

/// Every scenario of `configs/experiments`.
///
/// # Errors
/// Never in a build whose tests pass.
pub fn all() -> Result<Vec<Scenario>, ScenarioError> {
    builtin::FILES.iter().map(|(file, json)| Scenario::from_json(file, json)).collect()
}

/// The scenario of `configs/experiments` with this name.
///
/// # Errors
/// [`ScenarioError::Unknown`] with all names.
pub fn find(name: &str) -> Result<Scenario, ScenarioError> {
    let mut known = Vec::new();
    for scenario in all()? {
        if scenario.name == name {
            return Ok(scenario);
        }
        known.push(scenario.name);
    }
    Err(ScenarioError::Unknown { name: name.to_owned(), known })
}

/// The scenario that was probably meant, or all of them.
fn others(name: &str, known: &[String]) -> String {
    match nearest(name, known.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean `{meant}`? (--list shows all)"),
        None => format!("the scenarios are {}", known.join(", ")),
    }
}

/// What is wrong with a scenario.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// No scenario has this name.
    #[error("there is no scenario `{name}`; {}", others(name, known))]
    Unknown {
        /// As given.
        name: String,
        /// All names.
        known: Vec<String>,
    },
    /// The file cannot be read.
    #[error("cannot read {file}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is not JSON, or keys are missing, unknown or of the wrong type.
    #[error("{file} is not a scenario")]
    Json {
        /// The file.
        file: String,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A key's value is out of range.
    #[error("{file}: `{key}` is {got}; {remedy}")]
    Value {
        /// The file.
        file: String,
        /// The key, with its path.
        key: String,
        /// Its value.
        got: String,
        /// What it must be.
        remedy: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_a_scenario_and_named_as_it_is_called() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/experiments");
        let mut n_files = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            // Those of records behind a link have a folder and a test of their own.
            if path.is_dir() {
                continue;
            }
            let scenario = Scenario::load(&path).unwrap();
            assert_eq!(path.file_stem().unwrap().to_str().unwrap(), scenario.name);
            assert_eq!(find(&scenario.name).unwrap().about, scenario.about);
            n_files += 1;
        }
        assert_eq!(n_files, all().unwrap().len(), "a file outside the list is not found");
    }

    #[test]
    fn an_unknown_name_is_told_what_was_meant_or_all_there_are() {
        let error = find("stedy").unwrap_err().to_string();
        assert!(
            error.starts_with("there is no scenario `stedy`; did you mean `steady`?"),
            "{error}"
        );
        let error = find("zzz").unwrap_err().to_string();
        assert!(error.contains("`zzz`; the scenarios are steady, "), "{error}");
        assert!(error.contains(", device-dies, "), "{error}");
    }

    #[test]
    fn a_rank_has_noise_of_its_own_and_mte_room_for_its_second_part() {
        let scenario = find("ranks-unequal").unwrap();
        let worlds = scenario.worlds("mte".parse().unwrap());
        assert_eq!(worlds.len(), scenario.seeds.len());
        let seeds: Vec<u64> = worlds[0].iter().map(|world| world.seed).collect();
        assert_eq!(seeds, [1, 1 | 1 << 32, 1 | 2 << 32, 1 | 3 << 32]);
        let buffers = worlds[0].iter().flat_map(|world| &world.devices);
        assert!(buffers.into_iter().all(|device| device.buffer == u32::MAX));
        let ordered = scenario.worlds(StrategyConfig::Ordered);
        assert!(ordered[0][1].devices[0].buffer < 100);
    }
}
