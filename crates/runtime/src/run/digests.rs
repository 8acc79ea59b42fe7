//! The digests of an epoch's stream, as its consumer gets it. They are made before a batch is handed
//! over (`handover/digest.rs`): nothing is left to be hashed here.

use bothends_core::digest::{ContentDigest, StreamDigest};

use crate::handover::batch::Sums;

/// The digests of an epoch, carried over a checkpoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct Digests {
    pub(crate) stream: StreamDigest,
    pub(crate) content: ContentDigest,
    pub(crate) n_samples: u64,
}

impl Digests {
    /// Counts a batch that the consumer has got.
    pub(crate) fn add(&mut self, sums: &Sums) {
        self.stream.clone_from(&sums.stream);
        self.content.merge(sums.content);
    }
}
