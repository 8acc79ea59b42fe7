//! The stacked bars of waiting: for what, and how long, the accelerator had no batch.

use bothends_figures::Stall;

use crate::figure::{BOTH_ENDS, number, or_none};
use crate::page::markup::{bar_line, bar_piece, legend, tag};
use crate::{ReportInput, StrategyRun};

/// What each cause of [`Stall`] means, by its name, which is its class in the style sheet.
const MEANINGS: [(&str, &str); 7] = [
    ("order", "order: the next not begun"),
    ("read", "read: files from storage"),
    ("decode", "decode: the host's workers"),
    ("device", "device: its batch was next"),
    ("finish", "finish: replace, audit, mix"),
    ("copy", "copy: a device's batch converted"),
    ("consumer", "consumer: its own work"),
];

/// Bars of seconds without a batch, on one scale.
pub(crate) fn chart(input: &ReportInput) -> String {
    let total_s =
        |run: &StrategyRun| causes(run).map(|(_, seconds)| seconds).sum::<f64>();
    let longest = input.runs.iter().map(total_s).fold(0.0, f64::max);
    let mut chart = String::from("<div class=\"bars\" data-plot=\"stall\">\n");
    for (run, name) in input.runs.iter().zip(input.names()) {
        let (mut pieces, mut end) = (String::new(), 0.0);
        for (cause, seconds) in causes(run) {
            let start = end;
            end += 100.0 * seconds / longest.max(f64::MIN_POSITIVE);
            if end > start {
                pieces += &bar_piece(cause, start, end);
            }
        }
        let total = or_none(run.stall.map(|_| total_s(run)), number);
        let figure = format!("{total} s of {} s", number(run.seconds));
        chart += &bar_line(&name, &pieces, &figure);
    }
    chart + "</div>\n" + &legend(&MEANINGS, &tag(BOTH_ENDS, input))
}

/// Seconds by cause; a figure that is no time, or not known, is no bar.
fn causes(run: &StrategyRun) -> impl Iterator<Item = (&'static str, f64)> {
    let by_cause = run.stall.as_ref().map(Stall::by_cause);
    by_cause
        .into_iter()
        .flatten()
        .filter(|(_, seconds)| seconds.is_normal() && *seconds > 0.0)
}
