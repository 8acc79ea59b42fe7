//! How near `ordered` and `relaxed` come to the sum of both prongs' rates, set up as the
//! runtime is: workers share a batch, a device holds two, little may wait.
#![allow(clippy::print_stdout, reason = "the figures are what a reader wants to see")]

mod worlds;

use worlds::{classic, play};

/// The rate achieved, as a part of the rate of both prongs together.
fn efficiency(devices: &[f64], n_batches: u32, buffer: u32, strategy: &str) -> f64 {
    let mut world = classic(n_batches, devices.len(), 1.0, 0.05);
    world.host.parallel = 1;
    world.host.quota = buffer.max(3);
    world.host.known = false;
    for (device, s) in world.devices.iter_mut().zip(devices) {
        device.batch_ns = worlds::ns(*s);
        device.slots = 2;
        device.buffer = buffer;
        device.known = false;
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
