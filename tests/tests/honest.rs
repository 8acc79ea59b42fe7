//! Promise 6: emulation is honest. The emulated device opens the images and decodes every
//! sample itself: without the files it can make nothing.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use bothends_tests::attempts::until_a_device_takes_part;
use bothends_tests::{N_GENERATED, Setup, assert_whole, generated, programs};

/// A device that holds `media`; ended when dropped.
struct Device {
    process: Child,
    address: String,
}

impl Device {
    fn start(media: &Path, socket: &Path) -> Result<Self> {
        let mut command = Command::new(programs::program("firmware-sim")?);
        command.args(["--preset", "ideal", "--time", "functional", "--media"]).arg(media);
        command.arg("--listen").arg(format!("unix://{}", socket.display()));
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening on ").context("it listens")?;
        Ok(Self { process, address: address.to_owned() })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn a_device_starved_of_its_files_makes_nothing() -> Result<()> {
    let data = generated()?;
    let folder = tempfile::tempdir()?;
    let media = folder.path().join("media");
    // The file that a session is opened with is there, and no other.
    std::fs::create_dir_all(media.join("class-000"))?;
    std::fs::copy(data.join("class-000/000.jpg"), media.join("class-000/000.jpg"))?;
    let device = Device::start(&media, &folder.path().join("device.sock"))?;
    let setup = Setup { devices: vec![device.address.clone()], ..Setup::new(&data) };
    let epoch = setup.run()?;
    let alone = Setup::new(&data).run()?;
    assert_whole(&epoch, u64::from(N_GENERATED))?;
    ensure!(epoch.stream_digest == alone.stream_digest);
    let back = &epoch.back[0];
    ensure!(back.batches == 0, "it delivered {} batches without files", back.batches);
    ensure!(back.lost == 0, "it was given {} batches", back.lost);
    let why = back.failure.as_deref().unwrap_or_default();
    ensure!(why.contains("cannot be read there"), "{why}");
    Ok(())
}

#[test]
fn a_device_without_any_file_refuses_the_session() -> Result<()> {
    let data = generated()?;
    let folder = tempfile::tempdir()?;
    let media = folder.path().join("media");
    std::fs::create_dir(&media)?;
    let device = Device::start(&media, &folder.path().join("device.sock"))?;
    let devices = vec![device.address.clone()];
    let setup = Setup { devices, require_devices: true, ..Setup::new(&data) };
    let error = format!("{:#}", setup.run().unwrap_err());
    ensure!(error.contains("refused the session") && error.contains(".jpg"), "{error}");
    Ok(())
}

#[test]
fn with_its_files_it_makes_batches() -> Result<()> {
    let data = generated()?;
    let epoch = until_a_device_takes_part(|| {
        let folder = tempfile::tempdir()?;
        let device = Device::start(&data, &folder.path().join("device.sock"))?;
        let devices = vec![device.address.clone()];
        Setup { devices, strategy: "csd", ..Setup::new(&data) }.run()
    })?;
    ensure!(epoch.back[0].emulated, "an emulated device is never reported as a device");
    Ok(())
}

/// Faster than this machine decodes: whoever reads the figures must learn that they are not the model's.
#[test]
fn an_emulator_that_cannot_keep_its_models_pace_says_so() -> Result<()> {
    let data = generated()?;
    let devices = |rate| vec![format!("sim:newport,rate={rate}")];
    let setup = Setup { strategy: "csd", batch_size: 8, ..Setup::new(&data) };
    let behind = Setup { devices: devices(1e7), ..setup.clone() };
    let behind = until_a_device_takes_part(|| behind.run())?;
    let back = &behind.back[0];
    ensure!(back.late_completions >= Some(back.batches / 2), "{back:?}");
    ensure!(back.max_lateness_seconds <= back.lateness_seconds, "{back:?}");
    ensure!(back.is_behind(behind.seconds) == Some(true), "{back:?}");
    let in_time = Setup { devices: devices(20.0), repeat: 1, ..setup }.run()?;
    let back = &in_time.back[0];
    ensure!(back.lateness_seconds < Some(in_time.seconds / 2.0), "{back:?}");
    Ok(())
}

/// A fault strikes at a part of the epoch, also where that has each sample several times.
#[test]
fn a_fault_at_half_of_a_repeated_epoch_strikes_at_half_of_it() -> Result<()> {
    let data = generated()?;
    let devices = vec!["sim:newport,rate=400,fault=die@50%".to_owned()];
    let setup = Setup { strategy: "csd", devices, batch_size: 4, ..Setup::new(&data) };
    let epoch = Setup { repeat: 8, ..setup }.run()?;
    assert_whole(&epoch, u64::from(N_GENERATED) * 8)?;
    // Half of the hundred batches that are a device's part by default. It was struck after six of 200.
    let made = epoch.back[0].batches;
    ensure!((30..=60).contains(&made), "it made {made} batches");
    Ok(())
}

/// Who injects a fault and reads of no failure must learn whether the fault was there.
#[test]
fn a_fault_that_never_strikes_is_told_from_one_that_does() -> Result<()> {
    let data = generated()?;
    let run = |strategy, device: &str| {
        let devices = vec![device.to_owned()];
        let setup = Setup { devices, strategy, batch_size: 4, ..Setup::new(&data) };
        let setup = Setup { repeat: 4, ..setup };
        Ok::<_, anyhow::Error>(setup.drive()?.faults)
    };
    // The host has made the epoch before such a device has begun half of it.
    let faults = run("ordered", "sim:newport,rate=1,fault=die@50%")?;
    ensure!(faults.len() == 1 && faults[0].fault == "die@50%", "{faults:?}");
    ensure!(faults[0].struck == Some(0), "{faults:?}");
    ensure!(faults[0].begun < faults[0].after, "{faults:?}");
    let faults = run("csd", "sim:ideal,rate=400,fault=duplicate@100%")?;
    ensure!(faults.iter().all(|fault| fault.struck > Some(0)), "{faults:?}");
    // One that has died cannot be asked.
    let faults = run("csd", "sim:ideal,rate=400,fault=die@0%")?;
    ensure!(faults.len() == 1 && faults[0].struck.is_none(), "{faults:?}");
    Ok(())
}
