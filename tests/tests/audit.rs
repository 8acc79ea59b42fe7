//! A device whose data are not the host's, or that lies: it is found before anything of it is
//! delivered wherever that can be, and the stream is the host's or the run ends with an error.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bothends_agent::{FileStore, NoCosts, Server, ServerConfig};
use bothends_core::one_line;
use bothends_core::recipe::Recipe;
use bothends_csd::loopback::Loopback;
use bothends_csd::{
    Capabilities, CsdError, DeviceStats, Inquiry, RecordDigest, Session, Transport,
};
use bothends_runtime::{
    EpochResult, Observer, Progress, RunConfig, Runtime, RuntimeError,
};
use bothends_slots::{Completion, Job, JobId, Lost, Polled, Producer, Rejected, Slot};
use bothends_tests::attempts::{self, until_a_device_takes_part};
use bothends_tests::{N_GENERATED, Setup, cifar_batches, generated, programs};

/// An agent that serves a copy of the data; killed when dropped.
struct Agent {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Agent {
    fn start(data: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let address = format!("unix://{}", folder.path().join("a").display());
        let mut command = Command::new(programs::program("bothends-agent")?);
        command.args(["--listen", &address, "--cores", "1", "--cache", "off"]);
        command.arg("--data-root").arg(data);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line)?;
        ensure!(line.starts_with("listening on "), "{line}");
        Ok(Self { child, address, _folder: folder })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keeps what is said, and does something once so many batches were delivered.
struct Watch<F> {
    at: u32,
    act: Option<F>,
    notes: Vec<String>,
}

impl<F: FnOnce()> Observer for Watch<F> {
    fn batch(&mut self, progress: Progress) {
        if progress.front + progress.back >= self.at
            && let Some(act) = self.act.take()
        {
            act();
        }
    }

    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }
}

/// The only epoch of a run, and what was said.
fn watched(setup: &Setup, at: u32, act: impl FnOnce()) -> Result<(EpochResult, String)> {
    let mut watch = Watch { at, act: Some(act), notes: Vec::new() };
    let mut result = setup.watched(&mut watch).with_context(|| format!("{setup:?}"))?;
    Ok((result.epochs.pop().context("an epoch")?, watch.notes.join("\n")))
}

fn run(setup: &Setup) -> Result<(EpochResult, String)> {
    watched(setup, 0, || ())
}

/// The same run by the host alone.
fn alone(setup: &Setup) -> Result<EpochResult> {
    Setup { devices: Vec::new(), strategy: "cpu", ..setup.clone() }.run()
}

/// Fails unless the host alone delivers the same.
fn assert_same(setup: &Setup, epoch: &EpochResult) -> Result<()> {
    let alone = alone(setup)?;
    ensure!(epoch.samples == alone.samples, "{epoch:?}");
    ensure!(epoch.content_digest == alone.content_digest, "{setup:?}: {epoch:?}");
    if setup.strategy == "ordered" {
        ensure!(epoch.stream_digest == alone.stream_digest, "{setup:?}: {epoch:?}");
    }
    Ok(())
}

/// Files below a folder, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false => found.push(path),
        }
    }
    found.sort();
    Ok(found)
}

/// A copy of a data set, with `change` done to the bytes of the files it is asked about.
fn copy(
    data: &Path,
    to: &Path,
    change: impl Fn(usize, &mut Vec<u8>),
) -> Result<Vec<PathBuf>> {
    let mut copied = Vec::new();
    for (nth, from) in files(data)?.into_iter().enumerate() {
        let path = to.join(from.strip_prefix(data)?);
        fs::create_dir_all(path.parent().context("a folder")?)?;
        let mut bytes = fs::read(&from)?;
        change(nth, &mut bytes);
        fs::write(&path, bytes)?;
        copied.push(path);
    }
    Ok(copied)
}

fn flip_one(bytes: &mut [u8]) {
    let at = bytes.len() * 2 / 3;
    bytes[at] ^= 0x10;
}

