//! The benefit of a remembered rate, and the cost of a wrong one: little, once, in an epoch of any
//! length. Rates are remembered from run to run, and the machine may have changed since.
//!
//! Configured as in the runtime: workers share a batch, a device holds two. The unit of time is the
//! host's batch.
#![allow(clippy::print_stdout, reason = "the figures are what a reader wants to see")]

mod worlds;

use bothends_simulate::World;
use worlds::{classic, play};

/// A device that is four times as fast as the host, one that is twenty times slower, and between.
const DEVICES: [f64; 5] = [0.25, 0.5, 1.0, 4.0, 20.0];
const EPOCHS: [u32; 4] = [30, 100, 300, 1000];
const SEEDS: u32 = 8;

/// By how many host batches a wrong prior may lengthen an epoch: a device that is a hundred times
/// slower than assumed is late seven times, a little less each time.
const MOST_LOST: f64 = 8.0;
/// Nobody waits for a device's batch if whatever is ready is delivered.
const MOST_LOST_RELAXED: f64 = 1.0;

fn world(n_batches: u32, device_s: f64) -> World {
    let mut world = classic(n_batches, 1, device_s, 0.05);
    world.host.parallel = 1;
    world.host.quota = 8;
    world.devices[0].slots = 2;
    world.devices[0].buffer = 16;
    world
}

/// The mean length of an epoch with these multiples of the host's and the device's true times as
/// priors.
fn told(world: &World, strategy: &str, priors: (Option<f64>, Option<f64>)) -> f64 {
    let epoch = |seed| {
        let mut world = World { seed, ..world.clone() };
        (world.host.prior, world.devices[0].prior) = priors;
        play(&world, strategy).seconds
    };
    (1..=u64::from(SEEDS)).map(epoch).sum::<f64>() / f64::from(SEEDS)
}

fn worlds() -> impl Iterator<Item = (u32, f64, World)> {
    let all = EPOCHS.into_iter().flat_map(|n| DEVICES.map(|s| (n, s)));
    all.map(|(n, s)| (n, s, world(n, s)))
}

#[test]
fn a_prior_that_is_wrong_a_hundredfold_costs_a_few_batches_of_any_epoch() {
    let wrong = [0.01, 0.1, 10.0, 100.0];
    let of_one = wrong.iter().flat_map(|&x| [(1.0, x), (x, 1.0)]);
    let of_both = wrong.iter().flat_map(|&x| [(x, x), (x, 1.0 / x)]);
    let priors: Vec<_> = of_one.chain(of_both).collect();
    for (strategy, most) in [("ordered", MOST_LOST), ("relaxed", MOST_LOST_RELAXED)] {
        let mut worst: f64 = 0.0;
        for (n_batches, s, world) in worlds() {
            let truth = told(&world, strategy, (Some(1.0), Some(1.0)));
            let cpu = told(&world, "cpu", (None, None));
            for &(host, device) in &priors {
                let seconds = told(&world, strategy, (Some(host), Some(device)));
                let lost = seconds - truth;
                worst = worst.max(lost);
                let what = format!(
                    "{strategy}, {n_batches} batches, device {s}, told {host} and {device}: \
                     {lost:.1} batches lost of {truth:.1}, the host alone {cpu:.1}"
                );
                assert!(lost <= most, "{what}");
                assert!(seconds <= 1.01 * cpu + 0.1, "{what}");
            }
        }
        println!("{strategy}: {worst:.1} host batches lost at most");
    }
}

/// A device that is wrongly assumed to be too slow for the epoch gets one batch, which corrects it.
#[test]
fn a_device_is_not_shut_out_by_what_was_known_of_it() {
    for strategy in ["ordered", "relaxed"] {
        let mut world = world(100, 1.0);
        world.devices[0].prior = Some(1000.0);
        let outcome = play(&world, strategy);
        let by_device = outcome.back[0].delivered;
        assert!(by_device >= 40, "{strategy}: {by_device} of 100, {outcome:?}");
    }
}

/// A device that is indeed too slow costs nothing but its own work on this batch.
#[test]
fn a_device_that_is_known_to_be_too_slow_makes_one_batch_and_nobody_waits_for_it() {
    for strategy in ["ordered", "relaxed"] {
        for n_batches in [2, 30, 100] {
            let world = world(n_batches, 500.0);
            let outcome = play(&world, strategy);
            let cpu = play(&world, "cpu").seconds;
            assert_eq!(outcome.back[0].delivered, 0, "{strategy}: {outcome:?}");
            assert!(outcome.rescued <= 1, "{strategy}: {outcome:?}");
            assert!(outcome.seconds <= cpu * 1.01 + 0.1, "{strategy}: {outcome:?}");
        }
    }
}

/// The figures of docs/strategies.md, "What is known before an epoch".
#[test]
fn without_priors_the_first_batches_cost_little() {
    for strategy in ["ordered", "relaxed"] {
        for (n_batches, s, world) in worlds() {
            let truth = told(&world, strategy, (Some(1.0), Some(1.0)));
            let cost = told(&world, strategy, (None, None)) - truth;
            println!(
                "{strategy}, {n_batches} batches, device {s}: {cost:+.1} of {truth:.1}"
            );
            assert!(cost <= 5.0, "{strategy}, {n_batches}, {s}: {cost:.1} of {truth:.1}");
        }
    }
}
