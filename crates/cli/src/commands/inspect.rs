//! `bothends inspect`: what a data set or a recipe is, in plain words; whether a store is as
//! it was written.

mod sheet;

use std::path::{Path, PathBuf};

use bothends_core::nearest::nearest;
use bothends_core::recipe::{Op, Recipe};
use bothends_core::select::StrategyConfig;
use bothends_runtime::{BadPolicy, RunConfig, is_url};

use super::pack;
use crate::args::InspectArgs;
use crate::failed::{Failed, wrong};
use crate::flags::flag;
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
    if Recipe::builtin(&args.path).is_none()
        && Path::new(&args.path).try_exists().is_ok_and(|is| !is)
    {
        return Err(nothing_there(&args.path));
    }
    let recipe = typed::recipe(&args.path)?;
    if args.verify {
        return Err(wrong(format!(
            "`--verify` reads a store, and `{}` is a recipe; give the folder of a store",
            args.path
        )));
    }
    if let Some(file) = &args.sheet {
        check_decodes(&recipe)?;
        typed::page("--sheet", file)?;
        file::check_writable(file)?;
    }
    print_recipe(&recipe);
    match &args.sheet {
        Some(file) => sheet::write(args, &recipe, file),
        None => Ok(()),
    }
}

/// A word that is neither a recipe's name nor a path.
fn nothing_there(path: &str) -> Failed {
    let names: Vec<_> = Recipe::builtin_names().collect();
    let names = match nearest(path, names.iter().copied()) {
        Some(meant) => format!("did you mean the recipe `{meant}`?"),
        None => format!("the built-in recipes are {}", names.join(", ")),
    };
    wrong(format!(
        "there is nothing at `{path}`, and no built-in recipe has that name; give the path of a data \
         set or of a recipe file; {names}"
    ))
}

/// A sheet shows pictures.
fn check_decodes(recipe: &Recipe) -> Result<(), Failed> {
    if recipe.ops().iter().any(|op| matches!(op, Op::Decode(_))) {
        return Ok(());
    }
    Err(wrong(format!(
        "`--sheet` shows pictures, and the recipe {} delivers the bytes of files as they are; give a \
         recipe that decodes, such as imagenet-eval",
        recipe.name()
    )))
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
        names: flag,
        ..RunConfig::new(data, recipe)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn what_is_no_picture_and_what_is_nothing_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let sheet = folder.path().join("sheet.html");
        let refusal = |path: &str| {
            let sheet = sheet.to_str().unwrap();
            let line = ["bothends", "inspect", path, "--sheet", sheet];
            let Command::Inspect(args) = Args::try_parse_from(line).unwrap().command
            else {
                panic!("it is inspect")
            };
            let Err(Failed::Arguments(why)) = inspect(&args) else { panic!("{path}") };
            assert!(!Path::new(sheet).exists());
            why
        };
        let raw = refusal("raw");
        assert!(raw.contains("recipe raw delivers the bytes of files"), "{raw}");
        let nothing = refusal("/no/such/path");
        let begins = "there is nothing at `/no/such/path`, and no built-in recipe";
        assert!(nothing.starts_with(begins), "{nothing}");
        assert!(
            nothing.contains("the path of a data set or of a recipe file"),
            "{nothing}"
        );
        let meant = refusal("imagenet-trian");
        assert!(meant.ends_with("did you mean the recipe `imagenet-train`?"), "{meant}");
    }
}
