//! What a run shows of itself: its page made again of its events, its trace, and its metrics
//! while it runs.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests; skips must be seen")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bothends_report::Recording;
use bothends_tests::{generated, programs};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

/// `bothends run` on generated images with an emulated device.
fn run(more: &[&str]) -> Result<Command> {
    programs::program("firmware-sim")?;
    let mut command = Command::new(programs::program("bothends")?);
    command.arg("run").arg("--data").arg(generated()?);
    command.args(["--recipe", "imagenet-train", "--batch-size", "4", "--workers", "1"]);
    command.args(["--csd", "sim:ideal,rate=40", "--side-index", "off"]).args(more);
    Ok(command)
}

fn report(events: &Path, more: &[&str]) -> Result<std::process::Output> {
    let mut command = Command::new(programs::program("bothends")?);
    programs::run(command.arg("report").arg(events).args(more), PATIENCE)
}

#[test]
fn the_page_and_the_trace_of_a_run_are_made_again_of_its_events() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (page, trace) = (at("page.html"), at("trace.json"));
    let (again, trace_again) = (at("again.html"), at("trace-again.json"));
    let mut command = run(&["--epochs", "2", "--digest", "--accelerator", "sim:400"])?;
    command.args(["--report", &page, "--trace", &trace, "--events", &at("events.jsonl")]);
    command.args(["--trace-otlp", &at("spans.jsonl")]);
    let ran = programs::run(&mut command, PATIENCE)?;
    ensure!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let output =
        report(Path::new(&at("events.jsonl")), &[&again, "--trace", &trace_again])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ensure!(fs::read(&page)? == fs::read(&again)?, "another page");
    ensure!(fs::read(&trace)? == fs::read(&trace_again)?, "another trace");
    let table = String::from_utf8(output.stdout)?;
    ensure!(String::from_utf8(ran.stdout)?.starts_with(table.trim_end()), "{table}");
    let trace: Value = serde_json::from_slice(&fs::read(&trace)?)?;
    check_trace(&trace)?;

    // The page shows that there was a device, and its data are those of the events.
    let page = fs::read_to_string(&page)?;
    let events = fs::read(at("events.jsonl"))?;
    let recording = Recording::read(&mut &*events)?;
    check_spans(&fs::read_to_string(at("spans.jsonl"))?, &recording.header.run)?;
    let delivered = |e: &bothends_report::EpochRecord| {
        e.moments.iter().filter(|m| m.what == bothends_runtime::What::Delivered).count()
    };
    ensure!(recording.epochs.iter().map(delivered).collect::<Vec<_>>() == [25, 25]);
    for plot in ["rate", "horizon", "waiting", "cores", "memory"] {
        let n = page.matches(&format!("data-plot=\"{plot}\"")).count();
        ensure!(n == 2, "{n} plots of {plot}");
    }
    ensure!(page.contains("measured with models"), "the device is emulated");
    // There is nothing to compare with, and no tile is empty.
    for gone in ["host alone:", "<b>–</b>", "no accelerator"] {
        ensure!(!page.contains(gone), "{gone}");
    }
    Ok(())
}

/// What somebody needs who is to do it again: what ran, where, when and how.
#[test]
fn a_result_says_what_ran_where_when_and_how() -> Result<()> {
    let flags = ["--json", "-", "--reader", "pread", "--memory", "300", "--cache-size"];
    let mut command = run(&[&flags[..], &["off", "--stop-after", "3"]].concat())?;
    let ran = programs::run(&mut command, PATIENCE)?;
    let result: Value = serde_json::from_slice(&ran.stdout)?;
    let text = |key: &str| result[key].as_str().unwrap_or_default();
    ensure!(text("date").starts_with("20") && text("machine").contains(" core"));
    ensure!(text("command").contains("--stop-after 3"), "{result}");
    ensure!(text("stopped") == "stop_after" && result["epochs"][0]["stopped_at"] == 3);
    let config = &result["config"];
    for (key, value) in [
        ("reader", Value::from("pread")),
        ("memory", 300.into()),
        ("cache_size", "off".into()),
        ("side_index", "off".into()),
        ("measure_alone", Value::Null),
        ("resume", Value::Null),
        ("stop_after", 3.into()),
    ] {
        ensure!(config.get(key) == Some(&value), "{key}: {config}");
    }
    Ok(())
}

