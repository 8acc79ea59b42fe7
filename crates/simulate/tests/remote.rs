//! What order costs over a long link: the results that `docs/strategies.md` names.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

use bothends_core::fetch::Hedge;
use bothends_core::ids::Ns;
use bothends_simulate::remote::{
    Delivery, Fault, RemoteScenario, RemoteWorld, fetch, find, remote_table,
};
use proptest::prelude::*;

const WINDOW: Delivery = Delivery::Ordered(1);
const ORDERED_2X: Delivery = Delivery::Ordered(2);
const ORDERED: Delivery = Delivery::Ordered(4);

fn scenario(name: &str) -> RemoteScenario {
    find(name).unwrap().unwrap()
}

#[test]
fn what_was_played_can_be_played_again() {
    let played =
        RemoteScenario { seeds: vec![9], ..scenario("long-link-black-hole") }.run();
    let again = RemoteScenario::from_json("again.json", &played.scenario.to_string());
    let again = again.unwrap().run();
    assert_eq!(
        serde_json::to_value(again).unwrap(),
        serde_json::to_value(played).unwrap()
    );
}

fn rate(scenario: &RemoteScenario, delivery: Delivery, hedge: Hedge, loss: f64) -> f64 {
    let cell = scenario.cell(delivery, hedge, loss);
    assert!(cell.failed < 0.5, "{delivery:?}: {cell:?}");
    cell.records_per_s
}

#[test]
fn order_costs_nothing_with_a_reorder_buffer_of_four_windows() {
    let link = scenario("long-link");
    assert_eq!(link.losses, [0.0, 0.001, 0.003, 0.01]);
    for loss in &link.losses {
        for hedge in [Hedge::Off, Hedge::On] {
            let rate = |delivery| rate(&link, delivery, hedge, *loss);
            let (ordered, unordered) = (rate(ORDERED), rate(Delivery::Unordered));
            assert!(ordered >= 0.97 * unordered, "{loss}: {ordered} against {unordered}");
            assert!(rate(ORDERED_2X) >= 0.9 * unordered, "{loss}");
            assert!(rate(WINDOW) <= 0.75 * unordered, "{loss}: why reorder at all?");
        }
    }
}

/// Medians of four measured runs; the bound on a connection's window was fitted to the last one.
#[test]
fn the_model_is_within_a_tenth_of_what_was_measured_without_loss() {
    let link = scenario("long-link");
    for (delivery, measured) in [
        (WINDOW, 153.0),
        (ORDERED_2X, 224.0),
        (ORDERED, 236.0),
        (Delivery::Unordered, 233.0),
    ] {
        let modelled = rate(&link, delivery, Hedge::Off, 0.0);
        assert!((0.9..1.1).contains(&(modelled / measured)), "{delivery:?}: {modelled}");
    }
}

#[test]
fn one_hedge_saves_an_epoch_from_a_black_hole() {
    let link = scenario("long-link-black-hole");
    let [off, on] = [Hedge::Off, Hedge::On].map(|hedge| link.cell(ORDERED, hedge, 0.0));
    assert!(on.records_per_s > 1.4 * off.records_per_s, "{on:?} against {off:?}");
    // Without it the consumer waits for the timeout.
    assert!(off.longest_gap_s > 3.0 && on.longest_gap_s < 1.3, "{on:?} against {off:?}");
    assert!(on.hedged < 10.0, "{on:?}");
}

#[test]
fn a_server_that_is_gone_for_two_seconds_fails_nothing() {
    let link = scenario("long-link-server-gone");
    for (loss, hedge) in [(0.0, Hedge::Off), (0.001, Hedge::On)] {
        let cell = link.cell(ORDERED, hedge, loss);
        assert!(cell.failed < 0.5 && cell.longest_gap_s < 4.0, "{cell:?}");
    }
}

#[test]
fn a_slow_link_is_used_fully_and_fails_nothing() {
    let mut world = scenario("long-link").world;
    (world.n_records, world.requests, world.ramp) = (600, 256, 1);
    world.network.bytes_per_s = 1.25e6;
    let outcome = fetch(&world);
    assert_eq!((outcome.n_delivered, outcome.counts.failed), (600, 0));
    // 256 records would be on their way for 22 s, and time out.
    assert!(outcome.window < 100, "{}", outcome.window);
    let bytes_per_s = outcome.counts.bytes * 1_000_000_000 / outcome.ended.0;
    assert!(bytes_per_s > 1_000_000, "{bytes_per_s}");
}

#[test]
fn the_table_says_what_was_played_and_that_it_is_modelled() {
    let mut link = scenario("long-link-server-gone");
    (link.seeds, link.world.n_records) = (vec![1], 200);
    let text = remote_table(&link.run());
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("long-link-server-gone: The same; "), "{text}");
    assert_eq!(
        lines[1],
        "200 records of 110 kB · 150 ms · 1000 Mb/s · 64 requests · 1 seed · records per second"
    );
    assert!(
        lines[2].starts_with("delivery         hedge  loss 0 %  loss 0.1 %"),
        "{text}"
    );
    assert!(lines[3].starts_with("in-order window  off "), "{text}");
    assert_eq!(lines[11], "(modelled, virtual time)");
}

fn worlds() -> impl Strategy<Value = RemoteWorld> {
    let fault = prop_oneof![
        Just(Fault::None),
        (0_u64..3_000).prop_map(|ms| Fault::BlackHole(Ns(ms * 1_000_000))),
        (0_u64..3_000, 0_u64..2_000).prop_map(|(from, length)| {
            Fault::Gone(Ns(from * 1_000_000), Ns((from + length) * 1_000_000))
        }),
    ];
    let numbers = (1_u32..150, 1_u32..40, 0_u64..200, 1e6..1e9, 0.0..0.03);
    let delivery =
        prop_oneof![Just(Delivery::Unordered), (1_u32..6).prop_map(Delivery::Ordered)];
    (numbers, fault, delivery, any::<u64>()).prop_map(
        |(numbers, fault, delivery, seed)| {
            let mut world = scenario("long-link").world;
            (world.n_records, world.requests) = (numbers.0, numbers.1);
            world.network.rtt_ns = numbers.2 * 1_000_000 + 1_000;
            (world.network.bytes_per_s, world.network.loss) = (numbers.3, numbers.4);
            (world.network.fault, world.delivery, world.seed) = (fault, delivery, seed);
            world.ramp = u32::try_from(seed % 3).unwrap();
            world
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Links of all kinds, with what a run must bear: each record once, in order where that is said.
    #[test]
    fn every_record_is_delivered_once_over_every_link(world in worlds()) {
        let outcome = fetch(&world);
        let mut delivered = outcome.delivered.clone();
        if world.delivery == Delivery::Unordered {
            delivered.sort_unstable();
        }
        let all: Vec<u64> = (0..u64::from(world.n_records)).collect();
        prop_assert_eq!(delivered, all);
        prop_assert_eq!(outcome.counts.failed, 0);
    }
}
