//! Promise 1 under every fault: whatever a device does, the epoch completes, exactly once,
//! with the digests of the host alone; the summary says what happened; nothing is left.
//!
//! Devices are processes with a fault in this test's host; `kill.rs` kills processes.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod leftovers;

use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result, ensure};
use bothends_runtime::{BackResult, EpochResult};
use bothends_tests::programs::program;
use bothends_tests::{N_GENERATED, Setup, assert_whole, generated};

use leftovers::{assert_nothing_left, devices_of};

/// So many batches that a device makes several under every strategy.
const BATCH_SIZE: u32 = 4;

/// How the summary shows that a fault has struck.
type Struck = fn(&EpochResult, &BackResult) -> bool;

/// A fault that strikes at some fraction of the device's batches, or some of them at random.
const CASES: [(&str, Struck); 24] = [
    ("die@0%", died),
    ("die@50%", died),
    ("die@99%", may_strike),
    ("stall@0%:3", never_made_one),
    ("stall@50%:3", rescued),
    ("stall@99%:3", may_strike),
    // Silent for longer than any epoch.
    ("stall@0%:600", never_made_one),
    ("stall@50%:600", rescued),
    ("stall@99%:600", may_strike),
    ("throttle@0%:30", slow),
    ("throttle@50%:30", slow),
    ("throttle@99%:30", may_strike),
    ("slow-start", nothing),
    ("corrupt@0%", nothing),
    ("corrupt@50%", corrupt),
    ("corrupt@99%", corrupt),
    ("duplicate@0%", nothing),
    ("duplicate@50%", repeated),
    ("duplicate@99%", repeated),
    ("late@0%", nothing),
    ("late@50%", unbroken),
    ("late@99%", unbroken),
    ("refuse", refused),
    ("die@50%,fault=corrupt@30%,fault=duplicate@30%,fault=late@30%", any),
];

fn failure(back: &BackResult) -> &str {
    back.failure.as_deref().unwrap_or_default()
}

/// The death is named.
fn died(_: &EpochResult, back: &BackResult) -> bool {
    back.failure.is_some()
}

fn never_made_one(epoch: &EpochResult, back: &BackResult) -> bool {
    epoch.rescued > 0 && back.batches == 0
}

fn rescued(epoch: &EpochResult, _: &BackResult) -> bool {
    epoch.rescued > 0
}

/// A device that is slow makes little, or its batches are late or rescued; or it makes as few in
/// a second as a throttled one, which a busy host leaves time to make more than two. Sound, it
/// makes 250.
fn slow(epoch: &EpochResult, back: &BackResult) -> bool {
    let is_slow = back.rate_batches_per_s < 25.0;
    epoch.rescued > 0 || back.late > 0 || back.batches <= 2 || is_slow
}

/// On a busy machine a device may not come to its last batches at all.
fn may_strike(_: &EpochResult, _: &BackResult) -> bool {
    true
}

/// Five times its own time may or may not be overdue on a busy machine; that a late batch is
/// counted and rescued is proved in virtual time (`simulate`).
fn unbroken(_: &EpochResult, back: &BackResult) -> bool {
    back.failure.is_none()
}

fn corrupt(_: &EpochResult, back: &BackResult) -> bool {
    back.lost > 0 && failure(back).contains("do not match their checksum")
}

fn repeated(_: &EpochResult, back: &BackResult) -> bool {
    back.wasted > 0
}

fn refused(_: &EpochResult, back: &BackResult) -> bool {
    back.batches == 0 && back.lost > 0 && failure(back).contains("the fault `refuse`")
}

fn any(epoch: &EpochResult, back: &BackResult) -> bool {
    epoch.rescued + back.late + back.lost + back.wasted > 0
}

/// The device works, and nothing is lost.
fn nothing(_: &EpochResult, back: &BackResult) -> bool {
    back.batches > 0 && back.lost == 0 && back.failure.is_none()
}

/// The host alone.
fn reference() -> Result<&'static EpochResult> {
    static REFERENCE: OnceLock<Result<EpochResult, String>> = OnceLock::new();
    let made = REFERENCE.get_or_init(|| {
        let run = || {
            program("firmware-sim")?;
            let data = generated()?;
            Setup { strategy: "cpu", batch_size: BATCH_SIZE, ..Setup::new(&data) }.run()
        };
        run().map_err(|e| format!("{e:#}"))
    });
    made.as_ref().map_err(|why| anyhow::anyhow!("{why}"))
}

/// One epoch with devices; fails unless it is the reference's.
fn same_epoch(strategy: &'static str, devices: Vec<String>) -> Result<EpochResult> {
    let reference = reference()?;
    let data = generated()?;
    let batch_size = BATCH_SIZE;
    let setup = Setup { strategy, devices, batch_size, ..Setup::new(&data) };
    let epoch = setup.run()?;
    assert_whole(&epoch, u64::from(N_GENERATED))?;
    ensure!(epoch.batches == reference.batches, "{} batches", epoch.batches);
    ensure!(epoch.content_digest == reference.content_digest, "another content");
    if strategy == "ordered" {
        ensure!(epoch.stream_digest == reference.stream_digest, "another stream");
    }
    let made = epoch.front.batches + epoch.back.iter().map(|b| b.batches).sum::<u32>();
    ensure!(made == epoch.batches, "{made} batches have a maker");
    Ok(epoch)
}

/// A fault late in an epoch strikes only if the device gets that far, which depends on how
/// busy this machine is: several attempts, each of which must be whole. Where it never does,
/// that is said, and no details are known than that every epoch was whole.
const MOST_ATTEMPTS: u32 = 8;