/// Ranks of the command line know nothing of each other: somebody may compare what they have.
#[test]
fn a_rank_says_what_it_has_listed() -> Result<()> {
    let data = generated()?;
    let mut command = Command::new(programs::program("bothends")?);
    let inspected = programs::run(command.arg("inspect").arg(&data), PATIENCE)?;
    let inspected = String::from_utf8(inspected.stdout)?;
    let (_, hash) = inspected.split_once(", hash ").context("a hash")?;
    let hash = hash.lines().next().context("a line")?;
    for world in ["1", "2"] {
        let flags = ["--json", "-", "--stop-after", "1", "--world", world];
        let ran = programs::run(&mut run(&flags)?, PATIENCE)?;
        let result: Value = serde_json::from_slice(&ran.stdout)?;
        ensure!(result["data"]["table_hash"] == *hash, "{}", result["data"]);
        let n = result["data"]["samples"].as_u64().context("a number")?;
        ensure!(inspected.contains(&format!(": {n} samples in ")), "{inspected}");
        let said = String::from_utf8(ran.stderr)?;
        let note = format!(
            "note: {n} samples, table hash {hash}; it must be the same on all 2 ranks"
        );
        ensure!(said.contains(&note) == (world == "2"), "{said}");
    }
    Ok(())
}

#[test]
fn a_strategy_for_devices_without_one_is_noted() -> Result<()> {
    for (strategy, is_noted) in [("csd", true), ("mte", true), ("ordered", false)] {
        let mut command = Command::new(programs::program("bothends")?);
        command.arg("run").arg("--data").arg(generated()?);
        command.args(["--recipe", "imagenet-eval", "--strategy", strategy]);
        command.args(["--stop-after", "1", "--side-index", "off"]);
        let ran = programs::run(&mut command, PATIENCE)?;
        let said = String::from_utf8(ran.stderr)?;
        let note = format!("note: strategy {strategy} has no device: the host makes");
        ensure!(ran.status.success() && said.contains(&note) == is_noted, "{said}");
    }
    Ok(())
}

/// The spans of two epochs of 25 batches, of this run.
fn check_spans(text: &str, run: &str) -> Result<()> {
    let mut names = BTreeMap::new();
    let mut traces = BTreeSet::new();
    for line in text.lines() {
        let request: Value = serde_json::from_str(line)?;
        let resource = &request["resourceSpans"][0];
        let attributes = &resource["resource"]["attributes"];
        ensure!(attributes.to_string().contains(&format!("\"{run}\"")), "{attributes}");
        for span in resource["scopeSpans"][0]["spans"].as_array().context("spans")? {
            let name = span["name"].as_str().context("a name")?.to_owned();
            *names.entry(name).or_insert(0) += 1;
            traces.insert(span["traceId"].to_string());
        }
    }
    ensure!(names["epoch"] == 2 && names["deliver batch"] == 50, "{names:?}");
    ensure!(names["make batch"] >= 50 && traces.len() == 1, "{names:?} {traces:?}");
    Ok(())
}

/// Every event has what viewers need, and no row goes back in time or overlaps itself.
fn check_trace(trace: &Value) -> Result<()> {
    let events = trace["traceEvents"].as_array().context("traceEvents")?;
    let mut ends: BTreeMap<(u64, u64), f64> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for event in events {
        let field =
            |name: &str| event.get(name).with_context(|| format!("{name}: {event}"));
        let ts = field("ts")?.as_f64().context("ts")?;
        let (pid, tid) = (field("pid")?.as_u64(), field("tid")?.as_u64());
        let track = (pid.context("pid")?, tid.context("tid")?);
        let name = field("name")?.as_str().context("name")?;
        ensure!(ts >= 0.0 && !name.is_empty(), "{event}");
        match field("ph")?.as_str().context("ph")? {
            "X" => {
                let dur = field("dur")?.as_f64().context("dur")?;
                let end = ends.entry(track).or_default();
                ensure!(dur >= 0.0 && ts >= *end - 1e-3, "{event} overlaps");
                *end = ts + dur;
            }
            "C" => {
                let args = field("args")?.as_object().context("args")?;
                ensure!(args.values().all(Value::is_number), "{event}");
            }
            "M" => {
                names.insert(
                    field("args")?["name"].as_str().unwrap_or_default().to_owned(),
                );
            }
            other => anyhow::bail!("`{other}`: {event}"),
        }
    }
    for name in ["epochs", "delivery to the accelerator", "host workers", "device 0"] {
        ensure!(names.contains(name), "no row is called {name}: {names:?}");
    }
    Ok(())
}

