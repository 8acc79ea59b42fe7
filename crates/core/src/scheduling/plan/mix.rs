//! A mix: the samples of an epoch that several data sets ("sources") give in proportion to their
//! weights. A pure function of its configuration, with random access and no table.
//!
//! `shares.rs` says how many samples of each batch a source gives. They are mixed within the batch, and
//! which records they are is drawn for each source by itself: it passes through its records in an order
//! of their own for each pass, or draws them with replacement. A record that comes again is a sample with an
//! id, and so with random numbers, of its own: ids that are `n_records` apart are the same record. The
//! mix does not know ranks or where an epoch is resumed; `plan.rs` does.

use std::fmt::Write as _;

use super::shares::{Shares, whole_weights};
use crate::ids::{EpochIdx, SampleId};
use crate::permutation::Permutation;
use crate::philox::{MIX_DOMAIN, philox4x32_10, words};
use crate::setting::{Names, Setting};

/// Most sample ids there are.
const MAX_ID: u128 = 1 << 63;

/// Most sources of a mix.
pub const MOST_SOURCES: usize = 1024;

/// One of the data sets of a mix.
#[derive(Debug, Clone, Copy)]
pub struct MixSource<'a> {
    /// What messages call it.
    pub name: &'a str,
    /// How many records it has.
    pub n_records: u64,
    /// Its part of every batch, in proportion to the others'.
    pub weight: f64,
}

/// When an epoch of a mix ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MixStop {
    /// Before the first source has given all its records: no record comes twice, and of every
    /// other source some are left out.
    First,
    /// When every source has given all its records: those of the others have begun again.
    All,
    /// After so many samples. Sources go on in the next epoch where they were, so that each passes
    /// through all its records, however long an epoch is.
    Samples(u64),
}

/// How a source chooses its next record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Draw {
    /// As they lie in the data set.
    InOrder,
    /// By a permutation of its own for each pass.
    Shuffled,
    /// Each at random, whatever came before.
    WithReplacement,
}

/// What a mix depends on besides its sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MixConfig {
    /// Samples in a batch of one rank.
    pub batch_size: u32,
    /// When the epoch ends.
    pub stop: MixStop,
    /// What the epoch is multiplied by: 1 or more.
    pub repeat: u32,
    /// How records are chosen.
    pub draw: Draw,
    /// The run's seed.
    pub seed: u64,
    /// The epoch.
    pub epoch: EpochIdx,
}

/// Data sets that cannot be mixed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.with_names(Setting::key))]
#[non_exhaustive]
pub enum MixError {
    /// None, or too many.
    Sources {
        /// As given.
        n: usize,
    },
    /// A source without records.
    Empty {
        /// The source.
        name: String,
    },
    /// A weight that is none.
    Weight {
        /// The source.
        name: String,
    },
    /// Weights whose ratio has too many digits.
    TooFarApart,
    /// A batch of nothing.
    BatchSizeZero,
    /// A source that would be exhausted before the first batch is full.
    TooSmall {
        /// The source.
        name: String,
        /// What it has, repetitions included.
        n_records: u64,
        /// What a batch takes of it.
        needed: u64,
    },
    /// More samples than ids can tell apart.
    TooManySamples,
    /// An epoch of nothing.
    NoSamples,
}

impl MixError {
    /// The line, with the names that the reader knows settings by.
    #[must_use]
    pub fn with_names(&self, name: Names) -> String {
        match self {
            Self::Sources { n } => {
                format!("a mix of {n} data sets; it has 1 to {MOST_SOURCES}")
            }
            Self::Empty { name } => {
                format!("data set `{name}` of the mix has no samples; leave it out")
            }
            Self::Weight { name } => format!(
                "the weight of `{name}` must be a number above 0 with at most 18 decimals; \
                 leave out a data set that is to give nothing"
            ),
            Self::TooFarApart => {
                "the weights have too many digits together; round them, as 0.3333"
                    .to_owned()
            }
            Self::BatchSizeZero => {
                format!("{} is 0; it must be at least 1", name(Setting::BatchSize))
            }
            Self::TooSmall { name: source, n_records, needed } => format!(
                "data set `{source}` has {n_records} samples and one batch takes {needed} of \
                 them, so the epoch would end before it begins; stop the mix at `all` or \
                 after a number of samples, or use a smaller {}",
                name(Setting::BatchSize)
            ),
            Self::TooManySamples => format!(
                "the epoch of the mix has more samples than 2^63 ids can tell apart; use \
                 weights that are closer together, or a smaller {}",
                name(Setting::Repeat)
            ),
            Self::NoSamples => {
                "the mix stops after 0 samples; give at least 1".to_owned()
            }
        }
    }
}

/// The samples of an epoch of a mix, by position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix {
    config: MixConfig,
    shares: Shares,
    parts: Vec<Part>,
    /// All sources' together.
    n_records: u64,
    /// Of the epoch.
    n_samples: u64,
    /// Batches of all epochs before this one, where sources go on.
    first_batch: u128,
    /// What orders are keyed by besides the seed; the same for all epochs where sources go on.
    epoch: EpochIdx,
}

