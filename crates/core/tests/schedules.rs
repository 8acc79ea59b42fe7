//! Promises 1 to 3 (exactly once, same bytes, same stream) under random schedules of whole
//! epochs: all strategies, all ranks, with everything that can happen to them.
//!
//! Here schedules are drawn and, when one breaks a promise, shrunk; what they mean and what
//! must hold is in `select/contract.rs`. One number, the seed, is one schedule forever.
//! `SCHEDULES` and `SCHEDULES_FROM` in the environment play more, or others, than a test run
//! does: `scripts/long-schedules` sets them.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "these functions are all tests; a panic is the report, a long run says how far \
              it is"
)]

use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use bothends_core::epoch::{DeviceConfig, FrontConfig, Standing};
use bothends_core::ids::EpochIdx;
use bothends_core::objective::{Objective, Percent};
use bothends_core::plan::{LastPolicy, PlanConfig, Shuffle};
use bothends_core::select::contract::{Device, Habit, Part, Schedule};
use bothends_core::select::{MteConfig, MteTime, StrategyConfig, WrrConfig, WrrWeight};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

/// What a test run plays: seven seconds of one core in the dev profile. The first hundred thousand found what there was
/// to find; `scripts/check-full` plays five times as many, from there on.
const N_SCHEDULES: u64 = 200_000;
/// The same of pools, which take longer: seconds.
const N_OF_POOLS: u64 = 5_000;
/// Seeds that a thread takes at once.
const SHARE: u64 = 1_000;
const MILLI: u64 = 1_000_000;

#[test]
fn every_promise_holds_in_every_schedule() {
    play_all(N_SCHEDULES, schedules);
}

#[test]
fn every_promise_holds_while_agents_of_a_pool_come_and_go() {
    play_all(N_OF_POOLS, schedules_of_pools);
}

fn play_all(n: u64, draw: fn() -> BoxedStrategy<Schedule>) {
    let first = number("SCHEDULES_FROM").unwrap_or(0);
    let seeds = first..first + number("SCHEDULES").unwrap_or(n);
    let Some(seed) = first_broken(&seeds, draw) else { return };
    // The first report has been printed; those on the way to the smallest would only bury it.
    panic::set_hook(Box::new(|_| {}));
    let smallest = shrink(seed, draw);
    let _ = panic::take_hook();
    panic!(
        "seed {seed} (SCHEDULES_FROM={seed} SCHEDULES=1) breaks a promise: {smallest}"
    );
}

fn number(key: &str) -> Option<u64> {
    let text = std::env::var(key).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{key}={text} is no number")))
}

// ---- playing ------------------------------------------------------------------------------

/// Plays all seeds on all cores, and says every few seconds how far it is; the first seed
/// that breaks a promise, if one does.
fn first_broken(
    seeds: &Range<u64>,
    draw: fn() -> BoxedStrategy<Schedule>,
) -> Option<u64> {
    let next = AtomicU64::new(seeds.start);
    let n_threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let (report, reports) = mpsc::channel();
        for _ in 0..n_threads {
            let (report, next) = (report.clone(), &next);
            scope.spawn(move || {
                while let Some(broken) = play_share(next, seeds.end, draw) {
                    if report.send(broken).is_err() || broken.is_some() {
                        // Nobody begins another share.
                        next.store(seeds.end, Ordering::Relaxed);
                        return;
                    }
                }
            });
        }
        drop(report);
        follow(seeds, &reports)
    })
}

/// The next share of seeds: `None` when there is none, else what it found.
fn play_share(
    next: &AtomicU64,
    end: u64,
    draw: fn() -> BoxedStrategy<Schedule>,
) -> Option<Option<u64>> {
    let first = next.fetch_add(SHARE, Ordering::Relaxed);
    let share = first..end.min(first.saturating_add(SHARE));
    if share.is_empty() {
        return None;
    }
    let strategy = draw();
    Some(share.into_iter().find(|&seed| {
        let schedule = tree(&strategy, seed).1.current();
        panic::catch_unwind(AssertUnwindSafe(|| schedule.play())).is_err()
    }))
}