#[test]
fn a_run_that_is_killed_leaves_a_page_that_says_so() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let events = folder.path().join("events.jsonl");
    let mut command = run(&["--repeat", "40", "--events"])?;
    command.arg(&events).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let has_begun = || {
        let text = fs::read_to_string(&events).unwrap_or_default();
        text.matches("\"delivered\"").count() >= 5
    };
    let begun = programs::eventually(PATIENCE, has_begun);
    child.kill()?;
    child.wait()?;
    ensure!(begun, "nothing was written while it ran");
    let page = folder.path().join("page.html");
    let output = report(&events, &[page.to_str().unwrap()])?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(output.status.success(), "{said}");
    ensure!(said.starts_with("note: This run did not finish"), "{said}");
    let page = fs::read_to_string(page)?;
    ensure!(page.contains("<strong>This run did not finish"), "{said}");
    ensure!(
        page.contains("measured with models"),
        "its device was emulated all the same"
    );
    Ok(())
}

#[test]
fn bad_event_files_are_refused_with_one_line_that_names_the_defect() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("bad/events");
    let mut n_files = 0;
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        let defect = path.file_stem().unwrap().to_str().unwrap().replace('-', " ");
        let bytes = fs::read(&path)?;
        let Err(error) = Recording::read(&mut &*bytes) else {
            anyhow::bail!("{} was accepted", path.display());
        };
        let said = error.to_string();
        let has = said.replace('-', " ").contains(&defect) && !said.contains('\n');
        ensure!(has, "{}: {said}", path.display());
        ensure!(said.starts_with("line ") || bytes.is_empty(), "no line: {said}");
        n_files += 1;
    }
    ensure!(n_files > 15, "{n_files} bad files");
    // And through the command line.
    let bad = folder.join("time-runs-backwards.jsonl");
    let output = report(&bad, &["/nowhere/page.html"])?;
    let said = String::from_utf8(output.stderr)?;
    let line = format!(
        "error: {}: line 7 is damaged: time runs backwards, from 0.4 s to 0.2 s; cut the file \
         before it to see what came before\n",
        bad.display()
    );
    ensure!(said == line && output.status.code() == Some(1), "{said}");
    Ok(())
}

#[test]
fn places_that_are_none_are_named() -> Result<()> {
    let collector = "`--trace-otlp https://collector:4318`: give a file, or http://HOST:PORT of a \
                     collector (a local one can forward traces over TLS)";
    let mut traced = run(&["--trace-otlp", "https://collector:4318"])?;
    let top = |url| {
        let mut top = Command::new(programs::program("bothends")?);
        top.args(["top", url]);
        anyhow::Ok(top)
    };
    for (command, why) in [
        (&mut traced, collector),
        (&mut top("9100")?, "`9100`: give HOST:PORT, :PORT or http://HOST:PORT/metrics"),
        (
            &mut top(":9100")?,
            "standard output is not a terminal; give --once for one frame as text",
        ),
    ] {
        let output = programs::run(command, PATIENCE)?;
        let said = String::from_utf8(output.stderr)?;
        ensure!(said == format!("error: {why}\n"), "{said}");
        ensure!(output.status.code() == Some(2), "{said}");
    }
    Ok(())
}

