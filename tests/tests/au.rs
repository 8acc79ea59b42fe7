//! `bothends bench au` on generated images: what it reports, not how fast anything is; and what it and `demo`
//! advise.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use bothends_tests::{generated, programs};
use serde_json::Value;

/// Measures two accelerators: one that a single worker feeds, one that nothing feeds.
fn measured(more: &[&str]) -> Result<Value> {
    let data = generated()?;
    let mut command = Command::new(programs::program("bothends")?);
    command.env("BOTHENDS_FIRMWARE_SIM", programs::program("firmware-sim")?);
    command.args(["bench", "au", "--batch-size", "8", "--workers", "1"]);
    command.args(["--seconds", "0.2", "--accelerator", "80,1000000"]);
    command.args(["--side-index", "off", "--json", "-", "--data"]).arg(data).args(more);
    let output = programs::run(&mut command, Duration::from_secs(120))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

#[test]
fn a_slow_accelerator_waits_less_than_one_that_is_too_fast() -> Result<()> {
    let result = measured(&[])?;
    let utilisation = |nth: usize| {
        let fed = &result["accelerators"][nth];
        fed["utilisation"].as_f64().filter(|u| (0.0..=1.0).contains(u)).unwrap()
    };
    ensure!(utilisation(0) > utilisation(1), "{result:#}");
    for fed in result["accelerators"].as_array().unwrap() {
        ensure!(fed["n_steps"].as_u64().unwrap() >= 12, "{fed}");
        ensure!(fed["cpu_ms_per_image"].as_f64().unwrap() >= 0.0, "{fed}");
        ensure!(fed["peak_pss_bytes"].as_u64().unwrap() > 0, "{fed}");
        ensure!(fed["device_cpu_ms_per_image"].is_null(), "{fed}");
    }
    ensure!(result["unpaced"]["utilisation"].is_null(), "{result:#}");
    ensure!(result["devices"].as_array().unwrap().is_empty());
    ensure!(result["note"].as_str().unwrap().contains("no MLPerf result"));
    let probes = result["sustained"]["probes"].as_array().unwrap();
    ensure!(!probes.is_empty());
    // Which rate it is depends on the machine; that it passed does not.
    if let Some(rate) = result["sustained"]["rate_images_per_s"].as_f64() {
        let passed = probes.iter().filter(|probe| {
            probe["rate_images_per_s"] == rate
                && probe["utilisation"].as_f64().unwrap() >= 0.9
        });
        ensure!(passed.count() == 2, "{result:#}");
    }
    Ok(())
}

#[test]
fn a_device_that_is_emulated_is_called_so() -> Result<()> {
    let result = measured(&["--csd", "sim:ideal,time=functional"])?;
    let devices = result["devices"].as_array().unwrap();
    ensure!(devices.len() == 1 && devices[0]["emulated"] == true, "{result:#}");
    ensure!(devices[0]["device"] == "sim:ideal,time=functional", "{result:#}");
    Ok(())
}

/// A command advises what can be given to it: only `run` has `--repeat` and `--on-bad`.
#[test]
fn advice_is_of_flags_that_the_command_has() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let class = folder.path().join("a");
    std::fs::create_dir(&class)?;
    std::fs::write(class.join("notes.jpg"), b"not a photograph")?;
    let at = folder.path().to_str().unwrap();
    let out = tempfile::tempdir()?;
    let says = |args: &[&str], status: i32, end: &str| -> Result<()> {
        let mut command = Command::new(programs::program("bothends")?);
        let output = programs::run(command.args(args), Duration::from_secs(60))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(status), "{args:?}: {said}");
        ensure!(said.trim_end().ends_with(end), "{args:?}: {said}");
        Ok(())
    };
    let au = ["bench", "au", "--data", at, "--workers", "1", "--batch-size"];
    says(
        &[&au[..], &["9"]].concat(),
        2,
        "error: --batch-size 9 is larger than the 1 samples of the epoch; use a smaller --batch-size",
    )?;
    says(
        &[&au[..], &["1"]].concat(),
        1,
        "(16 bytes); remove or replace it; remove it from the data set",
    )?;
    says(
        &["demo", "--quick", "--data", at, "--out", out.path().to_str().unwrap()],
        2,
        "error: a batch of 16 is larger than the 2 samples of the epoch; use a data set with more samples",
    )
}
