//! A batch in GPU memory, in the consumer's hands.

use std::ops::Deref;
use std::time::Duration;

use bothends_gpu::owners::ConsumerStream;
use bothends_gpu::staging::DeviceBatch;

use crate::error::RuntimeError;
use crate::handover::batch::BatchHeader;
use crate::handover::gpu::target::GpuTarget;

/// A batch in GPU memory. Dropping it, on any thread and without a wait, lets its memory be written
/// again once the device has passed what is enqueued by then on the streams that it was lent to.
#[derive(Debug)]
pub struct GpuBatch {
    pub(crate) header: BatchHeader,
    pub(crate) target: GpuTarget,
    pub(crate) memory: Box<DeviceBatch>,
}

impl Deref for GpuBatch {
    type Target = BatchHeader;

    fn deref(&self) -> &Self::Target {
        &self.header
    }
}

impl GpuBatch {
    /// Where the first row begins in the device's memory, at a multiple of 256 bytes; the others follow,
    /// [`BatchHeader::sample_bytes`] apart. Whoever owns the batch may read and write there, on streams that it was
    /// lent to.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.memory.address().0
    }

    /// All rows' bytes together.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether every sample of it was skipped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// The GPU that it is on.
    #[must_use]
    pub fn target(&self) -> &GpuTarget {
        &self.target
    }

    /// Lends it to a stream: what is enqueued there from now on sees it complete, and its memory is not
    /// written again before what is enqueued there until it is released or dropped has run. To be
    /// called before any work on it; may be said of several streams. Does not block.
    ///
    /// # Errors
    /// [`RuntimeError::Gpu`]; it was not lent.
    pub fn lend(&mut self, stream: ConsumerStream) -> Result<(), RuntimeError> {
        self.memory.lend(stream).map_err(|why| self.target.failed(why))
    }

    /// Ends all use of it, as dropping it does, after what is enqueued on `after` now as well. Does not
    /// block.
    pub fn release(self, after: ConsumerStream) {
        self.memory.release(after);
    }

    /// Ends all use of it, as dropping it does, wherever it is used: its memory is written again once the device
    /// has passed all that any library of this process has enqueued by the next [`GpuTarget::sweep`]. Does not
    /// block, and calls no driver. Of use where [`GpuTarget::can_tell_idle`].
    pub fn release_when_idle(self) {
        self.memory.release_when_idle();
    }

    /// Blocks until the device has made it, `limit` at most: for a consumer that does not work on a stream.
    ///
    /// # Errors
    /// [`RuntimeError::Gpu`].
    pub fn wait(&self, limit: Duration) -> Result<(), RuntimeError> {
        self.memory.wait(limit).map_err(|why| self.target.failed(why))
    }

    /// Its bytes, copied to the host. Blocks until the device has made and copied them, `limit` at most:
    /// for looking at it, not for training.
    ///
    /// # Errors
    /// [`RuntimeError::Gpu`].
    pub fn download(&mut self, limit: Duration) -> Result<Vec<u8>, RuntimeError> {
        self.memory.download(limit).map_err(|why| self.target.failed(why))
    }
}
