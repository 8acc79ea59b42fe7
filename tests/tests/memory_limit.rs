//! Promise 5: what is given bounds what images are decoded in.
//!
//! A test program of its own: its allocator has a limit, which would end other tests, and while that is set what is owned
//! cannot be told.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::alloc::System;

use anyhow::{Context, Result, ensure};
use bothends_core::recipe::Recipe;
use bothends_runtime::{
    BadPolicy, DriveConfig, Loader, MemoryBudget, RunConfig, Runtime, drive,
};
use bothends_tests::{Silent, generated, one_epoch};
use cap::Cap;

#[global_allocator]
static OWNED: Cap<System> = Cap::new(System, usize::MAX);

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
    // Batches and decoding as much each, and what the threads and the reader keep. Who takes
    // more is ended.
    let limit = OWNED.allocated() + 2 * GIVEN + (32 << 20);
    OWNED.set_limit(limit).ok().context("a limit above what is owned")?;
    let how = DriveConfig { digest: false, ..one_epoch() };
    let ran = Runtime::open(config).and_then(|runtime| {
        let mut loader = Loader::over(runtime);
        drive(&mut loader, &how, &mut Silent)
    });
    OWNED.set_limit(usize::MAX).ok().context("no limit")?;
    let epoch = ran?.epochs.pop().context("an epoch")?;
    ensure!((epoch.samples, epoch.skipped.len()) == (16, 16), "{:?}", epoch.skipped);
    for bad in &epoch.skipped {
        let (size, room) = ("12000x10000 pixels may need", "this run may take 64 MiB");
        ensure!(bad.why.contains(size) && bad.why.contains(room), "{}", bad.why);
    }
    Ok(())
}
