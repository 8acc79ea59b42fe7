//! Results as aligned plain text for a terminal. Nothing here is computed.

use std::fmt::Debug;

/// Columns as wide as their widest cell: the first `n_left` to the left, the others to the
/// right. Each line ends in a line break.
pub(crate) fn aligned(lines: &[Vec<String>], n_left: usize) -> String {
    let n_columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..n_columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(i, (cell, &width))| {
            if i < n_left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// A figure with its places after the point, or a dash where there is none.
pub(crate) fn cell(value: Option<f64>, places: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.places$}"))
}

/// A choice as it is typed, and as JSON has it.
pub(crate) fn word(choice: impl Debug) -> String {
    format!("{choice:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_left_and_figures_right() {
        let line = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let text = aligned(&[line(["a", "bc", "1"]), line(["long", "d", "100"])], 2);
        assert_eq!(text, "a     bc    1\nlong  d   100\n");
        assert_eq!(cell(Some(1.25), 1) + &cell(None, 3), "1.2–");
    }
}
