//! `bothends inspect`: what a data set or a recipe is, in plain words; whether a store is as
//! it was written.

mod sheet;

use std::path::{Path, PathBuf};

use bothends_core::recipe::Recipe;
use bothends_core::select::StrategyConfig;
use bothends_runtime::{BadPolicy, RunConfig, is_url};

use super::pack;
use crate::args::InspectArgs;
use crate::failed::{Failed, wrong};
use crate::watch::bar::decompressing;
use crate::{file, say, typed};

/// How far into a file the beginning of its text is looked for.
const HEAD_BYTES: u64 = 4096;

/// Prints what lies at a path, or what a recipe does.
pub(crate) fn inspect(args: &InspectArgs) -> Result<(), Failed> {
    let path = Path::new(&args.path);
    let is_data = is_url(&args.path) || !is_recipe(path);
    if is_data { data(args, path) } else { recipe(args) }
}

/// A name that is no path is a recipe's; so is a file of JSON, whatever it is called. A list
/// of samples has an object on every line, and its name says so.
fn is_recipe(path: &Path) -> bool {
    if !path.is_file() {
        return !path.exists();
    }
    match path.extension() {
        Some(ext) if ext.eq_ignore_ascii_case("jsonl") => false,
        Some(ext) if ext.eq_ignore_ascii_case("json") => true,
        _ => file::head(path, HEAD_BYTES)
            .is_ok_and(|head| head.trim_ascii_start().first() == Some(&b'{')),
    }
}

fn recipe(args: &InspectArgs) -> Result<(), Failed> {
    let recipe = typed::recipe(&args.path)?;
    if args.verify {
        return Err(wrong(format!(
            "`--verify` reads a store, and `{}` is a recipe; give the folder of a store",
            args.path
        )));
    }
    if let Some(file) = &args.sheet {
        typed::page("--sheet", file)?;
        file::check_writable(file)?;
    }
    print_recipe(&recipe);
    match &args.sheet {
        Some(file) => sheet::write(args, &recipe, file),
        None => Ok(()),
    }
}

fn data(args: &InspectArgs, path: &Path) -> Result<(), Failed> {
    if args.sheet.is_some() {
        return Err(wrong(format!(
            "`--sheet` shows what a recipe makes, and `{0}` is not one; give a recipe, and \
             `--data {0}`",
            args.path
        )));
    }
    if args.verify && is_url(&args.path) {
        return Err(wrong(format!(
            "`--verify` reads a store on this machine, and `{}` is a URL; copy the store here",
            args.path
        )));
    }
    if args.verify {
        return pack::verify(path);
    }
    let summary = bothends_runtime::survey(path)?;
    say::text(&summary.join("\n"));
    if bothends_pack::is_store(path) {
        pack::describe(path)?;
    }
    Ok(())
}

fn print_recipe(recipe: &Recipe) {
    say::line(&format!("recipe {} (version {})", recipe.name(), recipe.version()));
    if let Some(about) = recipe.about() {
        say::text(about);
    }
    if let Some(source) = recipe.source() {
        say::text(&format!("source {source}"));
    }
    say::line(&format!("hash {:032x}", recipe.hash()));
    say::line(&format!("numerics {}", recipe.numerics().words()));
    for line in recipe.words() {
        say::text(&format!("  {line}"));
    }
    say::line(&recipe.to_json());
}

/// A run that only looks: one worker, no device.
pub(crate) fn looking(data: PathBuf, recipe: Recipe) -> RunConfig {
    let strategy = StrategyConfig::Cpu;
    RunConfig {
        strategy,
        on_bad: BadPolicy::Zero,
        decompressing: decompressing(),
        ..RunConfig::new(data, recipe)
    }
}
