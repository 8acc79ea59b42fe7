//! The consumer seam: whoever takes batches, one after another.
//!
//! A training step, an accelerator that batches are copied to, or one that only takes its time
//! ([`Timed`]). A loop that pulls (`Deal::batches`) needs none of it; a consumer is for loops
//! that are ours: `run`, `au`, and [`Loader::feed`](crate::Loader::feed).

pub mod conformance;

use std::fmt::Debug;

use bothends_accel::{AccelConfig, Accelerator, Step};

use crate::error::RuntimeError;
use crate::handover::batch::Batch;

/// Takes batches.
///
/// # Contract
///
/// 1. `take` owns the batch, and blocks until nothing of it is needed in its slot any more:
///    dropping the batch gives the slot back.
/// 2. Steps do not overlap; what they computed and waited tiles their time, as
///    [`Accelerator`] says.
///
/// [`conformance`] holds these as callable checks.
pub trait Consumer: Send + Debug {
    /// Takes a batch; what it computed, and waited for this batch.
    ///
    /// # Errors
    /// What ends the epoch.
    fn take(&mut self, batch: Batch) -> Result<Step, RuntimeError>;
}

/// A consumer that computes nothing and takes the time that an accelerator would.
#[derive(Debug)]
pub(crate) struct Timed(Box<dyn Accelerator>);

impl Timed {
    pub(crate) fn new(config: &AccelConfig) -> Self {
        Self(config.build())
    }
}

impl Consumer for Timed {
    fn take(&mut self, batch: Batch) -> Result<Step, RuntimeError> {
        Ok(self.0.step(batch.n_valid(), batch.ready))
    }
}
