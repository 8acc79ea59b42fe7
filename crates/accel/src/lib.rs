//! Consumers of batches that take time: stand-ins for an accelerator.
//!
//! An [`Accelerator`] consumes one batch after another and says how long it computed and
//! waited. This crate knows nothing of batches, does not choose what is read and starts no
//! threads. Read `timeline.rs` first, then `sim.rs`; a new backend begins with `host.rs`.

mod config;
pub mod conformance;
mod host;
mod model;
mod sim;
mod timeline;

use std::fmt::Debug;
use std::time::Instant;

pub use config::AccelConfig;
pub use host::Host;
pub use model::SimModel;
pub use sim::Sim;
pub use timeline::{Step, Usage};

/// A consumer of batches: a real accelerator, an emulated one, or none (`host`).
///
/// # Contract
///
/// 1. `step` blocks until the batch is consumed: after that, the slot may be reused.
/// 2. Steps do not overlap. A step starts when its batch is ready or when the previous step
///    ends, whichever is later. Both moments lie on the accelerator's own timeline, so a thread
///    that wakes late delays one return and does not make any later step longer.
/// 3. Stall and busy time add up: from the first batch's start to the last step's end, the sum
///    of all `stall_ns` and `busy_ns` is the time that passed.
/// 4. The first step has no stall: utilisation counts from the first batch on.
/// 5. A step of no samples takes no time.
///
/// `conformance` has these as callable checks.
pub trait Accelerator: Send + Debug {
    /// The name for people and results: `host`, `resnet50-v100`, …
    fn name(&self) -> &str;

    /// Consumes a batch of `n_samples` samples that was complete in its slot at `ready`;
    /// blocks until the batch is consumed.
    ///
    /// `ready` is measured by the caller: the moment when the last byte of the batch was where
    /// the accelerator takes it, before this call (the batch waited) or just now. Stall time is
    /// counted from it, so it must not be too early. A moment in the future counts as now.
    fn step(&mut self, n_samples: u32, ready: Instant) -> Step;

    /// The most samples per second it can consume, if it has a rate.
    fn samples_per_s(&self) -> Option<f64>;
}

/// What can go wrong with an accelerator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccelError {
    /// The accelerator SPEC is malformed.
    #[error(
        "cannot understand the accelerator `{spec}`; write `host`, `sim:NAME` or \
         `sim:RATE` (samples per second above 0)"
    )]
    Spec {
        /// As given.
        spec: String,
    },
    /// There are no constants with this name.
    #[error("no emulated accelerator is called `{name}`; there are {known}")]
    UnknownName {
        /// As given.
        name: String,
        /// All names, for the user to choose from.
        known: String,
    },
    /// Constants that cannot be parsed or are out of range.
    #[error("cannot use the accelerator constants `{file}`: {why}")]
    Constants {
        /// The file's name.
        file: String,
        /// The key or place, and what was expected.
        why: String,
    },
}