/// A run under way that serves metrics; killed when dropped.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(more: &[&str]) -> Result<Self> {
        let mut command = run(&["--metrics", "127.0.0.1:0"])?;
        let mut child =
            command.args(more).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stderr.take().context("stderr")?).lines();
        let said = lines
            .find_map(|line| {
                line.ok()?.strip_prefix("metrics: http://").map(str::to_owned)
            })
            .context("it says where")?;
        // The pipe is read on, so that the run never waits for us.
        std::thread::spawn(move || lines.for_each(drop));
        let address = said.strip_suffix("/metrics").context("a path")?.to_owned();
        Ok(Self { child, address })
    }

    fn ask(&self) -> Result<String> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("a head")?;
        ensure!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        ensure!(head.contains("text/plain; version=0.0.4"), "{head}");
        Ok(body.to_owned())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn metrics_are_live_and_as_prometheus_wants_them() -> Result<()> {
    let served = Served::start(&[
        "--repeat",
        "40",
        "--accelerator",
        "sim:100",
        "--rank",
        "3",
        "--world",
        "4",
    ])?;
    let delivered = |text: &str| -> Result<f64> {
        let samples = parse_metrics(text)?;
        let of = |side: &str| {
            let key = format!("bothends_samples_total{{side=\"{side}\",");
            value_of(&samples, &key).with_context(|| format!("{key} in\n{text}"))
        };
        Ok(of("front")? + of("back")?)
    };
    let mut text = String::new();
    let has_begun = || {
        text = served.ask().unwrap_or_default();
        delivered(&text).is_ok_and(|n| n >= 8.0) && text.contains("bothends_back_cursor{")
    };
    ensure!(programs::eventually(PATIENCE, has_begun), "{text}");
    let first = delivered(&text)?;
    let goes_on = || served.ask().and_then(|t| delivered(&t)).is_ok_and(|n| n > first);
    ensure!(programs::eventually(PATIENCE, goes_on), "it stands at {first}");
    let samples = parse_metrics(&text)?;
    for name in [
        "bothends_stall_seconds_total{who=\"decode\",rank=\"3\",run=\"",
        "bothends_queue_depth{stage=\"front_waiting\",",
        "bothends_bytes_total{path=\"host_to_accelerator\",",
        "bothends_batch_latency_seconds_count{side=\"front\",",
        "bothends_front_cursor{rank=\"3\",",
    ] {
        ensure!(value_of(&samples, name).is_some(), "{name} in\n{text}");
    }
    promtool(&text)?;
    let mut top = Command::new(programs::program("bothends")?);
    top.args(["top", "--once", "--every", "0.2", &served.address, ":1"]);
    let rank = format!("{} 3", served.address);
    let first = "bothends top: 1 job, 1 rank, 0 agents, 1 without an answer";
    frame_has(&mut top, &[first, &rank, "127.0.0.1:1: "])?;
    // Nothing of the machine or the data.
    let data = generated()?;
    for secret in [data.to_str().unwrap(), "sim:ideal", "firmware-sim"] {
        ensure!(!text.contains(secret), "{secret}");
    }
    let address = served.address.clone();
    drop(served);
    ensure!(TcpStream::connect(&address).is_err(), "it ends with the run");
    let gone = programs::run(&mut top, PATIENCE)?;
    let said = String::from_utf8(gone.stderr)?;
    ensure!(gone.status.code() == Some(1), "{said}");
    ensure!(
        said.starts_with(&format!("error: nothing answers at {address}: ")),
        "{said}"
    );
    Ok(())
}

/// Fails unless some frame has lines that begin like these: who takes longer than a second has no answer in it.
fn frame_has(top: &mut Command, lines: &[&str]) -> Result<()> {
    let mut frame = String::new();
    let has_all = || {
        let ran = programs::run(top, PATIENCE).map(|it| String::from_utf8(it.stdout));
        frame = format!("{ran:?}");
        let Ok(Ok(said)) = ran else { return false };
        frame = said;
        let has = |line: &&str| frame.lines().any(|it| it.starts_with(*line));
        lines.iter().all(has)
    };
    ensure!(programs::eventually(PATIENCE, has_all), "{lines:?} in\n{frame}");
    Ok(())
}

/// The sample whose name and first labels are these.
fn value_of(samples: &BTreeMap<String, f64>, start: &str) -> Option<f64> {
    let (_, value) = samples.iter().find(|(key, _)| key.starts_with(start))?;
    Some(*value)
}

/// Prometheus' own checker, where it is installed.
fn promtool(text: &str) -> Result<()> {
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!(
            "skipped: promtool check metrics (no promtool; our own parser was used)"
        );
        return Ok(());
    };
    child.stdin.take().context("stdin")?.write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "promtool: {said}\n{text}");
    Ok(())
}

