//! A run as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing, in the JSON format of Chrome's
//! trace events.
//!
//! There is a process for the host, for each device, for delivery, and for the epochs. A batch is one
//! complete event from claim to finish; batches in progress at the same time are in separate rows.
//! Counters show the waiting batches and both ends. `otlp` has the same for OpenTelemetry.

mod otlp;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use bothends_figures::{Moment, What};

use crate::record::{EpochRecord, Recording};
use crate::series::Queue;

pub use otlp::Spans;

/// Processes of the trace.
const EPOCHS: u32 = 1;
const DELIVERY: u32 = 2;
const HOST: u32 = 3;
const FIRST_DEVICE: u32 = 4;

/// The trace as one JSON object.
///
/// # Errors
/// None is known to occur.
pub fn trace(recording: &Recording) -> Result<String, serde_json::Error> {
    let mut tracks = Tracks::default();
    let mut began_s = 0.0;
    for epoch in &recording.epochs {
        tracks.epoch(epoch, began_s);
        let last_s = epoch.moments.last().map_or(0.0, |moment| moment.t_s);
        began_s += epoch.seconds().max(last_s);
    }
    let header = &recording.header;
    serde_json::to_string(&json!({
        "displayTimeUnit": "ms",
        "otherData": {
            "program": "bothends", "version": header.version, "command": header.command,
            "machine": header.machine, "date": header.date,
        },
        "traceEvents": tracks.into_events(),
    }))
}

/// One event of the format; times are in microseconds.
#[derive(Debug, Clone, Serialize)]
struct TraceEvent {
    ph: &'static str,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    pid: u32,
    tid: u32,
    name: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    args: Value,
}

/// The tracks so far.
#[derive(Debug, Default)]
struct Tracks {
    events: Vec<TraceEvent>,
    /// For each process, until when each of its rows is occupied, in microseconds.
    rows: BTreeMap<u32, Vec<f64>>,
}

/// An open claim.
#[derive(Debug, Clone, Copy)]
struct Open {
    since_s: f64,
    is_rescue: bool,
}

impl Tracks {
    fn epoch(&mut self, epoch: &EpochRecord, began_s: f64) {
        let name = format!("epoch {} {}", epoch.epoch, epoch.strategy);
        let figures = epoch.figures.as_ref();
        let args = match figures {
            Some(figures) => json!({"images_per_s": figures.images_per_s}),
            None => json!({"ended": false}),
        };
        self.span(EPOCHS, [began_s, began_s + epoch.seconds()], name, args);
        let mut open: BTreeMap<(Option<u16>, u32), Open> = BTreeMap::new();
        let mut queue = Queue::default();
        let mut ends = [None; 2];
        let mut delivered_s = began_s;
        for moment in &epoch.moments {
            let now_s = began_s + moment.t_s;
            let key = (moment.device, moment.batch);
            match moment.what {
                What::Claimed | What::Rescued => {
                    let is_rescue = moment.what == What::Rescued;
                    open.insert(key, Open { since_s: now_s, is_rescue });
                    ends[usize::from(moment.device.is_some())] = Some(moment.batch);
                    self.ends(now_s, ends);
                }
                What::Made | What::Lost => {
                    if let Some(open) = open.remove(&key) {
                        self.made(moment, open, now_s);
                    }
                }
                What::Delivered => {
                    let by = moment
                        .device
                        .map_or("the host".to_owned(), |d| format!("device {d}"));
                    let name = format!("batch {}", moment.batch);
                    let args = json!({"batch": moment.batch, "made_by": by});
                    self.span(DELIVERY, [delivered_s, now_s], name, args);
                    delivered_s = now_s;
                }
            }
            if queue.take(moment) {
                let [front, back] = queue.waiting();
                let args = json!({"front": front, "back": back});
                self.counter(now_s, "waiting batches", args);
            }
        }
    }

    /// A batch's way through a prong.
    fn made(&mut self, moment: &Moment, open: Open, now_s: f64) {
        let mut name = format!("batch {}", moment.batch);
        if open.is_rescue {
            name += " (rescue)";
        }
        if moment.what == What::Lost {
            name += " (lost)";
        }
        let process = moment.device.map_or(HOST, |d| FIRST_DEVICE + u32::from(d));
        self.span(process, [open.since_s, now_s], name, json!({"batch": moment.batch}));
    }

    /// A complete event in the first free row of its process.
    fn span(&mut self, pid: u32, [from_s, to_s]: [f64; 2], name: String, args: Value) {
        let (ts, end) = (microseconds(from_s), microseconds(to_s));
        let rows = self.rows.entry(pid).or_default();
        let row = rows.iter().position(|taken| *taken <= ts).unwrap_or(rows.len());
        match rows.get_mut(row) {
            Some(taken) => *taken = end,
            None => rows.push(end),
        }
        let tid = u32::try_from(row).unwrap_or(u32::MAX).saturating_add(1);
        let dur = Some((end - ts).max(0.0));
        self.events.push(TraceEvent { ph: "X", ts, dur, pid, tid, name, args });
    }

