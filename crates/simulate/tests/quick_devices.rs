//! Devices that are many times as fast as a worker of the host, and then fail: neither what the host
//! left to them nor what it made ahead of them may make an epoch longer than with the host alone.
//!
//! Worlds are drawn by seed; `WORLDS` and `WORLDS_FROM` in the environment draw more, or others, than
//! a test run does.
#![allow(
    clippy::print_stdout,
    reason = "the worst worlds are what a reader wants to see"
)]

mod worlds;

use bothends_core::select::StrategyConfig;
use bothends_simulate::noise::Noise;
use bothends_simulate::{Fault, World, simulate_epochs};
use worlds::{classic, ns, play, speedup_over};

/// What a test run draws.
const WORLDS: u64 = 1_000;
/// The promise, as a fraction of the host alone.
const PROMISED: f64 = 0.99;
/// Epochs of a run.
const EPOCHS: u32 = 4;

/// A seeded source of worlds.
struct Dice(Noise);

impl Dice {
    fn one_of<T: Copy, const N: usize>(&mut self, choices: [T; N]) -> T {
        let mut left = self.0.uniform() * f64::from(u32::try_from(N).unwrap_or(1));
        for choice in choices {
            left -= 1.0;
            if left <= 0.0 {
                return choice;
            }
        }
        choices[N - 1]
    }

    /// A fault at one of these percents of the epoch's batches.
    fn fault<const N: usize>(&mut self, s: f64, percents: [u32; N]) -> Fault {
        let percent = self.one_of(percents);
        let faults = [
            Fault::Die { percent },
            Fault::Stall { percent, ns: u64::MAX },
            Fault::Stall { percent, ns: u64::MAX },
            Fault::Stall { percent, ns: ns(20.0 * s) },
            Fault::Throttle { percent, factor: 4.0 },
            Fault::Throttle { percent, factor: 30.0 },
            Fault::Late { percent: 10 },
        ];
        self.one_of(faults)
    }

    /// Devices two to twenty times as fast as the host, one of them or all faulty.
    fn world<const N: usize>(&mut self, percents: [u32; N]) -> World {
        let n_batches = self.one_of([40, 100, 200, 400, 1000]);
        let n_devices = self.one_of([1, 2, 3, 4]);
        let s = self.one_of([0.5, 0.33, 0.2, 0.125, 0.05]);
        let a = self.one_of([0.001, 0.05, 0.2, 0.5, 0.8, 0.95, 1.1]);
        let mut world = classic(n_batches, n_devices, s, a);
        (world.host.parallel, world.host.quota) =
            self.one_of([(1, 3), (1, 16), (2, 4), (4, 8), (8, 16), (16, 16), (16, 32)]);
        world.host.cv = self.one_of([0.0, 0.1]);
        world.accelerator.known = self.0.happens(50);
        let is_known = self.0.happens(50);
        world.host.prior = is_known.then_some(1.0);
        let fault = self.fault(s, percents);
        let (buffer, n_faulty) =
            (self.one_of([4, 8, 16, 64]), self.one_of([1, n_devices]));
        for (i, device) in world.devices.iter_mut().enumerate() {
            device.prior = is_known.then_some(1.0);
            (device.slots, device.buffer) = (2, buffer);
            if i < n_faulty {
                device.faults.push(fault);
            }
        }
        world
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |key: &str| std::env::var(key).ok()?.parse::<u64>().ok();
    let from = number("WORLDS_FROM").unwrap_or(0);
    from..from + number("WORLDS").unwrap_or(WORLDS)
}

fn dice(seed: u64) -> Dice {
    Dice(Noise::new(seed, 5))
}

fn report(slower: &mut [(f64, u64, String)]) -> Option<f64> {
    slower.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (ratio, seed, world) in slower.iter().take(40) {
        println!("{ratio:.4} of cpu in world {seed}: {world}");
    }
    println!("{} below", slower.len());
    slower.first().map(|worst| worst.0)
}

fn brief(world: &World) -> String {
    let d = &world.devices[0];
    let n_faulty = world.devices.iter().filter(|d| !d.faults.is_empty()).count();
    format!(
        "N={} host {}/{} cv={} prior={:?} a={} known={} {}x s={} buffer={} {n_faulty} faulty {:?}",
        world.n_batches,
        world.host.parallel,
        world.host.quota,
        world.host.cv,
        world.host.prior,
        world.accelerator.step_ns as f64 / 1e9,
        world.accelerator.known,
        world.devices.len(),
        d.batch_ns as f64 / 1e9,
        d.buffer,
        d.faults,
    )
}

#[test]
fn quick_devices_that_fail_make_no_epoch_longer_than_the_host_alone() {
    let mut slower = Vec::new();
    for seed in seeds() {
        let world = dice(seed).world([0, 5, 10, 25, 50, 75, 90, 99]);
        let ratio = play(&world, "cpu").seconds / play(&world, "ordered").seconds;
        let ratio = if ratio < PROMISED {
            speedup_over(1..=16, &world, "ordered")
        } else {
            ratio
        };
        if ratio < PROMISED {
            slower.push((ratio, seed, brief(&world)));
        }
    }
    let worst = report(&mut slower);
    assert!(worst.is_none(), "{worst:?}");
}

/// The length of a run of epochs, relative to the host alone.
fn of_host_alone(world: &World) -> f64 {
    let seconds = |strategy: StrategyConfig| -> f64 {
        let run = |seed| {
            let outcomes =
                simulate_epochs(&World { seed, strategy, ..world.clone() }, EPOCHS);
            assert!(outcomes.iter().all(|outcome| outcome.ended), "{world:?}");
            outcomes.iter().map(|outcome| outcome.seconds).sum::<f64>()
        };
        (1..=4).map(run).sum()
    };
    seconds(StrategyConfig::Cpu) / seconds(StrategyConfig::Ordered)
}

/// Faults happen in any of the first three epochs, and while one epoch drains and the next begins.
#[test]
fn nor_a_run_of_epochs() {
    let mut slower = Vec::new();
    for seed in seeds() {
        let world = dice(seed).world([50, 99, 101, 110, 150, 199, 205, 250, 299, 350]);
        let ratio = of_host_alone(&world);
        if ratio < PROMISED {
            slower.push((ratio, seed, brief(&world)));
        }
    }
    let worst = report(&mut slower);
    assert!(worst.is_none(), "{worst:?}");
}
