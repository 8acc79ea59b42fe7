//! Many jobs on one pool: the results that `docs/pool-simulation.md` names, and that nothing is lost
//! whatever happens to the agents.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

use bothends_core::pool::lease::Policy;
use bothends_core::pool::size::SizeConfig;
use bothends_simulate::pool::{
    AgentModel, JobModel, Placement, PoolOutcome, PoolRow, PoolScenario, PoolWorld,
    Scaling, Variant, World, find, play, pool_table,
};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;

fn scenario(name: &str) -> PoolScenario {
    find(name).unwrap().unwrap()
}

/// The row of the variant that is named so.
fn row(name: &str, variant: &str) -> PoolRow {
    let mut scenario = scenario(name);
    scenario.variants.retain(|it| it.name() == variant);
    let mut rows = scenario.run().rows;
    rows.pop().unwrap_or_else(|| panic!("{name} has no `{variant}`"))
}

#[test]
fn what_was_played_can_be_played_again() {
    let played = PoolScenario { seeds: vec![9], ..scenario("pool-two-shares") }.run();
    let again = PoolScenario::from_json("again.json", &played.scenario.to_string());
    let again = again.unwrap().run();
    assert_eq!(
        serde_json::to_value(again).unwrap(),
        serde_json::to_value(played).unwrap()
    );
}

/// What each job got of the pool.
fn of_pool(name: &str, policy: Policy) -> Vec<u32> {
    let scenario = scenario(name);
    let World::Jobs(world) = &scenario.world else { panic!("{name} has no jobs") };
    let variant = Variant { policy, ..scenario.variants[0] };
    play(world, variant, 1).of_pool
}

#[test]
fn a_job_that_starves_gets_the_pool_next_to_jobs_that_are_fed() {
    let got = of_pool("pool-fed-and-starving", Policy::Need);
    let sum: u32 = got.iter().sum();
    assert!(f64::from(got[4]) >= 0.9 * f64::from(sum), "{got:?}");
    let row = row("pool-fed-and-starving", "by need");
    assert!(row.busy >= 0.99 && row.least.unwrap() >= 0.95, "{row:?}");
}

#[test]
fn the_median_of_two_seeds_is_between_them() {
    let of = |seeds: &[u64]| {
        let scenario =
            PoolScenario { seeds: seeds.to_vec(), ..scenario("pool-two-shares") };
        let rows = scenario.run().rows;
        (rows[0].batches_per_s, rows[0].least.unwrap())
    };
    let (first, second, both) = (of(&[1]), of(&[2]), of(&[1, 2]));
    assert_ne!(first, second, "any rule would do");
    assert!((both.0 - f64::midpoint(first.0, second.0)).abs() < 1e-9, "{both:?}");
    assert!((both.1 - f64::midpoint(first.1, second.1)).abs() < 1e-9, "{both:?}");
}

/// Its least share was infinite.
#[test]
fn of_jobs_that_need_no_pool_none_got_the_least() {
    let file = scenario("pool-two-shares").file.to_string();
    let fed = file.replace("\"host_batches_per_s\":5", "\"host_batches_per_s\":200");
    assert_ne!(fed, file);
    let mut scenario = PoolScenario::from_json("fed.json", &fed).unwrap();
    scenario.variants.truncate(1);
    let result = scenario.run();
    assert_eq!(result.rows[0].least, None);
    let table = pool_table(&result);
    assert!(table.contains(" – ") && !table.contains("inf"), "{table}");
}

#[test]
fn jobs_that_starve_get_at_least_0_95_of_their_fair_share() {
    let row = row("pool-two-shares", "by need");
    assert!(row.least.unwrap() >= 0.95 && row.jain >= 0.999, "{row:?}");
    let got = of_pool("pool-two-shares", Policy::Need);
    let light: u32 = got[..3].iter().sum();
    let heavy: u32 = got[3..].iter().sum();
    assert!((f64::from(heavy) / f64::from(light) - 2.0).abs() < 0.05, "{got:?}");
    // Without weights they would get the same.
    let got = of_pool("pool-two-shares", Policy::FirstCome);
    assert!(got[0].abs_diff(got[5]) <= 2, "{got:?}");
}

#[test]
fn equal_work_is_done_once() {
    let made_each = row("pool-same-work", "by need");
    let made_once = row("pool-same-work", "by need, results kept");
    assert!(made_once.fed >= 0.99 && made_each.fed <= 0.1, "{made_once:?}");
    let delivered = made_once.batches_per_s * 120.0;
    assert!(made_once.reused >= 0.93 * delivered, "15 of 16: {made_once:?}");
}

#[test]
fn a_pool_that_is_scaled_by_need_feeds_its_jobs_with_fewer_agents() {
    let fixed = row("pool-autoscaling", "first come");
    let by_need = row("pool-autoscaling", "by need, scaled by need");
    assert!(by_need.agents <= 0.2 * fixed.agents, "{by_need:?}");
    assert!(by_need.fed >= 0.99 * fixed.fed, "{by_need:?}");
    // Agents that wait for storage are not busy, and yet too few.
    let by_load = row("pool-autoscaling-storage", "first come, scaled by 70 % load");
    let by_need = row("pool-autoscaling-storage", "by need, scaled by need");
    assert!(by_need.ended_s.unwrap() < 1_000.0, "{by_need:?}");
    assert!(by_load.ended_s.is_none_or(|at| at > 2_000.0), "{by_load:?}");
}

