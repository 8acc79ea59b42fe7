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
(modelled, virtual time; power model round)
";
    assert_eq!(table(&result), expected);
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