    /// The latest batch that each end claimed.
    fn ends(&mut self, now_s: f64, [front, back]: [Option<u32>; 2]) {
        let mut args = serde_json::Map::new();
        for (name, end) in [("front", front), ("back", back)] {
            if let Some(batch) = end {
                args.insert(name.to_owned(), batch.into());
            }
        }
        self.counter(now_s, "ends", Value::Object(args));
    }

    fn counter(&mut self, now_s: f64, name: &str, args: Value) {
        let (ts, name) = (microseconds(now_s), name.to_owned());
        self.events.push(TraceEvent {
            ph: "C",
            ts,
            dur: None,
            pid: DELIVERY,
            tid: 0,
            name,
            args,
        });
    }

    /// Names first, then everything in chronological order.
    fn into_events(mut self) -> Vec<TraceEvent> {
        self.events.sort_by(|a, b| a.ts.total_cmp(&b.ts));
        let mut events = Vec::new();
        for (&pid, rows) in &self.rows {
            let name = match pid {
                EPOCHS => "epochs".to_owned(),
                DELIVERY => "delivery to the accelerator".to_owned(),
                HOST => "host workers".to_owned(),
                device => format!("device {}", device - FIRST_DEVICE),
            };
            events.push(named("process_name", pid, 0, json!({"name": name})));
            events.push(named("process_sort_index", pid, 0, json!({"sort_index": pid})));
            for tid in 1..=u32::try_from(rows.len()).unwrap_or(u32::MAX) {
                let row =
                    if rows.len() == 1 { name.clone() } else { format!("{name} {tid}") };
                events.push(named("thread_name", pid, tid, json!({"name": row})));
            }
        }
        events.append(&mut self.events);
        events
    }
}

fn named(what: &str, pid: u32, tid: u32, args: Value) -> TraceEvent {
    TraceEvent { ph: "M", ts: 0.0, dur: None, pid, tid, name: what.to_owned(), args }
}

/// Microseconds with the nanoseconds of the clock.
fn microseconds(seconds: f64) -> f64 {
    (seconds * 1e9).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn events(recording: &Recording) -> Vec<Value> {
        let json: Value = serde_json::from_str(&trace(recording).unwrap()).unwrap();
        json["traceEvents"].as_array().unwrap().clone()
    }

    #[test]
    fn every_event_is_complete_and_no_row_goes_back_in_time() {
        let events = events(&example::recording());
        let mut free_at: BTreeMap<(u64, u64), f64> = BTreeMap::new();
        for event in &events {
            let track = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
            let ts = event["ts"].as_f64().unwrap();
            assert!(ts >= 0.0 && !event["name"].as_str().unwrap().is_empty(), "{event}");
            match event["ph"].as_str().unwrap() {
                "X" => {
                    let dur = event["dur"].as_f64().unwrap();
                    let free = free_at.entry(track).or_default();
                    assert!(dur >= 0.0 && ts >= *free - 1e-3, "{event} before {free}");
                    *free = ts + dur;
                }
                "C" => assert!(
                    event["args"].as_object().unwrap().values().all(Value::is_u64)
                ),
                "M" => assert!(event["args"].is_object() && event.get("dur").is_none()),
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn every_batch_is_made_and_delivered_on_its_row() {
        let recording = example::recording();
        let events = events(&recording);
        let count = |pid: u32, text: &str| {
            let is = |e: &&Value| {
                e["ph"] == "X"
                    && e["pid"] == pid
                    && e["name"].as_str().unwrap().contains(text)
            };
            events.iter().filter(is).count()
        };
        assert_eq!(count(EPOCHS, "epoch 0"), 2);
        assert_eq!(count(DELIVERY, "batch"), 80);
        // The rescued batch ends with the host.
        assert_eq!(count(HOST, "batch") + count(FIRST_DEVICE, "batch"), 80);
        assert_eq!(count(HOST, "(rescue)"), 1);
        let last = events.iter().rfind(|e| e["name"] == "waiting batches").unwrap();
        assert_eq!(last["args"], json!({"front": 0, "back": 0}));
        let ends = events.iter().rfind(|e| e["name"] == "ends").unwrap();
        assert!(ends["args"]["front"].is_u64() && ends["args"]["back"].is_u64());
        assert!(trace(&recording).unwrap().contains("\"name\":\"host workers 1\""));
    }

    #[test]
    fn a_run_without_an_end_has_a_trace() {
        let mut recording = example::recording();
        recording.run = None;
        recording.epochs[1].figures = None;
        recording.epochs[1].moments.truncate(30);
        let events = events(&recording);
        assert!(events.iter().any(|event| event["args"]["ended"] == false));
        assert!(!trace(&Recording::default()).unwrap().is_empty());
    }
}
