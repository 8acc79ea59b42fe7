//! The words of the project and its pure decisions: no I/O, no clock, no thread, no unsafe.
//!
//! Reading order: `ids`, `sample` and `tensor` are the nouns; `rng` and `permutation` the
//! keyed numbers; `recipe` what is done to a sample; `plan` the order of an epoch;
//! `ledger` who has which batch; `select` who claims what and what is delivered next.

pub mod ids;
pub mod sample;
pub mod tensor;
