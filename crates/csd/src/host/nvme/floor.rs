//! Batches under way: which part of which is on which lane, and what has come of its commands.
//!
//! An execution takes three steps: the memory is filled, the program runs, results are read into the slot. The
//! commands of a step go side by side. While a lane is at one step the other is at its own, so that copies and
//! reads of one part overlap with the program's work on another.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use bothends_nvme::host::{Content, Heard};
use bothends_nvme::preprocess::{Made, Outcome, Results};
use bothends_nvme::{Cqe, Sqe, Status};
use bothends_slots::{HostSlot, Job, JobId, copy_past_caches};

use super::carrier::{Carrier, late};
use super::clock::{Clock, LOOK};
use super::drive::Drive;
use super::lanes::N_LANES;
use super::part::{Next, Part, Terms};
use super::sum::Sum;
use crate::words::job::{DeviceStats, Ending};
use crate::{CsdError, Finished, Product};

/// How long a program may work on a part of a batch, besides the time that its bytes take.
const EXECUTE: Duration = Duration::from_secs(60);
/// A device moves and decodes at least so many bytes in a second. The slowest one that is modelled decodes 7.2 MB/s on
/// a core, for which both lanes may wait.
const SLOWEST: u64 = 2 << 20;

/// A batch that is being made.
#[derive(Debug)]
struct Work {
    job: Job,
    slot: HostSlot,
    /// The first row that is on no lane yet.
    next_row: usize,
    n_on_lanes: usize,
    bad: Vec<u32>,
    damaged: Vec<u32>,
    failed: Option<String>,
    began: Instant,
}

/// What a command is for.
#[derive(Debug, Clone, Copy)]
enum Errand {
    /// Fills memory.
    Fill,
    /// Runs the program.
    Execute,
    /// Reads the answers.
    Answers,
    /// Reads samples, from this byte of the part's on.
    Samples(usize),
    /// Answers a question that is no part of a batch.
    Question,
}

/// A part of a batch on its lane.
#[derive(Debug)]
struct Run {
    job: JobId,
    part: Part,
    step: Step,
    /// Commands of this step that are not answered.
    n_open: usize,
    /// How long the step may take, and until when on the floor's clock.
    given: Duration,
    until: Duration,
    failed: Option<String>,
    answers: Vec<u8>,
    samples: Sum,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Filling,
    Executing,
    Reading,
}

impl Step {
    fn doing(self) -> &'static str {
        match self {
            Self::Filling => "copy records to its memory",
            Self::Executing => "execute the program",
            Self::Reading => "read results from its memory",
        }
    }
}

/// All that is under way on a device.
#[derive(Debug)]
pub(super) struct Floor {
    drive: Drive,
    timeout: Duration,
    clock: Clock,
    /// The sets of ranges, by lane.
    pub(super) range_sets: Vec<u16>,
    works: VecDeque<Work>,
    lanes: [Option<Run>; N_LANES],
    todo: VecDeque<(usize, Errand, Sqe, Content)>,
    errands: HashMap<u16, (usize, Errand)>,
    /// The data of the answer to a question, and the completion once it has come.
    answer: (Vec<u8>, Option<Cqe>),
    pub(super) finished: VecDeque<Finished>,
    pub(super) counted: DeviceStats,
    broken: Option<CsdError>,
}

/// No lane: of a command that is for none.
const NO_LANE: usize = usize::MAX;

impl Floor {
    pub(super) fn new(drive: Drive, timeout: Duration) -> Self {
        Self {
            drive,
            timeout,
            clock: Clock::new(Instant::now()),
            range_sets: Vec::new(),
            works: VecDeque::new(),
            lanes: [const { None }; N_LANES],
            todo: VecDeque::new(),
            errands: HashMap::new(),
            answer: (Vec::new(), None),
            finished: VecDeque::new(),
            counted: DeviceStats::default(),
            broken: None,
        }
    }

