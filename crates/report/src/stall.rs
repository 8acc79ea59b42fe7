//! The stacked bars of waiting: for what, and how long, the accelerator had no batch.

use bothends_figures::Stall;

use crate::figure::{Origin, number, or_none, origin_words};
use crate::markup::{bar_line, bar_piece, key, origin_tag};

use crate::{Emulated, ReportInput, StrategyRun};

/// A cause: its class in the style sheet, its seconds, and what it means.
struct Cause {
    class: &'static str,
    seconds: fn(&Stall) -> f64,
    meaning: &'static str,
}

const CAUSES: [Cause; 5] = [
    Cause { class: "read", seconds: |s| s.read, meaning: "read: files from storage" },
    Cause {
        class: "decode",
        seconds: |s| s.decode,
        meaning: "decode: the host's workers",
    },
    Cause {
        class: "device",
        seconds: |s| s.device,
        meaning: "device: its batch was next",
    },
    Cause { class: "copy", seconds: |s| s.copy, meaning: "copy: bytes into place" },
    Cause {
        class: "consumer",
        seconds: |s| s.consumer,
        meaning: "consumer: did not ask",
    },
];

/// Bars of seconds without a batch, on one scale.
pub(crate) fn chart(input: &ReportInput) -> String {
    let longest = input.runs.iter().map(total_s).fold(0.0, f64::max);
    let mut chart = String::from("<div class=\"bars\" data-plot=\"stall\">\n");
    for (run, name) in input.runs.iter().zip(input.names()) {
        let (mut pieces, mut end) = (String::new(), 0.0);
        for cause in &CAUSES {
            let start = end;
            end += 100.0 * seconds(run, cause) / longest.max(f64::MIN_POSITIVE);
            if end > start {
                pieces += &bar_piece(cause.class, start, end);
            }
        }
        let total = or_none(run.stall.map(|_| total_s(run)), number);
        let figure = format!("{total} s of {} s", number(run.seconds));
        chart += &bar_line(&name, &pieces, &figure);
    }
    chart += "</div>\n<p class=\"legend\">";
    for cause in &CAUSES {
        chart += &key(cause.class, cause.meaning);
    }
    let origin = Origin::MeasuredWith(&[Emulated::Device, Emulated::Accelerator]);
    chart + &origin_tag(&origin_words(origin, input)) + "</p>\n"
}

fn total_s(run: &StrategyRun) -> f64 {
    CAUSES.iter().map(|cause| seconds(run, cause)).sum()
}

/// The seconds of a cause; a figure that is no time, or not known, is no bar.
fn seconds(run: &StrategyRun, cause: &Cause) -> f64 {
    let seconds = run.stall.as_ref().map_or(0.0, cause.seconds);
    if seconds.is_finite() { seconds.max(0.0) } else { 0.0 }
}
