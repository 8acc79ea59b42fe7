//! Where a run stands, in a file: written whole or not at all, checked before it is used.
//!
//! What the state holds and when it may be used is `core::resume`'s; this module only knows
//! files, which batches the consumer got, and how an epoch continues behind them.

use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use bothends_core::ids::{BatchIdx, EpochIdx};
use bothends_core::order::{Order, OrderMark};
use bothends_core::recipe::Truncated;
use bothends_core::resume::{Resume, RunIdentity, UNCHECKED_NOTE, check_order};
use bothends_core::setting::Names;
use bothends_io::{check_replaceable, open_regular, replace};

use crate::config::drive::{CheckpointEvery, DriveConfig};
use crate::config::run::RankConfig;
use crate::error::{RuntimeError, one_line_with};
use crate::run::digests::Digests;
use crate::run::observer::Observer;
use crate::runtime::host::{EpochOptions, Runtime};

/// Batches that the consumer has received, as sorted, disjoint, half-open ranges.
#[derive(Debug, Clone, Default)]
pub(crate) struct Consumed {
    ranges: Vec<(u32, u32)>,
    n_batches: u32,
}

impl Consumed {
    /// Starts from what was delivered before the epoch was resumed; that does not count as
    /// this run's.
    pub(crate) fn new(options: &EpochOptions) -> Self {
        Self { ranges: options.done.clone(), n_batches: 0 }
    }

    /// Batches below `end` that are among them, those of earlier runs included.
    pub(crate) fn n_below(&self, end: u32) -> u32 {
        let part = |&(from, to): &(u32, u32)| to.min(end).saturating_sub(from);
        self.ranges.iter().map(part).sum()
    }

    /// Batches received in this run.
    pub(crate) fn n_batches(&self) -> u32 {
        self.n_batches
    }

    pub(crate) fn add(&mut self, batch: BatchIdx) {
        self.n_batches += 1;
        let i = self.ranges.partition_point(|range| range.1 < batch.0);
        match self.ranges.get_mut(i) {
            // It continues this range, and may close the gap to the next one.
            Some(range) if range.1 == batch.0 => {
                range.1 += 1;
                let end = range.1;
                if self.ranges.get(i + 1).is_some_and(|next| next.0 == end) {
                    let next = self.ranges.remove(i + 1);
                    self.ranges[i].1 = next.1;
                }
            }
            Some(range) if range.0 == batch.0 + 1 => range.0 = batch.0,
            _ => self.ranges.insert(i, (batch.0, batch.0 + 1)),
        }
    }
}

/// When the state is to be written next while an epoch runs.
#[derive(Debug)]
pub(crate) struct NextSave {
    every: Option<CheckpointEvery>,
    last: Instant,
    n_batches: u32,
}

impl NextSave {
    pub(crate) fn new(how: &DriveConfig) -> Self {
        let every = how.checkpoint_every.filter(|_| how.checkpoint.is_some());
        Self { every, last: Instant::now(), n_batches: 0 }
    }

    /// A batch was consumed; whether it is due now.
    pub(crate) fn is_due(&mut self) -> bool {
        self.n_batches += 1;
        let is_due = match self.every {
            None => false,
            Some(CheckpointEvery::Batches(n)) => self.n_batches >= n,
            Some(CheckpointEvery::Time(time)) => self.last.elapsed() >= time,
        };
        if is_due {
            (self.last, self.n_batches) = (Instant::now(), 0);
        }
        is_due
    }
}

/// Where the states of a run go. One that cannot be written leaves the one from before, and the run goes
/// on: what it has done is worth more.
#[derive(Debug)]
pub(crate) struct Saves<'a> {
    path: Option<&'a Path>,
    /// Why the last state could not be written.
    pub(crate) failed: Option<RuntimeError>,
    /// Whether that was said; it is said once.
    is_told: bool,
    /// What it calls settings.
    names: Names,
}

