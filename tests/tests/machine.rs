//! What the machine does to a run: files that become pipes, too few files that may be open,
//! a disk that fails. Never another stream, never a wait without end.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bothends_core::recipe::Recipe;
use bothends_runtime::{
    BadPolicy, Loader, ReaderKind, RunConfig, RuntimeError, Supplied, SuppliedFile,
};
use bothends_tests::{generated, programs};
use serde_json::Value;

/// No epoch here takes longer.
const DEADLINE: Duration = Duration::from_secs(60);

#[test]
fn too_few_addresses_are_told_of_before_memory_is_missing() -> Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 61440 && exec \"$0\" \"$@\""]);
    command.arg(programs::program("bothends")?).args(["run", "--data"]).arg(generated()?);
    command.args(["--recipe", "imagenet-eval", "--workers", "2", "--batch-size", "4"]);
    let output = programs::run(&mut command, DEADLINE)?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(1), "{:?}: {said}", output.status);
    ensure!(said.starts_with("error: ") && said.lines().count() == 1, "{said}");
    ensure!(said.contains("ulimit -v"), "{said}");
    Ok(())
}

/// What ends the first epoch of a loader of these data.
fn failure(config: RunConfig) -> Result<RuntimeError> {
    failure_after(config, || Ok(()))
}

/// The same, with something that happens once the data are listed.
fn failure_after(
    config: RunConfig,
    happens: impl FnOnce() -> Result<()>,
) -> Result<RuntimeError> {
    let mut loader = Loader::open(RunConfig { batch_size: 2, workers: 2, ..config })?;
    happens()?;
    let began = Instant::now();
    let error = loader.begin(1)?.batches(0).find_map(Result::err);
    ensure!(began.elapsed() < DEADLINE, "it took {:?}", began.elapsed());
    error.context("the epoch ended without an error")
}

fn eval() -> Recipe {
    Recipe::builtin("imagenet-eval").unwrap()
}

#[test]
fn files_that_become_pipes_are_bad_samples_and_nobody_waits_for_a_writer() -> Result<()> {
    for kind in [ReaderKind::Pread, ReaderKind::Auto] {
        let folder = tempfile::tempdir()?;
        let class = folder.path().join("class");
        std::fs::create_dir(&class)?;
        let image = first_image(&generated()?)?;
        let names: Vec<_> = (0..6).map(|n| class.join(format!("{n}.jpg"))).collect();
        for name in &names {
            std::fs::copy(&image, name)?;
        }
        let mut config = RunConfig::new(folder.path().to_owned(), eval());
        config.read.kind = kind;
        let error = failure_after(config, || {
            for name in &names {
                std::fs::remove_file(name)?;
                ensure!(Command::new("mkfifo").arg(name).status()?.success());
            }
            Ok(())
        })?;
        let line = error.to_string();
        ensure!(line.contains("regular file"), "{line}");
    }
    Ok(())
}

fn first_image(folder: &Path) -> Result<std::path::PathBuf> {
    let class = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let class = class.filter(|path| path.is_dir()).min().context("a class")?;
    let image = std::fs::read_dir(class)?.flatten().map(|entry| entry.path()).min();
    image.context("an image")
}

#[test]
fn a_disk_that_fails_ends_the_run_whatever_the_policy() -> Result<()> {
    // Reading where this process has no memory is an error of input.
    let folder = tempfile::tempdir()?;
    symlink("/proc/self/mem", folder.path().join("broken.jpg"))?;
    std::fs::copy(first_image(&generated()?)?, folder.path().join("good.jpg"))?;
    for policy in [BadPolicy::Raise, BadPolicy::Skip, BadPolicy::Zero, BadPolicy::Replace]
    {
        let broken =
            SuppliedFile { path: "broken.jpg", extent: Some((0, 100)), label: 0 };
        let good = SuppliedFile { path: "good.jpg", extent: None, label: 0 };
        let files = [good, good, broken, good];
        let supplied = Supplied::files(folder.path(), files.into_iter())?;
        let config = RunConfig {
            supplied: Some(supplied),
            on_bad: policy,
            ..RunConfig::new(folder.path().to_owned(), eval())
        };
        let error = failure(config)?;
        let RuntimeError::Unreadable { path, source } = &error else {
            anyhow::bail!("{policy:?}: {error}");
        };
        ensure!(path.ends_with("broken.jpg"), "{error}");
        ensure!(source.raw_os_error() == Some(5), "{source}");
        let line = error.to_string();
        ensure!(line.contains("check the storage it lies on"), "{line}");
    }
    Ok(())
}

