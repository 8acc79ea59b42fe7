//! A run over time, as a flat plot for each epoch: rates, queues, CPUs, memory.
//!
//! All plots of a kind have the same scale, and all plots of a page the same time axis, so they can be
//! compared by eye.

use crate::figure::{BOTH_ENDS, MEASURED, Origin, megabytes, number, or_none};
use crate::page::frame::{Frame, Text, ticks};
use crate::page::markup::{self, legend, tag};
use crate::series::Step;
use crate::{ReportInput, StrategyRun};

const HEIGHT: f64 = 150.0;

/// A line of a plot: its class in the style sheet, and its points (seconds, figure).
#[derive(Debug, Clone, PartialEq)]
struct Line {
    class: &'static str,
    points: Vec<(f64, f64)>,
}

/// A kind of plot.
pub(crate) struct Strips {
    /// Its name in the page's elements.
    name: &'static str,
    label: &'static str,
    unit: &'static str,
    lines: fn(&StrategyRun) -> Vec<Line>,
    caption: fn(&StrategyRun) -> String,
    origin: Origin,
    legend: &'static [(&'static str, &'static str)],
}

/// Images per second over time.
pub(crate) const RATE: Strips = Strips {
    name: "rate",
    label: "images per second over time",
    unit: "images/s",
    lines: |run| {
        let class = if run.strategy == "cpu" { "front" } else { "both" };
        vec![Line { class, points: corners(&run.rate) }]
    },
    caption: |run| format!("{} images/s overall", number(run.images_per_s)),
    origin: BOTH_ENDS,
    legend: &[],
};

/// Finished batches that wait.
pub(crate) const WAITING: Strips = Strips {
    name: "waiting",
    label: "finished batches in the queue, over time",
    unit: "batches",
    lines: |run| {
        let of = |class, count: fn(&crate::series::Waiting) -> u32| {
            let points = run.waiting.iter().map(|w| (w.t_s, f64::from(count(w))));
            Line { class, points: stairs(points, run.seconds) }
        };
        vec![of("back", |w| w.back), of("front", |w| w.front)]
    },
    caption: |run| {
        let most = |count: fn(&crate::series::Waiting) -> u32| {
            run.waiting.iter().map(count).max().unwrap_or(0)
        };
        let (front, back) = (most(|w| w.front), most(|w| w.back));
        format!("at most {front} front, {back} back")
    },
    origin: BOTH_ENDS,
    legend: &[("front", "made by the host"), ("back", "made by a device")],
};

/// CPUs of the host in use.
pub(crate) const CORES: Strips = Strips {
    name: "cores",
    label: "CPU cores in use over time",
    unit: "cores",
    lines: |run| vec![Line { class: "use", points: corners(&run.cores) }],
    caption: |run| format!("{} CPU ms per image", or_none(run.cpu_ms_per_image, number)),
    origin: MEASURED,
    legend: &[],
};

/// Memory of the host.
pub(crate) const MEMORY: Strips = Strips {
    name: "memory",
    label: "memory over time",
    unit: "MB",
    lines: |run| {
        let points = run.memory.iter().map(|held| (held.t_s, in_megabytes(held.bytes)));
        vec![Line { class: "use", points: points.collect() }]
    },
    caption: |run| {
        let most = run.memory.iter().map(|held| held.bytes).max();
        let first = run.memory.first().map(|held| held.bytes);
        most.zip(first).map_or_else(String::new, |(most, first)| {
            format!("peak {} MB, start {} MB", megabytes(most), megabytes(first))
        })
    },
    origin: MEASURED,
    legend: &[],
};

impl Strips {
    /// A plot for each run that has such data.
    pub(crate) fn draw(&self, input: &ReportInput) -> String {
        let frame = self.frame(input);
        let mut plots = String::new();
        for (run, name) in input.runs.iter().zip(input.names()) {
            let lines = (self.lines)(run);
            if lines.iter().any(|line| !line.points.is_empty()) {
                let picture = self.plot(frame, &lines, &name);
                plots += &markup::plot(&name, &(self.caption)(run), &picture);
            }
        }
        let tag = tag(self.origin, input);
        if plots.is_empty() {
            return format!("<p class=\"nothing\">Nothing was recorded. {tag}</p>\n");
        }
        let legend = legend(self.legend, &tag);
        format!("<div class=\"plots\">\n{plots}</div>\n{legend}")
    }

    /// The scale for all runs.
    fn frame(&self, input: &ReportInput) -> Frame {
        let lines = input.runs.iter().flat_map(|run| (self.lines)(run));
        let values = lines.flat_map(|line| line.points).map(|(_, value)| value);
        let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        // A little room above the highest point, and a scale even if everything is zero.
        let most = if most > 0.0 { most * 1.05 } else { 1.0 };
        Frame { longest_s: input.longest_s(), most, height: HEIGHT }
    }