/// What a run says that cannot do without a device that serves this copy.
fn refusal(data: &Path, copy: &Path) -> Result<String> {
    let agent = Agent::start(copy)?;
    let devices = vec![agent.address.clone()];
    let setup = Setup { devices, require_devices: true, ..Setup::new(data) };
    let error = setup.run().err().context("it was taken")?;
    Ok(error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": "))
}

// ---- at open ----------------------------------------------------------------------------

#[test]
fn a_copy_with_a_changed_byte_in_each_file_is_refused_at_open() -> Result<()> {
    let (data, folder) = (generated()?, tempfile::tempdir()?);
    copy(&data, folder.path(), |_, bytes| flip_one(bytes))?;
    let said = refusal(&data, folder.path())?;
    ensure!(said.contains("the device has another copy of the data: sample"), "{said}");
    ensure!(said.contains("bytes here and there, and they differ"), "{said}");
    ensure!(said.contains("synchronise its data root"), "{said}");
    Ok(())
}

/// All records of a small data set are asked about.
#[test]
fn one_changed_byte_in_one_file_is_found_and_the_file_is_named() -> Result<()> {
    let (data, folder) = (generated()?, tempfile::tempdir()?);
    let change = |nth, bytes: &mut Vec<u8>| {
        if nth == 57 {
            flip_one(bytes);
        }
    };
    let name = copy(&data, folder.path(), change)?[57].clone();
    let said = refusal(&data, folder.path())?;
    let name = name.file_name().unwrap().to_string_lossy();
    ensure!(said.contains(&*name), "{said} does not name {name}");
    Ok(())
}

#[test]
fn a_longer_and_a_shorter_file_are_named_with_both_lengths() -> Result<()> {
    let data = generated()?;
    for (by, there) in [(1_i64, "longer"), (-1, "shorter")] {
        let folder = tempfile::tempdir()?;
        let change = |nth, bytes: &mut Vec<u8>| match (nth, by) {
            (3, 1) => bytes.push(0),
            (3, _) => drop(bytes.pop()),
            (_, _) => {}
        };
        let file = copy(&data, folder.path(), change)?[3].clone();
        let theirs = i64::try_from(fs::metadata(file)?.len())?;
        let said = refusal(&data, folder.path())?;
        let expected = format!("has {} bytes here and {theirs} there", theirs - by);
        ensure!(said.contains(&expected), "{there}: {said}");
    }
    Ok(())
}

#[test]
fn a_run_goes_on_without_a_device_that_has_another_copy() -> Result<()> {
    let (data, folder) = (generated()?, tempfile::tempdir()?);
    copy(&data, folder.path(), |_, bytes| flip_one(bytes))?;
    let agent = Agent::start(folder.path())?;
    let setup = Setup { devices: vec![agent.address.clone()], ..Setup::new(&data) };
    let (epoch, notes) = run(&setup)?;
    ensure!(notes.contains("another copy of the data"), "{notes}");
    ensure!(epoch.back[0].batches == 0, "{epoch:?}");
    assert_same(&setup, &epoch)
}

#[test]
fn an_honest_copy_takes_part() -> Result<()> {
    let (data, folder) = (generated()?, tempfile::tempdir()?);
    copy(&data, folder.path(), |_, _| ())?;
    let agent = Agent::start(folder.path())?;
    let devices = vec![agent.address.clone()];
    let setup =
        Setup { devices, require_devices: true, strategy: "csd", ..Setup::new(&data) };
    let epoch = until_a_device_takes_part(|| {
        let (epoch, notes) = run(&setup)?;
        ensure!(notes.is_empty(), "{notes}");
        assert_same(&setup, &epoch)?;
        Ok(epoch)
    })?;
    ensure!(epoch.audited > 0, "{epoch:?}");
    Ok(())
}

// ---- in the first epoch -----------------------------------------------------------------

