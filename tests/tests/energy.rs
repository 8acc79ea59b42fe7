//! Energy through the command line: what is counted, what a meter says, what a profile makes of
//! it, and that none of these is taken for another.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bothends_tests::{N_GENERATED, generated, programs};
use serde_json::Value;

fn run(args: &[&str]) -> Result<Output> {
    let data = generated()?;
    let mut command = Command::new(programs::program("bothends")?);
    command.args([
        "run",
        "--recipe",
        "imagenet-train",
        "--batch-size",
        "8",
        "--workers",
        "1",
    ]);
    command.args(["--side-index", "off", "--data"]).arg(data).args(args);
    programs::run(&mut command, Duration::from_secs(120))
}

/// The result of a run that must succeed.
fn result(args: &[&str]) -> Result<Value> {
    let args: Vec<&str> = args.iter().copied().chain(["--json", "-"]).collect();
    let output = run(&args)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{args:?} said {said}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn number(value: &Value, key: &str) -> Result<f64> {
    value
        .pointer(key)
        .and_then(Value::as_f64)
        .with_context(|| format!("{key} in {value}"))
}

fn profile(name: &str) -> Result<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/energy");
    Ok(serde_json::from_str(&std::fs::read_to_string(folder.join(name))?)?)
}

/// The domains with a source that begins so.
fn domains<'a>(energy: &'a Value, source: &str) -> Vec<&'a Value> {
    let all = energy["domains"].as_array().into_iter().flatten();
    all.filter(|domain| domain["source"].as_str().unwrap().starts_with(source)).collect()
}

/// Amount and coefficient of every figure that a run with one device and an emulated accelerator
/// has: written once more here, from the keys of the result and of the profile.
fn expected(quantities: &Value) -> Result<Vec<(&'static str, f64, &'static str)>> {
    let q = |key: &str| number(quantities, key);
    let seconds = q("/seconds")?;
    Ok(vec![
        (
            "host processors, idle",
            seconds * q("/host/processors")?,
            "/host/processor_idle_w",
        ),
        (
            "host processors, work",
            q("/host/processor_seconds")?,
            "/host/processor_work_w",
        ),
        ("host memory", q("/host/memory_byte_seconds")? / 1e9, "/host/memory_w_per_gb"),
        ("storage, idle", q("/bytes/stored")? / 1e12 * seconds, "/storage/idle_w_per_tb"),
        ("storage, reads", q("/bytes/storage_read")? / 1e9, "/storage/read_j_per_gb"),
        ("device 0, idle", seconds, "/devices/storage-server/idle_w"),
        (
            "device 0, work",
            q("/devices/0/busy_seconds")?,
            "/devices/storage-server/work_w",
        ),
        (
            "device to host",
            q("/bytes/device_to_host")? / 1e9,
            "/links/device_to_host_j_per_gb",
        ),
        (
            "host to accelerator",
            q("/bytes/host_to_accelerator")? / 1e9,
            "/links/host_to_accelerator_j_per_gb",
        ),
        ("accelerator, idle", seconds, "/accelerators/resnet50-h100/idle_w"),
        (
            "accelerator, work",
            q("/accelerator/busy_seconds")?,
            "/accelerators/resnet50-h100/work_w",
        ),
    ])
}

