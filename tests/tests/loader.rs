//! The loader, sentence by sentence (`runtime/src/handover/loader.rs`), and the deal among consumers:
//! whatever a training script does, it gets the samples that one consumer of one process
//! would have got. The fourth sentence, about forks, is held by `crates/capi/tests`: a C
//! program may fork, this one must not.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bothends_runtime::{
    Batch, Consumer, Loader, Polled, RuntimeError, Step, conformance,
};
use bothends_tests::loading::{
    DEADLINE, N, N_BATCHES, Taken, broken_images, ensure_permutation, ids, is_superseded,
    next, open, open_at, rest, rows, take, whole,
};
use bothends_tests::programs;
use serde_json::{Value, json};

/// A consumer of the caller's: keeps what it was given and stops the epoch at a number.
#[derive(Debug)]
struct Kept {
    taken: Vec<Taken>,
    most: usize,
}

impl Consumer for Kept {
    fn take(&mut self, batch: Batch) -> Result<Step, RuntimeError> {
        if self.taken.len() == self.most {
            return Err(RuntimeError::Options("enough".to_owned()));
        }
        self.taken.push(Taken::new(&batch));
        Ok(Step { stall_ns: 1, busy_ns: 2 })
    }
}

#[test]
fn a_consumer_is_fed_the_epoch_that_a_loop_would_pull() -> Result<()> {
    let mut loader = open(&json!({}))?;
    let mut kept = Kept { taken: Vec::new(), most: usize::MAX };
    let usage = loader.feed(&mut kept)?;
    ensure!(kept.taken == whole(&json!({}))?, "another epoch");
    let sums = (usage.n_steps, usage.stall_ns, usage.busy_ns);
    ensure!(sums == (12, 12, 24), "{usage:?}");

    // What a consumer says ends the epoch, and the next one is whole again.
    let mut few = Kept { taken: Vec::new(), most: 3 };
    let error = loader.feed(&mut few).err().context("it had enough")?;
    ensure!(error.to_string() == "enough" && few.taken.len() == 3, "{error}");
    let mut kept = Kept { taken: Vec::new(), most: usize::MAX };
    loader.feed(&mut kept)?;
    ensure_permutation(ids(&kept.taken))
}

/// A consumer as a user writes it: takes a copy of the bytes, and as long as that takes.
#[derive(Debug, Default)]
struct Copies {
    bytes: Vec<u8>,
    idle_since: Option<Instant>,
}

impl Consumer for Copies {
    fn take(&mut self, batch: Batch) -> Result<Step, RuntimeError> {
        let ready = batch.ready;
        let idle_since = self.idle_since.unwrap_or(ready);
        let begun = Instant::now();
        if batch.n_valid() > 0 {
            self.bytes.extend_from_slice(batch.bytes());
        }
        drop(batch);
        let ended = if self.bytes.is_empty() { begun } else { Instant::now() };
        self.idle_since = Some(ended);
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap();
        let stall_ns = ns(ready.saturating_duration_since(idle_since));
        Ok(Step { stall_ns, busy_ns: ns(ended - begun) })
    }
}

#[test]
fn a_consumer_of_the_callers_keeps_the_contract() {
    conformance::all(&|| Box::new(Copies::default()));
}

// ---- 1. begin ----------------------------------------------------------------------------

#[test]
fn begin_takes_the_epoch_after_the_last_that_delivered_a_batch() -> Result<()> {
    let mut loader = open(&json!({}))?;
    let untouched = loader.begin(1)?;
    let deal = loader.begin(1)?;
    ensure!(loader.epoch() == 0, "nothing of epoch 0 had been delivered");
    ensure!(is_superseded(&untouched), "it was cancelled by the next one");
    let first = take(&deal, 3)?;
    let second = loader.begin(1)?;
    ensure!(loader.epoch() == 1 && is_superseded(&deal));
    let second = rest(&second, 0)?;
    ensure_permutation(ids(&second))?;
    ensure!(ids(&second)[..6] != ids(&first)[..], "two epochs have one order");
    ensure!(loader.epoch() == 2, "epoch 1 is over");
    Ok(())
}

