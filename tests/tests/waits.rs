//! The waits of a run, by cause, are the consumer's idle time: in the result, in the metrics
//! and on the page.
//!
//! The loader books waits on a clock of its own, the loop round the steps times the consumer's work
//! between them, and the idle time is measured apart from both: a wait that nobody books is missing
//! from the sum, and one that is booked twice is too much in it. Waits for memory on a GPU, which `run` does not
//! deliver to, are in `gpu_waits.rs`.

#![allow(clippy::unwrap_used, reason = "these functions are all tests")]

use anyhow::{Context, Result, ensure};
use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::rng::Draws;
use bothends_core::sample::SampleKey;
use bothends_core::tensor::{Dtype, Layout, Output};
use bothends_report::{
    EpochRecord, FORMAT, Header, Metrics, Recording, ReportInput, html,
};
use bothends_runtime::{Ended, Machine, Observer, Progress, RunResult, Stall};
use bothends_tests::{Setup, generated, programs};
use serde_json::Value;

/// The number of runs, each with newly drawn settings.
const N_RUNS: u64 = 50;

/// Most that may be missing from the sums, as a part of the idle time.
const TOLERANCE: f64 = 0.01;

/// On a busy machine a thread may be put aside between two readings of a clock, and that time is
/// nobody's; a wait that is not booked is missing from every attempt.
const N_ATTEMPTS: u32 = 10;

/// What taking a batch that is ready may cost the consumer, in seconds: calls, locks and clocks, which
/// are no wait.
const TAKING_S: f64 = 20e-6;

/// What sums of numbers that were written down and read again may differ by, in seconds.
const ROUNDING_S: f64 = 1e-6;

/// What is shown of a run, by the parts that the command line shows it with.
struct Shown {
    metrics: Metrics,
    epochs: Vec<EpochRecord>,
}

impl Observer for Shown {
    fn phase(&mut self, _: &str) {}
    fn note(&mut self, _: &str) {}

    fn begin(&mut self, progress: Progress) {
        self.metrics.begin(progress.epoch, progress.n_batches);
    }

    fn batch(&mut self, progress: Progress) {
        self.metrics.counted(progress.counted);
    }

    fn end(&mut self, ended: Ended<'_>) {
        self.metrics.counted(ended.counted);
        let result = ended.result;
        self.epochs.push(EpochRecord {
            figures: Some(result.clone()),
            ..EpochRecord::new(result.epoch, &result.strategy, result.batches)
        });
    }
}

#[test]
fn the_waits_of_fifty_runs_add_up_to_the_consumers_idle_time() -> Result<()> {
    programs::program("firmware-sim")?;
    let data = generated()?;
    let mut booked_of_all = Stall::default();
    for run in 0..N_RUNS {
        let setup = drawn(run, &data)?;
        let mut missing = f64::INFINITY;
        for _ in 0..N_ATTEMPTS {
            let found = missing_of(&setup, &mut booked_of_all);
            missing =
                missing.min(found.with_context(|| format!("run {run}: {setup:?}"))?);
            if missing < TOLERANCE {
                break;
            }
        }
        ensure!(
            missing < TOLERANCE,
            "run {run}: {missing} of the idle time is on no account: {setup:?}"
        );
    }
    for (cause, seconds) in booked_of_all.by_cause() {
        // Whether a strategy ever holds up the next batch is a matter of luck.
        let is_luck = cause == "order";
        ensure!(is_luck || seconds > 0.0, "nothing was booked as `{cause}` in all runs");
    }
    Ok(())
}

/// Makes a run, adds its waits to those of all, and says what part of its idle time is missing from
/// them, wherever they are shown.
fn missing_of(setup: &Setup, booked_of_all: &mut Stall) -> Result<f64> {
    let mut shown =
        Shown { metrics: Metrics::new("test", 0, "waits"), epochs: Vec::new() };
    let result = setup.watched(&mut shown)?;
    let idle: f64 = result.epochs.iter().map(|e| e.accelerator.idle_s).sum();
    ensure!(idle > 0.0, "it was never idle");
    // Before an accelerator that is always busy little else is left of the idle time.
    let n_batches: u32 = result.epochs.iter().map(|e| e.batches).sum();
    let taking_s = f64::from(n_batches) * TAKING_S;
    for epoch in &result.epochs {
        *booked_of_all += epoch.accelerator.stall_by;
    }
    let sums = [
        ("JSON", in_json(&result)?),
        ("metrics", in_metrics(&shown.metrics.text())?),
        ("page", on_page(shown.epochs, &result)?),
    ];
    let mut most = 0.0_f64;
    for (place, sum) in sums {
        ensure!(sum <= idle + ROUNDING_S, "{place}: {sum} s of waits and {idle} s idle");
        most = most.max((idle - sum - taking_s) / idle);
    }
    Ok(most)
}

