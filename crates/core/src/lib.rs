//! The words of the project and its pure decisions: no I/O, no clock, no thread, no unsafe.
//!
//! Two halves with no arrow between them, so a device needs nothing of the second and a
//! simulator nothing of the first:
//!
//! * `preprocessing`: what a sample is and what is done to it, by whomever;
//! * `scheduling`: who makes which batch, and when, whatever is in it.
//!
//! Common to both are the names of things (`ids`), what messages call the settings
//! (`setting`), how text for people is laid out (`line`, `columns`), and the one source of random
//! numbers (`philox`). Each half's file explains how to
//! read it. The halves' modules are known by their own names (`core::recipe`, `core::plan`),
//! here and outside.

pub mod ids;
pub mod philox;
pub mod setting;

mod preprocessing;
mod scheduling;

mod columns;
mod line;

pub use columns::columns;
pub use line::{one_line, one_line_by};
pub use preprocessing::{arith, blocks, recipe, rng, sample, tensor};
pub use scheduling::{
    claim, digest, epoch, ledger, objective, order, permutation, plan, rates, resume,
    select,
};
