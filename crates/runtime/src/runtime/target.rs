//! Where batches go: host memory, host memory that is pinned, or a GPU.
//!
//! Values only; `runtime/retarget.rs` acts on them.

use bothends_gpu::path::Report;

use crate::handover::gpu::target::GpuTarget;

/// Where batches go.
#[derive(Debug, Clone, Default)]
pub(crate) enum End {
    /// Host memory.
    #[default]
    Host,
    /// Host memory that is pinned for a GPU.
    PageLocked(GpuTarget),
    /// The memory of a GPU.
    Gpu(GpuTarget),
}

/// Where they go now.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) now: End,
    /// Where they go on the host.
    pub(crate) on_host: End,
    /// Whether their slots are pinned, and if not, why.
    pub(crate) pinned: Result<(), String>,
    /// What that makes of the way to the GPU; `None` where none is open.
    pub(crate) report: Option<Report>,
}

impl Default for Ends {
    fn default() -> Self {
        let why = "batches are asked for in ordinary host memory".to_owned();
        Self { now: End::Host, on_host: End::Host, pinned: Err(why), report: None }
    }
}

impl End {
    /// The GPU that they go to, or are pinned for.
    pub(crate) fn target(&self) -> Option<&GpuTarget> {
        match self {
            Self::Host => None,
            Self::PageLocked(target) | Self::Gpu(target) => Some(target),
        }
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Host, Self::Host) => true,
            (Self::PageLocked(a), Self::PageLocked(b)) | (Self::Gpu(a), Self::Gpu(b)) => {
                a.is(b)
            }
            (Self::Host | Self::PageLocked(_) | Self::Gpu(_), _) => false,
        }
    }
}
