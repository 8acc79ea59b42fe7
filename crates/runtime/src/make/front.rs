//! The front: the host's reader and workers as one producer.
//!
//! A job's rows are parts of its slot. The reader thread (`read/reader.rs`) brings each row's record
//! and passes both on to the workers (`make/worker.rs`); whoever finishes the last row says so, and
//! the parts become the slot again. Policies for bad samples are the feed's (`handover/finish.rs`); who
//! makes which batch is the collector's (`collect/collector.rs`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_ops::Damage;
use bothends_slots::{
    Completion, Damaged, Job, JobId, Joiner, Lost, Outcome, Part, Polled, Producer,
    Rejected, Rejection, Slot,
};
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use crate::collect::wakeup::{Bell, receive};
use crate::read::source::{Source, damage_words};

/// The fewest batches under way at once: one being decoded, one being read.
const LEAST_DEPTH: u32 = 2;

/// Samples that a worker makes while another makes the slowest of a batch: an image of 1.6 megapixels
/// has eight times the pixels of ImageNet's mean.
const STRAGGLER: u32 = 8;

/// Batches under way at once: besides one that its slowest sample holds up there are samples for all
/// workers until that is made. With 2 workers and 256 samples a batch that is the batch behind it;
/// with 64 and 64, eight.
pub(crate) fn front_depth(n_workers: u32, batch_size: u32) -> u32 {
    let behind = STRAGGLER.saturating_mul(n_workers).div_ceil(batch_size.max(1));
    LEAST_DEPTH.max(behind.saturating_add(1))
}

/// A batch for the reader and the workers.
#[derive(Debug)]
pub(crate) struct FrontJob {
    pub(crate) progress: Arc<Progress>,
    /// Row by row: the sample, and where its bytes go.
    pub(crate) rows: Vec<(SampleId, Part)>,
}

/// What the workers of one batch share: who is last reports it.
#[derive(Debug)]
pub(crate) struct Progress {
    id: JobId,
    pub(crate) epoch: EpochIdx,
    pub(crate) batch: BatchIdx,
    left: AtomicU32,
    work_ns: AtomicU64,
    /// Nobody wants the batch any more: rows that are not begun need not be.
    is_revoked: AtomicBool,
    /// A row was left out for that.
    is_cut: AtomicBool,
    odd: Mutex<Odd>,
    done: Done,
}

/// Rows that there is something to say of, in any order.
#[derive(Debug, Default)]
struct Odd {
    /// They could not be made. The feed tries them again and finds out why.
    bad: Vec<u32>,
    damaged: Vec<Damaged>,
}

/// Where finished batches are reported.
#[derive(Debug, Clone)]
struct Done {
    tell: Sender<RowsDone>,
    bell: Bell,
}

/// Every row of a batch is made or bad.
#[derive(Debug)]
struct RowsDone {
    id: JobId,
    work_ns: u64,
    /// `None` when some rows were left out.
    odd: Option<Odd>,
}

impl Progress {
    /// Whether a row that is not begun shall be left out ([`Self::row_left_out`]).
    pub(crate) fn is_revoked(&self) -> bool {
        self.is_revoked.load(Ordering::Relaxed)
    }

    /// Instead of [`Self::row_done`]. The row's part must have been dropped before.
    pub(crate) fn row_left_out(&self) {
        // Read after the AcqRel in `part_done`, by the last row only.
        self.is_cut.store(true, Ordering::Relaxed);
        self.part_done();
    }

    /// One more row is done, perhaps in spite of a damage; the last one reports the batch. The
    /// row's part must have been dropped before.
    pub(crate) fn row_done(
        &self,
        row: u32,
        result: Result<Option<Damage>, String>,
        spent: Duration,
    ) {
        match result {
            Ok(None) => {}
            Ok(Some(damage)) => {
                let what = Some(damage_words(damage));
                self.odd().damaged.push(Damaged { row, what });
            }
            Err(_) => self.odd().bad.push(row),
        }
        let spent_ns = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        // Read after the AcqRel below, by the last row only.
        self.work_ns.fetch_add(spent_ns, Ordering::Relaxed);
        self.part_done();
    }

