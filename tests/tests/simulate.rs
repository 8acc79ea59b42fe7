//! `bothends simulate` and `doctor --json` as a person and a script meet them: what is
//! printed, the keys of the JSON, one clear line for bad input, and the exit status.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Result, ensure};
use bothends_tests::{generated, programs};
use serde_json::{Value, json};

fn bothends(args: &[&str]) -> Result<Output> {
    let mut command = Command::new(programs::program("bothends")?);
    programs::run(command.args(args), Duration::from_secs(120))
}

fn simulate(args: &[&str]) -> Result<Output> {
    bothends(&[&["simulate"], args].concat())
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refuses(args: &[&str], status: i32, line: &str) -> Result<()> {
    let output = simulate(args)?;
    let said = String::from_utf8(output.stderr)?;
    let expected = format!("error: {line}\n");
    ensure!(said == expected, "{args:?} said\n{said}\ninstead of\n{expected}");
    ensure!(output.stdout.is_empty(), "{args:?} printed a result");
    ensure!(output.status.code() == Some(status), "{args:?}: {}", output.status);
    Ok(())
}

#[test]
fn a_scenario_is_a_table_that_says_it_is_modelled() -> Result<()> {
    let output = simulate(&["--scenario", "short-epoch-four-devices"])?;
    ensure!(output.status.success(), "{}", output.status);
    let text = text(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("short-epoch-four-devices: Four devices"), "{text}");
    assert!(
        lines[1].starts_with("98 batches · 4 devices · 3 seeds · bound 1."),
        "{text}"
    );
    let names: Vec<&str> =
        lines[3..8].iter().filter_map(|l| l.split_whitespace().next()).collect();
    assert_eq!(names, ["cpu", "mte", "wrr", "relaxed", "ordered"]);
    assert_eq!(
        lines[8],
        "kJ of cpu: without devices, which draw power in all other rows"
    );
    assert!(lines[9].starts_with("× cpu: one epoch's standard deviation "), "{text}");
    assert_eq!(lines[10], "(modelled, virtual time; power model cloud)");
    Ok(())
}

#[test]
fn what_is_asked_for_is_played_and_nothing_else() -> Result<()> {
    let output = simulate(&[
        "--scenario",
        "short-epoch-slow-device",
        "--strategy",
        "ordered-baseline",
        "--seeds",
        "2",
        "--objective",
        "host-cpu-cap=50",
        "--recovery",
        "off",
        "--json",
        "-",
    ])?;
    ensure!(output.status.success(), "{}", output.status);
    let json: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(json["label"], "modelled, virtual time");
    let scenario = &json["scenarios"][0];
    assert_eq!(scenario["seeds"], serde_json::json!([1, 2]));
    assert_eq!(scenario["objective"], "host-cpu-cap=50");
    assert_eq!(scenario["recovery"], "off");
    let strategies = scenario["strategies"].as_object().unwrap();
    assert_eq!(strategies.keys().collect::<Vec<_>>(), ["ordered-baseline"]);
    // Half of the host alone takes twice as long.
    let speedup = strategies["ordered-baseline"]["speedup"].as_f64().unwrap();
    assert!((0.95..1.2).contains(&speedup), "{speedup}");
    let seconds = strategies["ordered-baseline"]["seconds"].as_f64().unwrap();
    assert!(seconds > 1.8 * 196.0, "{seconds}");
    Ok(())
}

#[test]
fn epochs_are_told_apart_and_the_first_is_what_it_is_alone() -> Result<()> {
    let args = ["--scenario", "short-epoch-four-devices", "--strategy", "ordered"];
    let two = simulate(&[&args[..], &["--epochs", "2"]].concat())?;
    ensure!(two.status.success(), "{}", two.status);
    let text = text(&two);
    let heads: Vec<&str> =
        text.lines().filter(|line| line.starts_with("epoch ")).collect();
    assert_eq!(heads.len(), 2, "{text}");
    assert!(heads[0].starts_with("epoch 1 of 2 · 98 batches · 4 devices · "), "{text}");
    assert!(heads[1].starts_with("epoch 2 of 2 · 98 batches · 4 devices · "), "{text}");
    let json = |epochs| -> Result<Value> {
        let output =
            simulate(&[&args[..], &["--epochs", epochs, "--json", "-"]].concat())?;
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    let (one, three) = (json("1")?, json("3")?);
    assert!(one["scenarios"][0].get("epoch").is_none());
    assert_eq!(three["scenarios"][1]["epoch"], json!([2, 3]));
    assert_eq!(three["scenarios"].as_array().unwrap().len(), 3);
    // Its rates are known, and it waits for nobody's first batch.
    let seconds = |all: &Value, at: usize| {
        all["scenarios"][at]["strategies"]["ordered"]["seconds"].as_f64().unwrap()
    };
    assert!(seconds(&three, 1) < seconds(&one, 0));
    Ok(())
}

#[test]
fn flags_that_changed_a_scenario_are_in_its_result() -> Result<()> {
    let args = ["--scenario", "short-epoch-slow-device", "--strategy", "ordered"];
    let more = ["--known", "off", "--seeds", "2", "--json", "-"];
    let output = simulate(&[&args[..], &more].concat())?;
    ensure!(output.status.success(), "{}", output.status);
    let json: Value = serde_json::from_slice(&output.stdout)?;
    let played = &json["scenarios"][0];
    assert_eq!(played["known"], "off");
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("again.json");
    std::fs::write(&path, played["scenario"].to_string())?;
    let path = path.to_str().unwrap();
    let again = simulate(&["--config", path, "--strategy", "ordered", "--json", "-"])?;
    ensure!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    assert_eq!(serde_json::from_slice::<Value>(&again.stdout)?, json);
    Ok(())
}

#[test]
fn a_power_model_that_lacks_a_key_names_it() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("mine.json");
    let presets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let read = |file: &str| -> Result<Value> {
        Ok(serde_json::from_slice(&std::fs::read(presets.join(file))?)?)
    };
    let mut mine = read("experiments/steady.json")?;
    mine["power"] = read("power/cloud.json")?;
    mine["power"]["host_idle_w"].as_object_mut().unwrap().remove("source");
    std::fs::write(&path, mine.to_string())?;
    let output = simulate(&["--config", path.to_str().unwrap()])?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(
        said.contains("is not a scenario: missing field `source` at line 1"),
        "{said}"
    );
    ensure!(output.status.code() == Some(1), "{}", output.status);
    Ok(())
}

/// What strategies do in a scenario where they know the rates, or do not.
fn known(scenario: &str, more: &[&str]) -> Result<Value> {
    let args = ["--scenario", scenario, "--strategy", "ordered", "--seeds", "1"];
    let output = simulate(&[&args[..], &["--json", "-"], more].concat())?;
    ensure!(output.status.success(), "{}", output.status);
    let json: Value = serde_json::from_slice(&output.stdout)?;
    Ok(json["scenarios"][0]["strategies"].clone())
}

#[test]
fn the_same_epoch_is_played_with_rates_known_and_without() -> Result<()> {
    // The same world, except for what is known of it.
    let (first, later) = ("nothing-known", "steady-busy-accelerator");
    let [unknown, told] = [known(first, &[])?, known(later, &[])?];
    // Before a busy accelerator there is time to find rates out; without one it shows.
    let [on, off] = ["on", "off"].map(|know| known("steady", &["--known", know]));
    assert_ne!(on?, off?);
    assert_eq!(known(later, &["--known", "off"])?, unknown);
    assert_eq!(known(first, &["--known", "on"])?, told);
    Ok(())
}

#[test]
fn the_list_names_every_scenario() -> Result<()> {
    let output = simulate(&["--list"])?;
    let text = text(&output);
    assert!(text.starts_with("steady "), "{text}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/experiments");
    let n_files = std::fs::read_dir(&folder)?.count() - 2; // without two folders
    let n_remote = std::fs::read_dir(folder.join("remote"))?.count();
    let n_pool = std::fs::read_dir(folder.join("pool"))?.count();
    assert_eq!(text.lines().count(), n_files + n_remote + n_pool);
    Ok(())
}

#[test]
fn jobs_on_a_pool_are_played_by_name_and_from_a_file() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let builtin = include_str!("../../configs/experiments/pool/pool-two-shares.json");
    let file = folder.path().join("mine.json");
    std::fs::write(&file, builtin.replace("pool-two-shares", "mine"))?;
    let file = file.to_str().unwrap();
    let by_name = ["--scenario", "pool-fed-and-starving", "--seeds", "1"];
    let output = simulate(&[&by_name[..], &["--config", file, "--json", "-"]].concat())?;
    ensure!(output.status.success(), "{}", output.status);
    let json: Value = serde_json::from_slice(&output.stdout)?;
    let names = json["pools"].as_array().unwrap().iter().map(|it| &it["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["pool-fed-and-starving", "mine"]);
    let row = &json["pools"][1]["rows"][2];
    assert_eq!(row["variant"], "by need");
    assert!(row["least"].as_f64().unwrap() >= 0.95, "{row}");
    let table = text(&simulate(&["--config", file, "--seeds", "1"])?);
    assert!(table.contains("\n6 jobs · at most 24 agents · 120 s · 1 seed\n"), "{table}");
    Ok(())
}

#[test]
fn records_behind_a_link_are_played_by_name_and_from_a_file() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let builtin = include_str!("../../configs/experiments/remote/long-link.json");
    let file = folder.path().join("mine.json");
    let short = builtin.replace("\"count\": 1000", "\"count\": 200");
    std::fs::write(&file, short.replace("long-link", "mine"))?;
    let file = file.to_str().unwrap();
    let by_name = ["--scenario", "long-link-black-hole", "--seeds", "1"];
    let output = simulate(&[&by_name[..], &["--config", file, "--json", "-"]].concat())?;
    ensure!(output.status.success(), "{}", output.status);
    let json: Value = serde_json::from_slice(&output.stdout)?;
    let names = json["remote"].as_array().unwrap().iter().map(|it| &it["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["long-link-black-hole", "mine"]);
    let row = &json["remote"][1]["rows"][4];
    assert_eq!(
        (row["delivery"].as_str(), row["hedge"].as_bool()),
        (Some("ordered 4x"), Some(false))
    );
    assert_eq!(row["cells"].as_array().unwrap().len(), 4);
    let table = text(&simulate(&["--config", file, "--seeds", "1"])?);
    assert!(table.starts_with("mine: Photographs over 150 ms"), "{table}");
    refuses(
        &["--scenario", "long-lnk"],
        2,
        "there is no scenario `long-lnk`; did you mean `long-link`? (--list shows all)",
    )
}

#[test]
fn bad_input_is_told_in_one_line() -> Result<()> {
    refuses(
        &[],
        2,
        "nothing to simulate: give --scenario NAME, --scenario all, or --config FILE; --list \
         shows the names",
    )?;
    refuses(
        &["--scenario", "steady", "--strategy", "steal"],
        2,
        "`steal` is not a strategy; use cpu, csd, mte, wrr, relaxed or ordered",
    )?;
    refuses(
        &["--scenario", "steady", "--objective", "speed"],
        2,
        "`speed` is not an objective; use throughput, energy, or host-cpu-cap=P with P from 1 to 100 \
         percent of the workers' time",
    )?;
    refuses(
        &["--scenario", "stedy"],
        2,
        "there is no scenario `stedy`; did you mean `steady`? (--list shows all)",
    )
}

#[test]
fn a_wrong_file_is_named_with_its_key() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("mine.json");
    let file = path.to_str().unwrap();
    refuses(
        &["--config", file],
        1,
        &format!("cannot read {file}: No such file or directory (os error 2)"),
    )?;
    let steady =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/experiments/steady.json");
    let steady = std::fs::read_to_string(steady)?;
    std::fs::write(&path, steady.replace("\"workers\": 8", "\"workers\": 0"))?;
    refuses(
        &["--config", file],
        1,
        &format!("{file}: `host.workers` is 0; it must be at least 1"),
    )?;
    std::fs::write(&path, steady.replace("\"quota\"", "\"quotta\""))?;
    refuses(
        &["--config", file],
        1,
        &format!(
            "{file} is not a scenario: unknown field `quotta`, expected one of `batch_s`, \
             `workers`, `quota`, `cv`, `slowdown`, `records` at line 6 column 48"
        ),
    )
}

/// The part of doctor's results about the job, and how far they can be trusted.
fn measures_the_job(json: &Value) {
    let job = &json["job"];
    assert_eq!(
        (&job["accelerator"], &job["source"]),
        (&json!("host"), &json!("measured"))
    );
    assert!(job["images_per_s"]["prepared"].as_f64().unwrap() > 0.0);
    let ends = &json["host"][0]["ends"];
    assert!(ends["low"].as_f64().unwrap() <= ends["high"].as_f64().unwrap());
    assert!(json["host"][0]["rounds"].as_u64().unwrap() >= 3);
    assert!(json["host"][0]["conditions"]["others"].is_number());
    assert_eq!(json["devices"][0]["is_uncalibrated"], true);
    let kind = json["verdict"]["kind"].as_str().unwrap();
    assert!(["buy", "do-not-buy", "measure-again"].contains(&kind), "{kind}");
    // With an accelerator that consumes everything at once, a device adds images.
    assert!(json["devices"][0]["together"]["speedup"].as_f64().unwrap() > 1.0);
}

/// A pool for three jobs, from what doctor has measured.
fn plans_a_pool(file: &str) -> Result<()> {
    let pool = ["--plan", "--pool", "--jobs", "3", "--doctor", file];
    let output = simulate(&[&pool[..], &["--accelerator", "100000"]].concat())?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = text(&output);
    assert!(said.contains("\nA job lacks 100000 x 1.10 - "), "{said}");
    assert!(said.contains("\nAgents: 3 x "), "{said}");
    let output =
        simulate(&[&pool[..], &["--agent-price", "0.5", "--json", "-"]].concat())?;
    let json: Value = serde_json::from_slice(&output.stdout)?;
    for key in ["agents", "host_bytes_per_s", "price_per_million_images"] {
        assert!(json[key].is_number(), "{key}");
    }
    Ok(())
}

/// What doctor writes is what `--plan` reads, and says what was measured and what modelled.
#[test]
fn doctor_measures_and_plan_answers() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("doctor.json");
    let file = path.to_str().unwrap();
    let data = generated()?;
    let output = bothends(&[
        "doctor",
        "--data",
        data.to_str().unwrap(),
        "--workers",
        "1",
        "--batch-size",
        "8",
        "--csd",
        "sim:newport",
        "--json",
        file,
    ])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        text(&output).contains("images/s from sim:newport (modelled: "),
        "{output:?}"
    );
    assert!(text(&output).contains("\nblock cache "), "{output:?}");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
    let cache = json["data"]["block_cache"].as_str().unwrap();
    for part in [": 0 of these images in 0 MiB, ", "nothing is added: "] {
        assert!(cache.contains(part), "{cache}");
    }
    assert_eq!(json["data"]["batch_size"], 8);
    assert_eq!(json["data"]["sample_bytes"], 224 * 224 * 3);
    assert_eq!(json["host"].as_array().unwrap().len(), 1);
    assert_eq!(json["host"][0]["source"], "measured");
    assert!(json["host"][0]["images_per_s"].as_f64().unwrap() > 0.0);
    assert!(json["host"][0]["cpu_ms_per_image"].as_f64().unwrap() > 0.0);
    assert_eq!(json["devices"][0]["preset"], "newport");
    assert!(json["devices"][0]["source"].as_str().unwrap().starts_with("modelled"));
    assert!(json["machine"]["cores"].as_u64().unwrap() > 0);
    measures_the_job(&json);

    let plan = ["--plan", "--doctor", file, "--count", "0,2", "--accelerator", "100000"];
    let output = simulate(&plan)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = text(&output);
    assert!(said.starts_with("The host alone makes "), "{said}");
    assert!(said.contains("Even with 2 devices the accelerator waits"), "{said}");
    assert!(said.contains("its speed is uncalibrated"), "{said}");
    // Which one depends on how busy this machine is.
    assert!(said.lines().last().is_some_and(|it| it.starts_with("Verdict: ")), "{said}");
    assert!(said.contains("(modelled, virtual time, from the rates above; "), "{said}");
    let output = simulate(&[&plan[..], &["--json", "-"]].concat())?;
    let json: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(json["rows"].as_array().unwrap().len(), 2);
    for key in ["images_per_s", "speedup", "utilisation", "host_cpu", "joules_per_image"]
    {
        assert!(json["rows"][1][key].is_number(), "{key}");
    }
    plans_a_pool(file)?;
    refuses(
        &["--plan", "--doctor", file, "--preset", "smartssd"],
        1,
        &format!(
            "{file} has no rate of a device `smartssd`; run `bothends doctor --data PATH --csd \
             sim:smartssd --json {file}` first"
        ),
    )
}

