//! Cells as aligned plain text for a terminal. Callers decide what is in a cell.

/// Columns as wide as their widest cell: the first `n_left` to the left, the others to the
/// right. Each line ends in a line break, and none in blanks.
#[must_use]
pub fn columns<L: AsRef<[String]>>(lines: &[L], n_left: usize) -> String {
    let lines = lines.iter().map(AsRef::as_ref);
    let mut widths: Vec<usize> = Vec::new();
    for line in lines.clone() {
        widths.resize(widths.len().max(line.len()), 0);
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_left_and_figures_right() {
        let line = |cells: [&str; 3]| cells.map(str::to_owned);
        let text = columns(&[line(["a", "bc", "1"]), line(["long", "d", "100"])], 2);
        assert_eq!(text, "a     bc    1\nlong  d   100\n");
        assert_eq!(columns::<[String; 3]>(&[], 2), "");
        let uneven = [vec!["×".to_owned()], vec!["ab".to_owned(), "c".to_owned()]];
        assert_eq!(columns(&uneven, 0), " ×\nab  c\n");
    }
}
