//! What the objectives do to the host's share, compared with the optimum of a linear programme: with an
//! accelerator that consumes a batch in `a` and devices that together make `D` batches per unit of
//! time, the host must make `max(0, 1 - a·D)` of the batches.
#![allow(clippy::unwrap_used, reason = "a test's own numbers")]
#![allow(clippy::print_stdout, reason = "the figures are what a reader wants to see")]

mod worlds;

use bothends_core::objective::{Objective, Percent};
use bothends_simulate::{Outcome, World};
use worlds::{classic, ns, play};

const N: u32 = 5005;

/// How much throughput may be given up for energy.
const LOSS: f64 = 0.005;

fn under(objective: Objective, world: &World, strategy: &str) -> Outcome {
    play(&World { objective, ..world.clone() }, strategy)
}

/// Worlds in which the accelerator is the bottleneck: the devices' batch times and the accelerator's
/// step, in host batches.
fn accelerator_bound() -> Vec<(String, World, f64)> {
    let cases: [(&[f64], f64); 8] = [
        (&[3.33], 0.85),
        (&[3.33], 1.1),
        (&[0.6], 0.7),
        (&[0.5], 0.9),
        (&[2.0, 4.0], 0.8),
        (&[4.0, 4.0, 4.0, 4.0], 0.95),
        (&[10.0; 8], 0.7),
        (&[20.0; 8], 1.5),
    ];
    cases
        .into_iter()
        .map(|(devices, a)| {
            let mut world = classic(N, devices.len(), 1.0, a);
            for (device, s) in world.devices.iter_mut().zip(devices) {
                device.batch_ns = ns(*s);
                device.buffer = 32;
            }
            let rate: f64 = devices.iter().map(|s| 1.0 / s).sum();
            (format!("{devices:?}, a = {a}"), world, (1.0 - a * rate).max(0.0))
        })
        .collect()
}

#[test]
fn energy_leaves_the_host_what_no_device_can_make() {
    for (name, world, least) in accelerator_bound() {
        for strategy in ["ordered", "relaxed"] {
            let fast = under(Objective::Throughput, &world, strategy);
            let lean = under(Objective::Energy, &world, strategy);
            let share =
                f64::from(lean.front.delivered + lean.front.wasted) / f64::from(N);
            println!(
                "{name}, {strategy}: host makes {share:.4}, least {least:.4} \
                 ({:.4} for throughput); {:.4} times as long",
                f64::from(fast.front.delivered) / f64::from(N),
                lean.seconds / fast.seconds
            );
            assert!(lean.seconds <= fast.seconds * (1.0 + LOSS), "{name}, {strategy}");
            // One percent of the epoch: the devices have nothing ready when it begins.
            assert!(share <= least + 0.01, "{name}, {strategy}: {share:.4}, {least:.4}");
        }
    }
}

/// If the prongs are the bottleneck, nothing can be saved without loss.
#[test]
fn energy_costs_nothing_where_the_accelerator_waits() {
    for (s, a) in [(3.33, 0.2), (3.33, 0.7), (0.5, 0.2)] {
        let mut world = classic(N, 1, s, a);
        world.devices[0].buffer = 32;
        for strategy in ["ordered", "relaxed"] {
            let fast = under(Objective::Throughput, &world, strategy);
            let lean = under(Objective::Energy, &world, strategy);
            assert!(lean.seconds <= fast.seconds * 1.005, "{strategy}, s = {s}, a = {a}");
        }
    }
}

#[test]
fn a_cap_on_the_host_is_kept_and_used() {
    for (percent, parallel) in [(10, 8), (30, 8), (50, 1), (50, 8), (80, 4), (100, 8)] {
        for (s, a) in [(3.33, 0.2), (0.8, 0.3)] {
            let mut world = classic(2000, 1, s, a);
            world.host.parallel = parallel;
            world.devices[0].buffer = 32;
            let cap = Objective::HostCpuCap(Percent::new(percent).unwrap());
            for strategy in ["ordered", "relaxed", "wrr", "cpu"] {
                let outcome = under(cap, &world, strategy);
                let of_workers = outcome.seconds * f64::from(parallel);
                let used = outcome.host_cpu_s / of_workers;
                let cap = f64::from(percent) / 100.0;
                println!("{strategy}, s = {s}, cap {cap}: used {used:.4}");
                assert!(used <= cap + 0.02, "{strategy}: {used:.4} of {cap}");
                // Nothing else limits the host here.
                assert!(used >= cap - 0.03, "{strategy}: {used:.4} of {cap}");
            }
        }
    }
}