/// The text form, strictly: every family has its help and its type before its samples, all in one
/// block; names and labels have their characters; no sample stands twice; a histogram's buckets
/// never fall and end with its count.
fn parse_metrics(text: &str) -> Result<BTreeMap<String, f64>> {
    ensure!(text.ends_with('\n'), "the last line has no end");
    let is_name = |name: &str| {
        let mut chars = name.chars();
        chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let mut samples = BTreeMap::new();
    let mut families = BTreeSet::new();
    let (mut family, mut kind) = (String::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').context("a help")?;
            ensure!(is_name(name) && !help.is_empty(), "{line}");
            ensure!(families.insert(name.to_owned()), "{name} has two blocks");
            (family, kind) = (name.to_owned(), String::new());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, typed) = rest.split_once(' ').context("a type")?;
            ensure!(name == family && kind.is_empty(), "{line}");
            ensure!(["counter", "gauge", "histogram"].contains(&typed), "{line}");
            ensure!((typed == "counter") == name.ends_with("_total"), "{line}");
            typed.clone_into(&mut kind);
        } else {
            let (key, value) = line.rsplit_once(' ').with_context(|| line.to_owned())?;
            let name = key.split('{').next().unwrap_or_default();
            let base = match kind.as_str() {
                "histogram" => ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|suffix| name.strip_suffix(suffix))
                    .with_context(|| line.to_owned())?,
                _ => name,
            };
            ensure!(is_name(name) && base == family && !kind.is_empty(), "{line}");
            check_labels(&key[name.len()..]).with_context(|| line.to_owned())?;
            let value: f64 = value.parse().with_context(|| line.to_owned())?;
            ensure!(value.is_finite() && (kind == "gauge" || value >= 0.0), "{line}");
            ensure!(samples.insert(key.to_owned(), value).is_none(), "{line} twice");
        }
    }
    check_histograms(text, &samples)?;
    Ok(samples)
}

/// `{name="value",...}` or nothing; values without what would have to be written out.
fn check_labels(labels: &str) -> Result<()> {
    if labels.is_empty() {
        return Ok(());
    }
    let inner =
        labels.strip_prefix('{').and_then(|l| l.strip_suffix('}')).context("braces")?;
    for label in inner.split(',') {
        let (name, value) = label.split_once('=').context("an equals sign")?;
        let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
        let value = value.context("quotes")?;
        ensure!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
        ensure!(!value.contains(['"', '\\', '\n']), "{value}");
    }
    Ok(())
}

fn check_histograms(text: &str, samples: &BTreeMap<String, f64>) -> Result<()> {
    let name = "bothends_batch_latency_seconds";
    for side in ["front", "back"] {
        let start = format!("{name}_bucket{{side=\"{side}\",le=\"");
        let lines = text.lines().filter_map(|line| line.strip_prefix(&start));
        let (mut last_end, mut last) = (0.0, 0.0);
        for line in lines {
            let (end, labels) = line.split_once('"').context("a bucket")?;
            let (_, n) = labels.split_once("} ").context("a bucket")?;
            let end = if end == "+Inf" { f64::INFINITY } else { end.parse()? };
            let n: f64 = n.parse()?;
            ensure!(end > last_end && n >= last, "{line}");
            (last_end, last) = (end, n);
        }
        let count = value_of(samples, &format!("{name}_count{{side=\"{side}\""));
        ensure!(last_end.is_infinite() && count == Some(last), "{side}: {count:?}");
    }
    Ok(())
}

#[test]
fn the_parser_of_metrics_is_strict() {
    let good = "# HELP a_total x\n# TYPE a_total counter\na_total 1\n";
    let buckets: String = ["front", "back"]
        .map(|side| {
            format!(
                "bothends_batch_latency_seconds_bucket{{side=\"{side}\",le=\"+Inf\"}} 0\n\
                 bothends_batch_latency_seconds_sum{{side=\"{side}\"}} 0\n\
                 bothends_batch_latency_seconds_count{{side=\"{side}\"}} 0\n"
            )
        })
        .concat();
    let histogram = "# HELP bothends_batch_latency_seconds x\n\
                     # TYPE bothends_batch_latency_seconds histogram\n";
    let with = |text: &str| parse_metrics(&format!("{histogram}{buckets}{text}"));
    with(good).unwrap();
    for bad in [
        "a_total 1\n",
        "# HELP a_total x\na_total 1\n",
        "# HELP a_total x\n# TYPE a_total counter\na_total 1",
        "# HELP a_total x\n# TYPE a_total counter\na_total -1\n",
        "# HELP a_total x\n# TYPE a_total counter\na_total NaN\n",
        "# HELP a_total x\n# TYPE a_total counter\na_total 1\na_total 2\n",
        "# HELP a_total x\n# TYPE a_total counter\na_total{b=c} 1\n",
        "# HELP a x\n# TYPE a counter\na 1\n",
        "# HELP a_total x\n# TYPE a_total counter\nb_total 1\n",
    ] {
        assert!(with(bad).is_err(), "{bad}");
    }
}