#[test]
fn modelled_joules_are_quantities_times_coefficients() -> Result<()> {
    let device = "sim:storage-server,rate=100";
    let result = result(&["--csd", device, "--accelerator", "sim:h100"])?;
    let energy = &result["energy"];
    let profile = profile("default.json")?;
    let figures = domains(energy, "modelled(default@2)");
    let expected = expected(&energy["quantities"])?;
    ensure!(figures.len() == expected.len(), "{figures:?}");
    let mut sums = [0.0; 3];
    for (figure, (name, amount, key)) in figures.iter().zip(&expected) {
        ensure!(figure["name"] == *name, "{figure} is not {name}");
        let ends = [("/joules", "mid"), ("/low", "low"), ("/high", "high")];
        for (sum, (of, end)) in sums.iter_mut().zip(ends) {
            let joules = amount * number(&profile, &format!("{key}/{end}"))?;
            let said = number(figure, of)?;
            ensure!(
                (said - joules).abs() <= 1e-9 * joules.max(1.0),
                "{name} {end}: {figure}"
            );
            *sum += joules;
        }
    }
    let total = energy["totals"].as_array().into_iter().flatten().next_back();
    let total = total.context("a total")?;
    ensure!(total["source"] == "modelled(default@2)", "{total}");
    for (end, sum) in ["/joules", "/low", "/high"].into_iter().zip(sums) {
        let said = number(total, end)?;
        ensure!((said - sum).abs() <= 1e-9 * sum, "{end} of {total} is not {sum}");
    }
    let source = energy["joules_per_sample_source"].as_str().context("a source")?;
    if source != "modelled(default@2)" {
        eprintln!(
            "skipped: the sum of modelled figures (this machine has a meter: {source})"
        );
        return Ok(());
    }
    let keys =
        ["/joules_per_sample", "/joules_per_sample_low", "/joules_per_sample_high"];
    for (key, sum) in keys.into_iter().zip(sums) {
        let per_sample = sum / f64::from(N_GENERATED);
        let said = number(energy, key)?;
        ensure!((said - per_sample).abs() <= 1e-9 * per_sample, "{key} is {said}");
    }
    Ok(())
}

#[test]
fn quantities_are_those_of_the_run() -> Result<()> {
    let result = result(&["--csd", "sim:ideal", "--accelerator", "sim:2000"])?;
    let quantities = &result["energy"]["quantities"];
    let seconds = number(quantities, "/seconds")?;
    ensure!(seconds >= number(&result, "/epochs/0/seconds")?, "{quantities}");
    let pairs = [
        ("/bytes/device_to_host", "/bytes/device_to_host"),
        ("/bytes/host_to_accelerator", "/bytes/host_to_accelerator"),
        ("/bytes/storage_read", "/bytes/storage_read"),
        ("/accelerator/busy_seconds", "/epochs/0/accelerator/busy_s"),
    ];
    for (quantity, elsewhere) in pairs {
        let (one, other) = (number(quantities, quantity)?, number(&result, elsewhere)?);
        ensure!((one - other).abs() < 1e-6, "{quantity}: {one} and {other}");
    }
    let busy = number(quantities, "/accelerator/busy_seconds")?;
    let idle = number(quantities, "/accelerator/idle_seconds")?;
    ensure!((busy + idle - seconds).abs() < 1e-6, "{quantities}");
    let device = &quantities["devices"][0];
    let (busy, idle) =
        (number(device, "/busy_seconds")?, number(device, "/idle_seconds")?);
    ensure!(busy > 0.0 && (busy + idle - seconds).abs() < 1e-6, "{device}");
    ensure!(
        device["emulated"] == true,
        "emulation is never reported as a device: {device}"
    );
    let host = &quantities["host"];
    let own = number(host, "/processor_seconds")?;
    // Clock ticks of the whole process are 10 ms each.
    let front = number(host, "/front_processor_seconds")?;
    let receiving = number(host, "/receiving_processor_seconds")?;
    let feeding = number(host, "/feeding_processor_seconds")?;
    ensure!(front > 0.0 && receiving > 0.0 && feeding > 0.0, "{host}");
    ensure!(front + receiving + feeding <= own + 0.05, "{host}");
    ensure!(
        own > 0.0 && own <= number(host, "/machine_processor_seconds")? + 0.05,
        "{host}"
    );
    ensure!(number(host, "/memory_byte_seconds")? > 0.0, "{host}");
    // An emulated device's own figures say whose they are, and are in no sum: the profile has the
    // same joules.
    let said = result["energy"]["devices"].as_array().context("devices")?;
    ensure!(said.iter().any(|domain| domain["name"] == "device 0 device"), "{said:?}");
    let is_model = |domain: &Value| {
        domain["source"].as_str().is_some_and(|s| s.starts_with("modelled(state power"))
    };
    ensure!(said.iter().all(is_model), "{said:?}");
    ensure!(
        domains(&result["energy"], "modelled(state power").is_empty(),
        "twice: {said:?}"
    );
    Ok(())
}

