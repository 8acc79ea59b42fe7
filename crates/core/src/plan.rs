//! The plan of an epoch: which samples are in which batch of which rank. A pure function of
//! its configuration; random access; no table.
//!
//! The permuted positions 0..N are cut into global steps of G = batch size × world; rank r
//! takes the r-th run of a step. The plan does not say who makes a batch or when it is
//! delivered: that is `epoch.rs`. `permutation.rs` is the shuffle.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{BatchIdx, EpochIdx, SampleId};
use crate::permutation::Permutation;

/// How the samples of an epoch are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shuffle {
    /// As in the data set.
    None,
    /// By the permutation of (seed, epoch).
    Full,
}

impl fmt::Display for Shuffle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Full => "full",
        })
    }
}

/// What happens with the samples that do not fill a global step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LastPolicy {
    /// They are left out.
    Drop,
    /// They are delivered; the slots behind them are masked.
    Pad,
    /// They are delivered, followed by the first samples of the plan once more.
    Wrap,
}

impl fmt::Display for LastPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Drop => "drop",
            Self::Pad => "pad",
            Self::Wrap => "wrap",
        })
    }
}

/// Everything a plan depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanConfig {
    /// Samples of the epoch, repetitions included.
    pub n_samples: u64,
    /// Samples in a batch of one rank.
    pub batch_size: u32,
    /// The order.
    pub shuffle: Shuffle,
    /// The run's seed; the same on all ranks.
    pub seed: u64,
    /// The epoch.
    pub epoch: EpochIdx,
    /// This rank, below `world`.
    pub rank: u32,
    /// Number of ranks.
    pub world: u32,
    /// What happens at the end.
    pub last: LastPolicy,
    /// Global positions delivered before this plan begins: 0, or from a resume state.
    pub start: u64,
}

/// A configuration that is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// There is nothing to plan.
    #[error("the data set has no samples; check the path given with --data")]
    NoSamples,
    /// More samples than positions.
    #[error("{n_samples} samples are more than 2^63; use a smaller --repeat")]
    TooManySamples {
        /// As given, repetitions included.
        n_samples: u64,
    },
    /// A batch of nothing.
    #[error("--batch-size is 0; it must be at least 1")]
    BatchSizeZero,
    /// A batch that can never be filled.
    #[error(
        "--batch-size {batch_size} is larger than the {n_samples} samples of the epoch; \
         use a smaller --batch-size, or --repeat"
    )]
    BatchAboveSamples {
        /// As given.
        batch_size: u32,
        /// Samples of the epoch.
        n_samples: u64,
    },
    /// Under `drop`, every sample would be dropped.
    #[error(
        "{world} ranks with --batch-size {batch_size} need {} samples for one step and the \
         epoch has {n_samples}; use a smaller --batch-size, --repeat, or --last pad",
        u64::from(*batch_size) * u64::from(*world)
    )]
    StepAboveSamples {
        /// As given.
        batch_size: u32,
        /// Number of ranks.
        world: u32,
        /// Samples of the epoch.
        n_samples: u64,
    },
    /// A rank outside the world.
    #[error(
        "--rank {rank} with --world {world}: a rank is 0 or more and below the world"
    )]
    RankOutside {
        /// As given.
        rank: u32,
        /// As given.
        world: u32,
    },
    /// A start behind the end.
    #[error(
        "{start} samples are said to be delivered and the epoch has {n_samples}; \
         the resume state belongs to another run"
    )]
    StartAboveSamples {
        /// As given.
        start: u64,
        /// Samples of the epoch.
        n_samples: u64,
    },
    /// More batches than an index can name.
    #[error(
        "--batch-size {batch_size} makes {n_batches} batches, more than {}; use a larger one",
        u32::MAX
    )]
    TooManyBatches {
        /// As given.
        batch_size: u32,
        /// What it makes.
        n_batches: u64,
    },
}

/// The plan of one rank for one epoch, or for the rest of one. A few words; clones freely.
#[derive(Debug, Clone)]
pub struct Plan {
    config: PlanConfig,
    permutation: Permutation,
    n_batches: u32,
}

