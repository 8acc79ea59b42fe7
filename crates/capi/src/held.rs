//! What handles hold: what their batches share, and how they are released.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use bothends_core::tensor::{Output, SampleShape};
use bothends_runtime::{GpuTarget, Home, Loader, Sources};

/// What all batches of a loader share.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) output: Output,
    pub(crate) shapes: Vec<SampleShape>,
    /// The GPU that batches are on, or for which their memory is pinned.
    pub(crate) gpu: Option<GpuTarget>,
    /// The data sets, where several are mixed.
    pub(crate) sources: Option<Arc<Sources>>,
}

impl Form {
    pub(crate) fn new(loader: &Loader) -> Self {
        Self {
            output: loader.output(),
            shapes: loader.views().to_vec(),
            gpu: loader.gpu().cloned(),
            sources: loader.sources().cloned(),
        }
    }

    /// Returns the memory that the GPU no longer uses; true if it still uses some.
    pub(crate) fn sweep(&self) -> bool {
        self.gpu.as_ref().is_some_and(|gpu| gpu.sweep() > 0)
    }
}

/// Drops a handle. In a fork of the process it is leaked, because it belongs to threads that do not
/// exist there.
pub(crate) fn release<T>(home: Home, handle: Box<T>) {
    if home.is_here() {
        drop(handle);
    } else {
        let _ = ManuallyDrop::new(handle);
    }
}
