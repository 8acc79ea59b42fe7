//! The digests of an epoch's stream, as its consumer gets it. They are made before a batch is handed
//! over (`handover/digest.rs`): nothing is left to be hashed here.

use bothends_core::digest::{ContentDigest, StreamDigest};
use bothends_figures::SourceSamples;

use crate::handover::batch::{Batch, Sums};
use crate::read::source::Source;

/// The digests of an epoch, carried over a checkpoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct Digests {
    pub(crate) stream: StreamDigest,
    pub(crate) content: ContentDigest,
    pub(crate) n_samples: u64,
    /// Of those that this run has got, those of each data set of a mix.
    pub(crate) by_source: Vec<u64>,
}

impl Digests {
    /// Counts the samples of a batch that the consumer has got; how many there are.
    pub(crate) fn count(&mut self, batch: &Batch, source: &Source) -> u64 {
        let n_valid = u64::from(batch.n_valid());
        self.n_samples += n_valid;
        if let Some(sources) = source.sources() {
            let ids = batch.rows().iter().filter_map(|row| row.sample);
            sources.count(ids, &mut self.by_source);
        }
        n_valid
    }

    /// What was counted of each data set of a mix.
    pub(crate) fn sources(&self, source: &Source) -> Vec<SourceSamples> {
        let sources = source.sources();
        sources.map_or_else(Vec::new, |sources| sources.figures(&self.by_source))
    }

    /// Counts a batch that the consumer has got.
    pub(crate) fn add(&mut self, sums: &Sums) {
        self.stream.clone_from(&sums.stream);
        self.content.merge(sums.content);
    }
}
