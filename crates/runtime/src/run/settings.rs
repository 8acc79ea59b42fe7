//! What a run was told, as it stands in the result's `config`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::config::drive::DriveConfig;
use crate::config::run::RunConfig;

/// Every setting under its flag's name: the result's `config`.
#[must_use]
pub fn settings(run: &RunConfig, how: &DriveConfig) -> BTreeMap<String, Value> {
    let devices: Vec<&str> = run.devices.iter().map(|d| d.text()).collect();
    let energy: Vec<String> = how.energy.meters.iter().map(ToString::to_string).collect();
    let settings = [
        ("data", json!(run.data.display().to_string())),
        ("recipe", json!(run.recipe.name())),
        ("recipe_hash", json!(format!("{:032x}", run.recipe.hash()))),
        ("batch_size", json!(run.batch_size)),
        ("epochs", json!(how.epochs)),
        ("seed", json!(run.seed)),
        ("shuffle", json!(run.shuffle.to_string())),
        ("limit", json!(run.limit)),
        ("repeat", json!(run.repeat)),
        ("workers", json!(run.workers)),
        ("csd", json!(devices)),
        ("strategy", json!(run.strategy.name())),
        ("objective", json!(run.objective.to_string())),
        ("accelerator", json!(how.accelerator.name())),
        ("accelerator_images_per_s", json!(how.accelerator.samples_per_s())),
        ("output", json!(run.output.dtype)),
        ("layout", json!(run.output.layout)),
        ("rank", json!(run.rank.rank)),
        ("world", json!(run.rank.world)),
        ("last", json!(run.rank.last.to_string())),
        ("on_bad", json!(run.on_bad.name())),
        ("audit_percent", json!(run.audit_percent)),
        ("energy", json!(energy)),
        ("energy_profile", json!(how.energy.profile.called())),
    ];
    settings.map(|(name, value)| (name.to_owned(), value)).into()
}