/// A source, after the check.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    /// Its first record among all sources'.
    first: u64,
    n_records: u64,
    /// Records that it gave before this epoch.
    before: u128,
}

/// What is drawn, as the low bits of the first counter word.
#[derive(Debug, Clone, Copy)]
enum Drawn {
    /// A source's order of one pass.
    Pass,
    /// The order of a batch's rows.
    Rows,
    /// A record with replacement.
    Record,
}

impl Mix {
    /// Checks the sources and counts the samples of the epoch.
    ///
    /// # Errors
    /// [`MixError`]: each variant names the source or setting, and the remedy.
    pub fn new(config: MixConfig, sources: &[MixSource<'_>]) -> Result<Self, MixError> {
        if !(1..=MOST_SOURCES).contains(&sources.len()) {
            return Err(MixError::Sources { n: sources.len() });
        }
        if config.batch_size == 0 {
            return Err(MixError::BatchSizeZero);
        }
        let name = |i: usize| sources[i].name.to_owned();
        if let Some(i) = sources.iter().position(|source| source.n_records == 0) {
            return Err(MixError::Empty { name: name(i) });
        }
        let weights: Vec<f64> = sources.iter().map(|source| source.weight).collect();
        let weights =
            whole_weights(&weights).map_err(|i| MixError::Weight { name: name(i) })?;
        let shares =
            Shares::new(&weights, config.batch_size).ok_or(MixError::TooFarApart)?;
        let mut n_records = 0_u64;
        let mut parts = Vec::with_capacity(sources.len());
        for source in sources {
            let (first, n) = (n_records, source.n_records);
            parts.push(Part { first, n_records: n, before: 0 });
            n_records = first.checked_add(n).ok_or(MixError::TooManySamples)?;
        }
        let (first_batch, epoch) = (0, config.epoch);
        let mut mix =
            Self { config, shares, parts, n_records, n_samples: 0, first_batch, epoch };
        mix.n_samples = mix.count(sources)?;
        mix.go_on();
        mix.check_ids()?;
        Ok(mix)
    }

    /// Samples of the epoch.
    #[must_use]
    pub fn n_samples(&self) -> u64 {
        self.n_samples
    }

    /// Records of all sources. Ids so far apart are the same record.
    #[must_use]
    pub fn n_records(&self) -> u64 {
        self.n_records
    }

    /// Batches over which every source's number is exactly its part; in each one it is that,
    /// rounded up or down.
    #[must_use]
    pub fn period(&self) -> u128 {
        self.shares.period()
    }

    /// How many samples of one batch of the epoch, counted over all ranks, a source gives.
    #[must_use]
    pub fn share(&self, source: usize, batch: u64) -> u32 {
        self.shares.of_batch(source, self.first_batch + u128::from(batch))
    }

    /// The batch that begins at `batch` times the batch size.
    pub(super) fn batch(&self, batch: u64) -> MixBatch<'_> {
        let number = self.first_batch + u128::from(batch);
        let is_mixed = self.config.draw != Draw::InOrder;
        let order = is_mixed.then(|| {
            let key = self.key([Drawn::Rows as u32, 0], number);
            Permutation::new(self.config.batch_size.into(), key, self.epoch)
        });
        let mut end = 0;
        let runs = (0..self.parts.len()).map(|source| {
            end += self.shares.of_batch(source, number);
            (end, self.shares.before(source, number))
        });
        let runs = runs.collect();
        MixBatch { mix: self, batch, order, runs }
    }

    /// What tells this mix from others: of all ranks and epochs.
    pub(super) fn text(&self) -> String {
        let MixConfig { batch_size, stop, repeat, draw, seed, .. } = self.config;
        let mut text = format!("mix {batch_size} {stop:?} {repeat} {draw:?} {seed}");
        for (part, end) in self.parts.iter().zip(self.shares.ends()) {
            // Cannot fail for a text.
            let _ = write!(text, " {}/{end}", part.n_records);
        }
        text
    }

