//! Text made to fit a terminal: tables are folded into blocks, sentences are wrapped.
//!
//! It works on finished text, so whoever makes a table need not know how wide the terminal is. The
//! command line finds out the width.

/// Columns of a table are at least so many blanks apart (`columns`).
const GAP: usize = 2;

/// A label in front of a sentence is at most so wide; what follows it is wrapped beneath it.
const MOST_LABEL: usize = 32;

/// The text with no line wider than `width`, where its words allow that. Consecutive lines of at
/// least three columns are a table: columns that do not fit go below, behind the first one again.
/// Any other line is wrapped between words, and continued beneath its label, if it has one
/// (`job         1000 images/s …`).
#[must_use]
pub fn fit(text: &str, width: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut fitted: Vec<String> = Vec::new();
    for run in lines.chunk_by(|a, b| is_row(a) == is_row(b)) {
        let is_wide = run.iter().any(|line| count(line) > width);
        match (is_wide, run.len() > 1 && is_row(run[0])) {
            (false, _) => fitted.extend(run.iter().map(|line| (*line).to_owned())),
            (true, true) => fitted.extend(folded(run, width)),
            (true, false) => {
                fitted.extend(run.iter().flat_map(|line| wrapped(line, width)));
            }
        }
    }
    let mut fitted = fitted.join("\n");
    if text.ends_with('\n') {
        fitted.push('\n');
    }
    fitted
}

/// Whether a line has three columns or more.
fn is_row(line: &str) -> bool {
    let cells = line.trim().split("  ").filter(|cell| !cell.trim().is_empty());
    cells.count() >= 3
}

fn count(line: &str) -> usize {
    line.chars().count()
}

/// A table in blocks that fit, an empty line between them.
fn folded(lines: &[&str], width: usize) -> Vec<String> {
    let lines: Vec<Vec<char>> = lines.iter().map(|line| line.chars().collect()).collect();
    let spans = spans(&lines);
    let Some((&key, rest)) = spans.split_first() else { return Vec::new() };
    let wide = |(start, end): (usize, usize)| end - start;
    let mut blocks: Vec<Vec<(usize, usize)>> = Vec::new();
    let mut left = 0;
    for &span in rest {
        let needs = wide(span) + GAP;
        match blocks.last_mut() {
            Some(block) if needs <= left => {
                block.push(span);
                left -= needs;
            }
            _ => {
                blocks.push(vec![key, span]);
                left = width.saturating_sub(wide(key) + needs);
            }
        }
    }
    let mut folded = Vec::new();
    for (nth, block) in blocks.iter().enumerate() {
        if nth > 0 {
            folded.push(String::new());
        }
        folded.extend(lines.iter().map(|line| {
            let cells: Vec<String> = block.iter().map(|span| cell(line, *span)).collect();
            cells.join(&" ".repeat(GAP)).trim_end().to_owned()
        }));
    }
    folded
}

/// Where the columns are: between stretches of at least two blanks that all lines have.
fn spans(lines: &[Vec<char>]) -> Vec<(usize, usize)> {
    let len = lines.iter().map(Vec::len).max().unwrap_or(0);
    let is_blank = |at: usize| {
        lines.iter().all(|line| line.get(at).is_none_or(|letter| *letter == ' '))
    };
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for at in (0..len).filter(|at| !is_blank(*at)) {
        match spans.last_mut() {
            Some((_, end)) if at < *end + GAP => *end = at + 1,
            _ => spans.push((at, at + 1)),
        }
    }
    spans
}

fn cell(line: &[char], (start, end): (usize, usize)) -> String {
    let letters = line.get(start.min(line.len())..end.min(line.len()));
    let text: String = letters.unwrap_or_default().iter().collect();
    format!("{text:<width$}", width = end - start)
}

/// A line in several, between words; a word that is wider stays whole.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    let indent = indent(line);
    let mut lines: Vec<String> = Vec::new();
    let mut current = String::new();
    for word in line.split_inclusive(' ') {
        let is_first = current.trim().is_empty();
        if !is_first && count(&current) + count(word.trim_end()) > width {
            lines.push(current.trim_end().to_owned());
            current = " ".repeat(indent);
        }
        current.push_str(word);
    }
    lines.push(current.trim_end().to_owned());
    lines
}

/// How far lines after the first are indented: to where the text begins behind a label.
fn indent(line: &str) -> usize {
    let text = line.trim_start();
    let before = count(line) - count(text);
    let Some((label, rest)) = text.split_once("  ") else { return before };
    let at = count(label) + GAP + (count(rest) - count(rest.trim_start()));
    before + if at <= MOST_LABEL { at } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns;

    fn table(n_columns: usize) -> String {
        let line = |name: &str, figure: &str| {
            let mut line = vec![name.to_owned()];
            line.extend((1..n_columns).map(|i| format!("{figure}{i}")));
            line
        };
        columns(
            &[line("strategy", "images/s "), line("cpu", "1 / "), line("ordered", "")],
            1,
        )
    }

    #[test]
    fn what_fits_is_left_as_it_is() {
        for text in ["", "a\n", "one line", "job   x\n\nmore\n", &table(4)] {
            assert_eq!(fit(text, 80), text);
        }
    }

    #[test]
    fn a_wide_table_is_folded_and_loses_no_cell() {
        let wide = table(12);
        let folded = fit(&wide, 40);
        assert!(folded.lines().all(|line| count(line) <= 40), "{folded}");
        assert!(folded.lines().filter(|line| line.starts_with("cpu ")).count() > 1);
        for n in 1..12 {
            assert!(folded.contains(&format!("images/s {n}")), "{folded}");
            assert!(folded.contains(&format!("1 / {n}")), "{folded}");
        }
        assert!(folded.contains("\n\nstrategy  images/s "), "{folded}");
    }

    #[test]
    fn a_sentence_is_wrapped_beneath_its_label() {
        let text =
            "job         1000 images/s come through of those that were made\nshort\n";
        assert_eq!(
            fit(text, 40),
            "job         1000 images/s come through\n            of those that were made\nshort\n"
        );
        let path = "a/word/that/is/wider/than/all/of/it and more";
        assert_eq!(fit(path, 10), "a/word/that/is/wider/than/all/of/it\nand more");
        assert_eq!(fit("  a long line", 8), "  a long\n  line");
    }

    #[test]
    fn no_line_is_wider_however_narrow_the_terminal() {
        let text = "one two three four five six seven eight nine ten eleven twelve";
        for width in 6..70 {
            let fitted = fit(text, width);
            assert!(fitted.lines().all(|line| count(line) <= width), "{width}: {fitted}");
            assert_eq!(fitted.split_whitespace().count(), 12);
        }
    }
}