    /// Takes a batch.
    pub(super) fn begin(&mut self, job: Job, slot: HostSlot) {
        self.works.push_back(Work {
            job,
            slot,
            next_row: 0,
            n_on_lanes: 0,
            bad: Vec::new(),
            damaged: Vec::new(),
            failed: None,
            began: Instant::now(),
        });
    }

    /// A batch is not wanted: one that is not begun is answered at once.
    pub(super) fn revoke(&mut self, job: JobId) {
        let waits = |work: &Work| work.job.id == job && work.next_row == 0;
        if let Some(work) = self.works.iter_mut().find(|work| waits(work)) {
            work.failed = Some("it was revoked".to_owned());
        }
    }

    /// Forgets all batches: their slots come back. What the device is at goes on for nobody.
    pub(super) fn forget(&mut self) {
        self.works.clear();
        self.finished.clear();
    }

    /// Whether nothing is on the lanes.
    pub(super) fn is_idle(&self) -> bool {
        self.lanes.iter().all(Option::is_none) && self.errands.is_empty()
    }

    /// How many batches are under way.
    pub(super) fn n_works(&self) -> usize {
        self.works.len()
    }

    /// When it is to be looked again at what has come.
    pub(super) fn next_look(&self, now: Instant) -> Instant {
        if !self.finished.is_empty() {
            return now;
        }
        let waited = self.clock.waited();
        let left =
            self.lanes.iter().flatten().map(|run| run.until.saturating_sub(waited));
        now + left.min().unwrap_or(LOOK).min(LOOK)
    }

    /// Makes sure that nothing is late, where all that had come until `now` has been heard.
    pub(super) fn check(&mut self, now: Instant) -> Result<(), CsdError> {
        let waited = self.clock.look(now);
        let is_late = |run: &&Run| run.n_open > 0 && waited > run.until;
        match self.lanes.iter().flatten().find(is_late) {
            Some(run) => Err(late(run.step.doing(), run.given)),
            None => Ok(()),
        }
    }

    /// Begins what can be begun, ends what has ended, and sends what waits.
    pub(super) fn advance(
        &mut self,
        carrier: &mut dyn Carrier,
        terms: Option<&Terms>,
    ) -> Result<(), CsdError> {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        self.clock.look(Instant::now());
        for lane in 0..N_LANES {
            self.go_on(lane, terms);
            if let (None, Some(terms)) = (&self.lanes[lane], terms) {
                self.start(lane, terms);
            }
        }
        self.finish();
        while let Some((lane, errand, entry, content)) = self.todo.front() {
            // A way that ends late commands itself is not to be the first.
            let run = self.lanes.get(*lane).and_then(Option::as_ref);
            let limit = run.map_or(self.timeout, |run| run.given);
            let Some(id) = carrier.send(*entry, content, limit)? else { break };
            self.errands.insert(id, (*lane, *errand));
            self.todo.pop_front();
        }
        Ok(())
    }

    /// Puts the next part of a batch on a free lane.
    fn start(&mut self, lane: usize, terms: &Terms) {
        let Self { works, drive, .. } = self;
        let is_open =
            |work: &Work| work.failed.is_none() && work.next_row < work.job.samples.len();
        while let Some(work) = works.iter_mut().find(|work| is_open(work)) {
            match terms.next(drive, (&work.job, work.next_row), lane) {
                Next::Beyond => {
                    // The host makes it.
                    let bytes = terms.sample_bytes as usize;
                    let row = work.next_row;
                    work.slot[row * bytes..][..bytes].fill(0);
                    work.bad.push(u32::try_from(row).unwrap_or(u32::MAX));
                    work.next_row += 1;
                }
                Next::Part(part) => {
                    let mut part = *part;
                    work.next_row += part.n_rows();
                    work.n_on_lanes += 1;
                    let job = work.job.id;
                    self.counted.media_read_bytes += part.media_bytes;
                    let fills = std::mem::take(&mut part.fills);
                    let n_open = fills.len();
                    let fill = |(entry, content)| (lane, Errand::Fill, entry, content);
                    self.todo.extend(fills.into_iter().map(fill));
                    let given = self.timeout + time_of(part.media_bytes);
                    self.lanes[lane] = Some(Run {
                        job,
                        part,
                        step: Step::Filling,
                        n_open,
                        given,
                        until: self.clock.waited() + given,
                        failed: None,
                        answers: Vec::new(),
                        samples: Sum::default(),
                    });
                    return;
                }
            }
        }
    }