/// Records of a thousand, of which the device has another one: it is asked about some at open, and
/// where this one is not among them the audits find it.
#[test]
fn a_changed_record_of_many_is_found_in_the_first_epoch() -> Result<()> {
    let (data, folder) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let bytes: Vec<u8> = (0..=250).cycle().take(1000 * 3073).collect();
    let mut bytes = bytes;
    bytes.iter_mut().step_by(3073).for_each(|label| *label %= 10);
    fs::write(data.path().join("data_batch_1.bin"), &bytes)?;
    copy(data.path(), folder.path(), |_, bytes| bytes[3073 * 700 + 1500] ^= 0x40)?;
    let agent = Agent::start(folder.path())?;
    let setup = Setup {
        devices: vec![agent.address.clone()],
        recipe: "cifar10-eval".to_owned(),
        strategy: "csd",
        batch_size: 20,
        audit_percent: 100,
        ..Setup::new(data.path())
    };
    let (epoch, notes) = run(&setup)?;
    let is_found = ["another copy of the data", "returned wrong samples"]
        .iter()
        .any(|said| notes.contains(said));
    // On a busy machine the host may have made that batch itself.
    ensure!(is_found || epoch.front.batches > 0, "{notes}: {epoch:?}");
    assert_same(&setup, &epoch)
}

/// The agent's files are replaced, between two batches, by others of the same names and lengths.
#[test]
fn files_that_are_replaced_under_a_running_agent_change_no_stream() -> Result<()> {
    let (data, folder) = (tempfile::tempdir()?, tempfile::tempdir()?);
    cifar_batches(data.path())?;
    let copied = copy(data.path(), folder.path(), |_, _| ())?;
    let agent = Agent::start(folder.path())?;
    let setup = Setup {
        devices: vec![agent.address.clone()],
        recipe: "cifar10-train".to_owned(),
        require_devices: true,
        strategy: "csd",
        repeat: 10,
        audit_percent: 100,
        ..Setup::new(data.path())
    };
    let replace = || {
        for path in &copied {
            let other: Vec<u8> = fs::read(path).unwrap().iter().map(|b| b ^ 1).collect();
            let new = path.with_extension("new");
            fs::write(&new, other).unwrap();
            fs::rename(new, path).unwrap();
        }
    };
    let (epoch, notes) = watched(&setup, 3, replace)?;
    // The agent says that they are other files; where it does not, the audits find it.
    let failure = epoch.back[0].failure.clone().unwrap_or_default();
    let said = format!("{notes} {failure}");
    let is_found = ["was replaced or changed on the device", "returned wrong samples"]
        .iter()
        .any(|part| said.contains(part));
    ensure!(is_found, "{said}: {epoch:?}");
    assert_same(&setup, &epoch)
}

/// The agent notices by itself that a file is another one where it is longer.
#[test]
fn files_that_grow_under_a_running_agent_are_made_by_the_host() -> Result<()> {
    let (data, folder) = (generated()?, tempfile::tempdir()?);
    let copied = copy(&data, folder.path(), |_, _| ())?;
    let agent = Agent::start(folder.path())?;
    let setup = Setup {
        devices: vec![agent.address.clone()],
        require_devices: true,
        strategy: "csd",
        repeat: 4,
        batch_size: 4,
        ..Setup::new(&data)
    };
    let grow = || {
        for path in &copied {
            // They are never shorter, not even for a moment: that would be another failure.
            let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(&[0]).unwrap();
        }
    };
    let (epoch, notes) = watched(&setup, 3, grow)?;
    let failure = epoch.back[0].failure.clone().unwrap_or_default();
    ensure!(failure.contains("in the host's copy of the data"), "{failure} {notes}");
    assert_same(&setup, &epoch)
}

// ---- a device that lies -----------------------------------------------------------------

