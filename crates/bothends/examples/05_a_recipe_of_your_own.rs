//! 5. A recipe in the options, soft labels for mixed samples, and a bad file that does not end the job.
//!
//!   cargo run --release -p bothends --example 05_a_recipe_of_your_own -- [DATA]
//!
//! `configs/README.md` lists what a recipe may contain and `docs/ops.md` has every op; `bothends inspect`
//! describes a recipe in plain words.
#![allow(clippy::print_stdout, reason = "an example shows what it finds")]

mod images;

use std::error::Error;

use bothends::{Loader, options};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let images = images::Images::new()?;
    let recipe = json!({
        "version": 2, "name": "mine", "numerics": "exact",
        "ops": [
            {"op": "decode"},
            {"op": "random_resized_crop", "size": 96},
            {"op": "random_horizontal_flip"},
            {"op": "trivial_augment_wide"},
            {"op": "normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
            {"op": "mixup", "alpha": 0.2},
        ],
    });
    let config = json!({
        "data": images.path(), "recipe": recipe, "batch_size": 16, "output": "f32",
        "last": "pad", "on_bad": "replace",
    });
    let mut loader = Loader::open(options(&config.to_string())?)?;
    let n_classes = loader.class_names().len();
    let mut labels = Vec::new();
    for batch in loader.begin(1)?.batches(0) {
        let batch = batch?;
        labels.resize(batch.rows().len() * n_classes, 0.0);
        batch.soft_labels(n_classes, &mut labels)?;
        println!(
            "batch {}: the first label is {:.3?}",
            batch.index.0,
            &labels[..n_classes]
        );
    }
    for bad in loader.stats().skipped {
        println!("{} was left out: {}", bad.file, bad.why);
    }
    Ok(())
}