#[test]
fn set_epoch_names_the_next_one() -> Result<()> {
    let mut loader = open(&json!({}))?;
    loader.set_epoch(7);
    ensure!(loader.epoch() == 7 && loader.stats().epoch == 7);
    let seventh = rest(&*loader.begin(1)?, 0)?;
    ensure!(loader.epoch() == 8);
    // A training script says it before every epoch, also where it is the next one anyway.
    loader.set_epoch(7);
    let again = loader.begin(1)?;
    loader.set_epoch(8);
    ensure!(loader.epoch() == 7, "it runs until the next one begins");
    ensure!(rest(&again, 0)? == seventh, "an epoch is a function of its number");
    Ok(())
}

// ---- 2. state ----------------------------------------------------------------------------

#[test]
fn a_state_is_exact_at_every_batch_and_from_two_workers_to_three() -> Result<()> {
    let whole = whole(&json!({}))?;
    ensure!(whole.len() == N_BATCHES as usize);
    let mut loader = open(&json!({}))?;
    let deal = loader.begin(1)?;
    for n_taken in 0..N_BATCHES {
        // Batches lie ready by now; they are not in the state.
        let state = loader.state()?;
        ensure!(state.len() <= 1000, "{} bytes: {state}", state.len());
        let mut other = open(&json!({"workers": 3}))?;
        other.load_state(&state)?;
        let after = rest(&*other.begin(1)?, 0)?;
        ensure!(rows(&after) == rows(&whole[n_taken as usize..]), "after {n_taken}");
        take(&deal, 1)?;
    }
    let position = |state: &str| -> Result<_> {
        let state: Value = serde_json::from_str(state)?;
        Ok((state["epoch"].clone(), state["position"].clone()))
    };
    // All has been taken, whether or not the script has asked for the end.
    ensure!(position(&loader.state()?)? == (json!(0), json!(N)));
    ensure!(next(&deal, 0)?.is_none());
    ensure!(position(&loader.state()?)? == (json!(1), json!(0)));
    Ok(())
}

#[test]
fn a_state_at_the_last_batch_goes_on_with_the_next_epoch() -> Result<()> {
    let mut loader = open(&json!({}))?;
    let deal = loader.begin(1)?;
    take(&deal, N_BATCHES)?;
    let before_the_end = loader.state()?;
    ensure!(next(&deal, 0)?.is_none());
    let after_the_end = loader.state()?;
    let second = rest(&*loader.begin(1)?, 0)?;
    for state in [before_the_end, after_the_end] {
        let mut other = open(&json!({}))?;
        other.load_state(&state)?;
        let mut taken = rest(&*other.begin(1)?, 0)?;
        if taken.is_empty() {
            // What was left of the first epoch: nothing.
            taken = rest(&*other.begin(1)?, 0)?;
        }
        ensure!(taken == second, "{state}");
    }
    Ok(())
}

#[test]
fn a_state_goes_from_one_rank_to_two_to_four() -> Result<()> {
    let rank = |rank: u32, world: u32, state: &str| -> Result<Loader> {
        let mut loader = open(&json!({"rank": rank, "world_size": world}))?;
        if !state.is_empty() {
            loader.load_state(state)?;
        }
        Ok(loader)
    };
    let mut loader = rank(0, 1, "")?;
    let mut all = ids(&take(&*loader.begin(1)?, 3)?);
    let mut state = loader.state()?;
    for (world, n_batches) in [(2, 2), (4, u32::MAX)] {
        let mut states = BTreeSet::new();
        let mut counts = BTreeSet::new();
        for number in 0..world {
            let mut loader = rank(number, world, &state)?;
            let deal = loader.begin(1)?;
            let taken = match n_batches {
                u32::MAX => rest(&deal, 0)?,
                n => take(&deal, n)?,
            };
            counts.insert(taken.len());
            all.extend(ids(&taken));
            states.insert(loader.state()?);
        }
        ensure!(counts.len() == 1, "ranks get different numbers of batches: {counts:?}");
        ensure!(states.len() == 1, "ranks that are even have one state: {states:?}");
        state = states.pop_first().context("a state")?;
    }
    ensure_permutation(all)
}