#[test]
fn the_host_of_one_job_is_extended_until_its_accelerators_are_fed() {
    let ended = row("pool-scale-out", "by need").ended_s.unwrap();
    // 25,600 batches by the host alone, at 2 per second.
    assert!(12_800.0 / ended >= 30.0, "{ended}");
}

#[test]
fn agents_that_have_the_data_save_the_uplinks() {
    let anywhere = row("pool-local-data", "by need");
    let local = row("pool-local-data", "by need, local");
    assert!(local.fed >= 0.98 && anywhere.fed <= 0.5, "{local:?}");
}

#[test]
fn ranks_in_step_gain_the_more_the_more_they_are() {
    let rows = scenario("ranks-in-step").run().lockstep;
    let gains: Vec<f64> = rows.iter().map(|row| row.padded_gain()).collect();
    assert!(gains.is_sorted() && gains[0] >= 2.0, "{gains:?}");
    assert!(rows.iter().all(|row| row.sum_gain() >= 1.1), "{rows:?}");
    let table = pool_table(&scenario("ranks-in-step").run());
    assert!(table.contains("\nranks  sum: plan"), "{table}");
    let table = pool_table(&scenario("pool-two-shares").run());
    assert!(table.contains("\nby need         "), "{table}");
}

#[test]
fn a_large_pool_is_fair_and_in_time() {
    let row = row("pool-large", "by need");
    assert!(
        row.jain >= 0.99 && row.least.unwrap() >= 0.9 && row.missed <= 0.01,
        "{row:?}"
    );
}

// ---- whatever happens ---------------------------------------------------------------------

fn job() -> impl Strategy<Value = JobModel> {
    let times = (1_u64..200, prop::option::of(1_u64..400), 0_u64..20_000);
    (times, 1_u32..9, 1_u32..129, 1_u32..60, 0_u32..4).prop_map(
        |((step, host, from), weight, ahead, n_batches, work)| JobModel {
            step_ns: step * MILLI,
            host_ns: host.map(|host| host * MILLI),
            weight,
            ahead,
            batch_bytes: 1_000_000,
            record_bytes: 2_000_000,
            from_ns: from * MILLI,
            n_batches: Some(n_batches),
            work,
        },
    )
}

fn agents() -> impl Strategy<Value = AgentModel> {
    let failures = prop::option::of((20_u64..200, 0_u64..10));
    let present = prop::collection::vec((0_u64..30, 0_u32..20), 0..6);
    let times = (1_u64..500, 0_u64..500, 0_u64..3_000, 0_u64..2_000);
    let uplink = prop::option::of(1e7_f64..1e9);
    (1_u32..20, times, failures, present, (1_u32..9, uplink)).prop_map(
        |(
            n,
            (batch, wait, noticed, start),
            failures,
            mut present,
            (per_rack, uplink),
        )| {
            present.sort_unstable();
            // At the end there are some.
            present.push((40, n));
            AgentModel {
                n,
                batch_ns: batch * MILLI,
                wait_ns: wait * MILLI,
                cv: 0.3,
                failures: failures.map(|(mtbf, mttr)| (mtbf * SECOND, mttr * SECOND)),
                noticed_ns: noticed * MILLI,
                start_ns: start * MILLI,
                present: present
                    .into_iter()
                    .map(|(at, present)| (at * SECOND, present.min(n)))
                    .collect(),
                per_rack,
                uplink_bytes_per_s: uplink,
            }
        },
    )
}

fn variant() -> impl Strategy<Value = Variant> {
    let policy =
        prop::sample::select(vec![Policy::FirstCome, Policy::Fair, Policy::Need]);
    let placement = prop::sample::select(vec![Placement::Anywhere, Placement::Local]);
    let scaling = prop::sample::select(vec![
        Scaling::Fixed,
        Scaling::Need(SizeConfig::up_to(20)),
        Scaling::Load(0.7),
    ]);
    (policy, placement, scaling, 0_u32..30).prop_map(
        |(policy, placement, scaling, kept)| Variant { policy, placement, scaling, kept },
    )
}

fn delivered(world: &PoolWorld) -> u64 {
    world.jobs.iter().filter_map(|job| job.n_batches).map(u64::from).sum()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// A batch that comes twice is a panic; one that never comes, an epoch that does not end.
    #[test]
    fn every_job_gets_every_batch_once_whatever_happens_to_agents(
        jobs in prop::collection::vec(job(), 1..12),
        agents in agents(),
        variant in variant(),
        seed: u64,
    ) {
        let world = PoolWorld { for_ns: 20_000 * SECOND, jobs, agents };
        let outcome: PoolOutcome = play(&world, variant, seed);
        prop_assert_eq!(outcome.n_delivered, delivered(&world));
        prop_assert!(outcome.ended.is_some());
        let again = play(&world, variant, seed);
        prop_assert_eq!(outcome.of_pool, again.of_pool, "a seed is one outcome");
    }
}