    /// Goes from one step to the next, where all commands of the first are answered.
    fn go_on(&mut self, lane: usize, terms: Option<&Terms>) {
        let Some(run) = self.lanes[lane].as_mut().filter(|run| run.n_open == 0) else {
            return;
        };
        let is_wanted = self.works.iter().any(|work| work.job.id == run.job);
        if run.failed.is_some() || !is_wanted || run.step == Step::Reading {
            self.end(lane);
            return;
        }
        let Some(terms) = terms else { return };
        let drive = &self.drive;
        match run.step {
            Step::Filling => {
                let execute = run.part.execute(drive, self.range_sets[lane]);
                self.todo.push_back((lane, Errand::Execute, execute, Content::None));
                (run.step, run.n_open) = (Step::Executing, 1);
                run.given = EXECUTE + time_of(run.part.media_bytes);
            }
            Step::Executing | Step::Reading => {
                let [.., results] = terms.layout.ranges(lane, drive.memory);
                let (answers, bytes, samples) = run.part.reads(drive, results.from);
                run.answers.clear();
                let read = Content::ToHost(bytes);
                self.todo.push_back((lane, Errand::Answers, answers, read));
                run.n_open = 1 + samples.len();
                for (entry, bytes, at) in samples {
                    let read = Content::ToHost(bytes);
                    self.todo.push_back((lane, Errand::Samples(at), entry, read));
                }
                run.step = Step::Reading;
                run.given = self.timeout + time_of(run.part.sample_bytes() as u64);
            }
        }
        run.until = self.clock.waited() + run.given;
    }

    /// Takes a part off its lane and adds what it has come to to its batch.
    fn end(&mut self, lane: usize) {
        let Some(run) = self.lanes[lane].take() else { return };
        let of = |work: &&mut Work| work.job.id == run.job;
        let Some(work) = self.works.iter_mut().find(of) else { return };
        work.n_on_lanes -= 1;
        let ended = match run.failed {
            Some(reason) => Err(reason),
            None => run.answered(work),
        };
        if let Err(reason) = ended {
            work.failed.get_or_insert(reason);
        }
    }

    /// Answers batches of which nothing is left to be done.
    fn finish(&mut self) {
        let is_done = |work: &Work| {
            let is_all = work.next_row == work.job.samples.len();
            work.n_on_lanes == 0 && (is_all || work.failed.is_some())
        };
        while let Some(at) = self.works.iter().position(is_done) {
            let Some(work) = self.works.remove(at) else { return };
            self.counted.jobs += 1;
            self.counted.samples += work.job.samples.len() as u64;
            self.finished.push_back(work.finished());
        }
    }

    /// Takes what the device says about a command.
    pub(super) fn hear(&mut self, heard: Heard<'_>) {
        match heard {
            Heard::Data { id, from, bytes } => {
                let Some((lane, errand)) = self.errands.get(&id).copied() else { return };
                self.take(lane, errand, from as usize, bytes);
            }
            Heard::Completion(cqe) => {
                let Some((lane, errand)) = self.errands.remove(&cqe.id) else { return };
                self.complete(lane, errand, &cqe);
            }
        }
    }

