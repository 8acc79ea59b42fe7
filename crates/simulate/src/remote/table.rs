//! The results of a remote scenario as aligned plain text. It computes nothing.

use std::fmt::Write;

use bothends_core::columns;

use super::RemoteResult;

/// The table of a scenario, with its description above and the label below; it ends in a newline.
#[must_use]
pub fn remote_table(result: &RemoteResult) -> String {
    let mut text = format!("{}: {}\n", result.name, result.about);
    let _ = writeln!(
        text,
        "{} records of {} kB · {:.0} ms · {:.0} Mb/s · {} requests · {} · records per second",
        result.records,
        result.record_bytes / 1000,
        result.rtt_s * 1e3,
        result.bytes_per_s * 8.0 / 1e6,
        result.requests,
        counted(result.seeds.len())
    );
    let mut head = vec!["delivery".to_owned(), "hedge".to_owned()];
    let losses = result.rows.first().map(|row| row.cells.as_slice()).unwrap_or_default();
    head.extend(losses.iter().map(|cell| format!("loss {} %", cell.loss * 100.0)));
    head.extend(["hedged".to_owned(), "longest gap s".to_owned()]);
    let mut lines = vec![head];
    for row in &result.rows {
        let mut line =
            vec![row.delivery.clone(), if row.hedge { "on" } else { "off" }.to_owned()];
        line.extend(row.cells.iter().map(|cell| format!("{:.0}", cell.records_per_s)));
        let most = |of: fn(&super::RemoteCell) -> f64| {
            row.cells.iter().map(of).fold(0.0, f64::max)
        };
        line.push(format!("{:.0}", most(|cell| cell.hedged)));
        line.push(format!("{:.2}", most(|cell| cell.longest_gap_s)));
        lines.push(line);
    }
    text += &columns(&lines, 2);
    let _ = writeln!(text, "({})", result.label);
    text
}

fn counted(n_seeds: usize) -> String {
    if n_seeds == 1 { "1 seed".to_owned() } else { format!("{n_seeds} seeds") }
}
