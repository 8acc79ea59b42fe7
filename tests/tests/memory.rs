//! Promise 5: memory stays within a bound and does not grow from epoch to epoch.
//!
//! What counts is what the process owns, byte by byte, by an allocator that counts: what is
//! resident depends on which slot was touched when, so on what else the machine does. This is
//! a test program of its own because that allocator is the whole program's.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::alloc::System;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bothends_core::recipe::Recipe;
use bothends_runtime::{
    DriveConfig, Ended, Loader, MemoryBudget, Observer, Progress, RunConfig, Runtime,
    drive,
};
use bothends_tests::{generated, one_epoch, programs, real_images};
use cap::Cap;
use serde_json::Value;

#[global_allocator]
static OWNED: Cap<System> = Cap::new(System, usize::MAX);

/// Most that a run of 64 images a batch may own, slots included.
const BOUND: usize = 300_000_000;

/// Two tests at once would count each other's bytes.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes owned at the end of each epoch.
struct Owned {
    before: usize,
    after_epochs: Vec<usize>,
}

impl Observer for Owned {
    fn phase(&mut self, _: &str) {}
    fn note(&mut self, _: &str) {}
    fn batch(&mut self, _: Progress) {}

    fn end(&mut self, _: Ended<'_>) {
        self.after_epochs.push(OWNED.allocated().saturating_sub(self.before));
    }
}

impl Owned {
    /// Runs `epochs` in this process.
    fn of(epochs: u32, config: RunConfig) -> Result<Vec<usize>> {
        let mut owned = Self::nothing(epochs);
        run(epochs, config, &mut owned)?;
        ensure!(owned.after_epochs.len() == epochs as usize);
        Ok(owned.after_epochs)
    }

    fn nothing(epochs: u32) -> Self {
        let after_epochs = Vec::with_capacity(epochs as usize);
        Self { before: OWNED.allocated(), after_epochs }
    }
}

fn run(epochs: u32, config: RunConfig, observer: &mut Owned) -> Result<()> {
    let how = DriveConfig { epochs, digest: false, ..one_epoch() };
    let mut loader = Loader::over(Runtime::open(config)?);
    drive(&mut loader, &how, observer)?;
    Ok(())
}

/// The least that was owned at the end of any of these epochs: what came early for a later
/// epoch, or is on its way out, is in some of them and not in all.
fn least(epochs: &[usize]) -> usize {
    epochs.iter().copied().min().unwrap_or(0)
}

/// Batches of 64 for two workers and a device, with the memory that a small machine gives them:
/// by default a larger one gives more.
fn with_a_device(data: PathBuf, recipe: &str) -> Result<RunConfig> {
    programs::program("firmware-sim")?;
    Ok(RunConfig {
        batch_size: 64,
        workers: 2,
        memory: MemoryBudget::Slots(160 << 20),
        devices: vec!["sim:ideal,rate=200".parse()?],
        ..RunConfig::new(data, Recipe::builtin(recipe).context("a built-in recipe")?)
    })
}

#[test]
fn twenty_epochs_own_less_than_300_mb_and_no_more_slots_at_the_end() -> Result<()> {
    let test = "twenty_epochs_own_less_than_300_mb_and_no_more_slots_at_the_end";
    let data = real_images(test)?.map_or_else(generated, Ok)?;
    let _alone = alone();
    let owned = Owned::of(20, with_a_device(data, "imagenet-train")?)?;
    let most = OWNED.max_allocated();
    println!("at most {most} bytes; after each epoch {owned:?}");
    ensure!(most < BOUND, "{most} bytes at most: {owned:?}");
    // A worker keeps memory for the largest image that it has met, and may meet it late:
    // 1.5 MB for the largest of these. A slot has 9.6 MB.
    let (early, late) = (least(&owned[5..10]), least(&owned[15..]));
    ensure!(late.saturating_sub(early) < 5_000_000, "what is owned grows: {owned:?}");
    Ok(())
}

/// Where every image is as large as any other and every crop, too, there is nothing to meet
/// late.
#[test]
fn twenty_epochs_of_one_image_own_the_same_at_the_end() -> Result<()> {
    let image = generated()?.join("class-000/000.jpg");
    let folder = tempfile::tempdir()?;
    let class = folder.path().join("class");
    std::fs::create_dir(&class)?;
    for number in 0..200 {
        std::fs::copy(&image, class.join(format!("{number}.jpg")))?;
    }
    let _alone = alone();
    let config = with_a_device(folder.path().to_owned(), "imagenet-eval")?;
    let owned = Owned::of(20, config)?;
    let (early, late) = (least(&owned[5..10]), least(&owned[15..]));
    // Each epoch leaves its result, 500 bytes in a list that doubles.
    ensure!(late.saturating_sub(early) < 60_000, "what is owned grows: {owned:?}");
    Ok(())
}

/// Whatever an epoch leaves behind shows in many short ones. Its result it may leave, 400
/// bytes in a list that doubles: 80 kB here. Another 1 KiB each were another 120 KiB.
/// One worker, so that it is always the same one that meets a large crop.
#[test]
fn an_epoch_leaves_nothing_behind() -> Result<()> {
    let data = generated()?;
    let _alone = alone();
    let config = RunConfig {
        batch_size: 8,
        workers: 1,
        limit: Some(64),
        strategy: "cpu".parse()?,
        ..RunConfig::new(data, Recipe::builtin("imagenet-train").context("a recipe")?)
    };
    let owned = Owned::of(200, config)?;
    let (early, late) = (least(&owned[40..80]), least(&owned[160..]));
    println!("{early} bytes after epochs 40 to 79, {late} after epochs 160 to 199");
    ensure!(late.saturating_sub(early) < 120 << 10, "what is owned grows: {owned:?}");
    Ok(())
}

/// What is resident is at most what is owned and the program itself: so much for a run as
/// people start it.
#[test]
fn a_run_of_the_program_stays_below_300_mb() -> Result<()> {
    let data = real_images("a_run_of_the_program_stays_below_300_mb")?
        .map_or_else(generated, Ok)?;
    programs::program("firmware-sim")?;
    let mut command = Command::new(programs::program("bothends")?);
    command.arg("run").arg("--data").arg(data);
    command.args(["--recipe", "imagenet-train", "--workers", "2", "--json", "-"]);
    command.args(["--epochs", "3", "--batch-size", "64", "--csd", "sim:ideal,rate=200"]);
    command.args(["--memory", "256"]);
    let output = programs::run_reading(&mut command, Duration::from_secs(300))?;
    let result: Value = serde_json::from_str(&output)?;
    let epochs = result["epochs"].as_array().context("epochs")?;
    ensure!(epochs.len() == 3);
    for epoch in epochs {
        let peak = epoch["peak_rss_bytes"].as_u64().context("a peak")?;
        ensure!(peak < BOUND as u64, "{peak} bytes resident");
    }
    Ok(())
}
