//! The vocabulary of the project and its pure decisions: no I/O, no clock, no thread, no unsafe.
//!
//! The crate has three parts that do not depend on each other. A device needs only the first of them,
//! and a simulator only the others:
//!
//! * `preprocessing`: what a sample is and what is done to it, by whomever;
//! * `scheduling`: who makes which batch and when, whatever it contains;
//! * `pool`: how many agents many jobs need together, and what ranks in lock-step get.
//!
//! All share the names of things (`ids`), the names of settings in messages (`setting`), the guess at
//! which name was meant (`nearest`), the layout of text for people (`line`, `columns`, `width`), maps by
//! consecutive numbers (`positions`), and the one source of random numbers (`philox`). The file of each
//! part says how to read it. Modules are re-exported under their own names (`core::recipe`, `core::plan`).

pub mod ids;
pub mod nearest;
pub mod philox;
pub mod positions;
pub mod setting;

pub mod pool;
mod preprocessing;
mod scheduling;

mod columns;
mod line;
mod width;

pub use columns::columns;
pub use line::{one_line, one_line_by};
pub use preprocessing::{arith, blocks, recipe, rng, sample, tensor};
pub use scheduling::fetch::link;
pub use scheduling::{
    claim, digest, epoch, fetch, ledger, members, objective, order, permutation, plan,
    rates, resume, select,
};
pub use width::fit;
