//! The producer interface from outside: a toy device, written here, keeps the contract and takes part
//! in an epoch whose stream is the host's.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::time::Duration;

use bothends_agent::conformance::Exercise;
use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_core::recipe::Recipe;
use bothends_runtime::{
    BadPolicy, EpochResult, Loader, RunConfig, Runtime, Supplied, SuppliedFile, drive,
};
use bothends_slots::conformance::produce;
use bothends_slots::{
    Completion, Damaged, HostSlot, Job, JobId, Lost, Outcome, Polled, Producer, Rejected,
    Rejection, Slot,
};
use bothends_tests::{Silent, one_epoch};

/// Makes a sample, unless it cannot be made.
type Maker = Arc<dyn Fn(EpochIdx, SampleId) -> Option<Vec<u8>> + Send + Sync>;

// The toy, a whole producer:
/// A device that works when it is asked for an answer, the youngest job first.
struct Toy {
    make: Maker,
    jobs: Vec<(Job, HostSlot)>,
}

impl Toy {
    fn new(make: Maker) -> Self {
        Self { make, jobs: Vec::new() }
    }
}

const TOY_JOBS: usize = 2;

impl Debug for Toy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Toy with {} jobs", self.jobs.len())
    }
}

impl Producer for Toy {
    fn submit(&mut self, job: Job, slot: Slot) -> Result<(), Box<Rejected>> {
        if self.jobs.len() == TOY_JOBS {
            return Err(Box::new(Rejected { job, slot, why: Rejection::Full }));
        }
        self.jobs.push((job, slot.host().unwrap()));
        Ok(())
    }

    fn poll(&mut self, timeout: Duration) -> Result<Polled, Lost> {
        let Some((job, mut slot)) = self.jobs.pop() else {
            std::thread::sleep(timeout);
            return Ok(Polled::Nothing);
        };
        let (mut bad, damaged) = (Vec::new(), Vec::new());
        for (row, sample) in job.samples.iter().enumerate() {
            match (self.make)(job.epoch, *sample) {
                Some(bytes) => {
                    slot[row * bytes.len()..][..bytes.len()].copy_from_slice(&bytes);
                }
                None => bad.push(u32::try_from(row).unwrap()),
            }
        }
        let (job, slot) = (job.id, slot.into_slot());
        let (outcome, work_ns) = (Outcome::Made { bad, damaged }, None);
        let made = Completion { job, slot, outcome, work_ns, lateness_ns: Some(0) };
        Ok(Polled::Completion(made))
    }

    fn revoke(&mut self, _: JobId) -> Result<(), Lost> {
        Ok(())
    }

    fn abandon(&mut self) -> Result<(), Lost> {
        self.jobs.clear();
        Ok(())
    }
}
// That was the toy.

/// Changes what is said of a job.
type Change = Box<dyn Fn(&Job, &mut Outcome) + Send>;

/// A toy that says something else of its batches.
struct Telling {
    toy: Toy,
    change: Change,
    jobs: Vec<Job>,
}

impl Telling {
    fn new(toy: Toy, change: impl Fn(&Job, &mut Outcome) + Send + 'static) -> Self {
        Self { toy, change: Box::new(change), jobs: Vec::new() }
    }

    /// What cannot be, of every batch.
    fn lying(toy: Toy, outcome: Outcome) -> Self {
        Self::new(toy, move |_, said| *said = outcome.clone())
    }

    /// That these of the exercise's records are damaged.
    fn damaged(toy: Toy, records: &'static [u64]) -> Self {
        Self::new(toy, move |job, said| {
            let Outcome::Made { damaged, .. } = said else { return };
            let rows = (0..).zip(&job.samples);
            *damaged = rows
                .filter(|(_, sample)| records.contains(&(sample.0 % N_RECORDS)))
                .map(|(row, _)| Damaged { row, what: None })
                .collect();
        })
    }
}

/// Images of the exercise.
const N_RECORDS: u64 = 5;

impl Debug for Telling {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.toy.fmt(f)
    }
}

impl Producer for Telling {
    fn submit(&mut self, job: Job, slot: Slot) -> Result<(), Box<Rejected>> {
        self.toy.submit(job.clone(), slot)?;
        self.jobs.push(job);
        Ok(())
    }

    fn poll(&mut self, timeout: Duration) -> Result<Polled, Lost> {
        let mut polled = self.toy.poll(timeout)?;
        if let Polled::Completion(completion) = &mut polled {
            let nth = self.jobs.iter().position(|job| job.id == completion.job);
            let job = self.jobs.swap_remove(nth.unwrap());
            (self.change)(&job, &mut completion.outcome);
        }
        Ok(polled)
    }

    fn revoke(&mut self, job: JobId) -> Result<(), Lost> {
        self.toy.revoke(job)
    }

    fn abandon(&mut self) -> Result<(), Lost> {
        self.jobs.clear();
        self.toy.abandon()
    }
}

fn maker(exercise: &Arc<Exercise>) -> Maker {
    let exercise = Arc::clone(exercise);
    Arc::new(move |epoch, sample| {
        let (id, batch) = (JobId(0), BatchIdx(0));
        let (bytes, bad) = exercise.expected(&Job {
            id,
            epoch,
            batch,
            samples: vec![sample],
            need_ns: 0,
        });
        bad.is_empty().then_some(bytes)
    })
}

/// Whoever writes a producer has little to write.
#[test]
fn a_toy_has_at_most_60_lines() {
    let text = include_str!("producer.rs");
    let (_, toy) = text.split_once("\n// The toy, a whole producer:\n").unwrap();
    let (toy, _) = toy.split_once("\n// That was the toy.\n").unwrap();
    let n_lines = toy.lines().count();
    assert!((1..=60).contains(&n_lines), "{n_lines} lines");
}