impl Plan {
    /// Checks the configuration and counts the batches.
    ///
    /// # Errors
    /// [`PlanError`]: each variant names the flag and the remedy.
    pub fn new(config: PlanConfig) -> Result<Self, PlanError> {
        check(&config)?;
        let PlanConfig { n_samples, batch_size, start, .. } = config;
        let left = n_samples - start;
        let steps = match config.last {
            LastPolicy::Drop => left / step_size(&config),
            LastPolicy::Pad | LastPolicy::Wrap => left.div_ceil(step_size(&config)),
        };
        let n_batches = u32::try_from(steps)
            .map_err(|_| PlanError::TooManyBatches { batch_size, n_batches: steps })?;
        let permutation = Permutation::new(n_samples, config.seed, config.epoch);
        Ok(Self { config, permutation, n_batches })
    }

    /// What the plan was made from.
    #[must_use]
    pub fn config(&self) -> &PlanConfig {
        &self.config
    }

    /// Batches of this rank; the same number on every rank.
    #[must_use]
    pub fn n_batches(&self) -> u32 {
        self.n_batches
    }

    /// The samples of a batch, one item per slot; `None` is a masked slot. Always
    /// `batch_size` items; a batch behind the last has masked slots, or wraps.
    pub fn samples(
        &self,
        batch: BatchIdx,
    ) -> impl Iterator<Item = Option<SampleId>> + '_ {
        let first = self.first_position(batch);
        (0..self.config.batch_size)
            .map(move |slot| self.sample_at(first + u128::from(slot)))
    }

    /// Slots of a batch that hold a sample. They come before the masked ones.
    #[must_use]
    pub fn n_valid(&self, batch: BatchIdx) -> u32 {
        let batch_size = self.config.batch_size;
        if self.config.last == LastPolicy::Wrap {
            return batch_size;
        }
        let left =
            u128::from(self.config.n_samples).saturating_sub(self.first_position(batch));
        u32::try_from(left).map_or(batch_size, |left| left.min(batch_size))
    }

    /// Global positions delivered once every rank has delivered its first `n_batches`
    /// batches: the `start` of the plan that goes on from there.
    #[must_use]
    pub fn position_after(&self, n_batches: u32) -> u64 {
        let PlanConfig { start, n_samples, .. } = self.config;
        step_size(&self.config)
            .checked_mul(u64::from(n_batches))
            .and_then(|delivered| delivered.checked_add(start))
            .map_or(n_samples, |position| position.min(n_samples))
    }

    /// The global position of a batch's first slot. Wide, so that no index overflows it.
    fn first_position(&self, batch: BatchIdx) -> u128 {
        let PlanConfig { start, rank, batch_size, .. } = self.config;
        u128::from(start)
            + u128::from(batch.0) * u128::from(step_size(&self.config))
            + u128::from(rank) * u128::from(batch_size)
    }

    fn sample_at(&self, position: u128) -> Option<SampleId> {
        let n = self.config.n_samples;
        let position = match self.config.last {
            LastPolicy::Wrap => u64::try_from(position % u128::from(n)).ok()?,
            LastPolicy::Drop | LastPolicy::Pad => {
                u64::try_from(position).ok().filter(|&position| position < n)?
            }
        };
        Some(SampleId(match self.config.shuffle {
            Shuffle::None => position,
            Shuffle::Full => self.permutation.at(position),
        }))
    }
}

/// G: positions that all ranks together deliver in one step.
fn step_size(config: &PlanConfig) -> u64 {
    u64::from(config.batch_size) * u64::from(config.world)
}

fn check(config: &PlanConfig) -> Result<(), PlanError> {
    let &PlanConfig { n_samples, batch_size, rank, world, start, .. } = config;
    if n_samples == 0 {
        return Err(PlanError::NoSamples);
    }
    if n_samples > 1 << 63 {
        return Err(PlanError::TooManySamples { n_samples });
    }
    if batch_size == 0 {
        return Err(PlanError::BatchSizeZero);
    }
    if rank >= world {
        return Err(PlanError::RankOutside { rank, world });
    }
    if u64::from(batch_size) > n_samples {
        return Err(PlanError::BatchAboveSamples { batch_size, n_samples });
    }
    if config.last == LastPolicy::Drop && step_size(config) > n_samples {
        return Err(PlanError::StepAboveSamples { batch_size, world, n_samples });
    }
    if start > n_samples {
        return Err(PlanError::StartAboveSamples { start, n_samples });
    }
    Ok(())
}
