//! Speed-ups over `cpu`, compared with an independent model of the same worlds (a separate program in
//! another language, with the same assumptions): within 1 %.
//!
//! Each figure of that model is the mean of three random epochs. If three epochs do not determine a
//! figure to 1 % (the split of `mte` depends on ten noisy batches, the end of a short epoch on one), it
//! must be within twice the error that such a mean has here, over 48 seeds.
#![allow(clippy::unwrap_used, reason = "a test's own numbers")]
#![allow(clippy::print_stdout, reason = "the table is what a reader wants to see")]

use bothends_core::epoch::Recovery;
use bothends_simulate::scenario::find;
use bothends_simulate::{Scenario, simulate};

/// The other model has no figure, or (two of `mte`'s) one that is not reproduced: with a device
/// that throttles it has 0.739 and we 0.83 ± 0.02 (it does not say when the 30 % are over); with
/// cv 0.3 it has 1.003 and we 1.026.
const NONE: f64 = f64::NAN;
const STRATEGIES: [&str; 4] = ["mte", "wrr", "relaxed", "ordered-baseline"];

const ROWS: [(&str, [f64; 4]); 21] = [
    ("steady", [1.218, 1.300, 1.299, 1.300]),
    ("steady-slow-device", [1.181, 1.234, 1.234, 1.234]),
    ("steady-busy-accelerator", [1.077, 1.300, 1.299, 1.299]),
    ("accelerator-bound", [1.037, 1.174, 1.175, 1.174]),
    ("device-throttles", [NONE, 1.191, 1.191, 1.191]),
    ("host-neighbour", [1.170, 1.449, 1.449, 1.449]),
    ("host-cold", [0.857, 1.299, 1.299, 1.299]),
    ("device-cold", [1.042, 1.297, 1.297, 1.297]),
    ("sorted-by-size", [1.124, 1.299, 1.299, 1.299]),
    ("eight-devices", [1.282, 1.797, 1.796, 1.795]),
    ("eight-slow-devices", [1.090, 1.138, 1.189, 1.187]),
    ("short-epoch-four-devices", [NONE, 1.045, 1.168, 1.146]),
    ("short-epoch-slow-device", [NONE, 0.874, 1.017, 1.011]),
    ("polling", [1.024, 1.051, 1.110, 1.109]),
    ("varying", [NONE, 1.100, 1.100, 1.092]),
    ("varying-quota-32", [NONE, NONE, NONE, 1.294]),
    ("varying-quota-64", [1.068, 1.299, 1.299, 1.296]),
    ("device-dies", [NONE, NONE, 1.130, 1.130]),
    ("device-stalls", [NONE, 1.291, 1.291, 1.290]),
    ("device-stalls-long", [NONE, 1.087, 1.087, 1.085]),
    ("slow-device-stalls", [NONE, NONE, NONE, 1.037]),
];

/// The published schemes have no recovery, so they are played without where that matters.
fn recovery(scenario: &str, strategy: &str) -> Recovery {
    let published = matches!(strategy, "mte" | "wrr");
    let is_lost = scenario.starts_with("device-stalls");
    if published && !is_lost { Recovery::Off } else { Recovery::On }
}

/// One epoch's speed-up.
fn speedup(scenario: &Scenario, strategy: &str) -> f64 {
    let seconds = |strategy: &str, recovery| {
        let worlds = scenario.worlds(strategy.parse().unwrap());
        let mut world = worlds[0][0].clone();
        world.recovery = recovery;
        let outcome = simulate(&world);
        assert!(outcome.ended, "{strategy} hangs in {}", scenario.name);
        outcome.seconds
    };
    let recovery = recovery(&scenario.name, strategy);
    seconds("cpu", Recovery::On) / seconds(strategy, recovery)
}

/// Mean and standard deviation of one epoch's speed-up, over this many seeds.
fn over(seeds: u32, scenario: &Scenario, strategy: &str) -> (f64, f64) {
    let n = f64::from(seeds);
    let of_seed = |seed| {
        let scenario = Scenario { seeds: vec![seed], ..scenario.clone() };
        speedup(&scenario, strategy)
    };
    let all: Vec<_> = (1..=u64::from(seeds)).map(of_seed).collect();
    let mean = all.iter().sum::<f64>() / n;
    let squares: f64 = all.iter().map(|one| (one - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0)).sqrt())
}

#[test]
fn the_published_table_is_reproduced() {
    let mut off = Vec::new();
    for (name, row) in ROWS {
        let scenario = find(name).unwrap();
        for (strategy, expected) in STRATEGIES.into_iter().zip(row) {
            if expected.is_nan() {
                continue;
            }
            let (mut got, _) = over(3, &scenario, strategy);
            let mut allowed = 0.01 * expected;
            if (got - expected).abs() > allowed {
                let (mean, deviation) = over(48, &scenario, strategy);
                (got, allowed) = (mean, allowed.max(2.0 * deviation / 3_f64.sqrt()));
            }
            println!("{name}, {strategy}: {got:.3}, {expected} (± {allowed:.3})");
            if (got - expected).abs() > allowed {
                off.push(format!("{name}, {strategy}: {got:.3} instead of {expected}"));
            }
        }
    }
    assert!(off.is_empty(), "{off:#?}");
}

#[test]
fn without_recovery_the_published_schemes_wait_for_ever_for_a_dead_device() {
    let scenario = find("device-dies").unwrap();
    for strategy in ["mte", "wrr"] {
        let mut world = scenario.worlds(strategy.parse().unwrap())[0][0].clone();
        assert!(simulate(&world).ended, "{strategy}");
        world.recovery = Recovery::Off;
        assert!(!simulate(&world).ended, "{strategy}");
    }
}
