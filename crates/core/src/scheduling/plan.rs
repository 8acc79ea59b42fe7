//! The plan of an epoch: which samples are in which batch of which rank. A pure function of its
//! configuration, with random access and no table.
//!
//! The permuted positions 0..N are cut into global steps of G = batch size × world; rank r takes the
//! r-th run of a step. The plan does not say who makes a batch or when it is delivered; that is
//! `epoch.rs`. `permutation.rs` is the shuffle, and `plan/mix.rs` what several data sets give together.

pub mod mix;
mod shares;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::ids::{BatchIdx, EpochIdx, SampleId};
use crate::order::Order;
use crate::permutation::Permutation;
use crate::plan::mix::{Mix, MixBatch, MixError};
use crate::setting::{Names, NamesSettings, Setting, advice};

/// How the samples of an epoch are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shuffle {
    /// As in the data set.
    None,
    /// By the permutation of (seed, epoch).
    Full,
    /// As the caller says, separately for each epoch ([`Plan::supplied`]).
    Supplied,
}

/// As in JSON.
impl fmt::Display for Shuffle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// What happens with the samples that do not fill a global step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LastPolicy {
    /// They are left out.
    Drop,
    /// They are delivered; the rows behind them are masked.
    Pad,
    /// They are delivered, followed by the first samples of the plan once more.
    Wrap,
    /// They are dealt evenly: every rank gets as many of them, which may take a few of the
    /// first samples once more, fewer than there are ranks; the rows behind are masked. What
    /// PyTorch's `DistributedSampler` does.
    Even,
}

/// As in JSON.
impl fmt::Display for LastPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
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
    /// Consumers that this rank's batches are dealt to in turn: 1 or more. Each gets as many
    /// as the others, so the end of the epoch is cut or filled up for all of them together.
    pub consumers: u32,
    /// Global positions delivered before this plan begins: 0, or from a resume state.
    pub start: u64,
    /// Positions in a row that are the same record, each under an id of its own (repeated
    /// augmentation): 1 or more. An epoch has its usual number of positions, of fewer records.
    pub repetitions: u32,
}

impl PlanConfig {
    /// What the plans of a run have in common, over its ranks and epochs: its settings, and
    /// where some samples stand, so that a program that shuffles otherwise is known, too.
    ///
    /// Eight hexadecimal digits of room are what a state has left for it; settings that differ
    /// are compared by name before.
    #[must_use]
    pub fn fingerprint(&self) -> u32 {
        let Self { n_samples, batch_size, shuffle, seed, last, repetitions, .. } = *self;
        let mut text =
            format!("{n_samples} {batch_size} {shuffle} {seed} {last} {repetitions}");
        if shuffle == Shuffle::Full && n_samples > 0 {
            let permutation = Permutation::new(n_samples, seed, EpochIdx(1));
            let places = [0, n_samples / 3, n_samples / 2, n_samples - 1];
            for place in places {
                text.push_str(&format!(" {}", permutation.at(place)));
            }
        }
        fingerprint_of(&text)
    }
}

