//! What a sample is and what is done to it: the part that `ops` and devices use.
//!
//! Nothing here knows who makes a batch, when, or in which order; that is `scheduling`, and neither
//! part names the other. Reading order: `sample`, `size`, `blocks` and `tensor` are the nouns; `rng`
//! and `arith` the numbers drawn for a sample; `recipe` is what is done to it.

pub mod blocks;
pub mod sample;
mod size;
pub mod tensor;

pub mod arith;
pub mod rng;

pub mod recipe;