#[test]
fn a_command_that_prints_watts_is_a_meter() -> Result<()> {
    let command = "command:sh -c 'echo 42'";
    // A reading that starts late, as on a busy machine, is of another time than the run.
    let mut attempts =
        (0..5).map(|_| result(&["--energy", command, "--energy-idle", "1"]));
    let is_near = |result: &Value| {
        let energy = &result["energy"];
        let metered = domains(energy, "measured(");
        let domain = metered.first().context("a domain")?;
        let joules = number(domain, "/joules")?;
        let expected = 42.0 * number(energy, "/quantities/seconds")?;
        // The first and the last reading are near the ends of the run, not exactly at them.
        let is_near = (joules - expected).abs() < 42.0 * 0.3 + expected * 0.1;
        let net = number(domain, "/net_of_idle_joules")?;
        anyhow::Ok(is_near && net.abs() < 0.05 * joules + 1.0)
    };
    let result = loop {
        let result = attempts.next().context("42 W were metered in no attempt")??;
        if is_near(&result)? {
            break result;
        }
    };
    let energy = &result["energy"];
    let metered = domains(energy, "measured(");
    ensure!(metered.len() == 1, "{metered:?}");
    let domain = metered[0];
    ensure!(domain["source"] == "measured(command:sh -c 'echo 42')", "{domain}");
    let joules = number(domain, "/joules")?;
    ensure!(domain["low"] == domain["joules"] && domain["high"] == domain["joules"]);
    // One kind is in the sum, and the other is still listed.
    ensure!(energy["joules_per_sample_source"] == domain["source"], "{energy}");
    let per_sample = number(energy, "/joules_per_sample")?;
    ensure!((per_sample * f64::from(N_GENERATED) - joules).abs() < 1e-6, "{energy}");
    ensure!(!domains(energy, "modelled(default@2)").is_empty(), "{energy}");
    let totals = energy["totals"].as_array().context("totals")?;
    let kinds: Vec<&Value> = totals.iter().map(|total| &total["source"]).collect();
    ensure!(
        kinds == [&domain["source"], &Value::from("modelled(default@2)")],
        "{kinds:?}"
    );
    ensure!(result["config"]["energy"][0] == command, "{}", result["config"]);
    Ok(())
}

#[test]
fn a_profile_of_ones_own_is_named_in_every_figure() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("mine.json");
    let mut mine = profile("csd-host.json")?;
    mine["name"] = "mine".into();
    mine["version"] = 7.into();
    std::fs::write(&path, mine.to_string())?;
    let result = result(&["--energy-profile", path.to_str().unwrap()])?;
    ensure!(result["config"]["energy_profile"] == "mine@7", "{}", result["config"]);
    let energy = &result["energy"];
    ensure!(!domains(energy, "modelled(mine@7)").is_empty(), "{energy}");
    ensure!(domains(energy, "modelled(default").is_empty(), "{energy}");
    Ok(())
}

/// What device 0 says of itself, and the ends of what the profile says of it.
fn of_device(energy: &Value) -> Result<(f64, f64, f64)> {
    let devices = energy["devices"].as_array().into_iter().flatten();
    let mut whole = devices.filter(|domain| domain["name"] == "device 0 device");
    let said = number(whole.next().context("no joules of its own")?, "/joules")?;
    let mut ends = (0.0, 0.0);
    for figure in domains(energy, "modelled(default@2)") {
        if figure["name"].as_str().is_some_and(|name| name.starts_with("device 0,")) {
            ends.0 += number(figure, "/low")?;
            ends.1 += number(figure, "/high")?;
        }
    }
    Ok((said, ends.0, ends.1))
}

