//! What every kind of memory, every ring and every producer must guarantee, as callable checks.
//!
//! A check that fails panics and says what was expected. Nothing here is part of a run.

#![allow(
    clippy::missing_panics_doc,
    reason = "a check that fails panics: that is its use"
)]

pub mod memory;
pub mod produce;
