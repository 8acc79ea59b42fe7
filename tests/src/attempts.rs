//! Runs that are repeated until they show what a test is about: on a busy machine a host may have made a
//! short epoch before a device has had its turn.
//!
//! What must hold in every run is for the run itself to check. What is repeated proves that something can
//! happen, never that it always does.

use std::fmt::Debug;

use anyhow::{Result, ensure};
use bothends_runtime::EpochResult;

/// The most runs that are made.
const MOST: u32 = 8;

/// The first of several runs of which `shows` holds; where there is none, `what` is what they should have
/// shown, and the last one is printed.
pub fn until<T: Debug>(
    what: &str,
    shows: impl Fn(&T) -> bool,
    mut run: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut n_runs = 0;
    loop {
        let last = run()?;
        if shows(&last) {
            return Ok(last);
        }
        n_runs += 1;
        ensure!(n_runs < MOST, "{what} in none of {MOST} runs; the last one: {last:?}");
    }
}

/// The first of several epochs in which a device made a batch that was delivered.
pub fn until_a_device_takes_part(
    run: impl FnMut() -> Result<EpochResult>,
) -> Result<EpochResult> {
    let takes_part = |epoch: &EpochResult| epoch.back.iter().any(|back| back.batches > 0);
    until("a device made a batch", takes_part, run)
}
