//! How fast virtual time passes: simulated batches per second on one core, median of five.
//!
//!   cargo run --release -p bothends-simulate --example speed
#![allow(clippy::print_stdout, reason = "a program that says what it measured")]

use std::error::Error;
use std::time::Instant;

use bothends_core::select::StrategyConfig;
use bothends_simulate::{scenario, simulate};

const BATCHES: u32 = 2_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let scenario = scenario::find("steady-busy-accelerator")?;
    for strategy in ["cpu", "wrr", "relaxed", "ordered"] {
        let strategy: StrategyConfig = strategy.parse()?;
        let mut worlds = scenario.worlds(strategy).into_iter().flatten();
        let Some(mut world) = worlds.next() else { continue };
        world.n_batches = BATCHES;
        let mut rates: Vec<f64> = (0..5)
            .map(|_| {
                let began = Instant::now();
                let outcome = simulate(&world);
                f64::from(outcome.batches) / began.elapsed().as_secs_f64()
            })
            .collect();
        rates.sort_by(f64::total_cmp);
        println!("{strategy}: {:.2} million batches per second", rates[2] / 1e6);
    }
    Ok(())
}