    fn part_done(&self) {
        // AcqRel: the last row sees every other row's bytes, time and bad rows.
        if self.left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let mut odd = std::mem::take(&mut *self.odd());
        odd.bad.sort_unstable();
        odd.damaged.sort_unstable_by_key(|it| it.row);
        let odd = (!self.is_cut.load(Ordering::Relaxed)).then_some(odd);
        let work_ns = self.work_ns.load(Ordering::Relaxed);
        // A producer that is gone needs no answer.
        let _ = self.done.tell.send(RowsDone { id: self.id, work_ns, odd });
        self.done.bell.ring();
    }

    fn odd(&self) -> MutexGuard<'_, Odd> {
        self.odd.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of each row.
#[derive(Debug)]
pub(crate) enum RowLens {
    /// All have so many.
    Every(usize),
    /// Those of its file, which is delivered as it is.
    OfFiles(Arc<Source>),
}

impl RowLens {
    fn of(&self, sample: SampleId) -> usize {
        match self {
            Self::Every(bytes) => *bytes,
            Self::OfFiles(source) => source.own_len(sample).unwrap_or(0),
        }
    }
}

/// The host's reader and workers.
#[derive(Debug)]
pub(crate) struct Front {
    jobs: Sender<FrontJob>,
    done: Done,
    finished: Receiver<RowsDone>,
    open: HashMap<JobId, (Joiner, Arc<Progress>)>,
    lens: RowLens,
    n_workers: u32,
    depth: u32,
}

impl Front {
    /// Over a reader thread that takes `jobs`, with room for `depth` of them.
    pub(crate) fn new(
        jobs: Sender<FrontJob>,
        bell: Bell,
        lens: RowLens,
        n_workers: u32,
        depth: u32,
    ) -> Self {
        let (tell, finished) = unbounded();
        let done = Done { tell, bell };
        let open = HashMap::new();
        Self { jobs, done, finished, open, lens, n_workers, depth }
    }

    fn why_not(&self, job: &Job, slot: &Slot) -> Option<Rejection> {
        if self.open.len() >= self.depth as usize {
            return Some(Rejection::Full);
        }
        let lens = job.samples.iter().map(|sample| self.lens.of(*sample));
        let fits = lens.sum::<usize>() <= slot.len();
        let why = "the job's samples do not fit into its slot";
        (!fits).then(|| Rejection::Impossible(why.to_owned()))
    }

    /// The answer that a finished batch is; `None` of one that was abandoned.
    fn completed(&mut self, done: RowsDone) -> Option<Completion> {
        let RowsDone { id, work_ns, odd } = done;
        let (joiner, _) = self.open.remove(&id)?;
        let slot = joiner.join().expect("every part is dropped before its row is done");
        // All workers share a batch.
        let work_ns = Some(work_ns / u64::from(self.n_workers.max(1)));
        let outcome = odd.map_or(Outcome::NotBegun, |Odd { bad, damaged }| {
            Outcome::Made { bad, damaged }
        });
        let slot = slot.into_slot();
        Some(Completion { job: id, slot, outcome, work_ns, lateness_ns: Some(0) })
    }
}

impl Producer for Front {
    fn submit(&mut self, job: Job, slot: Slot) -> Result<(), Box<Rejected>> {
        if let Some(why) = self.why_not(&job, &slot) {
            return Err(Box::new(Rejected { job, slot, why }));
        }
        let slot = match slot.host() {
            Ok(slot) => slot,
            Err(slot) => {
                let why = format!("workers cannot write into {} memory", slot.kind());
                let why = Rejection::Impossible(why);
                return Err(Box::new(Rejected { job, slot, why }));
            }
        };
        let Job { id, epoch, batch, samples, need_ns: _ } = job;
        let n_rows = u32::try_from(samples.len()).unwrap_or(u32::MAX);
        let lens = samples.iter().map(|sample| self.lens.of(*sample));
        let (joiner, parts) = slot.into_runs(lens);
        let progress = Arc::new(Progress {
            id,
            epoch,
            batch,
            // One more than the rows: an empty batch is reported too, and none too early.
            left: AtomicU32::new(n_rows.saturating_add(1)),
            work_ns: AtomicU64::new(0),
            is_revoked: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            odd: Mutex::default(),
            done: self.done.clone(),
        });
        let rows = samples.into_iter().zip(parts).collect();
        self.open.insert(id, (joiner, Arc::clone(&progress)));
        // A reader that is gone has been reported by its thread.
        let _ = self.jobs.send(FrontJob { progress: Arc::clone(&progress), rows });
        progress.part_done();
        Ok(())
    }

