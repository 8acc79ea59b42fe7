//! The results of a pool scenario as aligned plain text. It computes nothing.

use std::fmt::Write;

use bothends_core::columns;

use super::{LockstepRow, PoolResult, PoolRow};

/// The table of a scenario, with its description above and the label below; it ends in a newline.
#[must_use]
pub fn pool_table(result: &PoolResult) -> String {
    let mut text = format!("{}: {}\n", result.name, result.about);
    let seeds = match result.seeds.len() {
        1 => "1 seed".to_owned(),
        n => format!("{n} seeds"),
    };
    if result.rows.is_empty() {
        let _ =
            writeln!(text, "time of an epoch, 1 = all ranks have equal work · {seeds}");
        let mut lines = vec![lockstep_head()];
        lines.extend(result.lockstep.iter().map(lockstep_line));
        text += &columns(&lines, 1);
    } else {
        let _ = writeln!(
            text,
            "{} jobs · at most {} agents · {:.0} s · {seeds}",
            result.jobs, result.agents, result.seconds
        );
        let mut lines = vec![head()];
        lines.extend(result.rows.iter().map(line));
        text += &columns(&lines, 1);
    }
    let _ = writeln!(text, "({})", result.label);
    text
}

fn head() -> Vec<String> {
    let names = [
        "jobs are served",
        "batches/s",
        "fed",
        "Jain",
        "least",
        "missed",
        "longest wait s",
        "ended s",
        "agents",
        "busy",
        "uplink GB",
        "reused",
        "failures",
        "decisions",
    ];
    names.map(str::to_owned).to_vec()
}

fn line(row: &PoolRow) -> Vec<String> {
    vec![
        row.variant.clone(),
        format!("{:.0}", row.batches_per_s),
        format!("{:.3}", row.fed),
        format!("{:.4}", row.jain),
        row.least.map_or_else(|| "–".to_owned(), |least| format!("{least:.3}")),
        format!("{:.2} %", row.missed * 100.0),
        format!("{:.2}", row.longest_wait_s),
        row.ended_s.map_or_else(|| "–".to_owned(), |at| format!("{at:.0}")),
        format!("{:.1}", row.agents),
        format!("{:.2}", row.busy),
        format!("{:.1}", row.uplink_bytes / 1e9),
        format!("{:.0}", row.reused),
        format!("{:.0}", row.failures),
        format!("{:.0}", row.decisions),
    ]
}

fn lockstep_head() -> Vec<String> {
    let names =
        ["ranks", "sum: plan", "together", "gain", "padded: plan", "together", "gain"];
    names.map(str::to_owned).to_vec()
}

fn lockstep_line(row: &LockstepRow) -> Vec<String> {
    vec![
        row.ranks.to_string(),
        format!("{:.3}", row.sum_plan),
        format!("{:.3}", row.sum_together),
        format!("{:.2}x", row.sum_gain()),
        format!("{:.2}", row.padded_plan),
        format!("{:.2}", row.padded_together),
        format!("{:.2}x", row.padded_gain()),
    ]
}