impl<'a> Saves<'a> {
    pub(crate) fn to(path: Option<&'a Path>, names: Names) -> Self {
        Self { path, failed: None, is_told: false, names }
    }

    /// Writes the state, or keeps the reason why it could not.
    pub(crate) fn save(&mut self, state: &Resume) {
        self.failed = self.path.and_then(|path| save(path, state).err());
        self.is_told &= self.failed.is_some();
    }

    /// Says that the last state could not be written, in a run that goes on.
    pub(crate) fn tell(&mut self, observer: &mut dyn Observer) {
        if let Some(error) = self.failed.as_ref().filter(|_| !self.is_told) {
            let line = one_line_with(error, self.names);
            observer.note(&format!("{line}; the run continues"));
            self.is_told = true;
        }
    }
}

/// Where an epoch begins or goes on.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) epoch: EpochIdx,
    pub(crate) position: u64,
    pub(crate) done: Vec<(u32, u32)>,
    /// The supplied order that a loaded state is in the middle of.
    pub(crate) order: Option<OrderMark>,
}

impl Place {
    /// The beginning of an epoch.
    pub(crate) fn of(epoch: EpochIdx) -> Self {
        Self { epoch, position: 0, done: Vec::new(), order: None }
    }

    pub(crate) fn is_in_mid_epoch(&self) -> bool {
        self.position > 0 || !self.done.is_empty()
    }
}

/// What identifies this run, as this rank.
fn identity(runtime: &Runtime, rank: RankConfig) -> Result<RunIdentity, RuntimeError> {
    let config = &runtime.config;
    let options = EpochOptions { rank, ..runtime.options(EpochIdx(0)) };
    let plan = runtime.plan(&options)?;
    Ok(RunIdentity {
        seed: config.seed,
        // A run that a truncated image has ended may continue, with such images filled in.
        recipe_hash: config.recipe.clone().with_truncated(Truncated::Refuse).hash(),
        manifest_hash: runtime.source.table_hash(),
        n_samples: runtime.source.n_in_epoch(),
        batch_size: config.batch_size,
        shuffle: config.shuffle,
        last: rank.last,
        world: rank.world,
        strategy: config.strategy.name().to_owned(),
        plan: Some(plan.fingerprint()),
    })
}

/// Where an epoch's consumers are, each of which has taken as many batches as the others.
pub(crate) fn state(
    runtime: &Runtime,
    options: &EpochOptions,
    consumed: &Consumed,
    digests: &Digests,
) -> Result<Resume, RuntimeError> {
    let (position, done) = if options.strategy.keeps_order() {
        (runtime.plan(options)?.position_after(consumed.n_batches()), Vec::new())
    } else {
        (options.start, consumed.ranges.clone())
    };
    let order = options.order.as_deref().map(Order::mark);
    let place = Place { epoch: options.epoch, position, done, order };
    at((runtime, options.rank), place, digests)
}

/// The state of a run that is to go on at `place`, as this rank: the one that an epoch was begun as.
pub(crate) fn at(
    (runtime, rank): (&Runtime, RankConfig),
    place: Place,
    digests: &Digests,
) -> Result<Resume, RuntimeError> {
    let Place { epoch, position, done, order } = place;
    Ok(Resume {
        run: identity(runtime, rank)?,
        epoch,
        position,
        done,
        order,
        n_delivered: digests.n_samples,
        stream: digests.stream.clone(),
        content: digests.content,
        digest_of: digests.of,
    })
}

/// Writes a state next to its place and renames it, so that a reader sees the old state or
/// the new one.
pub(crate) fn save(path: &Path, resume: &Resume) -> Result<(), RuntimeError> {
    replace(path, |mut file| {
        file.write_all(resume.to_json().as_bytes())?;
        file.sync_all()
    })
    .map_err(|e| RuntimeError::Checkpoint { path: path.to_owned(), source: e })
}

/// Makes sure that a state can be written at `path`, before there is one to lose.
pub(crate) fn probe(path: &Path) -> Result<(), RuntimeError> {
    check_replaceable(path)
        .map_err(|source| RuntimeError::Checkpoint { path: path.to_owned(), source })
}

