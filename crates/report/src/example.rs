//! A small run for tests: the host alone, and both prongs with one rescue.

use serde_json::{Value, json};

use bothends_figures::{EpochResult, Moment, RunResult, UsageSample, What};

use crate::record::{EpochRecord, FORMAT, Header, Line, Recording};
use crate::{Event, Prong, ReportInput};

pub(crate) fn input() -> ReportInput {
    ReportInput::from(&recording())
}

/// The run as a recording.
pub(crate) fn recording() -> Recording {
    let epochs = epochs()
        .into_iter()
        .map(|(result, record)| EpochRecord { figures: Some(result), ..record });
    Recording {
        header: header(),
        epochs: epochs.collect(),
        run: Some(run_result()),
        cut_line: None,
    }
}

/// The same run as an event file.
pub(crate) fn lines() -> String {
    let mut lines = vec![Line::Header(Box::new(header()))];
    for (result, record) in epochs() {
        let EpochRecord { epoch, strategy, n_batches, .. } = record;
        lines.push(Line::Begin { epoch, strategy, n_batches });
        lines.extend(record.moments.iter().map(|m| Line::Moment { epoch, moment: *m }));
        lines.extend(record.looks.iter().map(|look| Line::Usage { epoch, used: *look }));
        lines.push(Line::Epoch { epoch, moments_cut: 0, result: Box::new(result) });
    }
    lines.push(Line::Run { result: Box::new(run_result()) });
    lines.iter().map(|line| line.to_text().unwrap()).collect()
}

fn header() -> Header {
    let config = json!({
        "batch_size": 64, "strategy": "ordered", "csd": ["sim:newport,rate=0.235x"],
        "accelerator": "sim:328.2", "accelerator_images_per_s": 328.2, "limit": null,
        "recipe": "imagenet-train",
    });
    Header {
        format: FORMAT,
        version: "0.1.0".to_owned(),
        run: "job-7".to_owned(),
        title: "One epoch, two ends".to_owned(),
        note: "The device and the accelerator are emulated.".to_owned(),
        generated_images: true,
        machine: "2 cores".to_owned(),
        command: "bothends demo".to_owned(),
        date: "2026-11-20".to_owned(),
        config: serde_json::from_value(config).unwrap(),
    }
}

fn epochs() -> [(EpochResult, EpochRecord); 2] {
    let record = |strategy: &str, moments, seconds, cores| EpochRecord {
        moments,
        looks: looks(seconds, cores),
        ..EpochRecord::new(0, strategy, 40)
    };
    [
        (result("cpu", 200.0, [40, 0]), record("cpu", host_only(), 12.8, 0.98)),
        (result("ordered", 246.0, [33, 7]), record("ordered", both_ends(), 10.4, 0.99)),
    ]
}

/// Figures that add up: `seconds` is busy plus idle time, and idle time is the sum of all waits.
fn result(strategy: &str, images_per_s: f64, [front, back]: [u32; 2]) -> EpochResult {
    let is_cpu = strategy == "cpu";
    let seconds = 2560.0 / images_per_s;
    let (first_batch_s, own_s) = (0.3, 0.2);
    let busy_s = (seconds - first_batch_s - own_s) * images_per_s / 328.0;
    let idle_s = seconds - busy_s;
    let stall_s = idle_s - first_batch_s - own_s;
    let (read, copy, device) = (0.1, 0.01, if is_cpu { 0.0 } else { 0.4 });
    let decode = idle_s - own_s - read - copy - device;
    let device_j = if is_cpu { 0.0 } else { 32.0 };
    let modelled = [
        ("host processors", if is_cpu { 128.0 } else { 76.0 }),
        ("memory", if is_cpu { 25.6 } else { 20.0 }),
        ("device 0, work", device_j),
    ];
    let result = json!({
        "epoch": 0,
        "strategy": strategy,
        "samples": 2560,
        "batches": 40,
        "seconds": seconds,
        "images_per_s": images_per_s,
        "first_batch_s": first_batch_s,
        "stream_digest": "a".repeat(32),
        "content_digest": "b".repeat(32),
        "front": {"batches": front},
        "back": [{
            "device": "sim:newport,rate=0.235x", "emulated": true, "batches": back,
            "late_completions": 0, "max_lateness_seconds": 0.0, "lateness_seconds": 0.0,
        }],
        "rescued": u32::from(!is_cpu),
        "efficiency": images_per_s / 250.0,
        "cpu_ms_per_image": if is_cpu { 4.9 } else { 4.0 },
        "peak_rss_bytes": if is_cpu { 210_000_000 } else { 231_000_000 },
        "energy": energy(&[], &modelled),
        "accelerator": {
            "utilisation": busy_s / (busy_s + stall_s),
            "busy_s": busy_s,
            "stall_s": stall_s,
            "idle_s": idle_s,
            "stall_by": {
                "read": read, "decode": decode, "device": device, "copy": copy,
                "consumer": own_s,
            },
        },
    });
    serde_json::from_value(result).unwrap()
}

