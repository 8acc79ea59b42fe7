//! What is missing while a device takes its time, and who is told so. A device that works on a long step, as
//! PyTorch's and JAX's do when the host has run ahead, keeps the memory of batches that the consumer has given
//! back: that is waited for, and is nobody's fault. `gpu.rs` has what is delivered.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bothends_gpu::driver::fake::Fake;
use bothends_gpu::twin::Twin;
use bothends_runtime::{
    ConsumerStream, GpuBatch, GpuDeal, GpuError, GpuPolled, GpuTarget, Polled,
    RuntimeError,
};
use bothends_tests::loading::{DEADLINE, N_BATCHES, open};
use serde_json::json;

/// Longer than a consumer that keeps every batch is let alone.
const LONG_STEP: Duration = Duration::from_millis(2_500);

/// A device on which nothing runs until the test says.
fn still() -> (Arc<Fake>, GpuTarget) {
    let fake = Arc::new(Fake::default());
    (fake.clone(), GpuTarget::over(fake).unwrap())
}

/// Takes every batch, and `gives` it back at once. The device runs nothing until no batch has come for as long as
/// a long step, and then everything; how often that was.
fn with_long_steps(fake: &Fake, deal: &GpuDeal, gives: impl Fn(GpuBatch)) -> Result<u32> {
    let (mut n_taken, mut n_steps) = (0, 0);
    let mut since = Instant::now();
    loop {
        match deal.poll(0, Duration::from_millis(20)) {
            Ok(GpuPolled::Batch(mut batch)) => {
                batch.lend(ConsumerStream::DEFAULT)?;
                gives(batch);
                n_taken += 1;
                since = Instant::now();
            }
            Ok(GpuPolled::End) => break,
            Ok(GpuPolled::Pending) if since.elapsed() > LONG_STEP => {
                // One step is enough: the rest runs as it comes.
                n_steps += 1;
                since = Instant::now();
                fake.run_all();
            }
            Ok(GpuPolled::Pending) if n_steps > 0 => fake.run_all(),
            Ok(GpuPolled::Pending) => {}
            Err(error) => bail!("after {n_taken} batches: {error}"),
        }
    }
    ensure!(n_taken == N_BATCHES, "{n_taken} batches");
    fake.run_all();
    ensure!(fake.wrongs().is_empty(), "{:?}", fake.wrongs());
    ensure!(fake.counts().waits == 0, "the host waited for the device");
    Ok(n_steps)
}

/// All slots of the host are being copied from, on a stream that waits for the step.
#[test]
fn copies_that_wait_for_a_long_step_are_waited_for() -> Result<()> {
    let (fake, target) = still();
    let mut loader = open(&json!({"memory": 3}))?;
    let deal = loader.begin_on(&target, 1)?;
    ensure!(with_long_steps(&fake, &deal, drop)? > 0, "nothing was missing");
    Ok(())
}

/// So are both that batches are copied through where their slots could not be pinned.
#[test]
fn slots_to_copy_through_are_waited_for() -> Result<()> {
    let (fake, target) = still();
    let mut loader = open(&json!({}))?;
    fake.fail_next("register");
    let deal = loader.begin_on(&target, 1)?;
    ensure!(with_long_steps(&fake, &deal, drop)? > 0, "nothing was missing");
    Ok(())
}

/// As of a script with JAX: no stream says when the device is done with a batch.
#[test]
fn batches_that_are_kept_until_the_device_is_idle_are_waited_for() -> Result<()> {
    let (fake, target) = still();
    let mut loader = open(&json!({"held_batches": 1}))?;
    let deal = loader.begin_on(&target, 1)?;
    let n_steps = with_long_steps(&fake, &deal, GpuBatch::release_when_idle)?;
    ensure!(n_steps > 0, "nothing was missing");
    Ok(())
}

/// And nobody else needs to ask the device about them.
#[test]
fn batches_that_are_finished_there_come_back_when_it_is_idle() -> Result<()> {
    let twin = match Twin::compiled() {
        Err(GpuError::Unavailable { why }) => {
            println!("skipped: {why}");
            return Ok(());
        }
        twin => GpuTarget::over(Arc::new(twin.unwrap())).unwrap(),
    };
    let mut loader = open(&json!({"held_batches": 1, "output": "f32"}))?;
    let deal = loader.begin_on(&twin, 1)?;
    let mut n_taken = 0;
    for batch in deal.batches(0) {
        batch?.release_when_idle();
        n_taken += 1;
    }
    ensure!(n_taken == N_BATCHES, "{n_taken} batches");
    Ok(())
}

/// Pinned batches that are kept until a copy has passed, of which all slots are.
#[test]
fn pinned_batches_that_the_device_keeps_are_waited_for() -> Result<()> {
    let (fake, target) = still();
    let few = json!({"memory": 3, "limit": 100, "held_batches": 2});
    let mut loader = open(&few)?;
    loader.pin_memory(&target)?;
    let deal = loader.begin(1)?;
    let (began, mut since, mut n_steps) = (Instant::now(), Instant::now(), 0);
    loop {
        ensure!(began.elapsed() < DEADLINE, "it hangs");
        match deal.poll(0, Duration::from_millis(20))? {
            Polled::Batch(batch) => {
                target.keep_until(ConsumerStream::DEFAULT, batch)?;
                since = Instant::now();
            }
            Polled::End => break,
            Polled::Pending if n_steps > 0 || since.elapsed() > LONG_STEP => {
                n_steps += 1;
                fake.run_all();
            }
            Polled::Pending => {}
        }
    }
    ensure!(n_steps > 0, "nothing was missing");
    Ok(())
}