#[test]
fn a_toy_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let make = maker(&Arc::new(Exercise::prepare(dir.path()).unwrap()));
    let sample_bytes = make(EpochIdx(0), SampleId(0)).unwrap().len();
    produce::all(&mut || {
        let expected = Arc::clone(&make);
        produce::Subject {
            producer: Box::new(Telling::damaged(Toy::new(Arc::clone(&make)), &[1, 2])),
            capacity: u32::try_from(TOY_JOBS).unwrap(),
            sample_bytes,
            expected: Box::new(move |epoch, sample| expected(epoch, sample)),
            samples: (0..5).map(SampleId).collect(),
            damaged: vec![SampleId(1), SampleId(2)],
        }
    });
}

/// An epoch over the exercise's images, many times each, with a toy or without.
fn epoch(
    exercise: &Exercise,
    strategy: &str,
    toy: Option<Box<dyn Producer>>,
) -> EpochResult {
    let mut loader = loader(exercise, strategy, toy);
    let result = drive(&mut loader, &one_epoch(), &mut Silent).unwrap();
    result.epochs.into_iter().next().unwrap()
}

fn loader(exercise: &Exercise, strategy: &str, toy: Option<Box<dyn Producer>>) -> Loader {
    let file = |path| SuppliedFile { path, extent: None, label: 0 };
    let supplied = Supplied::files(exercise.root(), exercise.paths().map(file)).unwrap();
    let recipe = Recipe::builtin("imagenet-train").unwrap();
    let config = RunConfig {
        seed: exercise.session().seed,
        batch_size: 4,
        repeat: 40,
        workers: 1,
        strategy: strategy.parse().unwrap(),
        on_bad: BadPolicy::Zero,
        supplied: Some(supplied),
        ..RunConfig::new(exercise.root().to_owned(), recipe)
    };
    let mut runtime = Runtime::open(config).unwrap();
    if let Some(toy) = toy {
        let n_jobs = u32::try_from(TOY_JOBS).unwrap();
        runtime.attach_producer("a toy", n_jobs, toy).unwrap();
    }
    Loader::over(runtime)
}

/// One that names rows which there are not is left, and the host makes the stream alone.
#[test]
fn a_toy_that_lies_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let exercise = Arc::new(Exercise::prepare(dir.path()).unwrap());
    let alone = epoch(&exercise, "cpu", None);
    let odd = |row| Damaged { row, what: None };
    for (bad, damaged, part) in [
        (vec![1000], Vec::new(), "bad rows that do not exist"),
        (Vec::new(), vec![odd(1000)], "damaged rows that it has not made"),
        (Vec::new(), vec![odd(2), odd(1)], "damaged rows that it has not made"),
        (vec![1], vec![odd(1)], "damaged rows that it has not made"),
    ] {
        let toy = Toy::new(maker(&exercise));
        let lying = Telling::lying(toy, Outcome::Made { bad, damaged });
        let both = epoch(&exercise, "ordered", Some(Box::new(lying)));
        let why = both.back[0].failure.clone().unwrap();
        assert!(why.contains(part), "{why}");
        assert_eq!(both.stream_digest, alone.stream_digest);
        assert_eq!(both.damaged, bothends_runtime::Damaged::default());
    }
}

#[test]
fn a_toy_takes_part_in_an_epoch_under_ordered() {
    let dir = tempfile::tempdir().unwrap();
    let exercise = Arc::new(Exercise::prepare(dir.path()).unwrap());
    let alone = epoch(&exercise, "cpu", None);
    let toy = Toy::new(maker(&exercise));
    let both = epoch(&exercise, "ordered", Some(Box::new(toy)));
    assert!(both.back[0].batches > 0, "the toy made nothing");
    assert_eq!(both.back[0].failure, None);
    assert_eq!((alone.samples, alone.batches), (200, 50));
    assert_eq!(both.stream_digest, alone.stream_digest);
}

/// However often it is delivered and in whichever epoch, a damaged sample counts once, is named by
/// its file, and is told of once; it is no bad sample.
#[test]
fn damaged_samples_count_once_and_are_told_of_once() {
    let dir = tempfile::tempdir().unwrap();
    let exercise = Arc::new(Exercise::prepare(dir.path()).unwrap());
    let toy = Telling::damaged(Toy::new(maker(&exercise)), &[1, 2]);
    let mut loader = loader(&exercise, "csd", Some(Box::new(toy)));
    let mut told = Vec::new();
    for _ in 0..2 {
        for batch in loader.begin(1).unwrap().batches(0) {
            assert_eq!(batch.unwrap().n_valid(), 4);
        }
        loader.epoch();
        let notes = loader.notes();
        told.extend(std::iter::from_fn(|| notes.next()));
    }
    let stats = loader.stats();
    let named: Vec<_> = stats.damaged.named.iter().map(|it| it.file.clone()).collect();
    let paths: Vec<String> = exercise.paths().map(Into::into).collect();
    assert_eq!(
        (stats.damaged.samples, &named),
        (2, &vec![paths[1].clone(), paths[2].clone()])
    );
    assert_eq!(stats.damaged.named[0].what, "as device a toy says");
    assert!(stats.skipped.iter().all(|bad| !named.contains(&bad.file)), "{stats:?}");
    let line = format!(
        "2 of 200 samples are damaged and were decoded as Pillow decodes them: {} (as device a \
         toy says), {} (as device a toy says)",
        named[0], named[1]
    );
    let told: Vec<_> = told.iter().filter(|note| note.contains("damaged")).collect();
    assert_eq!(told, [&line]);
}
