//! What tests of the loader share: a small data set in batches of two, and what was taken of it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bothends_core::digest::sample_digest;
use bothends_runtime::{Batch, Deal, Loader, Polled, RuntimeError, options};
use serde_json::{Value, json};

use crate::generated;

/// Samples of an epoch: no multiple of anything.
pub const N: u64 = 23;
/// Batches of two, the last one with a masked row.
pub const N_BATCHES: u32 = 12;
/// No epoch here takes longer.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// A loader of 23 generated images in batches of two, and what the test wants otherwise.
pub fn open(otherwise: &Value) -> Result<Loader> {
    open_at(&generated()?, otherwise)
}

/// As [`open`], of other images.
pub fn open_at(data: &Path, otherwise: &Value) -> Result<Loader> {
    let mut all = json!({
        "data": data, "recipe": "imagenet-train", "batch_size": 2, "seed": 5, "limit": N,
        "workers": 2, "last": "pad", "side_index": "off",
    });
    let all_keys = all.as_object_mut().context("an object")?;
    for (key, value) in otherwise.as_object().context("an object")? {
        all_keys.insert(key.clone(), value.clone());
    }
    Ok(Loader::open(options(&all.to_string())?)?)
}

/// What a batch was: its place, and each row's sample with a digest of what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Its place in the plan.
    pub index: u32,
    /// Row by row: the sample, and the digest of what the row holds.
    pub rows: Vec<Option<(u64, u128)>>,
}

impl Taken {
    /// What `batch` is.
    #[must_use]
    pub fn new(batch: &Batch) -> Self {
        let rows = batch.rows().iter().enumerate();
        let row = |(i, row): (usize, &bothends_runtime::Row)| {
            row.sample.map(|id| (id.0, sample_digest(id, row.label, batch.sample(i))))
        };
        Self { index: batch.index.0, rows: rows.map(row).collect() }
    }
}

/// The next batch, or `None` at the end.
pub fn next(deal: &Deal, consumer: u32) -> Result<Option<Batch>> {
    match deal.poll(consumer, DEADLINE)? {
        Polled::Batch(batch) => Ok(Some(batch)),
        Polled::End => Ok(None),
        Polled::Pending => bail!("no batch for consumer {consumer} in {DEADLINE:?}"),
    }
}

/// Whether the deal's consumer is told that a newer epoch took its place: not that it ended.
pub fn is_superseded(deal: &Deal) -> bool {
    matches!(deal.poll(0, DEADLINE), Err(RuntimeError::Superseded))
}

/// The next `n` batches, all of which must come.
pub fn take(deal: &Deal, n: u32) -> Result<Vec<Taken>> {
    let one = |_| Ok(Taken::new(&next(deal, 0)?.context("an end too early")?));
    (0..n).map(one).collect()
}

/// Everything that is left.
pub fn rest(deal: &Deal, consumer: u32) -> Result<Vec<Taken>> {
    deal.batches(consumer).map(|batch| Ok(Taken::new(&batch?))).collect()
}

/// What the rows hold, whatever the numbers of their batches.
pub fn rows(taken: &[Taken]) -> Vec<Vec<Option<(u64, u128)>>> {
    taken.iter().map(|batch| batch.rows.clone()).collect()
}

/// The samples, one after another.
pub fn ids(taken: &[Taken]) -> Vec<u64> {
    taken.iter().flat_map(|batch| batch.rows.iter().flatten().map(|row| row.0)).collect()
}

/// The first epoch as one consumer gets it from one worker.
pub fn whole(otherwise: &Value) -> Result<Vec<Taken>> {
    rest(&*open(otherwise)?.begin(1)?, 0)
}

/// Fails unless each sample is there once.
pub fn ensure_permutation(mut ids: Vec<u64>) -> Result<()> {
    ids.sort_unstable();
    ensure!(ids == (0..N).collect::<Vec<_>>(), "{ids:?}");
    Ok(())
}

/// Copies the first 23 images, one of which is broken, the eleventh from 0; its name.
pub fn broken_images(folder: &Path) -> Result<String> {
    let root = generated()?;
    let mut images = Vec::new();
    for class in std::fs::read_dir(&root)? {
        let class = class?.path();
        if class.is_dir() && !class.ends_with(".bothends-index") {
            for image in std::fs::read_dir(class)? {
                images.push(image?.path().strip_prefix(&root)?.to_owned());
            }
        }
    }
    images.sort();
    let mut broken = String::new();
    for (n, name) in images.iter().take(usize::try_from(N)?).enumerate() {
        let mut bytes = std::fs::read(root.join(name))?;
        if n == 11 {
            bytes.truncate(100);
            broken = name.to_string_lossy().into_owned();
        }
        let copy = folder.join(name);
        std::fs::create_dir_all(copy.parent().context("a class folder")?)?;
        std::fs::write(copy, bytes)?;
    }
    Ok(broken)
}