/// A state that this run may go on from.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) place: Place,
    /// The digests until there.
    pub(crate) digests: Digests,
    /// What the user should know about it.
    pub(crate) note: Option<&'static str>,
}

/// Reads a state and makes sure that it belongs to this run.
pub(crate) fn load(path: &Path, runtime: &Runtime) -> Result<Loaded, RuntimeError> {
    // A pipe would be waited for without end.
    let read = open_regular(path).and_then(std::io::read_to_string);
    let text = read.map_err(|e| RuntimeError::CannotResume {
        why: format!("the state {} cannot be read ({e})", path.display()),
    })?;
    resumed(&text, runtime)
}

/// A state's meaning for this run.
pub(crate) fn resumed(json: &str, runtime: &Runtime) -> Result<Loaded, RuntimeError> {
    let resume = Resume::from_json(json)?;
    resume.check(&identity(runtime, runtime.config.rank)?)?;
    let note = (!resume.is_checked()).then_some(UNCHECKED_NOTE);
    let Resume { epoch, position, done, order, .. } = resume;
    let digests = Digests {
        stream: resume.stream,
        content: resume.content,
        n_samples: resume.n_delivered,
        ..Digests::of(resume.digest_of)
    };
    let place = Place { epoch, position, done, order };
    Ok(Loaded { place, digests, note })
}

/// The epoch of these options, as it begins or goes on at `place`.
///
/// # Errors
/// [`RuntimeError::Resume`] in the middle of an epoch of a different order; [`RuntimeError::CannotResume`] where
/// the plan does not have what was delivered, or its consumers cannot share what is left.
pub(crate) fn epoch_at(
    runtime: &Runtime,
    place: &Place,
    options: EpochOptions,
) -> Result<EpochOptions, RuntimeError> {
    if place.is_in_mid_epoch() {
        check_order(place.order, options.order.as_deref().map(Order::mark))?;
    }
    let (start, done) = (place.position, place.done.clone());
    let options = EpochOptions { epoch: place.epoch, start, done, ..options };
    let n_batches = runtime.plan(&options)?.n_batches();
    check_done(&options.done, n_batches)?;
    let n_left = n_batches - Consumed::new(&options).n_below(n_batches);
    if !n_left.is_multiple_of(options.consumers) {
        return Err(cannot_deal(n_left, options.consumers));
    }
    Ok(options)
}

