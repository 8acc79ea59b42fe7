//! The plot of `ordered`: how far ahead of delivery every batch was claimed and finished. The host works
//! at the front of a moving horizon, and a device ahead of it inside that horizon.
//!
//! Each batch is one line from claim to finish and one dot at the finish; none is moved. `ends.rs` has
//! the strategies that walk the epoch from both ends.

use std::collections::BTreeMap;

use bothends_figures::What;

use crate::figure::{BOTH_ENDS, number};
use crate::page::frame::{Frame, Text, ticks};
use crate::page::markup::{self, legend, tag};
use crate::{Prong, ReportInput, StrategyRun};

const HEIGHT: f64 = 236.0;

const LEGEND: [(&str, &str); 3] = [
    ("front", "host: claimed, then finished (dot)"),
    ("back", "device: claimed, then finished (dot)"),
    ("rescued", "re-executed by the host for a late device"),
];

/// An event of a batch: seconds, and how many batches it is ahead of the next one to deliver.
type Point = (f64, f64);

/// The contents of a plot.
#[derive(Debug, Default)]
struct Drawn {
    /// Claim and finish of batches made by the host, and made by devices.
    made: [Vec<(Option<Point>, Point)>; 2],
    rescued: Vec<Point>,
}

/// One plot for each epoch of `ordered` in which a device took part; `None` without any.
pub(crate) fn plots(input: &ReportInput) -> Option<String> {
    let has_device =
        |run: &&StrategyRun| run.events.iter().any(|event| event.prong == Prong::Back);
    let is_here = |run: &&StrategyRun| run.strategy == "ordered" && has_device(run);
    let runs = input.runs.iter().zip(input.names()).filter(|(run, _)| is_here(run));
    let drawn: Vec<(&StrategyRun, String, Drawn)> =
        runs.map(|(run, name)| (run, name, drawn(run))).collect();
    let most = drawn.iter().map(|(.., drawn)| drawn.most()).fold(1.0, f64::max) * 1.05;
    let frame = Frame { longest_s: input.longest_s(), most, height: HEIGHT };
    let mut plots = String::new();
    for (run, name, drawn) in &drawn {
        let caption =
            format!("{} front, {} back batches", run.front_batches, run.back_batches);
        let caption = format!("{} s, {caption}", number(run.seconds));
        plots += &markup::plot(name, &caption, &drawn.plot(frame, name));
    }
    let legend = legend(&LEGEND, &tag(BOTH_ENDS, input));
    (!drawn.is_empty()).then(|| format!("<div class=\"plots\">\n{plots}</div>\n{legend}"))
}

/// Delivery is in plan order, so the lead of a batch is its distance from the next one to deliver.
fn drawn(run: &StrategyRun) -> Drawn {
    let events = || run.events.iter().filter(|event| event.t_s.is_finite());
    let delivered = events().filter(|event| event.kind == What::Delivered);
    let mut next = delivered.map(|event| event.batch).min().unwrap_or(0);
    let mut claims: BTreeMap<(u32, bool), Point> = BTreeMap::new();
    let mut drawn = Drawn::default();
    for event in events() {
        let by_device = event.prong == Prong::Back;
        let key = (event.batch, by_device);
        let point = (event.t_s, f64::from(event.batch.saturating_sub(next)));
        match event.kind {
            What::Claimed => drop(claims.insert(key, point)),
            What::Rescued => {
                claims.insert(key, point);
                drawn.rescued.push(point);
            }
            What::Made => {
                drawn.made[usize::from(by_device)].push((claims.remove(&key), point));
            }
            What::Delivered => next = event.batch.saturating_add(1),
            What::Lost => {}
        }
    }
    drawn
}

impl Drawn {
    fn most(&self) -> f64 {
        let points = self.made.iter().flatten().flat_map(|(claim, made)| {
            claim.iter().chain([made]).copied().collect::<Vec<_>>()
        });
        points.map(|(_, ahead)| ahead).fold(0.0, f64::max)
    }

    fn plot(&self, frame: Frame, name: &str) -> String {
        let mut content = String::new();
        for (class, made) in ["front", "back"].into_iter().zip(&self.made) {
            let lines: String = made
                .iter()
                .filter_map(|(claim, made)| Some(line(frame, (*claim)?, *made)))
                .collect();
            let dots = dots(frame, made.iter().map(|(_, made)| *made));
            content += &format!(
                "<path class=\"{class} under-way\" d=\"{lines}\"/>\
                 <path class=\"{class}\" d=\"{dots}\"/>"
            );
        }
        let rescued = dots(frame, self.rescued.iter().copied());
        content += &format!("<path class=\"rescued\" d=\"{rescued}\"/>");
        let label = format!("{name}: how far ahead of delivery batches were made");
        let unit = "batches ahead of delivery";
        let text = Text { name: "horizon", label: &label, unit };
        frame.picture(&text, &ticks(frame.most, 4), &content)
    }
}

fn line(frame: Frame, (from_s, from): Point, (to_s, to): Point) -> String {
    let at = |t_s: f64, ahead: f64| format!("{:.1} {:.1}", frame.x(t_s), frame.y(ahead));
    format!("M{}L{}", at(from_s, from), at(to_s, to))
}

fn dots(frame: Frame, points: impl Iterator<Item = Point>) -> String {
    let dot =
        |(t_s, ahead): Point| format!("M{:.2} {:.2}h0", frame.x(t_s), frame.y(ahead));
    points.map(dot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::frame::points_of;
    use crate::{Event, example};

    fn event(t_s: f64, batch: u32, prong: Prong, kind: What) -> Event {
        Event { batch, ..example::event(t_s, prong, kind) }
    }

    /// Checked by hand: the device claims batch 6 before batch 0 is delivered, and has it ready three
    /// batches ahead.
    #[test]
    fn a_batch_is_drawn_as_far_ahead_as_it_was() {
        let (host, device) = (Prong::Front, Prong::Back);
        let mut input = example::input();
        input.runs.remove(0);
        input.runs[0].events = vec![
            event(0.0, 0, host, What::Claimed),
            event(0.0, 6, device, What::Claimed),
            event(1.0, 0, host, What::Made),
            event(1.0, 0, host, What::Delivered),
            event(2.0, 1, host, What::Delivered),
            event(3.0, 2, host, What::Delivered),
            event(4.0, 6, device, What::Made),
        ];
        let drawn = drawn(&input.runs[0]);
        assert_eq!(drawn.made[0], [(Some((0.0, 0.0)), (1.0, 0.0))]);
        assert_eq!(drawn.made[1], [(Some((0.0, 6.0)), (4.0, 3.0))]);
        let frame = Frame { longest_s: 10.0, most: 10.0, height: HEIGHT };
        let points = points_of(&drawn.plot(frame, "x"), "back", frame);
        assert_eq!(points.len(), 1);
        let (t_s, ahead) = points[0];
        assert!((t_s - 4.0).abs() < 0.01 && (ahead - 3.0).abs() < 0.1, "{points:?}");
    }

    #[test]
    fn only_ordered_with_a_device_has_a_horizon() {
        let mut input = example::input();
        let page = plots(&input).unwrap();
        assert_eq!(page.matches("data-plot=\"horizon\"").count(), 1);
        input.runs[1].strategy = "relaxed".to_owned();
        assert_eq!(plots(&input), None);
    }
}
