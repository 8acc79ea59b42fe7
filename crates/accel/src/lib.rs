//! Consumers that take their time: what stands in for an accelerator.
//!
//! An [`Accelerator`] consumes one batch after another, and says how long it computed and
//! waited. This crate does not know batches, does not choose what is read and starts no
//! thread. Read `timeline.rs` first, then `sim.rs`; a new backend begins with `host.rs`.

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

/// What consumes batches: a real accelerator, an emulated one, or nothing (`host`).
///
/// # Contract
///
/// 1. `step` blocks until the batch is consumed: after it the slot may be used again.
/// 2. Steps do not overlap. A step starts when its batch was ready or when the step before
///    ended, whichever is later; both moments lie on the accelerator's own timeline, so a
///    thread that wakes late makes one return late and no later step longer.
/// 3. Stall and busy time tile that timeline: from the first batch's start to the last
///    step's end, the sum of all `stall_ns` and `busy_ns` is the time that passed.
/// 4. The first step has no stall: utilisation counts from the first batch on.
/// 5. A step of no samples takes no time.
///
/// `conformance` holds these as callable checks.
pub trait Accelerator: Send + Debug {
    /// The name for people and results: `host`, `resnet50-v100`, …
    fn name(&self) -> &str;

    /// Consumes a batch of `n_samples` samples that was complete in its slot at `ready`;
    /// blocks until the batch is consumed.
    ///
    /// `ready` is the caller's measurement: the moment the last byte of the batch lay
    /// where the accelerator takes it, be it before this call (the batch waited) or just
    /// now. It is what stall is counted by, so it must not be earlier. A moment in the
    /// future is taken as now.
    fn step(&mut self, n_samples: u32, ready: Instant) -> Step;

    /// The most samples per second it can consume, if it has a rate.
    fn samples_per_s(&self) -> Option<f64>;
}

/// What can go wrong at the accelerator's side.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccelError {
    /// The accelerator SPEC has another form.
    #[error(
        "cannot understand the accelerator `{spec}`; write `host`, `sim:NAME` or \
         `sim:RATE` (samples per second above 0)"
    )]
    Spec {
        /// As given.
        spec: String,
    },
    /// No constants under this name.
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
        /// The key or place, and what is expected.
        why: String,
    },
}
