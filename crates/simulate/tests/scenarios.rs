//! The results of a scenario, as text for people and as JSON for scripts.
#![allow(clippy::unwrap_used, reason = "tests")]

use bothends_core::epoch::Recovery;
use bothends_core::select::StrategyConfig;
use bothends_simulate::scenario::find;
use bothends_simulate::{Scenario, table};
use proptest::prelude::*;
use proptest::sample::select;

/// Integers and no noise, so that every figure can be checked by hand.
const BY_HAND: &str = r#"{
    "name": "by-hand", "about": "A host, a device half as fast, and no noise.",
    "steady": true, "batches": 30, "seeds": [1],
    "host": { "batch_s": 1, "workers": 1, "quota": 4, "cv": 0 },
    "devices": [{ "batch_s": 2, "cv": 0, "slots": 2, "buffer": 4 }],
    "accelerator": { "step_s": 0.25 },
    "power": {
        "name": "round", "about": "round numbers",
        "host_idle_w": { "value": 10, "source": "uncalibrated" },
        "host_worker_w": { "value": 10, "source": "uncalibrated" },
        "device_idle_w": { "value": 0, "source": "uncalibrated" },
        "device_busy_w": { "value": 5, "source": "uncalibrated" },
        "accelerator_idle_w": { "value": 0, "source": "uncalibrated" },
        "accelerator_busy_w": { "value": 100, "source": "uncalibrated" }
    }
}"#;

fn strategies(names: &[&str]) -> Vec<StrategyConfig> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

#[test]
fn the_table_of_a_small_scenario() {
    let scenario = Scenario::from_json("by-hand.json", BY_HAND).unwrap();
    let result = scenario.run(&strategies(&["cpu", "wrr"]), &mut |_| {});
    // The host alone: 30 s and the last step. Both: when 29 batches are made or being made,
    // the 30th already waits in the device's second slot, whose 11th it is: 22 s.
    let expected = "\
by-hand: A host, a device half as fast, and no noise.
30 batches · 1 device · 1 seed · bound 1.512
strategy  seconds  × cpu      η    idle    back  waiting  rescued  wasted  host CPU s     kJ
cpu         30.25  1.000  0.661  75.2 %   0.0 %        0        0       0       30.00  1.353
wrr         22.25  1.360  0.899  66.3 %  36.7 %        1        0       0       19.00  1.272
kJ of cpu: without devices, which draw power in all other rows
(modelled, virtual time; power model round)
";
    assert_eq!(table(&result), expected);
}

