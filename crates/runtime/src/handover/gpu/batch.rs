//! A batch in GPU memory, in the consumer's hands.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bothends_core::ids::{BatchIdx, Prong};
use bothends_gpu::owners::ConsumerStream;
use bothends_gpu::staging::DeviceBatch;

use crate::error::RuntimeError;
use crate::handover::batch::fields::{FieldColumn, Further};
use crate::handover::batch::{Row, soft_labels};
use crate::handover::gpu::target::GpuTarget;

/// A batch in GPU memory. Dropping it, on any thread and without a wait, lets its memory be written
/// again once the device has passed what is enqueued by then on the streams that it was lent to.
#[derive(Debug)]
pub struct GpuBatch {
    /// Its place in the plan.
    pub index: BatchIdx,
    /// Who made it. For accounts only: the bytes do not depend on it.
    pub prong: Prong,
    /// When its last byte was in place on the host; the device may be copying and finishing still.
    pub ready: Instant,
    pub(crate) rows: Vec<Row>,
    pub(crate) further: Option<Box<Further>>,
    pub(crate) sample_bytes: usize,
    /// Bytes of each view of a sample, in order.
    pub(crate) view_bytes: Arc<[usize]>,
    pub(crate) target: GpuTarget,
    pub(crate) memory: Box<DeviceBatch>,
}

impl GpuBatch {
    /// The rows in order. Fewer than the batch size where bad samples were skipped.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Rows that hold a sample.
    #[must_use]
    pub fn n_valid(&self) -> u32 {
        let n = self.rows.iter().filter(|row| row.sample.is_some()).count();
        u32::try_from(n).unwrap_or(u32::MAX)
    }

    /// As [`crate::Batch::fields`]: they are in host memory.
    #[must_use]
    pub fn fields(&self) -> &[FieldColumn] {
        self.further.as_deref().map_or(&[], |further| &further.columns)
    }

    /// Bytes of one sample as delivered: from a row to the next.
    #[must_use]
    pub fn sample_bytes(&self) -> usize {
        self.sample_bytes
    }

    /// Number of views of each sample.
    #[must_use]
    pub fn n_views(&self) -> usize {
        self.view_bytes.len()
    }

    /// Bytes of each view of a sample, in order; a sample's views lie one after the other. Shapes,
    /// element type and layout are the loader's ([`crate::Loader::views`], [`crate::Loader::output`]).
    #[must_use]
    pub fn view_bytes(&self) -> &[usize] {
        &self.view_bytes
    }

    /// Where the first row begins in the device's memory, at a multiple of 256 bytes; the others follow,
    /// [`Self::sample_bytes`] apart. Whoever owns the batch may read and write there, on streams that it was lent to.
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

    /// As [`crate::Batch::soft_labels`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn soft_labels(
        &self,
        n_classes: usize,
        out: &mut [f32],
    ) -> Result<(), RuntimeError> {
        soft_labels(&self.rows, n_classes, out)
    }
}
