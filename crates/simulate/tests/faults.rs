//! Whatever a device does, the host alone would not have been faster by more than one percent; and
//! without recovery, the published schemes wait forever.
#![allow(clippy::unwrap_used, reason = "a test's own numbers")]

mod worlds;

use bothends_core::epoch::Recovery;
use bothends_simulate::{Fault, Outcome, World, simulate};
use worlds::{C_NS, classic, ns, play, speedup_over};

/// Host workers that make batches in parallel, and the host's quota. With 1, the workers share each
/// batch, as in the runtime.
const HOSTS: [(u32, u32); 5] = [(1, 3), (1, 4), (1, 8), (2, 4), (8, 16)];

/// Everything that can happen to a device: early, in the middle and late.
fn faults(s: f64) -> Vec<Fault> {
    let timed = [0, 50, 99].into_iter().flat_map(|percent| {
        [
            Fault::Die { percent },
            Fault::Stall { percent, ns: u64::MAX },
            Fault::Stall { percent, ns: ns(5.0 * s) },
            Fault::Throttle { percent, factor: 4.0 },
            Fault::Throttle { percent, factor: 30.0 },
        ]
    });
    let always = [
        Fault::SlowStart { batches: 10 },
        Fault::Late { percent: 10 },
        Fault::Corrupt { percent: 20 },
        Fault::Corrupt { percent: 100 },
    ];
    timed.chain(always).collect()
}

/// A world in which nothing is known in advance.
fn unknown(n_batches: u32, (parallel, quota): (u32, u32), s: f64, a: f64) -> World {
    let mut world = classic(n_batches, 1, s, a);
    world.host.parallel = parallel;
    world.host.quota = quota;
    world.host.prior = None;
    world.accelerator.known = false;
    world.devices[0].prior = None;
    world.devices[0].slots = 2;
    world.devices[0].buffer = 8;
    world
}

/// Over several seeds if one does not show it: the noise of 200 batches is one percent.
fn assert_never_slower(world: &World, strategy: &str) -> Outcome {
    let other = play(world, strategy);
    if play(world, "cpu").seconds / other.seconds < 0.99 {
        let ratio = speedup_over(1..=16, world, strategy);
        assert!(ratio >= 0.99, "{strategy}: {ratio:.4} of cpu in {world:?}: {other:?}");
    }
    other
}

#[test]
fn a_silent_device_costs_less_than_one_percent() {
    for (host, n_batches) in
        HOSTS.into_iter().flat_map(|host| [(host, 200), (host, 1000)])
    {
        // Two seconds, after which a device is given up, are 2 batches or 200.
        for (scale, n_devices) in [(1, 1), (100, 1), (100, 3)] {
            let mut world = unknown(n_batches, host, 3.33, 0.2);
            world.host.batch_ns = C_NS / scale;
            world.accelerator.step_ns /= scale;
            let silent = Fault::Stall { percent: 0, ns: u64::MAX };
            world.devices[0].faults.push(silent);
            world.devices = vec![world.devices[0].clone(); n_devices];
            for strategy in ["ordered", "relaxed"] {
                let outcome = assert_never_slower(&world, strategy);
                assert_eq!(outcome.front.delivered, n_batches);
                assert_eq!(outcome.rescued as usize, n_devices);
            }
        }
    }
}

#[test]
fn no_fault_makes_ordered_slower_than_the_host_alone() {
    for host in HOSTS {
        for s in [0.5, 1.0, 3.33, 20.0, 60.0, 200.0] {
            for fault in faults(s) {
                for (a, n_devices) in [(0.2, 1), (0.95, 3)] {
                    let mut world = unknown(200, host, s, a);
                    world.devices[0].faults.push(fault);
                    world.devices = vec![world.devices[0].clone(); n_devices];
                    assert_never_slower(&world, "ordered");
                    world.devices.iter_mut().for_each(|device| device.prior = Some(1.0));
                    assert_never_slower(&world, "ordered");
                }
            }
        }
    }
}

#[test]
fn every_strategy_survives_every_fault() {
    for strategy in ["csd", "mte", "wrr", "relaxed", "ordered"] {
        for fault in faults(3.33) {
            let mut world = unknown(150, (1, 4), 3.33, 0.7);
            world.devices = vec![world.devices[0].clone(); 2];
            world.devices[0].faults.push(fault);
            let outcome = play(&world, strategy);
            let by_prong: u32 = outcome.back.iter().map(|counts| counts.delivered).sum();
            assert_eq!(outcome.front.delivered + by_prong, 150, "{strategy} {fault:?}");
        }
    }
}

#[test]
fn what_is_left_of_a_lost_device_s_part_is_made_by_the_host() {
    let mut world = unknown(200, (1, 4), 4.26, 0.2);
    world.devices[0].faults.push(Fault::Die { percent: 50 });
    let outcome = play(&world, "csd");
    assert!(outcome.back[0].delivered >= 90, "{outcome:?}");
    assert!(outcome.front.delivered >= 90, "{outcome:?}");
    assert!(outcome.back[0].lost >= 1, "{outcome:?}");
}

#[test]
fn without_recovery_the_published_schemes_hang() {
    for strategy in ["mte", "wrr"] {
        let mut world = classic(500, 1, 3.33, 0.7);
        world.devices[0].faults.push(Fault::Die { percent: 5 });
        world.strategy = strategy.parse().unwrap();
        world.recovery = Recovery::Off;
        let outcome = simulate(&world);
        assert!(!outcome.ended, "{strategy}: {outcome:?}");
        assert!(play(&World { recovery: Recovery::On, ..world }, strategy).ended);
    }
}

#[test]
fn without_recovery_a_throttled_device_makes_mte_slower_than_the_host_alone() {
    let mut world = classic(5005, 1, 3.33, 0.2);
    world.devices[0].faults.push(Fault::Throttle { percent: 30, factor: 2.0 });
    world.recovery = Recovery::Off;
    let ratio = play(&world, "cpu").seconds / play(&world, "mte").seconds;
    assert!(ratio < 0.9, "{ratio:.3}");
}

#[test]
fn the_same_world_has_the_same_outcome() {
    let mut world = unknown(300, (2, 4), 3.33, 0.7);
    world.devices[0].faults.push(Fault::Late { percent: 20 });
    assert_eq!(simulate(&world), simulate(&world));
}
