//! Results for people and their tools: one self-contained page ([`html`]), one plain table
//! ([`table`]) with remarks ([`run_remarks`]), traces for viewers and collectors ([`trace()`], [`Spans`]), metrics as text ([`Metrics`]), and samples to
//! look at ([`sheet()`]).
//!
//! These are pure functions: nothing is measured, opened or written here, and the page needs no
//! network. A run is a [`Recording`], with the lines of an event file; the page is made from a
//! [`ReportInput`], which is made from that. Read `record.rs` first (what is known of a run), then
//! `input.rs` (the contents of a report), then `page.rs` (its table of contents).

mod assemble;
mod input;
mod record;
mod series;

mod columns;
mod figure;
mod page;
mod sheet;

mod metrics;
mod trace;

pub use columns::table;
pub use input::{Alone, Emulated, Event, Prong, ReportError, ReportInput, StrategyRun};
pub use metrics::Metrics;
pub use page::html;
pub use record::{
    EpochRecord, FORMAT, Header, Line, RecordError, Recording, epoch_remarks, run_remarks,
};
pub use series::{Held, Step, Waiting};
pub use sheet::{Picture, Sheet, SheetCell, SheetRow, sheet};
pub use trace::{Spans, trace};

#[cfg(test)]
mod example;
