//! Results for people: one self-contained page ([`html`]), one plain table ([`table`]), and
//! samples to look at ([`sheet()`]).
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
mod sheet;
mod speed;
mod stall;

pub use columns::table;
pub use input::{
    Alone, Emulated, Event, EventKind, Prong, ReportError, ReportInput, StallSeconds,
    StrategyRun,
};
pub use page::html;
pub use sheet::{Picture, Sheet, SheetCell, SheetRow, sheet};

#[cfg(test)]
mod example;
