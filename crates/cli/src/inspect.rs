//! `bothends inspect`: what a data set or a recipe is, in plain words; whether a store is as
//! it was written.

use std::path::{Path, PathBuf};

use bothends_core::recipe::Recipe;
use bothends_core::select::StrategyConfig;
use bothends_runtime::{BadPolicy, RunConfig};

use crate::args::InspectArgs;
use crate::{Failed, pack, run, say, sheet};

/// Prints what lies at a path, or what a recipe does.
pub(crate) fn inspect(args: &InspectArgs) -> Result<(), Failed> {
    let path = Path::new(&args.path);
    let is_recipe = !path.exists() || path.extension().is_some_and(|e| e == "json");
    if is_recipe {
        let recipe = run::recipe(&args.path)?;
        print_recipe(&recipe);
        return match &args.sheet {
            Some(file) => sheet::write(args, &recipe, file),
            None => Ok(()),
        };
    }
    if args.verify {
        return pack::verify(path);
    }
    let summary = bothends_runtime::survey(path)?;
    for line in summary {
        say::line(&line);
    }
    if bothends_pack::is_store(path) {
        pack::describe(path)?;
    }
    Ok(())
}

fn print_recipe(recipe: &Recipe) {
    say::line(&format!("recipe {} (version {})", recipe.name(), recipe.version()));
    if let Some(about) = recipe.about() {
        say::line(about);
    }
    if let Some(source) = recipe.source() {
        say::line(&format!("source {source}"));
    }
    say::line(&format!("hash {:032x}", recipe.hash()));
    for line in recipe.words() {
        say::line(&format!("  {line}"));
    }
    say::line(&recipe.to_json());
}

/// A run that only looks: one worker, no device.
pub(crate) fn looking(data: PathBuf, recipe: Recipe) -> RunConfig {
    let strategy = StrategyConfig::Cpu;
    RunConfig { strategy, on_bad: BadPolicy::Zero, ..RunConfig::new(data, recipe) }
}
