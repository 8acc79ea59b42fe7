//! Promise 5: memory stays within a bound and does not grow from epoch to epoch.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bothends_tests::{generated, programs, real_images};
use serde_json::Value;

const EPOCHS: usize = 20;

#[test]
fn twenty_epochs_stay_below_300_mb_and_do_not_grow() -> Result<()> {
    let data = match real_images("twenty_epochs_stay_below_300_mb_and_do_not_grow")? {
        Some(data) => data,
        None => generated()?,
    };
    programs::program("firmware-sim")?;
    let mut command = Command::new(programs::program("bothends")?);
    command.arg("run").arg("--data").arg(data);
    command.args(["--recipe", "imagenet-train", "--batch-size", "64", "--workers", "2"]);
    command.args(["--csd", "sim:ideal,rate=200", "--json", "-"]);
    command.args(["--epochs", &EPOCHS.to_string()]);
    let output = programs::run_reading(&mut command, Duration::from_secs(300))?;
    let result: Value = serde_json::from_str(&output)?;
    let peaks: Vec<u64> = result["epochs"]
        .as_array()
        .context("epochs")?
        .iter()
        .map(|epoch| epoch["peak_rss_bytes"].as_u64().unwrap())
        .collect();
    ensure!(peaks.len() == EPOCHS);
    let most = peaks.iter().max().unwrap();
    ensure!(*most < 300_000_000, "peak RSS {most} bytes: {peaks:?}");
    // Slots are touched when a backlog first needs them, up to the stated budget; once all
    // have been, nothing is new.
    let before = peaks[10..15].iter().max().unwrap();
    let after = peaks[15..].iter().max().unwrap();
    ensure!(after * 100 <= before * 103, "peak RSS grows: {peaks:?}");
    Ok(())
}