/// Either all is as ever, and one note says what limits it where the data's files cannot stay open,
/// or the run ends with the limit's name.
#[test]
fn too_few_files_that_may_be_open_make_no_other_stream() -> Result<()> {
    let data = generated()?;
    let program = programs::program("bothends")?;
    let run = |limit: &str, policy: &str| -> Result<(Option<i32>, String, String)> {
        let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(&program).args(["run", "--data"]).arg(&data);
        command.args(["--recipe", "imagenet-eval", "--batch-size", "4", "--digest"]);
        command.args(["--workers", "8", "--side-index", "off", "--json", "-"]);
        command.args(["--on-bad", policy]);
        let output = programs::run(&mut command, DEADLINE)?;
        let said = String::from_utf8(output.stderr)?;
        let digest = serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default();
        let digest = digest["epochs"][0]["stream_digest"].to_string();
        Ok((output.status.code(), digest, said))
    };
    let (_, whole, said) = run("1024", "raise")?;
    ensure!(whole.len() > 30, "{said}");
    ensure!(!said.contains("ulimit"), "nothing is limited: {said}");
    let mut n_noted = 0;
    for (limit, policy) in [
        ("16", "zero"),
        ("24", "skip"),
        ("40", "zero"),
        ("48", "replace"),
        ("64", "skip"),
        // Enough for the reader, and for hardly a file that stays open.
        ("90", "raise"),
    ] {
        let (status, digest, said) = run(limit, policy)?;
        match status {
            Some(0) => {
                ensure!(digest == whole, "{limit}, {policy}: another stream");
                let note = format!("at most {limit} files may be open, so ");
                let notes: Vec<_> = said.lines().filter(|l| l.contains(&note)).collect();
                ensure!(notes.len() == 1 && notes[0].contains("ulimit -n"), "{said}");
                n_noted += 1;
            }
            _ => {
                let errors = said.lines().filter(|line| line.starts_with("error: "));
                ensure!(status == Some(1), "{limit}, {policy}: {said}");
                ensure!(errors.count() == 1 && said.contains("ulimit -n"), "{said}");
            }
        }
    }
    ensure!(n_noted > 0, "no limit was enough to run with");
    Ok(())
}

/// A limit on what a file may hold stands for a full disk: the second half of a result does not
/// fit. Who reads the old one has all of it, and nothing lies beside it.
#[test]
fn a_result_that_does_not_fit_leaves_the_old_one_whole() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let place = folder.path().join("result.json");
    let run = |limit: &str| -> Result<(Option<i32>, String)> {
        // The signal of that limit would end the program before it is told.
        let script = format!("trap '' XFSZ; ulimit -f {limit} && exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(programs::program("bothends")?);
        command.args(["run", "--data"]).arg(generated()?).args([
            "--limit",
            "8",
            "--batch-size",
            "4",
        ]);
        command.args(["--recipe", "imagenet-eval", "--side-index", "off", "--json"]);
        let output = programs::run(command.arg(&place), DEADLINE)?;
        Ok((output.status.code(), String::from_utf8(output.stderr)?))
    };
    let (status, said) = run("unlimited")?;
    ensure!(status == Some(0), "{said}");
    let old = std::fs::read(&place)?;
    // Two blocks are 1 or 2 KiB, as the shell counts.
    ensure!(old.len() > 2048, "a result of {} bytes would fit", old.len());
    let (status, said) = run("2")?;
    ensure!(status == Some(1), "{status:?}: {said}");
    ensure!(
        said.contains("error: cannot write ") && said.contains("result.json"),
        "{said}"
    );
    ensure!(std::fs::read(&place)? == old, "the old result is gone");
    ensure!(std::fs::read_dir(folder.path())?.count() == 1, "something lies beside it");
    Ok(())
}