fn run_result() -> RunResult {
    let measured = [("package", 412.0)];
    let modelled =
        [("memory", 21.25), ("host processors", 96.5), ("device 0, work", 31.0)];
    let result = json!({
        "version": "0.1.0",
        "memory": {"peak_rss_bytes": 231_000_000},
        "energy": energy(&measured, &modelled),
        "alone": {"front_images_per_s": 202.5, "back_images_per_s": 47.5},
    });
    serde_json::from_value(result).unwrap()
}

/// Domains of two kinds, and the sum of each.
fn energy(measured: &[(&str, f64)], modelled: &[(&str, f64)]) -> Value {
    let figure = |name: &str, joules: f64, source: &str| {
        let is_measured = source.starts_with("measured");
        let (low, high) = if is_measured { (1.0, 1.0) } else { (0.6, 1.7) };
        let (low, high) = (joules * low, joules * high);
        json!({"name": name, "joules": joules, "low": low, "high": high, "source": source})
    };
    let kinds =
        [("measured(rapl:package-0)", measured), ("modelled(default@1)", modelled)];
    let kinds = kinds.into_iter().filter(|(_, figures)| !figures.is_empty());
    let (mut domains, mut totals) = (Vec::new(), Vec::new());
    for (source, figures) in kinds {
        domains
            .extend(figures.iter().map(|(name, joules)| figure(name, *joules, source)));
        let sum = figures.iter().map(|(_, joules)| joules).sum();
        totals.push(figure("total", sum, source));
    }
    json!({"joules_per_sample": null, "domains": domains, "totals": totals})
}

fn looks(seconds: f64, cores: f64) -> Vec<UsageSample> {
    let n = (seconds / 0.5).floor();
    let mut moments: Vec<f64> = (0..32).map(|i| f64::from(i) * 0.5).collect();
    moments.retain(|t_s| *t_s <= n * 0.5);
    moments.push(seconds);
    let mut bytes = 150_000_000_u64;
    let look = |t_s: f64| {
        bytes = (bytes + 17_000_000).min(225_000_000);
        UsageSample { t_s, cpu_s: Some(t_s * cores), pss_bytes: Some(bytes) }
    };
    moments.into_iter().map(look).collect()
}

fn moment(t_s: f64, batch: u32, device: Option<u16>, what: What) -> Moment {
    Moment { t_s, batch, device, what }
}

fn host_only() -> Vec<Moment> {
    let moments = (0..40).flat_map(|batch| {
        let made_s = 0.31 * f64::from(batch + 1);
        let begun_s = (made_s - 0.5).max(0.0);
        [
            moment(begun_s, batch, None, What::Claimed),
            moment(made_s, batch, None, What::Made),
            moment(made_s + 0.05, batch, None, What::Delivered),
        ]
    });
    in_order(moments.collect())
}

/// In plan order, every sixth batch by the device, ahead of time; the last one rescued.
fn both_ends() -> Vec<Moment> {
    let moments = (0..40).flat_map(|batch| {
        let due_s = 0.255 * f64::from(batch + 1);
        let is_rescued = batch == 35;
        let device = (batch % 6 == 5).then_some(0);
        let made_s = if device.is_some() { due_s - 0.6 } else { due_s };
        let begun_s = if device.is_some() { made_s - 0.8 } else { made_s - 0.3 };
        let by = device.filter(|_| !is_rescued);
        let mut moments = vec![moment(begun_s.max(0.0), batch, device, What::Claimed)];
        if is_rescued {
            moments.push(moment(begun_s + 0.5, batch, None, What::Rescued));
        }
        moments.push(moment(made_s, batch, by, What::Made));
        moments.push(moment(due_s + 0.06, batch, by, What::Delivered));
        moments
    });
    in_order(moments.collect())
}

fn in_order(mut moments: Vec<Moment>) -> Vec<Moment> {
    moments.sort_by(|a, b| a.t_s.total_cmp(&b.t_s));
    moments
}

/// An event for tests.
pub(crate) fn event(t_s: f64, prong: Prong, kind: What) -> Event {
    Event { t_s, batch: 0, prong, kind }
}
