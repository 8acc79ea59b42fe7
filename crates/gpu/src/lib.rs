//! The GPU at the end of the feed: its driver, its memory, the copies to it and the kernels
//! that run on it.
//!
//! ```text
//! host slot (page-locked) ──copy stream──► device slot ──finish kernel──► tensor ──event──► consumer's stream
//!        ▲ reusable once the copy has passed                     ▲ reusable once the consumer's stream has passed
//! ```
//!
//! [`driver::Driver`] is the whole of what is asked of a GPU's driver. Three drivers implement it:
//! NVIDIA's ([`driver::cuda`]), loaded at run time where it is installed; a *twin*, which runs the same
//! kernels as a CPU program so that their results can be tested on any machine; and a *fake* for
//! tests ([`driver::fake`]), which completes work as late as the test likes. [`conformance`] holds
//! all of them to one contract.
//!
//! Above the driver: [`owners`] frees things in the right order and never waits for it;
//! [`kinds`] makes slots of pinned and of device memory; [`staging`] moves batches through
//! them, ordered by events on the device only; [`path`] says which way batches go, and why not
//! a better one.
//!
//! This crate does not choose what is delivered, does not know JPEG or any storage format
//! (`gpu-decode` does), and starts no thread that outlives a call, except for one that opens a
//! library which never returns. Read `driver.rs` first, then `staging.rs`.
//!
//! # A second backend
//!
//! HIP has each of the calls that the trait asks for, with the same meaning: `hipInit`, the
//! primary context, `hipMalloc`, `hipHostRegister` (portable), non-blocking streams, events
//! without timing, `hipMemcpy…Async`, `hipModuleLoadData`, `hipModuleLaunchKernel`. A backend is a
//! file next to `driver/cuda.rs` with its table of functions of `libamdhip64.so`, held by
//! [`conformance`] over a stub like the one in `tests/stub`. What else it takes: kernels
//! compiled for each architecture (there is no PTX that serves all, so code objects of a fat
//! binary), warps of 64 threads where kernels assume 32, DLPack's device type 10, and
//! `hipFile` in place of cuFile in `path`. Nothing above the driver names CUDA, except for the
//! handles of default streams in [`owners::ConsumerStream`].
//!
//! # What is tested where
//!
//! The order of all work is proved on the fake, over every interleaving of small cases; the calls
//! into NVIDIA's library run in tests against a stub of it. What the stub stands for was seen on an H200
//! (`scripts/check-gpu`, `docs/measured.md`): the contract in [`conformance`], batches under a slow consumer, the shared
//! primary context with PyTorch, JAX and CuPy, and speeds. Untested is cuFile beyond its guard, and [`adjust`] on a GPU.

pub mod conformance;
pub mod driver;
mod error;
pub mod kinds;
pub mod owners;
pub mod path;
pub mod staging;

pub mod adjust;
pub mod finish;
pub mod kernels;
pub mod twin;

pub use error::GpuError;
