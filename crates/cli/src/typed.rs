//! What was typed where the flags take more than a word or a number: recipes, profiles of energy,
//! workers, seconds. The flags themselves are in `args`.

use std::io;
use std::path::Path;
use std::time::Duration;

use bothends_core::nearest::nearest;
use bothends_core::one_line;
use bothends_core::recipe::Recipe;
use bothends_energy::Profile;
use bothends_runtime::{Ranks, Registration, Share};

use crate::failed::{Failed, wrong};
use crate::file;

/// Most bytes of a recipe's or a profile's file: far more than the longest has.
const MOST_FILE_BYTES: u64 = 1 << 20;

/// Most worker threads that make sense anywhere.
const MOST_WORKERS: u32 = 4096;

/// The longest that a flag may ask for: a day. Nobody waits for more, and multiples of it are no
/// overflow.
pub(crate) const MOST_SECONDS: f64 = 86_400.0;

/// A number of seconds that a flag was given.
pub(crate) fn seconds(flag: &str, value: f64) -> Result<Duration, Failed> {
    let asked = Duration::try_from_secs_f64(value).ok();
    asked.filter(|asked| asked.as_secs_f64() <= MOST_SECONDS).ok_or_else(|| {
        wrong(format!(
            "`{flag}` takes a number of seconds from 0 to {MOST_SECONDS}, which are a day"
        ))
    })
}

/// Refuses a flag about devices, if one was given, where there are no devices.
pub(crate) fn check_has_devices(
    devices: &[String],
    given: Option<&str>,
) -> Result<(), Failed> {
    match given.filter(|_| devices.is_empty()) {
        Some(flag) => Err(wrong(format!(
            "`{flag}` is about devices, and none is given; name one with --csd, or leave it out"
        ))),
        None => Ok(()),
    }
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

/// A place for a page. A browser opens it by its extension, and no other format is written.
pub(crate) fn page(flag: &str, path: &Path) -> Result<(), Failed> {
    let is_page = |ext: &str| {
        ["html", "htm", "xhtml"].iter().any(|it| ext.eq_ignore_ascii_case(it))
    };
    let extension = path.extension().map(|extension| extension.to_string_lossy());
    match extension.filter(|extension| !is_page(extension)) {
        Some(extension) => Err(wrong(format!(
            "`{flag} {}`: it is a page of HTML, no .{extension}; give a file that ends in .html",
            path.display()
        ))),
        None => Ok(()),
    }
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
        let others = match nearest(path, names.iter().copied()) {
            Some(meant) => format!("; did you mean `{meant}`?"),
            None => format!("; built in are {}", names.join(", ")),
        };
        wrong(format!(
            "`{path}` is neither a built-in {what} nor a file that can be read ({e}){others}"
        ))
    })
}

/// This process's share of the machine, next to the other ranks of its launcher, or to those that have
/// registered with the same rendezvous, for which it waits. They count this one for as long as the
/// registration is kept.
pub(crate) fn share() -> (Share, Option<Registration>) {
    let (ranks, registration) =
        Ranks::here(|variable| std::env::var(variable).ok(), None);
    (Share::here(ranks), registration)
}

/// A number of worker threads, or `auto`.
pub(crate) fn workers(text: &str, share: Share) -> Result<u32, Failed> {
    if text == "auto" {
        return Ok(share.workers());
    }
    let number = text.parse().ok().filter(|n| (1..=MOST_WORKERS).contains(n));
    number.ok_or_else(|| {
        wrong(format!(
            "`--workers {text}`: give a number from 1 to {MOST_WORKERS}, or auto"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_workers_that_is_none_is_told_the_limits() {
        let (share, _) = share();
        for text in ["0", "100000", "-1", "some"] {
            let Err(Failed::Arguments(why)) = workers(text, share) else {
                panic!("{text} is no number of workers")
            };
            assert!(why.contains("a number from 1 to 4096, or auto"), "{why}");
        }
        assert_eq!(workers("4096", share).unwrap(), 4096);
    }

    #[test]
    fn seconds_are_of_a_day_at_most() {
        for value in [-1.0, f64::NAN, 1e19, MOST_SECONDS + 1.0] {
            let Err(Failed::Arguments(why)) = seconds("--measure-alone", value) else {
                panic!("{value} seconds are not to be measured")
            };
            assert_eq!(
                why,
                "`--measure-alone` takes a number of seconds from 0 to 86400, which are a day"
            );
        }
        assert!(seconds("--every", MOST_SECONDS).is_ok());
    }

    #[test]
    fn a_page_is_named_as_one() {
        for path in ["run.html", "RUN.HTM", "-", "/dev/null", "page"] {
            assert!(page("--report", Path::new(path)).is_ok(), "{path}");
        }
        let Err(Failed::Arguments(why)) = page("--report", Path::new("x.pdf")) else {
            panic!("a page is no PDF")
        };
        assert!(why.contains("`--report x.pdf`") && why.contains(".html"), "{why}");
    }
}
