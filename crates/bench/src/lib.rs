//! Measures parts of a run alone: [`ops`] makes samples of records that lie in memory,
//! [`alone`] does one op after the other, [`io`] reads records and looks at none. [`au`] is
//! about a whole loader, and measures nothing itself: it decides what is measured next.
//!
//! Whatever is compared is measured in turns, in passes over the same records, in an order
//! that moves on from pass to pass: what disturbs the machine for a while disturbs all.
//! Reported are medians of whole passes, and where it helps minima, which hide what a busy
//! machine adds (and hot caches, and clocks that fall). Only `alone` compares
//! with other programs, where it is given one; `scripts/bench-engine` does it for whole
//! samples. Nothing is printed.
//!
//! Reading order: `records` is what is worked on; `timing` the clocks and the medians; `ops`;
//! `alone`; `io`; `au`; `table` aligns text.

mod error;
mod records;
mod timing;

pub mod ops;

pub mod alone;

pub mod io;

pub mod au;

mod table;

pub use error::BenchError;

/// Told what is going on, every now and then.
pub type Tell<'a> = &'a mut dyn FnMut(&str);
