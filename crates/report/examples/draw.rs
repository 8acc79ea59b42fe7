//! Draws a report from its JSON: `draw REPORT.json PAGE.html`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use bothends_report::{ReportInput, html, table};

fn main() {
    let mut paths = std::env::args().skip(1);
    let json = std::fs::read_to_string(paths.next().unwrap()).unwrap();
    let input = ReportInput::from_json(&json).unwrap();
    std::fs::write(paths.next().unwrap(), html(&input)).unwrap();
    println!("{}", table(&input));
}
