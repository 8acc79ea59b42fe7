//! 3. A device next to the data makes batches from the back. The stream does not change.
//!
//!   cargo run --release -p bothends --example 03_second_prong -- [DATA [DEVICE [KEY_FILE]]]
//!
//! DEVICE is as for `--csd`: `tcp+noise://nas:7070` with a key file if `bothends-agent` runs there, or an
//! emulated one (`sim:ideal` by default), which needs the program `firmware-sim`: `cargo build --release`.
//!
//! Next: `04_own_loop_many_consumers`.
#![allow(clippy::print_stdout, reason = "an example shows what it finds")]

mod images;

use std::env;
use std::error::Error;
use std::path::Path;

use bothends::digest::StreamDigest;
use bothends::{Loader, RuntimeError, options};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let images = images::Images::new()?;
    let device = env::args().nth(2).unwrap_or_else(|| "sim:ideal".to_owned());
    let key_file = env::args().nth(3);
    let alone = epoch(images.path(), &[], None)?;
    let both = epoch(images.path(), &[device], key_file.as_deref())?;
    if alone != both {
        return Err("the device has changed the stream".into());
    }
    println!("one stream, with and without the device: {alone:032x}");
    Ok(())
}

/// Runs an epoch; the digest of all that came, in order.
fn epoch(
    data: &Path,
    csds: &[String],
    key_file: Option<&str>,
) -> Result<u128, RuntimeError> {
    let config = json!({
        "data": data, "recipe": "imagenet-train", "batch_size": 4, "last": "pad",
        "csds": csds, "key_file": key_file,
    });
    let mut loader = Loader::open(options(&config.to_string())?)?;
    let mut digest = StreamDigest::new();
    for batch in loader.begin(1)?.batches(0) {
        let batch = batch?;
        for (i, row) in batch.rows().iter().enumerate() {
            if let Some(id) = row.sample {
                digest.add(id, row.label, batch.sample(i));
            }
        }
    }
    let stats = loader.stats();
    println!("the host made {} batches", stats.front_batches);
    for device in &stats.back {
        let failure = device.failure.as_deref().unwrap_or("well");
        println!("{} made {} ({failure})", device.device, device.batches);
    }
    Ok(digest.digest())
}
