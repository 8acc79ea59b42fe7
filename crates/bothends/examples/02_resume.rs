//! 2. A job stops in the middle of an epoch and another one continues: no sample twice, none left out,
//!    the same bytes, with a different number of workers.
//!
//!   cargo run --release -p bothends --example 02_resume -- [DATA]
//!
//! Next: `03_second_prong`.
#![allow(clippy::print_stdout, reason = "an example shows what it finds")]

mod images;

use std::error::Error;
use std::path::Path;

use bothends::{Loader, RuntimeError, options};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let images = images::Images::new()?;
    let mut first = open(images.path(), 1)?;
    let mut seen = sample_ids(&mut first, 2)?;
    // Batches that were made and not taken are not in the state; they are made again.
    let state = first.state()?;
    println!("after two batches: {} bytes of state", state.len());
    println!("{state}");
    drop(first);

    let mut second = open(images.path(), 2)?;
    second.load_state(&state)?;
    println!("the second job goes on in epoch {}", second.epoch());
    let rest = sample_ids(&mut second, usize::MAX)?;
    println!("{} samples before, {} after", seen.len(), rest.len());

    seen.extend(rest);
    let uninterrupted = sample_ids(&mut open(images.path(), 1)?, usize::MAX)?;
    if seen != uninterrupted {
        return Err("the order is another than without a stop".into());
    }
    println!("the same {} samples in the same order as without a stop", seen.len());
    Ok(())
}

fn open(data: &Path, workers: u32) -> Result<Loader, RuntimeError> {
    let config = json!({
        "data": data, "recipe": "imagenet-train", "batch_size": 8, "last": "pad",
        "workers": workers,
    });
    Loader::open(options(&config.to_string())?)
}

/// The samples of the next batches.
fn sample_ids(loader: &mut Loader, n_batches: usize) -> Result<Vec<u64>, RuntimeError> {
    let mut ids = Vec::new();
    for batch in loader.begin(1)?.batches(0).take(n_batches) {
        let batch = batch?;
        ids.extend(batch.rows().iter().filter_map(|row| row.sample).map(|id| id.0));
    }
    Ok(ids)
}