/// What another loader's consumer has given back, and the same device keeps, is not what this one lacks.
#[test]
fn a_consumer_is_told_what_it_keeps_whatever_others_have_given_back() -> Result<()> {
    let (_fake, target) = still();
    let few = json!({"memory": 3, "limit": 100, "held_batches": 2});
    let (mut own, mut others) = (open(&few)?, open(&few)?);
    own.pin_memory(&target)?;
    others.pin_memory(&target)?;
    let (deal, other) = (own.begin(1)?, others.begin(1)?);
    let Polled::Batch(given) = other.poll(0, DEADLINE)? else { bail!("no batch") };
    target.keep_until_idle(given);
    let (mut kept, began) = (Vec::new(), Instant::now());
    let error = loop {
        ensure!(began.elapsed() < DEADLINE / 4, "the consumer is not told");
        match deal.poll(0, Duration::from_millis(20)) {
            Ok(Polled::Batch(batch)) => kept.push(batch),
            Ok(Polled::Pending) => {}
            Ok(Polled::End) => bail!("nothing was missing"),
            Err(error) => break error,
        }
    };
    ensure!(matches!(error, RuntimeError::Starved { .. }), "{error}");
    ensure!(target.sweep() > 0, "the device has given it back");
    Ok(())
}

/// One that no driver can bring back is as good as kept.
#[test]
fn a_consumer_is_told_where_what_it_gave_back_is_lost() -> Result<()> {
    let fake = Arc::new(Fake::default().without_record_all());
    let target = GpuTarget::over(fake.clone())?;
    let mut loader = open(&json!({"memory": 3, "limit": 100, "held_batches": 2}))?;
    loader.pin_memory(&target)?;
    let deal = loader.begin(1)?;
    let (mut kept, began) = (Vec::new(), Instant::now());
    let error = loop {
        ensure!(began.elapsed() < DEADLINE / 4, "the consumer is not told");
        match deal.poll(0, Duration::from_millis(20)) {
            Ok(Polled::Batch(batch)) if kept.is_empty() => {
                fake.fail_next("record");
                let lost = target.keep_until(ConsumerStream::DEFAULT, batch);
                kept.push(lost.err().map(|_| None).context("it is kept")?);
            }
            Ok(Polled::Batch(batch)) => kept.push(Some(batch)),
            Ok(Polled::Pending) => {}
            Ok(Polled::End) => bail!("nothing was missing"),
            Err(error) => break error,
        }
    };
    ensure!(matches!(error, RuntimeError::Starved { .. }), "{error}");
    Ok(())
}

/// The wait for a slot on the device is booked, and only while the consumer is in a call: it is the consumer's own,
/// which has kept them all until it was told.
#[test]
fn a_wait_for_a_slot_on_the_device_is_booked() -> Result<()> {
    let (fake, target) = still();
    let mut loader = open(&json!({}))?;
    let deal = loader.begin_on(&target, 1)?;
    let (mut kept, mut is_told, mut in_calls) = (Vec::new(), false, Duration::ZERO);
    loop {
        let began = Instant::now();
        let polled = deal.poll(0, DEADLINE);
        in_calls += began.elapsed();
        fake.run_all();
        match polled {
            Ok(GpuPolled::Batch(batch)) if !is_told => kept.push(batch),
            Ok(GpuPolled::Batch(_)) => {}
            Ok(GpuPolled::End) => break,
            Ok(GpuPolled::Pending) => bail!("no batch in {DEADLINE:?}"),
            Err(RuntimeError::Starved { .. }) if !is_told => is_told = true,
            Err(error) => bail!("{error}"),
        }
        if is_told {
            kept.clear();
        }
    }
    ensure!(is_told, "nothing was missing");
    let stall = loader.stats().stall;
    // It is told after two seconds.
    ensure!(stall.consumer > 1.8, "{stall:?}");
    ensure!(stall.total() <= in_calls.as_secs_f64() + 1e-6, "{stall:?}: {in_calls:?}");
    Ok(())
}

/// A device that keeps them for longer than any step is late, wherever they are.
#[test]
fn a_device_that_never_gives_them_back_is_late() -> Result<()> {
    for how in ["copies", "idle"] {
        let fake = Arc::new(Fake::default());
        let patience = Duration::from_millis(200);
        let target = GpuTarget::over_within(fake.clone(), patience)?;
        let mut loader = open(&json!({"memory": 3, "held_batches": 1}))?;
        let deal = loader.begin_on(&target, 1)?;
        let began = Instant::now();
        let error = loop {
            match deal.poll(0, Duration::from_millis(20)) {
                Ok(GpuPolled::Batch(batch)) if how == "idle" => batch.release_when_idle(),
                Ok(GpuPolled::Batch(_)) => {}
                Ok(GpuPolled::Pending) => {
                    ensure!(began.elapsed() < DEADLINE, "it hangs");
                }
                Ok(GpuPolled::End) => bail!("{how}: nothing was missing"),
                Err(error) => break error,
            }
        };
        let is_late =
            matches!(&error, RuntimeError::Gpu { why: GpuError::Late { .. }, .. });
        ensure!(is_late, "{how}: {error}");
        let again = deal.poll(0, Duration::ZERO).err().context("it has ended")?;
        ensure!(matches!(again, RuntimeError::EndedByError { .. }), "{how}: {again}");
    }
    Ok(())
}
