//! How many decisions a second a pool of 10,000 agents and 1,000 jobs takes on this machine, and the
//! results of every pool scenario: `cargo run --release -p bothends-simulate --example pool_speed`.
#![allow(clippy::print_stdout, reason = "the result of an example")]

use std::time::Instant;

use bothends_simulate::pool::{all, pool_table};

fn main() -> Result<(), bothends_simulate::ScenarioError> {
    let only: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |name: &String| only.is_empty() || only.contains(name);
    for scenario in all()?.into_iter().filter(|scenario| wanted(&scenario.name)) {
        let begun = Instant::now();
        let result = scenario.run();
        let seconds = begun.elapsed().as_secs_f64();
        print!("{}", pool_table(&result));
        let per_seed: f64 = result.rows.iter().map(|row| row.decisions).sum();
        #[allow(clippy::cast_precision_loss, reason = "there are few seeds")]
        let decisions = per_seed * result.seeds.len() as f64;
        if result.rows.is_empty() {
            println!();
            continue;
        }
        println!(
            "{decisions:.0} decisions in {seconds:.2} s: {:.0} per s\n",
            decisions / seconds
        );
    }
    Ok(())
}
