//! The picture of two ends: for each strategy, when every batch was made, by whom, and when
//! the accelerator got it.
//!
//! Time runs to the right on one scale for all strategies, batches upwards in plan order.
//! Each event is one point; none is moved, merged or made up.

use crate::figure::{Origin, number, origin_words};
use crate::markup::{escape, origin_tag};
use crate::{Emulated, Event, EventKind, Prong, ReportInput, StrategyRun};

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 236.0;
const LEFT: f64 = 34.0;
const RIGHT: f64 = 352.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 200.0;

/// One plot per strategy that has events.
pub(crate) fn plots(input: &ReportInput) -> String {
    let scale = Scale::of(input);
    let mut plots = String::from("<div class=\"plots\">\n");
    for (run, name) in input.runs.iter().zip(input.names()) {
        if !run.events.is_empty() {
            let caption = format!(
                "<b>{}</b> {} s, {} batches from the front, {} from the back",
                escape(&name),
                number(run.seconds),
                run.front_batches,
                run.back_batches
            );
            plots += &format!(
                "<figure><figcaption>{caption}</figcaption>{}</figure>\n",
                scale.plot(run, &name)
            );
        }
    }
    let origin = Origin::MeasuredWith(&[Emulated::Device, Emulated::Accelerator]);
    plots
        + "</div>\n<p class=\"legend\"><span class=\"key front\"></span>made by the host \
           <span class=\"key back\"></span>made by a device \
           <span class=\"key delivered\"></span>delivered to the accelerator \
           <span class=\"key rescued\"></span>made again by the host for a late device \
           <span class=\"key waits\"></span>waiting between the two "
        + &origin_tag(&origin_words(origin, input))
        + "</p>\n"
}

/// From seconds and batches to places in the picture.
#[derive(Debug, Clone, Copy)]
struct Scale {
    longest_s: f64,
    last_batch: f64,
}

impl Scale {
    fn of(input: &ReportInput) -> Self {
        let events = || input.runs.iter().flat_map(|run| &run.events);
        let ends = events().map(|event| event.t_s).filter(|t_s| t_s.is_finite());
        let longest_s = ends.fold(0.0, f64::max);
        let last_batch = events().map(|event| event.batch).max().unwrap_or(0);
        Self { longest_s: longest_s.max(1e-9), last_batch: f64::from(last_batch.max(1)) }
    }

    fn x(self, t_s: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * t_s / self.longest_s
    }

    fn y(self, batch: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * batch / self.last_batch
    }

    fn plot(self, run: &StrategyRun, name: &str) -> String {
        let of = |prong, kind| {
            let wanted = move |e: &&Event| (e.prong, e.kind) == (prong, kind);
            points(self, run.events.iter().filter(wanted))
        };
        let delivered =
            run.events.iter().filter(|event| event.kind == EventKind::Delivered);
        let rescued = run.events.iter().filter(|event| event.kind == EventKind::Rescued);
        format!(
            "<svg class=\"ends\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             aria-label=\"{}: when each batch was made and delivered\">{}\
             <path class=\"waits\" d=\"{}\"/>\
             <path class=\"front\" d=\"{}\"/><path class=\"back\" d=\"{}\"/>\
             <path class=\"delivered\" d=\"{}\"/><path class=\"rescued\" d=\"{}\"/></svg>",
            escape(name),
            self.axes(),
            self.waits(run),
            of(Prong::Front, EventKind::Made),
            of(Prong::Back, EventKind::Made),
            points(self, delivered),
            points(self, rescued),
        )
    }

    /// For each delivered batch a line from when it was made to when it was taken.
    fn waits(self, run: &StrategyRun) -> String {
        let n_batches = run.events.iter().map(|event| event.batch as usize + 1).max();
        let mut made_s = vec![None; n_batches.unwrap_or(0)];
        let mut path = String::new();
        for event in run.events.iter().filter(|event| event.t_s.is_finite()) {
            let made_s = &mut made_s[event.batch as usize];
            if event.kind != EventKind::Delivered {
                *made_s = Some(event.t_s);
            } else if let Some(made_s) = *made_s {
                let (from, to) = (self.x(made_s), self.x(event.t_s));
                path += &format!("M{from:.1} {:.1}H{to:.1}", self.y(event.batch.into()));
            }
        }
        path
    }

