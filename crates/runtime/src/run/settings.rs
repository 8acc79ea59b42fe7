//! What a run was told, as it stands in the result's `config`.

use bothends_figures::Settings;
use serde_json::json;

use crate::config::drive::DriveConfig;
use crate::config::run::RunConfig;
use crate::read::remote::without_secrets;

/// Every setting under its flag's name: the result's `config`.
#[must_use]
pub fn settings(run: &RunConfig, how: &DriveConfig) -> Settings {
    let energy: Vec<String> = how.energy.meters.iter().map(ToString::to_string).collect();
    let others = [
        ("data", json!(without_secrets(&run.data).display().to_string())),
        ("recipe", json!(run.recipe.name())),
        ("recipe_hash", json!(format!("{:032x}", run.recipe.hash()))),
        ("epochs", json!(how.epochs)),
        ("seed", json!(run.seed)),
        ("shuffle", json!(run.shuffle.to_string())),
        ("limit", json!(run.limit)),
        ("repeat", json!(run.repeat)),
        ("workers", json!(run.workers)),
        ("strategy", json!(run.strategy.name())),
        ("objective", json!(run.objective.to_string())),
        ("accelerator", json!(how.accelerator.name())),
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
    let mix = run.mix.as_ref().map(|mix| ("mix", mix.how()));
    let fields = (!run.fields.is_empty()).then(|| ("fields", json!(run.fields)));
    let others = others.into_iter().chain(mix).chain(fields);
    Settings {
        batch_size: Some(run.batch_size),
        csd: run.devices.iter().map(|device| device.text().to_owned()).collect(),
        accelerator_images_per_s: how.accelerator.samples_per_s(),
        others: others.map(|(name, value)| (name.to_owned(), value)).collect(),
    }
}
