//! Where the time of an epoch went: computing, waiting for the next batch by cause, and the training loop's
//! own work. The pieces of a bar add up to the epoch.
//!
//! Without an accelerator nothing computes, so a bar is the time that the loader needed.

use bothends_figures::Stall;

use crate::figure::{BOTH_ENDS, number};
use crate::page::markup::{bar_line, bar_piece, legend, tag};
use crate::{ReportInput, StrategyRun};

/// Each piece of a bar: its name, which is its class in the style sheet, and its meaning.
const MEANINGS: [(&str, &str); 8] = [
    (COMPUTING, "computing"),
    ("order", "order: nobody had begun the next batch"),
    ("read", "read: waiting for storage"),
    ("decode", "decode: host workers decode and augment"),
    ("device", "device: the next batch is with a device"),
    ("finish", "finish: checksum, audit or mix a batch"),
    ("copy", "copy: convert a device's batch"),
    (OWN, "the training loop's own work (not the loader's)"),
];

const COMPUTING: &str = "computing";

/// The name of [`Stall::consumer`].
const OWN: &str = "consumer";

const WITH: &str = "Every second of the epoch, once: the accelerator computed, it waited for its next \
    batch (coloured by what held that batch up), or the training loop worked between two steps \
    (checkpoints, progress display). Utilisation, as MLPerf Storage defines it, counts \
    from the first batch on and leaves the loop's own work out.";

const WITHOUT: &str = "This run had no accelerator: a batch was dropped as soon as it was delivered, \
    so a bar does not mean a starving accelerator. It shows what the loader spent the epoch on.";

/// The introduction of the section.
pub(crate) fn text(input: &ReportInput) -> &'static str {
    if input.has_accelerator() { WITH } else { WITHOUT }
}

/// Bars of seconds, on the same scale.
pub(crate) fn chart(input: &ReportInput) -> String {
    let longest = input.runs.iter().map(|run| run.seconds).fold(0.0, f64::max);
    let mut chart = String::from("<div class=\"bars\" data-plot=\"time\">\n");
    let mut seen = Vec::new();
    for (run, name) in input.runs.iter().zip(input.names()) {
        let (mut bar, mut end) = (String::new(), 0.0);
        for (piece, seconds) in pieces(run) {
            let start = end;
            end += 100.0 * seconds / longest.max(f64::MIN_POSITIVE);
            bar += &bar_piece(piece, start, end);
            seen.push(piece);
        }
        chart += &bar_line(&name, &bar, &words(run, input));
    }
    let keys: Vec<_> =
        MEANINGS.iter().filter(|(name, _)| seen.contains(name)).copied().collect();
    chart + "</div>\n" + &legend(&keys, &tag(BOTH_ENDS, input))
}

/// Seconds by piece, without figures that are unknown or not a time.
fn pieces(run: &StrategyRun) -> impl Iterator<Item = (&'static str, f64)> {
    let by_cause = run.stall.as_ref().map(Stall::by_cause);
    // Without an accelerator there are no steps.
    let steps_s = run.utilisation.and(steps_s(run));
    std::iter::once((COMPUTING, steps_s.unwrap_or(0.0)))
        .chain(by_cause.into_iter().flatten())
        .filter(|(_, seconds)| seconds.is_normal() && *seconds > 0.0)
}

/// Seconds in steps, by the same clock as the waits: on a busy machine, the loop's thread wakes somewhat
/// later than the end of a step on the accelerator's own timeline.
fn steps_s(run: &StrategyRun) -> Option<f64> {
    run.idle_s.map(|idle_s| (run.seconds - idle_s).max(0.0))
}

/// The sums next to a bar.
fn words(run: &StrategyRun, input: &ReportInput) -> String {
    let Some((stall, steps_s)) = run.stall.zip(steps_s(run)) else {
        return format!("{} s so far", number(run.seconds));
    };
    let (waited, whole) = (number(stall.waited().max(0.0)), number(run.seconds));
    if input.has_accelerator() {
        let (steps, own) = (number(steps_s), number(stall.consumer));
        format!("{steps} computing + {waited} waiting + {own} own = {whole} s")
    } else {
        format!("{waited} loading + {} own = {whole} s", number(stall.consumer + steps_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    /// The widths of a chart's pieces, bar by bar.
    fn widths(chart: &str) -> Vec<f64> {
        let bars = chart.split("class=\"rail\"").skip(1);
        let width = |piece: &str| -> f64 {
            let after = piece.split("width=\"").nth(1).unwrap();
            after.split('"').next().unwrap().parse().unwrap()
        };
        bars.map(|bar| {
            let bar = bar.split("</svg>").next().unwrap();
            bar.split("<rect").skip(1).map(width).sum()
        })
        .collect()
    }

    #[test]
    fn the_pieces_of_a_bar_are_its_epoch() {
        let input = example::input();
        let longest = input.runs.iter().map(|run| run.seconds).fold(0.0, f64::max);
        let widths = widths(&chart(&input));
        assert_eq!(widths.len(), input.runs.len());
        for (width, run) in widths.iter().zip(&input.runs) {
            let whole = 100.0 * run.seconds / longest;
            assert!((width - whole).abs() < 0.1, "{width} % for {whole} %");
        }
    }

    #[test]
    fn without_an_accelerator_nobody_is_said_to_starve() {
        let mut input = example::input();
        assert!(text(&input).contains("Utilisation"));
        input.emulated.clear();
        for run in &mut input.runs {
            (run.utilisation, run.busy_s) = (None, Some(0.0));
        }
        let section = text(&input).to_owned() + &chart(&input);
        assert!(section.contains("no accelerator") && section.contains(" loading + "));
        for word in ["waiting +", "computing", "waited"] {
            assert!(!section.contains(word), "{word} in {section}");
        }
    }

    #[test]
    fn an_epoch_that_did_not_end_has_no_sums() {
        let mut input = example::input();
        input.runs[0].stall = None;
        assert!(chart(&input).contains(" s so far"));
    }
}