    fn poll(&mut self, timeout: Duration) -> Result<Polled, Lost> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let done = match receive(&self.finished, left) {
                Ok(done) => done,
                Err(RecvTimeoutError::Timeout) => return Ok(Polled::Nothing),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Lost("the workers have ended".into()));
                }
            };
            if let Some(completion) = self.completed(done) {
                return Ok(Polled::Completion(completion));
            }
        }
    }

    /// Workers finish the rows that they have begun.
    fn revoke(&mut self, job: JobId) -> Result<(), Lost> {
        if let Some((_, progress)) = self.open.get(&job) {
            progress.is_revoked.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A slot comes back when the last worker has dropped its part.
    fn abandon(&mut self) -> Result<(), Lost> {
        for (_, progress) in self.open.drain().map(|(_, open)| open) {
            progress.is_revoked.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use bothends_agent::conformance::Exercise;
    use bothends_core::recipe::Recipe;
    use bothends_io::{Direct, OpenFile};
    use bothends_slots::conformance::produce;
    use crossbeam::channel::bounded;

    use super::*;
    use crate::collect::wakeup::bell;
    use crate::config::run::{PageCacheUse, RunConfig};
    use crate::make::backlog::Backlog;
    use crate::make::chores::Chores;
    use crate::make::worker::{Kept, Worker};
    use crate::read::reader::ReadStage;
    use crate::read::reader::residency::{Guess, Residency, Tally};
    use crate::read::supplied::{Supplied, SuppliedFile};
    use crate::threads::shutdown::Stop;
    use crate::threads::times::{Ends, ThreadTimes};

    /// The front over the exercise's images, with its reader and two workers, which say in `residency` what the
    /// page cache had.
    fn subject(
        exercise: &Rc<Exercise>,
        page_cache: PageCacheUse,
        residency: &Arc<Residency>,
    ) -> produce::Subject {
        let session = exercise.session();
        let recipe = Recipe::builtin("imagenet-train").unwrap();
        let file = |path| SuppliedFile { path, extent: None, label: 0 };
        let supplied = Supplied::files(exercise.root(), exercise.paths().map(file));
        let mut config = RunConfig {
            seed: session.seed,
            supplied: Some(supplied.unwrap()),
            ..RunConfig::new(exercise.root().to_owned(), recipe)
        };
        config.read.page_cache = page_cache;
        let source = Arc::new(Source::open(&config).unwrap());
        let sample_bytes = source.pipeline.sample_bytes();
        let (jobs_in, jobs) = bounded(LEAST_DEPTH as usize);
        let (tasks_in, tasks) = bounded(8);
        let stop = Stop::default();
        let times = ThreadTimes::new(0);
        let (missed_in, missed) = unbounded();
        let stage = ReadStage {
            source: Arc::clone(&source),
            reader: bothends_io::open_reader(&Default::default()).unwrap(),
            jobs,
            tasks: tasks_in,
            backlog: Arc::new(Backlog::new(1, 1 << 20, 0)),
            guess: Guess::new(),
            n_ahead: usize::MAX,
            residency: Arc::clone(residency),
            missed,
            meter: times.meter(Ends::Front),
            notes: bounded(0).0,
            stop: stop.clone(),
        };
        std::thread::spawn(move || stage.run());
        for _ in 0..2 {
            let worker = Worker {
                source: Arc::clone(&source),
                finish: None,
                tasks: tasks.clone(),
                residency: Arc::clone(residency),
                missed: missed_in.clone(),
                chores: Chores::default(),
                transcoding: None,
                kept: Kept::default(),
                waits: Arc::default(),
                meter: times.meter(Ends::Front),
                stop: stop.clone(),
            };
            std::thread::spawn(move || worker.run());
        }
        let exercise = Rc::clone(exercise);
        let expected = move |epoch, sample| {
            let (id, batch) = (JobId(0), BatchIdx(0));
            let job = Job { id, epoch, batch, samples: vec![sample], need_ns: 0 };
            let (bytes, bad) = exercise.expected(&job);
            bad.is_empty().then_some(bytes)
        };
        produce::Subject {
            producer: Box::new(Front::new(
                jobs_in,
                bell().0,
                RowLens::Every(sample_bytes),
                2,
                LEAST_DEPTH,
            )),
            capacity: LEAST_DEPTH,
            sample_bytes,
            expected: Box::new(expected),
            samples: (0..5).map(SampleId).collect(),
            damaged: Vec::new(),
        }
    }

    #[test]
    fn workers_have_samples_while_one_makes_the_slowest() {
        for n_workers in 1..=128 {
            for batch_size in (1..=512).step_by(7) {
                let depth = front_depth(n_workers, batch_size);
                let left = (depth - 1) * batch_size;
                assert!(left >= n_workers * STRAGGLER, "{n_workers}, {batch_size}");
                let enough = (depth - 2) * batch_size < n_workers * STRAGGLER;
                assert!(enough || depth == LEAST_DEPTH, "{n_workers}, {batch_size}");
            }
        }
        assert_eq!([(2, 256), (64, 64)].map(|(w, b)| front_depth(w, b)), [2, 9]);
    }

    /// What workers say of their rows, in whatever order they finish them, is in the answer.
    #[test]
    fn rows_made_in_spite_of_damage_are_named_with_what_is_wrong() {
        let (jobs_in, jobs) = bounded(1);
        let mut front = Front::new(jobs_in, bell().0, RowLens::Every(4), 2, LEAST_DEPTH);
        let ring = bothends_slots::RingConfig { n_slots: 1, slot_bytes: 16 };
        let ring = bothends_slots::Ring::new(ring).unwrap();
        let (id, epoch, batch) = (JobId(5), EpochIdx(0), BatchIdx(0));
        let samples = (0..4).map(SampleId).collect();
        let job = Job { id, epoch, batch, samples, need_ns: 0 };
        front.submit(job, ring.take(Duration::ZERO).unwrap()).unwrap();
        let FrontJob { progress, rows } = jobs.recv().unwrap();
        drop(rows);
        let odd = Damage { format: "JPEG", what: "stray bytes between its segments" };
        for (row, result) in [
            (2, Ok(Some(odd))),
            (3, Ok(None)),
            (0, Err("gone".to_owned())),
            (1, Ok(Some(odd))),
        ] {
            progress.row_done(row, result, Duration::ZERO);
        }
        let Polled::Completion(done) = front.poll(Duration::ZERO).unwrap() else {
            panic!("no answer");
        };
        let what = Some("JPEG: stray bytes between its segments".to_owned());
        let damaged = [1, 2].map(|row| Damaged { row, what: what.clone() }).to_vec();
        assert_eq!(done.outcome, Outcome::Made { bad: vec![0], damaged });
    }

    /// Goes through the contract, and says what workers have found where the data are read like this.
    fn found(page_cache: PageCacheUse) -> Tally {
        let dir = tempfile::tempdir().unwrap();
        let exercise = Rc::new(Exercise::prepare(dir.path()).unwrap());
        let residency = Arc::default();
        produce::all(&mut || subject(&exercise, page_cache, &residency));
        residency.tally()
    }

    #[test]
    fn the_front_is_a_producer() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "1").unwrap();
        let open = OpenFile::open(file.path(), Direct::Off).unwrap();
        let found = found(PageCacheUse::Through);
        // On a busy machine, opening files may take so long that the reader does it.
        match open.read_cached(&mut [0], 0) {
            true => assert!(found.hits > 0, "{found:?}"),
            false => println!("skipped: this file system cannot be read without waiting"),
        }
    }

    /// Workers find nothing in files that are read past the page cache.
    #[test]
    fn the_front_is_a_producer_where_workers_miss_the_page_cache() {
        let found = found(PageCacheUse::Past);
        match found.hits {
            0 => assert!(found.misses > 0, "workers have tried"),
            _ => println!("skipped: this file system has no O_DIRECT"),
        }
    }
}
