//! A small report for tests: the host alone, and both ends with one rescue.

use crate::{
    Alone, Emulated, Event, EventKind, Prong, ReportInput, StallSeconds, StrategyRun,
};

pub(crate) fn input() -> ReportInput {
    ReportInput {
        title: "One epoch, two ends".to_owned(),
        note: "The device and the accelerator are emulated.".to_owned(),
        emulated: vec![Emulated::Device, Emulated::Accelerator, Emulated::Images],
        machine: "2 cores".to_owned(),
        command: "bothends demo".to_owned(),
        date: "2026-11-20".to_owned(),
        alone: Some(Alone {
            front_images_per_s: 202.5,
            back_images_per_s: 47.5,
            accelerator_images_per_s: Some(328.2),
        }),
        runs: vec![
            run("cpu", 200.0, [40, 0], &host_only()),
            run("ordered", 246.0, [33, 7], &both_ends()),
        ],
    }
}

fn run(
    strategy: &str,
    images_per_s: f64,
    batches: [u64; 2],
    events: &[Event],
) -> StrategyRun {
    StrategyRun {
        strategy: strategy.to_owned(),
        seconds: 2560.0 / images_per_s,
        images_per_s,
        utilisation: Some(images_per_s / 328.0),
        front_batches: batches[0],
        back_batches: batches[1],
        efficiency: Some(images_per_s / 250.0),
        cpu_ms_per_image: if strategy == "cpu" { 4.9 } else { 4.0 },
        peak_rss_bytes: if strategy == "cpu" { 210_000_000 } else { 231_000_000 },
        rescued: u64::from(strategy != "cpu"),
        stream_digest: "a".repeat(32),
        content_digest: "b".repeat(32),
        stall: StallSeconds {
            read: 0.1,
            decode: 3.1,
            device: 0.4,
            copy: 0.01,
            consumer: 0.0,
        },
        events: events.to_vec(),
    }
}

fn event(t_s: f64, batch: u32, prong: Prong, kind: EventKind) -> Event {
    Event { t_s, batch, prong, kind }
}

fn host_only() -> Vec<Event> {
    (0..40)
        .flat_map(|batch| {
            let made_s = 0.32 * f64::from(batch + 1);
            [(made_s, EventKind::Made), (made_s + 0.05, EventKind::Delivered)]
                .map(|(t_s, kind)| event(t_s, batch, Prong::Front, kind))
        })
        .collect()
}

/// In plan order, every sixth batch by the device, ahead of time; the last one rescued.
fn both_ends() -> Vec<Event> {
    (0..40)
        .flat_map(|batch| {
            let due_s = 0.26 * f64::from(batch + 1);
            let (prong, made_s) = if batch % 6 == 5 {
                (Prong::Back, due_s - 0.6)
            } else {
                (Prong::Front, due_s)
            };
            let kind = if batch == 35 { EventKind::Rescued } else { EventKind::Made };
            [(made_s, kind), (due_s + 0.06, EventKind::Delivered)]
                .map(|(t_s, kind)| event(t_s, batch, prong, kind))
        })
        .collect()
}
