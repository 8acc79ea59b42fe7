//! Results for people: one self-contained page ([`html`]) and one plain table ([`table`]).
//!
//! Pure functions from a [`ReportInput`] to text: nothing is measured, read or written
//! here, and the page asks nothing of the network. Read `input.rs` first (what a report
//! says), then `page.rs` (its table of contents).

mod input;

pub use input::{
    Alone, Emulated, Event, EventKind, Prong, ReportError, ReportInput, StallSeconds,
    StrategyRun,
};

/// The report as one HTML page that needs no other file.
#[must_use]
pub fn html(input: &ReportInput) -> String {
    input.title.clone()
}

/// The report's table as aligned plain text for a terminal, ending in a line break.
#[must_use]
pub fn table(input: &ReportInput) -> String {
    input.title.clone()
}