#[test]
fn a_state_goes_to_devices_and_back() -> Result<()> {
    programs::program("firmware-sim")?;
    let whole = whole(&json!({}))?;
    let mut state = String::new();
    let mut taken = Vec::new();
    for csds in [json!([]), json!(["sim:ideal,rate=400"]), json!([])] {
        let mut loader = open(&json!({"csds": csds}))?;
        if !state.is_empty() {
            loader.load_state(&state)?;
        }
        let deal = loader.begin(1)?;
        taken.extend(take(&deal, 4)?);
        state = loader.state()?;
    }
    ensure!(rows(&taken) == rows(&whole));
    Ok(())
}

// ---- 3. load_state and set_epoch -------------------------------------------------------

#[test]
fn set_epoch_of_the_loaded_epoch_keeps_the_place_and_another_gives_it_up() -> Result<()> {
    let mut loader = open(&json!({}))?;
    loader.set_epoch(3);
    take(&*loader.begin(1)?, 5)?;
    let state = loader.state()?;
    let left_after = |epoch: u32| -> Result<usize> {
        let mut loader = open(&json!({}))?;
        loader.load_state(&state)?;
        loader.set_epoch(epoch);
        let left = rest(&*loader.begin(1)?, 0)?.len();
        ensure!(loader.epoch() == epoch + 1);
        Ok(left)
    };
    ensure!(left_after(3)? == 7 && left_after(4)? == 12 && left_after(2)? == 12);
    // Loading what is running starts it again from there.
    loader.load_state(&state)?;
    ensure!(loader.epoch() == 3 && loader.state()? == state);
    ensure!(rest(&*loader.begin(1)?, 0)?.len() == 7);
    Ok(())
}

#[test]
fn a_state_of_another_run_is_refused_by_name() -> Result<()> {
    let state = open(&json!({}))?.state()?;
    let refused = |otherwise: &Value, json: &str| -> Result<String> {
        let error = open(otherwise)?.load_state(json).err().context("no error")?;
        Ok(error.to_string())
    };
    let seed = refused(&json!({"seed": 6}), &state)?;
    ensure!(seed.contains("seed 5") && seed.contains("seed") && seed.contains('6'));
    ensure!(!seed.contains("--"), "{seed}");
    ensure!(refused(&json!({}), "{}")?.contains("resume state"));
    Ok(())
}

// ---- the deal -----------------------------------------------------------------------------

