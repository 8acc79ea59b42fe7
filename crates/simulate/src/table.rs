//! Results as aligned plain text for a terminal. It computes nothing.

use std::fmt::Write;

use bothends_core::columns;

use crate::result::{LABEL, ScenarioResult, StrategyResult};

/// Printed in place of a missing figure.
const NONE: &str = "–";

/// The notes below a table without recovery.
const WITHOUT_RECOVERY: &str =
    "recovery off: the host does not redo batches that a device loses or delays\n";
const WITHOUT_RECOVERY_HANGS: &str = "recovery off: the host does not redo batches that a device loses or delays. `hangs`: the \
     epoch waits for one forever, as any strategy does without recovery, including the \
     published ones\n";

const HEADINGS: [&str; 11] = [
    "strategy",
    "seconds",
    "× cpu",
    "η",
    "idle",
    "back",
    "waiting",
    "rescued",
    "wasted",
    "host CPU s",
    "kJ",
];

/// The table of a scenario, with its description above and the label below; it ends in a newline.
#[must_use]
pub fn table(result: &ScenarioResult) -> String {
    let mut text = format!("{}: {}\n", result.name, result.about);
    let bound = result
        .bound
        .map_or("rates change, no bound".to_owned(), |bound| format!("bound {bound:.3}"));
    let mut about = vec![
        counted(result.batches as usize, "batch", "batches"),
        counted(result.devices, "device", "devices"),
    ];
    if let Some((epoch, of)) = result.epoch {
        about.insert(0, format!("epoch {epoch} of {of}"));
    }
    if result.ranks > 1 {
        about.push(format!("{} ranks", result.ranks));
    }
    if result.objective != "throughput" {
        about.push(result.objective.clone());
    }
    if result.recovery == "off" {
        about.push("recovery off".to_owned());
    }
    about.push(counted(result.seeds.len(), "seed", "seeds"));
    about.push(bound);
    let _ = writeln!(text, "{}", about.join(" · "));
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    lines.extend(result.strategies.iter().map(|(name, result)| cells(name, result)));
    text += &columns(&lines, 1);
    if result.recovery == "off" {
        text += match result.strategies.iter().any(|(_, result)| !result.ended) {
            true => WITHOUT_RECOVERY_HANGS,
            false => WITHOUT_RECOVERY,
        };
    }
    text += &remarks(result);
    let _ = writeln!(text, "({LABEL}; power model {})", result.power);
    text
}

/// What the columns have no room for.
fn remarks(result: &ScenarioResult) -> String {
    let mut text = String::new();
    let has_cpu = result.strategies.iter().any(|(name, _)| *name == "cpu");
    if has_cpu && result.devices > 0 {
        text += "kJ of cpu: without devices, which draw power in all other rows\n";
    }
    let deviations = result.strategies.iter().filter_map(|(_, result)| result.sd.speedup);
    let largest =
        deviations.fold(None, |most: Option<f64>, sd| Some(most.unwrap_or(0.0).max(sd)));
    if let Some(largest) = largest {
        let _ = writeln!(
            text,
            "× cpu: one epoch's standard deviation over the seeds is at most {largest:.4}"
        );
    }
    text
}

fn cells(name: &str, result: &StrategyResult) -> [String; 11] {
    let or_none = |value: Option<f64>, text: fn(f64) -> String| {
        value.map_or_else(|| NONE.to_owned(), text)
    };
    let ratio = |value: f64| format!("{value:.3}");
    [
        name.to_owned(),
        result.seconds.map_or_else(|| "hangs".to_owned(), figure),
        or_none(result.speedup, ratio),
        or_none(result.efficiency, ratio),
        or_none(result.idle, percent),
        percent(result.back),
        result.peak_waiting.to_string(),
        tenth(result.rescued),
        tenth(result.wasted),
        figure(result.host_cpu_s),
        or_none(result.joules, |joules| figure(joules / 1e3)),
    ]
}

fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Four digits, or all digits before the decimal point.
pub(crate) fn figure(value: f64) -> String {
    let places = match value.abs() {
        v if v >= 999.95 => 0,
        v if v >= 99.995 => 1,
        v if v >= 9.9995 => 2,
        _ => 3,
    };
    format!("{value:.places$}")
}

pub(crate) fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// A count that may be a mean.
fn tenth(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}
