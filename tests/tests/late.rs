//! Devices that come late, or come back: the run goes on without them, tries again, and takes
//! them in the middle of an epoch. A mistake in what it was told still ends it at once.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bothends_core::one_line;
use bothends_runtime::{EpochResult, Observer, Progress};
use bothends_tests::{N_GENERATED, Setup, attempts, generated, programs};

const REPEAT: u32 = 4;
/// An epoch of some ten seconds: longer than a missing device is waited for before it is tried
/// again, some times over.
const ACCELERATOR: &str = "sim:40";

/// An agent for the data; killed when dropped.
struct Agent(Child);

impl Agent {
    fn start(data: &Path, address: &str) -> Result<Self> {
        let mut command = Command::new(programs::program("bothends-agent")?);
        command.args(["--listen", address, "--cores", "1", "--data-root"]).arg(data);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line)?;
        ensure!(line.starts_with("listening on "), "{line}");
        Ok(Self(child))
    }

    fn send(&self, signal: &str) -> Result<()> {
        let id = self.0.id().to_string();
        let status = Command::new("kill").args([signal, &id]).status()?;
        ensure!(status.success(), "kill {signal} {id}: {status}");
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Does something to the agent when so many batches were delivered, and notes what is said.
struct Watch<F> {
    at: Vec<u32>,
    act: F,
    notes: Vec<String>,
}

impl<F: FnMut(usize)> Observer for Watch<F> {
    fn batch(&mut self, progress: Progress) {
        let n = progress.front + progress.back;
        if let Some(nth) = self.at.iter().position(|at| *at == n) {
            (self.act)(nth);
        }
    }

    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }
}

fn setup(address: &str) -> Result<Setup> {
    Ok(Setup {
        devices: vec![address.to_owned()],
        repeat: REPEAT,
        batch_size: 4,
        accelerator: ACCELERATOR.parse().map_err(anyhow::Error::msg)?,
        ..Setup::new(&generated()?)
    })
}

/// The epoch of the host alone.
fn assert_same(epoch: &EpochResult) -> Result<()> {
    let alone = Setup { repeat: REPEAT, batch_size: 4, ..Setup::new(&generated()?) };
    let alone = alone.run()?;
    ensure!(epoch.samples == u64::from(REPEAT * N_GENERATED), "{epoch:?}");
    ensure!(epoch.stream_digest == alone.stream_digest, "{epoch:?}");
    Ok(())
}

#[test]
fn a_device_that_comes_late_takes_part_in_the_epoch_that_runs() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (data, address) =
        (generated()?, format!("unix://{}", folder.path().join("a").display()));
    programs::program("bothends-agent")?;
    let mut agent = None;
    let act = |_| agent = Some(Agent::start(&data, &address).unwrap());
    let mut watch = Watch { at: vec![5], act, notes: Vec::new() };
    let result = setup(&address)?.watched(&mut watch)?;
    let epoch = result.epochs.first().context("an epoch")?;
    let notes = &watch.notes;
    ensure!(notes.len() == 2, "{notes:?}");
    let missing = format!("device {address}: cannot reach a device at {address}");
    ensure!(notes[0].starts_with(&missing), "{notes:?}");
    ensure!(
        notes[0].ends_with("the run continues without it and tries again"),
        "{notes:?}"
    );
    ensure!(notes[1].ends_with("it is there and takes part"), "{notes:?}");
    ensure!(epoch.back[0].batches > 0 && epoch.back[0].failure.is_none(), "{epoch:?}");
    assert_same(epoch)
}