    /// The epoch's samples.
    fn count(&self, sources: &[MixSource<'_>]) -> Result<u64, MixError> {
        let repeat = u64::from(self.config.repeat.max(1));
        if let MixStop::Samples(n) = self.config.stop {
            let n = n.checked_mul(repeat).ok_or(MixError::TooManySamples)?;
            return if n == 0 { Err(MixError::NoSamples) } else { Ok(n) };
        }
        let room = |part: &Part| u128::from(part.n_records) * u128::from(repeat);
        // Batches after which a source has given more than it has, or all it has.
        let is_over = |batches: u64| {
            let given = |source| self.shares.before(source, batches.into());
            let mut parts = self.parts.iter().enumerate();
            match self.config.stop {
                MixStop::All => parts.all(|(i, part)| given(i) >= room(part)),
                MixStop::First | MixStop::Samples(_) => {
                    parts.any(|(i, part)| given(i) > room(part))
                }
            }
        };
        let most = (1_u64 << 63) / u64::from(self.config.batch_size);
        if !is_over(most) {
            return Err(MixError::TooManySamples);
        }
        let first = partition_point(most, |batches| !is_over(batches));
        let n_batches = match self.config.stop {
            MixStop::All => first,
            MixStop::First | MixStop::Samples(_) => first - 1,
        };
        if n_batches == 0 {
            let short =
                |(i, part): &(usize, &Part)| self.shares.before(*i, 1) > room(part);
            let found = self.parts.iter().enumerate().find(short);
            let (i, part) = found.unwrap_or((0, &self.parts[0]));
            return Err(MixError::TooSmall {
                name: sources[i].name.to_owned(),
                n_records: part.n_records.saturating_mul(repeat),
                needed: self.shares.of_batch(i, 0).into(),
            });
        }
        Ok(n_batches * u64::from(self.config.batch_size))
    }

    /// Where an epoch has a length of its own, sources go on where they were.
    fn go_on(&mut self) {
        let MixConfig { batch_size, stop, epoch, .. } = self.config;
        if !matches!(stop, MixStop::Samples(_)) {
            return;
        }
        let batches = self.n_samples.div_ceil(u64::from(batch_size));
        self.first_batch = u128::from(batches) * u128::from(epoch.0);
        self.epoch = EpochIdx(0);
        for (source, part) in self.parts.iter_mut().enumerate() {
            part.before = self.shares.before(source, self.first_batch);
        }
    }

    /// Whether every id of the epoch is one.
    fn check_ids(&self) -> Result<(), MixError> {
        let batches = self.n_samples.div_ceil(u64::from(self.config.batch_size));
        let last = self.first_batch + u128::from(batches);
        let fits = |(source, part): (usize, &Part)| {
            let end = self.shares.before(source, last);
            let visits = match self.config.draw {
                Draw::WithReplacement => end - part.before,
                Draw::InOrder | Draw::Shuffled => {
                    let n = u128::from(part.n_records);
                    end.div_ceil(n) - part.before / n
                }
            };
            // What wraps round at the end stays within these.
            visits * u128::from(self.n_records) <= MAX_ID
        };
        let is_sound = u128::from(self.n_samples) <= MAX_ID
            && self.parts.iter().enumerate().all(fits);
        if is_sound { Ok(()) } else { Err(MixError::TooManySamples) }
    }

    /// The sample that is the `nth` which a source gives, counted from its very first.
    fn sample(&self, source: usize, nth: u128) -> SampleId {
        let part = &self.parts[source];
        let n = u128::from(part.n_records);
        let (pass, place) = (nth / n, low(nth % n));
        let (visit, record) = match self.config.draw {
            Draw::InOrder => (pass - part.before / n, place),
            Draw::Shuffled => {
                let key = self.key([Drawn::Pass as u32, number(source)], pass);
                let order = Permutation::new(part.n_records, key, self.epoch);
                (pass - part.before / n, order.at(place))
            }
            Draw::WithReplacement => {
                let drawn = self.key([Drawn::Record as u32, number(source)], nth);
                let key = words(drawn);
                let [a, b, ..] = philox4x32_10([MIX_DOMAIN, self.epoch.0, 0, 0], key);
                let draw = u128::from(a) << 32 | u128::from(b);
                (nth - part.before, low((draw * n) >> 64))
            }
        };
        let id = visit * u128::from(self.n_records) + u128::from(part.first + record);
        SampleId(low(id))
    }

    /// A key for what is drawn the `nth` time.
    fn key(&self, [drawn, source]: [u32; 2], nth: u128) -> u64 {
        let [low_word, high_word] = words(low(nth));
        let counter = [MIX_DOMAIN | drawn, source, low_word, high_word];
        let [a, b, ..] = philox4x32_10(counter, words(self.config.seed));
        u64::from(a) << 32 | u64::from(b)
    }
}

/// One batch of a mix, of which rows are asked for in turn.
#[derive(Debug)]
pub(super) struct MixBatch<'a> {
    mix: &'a Mix,
    /// Its number in the epoch.
    pub(super) batch: u64,
    /// The order of its rows, if they are mixed.
    order: Option<Permutation>,
    /// For each source: where its rows end, and what it gave before.
    runs: Vec<(u32, u128)>,
}

impl MixBatch<'_> {
    /// The sample of a row, below the batch size.
    pub(super) fn sample(&self, row: u32) -> SampleId {
        let place = self.order.as_ref().map_or(row.into(), |order| order.at(row.into()));
        let source = self.runs.partition_point(|(end, _)| u64::from(*end) <= place);
        let source = source.min(self.runs.len() - 1);
        let start = source.checked_sub(1).map_or(0, |before| self.runs[before].0);
        let nth = self.runs[source].1 + u128::from(place.saturating_sub(start.into()));
        self.mix.sample(source, nth)
    }
}

/// The first number up to `most` for which `is_before` is false; it is for `most`.
fn partition_point(most: u64, is_before: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low + (high - low) / 2;
        match is_before(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

#[expect(clippy::cast_possible_truncation, reason = "counters take the low 64 bits")]
fn low(value: u128) -> u64 {
    value as u64
}

/// A source's number, of [`MOST_SOURCES`].
fn number(source: usize) -> u32 {
    u32::try_from(source).unwrap_or(u32::MAX)
}
