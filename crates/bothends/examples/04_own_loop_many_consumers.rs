//! 4. One process trains on several accelerators. Each has a thread that takes batches, the same number
//!    as the others, and together they get every sample once.
//!
//!   cargo run --release -p bothends --example 04_own_loop_many_consumers -- [DATA]
//!
//! Next: `05_a_recipe_of_your_own`.
#![allow(clippy::print_stdout, reason = "an example shows what it finds")]

mod images;

use std::error::Error;
use std::thread;
use std::time::Duration;

use bothends::{Deal, Loader, Polled, RuntimeError, options};
use serde_json::json;

const CONSUMERS: u32 = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let images = images::Images::new()?;
    let config = json!({
        "data": images.path(), "recipe": "imagenet-train", "batch_size": 5, "last": "pad",
        "held_batches": CONSUMERS, // each holds one while it trains
    });
    let mut loader = Loader::open(options(&config.to_string())?)?;
    println!("each consumer gets {} batches", loader.n_batches(CONSUMERS)?);
    let deal = &*loader.begin(CONSUMERS)?;
    let hands = thread::scope(|scope| {
        let consume = |consumer| scope.spawn(move || consume(deal, consumer));
        let threads: Vec<_> = (0..CONSUMERS).map(consume).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().map_err(|_| "a consumer panicked")
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, _>>()
    })?;
    let mut all = Vec::new();
    for (consumer, ids) in hands.into_iter().enumerate() {
        let ids = ids?;
        println!("consumer {consumer} got {} samples", ids.len());
        all.extend(ids);
    }
    all.sort_unstable();
    if !(0..loader.n_samples()).eq(all) {
        return Err("some sample came twice, or not at all".into());
    }
    println!("together: every sample once");
    Ok(())
}

/// A loop of one's own: it looks for a batch and may do something else in between.
fn consume(deal: &Deal, consumer: u32) -> Result<Vec<u64>, RuntimeError> {
    let mut ids = Vec::new();
    loop {
        match deal.poll(consumer, Duration::from_millis(10))? {
            Polled::Batch(batch) => {
                ids.extend(
                    batch.rows().iter().filter_map(|row| row.sample).map(|id| id.0),
                );
            }
            Polled::Pending => {} // write a log, look at a signal
            Polled::End => return Ok(ids),
        }
    }
}
