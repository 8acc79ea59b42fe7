//! How a pool's size follows its demand: by hand, under noise, and whatever is measured.

use proptest::prelude::*;

use super::*;
use crate::philox::{philox4x32_10, words};

const ALL: Bounds = Bounds { min: 0, max: u32::MAX };

fn job(consumer: f64, host: f64) -> Need {
    Need { consumer, host }
}

/// Consumer rate, host rate, rate of an agent, margin in percent; agents by hand.
const BY_HAND: [(f64, f64, f64, f64, u32); 6] = [
    (7144.0, 2000.0, 500.0, 0.1, 12), // (7858.4 - 2000) / 500 = 11.7
    (7144.0, 7858.4, 500.0, 0.1, 0),
    (7144.0, 7000.0, 500.0, 0.1, 2), // 858.4 / 500
    (1000.0, 0.0, 100.0, 0.0, 10),
    (1000.0, 0.0, 100.0, 0.1, 11), // not 12: 1000 * 1.1 is a little more than 1100
    (0.0, 100.0, 100.0, 0.1, 0),
];

#[test]
fn the_size_is_the_demand_divided_by_the_rate_of_an_agent() {
    for (consumer, host, agent, margin, expected) in BY_HAND {
        let demand = demand(&[job(consumer, host)], margin);
        assert_eq!(wanted(demand, Some(agent), ALL), expected, "{consumer} {host}");
    }
}

#[test]
fn jobs_are_summed_and_one_that_is_fed_lends_nothing() {
    let (starving, fed) = (job(1000.0, 200.0), job(100.0, 5000.0));
    assert!((demand(&[starving, fed, starving], 0.0) - 1600.0).abs() < 1e-9);
}

#[test]
fn a_rate_that_is_none_counts_as_zero() {
    for bad in [f64::NAN, f64::INFINITY, -5.0] {
        assert!(demand(&[job(bad, 0.0)], 0.1) == 0.0);
        assert!(demand(&[job(10.0, bad)], 0.0) == 10.0);
        assert_eq!(wanted(10.0, Some(bad), ALL), 1);
        let mut pool = PoolSize::new(SizeConfig::up_to(10), 0);
        assert_eq!(pool.observe(&[job(10.0, bad)], Some(bad), Ns(0)), 1);
    }
    assert_eq!(wanted(f64::MAX, Some(f64::MIN_POSITIVE), ALL), u32::MAX);
}

#[test]
fn one_agent_finds_out_what_an_agent_makes() {
    let mut pool = PoolSize::new(SizeConfig::up_to(100), 0);
    let needs = [job(1000.0, 0.0)];
    assert_eq!(pool.observe(&needs, None, Ns(0)), 1);
    assert_eq!(pool.observe(&needs, None, Ns(60 * SECOND)), 1);
    assert_eq!(pool.observe(&needs, Some(100.0), Ns(61 * SECOND)), 4);
    assert_eq!(pool.observe(&needs, Some(100.0), Ns(71 * SECOND)), 11);
}

#[test]
fn a_pool_for_which_nobody_waits_ends_at_its_minimum() {
    for min in [0, 3] {
        let mut config = SizeConfig::up_to(100);
        config.bounds.min = min;
        let mut pool = PoolSize::new(config, 50);
        for needs in [&[][..], &[job(0.0, 0.0)], &[job(100.0, 200.0)]] {
            pool.size = 50;
            let ends: Vec<u32> = (0..200)
                .map(|s| pool.observe(needs, Some(10.0), Ns(s * SECOND)))
                .collect();
            assert_eq!(ends[199], min, "{needs:?}");
        }
    }
}

#[test]
fn a_pool_outside_its_bounds_is_brought_inside() {
    let mut pool = PoolSize::new(SizeConfig::up_to(10), 50);
    assert_eq!(pool.observe(&[job(1e6, 0.0)], Some(1.0), Ns(0)), 10);
    let contradiction = Bounds { min: 9, max: 4 };
    assert_eq!(contradiction.clamp(100), 4);
}

/// Uniform in 1 ± `noise`.
fn noisy(value: f64, noise: f64, seed: u64, draw: u32) -> f64 {
    let word = philox4x32_10([draw, 0, 0, 0], words(seed))[0];
    let unit = f64::from(word) / f64::from(u32::MAX);
    value * (unit * 2.0 - 1.0).mul_add(noise, 1.0)
}

