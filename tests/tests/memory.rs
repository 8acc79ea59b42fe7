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
    BadPolicy, DriveConfig, Ended, Loader, MemoryBudget, Observer, Progress, RunConfig,
    RunResult, Runtime, drive,
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

/// What comes of one epoch.
fn result(config: RunConfig) -> Result<RunResult> {
    run(1, config, &mut Owned::nothing(1))
}

fn run(epochs: u32, config: RunConfig, observer: &mut Owned) -> Result<RunResult> {
    let how = DriveConfig { epochs, digest: false, ..one_epoch() };
    let mut loader = Loader::over(Runtime::open(config)?);
    Ok(drive(&mut loader, &how, observer)?)
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

/// Headers that claim 120 megapixels, on four workers at once: decoded, they would take 138 MB
/// each of samples alone.
#[test]
fn decompression_bombs_stay_within_the_memory_that_is_given() -> Result<()> {
    const GIVEN: usize = 64 << 20;
    let mut bomb = std::fs::read(generated()?.join("class-000/000.jpg"))?;
    let frame = bomb.windows(2).position(|two| matches!(two, [0xff, 0xc0 | 0xc2]));
    let frame = frame.context("a frame header")?;
    bomb[frame + 5..frame + 7].copy_from_slice(&12_000_u16.to_be_bytes());
    bomb[frame + 7..frame + 9].copy_from_slice(&10_000_u16.to_be_bytes());
    let folder = tempfile::tempdir()?;
    let class = folder.path().join("class");
    std::fs::create_dir(&class)?;
    for number in 0..32 {
        let path = class.join(format!("{number:02}.jpg"));
        match number % 2 {
            0 => std::fs::write(path, &bomb)?,
            _ => drop(std::fs::copy(generated()?.join("class-000/001.jpg"), path)?),
        }
    }
    let recipe = Recipe::builtin("imagenet-eval").context("a built-in recipe")?;
    let config = RunConfig {
        workers: 4,
        batch_size: 4,
        memory: MemoryBudget::Total(GIVEN),
        on_bad: BadPolicy::Skip,
        ..RunConfig::new(folder.path().to_owned(), recipe)
    };
    let _alone = alone();
    // Batches and decoding as much each, and what the threads and the reader keep. Who takes
    // more is ended.
    let limit = OWNED.allocated() + 2 * GIVEN + (32 << 20);
    OWNED.set_limit(limit).ok().context("a limit above what is owned")?;
    let ran = result(config);
    OWNED.set_limit(usize::MAX).ok().context("no limit")?;
    let epoch = ran?.epochs.pop().context("an epoch")?;
    ensure!((epoch.samples, epoch.skipped.len()) == (16, 16), "{:?}", epoch.skipped);
    for bad in &epoch.skipped {
        let (size, room) = ("12000x10000 pixels may need", "this run may take 64 MiB");
        ensure!(bad.why.contains(size) && bad.why.contains(room), "{}", bad.why);
    }
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