fn fingerprint_of(text: &str) -> u32 {
    let [a, b, c, d, ..] = XxHash3_64::oneshot(text.as_bytes()).to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// A configuration that is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.with_names(Setting::key))]
#[non_exhaustive]
pub enum PlanError {
    /// There is nothing to plan.
    NoSamples,
    /// More samples than positions.
    TooManySamples {
        /// As given, repetitions included.
        n_samples: u64,
    },
    /// A batch of nothing.
    BatchSizeZero,
    /// A batch that can never be filled.
    BatchAboveSamples {
        /// As given.
        batch_size: u32,
        /// Samples of the epoch.
        n_samples: u64,
    },
    /// Under `drop`, every sample would be dropped.
    StepAboveSamples {
        /// As given.
        batch_size: u32,
        /// Number of ranks.
        world: u32,
        /// Consumers of each rank.
        consumers: u32,
        /// Samples of a step of all of them.
        needed: u64,
        /// Samples of the epoch.
        n_samples: u64,
    },
    /// A plan for nobody.
    NoConsumers,
    /// A plan for more than can be meant: each of them is dealt a batch at least.
    TooManyConsumers {
        /// As given.
        consumers: u32,
    },
    /// A rank outside the world.
    RankOutside {
        /// As given.
        rank: u32,
        /// As given.
        world: u32,
    },
    /// A start past the end.
    StartAboveSamples {
        /// As given.
        start: u64,
        /// Samples of the epoch.
        n_samples: u64,
    },
    /// A supplied order with a batch that has no room.
    OrderAboveBatchSize {
        /// Samples of the order's longest batch.
        longest: u32,
        /// As given.
        batch_size: u32,
    },
    /// More batches than an index can name.
    TooManyBatches {
        /// As given.
        batch_size: u32,
        /// What it makes.
        n_batches: u64,
    },
    /// Data sets that cannot be mixed.
    Mix(MixError),
    /// A recipe with repeated augmentation, of a mix.
    MixRepeats,
}

impl From<MixError> for PlanError {
    fn from(error: MixError) -> Self {
        Self::Mix(error)
    }
}

impl NamesSettings for PlanError {
    fn with_names(&self, name: Names) -> String {
        let size = name(Setting::BatchSize);
        let repeat = name(Setting::Repeat);
        match self {
            Self::NoSamples => {
                format!("the data set has no samples; check {}", name(Setting::Data))
            }
            Self::TooManySamples { n_samples } => {
                format!("{n_samples} samples are more than 2^63; use a smaller {repeat}")
            }
            Self::BatchSizeZero => format!("{size} is 0; it must be at least 1"),
            Self::BatchAboveSamples { batch_size, n_samples } => {
                let remedies =
                    [(Setting::BatchSize, "a smaller {}"), (Setting::Repeat, "{}")];
                let remedy = advice(name, &remedies);
                let remedy = remedy.as_deref().unwrap_or("a data set with more samples");
                let size = if size.is_empty() { "a batch of" } else { size };
                format!(
                    "{size} {batch_size} is larger than the {n_samples} samples of the epoch; \
                     use {remedy}"
                )
            }
            Self::StepAboveSamples {
                batch_size,
                world,
                consumers,
                needed,
                n_samples,
            } => {
                format!(
                    "{} with {size} {batch_size} need {needed} samples for one step and \
                     the epoch has {n_samples}; use a smaller {size}, {repeat}, or {} pad",
                    takers(*world, *consumers),
                    name(Setting::Last)
                )
            }
            Self::NoConsumers => {
                "an epoch is dealt to 0 consumers; it needs at least 1".to_owned()
            }
            Self::TooManyConsumers { consumers } => format!(
                "an epoch is dealt to {consumers} consumers; it can be dealt to \
                 {MAX_CONSUMERS} at most"
            ),
            Self::RankOutside { rank, world } => format!(
                "{} {rank} with {} {world}: a rank is 0 or more and below the world",
                name(Setting::Rank),
                name(Setting::World)
            ),
            Self::StartAboveSamples { start, n_samples } => format!(
                "{start} samples are said to be delivered and the epoch has {n_samples}; \
                 the resume state belongs to another run"
            ),
            Self::OrderAboveBatchSize { longest, batch_size } => format!(
                "a batch of the order has {longest} samples and {size} is {batch_size}; \
                 use at least {size} {longest}"
            ),
            Self::TooManyBatches { batch_size, n_batches } => format!(
                "{size} {batch_size} makes {n_batches} batches, more than {}; use a larger one",
                u32::MAX
            ),
            Self::Mix(error) => error.with_names(name),
            Self::MixRepeats => format!(
                "the recipe repeats every sample (repeated_augment), which a mix of data sets \
                 cannot; leave it out of the recipe, or use {repeat}"
            ),
        }
    }
}

/// The plan of one rank for one epoch, or for the rest of one. A few words; clones freely.
#[derive(Debug, Clone)]
pub struct Plan {
    config: PlanConfig,
    source: OrderSource,
    n_batches: u32,
}

/// Most consumers of an epoch: the books of its batches are kept in memory, and with `pad` each
/// consumer is dealt one at least.
const MAX_CONSUMERS: u32 = 1 << 16;

/// Where a plan's samples come from.
#[derive(Debug, Clone)]
enum OrderSource {
    /// Computed, from the seed.
    Keyed(Permutation),
    /// Supplied by the caller, for this rank alone. Positions are rows of its batches.
    Supplied(Arc<Order>),
    /// Of several data sets.
    Mixed(Arc<Mix>),
}

impl Plan {
    /// Checks the configuration and counts the batches.
    ///
    /// # Errors
    /// [`PlanError`]: each variant names the setting and the remedy.
    pub fn new(config: PlanConfig) -> Result<Self, PlanError> {
        let permutation = Permutation::new(config.n_samples, config.seed, config.epoch);
        Self::computed(config, OrderSource::Keyed(permutation))
    }

    /// The plan of a mix of data sets. It has the mix's samples instead of the configuration's.
    ///
    /// # Errors
    /// As [`Plan::new`], and [`PlanError::MixRepeats`].
    pub fn mixed(config: PlanConfig, mix: Mix) -> Result<Self, PlanError> {
        if config.repetitions > 1 {
            return Err(PlanError::MixRepeats);
        }
        let config = PlanConfig { n_samples: mix.n_samples(), ..config };
        Self::computed(config, OrderSource::Mixed(Arc::new(mix)))
    }

    fn computed(config: PlanConfig, source: OrderSource) -> Result<Self, PlanError> {
        check(&config)?;
        let PlanConfig { n_samples, batch_size, start, .. } = config;
        let left = n_samples - start;
        let consumers = u64::from(config.consumers);
        let round = step_size(&config).saturating_mul(consumers);
        let steps = consumers.saturating_mul(match config.last {
            LastPolicy::Drop => left / round,
            LastPolicy::Pad | LastPolicy::Wrap | LastPolicy::Even => left.div_ceil(round),
        });
        let n_batches = u32::try_from(steps)
            .map_err(|_| PlanError::TooManyBatches { batch_size, n_batches: steps })?;
        Ok(Self { config, source, n_batches })
    }

    /// As [`PlanConfig::fingerprint`], and of the mix, if it is one.
    #[must_use]
    pub fn fingerprint(&self) -> u32 {
        let of_config = self.config.fingerprint();
        match &self.source {
            OrderSource::Keyed(_) | OrderSource::Supplied(_) => of_config,
            OrderSource::Mixed(mix) => {
                fingerprint_of(&format!("{of_config:08x} {}", mix.text()))
            }
        }
    }

    /// The plan of an order that the caller supplies for this rank. Of `config` it takes
    /// `batch_size` (rows of a batch; shorter ones have masked rows at their end), `seed`,
    /// `epoch`, `consumers` and `start`, a position among them.
    ///
    /// # Errors
    /// [`PlanError::OrderAboveBatchSize`], [`PlanError::StartAboveSamples`],
    /// [`PlanError::BatchSizeZero`], [`PlanError::NoConsumers`].
    pub fn supplied(config: PlanConfig, order: Arc<Order>) -> Result<Self, PlanError> {
        let batch_size = config.batch_size;
        let longest = order.longest();
        if longest > batch_size && batch_size > 0 {
            return Err(PlanError::OrderAboveBatchSize { longest, batch_size });
        }
        let n_samples = u64::from(order.n_batches()) * u64::from(batch_size);
        let config = PlanConfig {
            n_samples,
            shuffle: Shuffle::None,
            rank: 0,
            world: 1,
            last: LastPolicy::Pad,
            repetitions: 1,
            ..config
        };
        check(&config)?;
        let n_before = config.start.div_ceil(u64::from(batch_size));
        let n_before = u32::try_from(n_before).unwrap_or(u32::MAX);
        let n_batches = order.n_batches().saturating_sub(n_before);
        Ok(Self { config, source: OrderSource::Supplied(order), n_batches })
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

    /// The samples of a batch, one item per row; `None` is a masked row. Always
    /// `batch_size` items; a batch after the last has masked rows, or wraps.
    pub fn samples(
        &self,
        batch: BatchIdx,
    ) -> impl Iterator<Item = Option<SampleId>> + '_ {
        let run = self.run(batch);
        let mut mixed = None;
        (0..self.config.batch_size).map(move |row| match &self.source {
            OrderSource::Supplied(order) => {
                order.samples(self.in_order(batch)).nth(row as usize)
            }
            OrderSource::Keyed(permutation) => {
                let is_of_run = row < run.n_rows;
                let position = run.first + u128::from(row);
                is_of_run.then(|| self.sample_at(permutation, position))?
            }
            OrderSource::Mixed(mix) => {
                let is_of_run = row < run.n_rows;
                let position = run.first + u128::from(row);
                is_of_run.then(|| self.mixed_at((mix, &mut mixed), position))?
            }
        })
    }

    /// Rows of a batch that hold a sample. They come before the masked ones.
    #[must_use]
    pub fn n_valid(&self, batch: BatchIdx) -> u32 {
        if let OrderSource::Supplied(order) = &self.source {
            let n = order.samples(self.in_order(batch)).len();
            return u32::try_from(n).unwrap_or(u32::MAX);
        }
        let run = self.run(batch);
        match self.config.last {
            LastPolicy::Wrap | LastPolicy::Even => run.n_rows,
            LastPolicy::Drop | LastPolicy::Pad => {
                let n = u128::from(self.config.n_samples);
                let left = n.saturating_sub(run.first);
                u32::try_from(left).map_or(run.n_rows, |left| left.min(run.n_rows))
            }
        }
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

    /// The global position of a batch's first row: what numbers of whole batches are keyed
    /// by, so that they are the same however an epoch was resumed.
    #[must_use]
    pub fn position(&self, batch: BatchIdx) -> u64 {
        u64::try_from(self.run(batch).first).unwrap_or(u64::MAX)
    }

    /// Which positions a batch takes.
    fn run(&self, batch: BatchIdx) -> PositionRun {
        let PlanConfig { n_samples, start, rank, world, batch_size, last, .. } =
            self.config;
        let step = step_size(&self.config);
        let step_start = u128::from(start) + u128::from(batch.0) * u128::from(step);
        let left = u128::from(n_samples).saturating_sub(step_start);
        let n_rows = match u64::try_from(left) {
            // No more than a batch, as what is left is less than a step.
            Ok(left) if last == LastPolicy::Even && left < step => {
                u32::try_from(left.div_ceil(u64::from(world))).unwrap_or(batch_size)
            }
            Ok(_) | Err(_) => batch_size,
        };
        let first = step_start + u128::from(rank) * u128::from(n_rows);
        PositionRun { first, n_rows }
    }

    /// A batch of this plan as the supplied order counts them: those before the start count.
    fn in_order(&self, batch: BatchIdx) -> BatchIdx {
        let PlanConfig { start, batch_size, .. } = self.config;
        let before = start.div_ceil(u64::from(batch_size.max(1)));
        BatchIdx(batch.0.saturating_add(u32::try_from(before).unwrap_or(u32::MAX)))
    }

    /// A position of the epoch; `None` after its end, unless it wraps round.
    fn within(&self, position: u128) -> Option<u64> {
        let n = self.config.n_samples;
        match self.config.last {
            LastPolicy::Wrap | LastPolicy::Even => {
                u64::try_from(position % u128::from(n)).ok()
            }
            LastPolicy::Drop | LastPolicy::Pad => {
                u64::try_from(position).ok().filter(|&position| position < n)
            }
        }
    }

    /// The sample of a mix; its batch is kept for the next row.
    fn mixed_at<'a>(
        &self,
        (mix, kept): (&'a Mix, &mut Option<MixBatch<'a>>),
        position: u128,
    ) -> Option<SampleId> {
        let position = self.within(position)?;
        let size = u64::from(self.config.batch_size);
        let (batch, row) = (position / size, position % size);
        let kept = match kept.take().filter(|kept| kept.batch == batch) {
            Some(same) => kept.insert(same),
            None => kept.insert(mix.batch(batch)),
        };
        Some(kept.sample(u32::try_from(row).unwrap_or(u32::MAX)))
    }

    fn sample_at(&self, permutation: &Permutation, position: u128) -> Option<SampleId> {
        let n = self.config.n_samples;
        let position = self.within(position)?;
        let repetitions = u64::from(self.config.repetitions.max(1));
        let (distinct, repetition) = (position / repetitions, position % repetitions);
        let sample = match self.config.shuffle {
            Shuffle::None | Shuffle::Supplied => distinct,
            Shuffle::Full => permutation.at(distinct),
        };
        Some(SampleId(sample + n * repetition))
    }
}

/// Positions in a row: a batch's.
#[derive(Debug, Clone, Copy)]
struct PositionRun {
    /// Wide, so that no batch's index overflows it.
    first: u128,
    /// Rows that are not masked whatever the position.
    n_rows: u32,
}

/// Whom a step is for, in a message.
fn takers(world: u32, consumers: u32) -> String {
    match consumers {
        1 => format!("{world} ranks"),
        _ => format!("{world} ranks of {consumers} consumers each"),
    }
}

/// G: positions that all ranks together deliver in one step.
fn step_size(config: &PlanConfig) -> u64 {
    u64::from(config.batch_size) * u64::from(config.world)
}

fn check(config: &PlanConfig) -> Result<(), PlanError> {
    let &PlanConfig { n_samples, batch_size, rank, world, consumers, start, .. } = config;
    if n_samples == 0 {
        return Err(PlanError::NoSamples);
    }
    if n_samples > (1 << 63) / u64::from(config.repetitions.max(1)) {
        return Err(PlanError::TooManySamples { n_samples });
    }
    if batch_size == 0 {
        return Err(PlanError::BatchSizeZero);
    }
    if rank >= world {
        return Err(PlanError::RankOutside { rank, world });
    }
    if consumers == 0 {
        return Err(PlanError::NoConsumers);
    }
    if consumers > MAX_CONSUMERS {
        return Err(PlanError::TooManyConsumers { consumers });
    }
    if u64::from(batch_size) > n_samples {
        return Err(PlanError::BatchAboveSamples { batch_size, n_samples });
    }
    let needed = step_size(config).saturating_mul(u64::from(consumers));
    if config.last == LastPolicy::Drop && needed > n_samples {
        return Err(PlanError::StepAboveSamples {
            batch_size,
            world,
            consumers,
            needed,
            n_samples,
        });
    }
    if start > n_samples {
        return Err(PlanError::StartAboveSamples { start, n_samples });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn config(n_samples: u64, batch_size: u32, last: LastPolicy) -> PlanConfig {
        PlanConfig {
            n_samples,
            batch_size,
            shuffle: Shuffle::Full,
            seed: 3,
            epoch: EpochIdx(1),
            rank: 0,
            world: 1,
            last,
            consumers: 1,
            start: 0,
            repetitions: 1,
        }
    }

    /// Every consumer gets as many batches as the others, and together they get what one
    /// would, except for the end.
    #[test]
    fn a_fingerprint_is_of_all_ranks_and_epochs_and_of_nothing_else() {
        let config = PlanConfig {
            n_samples: 1_000,
            batch_size: 8,
            shuffle: Shuffle::Full,
            seed: 7,
            epoch: EpochIdx(3),
            rank: 1,
            world: 2,
            last: LastPolicy::Drop,
            consumers: 1,
            start: 0,
            repetitions: 1,
        };
        let plan = config.fingerprint();
        // Fixed: a state of an older release must not be refused.
        assert_eq!(plan, 0xD40A_F0DA, "{plan:08x}");
        let (epoch, start, consumers) = (EpochIdx(9), 16, 3);
        let same = PlanConfig { epoch, start, rank: 0, world: 5, consumers, ..config };
        assert_eq!(same.fingerprint(), plan);
        let others = [
            PlanConfig { n_samples: 1_001, ..config },
            PlanConfig { batch_size: 4, ..config },
            PlanConfig { shuffle: Shuffle::None, ..config },
            PlanConfig { seed: 8, ..config },
            PlanConfig { last: LastPolicy::Pad, ..config },
            PlanConfig { repetitions: 2, ..config },
        ];
        assert!(others.iter().all(|other| other.fingerprint() != plan));
    }

    #[test]
    fn the_end_of_an_epoch_is_cut_or_filled_up_for_all_consumers_together() {
        let count = |last, consumers| {
            let plan = PlanConfig { consumers, ..config(23, 2, last) };
            let plan = Plan::new(plan).unwrap();
            let batches = (0..plan.n_batches()).map(BatchIdx);
            let mut ids: Vec<_> =
                batches.flat_map(|b| plan.samples(b)).flatten().collect();
            let n_rows = ids.len();
            ids.sort_unstable();
            ids.dedup();
            (plan.n_batches(), n_rows, ids.len())
        };
        assert_eq!(count(LastPolicy::Drop, 1), (11, 22, 22));
        assert_eq!(count(LastPolicy::Drop, 3), (9, 18, 18));
        assert_eq!(count(LastPolicy::Pad, 1), (12, 23, 23));
        assert_eq!(count(LastPolicy::Pad, 5), (15, 23, 23));
        assert_eq!(count(LastPolicy::Wrap, 5), (15, 30, 23));
        let nobody = PlanConfig { consumers: 0, ..config(23, 2, LastPolicy::Pad) };
        assert_eq!(Plan::new(nobody).unwrap_err(), PlanError::NoConsumers);
        let everybody = PlanConfig { consumers: u32::MAX, ..nobody };
        let too_many = PlanError::TooManyConsumers { consumers: u32::MAX };
        assert_eq!(Plan::new(everybody).unwrap_err(), too_many);
        let many = PlanConfig { consumers: 12, ..config(23, 2, LastPolicy::Drop) };
        let line = Plan::new(many).unwrap_err().to_string();
        assert!(line.starts_with("1 ranks of 12 consumers each"), "{line}");
    }

    /// Ids n apart are one record.
    #[test]
    fn a_repeated_sample_fills_positions_in_a_row_under_ids_of_their_own() {
        let plain = Plan::new(config(10, 5, LastPolicy::Drop)).unwrap();
        let config = PlanConfig { repetitions: 3, ..*plain.config() };
        let plan = Plan::new(config).unwrap();
        let ids = |plan: &Plan| -> Vec<u64> {
            let batches = (0..plan.n_batches()).map(BatchIdx);
            batches.flat_map(|b| plan.samples(b)).map(|id| id.unwrap().0).collect()
        };
        let (plain, repeated) = (ids(&plain), ids(&plan));
        assert_eq!(repeated.len(), 10);
        for (id, position) in repeated.into_iter().zip(0..) {
            let (record, repetition) = (id % 10, id / 10);
            assert_eq!(repetition, position % 3);
            assert_eq!(record, plain[usize::try_from(position / 3).unwrap()]);
        }
    }

    #[test]
    fn a_supplied_order_is_followed_and_resumed_at_any_batch() {
        use crate::order::{OrderConfig, Repeats};
        let repeats = Repeats::SameOnRanks;
        let config_of = OrderConfig { n_records: 9, rank: 0, world: 1, repeats, skip: 0 };
        let order = Order::new(config_of, &[8, 1, 8, 0, 5], vec![2, 3, 5]).unwrap();
        let order = Arc::new(order);
        // The number of records says nothing about the order's length.
        let config = config(9, 3, LastPolicy::Drop);
        let plan = |start| {
            Plan::supplied(PlanConfig { start, ..config }, Arc::clone(&order)).unwrap()
        };
        let rows = |plan: &Plan, batch| -> Vec<_> {
            plan.samples(BatchIdx(batch)).map(|id| id.map(|id| id.0)).collect()
        };
        let whole = plan(0);
        assert_eq!(whole.n_batches(), 3);
        assert_eq!(rows(&whole, 0), [Some(8), Some(1), None]);
        assert_eq!(rows(&whole, 1), [Some(17), None, None]);
        assert_eq!(rows(&whole, 3), [None; 3]);
        assert_eq!((whole.n_valid(BatchIdx(0)), whole.n_valid(BatchIdx(1))), (2, 1));
        assert_eq!(whole.position_after(2), 6);
        assert_eq!(whole.position(BatchIdx(2)), 6);
        let rest = plan(whole.position_after(1));
        assert_eq!(rest.n_batches(), 2);
        assert_eq!(rows(&rest, 0), rows(&whole, 1));
        assert_eq!(rest.position(BatchIdx(1)), whole.position(BatchIdx(2)));
        assert_eq!(plan(9).n_batches(), 0);
        let small = PlanConfig { batch_size: 1, ..config };
        let line = Plan::supplied(small, Arc::clone(&order)).unwrap_err().to_string();
        assert!(line.contains("has 2 samples and batch_size is 1"), "{line}");
        let behind = PlanConfig { start: 10, ..config };
        assert!(Plan::supplied(behind, order).is_err());
    }

    /// How often each sample is delivered by all ranks in the first `n_batches` batches.
    fn count(config: PlanConfig, n_batches: u32, counts: &mut HashMap<u64, u32>) {
        for rank in 0..config.world {
            let plan = Plan::new(PlanConfig { rank, ..config }).unwrap();
            for batch in 0..n_batches {
                let batch = BatchIdx(batch);
                let rows: Vec<_> = plan.samples(batch).collect();
                assert_eq!(rows.len(), config.batch_size as usize);
                let n_valid = plan.n_valid(batch) as usize;
                assert!(rows[..n_valid].iter().all(Option::is_some));
                assert!(rows[n_valid..].iter().all(Option::is_none));
                for sample in rows.into_iter().flatten() {
                    *counts.entry(sample.0).or_default() += 1;
                }
            }
        }
    }

    fn n_batches(config: PlanConfig) -> u32 {
        let n = Plan::new(config).unwrap().n_batches();
        for rank in 0..config.world {
            assert_eq!(Plan::new(PlanConfig { rank, ..config }).unwrap().n_batches(), n);
        }
        n
    }

    #[test]
    fn an_unshuffled_plan_counts_up() {
        let config = PlanConfig {
            shuffle: Shuffle::None,
            rank: 1,
            world: 2,
            ..config(11, 3, LastPolicy::Pad)
        };
        let plan = Plan::new(config).unwrap();
        let rows = |batch| -> Vec<_> {
            plan.samples(BatchIdx(batch)).map(|row| row.map(|sample| sample.0)).collect()
        };
        assert_eq!(plan.n_batches(), 2);
        assert_eq!(rows(0), [Some(3), Some(4), Some(5)]);
        assert_eq!(rows(1), [Some(9), Some(10), None]);
        assert_eq!(rows(2), [None; 3]);
        assert_eq!(rows(u32::MAX), [None; 3]);
        assert_eq!((plan.n_valid(BatchIdx(1)), plan.n_valid(BatchIdx(2))), (2, 0));
        assert_eq!((plan.position_after(1), plan.position_after(2)), (6, 11));
    }

    /// 11 samples, 4 ranks, batches of 2: 8 in the first step, and one each of the 3 left.
    #[test]
    fn an_even_end_gives_every_rank_as_many() {
        let last = config(11, 2, LastPolicy::Even);
        let rows = |rank, batch| -> Vec<_> {
            let config = PlanConfig { shuffle: Shuffle::None, rank, world: 4, ..last };
            let plan = Plan::new(config).unwrap();
            assert_eq!(plan.n_batches(), 2);
            let rows = plan.samples(BatchIdx(batch));
            rows.map(|row| row.map(|sample| sample.0)).collect()
        };
        assert_eq!(rows(3, 0), [Some(6), Some(7)]);
        let ends = [0, 1, 2, 3].map(|rank| rows(rank, 1));
        assert_eq!(ends, [8, 9, 10, 0].map(|id| [Some(id), None]));
        assert_eq!(rows(0, 2), [None; 2]);
    }

    #[test]
    fn a_shuffled_plan_is_the_permutation() {
        let plan = Plan::new(config(100, 10, LastPolicy::Drop)).unwrap();
        let permutation = Permutation::new(100, 3, EpochIdx(1));
        let order: Vec<_> = (0..10)
            .flat_map(|batch| plan.samples(BatchIdx(batch)))
            .map(|row| row.unwrap().0)
            .collect();
        assert!(order.iter().copied().eq((0..100).map(|i| permutation.at(i))));
    }

    #[test]
    fn what_is_no_plan_is_refused_with_a_remedy() {
        let ok = config(10, 4, LastPolicy::Drop);
        let table = [
            (PlanConfig { n_samples: 0, ..ok }, "has no samples; check data"),
            (PlanConfig { n_samples: u64::MAX, ..ok }, "more than 2^63"),
            (
                PlanConfig { batch_size: 0, ..ok },
                "batch_size is 0; it must be at least 1",
            ),
            (PlanConfig { batch_size: 11, ..ok }, "batch_size 11 is larger than the 10"),
            (PlanConfig { batch_size: 11, last: LastPolicy::Pad, ..ok }, "or repeat"),
            (
                PlanConfig { world: 3, ..ok },
                "need 12 samples for one step and the epoch has 10",
            ),
            (PlanConfig { rank: 1, ..ok }, "rank 1 with world_size 1"),
            (PlanConfig { world: 0, ..ok }, "rank 0 with world_size 0"),
            (PlanConfig { start: 11, ..ok }, "11 samples are said to be delivered"),
            (
                PlanConfig { n_samples: 1 << 40, batch_size: 1, ..ok },
                "makes 1099511627776 batches",
            ),
        ];
        for (config, part) in table {
            let line = Plan::new(config).unwrap_err().to_string();
            assert!(line.contains(part), "{line}");
        }
        let world = PlanConfig { world: 3, last: LastPolicy::Pad, ..ok };
        assert_eq!(Plan::new(world).unwrap().n_batches(), 1);
    }

    #[test]
    fn the_largest_plan_does_not_overflow() {
        let last = config(1 << 63, u32::MAX, LastPolicy::Wrap);
        let plan = Plan::new(PlanConfig { rank: u32::MAX - 1, world: u32::MAX, ..last })
            .unwrap();
        assert_eq!(plan.n_batches(), 1);
        assert!(plan.samples(BatchIdx(u32::MAX)).next().flatten().is_some());
        assert_eq!(plan.position_after(u32::MAX), 1 << 63);
    }

    fn policies() -> impl Strategy<Value = LastPolicy> {
        prop_oneof![
            Just(LastPolicy::Drop),
            Just(LastPolicy::Pad),
            Just(LastPolicy::Wrap),
            Just(LastPolicy::Even)
        ]
    }

    proptest! {
        #[test]
        fn the_ranks_share_the_data_set(
            n_samples in 1_u64..2_000,
            batch_size in 1_u32..40,
            world in 1_u32..=64,
            last in policies(),
            full: bool,
            seed: u64,
        ) {
            let shuffle = if full { Shuffle::Full } else { Shuffle::None };
            let config =
                PlanConfig { world, seed, shuffle, ..config(n_samples, batch_size, last) };
            let step = u64::from(batch_size) * u64::from(world);
            prop_assume!(u64::from(batch_size) <= n_samples);
            prop_assume!(last != LastPolicy::Drop || step <= n_samples);
            let n_steps = u64::from(n_batches(config));
            let mut counts = HashMap::new();
            count(config, n_batches(config), &mut counts);
            let total: u64 = counts.values().copied().map(u64::from).sum();
            match last {
                LastPolicy::Drop => {
                    prop_assert!(counts.values().all(|&n| n == 1));
                    prop_assert_eq!(total, n_samples / step * step);
                }
                LastPolicy::Pad => {
                    prop_assert!(counts.values().all(|&n| n == 1));
                    prop_assert_eq!(total, n_samples);
                }
                LastPolicy::Wrap => {
                    // Every sample, and none more than once more than another.
                    prop_assert_eq!(counts.len() as u64, n_samples);
                    prop_assert_eq!(total, n_steps * step);
                    let most = total.div_ceil(n_samples);
                    prop_assert!(counts.values().all(|&n| u64::from(n).abs_diff(most) <= 1));
                }
                LastPolicy::Even => {
                    // As many rows as DistributedSampler gives each rank.
                    prop_assert_eq!(counts.len() as u64, n_samples);
                    prop_assert_eq!(total, n_samples.div_ceil(world.into()) * u64::from(world));
                    let end = BatchIdx(n_batches(config) - 1);
                    let valid = |rank| Plan::new(PlanConfig { rank, ..config }).unwrap().n_valid(end);
                    prop_assert!((0..world).all(|rank| valid(rank) == valid(0)));
                }
            }
        }

        #[test]
        fn resuming_in_another_world_delivers_the_rest(
            n_samples in 1_u64..1_500,
            batch_size in 1_u32..20,
            worlds in (1_u32..=64, 1_u32..=64, 1_u32..=64),
            stops in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
            last in prop_oneof![Just(LastPolicy::Pad), Just(LastPolicy::Even)],
        ) {
            prop_assume!(u64::from(batch_size) <= n_samples);
            let mut config = config(n_samples, batch_size, last);
            let mut counts = HashMap::new();
            for (world, stop) in [(worlds.0, stops.0), (worlds.1, stops.1)] {
                config = PlanConfig { world, ..config };
                let n_done = u32::try_from(stop.index(n_batches(config) as usize + 1)).unwrap();
                count(config, n_done, &mut counts);
                config.start = Plan::new(config).unwrap().position_after(n_done);
            }
            config = PlanConfig { world: worlds.2, ..config };
            count(config, n_batches(config), &mut counts);
            prop_assert_eq!(counts.len() as u64, n_samples);
            prop_assert!(last == LastPolicy::Even || counts.values().all(|&n| n == 1));
        }
    }
}