fn remarks(energy: &Value) -> String {
    energy["remarks"].to_string()
}

#[test]
fn a_device_is_priced_as_what_it_emulates() -> Result<()> {
    for preset in ["newport", "dpu-bf2", "storage-server", "ideal"] {
        let csd = format!("sim:{preset},rate=100");
        let energy = &result(&["--csd", &csd])?["energy"];
        let (said, low, high) = of_device(energy)?;
        ensure!(
            low * 0.98 <= said && said <= high * 1.02,
            "{csd}: {said}, {low} to {high}"
        );
        ensure!(!remarks(energy).contains("profile"), "{energy}");
    }
    Ok(())
}

#[test]
fn a_device_that_the_profile_does_not_know_is_remarked() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("mine.json");
    let preset = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../configs/devices/storage-server.json");
    let mut preset: Value = serde_json::from_slice(&std::fs::read(preset)?)?;
    preset["name"] = "mine".into();
    std::fs::write(&path, preset.to_string())?;
    let csd = format!("sim:{},rate=100", path.display());
    let energy = &result(&["--csd", &csd])?["energy"];
    let (said, _, high) = of_device(energy)?;
    ensure!(said > high, "{said}, to {high}");
    let remarks = remarks(energy);
    ensure!(
        remarks.contains("says that it used") && remarks.contains("default@2"),
        "{remarks}"
    );
    Ok(())
}

/// Runs and expects exactly this line on standard error.
fn refuses(args: &[&str], status: i32, line: &str) -> Result<()> {
    let output = run(args)?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(said == format!("error: {line}\n"), "{args:?} said {said}");
    ensure!(output.status.code() == Some(status), "{args:?}: {}", output.status);
    Ok(())
}

#[test]
fn what_cannot_be_metered_or_modelled_is_one_line() -> Result<()> {
    refuses(
        &["--energy", "watts"],
        2,
        "`watts` is not a meter; use auto, rapl, perf, nvml, hwmon, hwmon:NAME or command:PROGRAM",
    )?;
    refuses(
        &["--energy", "command:echo cold; exit 3"],
        1,
        "the meter `command:echo cold; exit 3` failed (exit status: 3); it wrote nothing to \
         standard error; run it by hand: it must print watts",
    )?;
    if Path::new("/sys/class/powercap").exists() {
        eprintln!("skipped: a meter that is not there (this machine has powercap)");
    } else {
        let line = "no meter `rapl` here: /sys/class/powercap is not there";
        refuses(&["--energy", "rapl"], 1, line)?;
    }
    refuses(
        &["--energy-profile", "defualt"],
        2,
        "`defualt` is neither a built-in energy profile nor a file that can be read (No such \
         file or directory (os error 2)); did you mean `default`?",
    )?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("mine.json");
    std::fs::write(&path, r#"{"name": "mine", "watts": 5}"#)?;
    let path = path.to_str().unwrap();
    refuses(
        &["--energy-profile", path],
        2,
        &format!(
            "energy profile {path}: unknown field `watts`, expected one of `name`, `version`, \
             `about`, `host`, `storage`, `links`, `device`, `devices`, `accelerators` at line 1 column 24"
        ),
    )?;
    refuses(
        &["--energy-idle=-1"],
        2,
        "`--energy-idle` takes a number of seconds from 0 to 86400, which are a day",
    )
}

#[test]
fn doctor_says_of_every_meter_whether_it_can_be_read() -> Result<()> {
    let mut command = Command::new(programs::program("bothends")?);
    let output = programs::run(command.arg("doctor"), Duration::from_secs(60))?;
    let said = String::from_utf8(output.stdout)?;
    let line = said.lines().find(|line| line.starts_with("energy ")).context("a line")?;
    for meter in ["rapl", "perf", "nvml", "hwmon"] {
        ensure!(line.contains(meter), "{line}");
    }
    Ok(())
}