/// Its first batch is made again as a whole, whatever the rate: nothing of it is delivered.
#[test]
fn a_device_that_lies_from_the_beginning_delivers_nothing() -> Result<()> {
    programs::program("firmware-sim")?;
    let data = generated()?;
    for strategy in ["ordered", "relaxed", "mte", "wrr", "csd"] {
        let devices = vec!["sim:ideal,rate=1000,fault=lie@100%".to_owned()];
        let setup = Setup { devices, strategy, repeat: 4, ..Setup::new(&data) };
        let run = || -> Result<_> {
            let (epoch, notes) = run(&setup)?;
            assert_same(&setup, &epoch)?;
            ensure!(epoch.back[0].batches == 0, "{strategy}: {notes}: {epoch:?}");
            Ok((epoch, notes))
        };
        // On a busy machine the host may have made all of it.
        let is_found = |(_, notes): &(EpochResult, String)| {
            strategy != "csd" || notes.contains("returned wrong samples (batch")
        };
        let (epoch, _) = attempts::until("the lie was found", is_found, run)?;
        if strategy == "csd" {
            let failure = epoch.back[0].failure.clone().unwrap_or_default();
            ensure!(failure.contains("returned wrong samples"), "{epoch:?}");
        }
    }
    Ok(())
}

#[test]
fn where_all_is_audited_no_lie_is_delivered() -> Result<()> {
    programs::program("firmware-sim")?;
    let data = generated()?;
    for strategy in ["ordered", "csd"] {
        let devices = vec!["sim:ideal,rate=1000,fault=lie@20%".to_owned()];
        let audit_percent = 100;
        let setup =
            Setup { devices, strategy, audit_percent, repeat: 4, ..Setup::new(&data) };
        let run = || -> Result<_> {
            let (epoch, notes) = run(&setup)?;
            assert_same(&setup, &epoch)?;
            Ok(notes)
        };
        let is_found =
            |notes: &String| strategy != "csd" || notes.contains("wrong samples");
        attempts::until("a lie was found", is_found, run)?;
    }
    Ok(())
}

#[test]
fn audits_of_an_honest_device_are_counted_and_change_nothing() -> Result<()> {
    programs::program("firmware-sim")?;
    let data = generated()?;
    for audit_percent in [0, 1, 100] {
        let devices = vec!["sim:ideal,rate=1000".to_owned()];
        let setup =
            Setup { devices, audit_percent, strategy: "csd", ..Setup::new(&data) };
        let (epoch, notes) = run(&setup)?;
        ensure!(notes.is_empty(), "{notes}");
        let n_made = u64::from(epoch.back[0].batches);
        let expected = match audit_percent {
            0 => n_made.min(2)..=2,
            1 => n_made.min(2)..=n_made,
            _ => n_made..=n_made,
        };
        ensure!(expected.contains(&epoch.audited), "{audit_percent}: {epoch:?}");
        ensure!(epoch.audited == 0 || epoch.audit_s > 0.0, "{epoch:?}");
        let n_compared = epoch.audited..=epoch.samples;
        ensure!(n_compared.contains(&epoch.audit_samples), "{audit_percent}: {epoch:?}");
        // What the host made in place of a late device is not audited.
        let are_all = audit_percent == 100 && epoch.front.batches == 0;
        ensure!(!are_all || epoch.audit_samples == epoch.samples, "{epoch:?}");
        ensure!(epoch.audit_differences == 0, "{epoch:?}");
        assert_same(&setup, &epoch)?;
    }
    Ok(())
}

/// Honest for so many batches, and never again.
#[derive(Debug)]
struct Turncoat {
    device: Loopback,
    n_honest: u32,
}

impl Producer for Turncoat {
    fn submit(&mut self, job: Job, slot: Slot) -> Result<(), Box<Rejected>> {
        self.device.submit(job, slot)
    }

