//! What handles hold: what their batches have in common, and how they are let go.

use std::mem::ManuallyDrop;

use bothends_core::tensor::{Output, SampleShape};
use bothends_runtime::{GpuTarget, Home, Loader};

/// What all batches of a loader have in common.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) output: Output,
    pub(crate) shapes: Vec<SampleShape>,
    /// The GPU that batches are on, or that their memory is page-locked for.
    pub(crate) gpu: Option<GpuTarget>,
}

impl Form {
    pub(crate) fn new(loader: &Loader) -> Self {
        Self {
            output: loader.output(),
            shapes: loader.views().to_vec(),
            gpu: loader.gpu().cloned(),
        }
    }

    /// Gives back what the GPU is done with; whether something is left that it is not done with.
    pub(crate) fn sweep(&self) -> bool {
        self.gpu.as_ref().is_some_and(|gpu| gpu.sweep() > 0)
    }
}

/// What a fork of the process lets lie: it belongs to threads that are not there.
pub(crate) fn release<T>(home: Home, handle: Box<T>) {
    if home.is_here() {
        drop(handle);
    } else {
        let _ = ManuallyDrop::new(handle);
    }
}