/// One epoch, each consumer on a thread of its own; what each of them got.
fn dealt(loader: &mut Loader, consumers: u32) -> Result<Vec<Vec<Taken>>> {
    let deal = loader.begin(consumers)?;
    let consume = |consumer| {
        let deal = Arc::clone(&deal);
        thread::spawn(move || rest(&deal, consumer))
    };
    let threads: Vec<_> = (0..consumers).map(consume).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn consumers_together_get_what_one_would() -> Result<()> {
    for last in ["pad", "drop", "wrap"] {
        let whole = whole(&json!({"last": last}))?;
        for consumers in [2, 3, 5] {
            let mut loader = open(&json!({"last": last}))?;
            let hands = dealt(&mut loader, consumers)?;
            let expected = loader.n_batches(consumers)? as usize;
            let counts: Vec<_> = hands.iter().map(Vec::len).collect();
            ensure!(counts.iter().all(|n| *n == expected), "{last}: {counts:?}");
            let mut all: Vec<_> = hands.into_iter().flatten().collect();
            all.sort_unstable_by_key(|batch| batch.index);
            let n_shared = all.len().min(whole.len());
            ensure!(all[..n_shared] == whole[..n_shared], "{last}, {consumers}");
            if last == "pad" {
                ensure_permutation(ids(&all))?;
            }
        }
    }
    Ok(())
}

#[test]
fn consumers_may_be_others_after_a_resume() -> Result<()> {
    let mut loader = open(&json!({}))?;
    let deal = loader.begin(2)?;
    let mut all = Vec::new();
    for consumer in [0, 1, 0] {
        all.push(Taken::new(&next(&deal, consumer)?.context("a batch")?));
    }
    let line = loader.state().err().context("an uneven state")?.to_string();
    ensure!(line.contains("save the state when each has taken as many"), "{line}");
    all.push(Taken::new(&next(&deal, 1)?.context("a batch")?));
    let state = loader.state()?;
    let mut other = open(&json!({}))?;
    other.load_state(&state)?;
    all.extend(dealt(&mut other, 3)?.into_iter().flatten());
    ensure_permutation(ids(&all))
}

#[test]
fn without_order_consumers_still_get_as_many_as_each_other() -> Result<()> {
    let relaxed = json!({"strategy": "relaxed"});
    let mut loader = open(&relaxed)?;
    let deal = loader.begin(2)?;
    let mut all = Vec::new();
    for consumer in [0, 1, 0, 1] {
        all.push(Taken::new(&next(&deal, consumer)?.context("a batch")?));
    }
    let state = loader.state()?;
    drop(next(&deal, 0)?.context("a batch")?);
    let line = loader.state().err().context("an uneven state")?.to_string();
    ensure!(line.contains("save the state when each has taken as many"), "{line}");

    let mut other = open(&relaxed)?;
    other.load_state(&state)?;
    let line = other.begin(3).err().context("8 batches for 3")?.to_string();
    ensure!(line.contains("8 batches are left, which 3 consumers cannot"), "{line}");
    let hands = dealt(&mut other, 2)?;
    ensure!(hands.iter().all(|hand| hand.len() == 4), "{hands:?}");
    all.extend(hands.into_iter().flatten());
    ensure_permutation(ids(&all))
}

#[test]
fn a_consumer_that_stays_away_holds_up_the_others_without_an_error() -> Result<()> {
    let mut loader = open(&json!({}))?;
    let deal = loader.begin(2)?;
    // One batch is put down for a consumer that does not come, no more.
    for (consumer, batches) in
        [(0, &[0, 2][..]), (1, &[1, 3, 5]), (0, &[4, 6, 8]), (1, &[7, 9, 11])]
    {
        for batch in batches {
            let index = next(&deal, consumer)?.context("a batch")?.index.0;
            ensure!(index == *batch, "{index} and not {batch}");
        }
        let waits = deal.poll(consumer, Duration::from_millis(50))?;
        ensure!(matches!(waits, Polled::Pending), "{consumer} after {batches:?}");
    }
    ensure!(next(&deal, 0)?.context("the last batch")?.index.0 == 10);
    ensure!(next(&deal, 0)?.is_none() && next(&deal, 1)?.is_none());
    Ok(())
}

#[test]
fn who_has_no_patience_gets_what_is_there() -> Result<()> {
    let mut loader = open(&json!({}))?;
    let deal = loader.begin(2)?;
    let began = Instant::now();
    for consumer in [0, 1, 0, 1] {
        while !matches!(deal.poll(consumer, Duration::ZERO)?, Polled::Batch(_)) {
            ensure!(began.elapsed() < DEADLINE, "it gets nothing");
            thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

// ---- errors --------------------------------------------------------------------------------

/// Runs an epoch that meets a bad sample with three consumers; the line that one is told.
fn told(loader: &mut Loader) -> Result<String> {
    let deal = loader.begin(3)?;
    let consume = |consumer| {
        let deal = Arc::clone(&deal);
        thread::spawn(move || deal.batches(consumer).find_map(Result::err))
    };
    let threads: Vec<_> = (0..3).map(consume).collect();
    let ends: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    let mut told = None;
    for (consumer, end) in (0..).zip(ends) {
        match end {
            Some(RuntimeError::EndedByError { consumer: by }) => {
                ensure!(by != consumer, "it was told so itself");
            }
            Some(error @ RuntimeError::BadSample { .. }) => {
                ensure!(told.is_none(), "two consumers were told");
                told = Some(error.to_string());
                // Once more it is no end either.
                let again = deal.poll(consumer, Duration::from_secs(10));
                let is_told = matches!(again, Err(RuntimeError::EndedByError { .. }));
                ensure!(is_told, "{again:?}");
            }
            other => bail!("consumer {consumer}: {other:?}"),
        }
    }
    told.context("nobody was told")
}

#[test]
fn an_error_reaches_one_consumer_and_the_others_hear_of_it() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let broken = broken_images(folder.path())?;
    let mut loader = open_at(folder.path(), &json!({}))?;
    // The loader continues with the next epoch, which meets the same sample.
    for epoch in 0..2 {
        let line = told(&mut loader)?;
        ensure!(loader.epoch() == epoch);
        let said = ["sample 11 ", &broken, "preprocessed by the host", "use on_bad skip"];
        ensure!(said.iter().all(|part| line.contains(part)), "{line}");
    }
    Ok(())
}

#[test]
fn after_an_error_another_policy_goes_on_from_there() -> Result<()> {
    let folder = tempfile::tempdir()?;
    broken_images(folder.path())?;
    let mut loader = open_at(folder.path(), &json!({}))?;
    let deal = loader.begin(1)?;
    let until_the_error = deal.batches(0).map_while(Result::ok);
    let mut all: Vec<_> = until_the_error.map(|batch| Taken::new(&batch)).collect();
    ensure!(!all.is_empty(), "the error came before every batch");
    let mut other = open_at(folder.path(), &json!({"on_bad": "skip"}))?;
    other.load_state(&loader.state()?)?;
    all.extend(rest(&*other.begin(1)?, 0)?);
    let mut all = ids(&all);
    ensure!(other.stats().skipped[0].sample == 11);
    all.push(11);
    ensure_permutation(all)
}

#[test]
fn an_error_names_the_device_that_found_it() -> Result<()> {
    programs::program("firmware-sim")?;
    let folder = tempfile::tempdir()?;
    broken_images(folder.path())?;
    // A busy machine may make the device late, and then the host finds it.
    for seed in 0..20 {
        let csds = ["sim:ideal,rate=400"];
        let device = json!({"csds": csds, "strategy": "csd", "seed": seed});
        if told(&mut open_at(folder.path(), &device)?)?
            .contains("preprocessed by device sim:ideal")
        {
            return Ok(());
        }
    }
    bail!("the device found it in none of 20 epochs")
}

#[test]
fn a_consumer_that_keeps_every_batch_is_told() -> Result<()> {
    // 96 kB a batch as it is made, and three MiB: some two dozen slots.
    let few = json!({"limit": 100, "memory": 3, "held_batches": 2});
    let mut loader = open(&few)?;
    let deal = loader.begin(1)?;
    let mut kept = Vec::new();
    let began = Instant::now();
    let error = loop {
        match deal.poll(0, Duration::from_millis(50)) {
            Ok(Polled::Batch(batch)) => kept.push(batch),
            Ok(Polled::Pending) => {
                ensure!(began.elapsed() < DEADLINE, "it waits forever");
            }
            Ok(Polled::End) => bail!("there was room for {} batches", kept.len()),
            Err(error) => break error,
        }
    };
    ensure!(matches!(error, RuntimeError::Starved { .. }), "{error}");
    ensure!(kept.len() >= 2, "only {} of 2 batches could be held", kept.len());
    Ok(())
}

// ---- a loop that is broken off -------------------------------------------------------------

#[test]
fn a_broken_off_epoch_leaves_nothing_behind() -> Result<()> {
    let mut loader = open(&json!({}))?;
    let mut kept = Vec::new();
    for n_taken in [1, 4, 0, N_BATCHES, 2] {
        let deal = loader.begin(1)?;
        take(&deal, n_taken)?;
        // What the consumer holds stays whole, whatever becomes of its epoch.
        kept = match next(&deal, 0)? {
            Some(batch) => vec![(Taken::new(&batch), batch)],
            None => kept,
        };
        deal.cancel();
        ensure!(next(&deal, 0)?.is_none(), "a cancelled epoch has ended");
    }
    let last = rest(&*loader.begin(1)?, 0)?;
    ensure_permutation(ids(&last))?;
    for (taken, batch) in &kept {
        ensure!(Taken::new(batch) == *taken, "a held batch has changed");
    }
    let stats = loader.stats();
    ensure!(stats.epoch == 6 && stats.front_batches >= u64::from(N_BATCHES), "{stats:?}");
    drop(loader);
    drop(kept);
    Ok(())
}
