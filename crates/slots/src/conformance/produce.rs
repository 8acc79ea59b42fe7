//! Checks of a [`Producer`]: the host's workers, a thread, and every transport to a device.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};

use crate::{
    Completion, HostSlot, Job, JobId, Outcome, Polled, Producer, Rejection, Ring,
    RingConfig, Slot,
};

/// Nothing in a check takes longer; what does, hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a slot holds before anybody writes into it.
const BEFORE: u8 = 0xE5;

/// A producer under test.
pub struct Subject {
    /// Nothing has been submitted yet.
    pub producer: Box<dyn Producer>,
    /// Jobs it takes at a time.
    pub capacity: u32,
    /// Bytes of a sample.
    pub sample_bytes: usize,
    /// What it is to make of a sample; `None` of one that cannot be made.
    pub expected: Box<dyn Fn(EpochIdx, SampleId) -> Option<Vec<u8>>>,
    /// Samples that can be made, and perhaps some that cannot.
    pub samples: Vec<SampleId>,
    /// Those of them that are made in spite of a damaged record.
    pub damaged: Vec<SampleId>,
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.producer.fmt(f)
    }
}

/// Makes a producer for one check.
pub type Make<'a> = &'a mut dyn FnMut() -> Subject;

/// Every check, in the order of the contract.
pub fn all(make: Make<'_>) {
    a_job_comes_back_in_its_own_slot(make);
    jobs_under_way_do_not_meet(make);
    one_job_too_many_comes_back_whole(make);
    a_revoked_job_is_answered_all_the_same(make);
    an_empty_poll_ends_at_its_timeout(make);
    nothing_is_heard_of_what_was_abandoned(make);
    a_dropped_producer_gives_its_slots_back(make);
}

/// A producer and the ring that its slots are from.
struct Scene {
    subject: Subject,
    ring: Ring,
    n_submitted: u64,
}

/// Rows of a slot: one more than a check ever asks for.
const ROWS: usize = 6;

impl Scene {
    fn new(make: Make<'_>) -> Self {
        let subject = make();
        let n_slots = subject.capacity + 1;
        let slot_bytes = ROWS * subject.sample_bytes;
        let ring = Ring::new(RingConfig { n_slots, slot_bytes }).expect("memory");
        Self { subject, ring, n_submitted: 0 }
    }

    fn slot(&self) -> Slot {
        let slot = self.ring.take(PATIENCE).expect("a slot that comes back in time");
        let mut slot = slot.host().expect("host memory");
        slot.fill(BEFORE);
        slot.into_slot()
    }

    /// The next job, over `n` samples from `first` on.
    fn job(&mut self, first: usize, n: usize) -> Job {
        self.n_submitted += 1;
        let samples = self.subject.samples.iter().cycle().skip(first).take(n);
        Job {
            id: JobId(self.n_submitted),
            epoch: EpochIdx(u32::try_from(self.n_submitted % 3).unwrap_or(0)),
            batch: BatchIdx(7),
            samples: samples.copied().collect(),
            need_ns: 0,
        }
    }

    fn submit(&mut self, first: usize, n: usize) -> Job {
        let (job, slot) = (self.job(first, n), self.slot());
        self.subject.producer.submit(job.clone(), slot).expect("a job is taken");
        job
    }

    fn next(&mut self) -> Completion {
        self.answer(&mut || panic!("contract 1: an answer that nobody waits for"))
    }

    /// The next answer; `extra` hears of those that nobody waits for.
    fn answer(&mut self, extra: &mut dyn FnMut()) -> Completion {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let polled = self.subject.producer.poll(Duration::from_millis(50));
            match polled.expect("the producer lives") {
                Polled::Completion(completion) => return completion,
                Polled::Extra => extra(),
                Polled::Nothing => {}
            }
        }
        panic!("contract 1: no answer in {PATIENCE:?}")
    }

    /// The slot holds what the job asked for, and nothing was written behind.
    fn check(&self, job: &Job, completion: Completion) {
        let Completion { job: id, slot, outcome, .. } = completion;
        assert_eq!(id, job.id, "contract 1: another job's answer");
        let Outcome::Made { bad, damaged } = outcome else {
            panic!("a job failed: {outcome:?}")
        };
        let slot: HostSlot = slot.host().expect("the slot that was submitted");
        let sample_bytes = self.subject.sample_bytes;
        let (mut expected_bad, mut expected_damaged) = (Vec::new(), Vec::new());
        for (row, sample) in (0_u32..).zip(&job.samples) {
            let bytes = &slot[row as usize * sample_bytes..][..sample_bytes];
            match (self.subject.expected)(job.epoch, *sample) {
                Some(expected) => assert!(*bytes == expected, "row {row} of {job:?}"),
                None => expected_bad.push(row),
            }
            if self.subject.damaged.contains(sample) {
                expected_damaged.push(row);
            }
        }
        assert_eq!(bad, expected_bad, "the bad rows of {job:?}");
        let damaged: Vec<u32> = damaged.iter().map(|it| it.row).collect();
        assert_eq!(damaged, expected_damaged, "the damaged rows of {job:?}");
        let behind = &slot[job.samples.len() * sample_bytes..];
        assert!(behind.iter().all(|byte| *byte == BEFORE), "contract 2: wrote behind");
    }

    fn expect(&mut self, job: &Job) {
        let completion = self.next();
        self.check(job, completion);
    }
}

