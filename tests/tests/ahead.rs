//! Epochs that a loader makes ahead: sentence 5 of `runtime/src/handover/loader.rs`.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bothends_runtime::{Ended, Observer, Polled};
use bothends_tests::loading::{
    DEADLINE, N_BATCHES, Taken, ensure_permutation, ids, open, rest, rows, take,
};
use bothends_tests::{Setup, generated, programs};
use serde_json::{Value, json};

#[test]
fn the_next_epoch_is_there_when_it_begins() -> Result<()> {
    let mut loader = open(&json!({}))?;
    let deadline = Instant::now() + DEADLINE;
    let mut pause = Duration::from_millis(50);
    loop {
        rest(&*loader.begin(1)?, 0)?;
        // A consumer that is slower than the loader.
        thread::sleep(pause);
        let deal = loader.begin(1)?;
        if let Polled::Batch(batch) = deal.poll(0, Duration::ZERO)? {
            let first = Taken::new(&batch);
            drop(batch);
            let epoch = loader.epoch();
            let mut other = open(&json!({}))?;
            other.set_epoch(epoch);
            let whole = rest(&*other.begin(1)?, 0)?;
            ensure!([vec![first], rest(&deal, 0)?].concat() == whole);
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "no epoch was begun ahead");
        pause *= 2;
    }
}

#[test]
fn an_epoch_that_was_made_ahead_is_forgotten_where_another_is_asked_for() -> Result<()> {
    let fresh = |epoch: u32, otherwise: Value| -> Result<Vec<Taken>> {
        let mut loader = open(&otherwise)?;
        loader.set_epoch(epoch);
        rest(&*loader.begin(1)?, 0)
    };
    let mut loader = open(&json!({"memory": 64}))?;
    let pause = || thread::sleep(Duration::from_millis(200));
    let early = loader.begin(1)?;
    take(&early, 3)?;
    let state = loader.state()?;
    rest(&early, 0)?;
    pause();
    loader.set_epoch(5);
    ensure!(rest(&*loader.begin(1)?, 0)? == fresh(5, json!({}))?);
    pause();
    loader.set_rank(1, 2)?;
    let half = rest(&*loader.begin(1)?, 0)?;
    ensure!(half == fresh(6, json!({"rank": 1, "world_size": 2}))?);
    loader.set_rank(0, 1)?;
    rest(&*loader.begin(1)?, 0)?;
    pause();
    loader.load_state(&state)?;
    let later = rest(&*loader.begin(1)?, 0)?;
    ensure!(rows(&later) == rows(&fresh(0, json!({}))?[3..]));
    // Other consumers, and none at all.
    pause();
    let shared = loader.begin(2)?;
    let half = thread::scope(|scope| {
        let other = scope.spawn(|| rest(&shared, 1));
        let own = rest(&shared, 0)?;
        Ok::<_, anyhow::Error>([own, other.join().expect("no panic")?].concat())
    })?;
    ensure_permutation(ids(&half))?;
    pause();
    let began = Instant::now();
    drop(loader);
    ensure!(began.elapsed() < DEADLINE, "it was not waited for");
    Ok(())
}

/// A device that works for the next epoch when the last one is broken off, and the other way
/// round, makes the same stream as the host alone.
#[test]
fn devices_go_on_from_epoch_to_epoch() -> Result<()> {
    programs::program("firmware-sim")?;
    let mut alone = open(&json!({}))?;
    let mut both = open(&json!({"csds": ["sim:ideal,rate=400"]}))?;
    for epoch in 0..6 {
        let n = if epoch % 2 == 0 { N_BATCHES } else { 5 };
        let taken = take(&*both.begin(1)?, n)?;
        ensure!(taken == take(&*alone.begin(1)?, n)?, "epoch {epoch}");
    }
    Ok(())
}

/// Takes its time when an epoch is over.
struct Slow(Duration);

impl Observer for Slow {
    fn end(&mut self, _: Ended<'_>) {
        thread::sleep(self.0);
    }
}

/// From the last step of an epoch to the first batch of the next: `first_batch_s` begins when all
/// that lies between the two is over.
#[test]
fn the_gap_between_two_epochs_is_the_whole_gap() -> Result<()> {
    let pause = Duration::from_millis(200);
    let setup = Setup { epochs: 3, ..Setup::new(&generated()?) };
    let epochs = setup.watched(&mut Slow(pause))?.epochs;
    let gaps: Vec<_> = epochs.iter().map(|epoch| epoch.gap_s).collect();
    ensure!(gaps[0].is_none(), "{gaps:?}");
    for epoch in &epochs[1..] {
        let least = pause.as_secs_f64() + epoch.first_batch_s;
        ensure!(epoch.gap_s.is_some_and(|gap| gap >= least), "{gaps:?}, {least}");
    }
    Ok(())
}
