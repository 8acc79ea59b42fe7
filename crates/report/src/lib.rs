//! Results for people and their tools: one self-contained page ([`html`]), one plain table
//! ([`table`]), a trace for viewers ([`trace()`]), metrics as text ([`Metrics`]), and samples to
//! look at ([`sheet()`]).
//!
//! Pure functions: nothing is measured, opened or written here, and the page asks nothing of the
//! network. A run is a [`Recording`], as it stands in an event file, line by line; the page is made
//! of a [`ReportInput`], which is made of that. Read `record.rs` first (what is known of a run),
//! then `input.rs` (what a report says), then `page.rs` (its table of contents).

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
pub use record::{EpochRecord, FORMAT, Header, Line, RecordError, Recording};
pub use series::{Held, Step, Waiting};
pub use sheet::{Picture, Sheet, SheetCell, SheetRow, sheet};
pub use trace::trace;

#[cfg(test)]
mod example;
