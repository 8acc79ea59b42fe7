//! The gain of a second prong, predicted from parts that were each measured alone, compared with the
//! epoch that follows. The prediction does not know the world: it gets the rates of two short epochs,
//! of the host alone and the device alone, with all their noise. The promise is 10 %
//! (`scripts/compare-doctor` does the same with clocks).

mod worlds;

use bothends_simulate::noise::Noise;
use bothends_simulate::sizing::{
    AcceleratorFigures, DeviceFigures, HostFigures, Interval, Question,
};
use bothends_simulate::{Device, Host, Power, World};
use worlds::{classic, ns, play};

const WORLDS: u64 = 300;
const BATCH_SIZE: u32 = 64;
/// Batches in each of doctor's measurements.
const MEASURED_BATCHES: u32 = 60;
const EPOCH_BATCHES: u32 = 1_500;
const PROMISED: f64 = 0.10;

/// A host, a device and an accelerator; times, noise and the bottleneck are random.
fn hidden(seed: u64) -> World {
    let mut noise = Noise::new(seed, 0);
    let mut spread = |low: f64, high: f64| low * (high / low).powf(noise.uniform());
    let host_s = spread(0.01, 0.5);
    let (of_host, step, cv) = (spread(0.05, 1.5), spread(0.2, 2.0), spread(0.01, 0.3));
    let device =
        Device { cv, slots: 2, buffer: 8, ..Device::steady(ns(host_s / of_host)) };
    let mut world = classic(EPOCH_BATCHES, 0, 1.0, host_s * step);
    world.host = Host { batch_ns: ns(host_s), parallel: 1, quota: 4, cv, ..world.host };
    World { devices: vec![device], seed, ..world }
}

/// Images per second of an epoch.
fn rate(world: &World, strategy: &str) -> f64 {
    let seconds = play(world, strategy).seconds;
    f64::from(world.n_batches) * f64::from(BATCH_SIZE) / seconds
}

/// What doctor would say from its measurements: each prong alone, with an accelerator that consumes
/// everything at once.
fn predicted(world: &World) -> (f64, &'static str) {
    let mut seen = World { n_batches: MEASURED_BATCHES, ..world.clone() };
    seen.accelerator.step_ns = 1;
    let answer = Question {
        host: HostFigures {
            workers: 1,
            processors: 1,
            images_per_s: rate(&seen, "cpu"),
            ends: Interval::exact(rate(&seen, "cpu")),
            cpu_ms_per_image: None,
            conditions: None,
            waits_for_storage: false,
            source: "measured".to_owned(),
        },
        device: DeviceFigures {
            name: "hidden".to_owned(),
            images_per_s: rate(&seen, "csd"),
            ends: Interval::exact(rate(&seen, "csd")),
            is_uncalibrated: false,
            link_images_per_s: None,
            receiving_cpu_ms_per_image: None,
            source: "measured".to_owned(),
        },
        accelerator: AcceleratorFigures {
            name: "known".to_owned(),
            images_per_s: f64::from(BATCH_SIZE) * 1e9 / world.accelerator.step_ns as f64,
        },
        batch_size: BATCH_SIZE,
        counts: vec![1],
        power: Power::named("cloud").expect("a power model of this repository"),
    }
    .answer();
    (answer.rows[1].images_per_s, answer.rows[1].strategy)
}

#[test]
fn what_is_predicted_from_parts_comes_through() {
    let mut wrong = Vec::new();
    for seed in 0..WORLDS {
        let world = hidden(seed);
        let (predicted, strategy) = predicted(&world);
        // Noise with a different seed than in the measurements.
        let epoch = World { seed: seed + WORLDS, ..world.clone() };
        let came = rate(&epoch, strategy);
        if (predicted / came - 1.0).abs() > PROMISED {
            wrong.push((predicted / came, seed, world));
        }
    }
    assert!(wrong.is_empty(), "{} of {WORLDS}: {wrong:?}", wrong.len());
}