/// Whether the batches that are said to be delivered are of a plan of `n_batches`.
fn check_done(done: &[(u32, u32)], n_batches: u32) -> Result<(), RuntimeError> {
    match done.last() {
        Some(&(_, end)) if end > n_batches => Err(RuntimeError::CannotResume {
            why: format!(
                "the state says that batch {} was delivered and what is planned has \
                 {n_batches}; use an older checkpoint, and as many consumers as it had",
                end - 1
            ),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Without order, what is left need not be what a different number of consumers can share.
fn cannot_deal(n_left: u32, consumers: u32) -> RuntimeError {
    let why = format!(
        "{n_left} batches are left, which {consumers} consumers cannot share evenly; continue \
        with as many consumers as the state was saved with"
    );
    RuntimeError::CannotResume { why }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bothends_core::recipe::Recipe;

    use super::*;
    use crate::config::run::{MemoryBudget, RunConfig};
    use crate::read::supplied::{Records, Supplied, Unread};
    use crate::threads::process::thread_cpu_ns;

    fn ranges(batches: &[u32]) -> Vec<(u32, u32)> {
        let mut consumed = Consumed::default();
        for batch in batches {
            consumed.add(BatchIdx(*batch));
        }
        consumed.ranges
    }

    #[test]
    fn both_ends_become_two_ranges_and_one_when_they_meet() {
        assert_eq!(ranges(&[0, 9, 1, 8, 2]), [(0, 3), (8, 10)]);
        assert_eq!(ranges(&[0, 9, 1, 8, 2, 7, 4, 5, 6, 3]), [(0, 10)]);
        assert_eq!(ranges(&[5, 3, 1]), [(1, 2), (3, 4), (5, 6)]);
    }

    /// A state is made at every epoch's end, and by workers of Python's for every batch: it must not
    /// pass over the table, which may have a hundred million samples.
    #[test]
    fn a_state_does_not_pass_over_the_table() {
        let runtime = opened(400_000);
        let cpu_ns = |work: &mut dyn FnMut()| {
            let before = thread_cpu_ns().expect("Linux says");
            work();
            thread_cpu_ns().expect("Linux says") - before
        };
        let mut hash = 0;
        let pass_ns = cpu_ns(&mut || hash = runtime.source.table.hash());
        let state = || {
            let place = Place::of(EpochIdx(1));
            at((&runtime, runtime.config.rank), place, &Digests::default()).unwrap()
        };
        assert_eq!(state().run.manifest_hash, hash);
        let states_ns = cpu_ns(&mut || (0..20).for_each(|_| drop(state())));
        assert!(states_ns < 10 * pass_ns, "20 states: {states_ns} ns, a pass: {pass_ns}");
    }

    /// `run` and a loader go on by the same rules.
    #[test]
    fn an_epoch_goes_on_where_its_consumers_are() {
        let runtime = opened(40);
        let at = |done: &[(u32, u32)], order: Option<OrderMark>, consumers: u32| {
            let place = Place { done: done.to_vec(), order, ..Place::of(EpochIdx(7)) };
            let options = EpochOptions { consumers, ..runtime.options(EpochIdx(0)) };
            epoch_at(&runtime, &place, options)
        };
        let first = at(&[(0, 3)], None, 1).unwrap();
        assert_eq!(
            (first.epoch, first.start, first.done),
            (EpochIdx(7), 0, vec![(0, 3)])
        );
        let mark = Some(OrderMark { digest: 1, rank: 0, world: 1, n_batches: 40 });
        assert!(matches!(at(&[(0, 3)], mark, 1), Err(RuntimeError::Resume(_))));
        assert!(at(&[], mark, 1).is_ok(), "nothing of that order was delivered");
        let refused = |done: &[(u32, u32)], consumers| {
            at(done, None, consumers).map(drop).unwrap_err().to_string()
        };
        let line = refused(&[(0, 41)], 1);
        assert!(
            line.contains("batch 40 was delivered and what is planned has 40"),
            "{line}"
        );
        let line = refused(&[(0, 3)], 2);
        assert!(line.contains("37 batches are left, which 2 consumers cannot"), "{line}");
    }

    /// Over so many samples, one in a batch.
    fn opened(n_samples: u32) -> Runtime {
        let labels: Vec<u32> = (0..n_samples).map(|n| n % 1000).collect();
        let records = Supplied::records("none", &labels, Arc::new(NoRecords)).unwrap();
        Runtime::open(RunConfig {
            supplied: Some(records),
            memory: MemoryBudget::Slots(0),
            batch_size: 1,
            ..RunConfig::new("none".into(), Recipe::builtin("imagenet-eval").unwrap())
        })
        .unwrap()
    }

    /// Of samples whose bytes nobody asks for.
    #[derive(Debug)]
    struct NoRecords;

    impl Records for NoRecords {
        fn read(&self, _: u64) -> Result<Vec<u8>, Unread> {
            Err(Unread::new("nobody asks for it", None))
        }
    }

    #[test]
    fn every_order_of_eight_batches_ends_in_one_range() {
        let mut state = 1_u64;
        for _ in 0..500 {
            let mut order: Vec<u32> = (0..8).collect();
            for i in (1..order.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let j = usize::try_from(state >> 33).unwrap() % (i + 1);
                order.swap(i, j);
            }
            assert_eq!(ranges(&order), [(0, 8)], "{order:?}");
        }
    }
}