fn suffers(strategy: &'static str, via: &str, fault: &str, struck: Struck) -> Result<()> {
    let mut seen = String::new();
    let (mut most_made, mut n_batches) = (0, 0);
    for _ in 0..MOST_ATTEMPTS {
        let spec = format!("sim:ideal,rate=1000,via={via},fault={fault}");
        let epoch = same_epoch(strategy, vec![spec])?;
        let back = epoch.back.first().context("the device is in the summary")?;
        if struck(&epoch, back) {
            return Ok(());
        }
        seen = format!("rescued {}, {back:?}", epoch.rescued);
        most_made = most_made.max(back.batches);
        n_batches = epoch.batches;
    }
    if fault.contains("@50%") && 2 * most_made < n_batches {
        eprintln!(
            "skipped: {strategy} via {via}: the device never came to {fault}: {seen}"
        );
        return Ok(());
    }
    anyhow::bail!("it never struck: {seen}")
}

/// What is left is looked for among all children of this process: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Every case whose fault `chosen` takes. One such test at a time: what is left is looked
/// for among all children of this process.
fn suffers_all(
    strategy: &'static str,
    via: &str,
    chosen: impl Fn(&str) -> bool,
) -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let host = std::process::id();
    for (fault, struck) in CASES.iter().filter(|(fault, _)| chosen(fault)) {
        suffers(strategy, via, fault, *struck)
            .and_then(|()| {
                let folder = std::env::temp_dir();
                let prefix = format!("bothends-{host}-");
                assert_nothing_left(&devices_of(host)?, &folder, &prefix)
            })
            .with_context(|| format!("{strategy} via {via}: {fault}"))?;
    }
    Ok(())
}

#[test]
fn ordered_survives_every_fault_with_the_same_stream() -> Result<()> {
    suffers_all("ordered", "unix", |_| true)
}

#[test]
fn relaxed_survives_every_fault_with_the_same_content() -> Result<()> {
    suffers_all("relaxed", "unix", |_| true)
}

#[test]
fn wrr_survives_every_fault_with_the_same_content() -> Result<()> {
    suffers_all("wrr", "unix", |_| true)
}

#[test]
fn mte_survives_every_fault_with_the_same_content() -> Result<()> {
    suffers_all("mte", "unix", |_| true)
}

/// A device alone that is slow is waited for, so a throttled one is not a matter of seconds.
#[test]
fn csd_survives_every_fault_with_the_same_content() -> Result<()> {
    suffers_all("csd", "unix", |fault| fault != "throttle@0%:30")
}

/// One of each kind: what differs between transports is how a device's end is noticed, and
/// what a result that nobody wants leaves behind.
fn one_of_each(fault: &str) -> bool {
    fault.contains("@50%") || matches!(fault, "die@0%" | "stall@0%:600" | "refuse")
}

#[test]
fn ordered_survives_faults_over_tcp() -> Result<()> {
    suffers_all("ordered", "tcp", one_of_each)
}

#[test]
fn ordered_survives_faults_over_a_spool() -> Result<()> {
    suffers_all("ordered", "spool", one_of_each)
}

#[test]
fn csd_survives_faults_over_a_spool() -> Result<()> {
    suffers_all("csd", "spool", one_of_each)
}

/// The host revokes what it has made itself. A device that has not begun such a job answers
/// it all the same: by this the host knows that it is there again.
#[test]
fn a_device_that_was_silent_for_a_while_works_again() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    program("firmware-sim")?;
    let data = generated()?;
    // At half of what it makes of the data once; the epoch is many times as long.
    let devices = vec!["sim:ideal,rate=1000,fault=stall@50%:1".to_owned()];
    let (batch_size, repeat) = (BATCH_SIZE, 40);
    let setup = Setup { devices, batch_size, repeat, ..Setup::new(&data) };
    let epoch = setup.run()?;
    assert_whole(&epoch, u64::from(repeat * N_GENERATED))?;
    ensure!(epoch.rescued > 0, "it never was silent");
    ensure!(epoch.back[0].batches > 12, "{:?} in {} s", epoch.back, epoch.seconds);
    Ok(())
}

/// A device that is asked and never answers, and a run of several epochs. `ordered` and `relaxed` wait
/// for nothing: the host makes the batch when it has nothing else. `wrr`, `mte` and `csd` find it overdue
/// after two seconds, again in every epoch: each begins with one batch for a device of which nothing
/// is known. What the device does in between is to be silent; one whose thread is in the middle of
/// an answer is in `runtime/tests/shutdown.rs`.
#[test]
fn a_device_that_hangs_costs_every_epoch_one_try() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    program("firmware-sim")?;
    let data = generated()?;
    let several = Setup { epochs: 2, batch_size: BATCH_SIZE, ..Setup::new(&data) };
    let alone = several.drive()?;
    for strategy in ["ordered", "relaxed", "wrr", "mte", "csd"] {
        let devices = vec!["sim:ideal,rate=1000,fault=stall@0%:600".to_owned()];
        let run = Setup { strategy, devices, ..several.clone() }.drive()?;
        ensure!(run.epochs.len() == 2, "{strategy}: {} epochs", run.epochs.len());
        for (epoch, alone) in run.epochs.iter().zip(&alone.epochs) {
            assert_whole(epoch, u64::from(N_GENERATED))?;
            ensure!(
                epoch.content_digest == alone.content_digest,
                "{strategy}: {epoch:?}"
            );
            ensure!(epoch.front.batches == alone.batches, "{strategy}: {epoch:?}");
            ensure!(epoch.rescued <= 1, "{strategy}: {epoch:?}");
        }
    }
    Ok(())
}
