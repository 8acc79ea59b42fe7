//! Measures parts of a run separately: [`ops`] makes samples from records in memory, [`alone`] runs each op
//! by itself, [`io`] reads records without using them. [`au`] is about a whole loader and does not measure
//! itself: it decides what to measure next.
//!
//! Whatever is compared is measured interleaved, in passes over the same records and in rotating order, so
//! that disturbances of the machine affect all. Results are medians of whole passes, and where it helps
//! minima, which hide the effects of a busy machine (and of hot caches and falling clocks). Only `alone`
//! compares with other programs, if given one; `scripts/bench-engine` does so for whole samples. Nothing
//! is printed.
//!
//! Reading order: `records` has the inputs; `timing` the clocks and the medians; `ops`; `alone`; `io`;
//! `au`; `table` aligns text.

mod error;
mod records;
mod timing;

pub mod ops;

pub mod alone;

pub mod io;

pub mod au;

mod table;

pub use error::BenchError;

/// Receives progress messages.
pub type Tell<'a> = &'a mut dyn FnMut(&str);
