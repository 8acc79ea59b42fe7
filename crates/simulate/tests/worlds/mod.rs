//! Worlds that several tests start from. The unit of time is the host's batch.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::ops::RangeInclusive;

use bothends_core::epoch::Recovery;
use bothends_core::objective::Objective;
use bothends_core::select::StrategyConfig;
use bothends_simulate::{Accelerator, Device, Host, Outcome, World, simulate};

/// The host's batch: all other times are multiples of it.
pub(crate) const C_NS: u64 = 1_000_000_000;

/// A number of host batches.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small positive numbers"
)]
pub(crate) fn ns(batches: f64) -> u64 {
    (batches * 1e9) as u64
}

/// The world of the published comparison: eight host workers with sixteen batches, and devices with one
/// batch at a time, all with cv 0.1 and known in advance.
pub(crate) fn classic(n_batches: u32, n_devices: usize, s: f64, a: f64) -> World {
    let device = Device { buffer: 64, cv: 0.1, ..Device::steady(ns(s)) };
    World {
        n_batches,
        strategy: StrategyConfig::Ordered,
        objective: Objective::Throughput,
        recovery: Recovery::On,
        host: Host {
            batch_ns: C_NS,
            parallel: 8,
            quota: 16,
            cv: 0.1,
            slowdown: None,
            prior: Some(1.0),
            records: None,
        },
        devices: vec![device; n_devices],
        shards: 1,
        links: vec![],
        batch_bytes: 0,
        accelerator: Accelerator { step_ns: ns(a), poll_ns: 0, known: true },
        slope: 0.0,
        seed: 1,
    }
}

/// Plays a strategy, which must end.
pub(crate) fn play(world: &World, strategy: &str) -> Outcome {
    let mut world = world.clone();
    world.strategy = strategy.parse().expect("a strategy's name");
    if strategy == "mte" {
        // Its second part waits for the device's storage.
        world.devices.iter_mut().for_each(|device| device.buffer = u32::MAX);
    }
    let outcome = simulate(&world);
    assert!(outcome.ended, "{strategy} hangs in {world:?}: {outcome:?}");
    if world.strategy.keeps_order() {
        assert_eq!(outcome.out_of_order, 0, "{world:?}");
    }
    outcome
}

/// How much faster than `cpu` a strategy is in a world, over three seeds.
pub(crate) fn speedup(world: &World, strategy: &str) -> f64 {
    speedup_over(1..=3, world, strategy)
}

/// The same over other seeds.
pub(crate) fn speedup_over(
    seeds: RangeInclusive<u64>,
    world: &World,
    strategy: &str,
) -> f64 {
    let seconds = |strategy| -> f64 {
        let worlds = seeds.clone().map(|seed| World { seed, ..world.clone() });
        worlds.map(|world| play(&world, strategy).seconds).sum()
    };
    seconds("cpu") / seconds(strategy)
}
