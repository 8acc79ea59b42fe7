//! `bothends inspect`: what a data set or a recipe is, in plain words.

use std::path::{Path, PathBuf};

use bothends_core::plan::{LastPolicy, Shuffle};
use bothends_core::recipe::Recipe;
use bothends_core::select::StrategyConfig;
use bothends_core::tensor::{Dtype, Layout, Output};
use bothends_runtime::{BadPolicy, RankConfig, ReadConfig, RunConfig};

use crate::args::InspectArgs;
use crate::{Failed, run, say};

/// Prints what lies at a path, or what a recipe does.
pub(crate) fn inspect(args: &InspectArgs) -> Result<(), Failed> {
    let path = Path::new(&args.path);
    let is_recipe = !path.exists() || path.extension().is_some_and(|e| e == "json");
    if is_recipe {
        print_recipe(&run::recipe(&args.path)?);
        return Ok(());
    }
    let summary = bothends_runtime::survey(path)?;
    for line in summary {
        say::line(&line);
    }
    Ok(())
}

fn print_recipe(recipe: &Recipe) {
    say::line(&format!("recipe {} (version {})", recipe.name(), recipe.version()));
    say::line(&format!("hash {:032x}", recipe.hash()));
    for op in recipe.ops() {
        let place = if op.is_after_cut() { "at the feed " } else { "before the cut" };
        say::line(&format!("  {place:<15} {op:?}"));
    }
    say::line(&recipe.to_json());
}

/// A run that only looks: one worker, no device.
pub(crate) fn looking(data: PathBuf, recipe: Recipe) -> RunConfig {
    RunConfig {
        data,
        recipe,
        batch_size: 16,
        seed: 0,
        shuffle: Shuffle::Full,
        limit: None,
        repeat: 1,
        workers: 1,
        read: ReadConfig::default(),
        devices: Vec::new(),
        key_file: None,
        strategy: StrategyConfig::Cpu,
        output: Output { dtype: Dtype::U8, layout: Layout::Nhwc },
        rank: RankConfig { rank: 0, world: 1, last: LastPolicy::Pad },
        on_bad: BadPolicy::Zero,
        audit_percent: 0,
        memory_budget_bytes: 192 << 20,
    }
}
