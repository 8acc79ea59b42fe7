//! Draws a report from an event file: `draw EVENTS.jsonl PAGE.html`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::fs::File;
use std::io::BufReader;

use bothends_report::{Recording, ReportInput, html, table};

fn main() {
    let mut paths = std::env::args().skip(1);
    let mut events = BufReader::new(File::open(paths.next().unwrap()).unwrap());
    let input = ReportInput::from(&Recording::read(&mut events).unwrap());
    std::fs::write(paths.next().unwrap(), html(&input)).unwrap();
    println!("{}", table(&input));
}