#[test]
fn a_device_that_was_lost_is_taken_again_when_it_is_back() -> Result<()> {
    const LOST_AT: u32 = 10;
    let data = generated()?;
    let run = || -> Result<_> {
        let folder = tempfile::tempdir()?;
        let address = format!("unix://{}", folder.path().join("a").display());
        let mut agent = Some(Agent::start(&data, &address)?);
        let act = |nth| match nth {
            0 => agent = None,
            _ => agent = Some(Agent::start(&data, &address).unwrap()),
        };
        let mut watch = Watch { at: vec![LOST_AT, 15], act, notes: Vec::new() };
        let mut result = setup(&address)?.watched(&mut watch)?;
        let epoch = result.epochs.pop().context("an epoch")?;
        assert_same(&epoch)?;
        let losses = watch.notes.iter().filter(|it| it.contains("lost the device"));
        ensure!(losses.count() <= 1, "{:?}", watch.notes);
        Ok((epoch, watch.notes))
    };
    // On a busy machine it may come, or come back, when there is little left to make.
    let is_back = |(epoch, notes): &(EpochResult, Vec<String>)| {
        // More than it can have had ready before it was lost.
        notes.len() == 3 && epoch.back[0].batches > 2 * LOST_AT
    };
    let what = "the device was lost, came back and took part";
    let (epoch, notes) = attempts::until(what, is_back, run)?;
    ensure!(notes[0].contains("has slots for"), "{notes:?}");
    ensure!(notes[1].contains("lost the device"), "{notes:?}");
    ensure!(notes[2].ends_with("it is there and takes part"), "{notes:?}");
    let failure = epoch.back[0].failure.as_deref().unwrap_or_default();
    ensure!(failure.contains("lost the device"), "{epoch:?}");
    Ok(())
}

/// An engine that is told to end does not wait for a device that does not come.
#[test]
fn a_device_that_never_comes_costs_nothing() -> Result<()> {
    let setup = Setup { epochs: 2, ..Setup::new(&generated()?) };
    let devices = vec!["unix:///nowhere/socket".to_owned()];
    let (done, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut watch = Watch { at: Vec::new(), act: |_| (), notes: Vec::new() };
        let result = Setup { devices, ..setup }.watched(&mut watch);
        drop(done.send((result, watch.notes)));
    });
    // Anything that waited for the device would wait forever.
    let (result, notes) = end.recv_timeout(Duration::from_secs(60)).context("an end")?;
    let result = result?;
    ensure!(notes.len() == 1, "{notes:?}");
    for epoch in &result.epochs {
        ensure!(epoch.samples == u64::from(N_GENERATED) && epoch.rescued == 0);
        let failure = epoch.back[0].failure.as_deref().unwrap_or_default();
        ensure!(failure.contains("cannot reach a device"), "{epoch:?}");
    }
    Ok(())
}

/// One that takes the connection and says nothing: its process is stopped, or busy with something
/// else. Opening goes on after two seconds, and the transport's ten go on in the background.
#[test]
fn a_device_that_says_nothing_joins_when_it_says_hello() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (data, address) =
        (generated()?, format!("unix://{}", folder.path().join("a").display()));
    let agent = Agent::start(&data, &address)?;
    agent.send("-STOP")?;
    let act = |_| agent.send("-CONT").unwrap();
    let mut watch = Watch { at: vec![5], act, notes: Vec::new() };
    let result = setup(&address)?.watched(&mut watch)?;
    let epoch = result.epochs.first().context("an epoch")?;
    let notes = &watch.notes;
    ensure!(notes.len() == 2, "{notes:?}");
    let silent = format!("device {address}: the device did not answer `hello` within 2s");
    ensure!(notes[0].starts_with(&silent), "{notes:?}");
    ensure!(notes[1].ends_with("it is there and takes part"), "{notes:?}");
    ensure!(epoch.back[0].batches > 0 && epoch.back[0].failure.is_none(), "{epoch:?}");
    assert_same(epoch)
}

/// Nothing is as good as what was asked for: its deadlines are waited for.
#[test]
fn a_required_device_that_says_nothing_ends_the_run_after_its_deadline() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a");
    // The system takes the connection.
    let _silent = UnixListener::bind(&path)?;
    let setup = setup(&format!("unix://{}", path.display()))?;
    let error = Setup { require_devices: true, ..setup }.drive().unwrap_err();
    let error = one_line(&*error);
    ensure!(error.contains("did not answer `hello` within 10s"), "{error}");
    Ok(())
}

#[test]
fn a_device_that_is_required_or_misnamed_ends_the_run() -> Result<()> {
    let missing = setup("unix:///nowhere/socket")?;
    let error = Setup { require_devices: true, ..missing }.drive().unwrap_err();
    ensure!(error.to_string().contains("cannot reach a device"), "{error}");
    for typo in ["unix:/nowhere", "tcp://nas", "sim:newprot"] {
        ensure!(setup(typo)?.drive().is_err(), "{typo}");
    }
    Ok(())
}