/// Sizes of a pool that is asked each second, with ±10 % on each rate.
fn sizes(job: Need, agent_rate: f64, seed: u64, n: u32) -> Vec<u32> {
    let mut pool = PoolSize::new(SizeConfig::up_to(100_000), 0);
    let observe = |at: u32| {
        let rate = |value, draw| noisy(value, 0.1, seed, at * 4 + draw);
        let need = Need { consumer: rate(job.consumer, 0), host: rate(job.host, 1) };
        let now = Ns(u64::from(at) * SECOND);
        pool.observe(&[need], Some(rate(agent_rate, 2)), now)
    };
    (0..n).map(observe).collect()
}

proptest! {
    #[test]
    fn noise_of_ten_percent_does_not_make_it_oscillate(
        consumer in 100.0_f64..100_000.0,
        host in 0.0_f64..1.2,
        agents in 0.5_f64..500.0,
        seed: u64,
    ) {
        let need = Need { consumer, host: consumer * host };
        let sizes = sizes(need, consumer / agents, seed, 3_000);
        // It settles in ten minutes. A rare excess may still add an agent; none comes and goes.
        let settled = &sizes[600..];
        let steps = settled.windows(2).map(|pair| pair[0].cmp(&pair[1]));
        let shrunk = steps.filter(|step| step.is_gt()).count();
        prop_assert!(shrunk <= 1, "shrinks {shrunk} times");
        let (least, most) = (settled.iter().min(), settled.iter().max());
        let (least, most) = (f64::from(*least.unwrap()), f64::from(*most.unwrap()));
        prop_assert!(most - least <= 0.1 * agents + 1.0, "from {least} to {most}");
    }

    #[test]
    fn it_covers_the_demand_and_does_not_waste(
        consumer in 100.0_f64..100_000.0,
        host in 0.0_f64..1.0,
        agents in 0.5_f64..500.0,
        seed: u64,
    ) {
        let need = Need { consumer, host: consumer * host };
        let agent_rate = consumer / agents;
        let end = f64::from(*sizes(need, agent_rate, seed, 600).last().unwrap());
        let least = (need.consumer - need.host) / agent_rate;
        // Half of the margin is enough for what noise leaves of an average.
        prop_assert!(end * agent_rate + need.host >= consumer * 1.05, "{end} for {least}");
        prop_assert!(end <= (least + 0.35 * agents + 2.0).ceil(), "{end} for {least}");
    }

    #[test]
    fn a_constant_demand_is_reached_in_bounded_steps(
        demand in 1.0_f64..100_000.0, start in 0_u32..2_000, max in 1_u32..200_000,
    ) {
        let config = SizeConfig::up_to(max);
        let mut pool = PoolSize::new(config, start);
        let mut now = Ns(0);
        let goal = wanted(demand * 1.1, Some(1.0), config.bounds);
        let mut steps = 0;
        while pool.observe(&[job(demand, 0.0)], Some(1.0), now) < goal {
            now = now.plus(config.cool_down_ns);
            steps += 1;
        }
        // 4, 16, ... 262,144.
        prop_assert!(steps <= 9, "{steps} steps to {goal}");
        prop_assert!(pool.size() <= max);
    }

    #[test]
    fn more_demand_never_means_fewer_agents(
        needs in prop::collection::vec((0.0_f64..1e5, 0.0_f64..1e5), 0..20),
        agent_rate in 0.1_f64..1e4,
        more in 0.0_f64..1e5,
        which: usize,
    ) {
        let mut needs: Vec<Need> = needs.into_iter().map(|(c, f)| job(c, f)).collect();
        let of = |needs: &[Need], rate| wanted(demand(needs, 0.1), Some(rate), ALL);
        let before = of(&needs, agent_rate);
        prop_assert!(of(&needs, agent_rate * 2.0) <= before, "a faster agent");
        needs.push(job(more, 0.0));
        prop_assert!(of(&needs, agent_rate) >= before, "another job");
        let at = which % needs.len();
        let with_job = of(&needs, agent_rate);
        needs[at].host += more;
        prop_assert!(of(&needs, agent_rate) <= with_job, "a faster host");
    }

    #[test]
    fn it_stays_within_its_bounds_whatever_is_measured(
        seen in prop::collection::vec((any::<f64>(), any::<f64>(), any::<f64>(), 0..100_u64), 1..80),
        min in 0_u32..10, more in 0_u32..100, start: u32,
    ) {
        let mut config = SizeConfig::up_to(min + more);
        config.bounds.min = min;
        let mut pool = PoolSize::new(config, start);
        let mut now = Ns(0);
        for (consumer, host, agent, pause) in seen {
            now = now.plus(pause * SECOND);
            let size = pool.observe(&[job(consumer, host)], Some(agent), now);
            prop_assert!((min..=min + more).contains(&size), "{size}");
        }
    }
}
