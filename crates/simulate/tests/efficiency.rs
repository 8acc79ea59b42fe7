//! How close `ordered` and `relaxed` come to the sum of both prongs' rates when configured as in the
//! runtime: workers share a batch, a device holds two, few batches may wait.
#![allow(clippy::print_stdout, reason = "the figures are what a reader wants to see")]

mod worlds;

use bothends_core::select::StrategyConfig;
use bothends_simulate::World;
use worlds::{classic, ns, play};

/// The rate achieved, as a fraction of the rate of both prongs together.
fn efficiency(devices: &[f64], n_batches: u32, buffer: u32, strategy: &str) -> f64 {
    let mut world = classic(n_batches, devices.len(), 1.0, 0.05);
    world.host.parallel = 1;
    world.host.quota = buffer.max(3);
    world.host.prior = None;
    for (device, s) in world.devices.iter_mut().zip(devices) {
        device.batch_ns = ns(*s);
        device.slots = 2;
        device.buffer = buffer;
        device.prior = None;
    }
    let bound = 1.0 + devices.iter().map(|s| 1.0 / s).sum::<f64>();
    f64::from(n_batches) / play(&world, strategy).seconds / bound
}

#[test]
fn both_prongs_are_busy_all_the_time() {
    for strategy in ["ordered", "relaxed"] {
        for (devices, buffer, least) in [
            (&[4.26] as &[f64], 2, 0.97),
            (&[4.26], 4, 0.98),
            (&[4.26], 16, 0.98),
            (&[2.0], 4, 0.98),
            (&[1.0], 8, 0.97),
            (&[0.5], 16, 0.96),
            (&[4.26, 8.0, 20.0], 8, 0.98),
        ] {
            let got = efficiency(devices, 400, buffer, strategy);
            println!("{strategy} {devices:?} buffer {buffer}: {got:.3}");
            assert!(got >= least, "{strategy} {devices:?} buffer {buffer}: {got:.3}");
        }
    }
}

#[test]
fn a_short_epoch_still_gains() {
    for n_batches in [20, 50] {
        let gain = efficiency(&[4.26], n_batches, 4, "ordered") * (1.0 + 1.0 / 4.26);
        println!("{n_batches} batches: {gain:.3} times the host alone");
        assert!(gain > 1.05, "{n_batches} batches: {gain:.3}");
    }
}

/// The number of slots that a device is said to be able to use: more do not help. (Half as many may do
/// as well, because a quick device then has a lead and the host claims ahead.)
#[test]
fn with_a_whole_buffer_more_room_brings_nothing() {
    let devices = [0.125, 0.25, 0.5, 1.0, 2.0, 4.26, 20.0];
    for (s, n) in devices.into_iter().flat_map(|s| [(s, 1), (s, 3)]) {
        let seconds = |buffer| -> f64 {
            let mut world = classic(800, n, s, 0.02);
            (world.host.parallel, world.host.quota) = (1, 16);
            for device in &mut world.devices {
                (device.slots, device.buffer) = (2, buffer);
            }
            (1..=4)
                .map(|seed| play(&World { seed, ..world.clone() }, "ordered").seconds)
                .sum()
        };
        let whole = StrategyConfig::Ordered.whole_buffer(ns(1.0), ns(s), 2);
        let whole = whole.expect("it has a horizon");
        let [half, at, most] = [whole / 2, whole, 64].map(seconds);
        let (half, at) = (most / half, most / at);
        println!(
            "{n} devices of {s}, buffer {whole}: {at:.3} of the most; half: {half:.3}"
        );
        assert!(at >= 0.97, "{n} devices of {s}, buffer {whole}: {at:.3}");
    }
}
