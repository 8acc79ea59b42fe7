//! The words of the project and its pure decisions: no I/O, no clock, no thread, no unsafe.
//!
//! Reading order: `ids`, `sample`, `blocks` and `tensor` are the nouns; `rng`, `arith` and
//! `permutation` the keyed numbers; `recipe` is what is done to a sample; `plan` the order
//! of an epoch, `order` one that a sampler supplies; `claim` and `ledger` who has which batch; `select` who claims what and what
//! is delivered next; `objective` what the epoch is run for; `epoch` puts these together for one epoch; `resume` and `digest`
//! say how far an epoch has come and what it was.

pub mod blocks;
pub mod ids;
pub mod sample;
pub mod tensor;

pub mod arith;
pub mod permutation;
pub mod rng;

pub mod order;
pub mod plan;
pub mod recipe;

pub mod claim;
pub mod ledger;
pub mod objective;
pub mod rates;
pub mod select;

pub mod epoch;

pub mod digest;
pub mod resume;

mod line;

mod sync;

pub use line::one_line;
