//! States as texts: nobody changes one unseen, and those of older releases are read.
//!
//! That a state is exact is held by `loader.rs` and `stream.rs`.

#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::{Context, Result, ensure};
use bothends_core::ids::SampleId;
use bothends_runtime::{Loader, Observer, Progress, options};
use bothends_tests::{Setup, generated};
use serde_json::{Value, json};

/// A loader of 23 generated images in batches of two, and what the test wants otherwise.
fn open(otherwise: &Value) -> Result<Loader> {
    let mut all = json!({
        "data": generated()?, "recipe": "imagenet-eval", "batch_size": 2, "seed": 5, "limit": 23,
        "workers": 2, "last": "pad", "side_index": "off",
    });
    let all_keys = all.as_object_mut().context("an object")?;
    for (key, value) in otherwise.as_object().context("an object")? {
        all_keys.insert(key.clone(), value.clone());
    }
    Ok(Loader::open(options(&all.to_string())?)?)
}

/// The samples of the next `n` batches of an epoch that is begun.
fn taken(loader: &mut Loader, n: usize) -> Result<Vec<Option<SampleId>>> {
    let deal = loader.begin(1)?;
    let batches = deal.batches(0).take(n).collect::<Result<Vec<_>, _>>()?;
    Ok(batches.iter().flat_map(|batch| batch.rows()).map(|row| row.sample).collect())
}

/// Counts the epochs that begin.
struct Begun(u32);

impl Observer for Begun {
    fn begin(&mut self, _: Progress) {
        self.0 += 1;
    }
}

#[test]
fn a_state_with_one_bit_changed_is_refused() -> Result<()> {
    let mut loader = open(&json!({}))?;
    taken(&mut loader, 5)?;
    let state = loader.state()?;
    let mut other = open(&json!({}))?;
    for bit in 0..8 * state.len() {
        let mut bytes = state.clone().into_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        // What is no text cannot be given.
        let Ok(changed) = String::from_utf8(bytes) else { continue };
        let error = other.load_state(&changed).err();
        let line = error.with_context(|| format!("bit {bit}: {changed}"))?.to_string();
        ensure!(line.starts_with("the resume state") && !line.contains('\n'), "{line}");
    }
    ensure!(other.load_state(&state)?.is_none());
    Ok(())
}

/// What has been taken stays what it was taken as: half of it would be left out by a resume.
#[test]
fn a_running_epoch_has_the_state_of_the_rank_that_it_was_begun_as() -> Result<()> {
    for strategy in ["ordered", "relaxed"] {
        let mut loader = open(&json!({"strategy": strategy}))?;
        taken(&mut loader, 3)?;
        let state = loader.state()?;
        loader.set_rank(0, 2)?;
        ensure!(loader.state()? == state, "{strategy}");
        let mut other = open(&json!({"strategy": strategy}))?;
        ensure!(other.load_state(&state)?.is_none(), "{strategy}");
    }
    Ok(())
}

/// Without order it counts batches, and each rank would leave out as many of its own.
#[test]
fn a_state_that_counts_batches_is_for_as_many_ranks_as_it_was_saved_with() -> Result<()> {
    let mut loader = open(&json!({"strategy": "relaxed"}))?;
    taken(&mut loader, 3)?;
    let state = loader.state()?;
    let mut other = open(&json!({"strategy": "relaxed"}))?;
    other.load_state(&state)?;
    let line = other.set_rank(0, 2).unwrap_err().to_string();
    ensure!(line.contains("counts batches of 1 ranks, and this run has 2"), "{line}");
    ensure!(other.state()? == state, "it is the rank that it was");
    // Another epoch has nothing of that, and positions are of all ranks.
    other.set_epoch(7);
    other.set_rank(0, 2)?;
    let mut loader = open(&json!({"strategy": "ordered"}))?;
    taken(&mut loader, 3)?;
    let mut other = open(&json!({"strategy": "ordered"}))?;
    other.load_state(&loader.state()?)?;
    other.set_rank(0, 2)?;
    Ok(())
}

#[test]
fn a_state_of_version_1_is_read_and_spoken_of() -> Result<()> {
    let whole = taken(&mut open(&json!({}))?, usize::MAX)?;
    let mut loader = open(&json!({}))?;
    let mut samples = taken(&mut loader, 5)?;
    let old = version_1(&loader.state()?)?;
    let mut other = open(&json!({}))?;
    let note = other.load_state(&old)?.context("no note")?;
    ensure!(note.contains("version 1, which has no checksum"), "{note}");
    samples.extend(taken(&mut other, usize::MAX)?);
    ensure!(samples == whole);
    Ok(())
}

/// Where none can be written, an epoch that takes hours must not be the way to find out.
#[test]
fn a_state_that_cannot_be_written_is_told_of_before_the_first_epoch() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for path in ["missing/state.json", ""] {
        let checkpoint = Some(folder.path().join(path));
        let setup = Setup { checkpoint, ..Setup::new(&generated()?) };
        let mut watched = Begun(0);
        let error = setup.watched(&mut watched).err().context("it ran")?;
        ensure!(
            format!("{error:#}").contains("cannot write the checkpoint"),
            "{error:#}"
        );
        ensure!(watched.0 == 0, "an epoch began");
    }
    Ok(())
}

/// It was added to, and the sum overflowed.
#[test]
fn more_samples_than_any_epoch_has_were_not_delivered() -> Result<()> {
    let old = version_1(&open(&json!({}))?.state()?)?;
    let beyond =
        old.replace("\"n_delivered\":0", &format!("\"n_delivered\":{}", u64::MAX));
    ensure!(beyond != old, "{old}");
    let error = open(&json!({}))?.load_state(&beyond).err().context("it was taken")?;
    ensure!(
        error.to_string().contains("`n_delivered` is more than any epoch has"),
        "{error}"
    );
    Ok(())
}

#[test]
fn batches_that_the_plan_does_not_have_are_not_done() -> Result<()> {
    let relaxed = json!({"strategy": "relaxed"});
    let old = version_1(&open(&relaxed)?.state()?)?;
    let beyond = old.replace("\"done\":[]", "\"done\":[[2,4],[11,4000000000]]");
    ensure!(old != beyond);
    let mut loader = open(&relaxed)?;
    loader.load_state(&beyond)?;
    let error = loader.begin(1).err().context("no error")?.to_string();
    ensure!(
        error.contains("batch 3999999999 was delivered and what is planned"),
        "{error}"
    );
    Ok(())
}

/// The same state as releases before wrote it: without checksum and fingerprint.
fn version_1(state: &str) -> Result<String> {
    let mut state: Value = serde_json::from_str(state)?;
    let fields = state.as_object_mut().context("an object")?;
    fields.remove("checksum").context("a checksum")?;
    fields.remove("plan").context("a fingerprint")?;
    fields.insert("version".to_owned(), json!(1));
    Ok(state.to_string())
}
