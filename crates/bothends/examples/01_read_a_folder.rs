//! 1. A folder of class folders becomes batches of floats.
//!
//!   cargo run --release -p bothends --example 01_read_a_folder -- [DATA]
//!
//! Next: `02_resume`.
#![allow(clippy::print_stdout, reason = "an example shows what it finds")]

mod images;

use std::collections::BTreeMap;
use std::error::Error;

use bothends::{Loader, options};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let images = images::Images::new()?;
    let config = json!({
        "data": images.path(), "recipe": "imagenet-train", "batch_size": 16,
        "output": "f32", "layout": "nchw",
        "last": "pad", // every sample; the rows after the last one are masked
    });
    let mut loader = Loader::open(options(&config.to_string())?)?;
    let view = loader.views()[0];
    println!(
        "{} samples of {} classes, each {} x {} x {} floats",
        loader.n_samples(),
        loader.class_names().len(),
        view.channels,
        view.height,
        view.width
    );

    let mut per_class = BTreeMap::new();
    for batch in loader.begin(1)?.batches(0) {
        let batch = batch?;
        // `bytes` are all rows', one after the other: a tensor's memory, not a copy.
        let values = batch.bytes().chunks_exact(4).filter_map(|b| b.try_into().ok());
        let sum: f64 = values.map(|b| f64::from(f32::from_ne_bytes(b))).sum();
        println!("batch {}: {} samples, sum {sum:.0}", batch.index.0, batch.n_valid());
        for row in batch.rows().iter().filter(|row| row.sample.is_some()) {
            *per_class.entry(row.label.0).or_insert(0) += 1;
        }
        // Dropped here, the batch gives its memory back for the next one.
    }
    for (label, name) in (0..).zip(loader.class_names()) {
        println!("{name}: {}", per_class.get(&label).unwrap_or(&0));
    }
    Ok(())
}
