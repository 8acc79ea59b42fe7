//! Decode and augment: a record's bytes become a sample, exactly and everywhere alike.
//!
//! This is the scalar meaning of every op; where an op has kernels, they give the same bytes.
//! It reads no file, knows no data set format, starts no thread, and draws no random number of
//! its own (the recipe does, keyed by the sample). Reading order: `image` is the picture being
//! worked on; `decode` makes it; `resize`, `crop` and `flip` change it; `resample` and `colour`
//! are what resizing is made of; `pipeline` runs a recipe's ops up to the cut; `finish` (with
//! `half`) does what comes after the cut.

pub mod error;
pub mod image;
pub mod kernels;

pub mod decode;

pub mod colour;
pub mod crop;
pub mod flip;
pub mod resample;
pub mod resize;

pub mod pipeline;

mod vectors;

pub mod finish;
pub mod half;

pub use error::{OpsError, SampleFault};
pub use finish::Finish;
pub use pipeline::{Pipeline, Scratch};
