//! The stream of an epoch, as a second implementation computes it.
//!
//! `scripts/golden-stream` is written from `docs/numbers.md` alone, in Python, with Pillow's
//! pixels. Where it and the runtime agree, the document says what is delivered; where they do
//! not, one of the three is wrong.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use bothends_tests::{Setup, assert_whole, real_images};
use serde_json::Value;

/// The folder that the script writes.
fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/stream")
}

fn golden_cases(list: &str) -> Result<Vec<Value>> {
    let index = std::fs::read_to_string(fixtures().join("golden.json"))?;
    let mut index: Value = serde_json::from_str(&index)?;
    let cases = serde_json::from_value::<Vec<Value>>(index[list].take())?;
    ensure!(!cases.is_empty(), "golden.json has no cases in `{list}`");
    Ok(cases)
}

/// Runs to the epoch of the case; its digests must be the script's.
fn check(case: &Value, data: &Path) -> Result<()> {
    let number = |key: &str| case[key].as_u64().with_context(|| key.to_owned());
    let text = |key: &str| case[key].as_str().with_context(|| key.to_owned());
    let setup = Setup {
        recipe: text("recipe")?.to_owned(),
        seed: number("seed")?,
        epochs: u32::try_from(number("epoch")?)? + 1,
        batch_size: u32::try_from(number("batch_size")?)?,
        repeat: u32::try_from(number("repeat")?)?,
        // Not `cpu`: that delivers what is ready first, and reads do not end in order.
        strategy: "ordered",
        ..Setup::new(data)
    };
    let epoch = setup.run()?;
    assert_whole(&epoch, number("samples")?)?;
    for (key, made) in
        [("content_digest", epoch.content_digest), ("stream_digest", epoch.stream_digest)]
    {
        let made = made.context("no digest")?.to_string();
        ensure!(made == text(key)?, "{key} {made}");
    }
    Ok(())
}

#[test]
fn the_stream_is_what_the_document_says() -> Result<()> {
    for case in golden_cases("made")? {
        let data = fixtures().join(case["data"].as_str().unwrap());
        check(&case, &data).with_context(|| case.to_string())?;
    }
    Ok(())
}

#[test]
fn the_stream_of_real_images_is_what_the_document_says() -> Result<()> {
    let Some(data) = real_images("the_stream_of_real_images_is_what_the_document_says")?
    else {
        return Ok(());
    };
    for case in golden_cases("real")? {
        check(&case, &data).with_context(|| case.to_string())?;
    }
    Ok(())
}