/// Otherwise a device would save what it costs by itself.
#[test]
fn the_host_alone_pays_for_no_devices() {
    let alone = r#""devices": []"#;
    let with = r#""devices": [{ "count": 16, "batch_s": 2, "cv": 0 }]"#;
    let json = BY_HAND
        .replace(r#""device_idle_w": { "value": 0"#, r#""device_idle_w": { "value": 5"#);
    let device = r#""devices": [{ "batch_s": 2, "cv": 0, "slots": 2, "buffer": 4 }]"#;
    let joules = |devices: &str| {
        let json = json.replace(device, devices);
        let scenario = Scenario::from_json("by-hand.json", &json).unwrap();
        let result = scenario.run(&strategies(&["cpu", "ordered"]), &mut |_| {});
        [0, 1].map(|i| result.strategies[i].1.joules.unwrap())
    };
    let ([alone, _], [cpu, ordered]) = (joules(alone), joules(with));
    assert!((alone - 1352.5).abs() < 1e-6, "{alone}");
    assert!((cpu - alone).abs() < 1e-6, "{cpu}");
    assert!(ordered > 16.0 * 5.0 * 2.0, "{ordered}");
}

#[test]
fn what_was_played_is_in_the_result_and_can_be_played_again() {
    let mut scenario = find("device-dies").unwrap();
    scenario.seeds = vec![4, 5, 6];
    for world in &mut scenario.ranks {
        world.objective = "host-cpu-cap=90".parse().unwrap();
        world.accelerator.known = false;
        world.host.prior = None;
        world.devices.iter_mut().for_each(|device| device.prior = None);
    }
    let result = scenario.run(&strategies(&["cpu", "ordered"]), &mut |_| {});
    let json = serde_json::to_value(&result).unwrap();
    assert_eq!(json["known"], "off");
    let file = &json["scenario"];
    assert_eq!(file["devices"][0]["faults"], serde_json::json!(["die@50%"]));
    assert_eq!(file["power"]["device_idle_w"]["value"], 5.0);
    let again = Scenario::from_json("again.json", &file.to_string()).unwrap();
    let again = again.run(&strategies(&["cpu", "ordered"]), &mut |_| {});
    assert_eq!(serde_json::to_value(&again).unwrap(), json);
}

#[test]
fn every_seed_has_a_result_and_their_spread_is_told() {
    let mut scenario = find("short-epoch-slow-device").unwrap();
    scenario.seeds = vec![7, 8, 9];
    let all = strategies(&["cpu", "ordered"]);
    let result = scenario.run(&all, &mut |_| {});
    let (_, ordered) = &result.strategies[1];
    let speedups: Vec<f64> =
        ordered.per_seed.iter().map(|seed| seed.speedup.unwrap()).collect();
    for (i, seed) in [7, 8, 9].into_iter().enumerate() {
        scenario.seeds = vec![seed];
        let alone = scenario.run(&all, &mut |_| {});
        let (_, alone) = &alone.strategies[1];
        assert_eq!(ordered.per_seed[i].seed, seed);
        assert_eq!(ordered.per_seed[i].seconds, alone.seconds);
        assert_eq!(ordered.per_seed[i].joules, alone.joules);
        assert_eq!(Some(speedups[i]), alone.speedup);
        assert_eq!(alone.sd.speedup, None, "one seed has no spread");
    }
    let mean = speedups.iter().sum::<f64>() / 3.0;
    let squares: f64 = speedups.iter().map(|one| (one - mean).powi(2)).sum();
    let sd = ordered.sd.speedup.unwrap();
    assert!(sd > 0.0 && (sd - (squares / 2.0).sqrt()).abs() < 1e-12, "{sd}");
    let text = table(&result);
    let told = format!("over the seeds is at most {sd:.4}\n");
    assert!(text.contains(&told), "{text}");
    assert!(result.strategies[0].1.sd.speedup == Some(0.0));
}

#[test]
fn the_keys_that_scripts_rely_on() {
    let scenario = Scenario::from_json("by-hand.json", BY_HAND).unwrap();
    let result = scenario.run(&strategies(&["ordered"]), &mut |_| {});
    let json = serde_json::to_value(&result).unwrap();
    assert_eq!(json["name"], "by-hand");
    assert_eq!(json["steady"], true);
    assert_eq!(json["batches"], 30);
    assert!((json["bound"].as_f64().unwrap() - 1.5125).abs() < 1e-9);
    let ordered = &json["strategies"]["ordered"];
    for key in [
        "speedup",
        "efficiency",
        "idle",
        "peak_waiting",
        "rescued",
        "wasted",
        "host_cpu_s",
        "joules",
        "seconds",
    ] {
        assert!(ordered[key].is_number(), "{key} in {ordered}");
    }
    assert_eq!(ordered["ended"], true);
    // The comparison is with `cpu`, which was not requested.
    assert!(json["strategies"].get("cpu").is_none());
    assert!(ordered["speedup"].as_f64().unwrap() > 1.3, "{ordered}");
}

#[test]
fn what_does_not_end_hangs_and_has_no_length() {
    let mut scenario = find("device-dies").unwrap();
    scenario.seeds = vec![1];
    for world in &mut scenario.ranks {
        world.n_batches = 500;
        world.recovery = Recovery::Off;
    }
    let result = scenario.run(&strategies(&["wrr"]), &mut |_| {});
    let text = table(&result);
    assert!(text.contains("recovery off · 1 seed · rates change, no bound"), "{text}");
    assert!(text.contains("\nwrr         hangs      –  –"), "{text}");
    let json = serde_json::to_value(&result).unwrap();
    assert_eq!(json["bound"], serde_json::Value::Null);
    let wrr = &json["strategies"]["wrr"];
    assert_eq!(wrr["ended"], false);
    for key in ["seconds", "speedup", "efficiency", "idle", "joules"] {
        assert!(wrr[key].is_null(), "{key} in {wrr}");
    }
    assert!(wrr["per_seed"][0]["seconds"].is_null(), "{wrr}");
}

#[test]
fn ranks_are_as_fast_as_the_one_without_a_device() {
    let mut scenario = find("ranks-unequal").unwrap();
    scenario.seeds = vec![1];
    scenario.ranks.iter_mut().for_each(|world| world.n_batches = 300);
    let result = scenario.run(&strategies(&["ordered"]), &mut |_| {});
    let speedup = result.strategies[0].1.speedup.unwrap();
    assert!((0.99..1.02).contains(&speedup), "{speedup}");
    assert_eq!((result.ranks, result.devices), (4, 4));
}

/// 20 steps of 10^9 s are more nanoseconds than a u64 holds, and so are the workers' together; and ranks
/// that wait for each other waited for a device that came and went all that time.
#[test]
fn times_of_a_billion_seconds_are_played() {
    let of = |replace: &[(&str, &str)]| {
        let mut json =
            BY_HAND.replace(r#""batches": 30"#, r#""batches": 20, "ranks": 2"#);
        for (from, to) in replace {
            assert!(json.contains(from), "{from}");
            json = json.replace(from, to);
        }
        let scenario = Scenario::from_json("long.json", &json).unwrap();
        scenario.run(&strategies(&["cpu", "ordered"]), &mut |_| {})
    };
    let step = (r#""step_s": 0.25"#, r#""step_s": 1e9"#);
    assert!(of(&[step]).strategies.iter().all(|(_, result)| result.seconds > Some(1e9)));
    let host = r#""host": { "batch_s": 5e6, "workers": 4096, "#;
    of(&[(r#""host": { "batch_s": 1, "workers": 1, "#, host)]);
    let absence =
        r#""slots": 2, "absence": { "first_s": 0, "for_s": 1e-9, "every_s": 1 }"#;
    let steady = (r#""steady": true"#, r#""steady": false"#);
    of(&[step, steady, (r#""slots": 2"#, absence)]);
}

/// One of the values at the ends of a key's range, or one between them.
fn ends(values: &[&'static str]) -> impl Strategy<Value = &'static str> + use<> {
    select(values.to_vec())
}

fn seconds() -> impl Strategy<Value = &'static str> {
    ends(&["1e-9", "1", "1e9"])
}

const COUNTS: [&str; 3] = ["1", "3", "4294967295"];
const BYTES: [&str; 3] = ["1", "1000", "18446744073709551615"];
const FAULTS: [&str; 10] = [
    "",
    r#""die@50%""#,
    r#""stall@10%""#,
    r#""stall@10%:1e9""#,
    r#""throttle@0%:1e-300""#,
    r#""throttle@0%:1e300""#,
    r#""slow-start", "late@100%""#,
    r#""corrupt@100%""#,
    r#""late@50%", "corrupt@50%""#,
    r#""die@0%""#,
];

prop_compose! {
    fn host()(
        batch_s in seconds(), workers in ends(&["1", "4096"]), quota in ends(&COUNTS),
        cv in ends(&["0", "0.1", "10"]), factor in ends(&["0.001", "1", "1000"]),
        first in ends(&COUNTS), bytes in ends(&BYTES), has_records in any::<bool>(),
    ) -> String {
        let records = format!(r#", "records": {{ "link": 0, "batch_bytes": {bytes} }}"#);
        let records = if has_records { records } else { String::new() };
        format!(
            r#"{{ "batch_s": {batch_s}, "workers": {workers}, "quota": {quota}, "cv": {cv},
                 "slowdown": {{ "first_batches": {first}, "factor": {factor} }}{records} }}"#
        )
    }
}

prop_compose! {
    fn device()(
        batch_s in seconds(), cv in ends(&["0", "10"]), slots in ends(&COUNTS),
        buffer in ends(&COUNTS), outputs in ends(&COUNTS), latency_s in ends(&["0", "1", "1e9"]),
        faults in select(FAULTS.to_vec()), first_s in ends(&["0", "1e9"]), for_s in seconds(),
        amplitude in ends(&["0", "0.99"]), period_s in seconds(), shard in ends(&["0", "9"]),
    ) -> String {
        let every_s = if for_s == "1e9" { ("1e8", "1e9") } else { (for_s, "1e9") };
        format!(
            r#"{{ "batch_s": {batch_s}, "cv": {cv}, "slots": {slots}, "buffer": {buffer},
                 "outputs": {outputs}, "latency_s": {latency_s}, "faults": [{faults}], "link": 0,
                 "absence": {{ "first_s": {first_s}, "for_s": {}, "every_s": {} }},
                 "drift": {{ "amplitude": {amplitude}, "period_s": {period_s} }},
                 "shard": {shard} }}"#,
            every_s.0, every_s.1
        )
    }
}

prop_compose! {
    fn at_the_ends()(
        host in host(), device in device(), ranks in 1..3_u32, bytes_per_s in ends(&BYTES),
        batch_bytes in ends(&BYTES), step_s in ends(&["0", "0.5", "1e9"]),
        poll_s in ends(&["0", "1e9"]), slope in ends(&["0", "0.99"]),
        recovery in ends(&["on", "off"]), known in any::<bool>(),
    ) -> String {
        format!(
            r#"{{ "name": "ends", "about": "x", "steady": false, "batches": 6, "seeds": [1],
                 "ranks": {ranks}, "host": {host}, "devices": [{device}],
                 "links": [{{ "bytes_per_s": {bytes_per_s} }}], "batch_bytes": {batch_bytes},
                 "accelerator": {{ "step_s": {step_s}, "poll_s": {poll_s} }}, "slope": {slope},
                 "recovery": "{recovery}", "known": {known} }}"#
        )
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 8, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Nanoseconds of values that are all within their ranges added up to more than a u64 holds.
    #[test]
    fn a_scenario_at_the_ends_of_its_ranges_is_played(json in at_the_ends()) {
        let scenario = Scenario::from_json("ends.json", &json).unwrap();
        let all: Vec<_> = StrategyConfig::all().map(|(_, strategy)| strategy).into();
        let results = scenario.run_epochs(2, &all, &mut |_| {});
        prop_assert_eq!(results.len(), 2);
    }
}
