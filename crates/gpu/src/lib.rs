//! The GPU at the end of the feed: its driver, its memory, the copies to it and the kernels
//! that run on it.
//!
//! ```text
//! host slot (page-locked) ──copy stream──► device slot ──finish kernel──► tensor ──event──► consumer's stream
//!        ▲ reusable once the copy has passed                     ▲ reusable once the consumer's stream has passed
//! ```
//!
//! [`driver::Driver`] is the whole of what is asked of a GPU's driver; a second vendor's would
//! implement those calls. Three drivers implement it: NVIDIA's, loaded at run time where it is
//! installed; a *twin*, which runs the same kernels as a CPU program so that their results
//! can be tested on any machine; and a *fake* for tests, which completes work as late as the test
//! likes.
//!
//! This crate does not choose what is delivered, does not know JPEG or any storage format
//! (`gpu-decode` does), and starts no thread. Read `driver.rs` first.

pub mod driver;
mod error;

pub mod adjust;
pub mod finish;
pub mod kernels;
pub mod twin;

pub use error::GpuError;
