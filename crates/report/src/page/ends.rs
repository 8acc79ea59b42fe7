//! The plot of two ends: for each strategy that walks the epoch from both, when every batch was made, by
//! whom, and when the accelerator received it. (`horizon.rs` has `ordered`.)
//!
//! Time runs to the right on the same scale for all strategies, and batches upwards in plan order. Each
//! event is one point; none is moved or merged.

use std::collections::BTreeMap;

use bothends_figures::What;

use crate::figure::{BOTH_ENDS, number};
use crate::page::frame::{Frame, Text};
use crate::page::markup::{self, legend, tag};
use crate::{Event, Prong, ReportInput, StrategyRun};

const HEIGHT: f64 = 236.0;

const LEGEND: [(&str, &str); 5] = [
    ("front", "made by the host"),
    ("back", "made by a device"),
    ("delivered", "delivered to the accelerator"),
    ("rescued", "re-executed by the host for a late device"),
    ("waits", "finished, waiting for its turn"),
];

/// Strategies under which host and device walk the epoch towards each other.
const FROM_BOTH_ENDS: [&str; 3] = ["mte", "wrr", "relaxed"];

/// One plot for each epoch under such a strategy; `None` without any.
pub(crate) fn plots(input: &ReportInput) -> Option<String> {
    let frame = frame(input);
    let mut plots = String::new();
    for (run, name) in input.runs.iter().zip(input.names()) {
        if walks_from_both_ends(run) && !run.events.is_empty() {
            let caption = format!(
                "{} s, {} front, {} back batches",
                number(run.seconds),
                run.front_batches,
                run.back_batches
            );
            plots += &markup::plot(&name, &caption, &plot(frame, run, &name));
        }
    }
    let legend = legend(&LEGEND, &tag(BOTH_ENDS, input));
    (!plots.is_empty()).then(|| format!("<div class=\"plots\">\n{plots}</div>\n{legend}"))
}

/// Whether host and device met somewhere inside this epoch.
pub(crate) fn walks_from_both_ends(run: &StrategyRun) -> bool {
    FROM_BOTH_ENDS.contains(&run.strategy.as_str())
}

/// Converts seconds and batches to coordinates, the same for all runs.
fn frame(input: &ReportInput) -> Frame {
    let events = input.runs.iter().flat_map(|run| &run.events);
    let last_batch = events.map(|event| event.batch).max().unwrap_or(0);
    let most = f64::from(last_batch.max(1));
    Frame { longest_s: input.longest_s(), most, height: HEIGHT }
}

fn plot(frame: Frame, run: &StrategyRun, name: &str) -> String {
    let of = |prong, kind| {
        let wanted = move |e: &&Event| (e.prong, e.kind) == (prong, kind);
        points(frame, run.events.iter().filter(wanted))
    };
    let delivered = run.events.iter().filter(|event| event.kind == What::Delivered);
    let rescued = run.events.iter().filter(|event| event.kind == What::Rescued);
    let content = format!(
        "<path class=\"waits\" d=\"{}\"/>\
         <path class=\"front\" d=\"{}\"/><path class=\"back\" d=\"{}\"/>\
         <path class=\"delivered\" d=\"{}\"/><path class=\"rescued\" d=\"{}\"/>",
        waits(frame, run),
        of(Prong::Front, What::Made),
        of(Prong::Back, What::Made),
        points(frame, delivered),
        points(frame, rescued),
    );
    let label = format!("{name}: when each batch was made and delivered");
    let text = Text { name: "ends", label: &label, unit: "batch, in plan order" };
    frame.picture(&text, &[0.0, frame.most], &content)
}

/// For each delivered batch, a line from when it was made to when it was taken.
fn waits(frame: Frame, run: &StrategyRun) -> String {
    let mut made_s = BTreeMap::new();
    let mut path = String::new();
    for event in run.events.iter().filter(|event| event.t_s.is_finite()) {
        if event.kind != What::Delivered {
            made_s.insert(event.batch, event.t_s);
        } else if let Some(made_s) = made_s.get(&event.batch) {
            let (from, to) = (frame.x(*made_s), frame.x(event.t_s));
            path += &format!("M{from:.1} {:.1}H{to:.1}", frame.y(event.batch.into()));
        }
    }
    path
}

/// A path with one dot per event.
fn points<'a>(frame: Frame, events: impl Iterator<Item = &'a Event>) -> String {
    events
        .filter(|event| event.t_s.is_finite())
        .map(|event| {
            format!("M{:.2} {:.2}h0", frame.x(event.t_s), frame.y(event.batch.into()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::page::frame::points_of;

    #[test]
    fn the_plotted_points_are_the_events_of_the_json() {
        let json = example::input().to_json().unwrap();
        let input = ReportInput::from_json(&json).unwrap();
        let frame = frame(&input);
        for run in &input.runs {
            let svg = plot(frame, run, &run.strategy);
            for (class, wanted) in [
                ("front", (Some(Prong::Front), What::Made)),
                ("back", (Some(Prong::Back), What::Made)),
                ("delivered", (None, What::Delivered)),
                ("rescued", (None, What::Rescued)),
            ] {
                let events: Vec<&Event> = run
                    .events
                    .iter()
                    .filter(|e| {
                        e.kind == wanted.1 && wanted.0.is_none_or(|p| p == e.prong)
                    })
                    .collect();
                let dots = points_of(&svg, class, frame);
                assert_eq!(dots.len(), events.len(), "{class} of {}", run.strategy);
                for ((t_s, batch), event) in dots.into_iter().zip(events) {
                    assert!(
                        (t_s - event.t_s).abs() <= frame.longest_s * 1e-4,
                        "{event:?}"
                    );
                    assert!((batch - f64::from(event.batch)).abs() < 0.1, "{event:?}");
                }
            }
        }
        let n_back = |run: &StrategyRun| {
            run.events.iter().filter(|event| event.prong == Prong::Back).count()
        };
        assert!(n_back(&input.runs[1]) > 5, "the example has no back");
    }

    #[test]
    fn odd_events_do_no_harm() {
        let mut input = example::input();
        input.runs[0].events = vec![
            example::event(f64::NAN, Prong::Front, What::Made),
            example::event(f64::INFINITY, Prong::Back, What::Delivered),
        ];
        input.runs.truncate(1);
        input.runs[0].strategy = "mte".to_owned();
        let plots = plots(&input).unwrap();
        assert!(!plots.contains("NaN") && !plots.contains("inf"), "{plots}");
    }
}
