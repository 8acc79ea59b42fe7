//! An epoch dealt to where a loader's options say: the host, or a GPU.

use std::sync::Arc;

use crate::handover::deal::Deal;
use crate::handover::gpu::deal::GpuDeal;

/// A running epoch and its consumers, whose batches end where the options of their loader say
/// ([`crate::Loader::begin_as_told`]).
#[derive(Debug, Clone)]
pub enum Dealt {
    /// In host memory, pinned or not.
    Host(Arc<Deal>),
    /// In the memory of a GPU.
    Gpu(Arc<GpuDeal>),
}

impl Dealt {
    /// Nobody wants the rest: the epoch's threads end by themselves, nobody waits for them.
    pub fn cancel(&self) {
        match self {
            Self::Host(deal) => deal.cancel(),
            Self::Gpu(deal) => deal.cancel(),
        }
    }
}
