//! Energy by domain. What a meter counted and what a model states are two charts with a scale
//! each: they share no bar and no sum.

use bothends_figures::EnergyDomain;

use crate::ReportInput;
use crate::figure::number;
use crate::page::markup::{self, bar_piece, escape, origin_tag, share};

/// How figures came to be.
struct Kind {
    /// What the source of such a figure begins with.
    start: &'static str,
    heading: &'static str,
    name: &'static str,
    tag: &'static str,
    /// What stands where there is no chart.
    nothing: &'static str,
}

/// The first that fits. What does not say how it came to be nobody may take for measured.
const KINDS: [Kind; 3] = [
    Kind {
        start: "measured(",
        heading: "Measured by a meter",
        name: "energy-measured",
        tag: "measured",
        nothing: "No meter was read in this run.",
    },
    Kind {
        start: "modelled(",
        heading: "Modelled from what was counted",
        name: "energy-modelled",
        tag: "modelled",
        nothing: "No model was asked in this run.",
    },
    Kind {
        start: "",
        heading: "Of unknown origin",
        name: "energy-unknown",
        tag: "",
        nothing: "",
    },
];

/// One chart for each kind of figure.
pub(crate) fn charts(input: &ReportInput) -> String {
    KINDS.iter().map(|kind| chart(input, kind)).collect()
}

fn chart(input: &ReportInput, kind: &Kind) -> String {
    let Kind { heading, name, nothing, .. } = kind;
    let is_here = |figure: &&EnergyDomain| {
        let first = KINDS.iter().find(|kind| figure.source.starts_with(kind.start));
        first.is_some_and(|first| first.name == *name)
    };
    let figures: Vec<&EnergyDomain> = input.energy.iter().filter(is_here).collect();
    if figures.is_empty() {
        return match *nothing {
            "" => String::new(),
            nothing => {
                format!("<h3>{heading}</h3>\n<p class=\"nothing\">{nothing}</p>\n")
            }
        };
    }
    let ends = figures.iter().flat_map(|figure| [figure.joules, figure.high]);
    let longest = ends.filter(|joules| joules.is_finite()).fold(0.0, f64::max);
    let bars: String = figures.iter().map(|figure| bar(figure, longest)).collect();
    let tag = if kind.tag.is_empty() { String::new() } else { origin_tag(kind.tag) };
    format!(
        "<h3>{heading} {tag}</h3>\n<div class=\"joules\" data-plot=\"{name}\">\n{bars}</div>\n"
    )
}

/// A bar with the interval in which the figure may lie.
fn bar(figure: &EnergyDomain, longest: f64) -> String {
    let EnergyDomain { name, joules, low, high, source, .. } = figure;
    let percent = |joules: f64| share(joules, longest, 98.0);
    let mut pieces = bar_piece("energy", 0.0, percent(*joules));
    let mut words = format!("{} J", number(*joules));
    if low < high {
        pieces += &whisker(percent(*low), percent(*high));
        words += &format!(" ({} to {})", number(*low), number(*high));
    }
    format!(
        "<div class=\"joule\"><span class=\"name\">{}</span><span class=\"source\">{}</span>{}\
         <span class=\"figure\">{words}</span></div>\n",
        escape(name),
        escape(source),
        markup::bar(&pieces),
    )
}

/// A line from `low` to `high` percent with a stop at each end.
fn whisker(low: f64, high: f64) -> String {
    let piece = |x: f64, y: f64, width: f64, height: f64| {
        format!(
            "<rect class=\"whisker\" x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" \
             height=\"{height}\"/>"
        )
    };
    piece(low, 4.4, high - low, 1.2)
        + &piece(low, 2.5, 0.3, 5.0)
        + &piece(high, 2.5, 0.3, 5.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    /// The start and width of each piece of a class.
    fn pieces(chart: &str, class: &str) -> Vec<(f64, f64)> {
        let number = |text: &str, name: &str| -> f64 {
            text.split(&format!("{name}=\""))
                .nth(1)
                .unwrap()
                .split('"')
                .next()
                .unwrap()
                .parse()
                .unwrap()
        };
        let start = format!("<rect class=\"{class}\"");
        let starts = chart.split(&start).skip(1);
        starts.map(|text| (number(text, " x"), number(text, "width"))).collect()
    }

    #[test]
    fn bars_and_whiskers_are_the_figures_of_the_json() {
        let json = example::input().to_json().unwrap();
        let input = ReportInput::from_json(&json).unwrap();
        let chart = chart(&input, &KINDS[1]);
        let figures = &input.energy[1..];
        let scale = 98.0 / figures.iter().map(|f| f.high).fold(0.0, f64::max);
        let (bars, whiskers) = (pieces(&chart, "energy"), pieces(&chart, "whisker"));
        assert_eq!((bars.len(), whiskers.len()), (figures.len(), 3 * figures.len()));
        for (i, figure) in figures.iter().enumerate() {
            assert!((bars[i].1 - scale * figure.joules).abs() < 0.01, "{figure:?}");
            let (start, width) = whiskers[3 * i];
            assert!((start - scale * figure.low).abs() < 0.01, "{figure:?}");
            assert!((start + width - scale * figure.high).abs() < 0.02, "{figure:?}");
        }
    }

    #[test]
    fn measured_and_modelled_never_share_a_chart() {
        let charts = charts(&example::input());
        let (measured, modelled) = charts.split_once(KINDS[1].heading).unwrap();
        assert!(measured.contains("rapl:package-0") && !measured.contains("modelled("));
        assert!(modelled.contains("default@1") && !modelled.contains("measured("));
        assert!(!measured.contains("whisker"), "a meter's figure has no interval here");
    }

    #[test]
    fn what_does_not_say_where_it_comes_from_is_not_called_measured() {
        let mut input = example::input();
        input.energy[0].source = "a guess".to_owned();
        let charts = charts(&input);
        assert!(charts.contains("No meter was read in this run."));
        assert!(charts.split(KINDS[2].heading).nth(1).unwrap().contains("a guess"));
        input.energy.clear();
        assert!(!super::charts(&input).contains("data-plot"));
    }
}