    /// Puts data where they belong. They come in order.
    fn take(&mut self, lane: usize, errand: Errand, from: usize, bytes: &[u8]) {
        if matches!(errand, Errand::Question) {
            self.answer.0.extend_from_slice(bytes);
            return;
        }
        let Some(run) = self.lanes.get_mut(lane).and_then(Option::as_mut) else { return };
        match errand {
            Errand::Answers => run.answers.extend_from_slice(bytes),
            Errand::Samples(at) => {
                let of = |work: &&mut Work| work.job.id == run.job;
                let Some(work) = self.works.iter_mut().find(of) else { return };
                let part = run.part.span();
                let begin = part.start + at + from;
                // What was read beyond the last sample, to whole dwords, is dropped.
                let n = bytes.len().min(part.end.saturating_sub(begin));
                if let Some(place) = work.slot.get_mut(begin..begin + n) {
                    // The cache has `bytes`, and nobody here reads `place` soon.
                    run.samples.add(at + from, &bytes[..n]);
                    copy_past_caches(place, &bytes[..n]);
                }
            }
            Errand::Fill | Errand::Execute | Errand::Question => {}
        }
    }

    fn complete(&mut self, lane: usize, errand: Errand, cqe: &Cqe) {
        if matches!(errand, Errand::Question) {
            self.answer.1 = Some(*cqe);
            return;
        }
        let Some(run) = self.lanes.get_mut(lane).and_then(Option::as_mut) else { return };
        run.n_open = run.n_open.saturating_sub(1);
        // What was set up is not there any more: the device was reset, or somebody took it away.
        let is_gone = matches!(
            cqe.status,
            Status::NOT_ACTIVATED
                | Status::NO_PROGRAM
                | Status::RANGE_SET_ID
                | Status::PROGRAM_INDEX
                | Status::INVALID_NAMESPACE
        );
        let doing = run.step.doing();
        if is_gone {
            let source =
                std::io::Error::other(format!("the device says: {}", cqe.status));
            self.broken.get_or_insert(CsdError::LinkLost { doing, source });
        } else if !cqe.status.is_success() {
            let reason = format!("the device cannot {doing}: {}", cqe.status);
            run.failed.get_or_insert(reason);
        } else if matches!(errand, Errand::Execute)
            && cqe.result != u64::from(run.part.head.n_items)
        {
            let (n, all) = (cqe.result, run.part.head.n_items);
            run.failed.get_or_insert(format!("the program answers {n} of {all} items"));
        }
    }

    /// Has a command carried out that is no part of a batch, for [`Self::take_answer`].
    pub(super) fn ask(&mut self, entry: Sqe, content: Content) {
        self.answer = (Vec::new(), None);
        self.todo.push_back((NO_LANE, Errand::Question, entry, content));
    }

    /// Its completion, once that has come, and its data.
    pub(super) fn take_answer(&mut self) -> Option<(Cqe, Vec<u8>)> {
        let cqe = self.answer.1.take()?;
        Some((cqe, std::mem::take(&mut self.answer.0)))
    }
}

/// What so many bytes may take, to be copied, to be decoded or to get here.
fn time_of(bytes: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1000) / SLOWEST)
}

impl Part {
    /// Where its samples are in the slot of its batch.
    fn span(&self) -> Range<usize> {
        let begin = self.first_row * self.head.sample_bytes as usize;
        begin..begin + self.sample_bytes()
    }
}

impl Run {
    /// What the device answers about the part, once its samples are in the slot.
    fn answered(self, work: &mut Work) -> Result<(), String> {
        let head = &self.part.head;
        let malformed = || "the program's answer is malformed".to_owned();
        let results = Results::read(&self.answers).ok_or_else(malformed)?;
        let samples = work.slot.get(self.part.span()).ok_or_else(malformed)?;
        if results.n_items != head.n_items {
            return Err(malformed());
        }
        if self.samples.of(samples) != results.checksum {
            return Err("its bytes do not match their checksum".to_owned());
        }
        for n in 0..head.n_items {
            let part = head.made(n).and_then(|part| part.of(&self.answers));
            let made = part.and_then(Made::read).ok_or_else(malformed)?;
            let row = self.part.first_row + n as usize;
            let row = u32::try_from(row).map_err(|_| malformed())?;
            match made.outcome {
                Outcome::Made => {}
                Outcome::Damaged => work.damaged.push(row),
                Outcome::Broke => {
                    return Err("the program failed on a sample".to_owned());
                }
                Outcome::Bad | Outcome::Wrong | Outcome::Beyond => work.bad.push(row),
            }
        }
        Ok(())
    }
}

