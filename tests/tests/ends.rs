//! How a run ends that somebody ends: signals, and the states that go on from there.
//!
//! Devices and hosts that die are `kill.rs`'s.

#![allow(clippy::unwrap_used, reason = "tests")]

mod leftovers;

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bothends_runtime::EpochResult;
use bothends_tests::programs::{eventually, program};
use bothends_tests::{N_GENERATED, Setup, generated};
use serde_json::Value;

use leftovers::{assert_nothing_left, devices_of};

const BATCH_SIZE: u32 = 4;
const REPEAT: u32 = 4;
/// For whatever must happen some time.
const PATIENCE: Duration = Duration::from_secs(60);
/// An accelerator that takes twenty seconds for the epoch: a signal comes in the middle.
const SLOW: &str = "sim:20";
/// Signals that come within this time are one request.
const TOGETHER: Duration = Duration::from_millis(200);

/// `bothends run` under way. Killed when a test ends without it.
struct Host {
    child: Child,
    folder: tempfile::TempDir,
}

impl Host {
    fn start(flags: &[&str], env: &[&str]) -> Result<Self> {
        program("firmware-sim")?;
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("tmp"))?;
        let mut command = Command::new("env");
        command.arg("--default-signal").args(env).arg(program("bothends")?);
        command.arg("run").arg("--data").arg(generated()?);
        let (batch_size, repeat) = (BATCH_SIZE.to_string(), REPEAT.to_string());
        command.args(["--recipe", "imagenet-train", "--batch-size", &batch_size]);
        command.args(["--repeat", &repeat, "--seed", "11", "--workers", "1", "--digest"]);
        command.args(["--side-index", "off"]).args(flags);
        for (flag, name) in
            [("--json", "result.json"), ("--events", "events"), ("--checkpoint", "state")]
        {
            command.arg(flag).arg(folder.path().join(name));
        }
        command.env("TMPDIR", folder.path().join("tmp"));
        let words = std::fs::File::create(folder.path().join("words"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(words);
        // As a shell starts a job: a terminal's signals go to all of its group.
        Ok(Self { child: command.process_group(0).spawn()?, folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn words(&self) -> String {
        std::fs::read_to_string(self.path("words")).unwrap_or_default()
    }

    /// Waits until so many batches were delivered.
    fn has_delivered(&self, n: usize) -> Result<()> {
        let events = || std::fs::read_to_string(self.path("events")).unwrap_or_default();
        let came = eventually(PATIENCE, || events().matches("delivered").count() > n);
        ensure!(came, "no batch was delivered: {}\n{}", self.words(), events());
        Ok(())
    }

    fn end(&mut self) -> Result<ExitStatus> {
        let child = &mut self.child;
        let ended = eventually(PATIENCE, || !matches!(child.try_wait(), Ok(None)));
        ensure!(ended, "the run did not end: {}", self.words());
        Ok(self.child.wait()?)
    }

    fn result(&self) -> Result<Value> {
        let text = std::fs::read_to_string(self.path("result.json"))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// The summary of the epoch that was broken off.
    fn epoch(&self) -> Result<Value> {
        Ok(self.result()?["epochs"][0].take())
    }

    /// The rest of the epoch from the state, in this process.
    fn rest(&self) -> Result<EpochResult> {
        Setup { resume: Some(self.path("state")), ..setup()? }.run()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The same epoch by the host alone.
fn setup() -> Result<Setup> {
    let (batch_size, repeat) = (BATCH_SIZE, REPEAT);
    Ok(Setup { batch_size, repeat, ..Setup::new(&generated()?) })
}

fn send(signal: &str, to: &[&str]) -> Result<()> {
    let status = Command::new("kill").args([signal, "--"]).args(to).status()?;
    ensure!(status.success(), "kill {signal} {to:?}: {status}");
    Ok(())
}

/// A run that got this signal in mid-epoch, its devices, and how it ended.
fn ended_by(signal: &str) -> Result<(Host, Vec<u32>, ExitStatus)> {
    let mut attempts_left = 8;
    loop {
        let flags = ["--accelerator", SLOW, "--csd", "sim:ideal,rate=300"];
        let mut host = Host::start(&flags, &[])?;
        host.has_delivered(5)?;
        let devices = devices_of(host.child.id())?;
        ensure!(devices.len() == 1, "{devices:?}");
        // To it and to all of its job, which it is in: `timeout` does so, and a terminal the latter.
        let id = host.child.id().to_string();
        let began = Instant::now();
        let sent = send(signal, &[&id, &format!("-{id}")]);
        let took = began.elapsed();
        let ended = host.end()?;
        if took < TOGETHER && sent.is_ok() {
            return Ok((host, devices, ended));
        }
        // The system may have stopped `kill` between the two: they were two signals, or the run had ended.
        attempts_left -= 1;
        ensure!(attempts_left > 0, "to send both took {took:?}: {sent:?}");
    }
}

#[test]
fn a_signal_ends_the_run_after_its_step_and_the_state_goes_on() -> Result<()> {
    let whole = setup()?.run()?;
    for (signal, status) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let (host, devices, ended) = ended_by(signal)?;
        let words = host.words();
        ensure!(ended.code() == Some(status), "{signal}: {ended}: {words}");
        ensure!(words.contains("continue with --resume"), "{words}");
        let epoch = host.epoch()?;
        let samples = epoch["samples"].as_u64().context("samples")?;
        ensure!((1..whole.samples).contains(&samples), "{epoch}");
        ensure!(epoch["back"][0]["failure"].is_null(), "the device died first: {epoch}");
        // Whoever reads a part's figures and digests must learn that they are a part's.
        let stopped = host.result()?["stopped"].take();
        ensure!(stopped == format!("SIG{}", &signal[1..]), "{stopped}");
        let batches = epoch["batches"].as_u64().context("batches")?;
        ensure!(epoch["stopped_at"] == batches && epoch["resumed_at"].is_null());
        let rest = host.rest()?;
        ensure!(rest.resumed_at.map(u64::from) == Some(batches), "{rest:?}");
        ensure!(rest.stopped_at.is_none() && whole.resumed_at.is_none(), "{rest:?}");
        ensure!(samples + rest.samples == whole.samples, "{samples} and {rest:?}");
        ensure!(rest.stream_digest == whole.stream_digest, "{signal}: {rest:?}");
        assert_nothing_left(&devices, &host.path("tmp"), "")?;
    }
    Ok(())
}

#[test]
fn a_run_that_is_killed_goes_on_from_its_last_state() -> Result<()> {
    let whole = setup()?.run()?;
    for (every, strategy) in [("3", "ordered"), ("1s", "ordered"), ("2", "relaxed")] {
        let flags = ["--accelerator", SLOW, "--csd", "sim:ideal,rate=300"];
        let more = ["--checkpoint-every", every, "--strategy", strategy];
        let mut host = Host::start(&[flags, more].concat(), &[])?;
        let is_saved = eventually(PATIENCE, || host.path("state").exists());
        ensure!(is_saved, "{every}: no state: {}", host.words());
        send("-KILL", &[&host.child.id().to_string()])?;
        host.end()?;
        ensure!(!host.path("result.json").exists());
        let rest = Setup { resume: Some(host.path("state")), strategy, ..setup()? };
        let rest = rest.run()?;
        ensure!(rest.samples < whole.samples, "{every}: nothing was kept: {rest:?}");
        let before = rest.resumed_at.context("it was resumed")?;
        ensure!(before + rest.batches == whole.batches, "{every}: {rest:?}");
        ensure!(rest.content_digest == whole.content_digest, "{every}: {rest:?}");
        if strategy == "ordered" {
            ensure!(rest.stream_digest == whole.stream_digest, "{every}: {rest:?}");
        }
    }
    Ok(())
}

/// A state that cannot be written is no reason to lose what the run has done.
#[test]
fn a_state_that_cannot_be_written_meanwhile_is_noted() -> Result<()> {
    let mut host =
        Host::start(&["--accelerator", "sim:40", "--checkpoint-every", "1"], &[])?;
    let is_saved = eventually(PATIENCE, || host.path("state").exists());
    ensure!(is_saved, "no state: {}", host.words());
    std::fs::remove_file(host.path("state"))?;
    while std::fs::create_dir(host.path("state")).is_err() {
        std::fs::remove_file(host.path("state"))?;
    }
    let is_noted = eventually(PATIENCE, || host.words().contains("; the run continues"));
    ensure!(is_noted, "{}", host.words());
    ensure!(host.child.try_wait()?.is_none(), "{}", host.words());
    // At the end it is an error, and the signal still what ended the run.
    send("-TERM", &[&host.child.id().to_string()])?;
    let ended = host.end()?;
    let words = host.words();
    ensure!(ended.code() == Some(143), "{ended}: {words}");
    ensure!(words.contains("error: cannot write the checkpoint"), "{words}");
    ensure!(words.contains("stopped by SIGTERM: no state was kept"), "{words}");
    ensure!(!words.contains("continue with"), "{words}");
    Ok(())
}

/// Nor at the end of an epoch: that was the end of the run, and of its results.
#[test]
fn a_state_that_cannot_be_written_between_epochs_ends_no_run() -> Result<()> {
    let mut host = Host::start(&["--accelerator", "sim:150", "--epochs", "3"], &[])?;
    host.has_delivered(1)?;
    std::fs::create_dir(host.path("state"))?;
    let ended = host.end()?;
    let words = host.words();
    ensure!(ended.code() == Some(1), "{ended}: {words}");
    for words_once in ["; the run continues", "error: cannot write the checkpoint"] {
        ensure!(words.matches(words_once).count() == 1, "{words_once}: {words}");
    }
    let result = std::fs::read_to_string(host.path("result.json"))?;
    let result: Value = serde_json::from_str(&result)?;
    ensure!(result["epochs"].as_array().is_some_and(|it| it.len() == 3), "{result}");
    Ok(())
}

#[test]
fn a_result_that_cannot_be_written_keeps_no_other_from_it() -> Result<()> {
    let mut host = Host::start(&["--accelerator", "sim:100"], &[])?;
    host.has_delivered(1)?;
    std::fs::create_dir(host.path("result.json"))?;
    let ended = host.end()?;
    let words = host.words();
    ensure!(ended.code() == Some(1), "{ended}: {words}");
    ensure!(words.matches("error: cannot write ").count() == 1, "{words}");
    let events = std::fs::read_to_string(host.path("events"))?;
    ensure!(events.contains(r#"{"line":"run","#), "the events were not ended: {words}");
    Ok(())
}

/// Nor is a full disk, or whatever else keeps a result from being written.
#[test]
fn a_result_that_cannot_be_written_is_named_and_the_signal_has_the_status() -> Result<()>
{
    let mut host = Host::start(&["--accelerator", "sim:40"], &[])?;
    host.has_delivered(1)?;
    std::fs::create_dir(host.path("result.json"))?;
    send("-TERM", &[&host.child.id().to_string()])?;
    let ended = host.end()?;
    let words = host.words();
    ensure!(ended.code() == Some(143), "{ended}: {words}");
    ensure!(words.contains("error: cannot write "), "{words}");
    ensure!(words.contains("continue with --resume"), "{words}");
    ensure!(host.rest()?.samples < u64::from(REPEAT * N_GENERATED));
    Ok(())
}

#[test]
fn a_signal_ends_a_run_that_still_measures() -> Result<()> {
    // Longer than anybody waits for its end.
    let mut host = Host::start(&["--measure-alone", "5000"], &[])?;
    let measures = eventually(PATIENCE, || host.words().contains("measuring the host"));
    ensure!(measures, "{}", host.words());
    send("-TERM", &[&host.child.id().to_string()])?;
    let ended = host.end()?;
    ensure!(ended.code() == Some(143), "{ended}: {}", host.words());
    ensure!(host.words().contains("SIGTERM before the first epoch"), "{}", host.words());
    ensure!(!host.path("state").exists());
    Ok(())
}

/// A step that takes longer than anybody waits.
#[test]
fn a_second_signal_ends_a_run_at_once() -> Result<()> {
    let mut host = Host::start(&["--accelerator", "sim:0.001"], &[])?;
    let begun = || std::fs::read_to_string(host.path("events")).unwrap_or_default();
    let runs = eventually(PATIENCE, || begun().contains("begin"));
    ensure!(runs, "{}", host.words());
    let id = host.child.id().to_string();
    send("-TERM", &[&id])?;
    std::thread::sleep(Duration::from_millis(500));
    ensure!(host.child.try_wait()?.is_none(), "the first one ended it: {}", host.words());
    // One that the process has not noticed for so long may count as a part of the first.
    let ends = || {
        let _ = send("-TERM", &[&id]);
        !matches!(host.child.try_wait(), Ok(None))
    };
    ensure!(eventually(PATIENCE, ends), "no second one ended it: {}", host.words());
    let ended = host.end()?;
    ensure!(ended.signal() == Some(15), "{ended}: {}", host.words());
    Ok(())
}

#[test]
fn a_signal_that_was_ignored_at_the_start_is_ignored() -> Result<()> {
    let mut host = Host::start(&["--accelerator", "sim:150"], &["--ignore-signal=HUP"])?;
    host.has_delivered(5)?;
    send("-HUP", &[&host.child.id().to_string()])?;
    let ended = host.end()?;
    ensure!(ended.success(), "{ended}: {}", host.words());
    let n_all = u64::from(REPEAT * N_GENERATED);
    ensure!(host.epoch()?["samples"].as_u64() == Some(n_all));
    Ok(())
}