/// All slots are back, at once or in time.
fn expect_all_slots(ring: &Ring) {
    let began = Instant::now();
    while ring.free() < ring.n_slots() {
        assert!(began.elapsed() < PATIENCE, "contract 5 and 6: slots do not come back");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Contract 1 and 2: no sample, one, and several.
pub fn a_job_comes_back_in_its_own_slot(make: Make<'_>) {
    let mut scene = Scene::new(make);
    for (first, n) in [(0, 0), (0, 1), (1, 4), (3, 5), (0, 5)] {
        let job = scene.submit(first, n);
        scene.expect(&job);
    }
    expect_all_slots(&scene.ring);
}

/// Contract 1: as many as it takes at a time, answered in whatever order.
pub fn jobs_under_way_do_not_meet(make: Make<'_>) {
    let mut scene = Scene::new(make);
    for _ in 0..3 {
        let capacity = scene.subject.capacity as usize;
        let mut jobs: Vec<Job> =
            (0..capacity).map(|nth| scene.submit(nth, 1 + nth % 5)).collect();
        while !jobs.is_empty() {
            let completion = scene.next();
            let nth = jobs.iter().position(|job| job.id == completion.job);
            let job = jobs.remove(nth.expect("contract 1: answered once"));
            scene.check(&job, completion);
        }
    }
    expect_all_slots(&scene.ring);
}

/// Contract 3.
pub fn one_job_too_many_comes_back_whole(make: Make<'_>) {
    let mut scene = Scene::new(make);
    let capacity = scene.subject.capacity;
    let jobs: Vec<Job> = (0..capacity).map(|_| scene.submit(0, 3)).collect();
    let (job, slot) = (scene.job(0, 1), scene.slot());
    match scene.subject.producer.submit(job.clone(), slot) {
        Ok(()) => panic!("contract 3: {} jobs at a time", capacity + 1),
        Err(rejected) => {
            assert!(matches!(rejected.why, Rejection::Full), "{}", rejected.why);
            assert_eq!(rejected.job, job);
        }
    }
    for _ in &jobs {
        scene.next();
    }
    let job = scene.submit(2, 2);
    scene.expect(&job);
}

/// Contract 1: made or not begun, but answered, in its slot; unknown jobs are no matter.
pub fn a_revoked_job_is_answered_all_the_same(make: Make<'_>) {
    let mut scene = Scene::new(make);
    let jobs: Vec<Job> =
        (0..scene.subject.capacity).map(|_| scene.submit(0, 2)).collect();
    for job in &jobs {
        scene.subject.producer.revoke(job.id).expect("revoke");
        scene.subject.producer.revoke(job.id).expect("revoke, twice");
    }
    scene.subject.producer.revoke(JobId(u64::MAX)).expect("revoke of no job");
    let mut left: BTreeSet<JobId> = jobs.iter().map(|job| job.id).collect();
    while !left.is_empty() {
        let completion = scene.next();
        assert!(left.remove(&completion.job), "contract 1: answered once");
        let is_fair =
            matches!(completion.outcome, Outcome::Made { .. } | Outcome::NotBegun);
        assert!(is_fair, "{:?}", completion.outcome);
    }
    let job = scene.submit(0, 2);
    scene.expect(&job);
    expect_all_slots(&scene.ring);
}

/// Contract 4.
pub fn an_empty_poll_ends_at_its_timeout(make: Make<'_>) {
    let mut scene = Scene::new(make);
    for timeout_ms in [0, 1, 30] {
        let began = Instant::now();
        let polled = scene.subject.producer.poll(Duration::from_millis(timeout_ms));
        assert!(matches!(polled, Ok(Polled::Nothing)), "{polled:?}");
        assert!(began.elapsed() < PATIENCE, "a poll of {timeout_ms} ms");
    }
}

/// Contract 5: the slots come back, and the next jobs are the only ones that are answered.
pub fn nothing_is_heard_of_what_was_abandoned(make: Make<'_>) {
    let mut scene = Scene::new(make);
    for _ in 0..3 {
        scene.submit(0, 4);
        scene.subject.producer.abandon().expect("abandon");
        expect_all_slots(&scene.ring);
        let (job, slot) = (scene.job(1, 3), scene.slot());
        let mut left = Some((job.clone(), slot));
        let began = Instant::now();
        // A device may still be busy with the job before.
        while let Some((job, slot)) = left.take() {
            assert!(began.elapsed() < PATIENCE, "the producer never has room again");
            if let Err(rejected) = scene.subject.producer.submit(job, slot) {
                assert!(matches!(rejected.why, Rejection::Full), "{}", rejected.why);
                left = Some((rejected.job, rejected.slot));
                let polled = scene.subject.producer.poll(Duration::from_millis(20));
                let is_extra = matches!(polled, Ok(Polled::Extra | Polled::Nothing));
                assert!(is_extra, "contract 5: {polled:?}");
            }
        }
        // It may still say what became of abandoned jobs.
        let completion = scene.answer(&mut || ());
        scene.check(&job, completion);
    }
}

/// Contract 6.
pub fn a_dropped_producer_gives_its_slots_back(make: Make<'_>) {
    let mut scene = Scene::new(make);
    for _ in 0..scene.subject.capacity {
        scene.submit(0, 5);
    }
    let Scene { subject, ring, .. } = scene;
    drop(subject);
    expect_all_slots(&ring);
}
