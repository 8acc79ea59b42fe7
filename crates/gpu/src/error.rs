//! What goes wrong with a GPU.

use bothends_slots::SlotError;

/// Why the GPU could not be used, or stopped being usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// There is no driver, no such device, or the driver is too old. The batches can still
    /// be delivered in host memory.
    #[error("no usable GPU: {why}")]
    Unavailable {
        /// What was looked for and not found.
        why: String,
    },
    /// The device has no memory left.
    #[error("no memory for {bytes} bytes on the GPU; use a smaller batch or fewer slots")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// No memory for slots, or none that can be pinned.
    #[error("{why}")]
    Slots {
        /// What the ring of them says.
        why: String,
    },
    /// A driver call failed. What was enqueued before may or may not have run.
    #[error("the GPU driver failed in {call}: {why}")]
    Driver {
        /// The driver's name of the call.
        call: &'static str,
        /// The driver's name of the error.
        why: String,
    },
    /// Work on the GPU did not complete within its deadline.
    #[error("the GPU did not complete {what} within {seconds} s")]
    Late {
        /// What was waited for.
        what: &'static str,
        /// The deadline.
        seconds: u64,
    },
}

impl From<SlotError> for GpuError {
    fn from(error: SlotError) -> Self {
        Self::Slots { why: error.to_string() }
    }
}