fn follow(seeds: &Range<u64>, reports: &mpsc::Receiver<Option<u64>>) -> Option<u64> {
    let n = seeds.end - seeds.start;
    let begun = Instant::now();
    let mut said = begun;
    let (mut n_played, mut broken) = (0, None);
    loop {
        match reports.recv_timeout(Duration::from_secs(5)) {
            Ok(None) => n_played = n.min(n_played + SHARE),
            Ok(seed) => broken = broken.min(seed).or(seed),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if said.elapsed() >= Duration::from_secs(5) {
            said = Instant::now();
            let seconds = begun.elapsed().as_secs();
            eprintln!("{n_played} of {n} schedules in {seconds} s");
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let what = if broken.is_some() { "BROKEN" } else { "no promise broken" };
    eprintln!("seeds {} to {}: {what}, {seconds:.1} s", seeds.start, seeds.end - 1);
    broken
}

/// The smallest schedule that proptest finds to break a promise, and which.
fn shrink(seed: u64, draw: fn() -> BoxedStrategy<Schedule>) -> String {
    let (mut runner, tree) = tree(&draw(), seed);
    let result = runner.run_one(tree, |schedule| {
        schedule.play();
        Ok(())
    });
    match result {
        Err(TestError::Fail(why, schedule)) => format!("{why}\nin {schedule:#?}"),
        other => format!("not a second time: {other:?}"),
    }
}

/// The schedule of a seed, with the ways to make it smaller.
fn tree<S: Strategy>(strategy: &S, seed: u64) -> (TestRunner, S::Tree) {
    // Neighbours must not look similar to the generator: the bits are spread first (SplitMix64).
    let spread = |seed: u64| {
        let z = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)).to_le_bytes()
    };
    let bytes = [spread(seed), spread(!seed)].concat();
    let rng = TestRng::from_seed(RngAlgorithm::XorShift, &bytes);
    let config = Config {
        failure_persistence: None,
        max_shrink_iters: 50_000,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, rng);
    let tree = strategy.new_tree(&mut runner).unwrap();
    (runner, tree)
}

// ---- drawing ------------------------------------------------------------------------------

fn schedules() -> BoxedStrategy<Schedule> {
    let parts = prop_oneof![
        3 => prop::collection::vec(part(), 1),
        2 => prop::collection::vec(part(), 2..4),
    ];
    let all = (strategy(), plan(), parts);
    all.prop_map(|(strategy, plan, parts)| Schedule { strategy, plan, parts }).boxed()
}

/// Many agents that join and leave all the time, and ranks whose number changes in mid-epoch.
fn schedules_of_pools() -> BoxedStrategy<Schedule> {
    let joins_and_leaves = (0_u8..4).prop_map(|which| which << 4 | 15);
    let event = prop_oneof![1 => joins_and_leaves, 3 => any::<u8>()];
    let devices = prop::collection::vec(device(), 4..16);
    let events = prop::collection::vec(event, 0..320);
    let part = (part(), 1_u32..6, devices, events).prop_map(
        |(part, world, mut devices, events)| {
            for device in &mut devices {
                let shards = part.shards;
                device.config.shard = device.config.shard.filter(|shard| *shard < shards);
            }
            Part { world, devices, events, ..part }
        },
    );
    let plan = (plan(), 50_u64..300);
    let plan = plan.prop_map(|(plan, n_samples)| PlanConfig { n_samples, ..plan });
    let all = (strategy(), plan, prop::collection::vec(part, 1..4));
    all.prop_map(|(strategy, plan, parts)| Schedule { strategy, plan, parts }).boxed()
}

/// Each as it is by default, and some as they can be told to be: the epochs are too short for
/// the ten batches by which `mte` decides.
fn strategy() -> impl Strategy<Value = StrategyConfig> {
    let told = [
        StrategyConfig::Mte(MteConfig { calibration: 1, time: MteTime::Preprocess }),
        StrategyConfig::Mte(MteConfig { calibration: 3, time: MteTime::WithStep }),
        StrategyConfig::Wrr(WrrConfig { weight: WrrWeight::Fixed(3) }),
        StrategyConfig::Wrr(WrrConfig { weight: WrrWeight::ByRates }),
        StrategyConfig::OrderedBaseline,
    ];
    let default = StrategyConfig::all().map(|(_, strategy)| strategy);
    select(default.into_iter().chain(told).collect::<Vec<_>>())
}

fn plan() -> impl Strategy<Value = PlanConfig> {
    let last = prop_oneof![
        Just(LastPolicy::Drop),
        Just(LastPolicy::Pad),
        Just(LastPolicy::Wrap),
        Just(LastPolicy::Even)
    ];
    // A shuffled plan costs more than all the rest, and differs only in its numbers.
    let shuffle = prop_oneof![15 => Just(Shuffle::None), 1 => Just(Shuffle::Full)];
    let n_samples = prop_oneof![1_u64..20, 1_u64..100];
    (n_samples, 1_u32..4, shuffle, any::<u8>(), last).prop_map(
        |(n_samples, batch_size, shuffle, seed, last)| PlanConfig {
            n_samples: n_samples.max(u64::from(batch_size)),
            batch_size,
            shuffle,
            seed: u64::from(seed),
            epoch: EpochIdx(0),
            rank: 0,
            world: 1,
            last,
            consumers: 1,
            start: 0,
            repetitions: 1,
        },
    )
}

fn part() -> impl Strategy<Value = Part> {
    let world = prop_oneof![3 => Just(1_u32), 2 => 1_u32..4];
    let devices = prop::collection::vec(device(), 0..4);
    let events = prop::collection::vec(any::<u8>(), 0..160);
    let accelerator_ns = option::of(Just(3 * MILLI));
    let back_quota = option::weighted(0.3, 1_u32..24);
    let costs = (objective(), accelerator_ns, 0_u32..30, back_quota);
    (world, front(), devices, 0_u16..4, costs, events).prop_map(
        |(world, front, mut devices, shards, costs, events)| {
            let (objective, accelerator_ns, stop_after, back_quota) = costs;
            for device in &mut devices {
                device.config.shard = device.config.shard.filter(|shard| *shard < shards);
            }
            Part {
                world,
                front,
                devices,
                back_quota,
                shards,
                objective,
                accelerator_ns,
                stop_after,
                events,
            }
        },
    )
}

fn front() -> impl Strategy<Value = FrontConfig> {
    (1_u32..5, 1_u32..13, option::of(Just(5 * MILLI)))
        .prop_map(|(parallel, quota, prior_ns)| FrontConfig { parallel, quota, prior_ns })
}

fn device() -> impl Strategy<Value = Device> {
    let habit = select(vec![Habit::Answer, Habit::Fail, Habit::Keep]);
    let prior_ns = option::of((0_u64..50).prop_map(|milli| milli * MILLI));
    let shard = option::weighted(0.3, 0_u16..4);
    let standing = select(vec![Standing::New, Standing::Late, Standing::Proven]);
    (1_u32..5, 1_u32..13, prior_ns, shard, habit, standing).prop_map(
        |(slots, buffer, prior_ns, shard, habit, standing)| Device {
            config: DeviceConfig { slots, buffer, prior_ns, shard, standing },
            habit,
        },
    )
}

fn objective() -> impl Strategy<Value = Objective> {
    prop_oneof![
        2 => Just(Objective::Throughput),
        1 => Just(Objective::Energy),
        1 => (1_u8..=100).prop_map(|p| Objective::HostCpuCap(Percent::new(p).unwrap())),
    ]
}
