//! Decode and augment: the bytes of a record become a sample, exactly, and identically on every machine.
//!
//! Every op has a scalar definition and, where it pays, kernels that give the same bytes (`kernels`).
//! Nothing here reads a file, knows a data set format, starts a thread, or draws a random number (the
//! recipe does, keyed by the sample).
//!
//! ```text
//! record ─► decode ─► image ─► geometry, adjust ─► sample ─► finish ─► batch
//!           └──────── pipeline: up to the cut ────────┘
//! ```
//!
//! Reading order: `image` is the image being worked on; `decode` makes it from a record, JPEGs with
//! `jpeg`; `geometry` moves its pixels and `adjust` changes their values; `pipeline` runs a recipe up to the cut,
//! fusing steps where it can; `finish` does what comes after it. `colour` and `kernels` serve them all.

pub mod error;
pub mod image;
pub mod kernels;

pub mod colour;
pub mod jpeg;

pub mod decode;

mod geometry;

pub mod adjust;

pub mod pipeline;

pub mod finish;

pub use decode::Damage;
pub use decode::room::{DecodeRoom, PixelLimit, Room};
pub use error::{OpsError, SampleFault};
pub use finish::Finish;
pub use geometry::{crop, flip, resample, resize, warp};
pub use pipeline::{ComponentLayout, CropLayout, Delivery, Pipeline, Scratch, Workbench};
