//! What `ordered` promises in every scenario of `configs/experiments`.
#![allow(clippy::unwrap_used, reason = "a test's own numbers")]

use bothends_core::select::StrategyConfig;
use bothends_simulate::{ScenarioResult, scenario};

/// At least this fraction of the bound if nothing changes, in an epoch of this length.
const OF_BOUND: f64 = 0.98;
const LONG: u32 = 625;
/// At least this fraction of the host alone, whatever happens.
const OF_CPU: f64 = 0.99;
/// The most finished batches of a single device that wait.
const MOST_WAITING: u32 = 32;

/// With batch times of cv 0.5 and eight workers, such a small quota delays even the host alone, in
/// order.
const SMALL_QUOTA: &str = "varying-quota-16";

/// The largest takes seconds in a debug build; fewer batches show the same there.
const MOST_BATCHES: usize = 3_000_000;

fn results() -> Vec<ScenarioResult> {
    let mut scenarios = scenario::all().unwrap();
    for scenario in &mut scenarios {
        let batches = scenario.n_batches() as usize * scenario.ranks.len();
        if batches * scenario.seeds.len() * scenario.n_devices() > MOST_BATCHES * 1000 {
            scenario.seeds.truncate(1);
        }
    }
    let play = |s: &scenario::Scenario| s.run(&[StrategyConfig::Ordered], &mut |_| {});
    scenarios.iter().map(play).collect()
}

#[test]
fn ordered_keeps_its_bars_in_every_scenario() {
    let mut broken = Vec::new();
    for result in results() {
        let name = result.name.as_str();
        let ordered = &result.strategies[0].1;
        let speedup = ordered.speedup.unwrap();
        if speedup < OF_CPU {
            broken.push(format!("{name}: {speedup:.4} of cpu"));
        }
        if result.devices == 1 && ordered.peak_waiting > MOST_WAITING {
            broken.push(format!("{name}: {} batches waited", ordered.peak_waiting));
        }
        // Objectives other than throughput do not aim at the bound.
        let is_long = result.batches >= LONG && result.objective == "throughput";
        if let Some(efficiency) = ordered.efficiency
            && is_long
            && name != SMALL_QUOTA
            && efficiency < OF_BOUND
        {
            broken.push(format!("{name}: {efficiency:.4} of the bound"));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
