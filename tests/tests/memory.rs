//! Promise 5: memory stays within a bound and does not grow from epoch to epoch.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bothends_tests::{generated, programs, real_images};
use serde_json::Value;

/// Runs epochs of the images and gives back each one's peak resident memory in bytes.
fn peaks(name: &str, epochs: usize, flags: &[&str]) -> Result<Vec<u64>> {
    let data = match real_images(name)? {
        Some(data) => data,
        None => generated()?,
    };
    programs::program("firmware-sim")?;
    let mut command = Command::new(programs::program("bothends")?);
    command.arg("run").arg("--data").arg(data);
    command.args(["--recipe", "imagenet-train", "--workers", "2", "--json", "-"]);
    command.args(["--epochs", &epochs.to_string()]).args(flags);
    let output = programs::run_reading(&mut command, Duration::from_secs(300))?;
    let result: Value = serde_json::from_str(&output)?;
    let peaks: Vec<u64> = result["epochs"]
        .as_array()
        .context("epochs")?
        .iter()
        .map(|epoch| epoch["peak_rss_bytes"].as_u64().unwrap())
        .collect();
    ensure!(peaks.len() == epochs);
    Ok(peaks)
}

#[test]
fn twenty_epochs_stay_below_300_mb_and_do_not_grow() -> Result<()> {
    let flags = ["--batch-size", "64", "--csd", "sim:ideal,rate=200"];
    let peaks = peaks("twenty_epochs_stay_below_300_mb_and_do_not_grow", 20, &flags)?;
    let most = peaks.iter().max().unwrap();
    ensure!(*most < 300_000_000, "peak RSS {most} bytes: {peaks:?}");
    // Slots are touched when a backlog first needs them, up to the stated budget; once all
    // have been, nothing is new but what the allocator leaves between pieces.
    let before = peaks[10..15].iter().max().unwrap();
    let after = peaks[15..].iter().max().unwrap();
    ensure!(after * 100 <= before * 105, "peak RSS grows: {peaks:?}");
    Ok(())
}

/// Whatever an epoch leaves behind shows in many short ones: 64 KiB each are 8 MB here.
#[test]
fn an_epoch_leaves_nothing_behind() -> Result<()> {
    // Small batches: a slot that is first touched in a late epoch is no leak, and 1.2 MB.
    let flags = ["--batch-size", "8", "--limit", "128", "--strategy", "cpu"];
    let peaks = peaks("an_epoch_leaves_nothing_behind", 200, &flags)?;
    let before = peaks[40..80].iter().max().unwrap();
    let after = peaks[160..].iter().max().unwrap();
    ensure!(after.saturating_sub(*before) < 6_000_000, "peak RSS grows: {peaks:?}");
    Ok(())
}
