//! Successive epochs, the next begun while one drains: each is complete, none waits forever, and in the
//! long run the prongs are not idle between them.

mod worlds;

use bothends_core::select::StrategyConfig;
use bothends_simulate::noise::Noise;
use bothends_simulate::{
    Absence, Device, Fault, Link, Outcome, World, simulate, simulate_epochs,
    simulate_epochs_of_ranks, simulate_ranks,
};
use worlds::{C_NS, classic, ns};

const WORLDS: u64 = 2_000;

/// One of a few, at random.
fn one_of<T: Copy, const N: usize>(noise: &mut Noise, from: [T; N]) -> T {
    let mut left = noise.uniform() * f64::from(u32::try_from(N).unwrap_or(1));
    for it in from {
        left -= 1.0;
        if left <= 0.0 {
            return it;
        }
    }
    from[N - 1]
}

fn fault(noise: &mut Noise, s: f64) -> Fault {
    let percent = one_of(noise, [0, 30, 99, 150]);
    let faults = [
        Fault::Die { percent },
        Fault::Stall { percent, ns: u64::MAX },
        Fault::Stall { percent, ns: ns(5.0 * s) },
        Fault::Throttle { percent, factor: 10.0 },
        Fault::SlowStart { batches: 5 },
        Fault::Late { percent: 10 },
        Fault::Corrupt { percent: 20 },
    ];
    one_of(noise, faults)
}

fn device(noise: &mut Noise) -> Device {
    let s = one_of(noise, [0.05, 0.3, 1.0, 5.0, 30.0]);
    let faults = if noise.happens(40) { vec![fault(noise, s)] } else { vec![] };
    let absence = Absence {
        first_ns: ns(one_of(noise, [0.0, 3.0])),
        for_ns: ns(4.0),
        every_ns: ns(10.0),
    };
    Device {
        slots: one_of(noise, [1, 2, 4]),
        buffer: one_of(noise, [1, 2, 8, 64]),
        cv: one_of(noise, [0.0, 0.1, 1.0]),
        faults,
        absence: noise.happens(15).then_some(absence),
        link: noise.happens(20).then_some(0),
        latency_ns: ns(one_of(noise, [0.0, 0.0, 2.0])),
        outputs: one_of(noise, [1, u32::MAX]),
        prior: one_of(noise, [None, Some(0.1), Some(1.0), Some(10.0)]),
        ..Device::steady(ns(s))
    }
}

fn world(seed: u64) -> World {
    let noise = &mut Noise::new(seed, 77);
    let n_batches = one_of(noise, [1, 2, 7, 40, 130]);
    let mut world = classic(n_batches, 0, 1.0, one_of(noise, [0.0, 0.2, 3.0]));
    let names = ["cpu", "csd", "mte", "wrr", "relaxed", "ordered"];
    world.strategy = one_of(noise, names).parse().unwrap_or(StrategyConfig::Ordered);
    world.objective =
        one_of(noise, ["throughput", "throughput", "energy", "host-cpu-cap=50"])
            .parse()
            .unwrap_or_default();
    world.host.parallel = one_of(noise, [1, 1, 4, 16]);
    world.host.quota = one_of(noise, [1, 3, 16]);
    world.host.prior = one_of(noise, [None, Some(1.0), Some(5.0)]);
    world.links = vec![Link { bytes_per_s: 1000 }];
    world.batch_bytes = 500;
    world.seed = seed;
    world.accelerator.known = noise.happens(50);
    let n_devices = one_of(noise, [0, 1, 1, 2, 5]);
    // Without a device, nobody would make anything under `csd`.
    world.devices = (0..n_devices).map(|_| device(noise)).collect();
    if let StrategyConfig::Mte(_) = world.strategy {
        world.devices.iter_mut().for_each(|device| device.buffer = u32::MAX);
    }
    world
}

#[test]
fn no_epoch_loses_or_repeats_a_batch_and_none_waits_for_ever() {
    for seed in 0..WORLDS {
        let world = world(seed);
        let outcomes = simulate_epochs(&world, 4);
        assert_eq!(outcomes.len(), 4, "{seed}: {outcomes:?} in {world:?}");
        for outcome in outcomes {
            let by_back: u32 = outcome.back.iter().map(|counts| counts.delivered).sum();
            let delivered = outcome.front.delivered + by_back;
            assert!(outcome.ended, "{seed}: {outcome:?} in {world:?}");
            assert_eq!((outcome.batches, delivered), (world.n_batches, world.n_batches));
            let keeps_order = world.strategy.keeps_order();
            assert!(!keeps_order || outcome.out_of_order == 0, "{seed}: {outcome:?}");
        }
    }
}

#[test]
fn one_epoch_of_one_is_what_it_is_alone() {
    for seed in 0..200 {
        let world = world(seed);
        assert_eq!(simulate_epochs(&world, 1), [simulate(&world)]);
        let ranks = [world.clone(), World { seed: seed + 1, ..world.clone() }];
        let alone = simulate_ranks(&ranks);
        assert_eq!(simulate_epochs_of_ranks(&ranks, 1), [alone]);
    }
    assert!(simulate_epochs_of_ranks(&[], 3).is_empty());
}