/// The settings of a run.
fn drawn(run: u64, data: &std::path::Path) -> Result<Setup> {
    let key = SampleKey { seed: 20, epoch: EpochIdx(0), sample: SampleId(run) };
    let mut draws = Draws::new(key, 0);
    let mut one_of = |n: u32| draws.below(n) as usize;
    let devices = [None, Some("loopback"), Some("sim:ideal,rate=60")][one_of(3)];
    let strategies = match devices {
        None => ["ordered", "relaxed", "cpu"],
        Some(_) => ["ordered", "relaxed", "wrr"],
    };
    let dtype = [Dtype::U8, Dtype::F32][one_of(2)];
    Ok(Setup {
        devices: devices.map(str::to_owned).into_iter().collect(),
        strategy: strategies[one_of(3)],
        output: Output { dtype, layout: Layout::Nchw },
        accelerator: ["host", "sim:150", "sim:5000"][one_of(3)].parse()?,
        batch_size: [3, 8, 16][one_of(3)],
        workers: [1, 2][one_of(2)],
        epochs: [1, 2][one_of(2)],
        audit_percent: [0, 50][one_of(2)],
        seed: run,
        ..Setup::new(data)
    })
}

fn in_json(result: &RunResult) -> Result<f64> {
    let json = serde_json::to_value(result)?;
    let epochs = json["epochs"].as_array().context("epochs")?;
    Ok(epochs.iter().map(|epoch| sum(&epoch["accelerator"]["stall_by"])).sum())
}

fn in_metrics(text: &str) -> Result<f64> {
    let lines = text.lines().filter(|l| l.starts_with("bothends_stall_seconds_total{"));
    let value =
        |line: &str| Ok(line.split(' ').nth(1).context("a value")?.parse::<f64>()?);
    lines.map(value).sum()
}

/// The data of the page. Its bars are drawn from them, and the figures next to the bars are the same,
/// rounded.
fn on_page(epochs: Vec<EpochRecord>, result: &RunResult) -> Result<f64> {
    let header = Header {
        format: FORMAT,
        version: result.version.clone(),
        title: "waits".to_owned(),
        note: String::new(),
        generated_images: true,
        machine: Machine::read().summary(),
        command: String::new(),
        date: String::new(),
        config: result.config.clone(),
        run: String::new(),
    };
    let recording = Recording { header, epochs, run: None, cut_line: None };
    let page = html(&ReportInput::from(&recording));
    let data = page.split("id=\"data\">").nth(1).context("the page's data")?;
    let data = data.split("</script>").next().context("the data's end")?;
    let data: Value = serde_json::from_str(data.trim())?;
    let runs = data["runs"].as_array().context("runs")?;
    let bars = page
        .split("<div class=\"bars\" data-plot=\"time\">")
        .nth(1)
        .context("the bars")?;
    let bars = bars.split("class=\"legend\"").next().context("the bars' end")?;
    // `1.25 computing + 0.41 waiting + 0.02 own = 1.68 s`, or without what computes.
    let words = bars.split("class=\"figure\">").skip(1);
    let words: Vec<&str> = words.filter_map(|text| text.split(" s<").next()).collect();
    ensure!(words.len() == runs.len(), "{words:?}");
    for (run, words) in runs.iter().zip(words) {
        let (parts, whole) = words.split_once(" = ").with_context(|| words.to_owned())?;
        let parts = parts.split(" + ").map(|part| part.split(' ').next());
        let parts: f64 =
            parts.map(|part| part.unwrap_or("").parse().unwrap_or(f64::NAN)).sum();
        let whole: f64 = whole.parse()?;
        let of = |key: &str| run[key].as_f64().with_context(|| key.to_owned());
        let (seconds, idle_s) = (of("seconds")?, of("idle_s")?);
        // Each of them is rounded to three digits.
        ensure!((whole - seconds).abs() <= 0.01 * seconds + 0.006, "{words}: {seconds}");
        let expected = seconds - idle_s + sum(&run["stall"]);
        ensure!(
            (parts - expected).abs() <= 0.01 * expected + 0.01,
            "{words}: {expected}"
        );
    }
    Ok(runs.iter().map(|run| sum(&run["stall"])).sum())
}

/// All numbers of an object.
fn sum(object: &Value) -> f64 {
    object
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(_, number)| number.as_f64())
        .sum()
}
