//! The digests of an epoch's stream, as its consumer gets it.

use bothends_core::digest::{ContentDigest, StreamDigest, sample_digest};

use crate::handover::batch::Batch;

/// The digests of an epoch, carried over a checkpoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct Digests {
    pub(crate) stream: StreamDigest,
    pub(crate) content: ContentDigest,
    pub(crate) n_samples: u64,
}

impl Digests {
    pub(crate) fn add(&mut self, batch: &Batch) {
        for (i, row) in batch.rows().iter().enumerate() {
            if let Some(sample) = row.sample {
                let bytes = batch.sample(i);
                self.stream.add(sample, row.label, bytes);
                self.content.add(sample_digest(sample, row.label, bytes));
            }
        }
    }
}