/// A steady world configured as in the runtime: workers share a batch, a device holds two.
fn steady(device_s: f64) -> World {
    let mut world = classic(60, 1, device_s, 0.01);
    world.host.parallel = 1;
    world.host.cv = 0.0;
    world.devices[0].cv = 0.0;
    world.devices[0].slots = 2;
    world
}

fn lasted(outcomes: &[Outcome]) -> f64 {
    outcomes.iter().map(|outcome| outcome.seconds).sum()
}

#[test]
fn the_next_epoch_is_made_while_one_drains_but_not_under_the_published_schemes() {
    let mut world = steady(3.0);
    // A consumer so slow that a host alone could make the whole next epoch in the meantime.
    world.accelerator.step_ns = 2 * C_NS;
    world.host.quota = 16;
    for (strategy, makes_ahead) in [
        ("cpu", true),
        ("relaxed", true),
        ("ordered", true),
        ("mte", false),
        ("wrr", false),
    ] {
        world.strategy = strategy.parse().expect("a strategy's name");
        let outcomes = simulate_epochs(&world, 3);
        // A first epoch's accelerator waits for its first batch.
        let waits = |outcome: &Outcome| outcome.idle * outcome.seconds > 0.5;
        let waited: Vec<bool> = outcomes.iter().map(waits).collect();
        assert_eq!(
            waited,
            [true, !makes_ahead, !makes_ahead],
            "{strategy}: {outcomes:?}"
        );
    }
}

#[test]
fn a_later_epoch_knows_the_rates_of_the_one_before() {
    let mut world = steady(0.5);
    world.strategy = "wrr".parse().expect("a strategy's name");
    let told = lasted(&simulate_epochs(&world, 4)[1..]);
    world.strategy = StrategyConfig::Ordered;
    world.host.prior = None;
    world.devices[0].prior = None;
    let outcomes = simulate_epochs(&world, 4);
    assert!(told > 0.0 && lasted(&outcomes[1..]) / 3.0 < outcomes[0].seconds);
}

/// The throughput of a device and a host together, as a fraction of the sum of each by itself: of the
/// first of twelve epochs, and the mean of the second to the eleventh, over eight seeds. Nothing is
/// known in advance, and there are as many slots as the runtime provides if there is memory.
fn of_both_rates(ratio: f64, n_batches: u32, parallel: u32) -> (f64, f64) {
    const SEEDS: u64 = 8;
    let mut world = classic(n_batches, 1, 1.0 / ratio, 0.001);
    world.host.parallel = parallel;
    world.host.prior = None;
    world.accelerator.known = false;
    (world.devices[0].slots, world.devices[0].prior) = (2, None);
    let (mut first, mut later) = (0.0, 0.0);
    for seed in 1..=SEEDS {
        let outcomes = simulate_epochs(&World { seed, ..world.clone() }, 12);
        assert_eq!(outcomes.len(), 12);
        first += outcomes[0].seconds;
        later += lasted(&outcomes[1..11]) / 10.0;
    }
    let ideal = 8.0 * f64::from(n_batches) / (1.0 + ratio);
    (ideal / first, ideal / later)
}

#[test]
fn both_prongs_give_their_sum_from_the_second_epoch_on_and_nearly_so_in_the_first() {
    for ratio in [0.2, 1.0, 3.0, 8.0, 20.0] {
        for n_batches in [40, 400] {
            let (first, later) = of_both_rates(ratio, n_batches, 1);
            let what = format!("{ratio}, {n_batches}: {first:.3}, then {later:.3}");
            assert!(first >= 0.90 && later >= 0.95, "{what}");
        }
    }
}

/// A batch takes such a host sixteen times as long; docs/strategies.md ("The lead of quick devices")
/// has the bounds of the rows that stay below 0.90 and 0.95.
#[test]
fn workers_that_make_a_batch_each_do_not_hold_up_a_quick_device() {
    for (ratio, n_batches, least_first, least_later) in [
        (0.2, 40, 0.60, 0.95),
        (1.0, 40, 0.66, 0.95),
        (3.0, 40, 0.66, 0.88),
        (8.0, 40, 0.86, 0.86),
        (20.0, 40, 0.90, 0.94),
        (0.2, 400, 0.90, 0.94),
        (1.0, 400, 0.90, 0.95),
        (3.0, 400, 0.90, 0.95),
        (8.0, 400, 0.88, 0.95),
        (20.0, 400, 0.90, 0.945),
    ] {
        let (first, later) = of_both_rates(ratio, n_batches, 16);
        let what = format!("{ratio}, {n_batches}: {first:.3}, then {later:.3}");
        assert!(first >= least_first && later >= least_later, "{what}");
    }
}
