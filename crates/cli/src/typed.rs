//! What was typed where the flags take more than a word or a number: recipes, profiles of energy,
//! workers, seconds. The flags themselves are in `args`.

use std::io;
use std::path::Path;
use std::time::Duration;

use bothends_core::one_line;
use bothends_core::recipe::Recipe;
use bothends_energy::Profile;
use bothends_runtime::{Ranks, Share};

use crate::failed::{Failed, wrong};
use crate::file;

/// Most bytes of a recipe's or a profile's file: far more than the longest has.
const MOST_FILE_BYTES: u64 = 1 << 20;

/// A number of seconds that a flag was given.
pub(crate) fn seconds(flag: &str, value: f64) -> Result<Duration, Failed> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| wrong(format!("`{flag}` wants a number of seconds from 0")))
}

/// A built-in recipe by name, else a file.
pub(crate) fn recipe(text: &str) -> Result<Recipe, Failed> {
    if let Some(recipe) = Recipe::builtin(text) {
        return Ok(recipe);
    }
    let json = text_of(text, "recipe", Recipe::builtin_names())?;
    Recipe::from_json(&json)
        .map_err(|e| wrong(format!("recipe {text}: {}", one_line(&e))))
}

/// A built-in energy profile by name, else a file.
pub(crate) fn profile(text: &str) -> Result<Profile, Failed> {
    if let Some(profile) = Profile::builtin(text) {
        return Ok(profile);
    }
    let json = text_of(text, "energy profile", Profile::builtin_names())?;
    Profile::from_json(text, &json).map_err(wrong)
}

/// What stands in a file that is none of the built-in ones.
fn text_of(
    path: &str,
    what: &str,
    builtin: impl Iterator<Item = &'static str>,
) -> Result<String, Failed> {
    let bytes = file::read(Path::new(path), MOST_FILE_BYTES);
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
    text.map_err(|e| {
        let names: Vec<_> = builtin.collect();
        wrong(format!(
            "`{path}` is neither a built-in {what} ({}) nor a file that can be read ({e})",
            names.join(", ")
        ))
    })
}

/// What of this machine this process takes, beside the other ranks of its launcher.
pub(crate) fn share() -> Share {
    Share::here(Ranks::told_by(|variable| std::env::var(variable).ok()))
}

/// A number of worker threads, or `auto`.
pub(crate) fn workers(text: &str, share: Share) -> Result<u32, Failed> {
    if text == "auto" {
        return Ok(share.workers());
    }
    let number = text.parse().ok().filter(|n| (1..=4096).contains(n));
    number.ok_or_else(|| {
        wrong(format!("`--workers {text}`: give a number from 1, or auto"))
    })
}