    fn axes(self) -> String {
        let mut axes = format!(
            "<path class=\"axis\" d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\"/>\
             <text class=\"unit\" x=\"{RIGHT}\" y=\"{}\" text-anchor=\"end\">seconds</text>\
             <text class=\"unit\" transform=\"translate(9 {}) rotate(-90)\" \
             text-anchor=\"middle\">batch, in plan order</text>",
            BOTTOM + 31.0,
            (TOP + BOTTOM) / 2.0,
        );
        for t_s in ticks(self.longest_s) {
            let x = self.x(t_s);
            axes += &format!(
                "<path class=\"grid\" d=\"M{x:.1} {TOP}V{BOTTOM}\"/>\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                BOTTOM + 15.0,
                tick_label(t_s)
            );
        }
        for batch in [0.0, self.last_batch] {
            let y = self.y(batch) + 4.0;
            axes += &format!(
                "<text x=\"{}\" y=\"{y:.1}\" text-anchor=\"end\">{batch:.0}</text>",
                LEFT - 4.0
            );
        }
        axes
    }
}

/// A path with one dot per event.
fn points<'a>(scale: Scale, events: impl Iterator<Item = &'a Event>) -> String {
    events
        .filter(|event| event.t_s.is_finite())
        .map(|event| {
            format!("M{:.2} {:.2}h0", scale.x(event.t_s), scale.y(event.batch.into()))
        })
        .collect()
}

/// At most six round moments from 0 to `longest_s`.
fn ticks(longest_s: f64) -> Vec<f64> {
    let magnitude = 10f64.powf((longest_s / 5.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * magnitude);
    let step =
        steps.into_iter().find(|step| longest_s / step <= 5.0).unwrap_or(longest_s);
    (0..6).map(|i| f64::from(i) * step).filter(|t_s| *t_s <= longest_s).collect()
}

fn tick_label(t_s: f64) -> String {
    let rounded = format!("{t_s:.3}");
    rounded.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    /// The dots of a path as (seconds, batch).
    fn dots(svg: &str, class: &str, scale: Scale) -> Vec<(f64, f64)> {
        let path = svg.split(&format!("<path class=\"{class}\" d=\"")).nth(1).unwrap();
        let path = path.split('"').next().unwrap();
        let dots = path.split("h0").filter(|dot| !dot.is_empty()).map(|dot| {
            let (x, y) = dot[1..].split_once(' ').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            let t_s = (x - LEFT) / (RIGHT - LEFT) * scale.longest_s;
            (t_s, (BOTTOM - y) / (BOTTOM - TOP) * scale.last_batch)
        });
        dots.collect()
    }

    #[test]
    fn the_plotted_points_are_the_events_of_the_json() {
        let json = example::input().to_json().unwrap();
        let input = ReportInput::from_json(&json).unwrap();
        let scale = Scale::of(&input);
        for run in &input.runs {
            let svg = scale.plot(run, &run.strategy);
            for (class, wanted) in [
                ("front", (Some(Prong::Front), EventKind::Made)),
                ("back", (Some(Prong::Back), EventKind::Made)),
                ("delivered", (None, EventKind::Delivered)),
                ("rescued", (None, EventKind::Rescued)),
            ] {
                let events: Vec<&Event> = run
                    .events
                    .iter()
                    .filter(|e| {
                        e.kind == wanted.1 && wanted.0.is_none_or(|p| p == e.prong)
                    })
                    .collect();
                let dots = dots(&svg, class, scale);
                assert_eq!(dots.len(), events.len(), "{class} of {}", run.strategy);
                for ((t_s, batch), event) in dots.into_iter().zip(events) {
                    assert!(
                        (t_s - event.t_s).abs() <= scale.longest_s * 1e-4,
                        "{event:?}"
                    );
                    assert!((batch - f64::from(event.batch)).abs() < 0.1, "{event:?}");
                }
            }
        }
    }

    #[test]
    fn odd_events_do_no_harm() {
        let mut input = example::input();
        input.runs[0].events = vec![
            Event { t_s: f64::NAN, batch: 0, prong: Prong::Front, kind: EventKind::Made },
            Event {
                t_s: f64::INFINITY,
                batch: 1,
                prong: Prong::Back,
                kind: EventKind::Delivered,
            },
        ];
        input.runs.truncate(1);
        let plots = plots(&input);
        assert!(!plots.contains("NaN") && !plots.contains("inf"), "{plots}");
    }

    #[test]
    fn ticks_are_few_and_round() {
        assert_eq!(ticks(4.2), [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(ticks(5.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        for longest_s in [1e-9, 0.037, 0.9, 61.0, 86_400.0, 1e12, f64::MAX] {
            let n = ticks(longest_s).len();
            assert!((2..=6).contains(&n), "{n} ticks for {longest_s} s");
        }
        assert_eq!(tick_label(0.25), "0.25");
        assert_eq!(tick_label(10.0), "10");
    }
}