    fn plot(&self, frame: Frame, lines: &[Line], run: &str) -> String {
        let label = format!("{run}: {}", self.label);
        let text = Text { name: self.name, label: &label, unit: self.unit };
        let areas = lines.iter().map(|line| frame.area(line.class, &line.points));
        let strokes = lines.iter().map(|line| frame.line(line.class, &line.points));
        let content: String = areas.chain(strokes).collect();
        frame.picture(&text, &ticks(frame.most, 4), &content)
    }
}

/// The corners of a step function, from figures with a duration.
fn corners(steps: &[Step]) -> Vec<(f64, f64)> {
    steps.iter().flat_map(|s| [(s.from_s, s.value), (s.to_s, s.value)]).collect()
}

/// The corners of a step function, from counts that change at events, to the end of the epoch.
fn stairs(points: impl Iterator<Item = (f64, f64)>, seconds: f64) -> Vec<(f64, f64)> {
    let mut stairs: Vec<(f64, f64)> = Vec::new();
    for (t_s, value) in points {
        if let Some((_, before)) = stairs.last().copied() {
            stairs.push((t_s, before));
        }
        stairs.push((t_s, value));
    }
    if let Some((t_s, last)) = stairs.last().copied() {
        stairs.push((seconds.max(t_s), last));
    }
    stairs
}

#[expect(clippy::cast_precision_loss, reason = "for a picture")]
fn in_megabytes(n_bytes: u64) -> f64 {
    n_bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::page::frame::points_of;

    /// The points of a page's plots are the data that are embedded in the page.
    fn compare(
        strips: &Strips,
        class: fn(&StrategyRun) -> &'static str,
        of: fn(&StrategyRun) -> Vec<(f64, f64)>,
    ) {
        let json = example::input().to_json().unwrap();
        let input = ReportInput::from_json(&json).unwrap();
        let page = crate::html(&input);
        let frame = strips.frame(&input);
        let plot = format!("data-plot=\"{}\"", strips.name);
        assert_eq!(page.matches(&plot).count(), input.runs.len(), "{plot}");
        for (run, svg) in input.runs.iter().zip(page.split(&plot).skip(1)) {
            let svg = svg.split("</svg>").next().unwrap();
            let (drawn, data) = (points_of(svg, class(run), frame), of(run));
            assert!(!data.is_empty(), "{plot}");
            assert_eq!(drawn.len(), data.len(), "{plot} of {}", run.strategy);
            for ((t_s, value), (drawn_s, drawn)) in data.iter().zip(&drawn) {
                assert!(
                    (t_s - drawn_s).abs() <= frame.longest_s * 1e-4,
                    "{t_s} {drawn_s}"
                );
                assert!((value - drawn).abs() <= frame.most * 1e-4, "{value} {drawn}");
            }
        }
    }

    #[test]
    fn plotted_points_are_those_of_the_json() {
        compare(
            &RATE,
            |run| if run.strategy == "cpu" { "front" } else { "both" },
            |run| {
                run.rate
                    .iter()
                    .flat_map(|s| [(s.from_s, s.value), (s.to_s, s.value)])
                    .collect()
            },
        );
        compare(
            &CORES,
            |_| "use",
            |run| {
                run.cores
                    .iter()
                    .flat_map(|s| [(s.from_s, s.value), (s.to_s, s.value)])
                    .collect()
            },
        );
        #[expect(clippy::cast_precision_loss, reason = "a few hundred megabytes")]
        compare(
            &MEMORY,
            |_| "use",
            |run| {
                run.memory
                    .iter()
                    .map(|held| (held.t_s, held.bytes as f64 / 1e6))
                    .collect()
            },
        );
        compare(&WAITING, |_| "front", |run| expected(run, |w| w.front));
        compare(&WAITING, |_| "back", |run| expected(run, |w| w.back));
    }

    fn expected(
        run: &StrategyRun,
        of: fn(&crate::series::Waiting) -> u32,
    ) -> Vec<(f64, f64)> {
        let mut points = Vec::new();
        for pair in run.waiting.windows(2) {
            points.push((pair[0].t_s, f64::from(of(&pair[0]))));
            points.push((pair[1].t_s, f64::from(of(&pair[0]))));
        }
        let last = run.waiting.last().unwrap();
        points.push((last.t_s, f64::from(of(last))));
        points.push((run.seconds.max(last.t_s), f64::from(of(last))));
        points
    }

    #[test]
    fn what_was_not_recorded_is_said_to_be_so() {
        let mut input = example::input();
        input.runs.iter_mut().for_each(|run| run.memory.clear());
        assert!(MEMORY.draw(&input).contains("Nothing was recorded."));
        assert!(!CORES.draw(&input).contains("Nothing was recorded."));
    }
}
