//! What a sample is and what is done to it: the half that `ops` and devices live by.
//!
//! Nothing here knows of batches' makers, of time or of an epoch's order: that is
//! `scheduling`, and neither half names the other. Reading order: `sample`, `size`, `blocks`
//! and `tensor` are the nouns; `rng` and `arith` the numbers that are drawn for a sample;
//! `recipe` is what is done to it.

pub mod blocks;
pub mod sample;
mod size;
pub mod tensor;

pub mod arith;
pub mod rng;

pub mod recipe;
