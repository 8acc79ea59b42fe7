//! The throughput of both prongs together, as a fraction of the sum of each by itself: in the first
//! epoch of a run that knows no rates, and in later epochs, each prefetched while the previous one
//! drains.
//!
//!   cargo run --release -p bothends-simulate --example epochs
#![allow(clippy::print_stdout, reason = "a program that says what it measured")]

use bothends_core::epoch::Recovery;
use bothends_core::objective::Objective;
use bothends_core::select::StrategyConfig;
use bothends_simulate::{Accelerator, Device, Host, World, simulate_epochs};

/// The unit: the host's batch.
const HOST_NS: u64 = 1_000_000_000;
/// As many slots as the runtime provides if there is enough memory: for the host, and for a device.
const QUOTA: u32 = 16;
const BUFFER: u32 = 64;
const SEEDS: u32 = 8;
/// The last is not counted, because nothing is made after it.
const EPOCHS: u32 = 12;

fn main() {
    println!(
        "device ÷ host  devices  batches  workers  first η  later η  rescued  wasted"
    );
    for (ratio, batch_ns) in [
        ("0.2", 5 * HOST_NS),
        ("1", HOST_NS),
        ("3", HOST_NS / 3),
        ("8", HOST_NS / 8),
        ("20", HOST_NS / 20),
    ] {
        let lengths: &[u32] = if ratio == "1" { &[40, 400, 4_000] } else { &[40, 400] };
        for (n_devices, n_batches) in [1_u32, 3]
            .into_iter()
            .flat_map(|n| lengths.iter().map(move |length| (n, *length)))
        {
            for parallel in [1, 16] {
                let device_ns = batch_ns * u64::from(n_devices);
                let mut world = world(device_ns, n_batches, parallel);
                world.devices =
                    (0..n_devices).map(|_| world.devices[0].clone()).collect();
                let both = 1.0 + seconds(HOST_NS) / seconds(batch_ns);
                let row = efficiency(&world, both);
                println!(
                    "{ratio:>13}  {n_devices:>7}  {n_batches:>7}  {parallel:>7}  {row}"
                );
            }
        }
    }
}

/// For a world in which both prongs make `both` times as much as the host alone.
fn efficiency(world: &World, both: f64) -> String {
    let (mut first_s, mut later_s, mut n_later) = (0.0, 0.0, 0.0);
    let (mut rescued, mut wasted) = (0.0, 0.0);
    for seed in 1..=u64::from(SEEDS) {
        let outcomes = simulate_epochs(&World { seed, ..world.clone() }, EPOCHS);
        let later = &outcomes[1..outcomes.len() - 1];
        first_s += outcomes[0].seconds;
        for outcome in later {
            later_s += outcome.seconds;
            n_later += 1.0;
            rescued += f64::from(outcome.rescued);
            wasted += f64::from(outcome.wasted);
        }
    }
    let of_both = |seconds: f64| f64::from(world.n_batches) / seconds / both;
    format!(
        "{:>7.3}  {:>7.3}  {:>7.1}  {:>6.1}",
        of_both(first_s / f64::from(SEEDS)),
        of_both(later_s / n_later),
        rescued / n_later,
        wasted / n_later,
    )
}

fn seconds(ns: u64) -> f64 {
    std::time::Duration::from_nanos(ns).as_secs_f64()
}

/// A device (or several that share its rate) with two slots, next to a host whose workers share a batch or make one each. Nothing
/// is known in advance, and the accelerator is a thousand times as fast as the host.
fn world(batch_ns: u64, n_batches: u32, parallel: u32) -> World {
    let device = Device {
        slots: 2,
        buffer: BUFFER,
        cv: 0.1,
        prior: None,
        ..Device::steady(batch_ns)
    };
    World {
        n_batches,
        strategy: StrategyConfig::Ordered,
        objective: Objective::Throughput,
        recovery: Recovery::On,
        host: Host {
            batch_ns: HOST_NS,
            parallel,
            quota: QUOTA,
            cv: 0.1,
            slowdown: None,
            prior: None,
            records: None,
        },
        devices: vec![device],
        shards: 1,
        links: Vec::new(),
        batch_bytes: 0,
        accelerator: Accelerator { step_ns: HOST_NS / 1000, poll_ns: 0, known: false },
        slope: 0.0,
        seed: 0,
    }
}