/// An accelerator of 40 images a second is slower than any host, and nothing that loads data
/// helps it.
#[test]
fn doctor_names_the_limit() -> Result<()> {
    let data = generated()?;
    let data = data.to_str().unwrap();
    let flags = ["--workers", "1", "--batch-size", "4", "--quick", "--json", "-"];
    let output = bothends(
        &[&["doctor", "--data", data, "--accelerator", "sim:40"], &flags[..]].concat(),
    )?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout)?;
    // However busy the machine is: 40 images a second are fed by any host.
    assert_eq!(json["verdict"]["kind"], "do-not-buy", "{}", json["verdict"]);
    let found = &json["job"]["found"];
    assert_eq!(found["limit"], "accelerator", "{found}");
    assert!(json["devices"].as_array().unwrap().is_empty());
    let flags = ["doctor", "--data", data, "--accelerator", "sim:", "--quick"];
    let output = bothends(&flags)?;
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    Ok(())
}

#[test]
fn what_doctor_found_is_said_though_its_file_cannot_be_written() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("missing/doctor.json");
    let output = bothends(&["doctor", "--json", file.to_str().unwrap()])?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    ensure!(text(&output).starts_with("machine     "), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(said.contains("cannot write") && said.contains("doctor.json"), "{said}");
    Ok(())
}