    fn poll(&mut self, timeout: Duration) -> Result<Polled, Lost> {
        let polled = self.device.poll(timeout)?;
        let Polled::Completion(completion) = polled else { return Ok(polled) };
        if self.n_honest > 0 {
            self.n_honest -= 1;
            return Ok(Polled::Completion(completion));
        }
        let mut slot = completion.slot.host().unwrap();
        slot[0] ^= 1;
        let slot = slot.into_slot();
        Ok(Polled::Completion(Completion { slot, ..completion }))
    }

    fn revoke(&mut self, job: JobId) -> Result<(), Lost> {
        self.device.revoke(job)
    }

    fn abandon(&mut self) -> Result<(), Lost> {
        self.device.abandon()
    }
}

impl Transport for Turncoat {
    fn hello(&mut self) -> Result<Capabilities, CsdError> {
        self.device.hello()
    }

    fn open(&mut self, session: &Session) -> Result<(), CsdError> {
        self.device.open(session)
    }

    fn attest(
        &mut self,
        inquiry: &Inquiry,
    ) -> Result<Option<Vec<Option<RecordDigest>>>, CsdError> {
        self.device.attest(inquiry)
    }

    fn stats(&mut self) -> Result<DeviceStats, CsdError> {
        self.device.stats()
    }
}

/// Its lie is found by one audit of two; by then batches that may be wrong are with the consumer,
/// and nothing can bring them back.
#[test]
fn a_device_that_lies_late_ends_the_run_with_what_was_delivered() -> Result<()> {
    let data = tempfile::tempdir()?;
    cifar_batches(data.path())?;
    let recipe = Recipe::builtin("cifar10-train").context("a built-in recipe")?;
    let mut runtime = Runtime::open(RunConfig {
        batch_size: 8,
        repeat: 20,
        audit_percent: 50,
        strategy: "csd".parse()?,
        ..RunConfig::new(data.path().to_owned(), recipe)
    })?;
    let name = "turncoat".to_owned();
    let config = ServerConfig { name, emulated: false, n_workers: 1, n_slots: 2 };
    let server = Server::start(config, FileStore::new(data.path())?, NoCosts)?;
    let device = Turncoat { device: Loopback::new(Box::new(server)), n_honest: 40 };
    runtime.attach("turncoat", Box::new(device))?;
    let options = runtime.options(bothends_core::ids::EpochIdx(0));
    let mut epoch = runtime.start_epoch(&options)?;
    let (mut n_delivered, mut n_epochs) = (0, 1);
    let error = loop {
        match epoch.next_batch() {
            Ok(Some(_)) => n_delivered += 1,
            // On a busy machine the host stands in for a device that is late, perhaps for most of
            // an epoch.
            Ok(None) if n_epochs < 20 => {
                runtime.finish_epoch(epoch);
                epoch = runtime.start_epoch(&options)?;
                n_epochs += 1;
            }
            Ok(None) => anyhow::bail!("{n_delivered} batches and no error"),
            Err(error) => break error,
        }
    };
    let said = one_line(&error);
    let RuntimeError::Untrusted { n_delivered: n_doubtful, .. } = error else {
        anyhow::bail!("{said}")
    };
    ensure!(n_doubtful > 0 && n_doubtful <= n_delivered, "{said}");
    let parts =
        ["device turncoat returned wrong samples (batch ", "already been delivered"];
    ensure!(parts.iter().all(|part| said.contains(part)), "{said}");
    ensure!(epoch.next_batch()?.is_none());
    // It is no longer used, and the next epoch is the host's.
    runtime.finish_epoch(epoch);
    let mut epoch = runtime.start_epoch(&options)?;
    while let Some(batch) = epoch.next_batch()? {
        drop(batch);
    }
    let report = runtime.finish_epoch(epoch);
    ensure!(report.counts.back[0].delivered == 0, "{:?}", report.counts);
    Ok(())
}

#[test]
fn the_whole_set_of_generated_images_is_asked_about() -> Result<()> {
    // What the tests above rely on.
    ensure!(N_GENERATED <= 512);
    Ok(())
}
