//! Decode and augment: a record's bytes become a sample, exactly and everywhere alike.
//!
//! Every op has a scalar meaning, and where it pays kernels that give the same bytes
//! (`kernels`). Nothing here reads a file, knows a data set format, starts a thread, or draws
//! a random number of its own (the recipe does, keyed by the sample). Reading order: `image`
//! is the picture being worked on; `decode` makes it, with `jpeg` (`picture` is a file or a
//! store's record alike); `resize` (with `resample` and `colour`), `crop`, `flip` and `warp`
//! move its pixels, `adjust`, `erase` and `mix` change their values, `steps` is where these
//! meet; `fused` does several of them at once; `pipeline` runs a recipe up to the cut;
//! `finish` (with `half`) does what comes after the cut.

pub mod error;
pub mod image;
pub mod kernels;

pub mod decode;
mod gather;
pub mod jpeg;
mod picture;

pub mod adjust;
pub mod colour;
pub mod crop;
pub mod erase;
pub mod flip;
pub mod mix;
pub mod resample;
pub mod resize;
pub mod warp;

mod fused;
pub mod steps;

pub mod pipeline;

mod compiled;
mod vectors;

pub mod finish;
pub mod half;

pub use error::{OpsError, SampleFault};
pub use finish::Finish;
pub use pipeline::{Pipeline, Scratch};
pub use steps::Workbench;
