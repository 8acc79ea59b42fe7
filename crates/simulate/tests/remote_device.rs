//! A device near a remote store: what counts where the link is the limit are bytes.
#![allow(clippy::unwrap_used, reason = "a test's own numbers")]

use bothends_core::select::StrategyConfig;
use bothends_simulate::scenario;

/// How much faster each of these strategies is than the host alone.
fn speedups(name: &str) -> Vec<f64> {
    let scenario = scenario::find(name).unwrap();
    let strategies = [StrategyConfig::Ordered, StrategyConfig::Relaxed];
    let result = scenario.run(&strategies, &mut |_| {});
    let of =
        |(_, result): &(_, bothends_simulate::StrategyResult)| result.speedup.unwrap();
    result.strategies.iter().map(of).collect()
}

#[test]
fn with_large_records_a_device_pays_though_the_link_is_full() {
    let speedups = speedups("remote-large-records");
    assert!(speedups.iter().all(|speedup| *speedup >= 1.5), "{speedups:?}");
}

#[test]
fn with_records_that_are_smaller_than_results_it_rests() {
    let speedups = speedups("remote-small-records");
    assert!(speedups.iter().all(|speedup| *speedup >= 0.99), "{speedups:?}");
}
