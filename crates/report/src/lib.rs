//! Results for people: one self-contained page ([`html`]) and one plain table ([`table`]).
//!
//! Pure functions from a [`ReportInput`] to text: nothing is measured, read or written
//! here, and the page asks nothing of the network. Read `input.rs` first (what a report
//! says), then `page.rs` (its table of contents).

mod input;

mod page;

mod columns;
mod ends;
mod figure;
mod glossary;
mod markup;
mod speed;
mod stall;

pub use columns::table;
pub use input::{
    Alone, Emulated, Event, EventKind, Prong, ReportError, ReportInput, StallSeconds,
    StrategyRun,
};
pub use page::html;

#[cfg(test)]
mod example;
