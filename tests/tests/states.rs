//! States as texts: nobody changes one unseen, and those of older releases are read.
//!
//! That a state is exact is held by `loader.rs` and `stream.rs`.

#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::{Context, Result, ensure};
use bothends_core::ids::SampleId;
use bothends_runtime::{Loader, options};
use bothends_tests::generated;
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
