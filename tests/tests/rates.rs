//! Rates are remembered from run to run: shown by what a run says at its start, with whole programs
//! and a cache directory of their own. They change no byte, and whatever is in their place is no
//! error.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bothends_tests::{generated, loading, programs};
use serde_json::json;

/// A run of a host and a device, with this cache directory: what it says of the device's slots, and
/// its stream. Epochs have some fifty batches, so that the device makes a few in each, however busy
/// the machine is: of a dozen the host made nine and more twenty times in a row.
fn run(cache: &Path, more: &[&str]) -> Result<(Vec<String>, String)> {
    let data = generated()?;
    let args = ["--batch-size", "8", "--workers", "1", "--repeat", "4", "--memory", "64"];
    let device = ["--csd", "sim:ideal,time=functional", "--strategy", "ordered"];
    let mut command = Command::new(programs::program("bothends")?);
    command.args(["run", "--recipe", "imagenet-train", "--digest", "--data"]).arg(data);
    command.args(args).args(device).args(more).env("XDG_CACHE_HOME", cache);
    let output = programs::run(&mut command, Duration::from_secs(120))?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(output.status.success(), "{more:?} said {said}");
    let notes = said.lines().filter_map(|line| line.strip_prefix("note: "));
    // Others speak of the machine.
    let notes = notes.filter(|note| note.starts_with("device "));
    let printed = String::from_utf8(output.stdout)?;
    let stream = printed.lines().find(|line| line.starts_with("epoch 0: stream"));
    let stream = stream.context("a digest was asked for")?.to_owned();
    Ok((notes.map(str::to_owned).collect(), stream))
}

fn files(cache: &Path) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(cache.join("bothends/rates")).into_iter().flatten();
    folder.map(|entry| entry.unwrap().path()).collect()
}

const DEVICE: &str = "device sim:ideal,time=functional has slots for 34 batches";

/// Whether the line at the start knows how many slots the device can use.
fn knows(notes: &[String]) -> Result<bool> {
    let [note] = notes else { anyhow::bail!("not one line: {notes:?}") };
    if *note == format!("{DEVICE}; how many are of use shows when it is timed") {
        return Ok(false);
    }
    let needed = note.strip_prefix(DEVICE).unwrap_or_default();
    let needed = needed.strip_prefix(", and at the rates known a use for ");
    let needed = needed.with_context(|| format!("{note:?}"))?;
    // More than the slots that it has, on a machine whose host is slow: then so much memory.
    let (needed, remedy) = needed.split_once("; --memory ").unwrap_or((needed, "64 "));
    ensure!((4..=64).contains(&needed.parse::<u32>()?), "{note}");
    let mib: u32 = remedy.split(' ').next().context("a number")?.parse()?;
    ensure!((needed.parse::<u32>()? > 34) == (mib > 64), "{note}");
    Ok(true)
}

#[test]
fn a_run_says_what_it_knows_from_the_run_before() -> Result<()> {
    let cache = tempfile::tempdir()?;
    let cache = cache.path();
    let (notes, stream) = run(cache, &[])?;
    ensure!(!knows(&notes)?, "{notes:?}");
    // A device that made few batches of an epoch, on a busy machine, shows nothing yet.
    let is_known = (0..20).any(|_| {
        let (notes, again) = run(cache, &[]).unwrap();
        assert_eq!(again, stream, "rates change no byte");
        knows(&notes).unwrap()
    });
    ensure!(is_known, "{:?}", files(cache));
    let [file] = &files(cache)[..] else { panic!("{:?}", files(cache)) };
    ensure!(std::fs::metadata(file)?.len() < 2048);
    // Another kind of run knows nothing of it, and says so in a file of its own.
    let (notes, _) = run(cache, &["--output", "f32"])?;
    ensure!(notes.len() == 1 && !notes[0].contains("rates known"), "{notes:?}");
    ensure!(files(cache).len() == 2);
    // A damaged file is ignored, and replaced by the next run that has something to write.
    for file in files(cache) {
        std::fs::write(file, b"{\"version\": 1")?;
    }
    let (notes, again) = run(cache, &[])?;
    ensure!(!knows(&notes)? && again == stream, "{notes:?}");
    Ok(())
}

#[test]
fn who_wants_nothing_kept_has_nothing_kept() -> Result<()> {
    let cache = tempfile::tempdir()?;
    let (notes, stream) = run(cache.path(), &["--side-index", "off"])?;
    ensure!(!knows(&notes)? && files(cache.path()).is_empty());
    // A cache directory that is none hinders nobody.
    let file = cache.path().join("file");
    std::fs::write(&file, "")?;
    let (notes, again) = run(&file, &[])?;
    ensure!(!knows(&notes)? && again == stream, "{notes:?}");
    ensure!(!knows(&run(&file, &[])?.0)?);
    Ok(())
}

#[test]
fn a_loader_says_of_each_device_what_it_has_and_has_a_use_for() -> Result<()> {
    programs::program("firmware-sim")?;
    let device = json!({"csds": ["sim:ideal,time=functional"], "repeat": 4});
    let mut loader = loading::open(&device)?;
    let [before] = &loader.stats().back[..] else { anyhow::bail!("one device") };
    ensure!(before.slots >= 2 && before.slots_needed.is_none(), "{before:?}");
    let is_known = (0..20).any(|_| {
        loading::rest(&loader.begin(1).unwrap(), 0).unwrap();
        let _ = loader.epoch();
        loader.stats().back[0].slots_needed.is_some_and(|n| (4..=64).contains(&n))
    });
    ensure!(is_known, "{:?}", loader.stats().back);
    let mut without =
        loading::open(&json!({"csds": device["csds"], "strategy": "relaxed"}))?;
    loading::rest(&*without.begin(1)?, 0)?;
    let _ = without.epoch();
    ensure!(without.stats().back[0].slots_needed.is_none(), "nothing waits for its turn");
    Ok(())
}