impl Work {
    fn finished(mut self) -> Finished {
        self.bad.sort_unstable();
        self.damaged.sort_unstable();
        let device_ns =
            u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let result = match self.failed {
            Some(reason) => Err(reason),
            // Each part was held against its checksum when it came.
            None => {
                Ok(Product { len: 0, checksum: 0, bad: self.bad, damaged: self.damaged })
            }
        };
        let (job, slot) = (self.job.id, self.slot);
        Finished { job, slot, result, device_ns, lateness_ns: 0 }
    }
}

/// The answer to a batch whose samples take so many bytes and are in their place.
pub(super) fn ending(result: Result<Product, String>, bytes: u64) -> Ending {
    match result {
        Err(reason) => Ending::Failed { reason },
        Ok(Product { checksum, bad, damaged, .. }) => {
            Ending::Done { len: bytes, checksum, bad, damaged }
        }
    }
}

#[cfg(test)]
mod tests {
    use bothends_nvme::preprocess::{Head, Kind, Part as Place};

    use super::*;

    fn floor() -> Floor {
        let drive = Drive {
            name: String::new(),
            emulated: true,
            blocks: 1,
            media: (8, 4096),
            memory: 2,
            memory_bytes: 1 << 20,
            programs: 3,
            program: 0,
            range_sets: 2,
            transfer: 4096,
        };
        Floor::new(drive, Duration::from_secs(10))
    }

    /// A part of which a command is under way for whose answer no time is left.
    fn run() -> Run {
        let head = Head {
            kind: Kind::Opaque,
            n_items: 1,
            sample_bytes: 4,
            seed: 0,
            epoch: 0,
            recipe_hash: 0,
            recipe: Place { at: 0, bytes: 0 },
            items_at: 0,
            results_at: 0,
        };
        Run {
            job: JobId(0),
            part: Part { first_row: 0, head, fills: Vec::new(), media_bytes: 0 },
            step: Step::Filling,
            n_open: 1,
            given: Duration::from_secs(10),
            until: Duration::ZERO,
            failed: None,
            answers: Vec::new(),
            samples: Sum::default(),
        }
    }

    #[test]
    fn a_step_is_late_only_where_its_answer_has_not_come() {
        let mut floor = floor();
        floor.lanes[1] = Some(run());
        floor.errands.insert(7, (1, Errand::Fill));
        // Of a host that was away.
        let now = Instant::now() + Duration::from_secs(60);
        let late = floor.check(now).unwrap_err();
        assert!(late.to_string().contains("copy records to its memory"), "{late}");
        let status = Status::SUCCESS;
        let cqe = Cqe { result: 0, sq_head: 0, sq_id: 0, id: 7, status };
        floor.hear(Heard::Completion(cqe));
        floor.check(now).unwrap();
    }

    #[test]
    fn no_look_waits_longer_than_a_step_has_left() {
        let mut floor = floor();
        let now = Instant::now();
        assert_eq!(floor.next_look(now), now + LOOK);
        floor.lanes[0] = Some(Run { until: LOOK * 9, ..run() });
        assert_eq!(floor.next_look(now), now + LOOK);
        floor.lanes[1] = Some(Run { until: LOOK / 2, ..run() });
        assert_eq!(floor.next_look(now), now + LOOK / 2);
    }

    /// Newport's: 7.2 MB/s on a core, which the other lane may have first.
    #[test]
    fn a_slow_device_has_time_for_what_it_is_given() {
        for bytes in [1 << 20, 64 << 20, 432_000_000, 3 << 30] {
            let needed = Duration::from_secs_f64(2.0 * bytes as f64 / 7.2e6);
            assert!(EXECUTE + time_of(bytes) > needed, "{bytes} bytes need {needed:?}");
        }
    }
}
