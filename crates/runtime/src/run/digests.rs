//! The digests of an epoch's stream, as its consumer gets it. They are made before a batch is handed
//! over (`handover/digest.rs`): nothing is left to be hashed here.

use bothends_core::digest::{ContentDigest, StreamDigest};
use twox_hash::XxHash3_64;

use crate::config::run::RunConfig;
use crate::handover::batch::Sums;

/// Why digests that a state has are of no use to the run that goes on from it.
const OF_OTHER_BYTES: &str = "as those in the state are over other bytes; to continue them, use the output type, \
    layout, fields, rank and number of ranks of that run";
const OF_NOTHING: &str = "as the state is of a run without digests";

/// The digests of an epoch, carried over a checkpoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct Digests {
    /// What they are over ([`digest_of`]); `None` where none are made.
    pub(crate) of: Option<u32>,
    pub(crate) stream: StreamDigest,
    pub(crate) content: ContentDigest,
    /// Samples that were delivered before this run resumed the epoch; of a state, all that were.
    pub(crate) n_samples: u64,
}

/// What the digests of a rank are over, beyond what identifies its run: equal where the bytes of equal
/// samples are, and where they are the same rank's.
pub(crate) fn digest_of(config: &RunConfig) -> u32 {
    let RunConfig { output, fields, rank, .. } = config;
    let text = format!("{output:?} {fields:?} {} {}", rank.rank, rank.world);
    let [a, b, c, d, ..] = XxHash3_64::oneshot(text.as_bytes()).to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

impl Digests {
    /// Of an epoch that begins.
    pub(crate) fn of(of: Option<u32>) -> Self {
        Self { of, ..Self::default() }
    }

    /// What a run whose digests are over `ours` goes on from in mid-epoch, and why without digests.
    /// Digests of a part of the epoch, or over two kinds of bytes, would be taken for those of the epoch.
    pub(crate) fn resumed(self, ours: Option<u32>) -> (Self, Option<&'static str>) {
        if ours.is_some() && self.of == ours {
            return (self, None);
        }
        let why = match self.stream.is_empty() {
            true => OF_NOTHING,
            false => OF_OTHER_BYTES,
        };
        let none = Self { n_samples: self.n_samples, ..Self::default() };
        (none, ours.map(|_| why))
    }

    /// Counts a batch that the consumer has got.
    pub(crate) fn add(&mut self, sums: &Sums) {
        self.stream.clone_from(&sums.stream);
        self.content.merge(sums.content);
    }
}
