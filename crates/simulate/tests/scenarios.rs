//! The results of a scenario, as text for people and as JSON for scripts.
#![allow(clippy::unwrap_used, reason = "tests")]

use bothends_core::epoch::Recovery;
use bothends_core::select::StrategyConfig;
use bothends_simulate::scenario::find;
use bothends_simulate::{Scenario, table};

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
