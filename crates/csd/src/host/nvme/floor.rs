//! Batches under way: which part of which is on which lane, and what has come of its commands.
//!
//! An execution takes three steps: the memory is filled, the program runs, results are read into the slot; or four,
//! where they are copied to blocks before (`placement.rs`). The commands of a step go side by side. While a lane is at
//! one step the other is at its own, so that copies and reads of one part overlap with the program's work on another.

mod run;

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bothends_nvme::host::{Content, Heard};
use bothends_nvme::{Cqe, Sqe, Status};
use bothends_slots::{HostSlot, Job, JobId, copy_past_caches};

use super::carrier::{Carrier, late};
use super::clock::{Clock, LOOK};
use super::drive::Drive;
use super::lanes::N_LANES;
use super::part::{Next, Part, Terms};
use super::placement::{Placement, Way};
use super::sum::Sum;
use crate::words::job::DeviceStats;
use crate::{CsdError, Finished};
use run::{Run, Step, Work};

pub(super) use run::ending;

/// How long a program may work on a part of a batch, besides the time that its bytes take.
const EXECUTE: Duration = Duration::from_secs(60);
/// A device moves and decodes at least so many bytes in a second. The slowest one that is modelled decodes 7.2 MB/s on
/// a core, for which both lanes may wait.
const SLOWEST: u64 = 2 << 20;

/// What a command is for.
#[derive(Debug, Clone, Copy)]
enum Errand {
    /// Fills memory.
    Fill,
    /// Runs the program.
    Execute,
    /// Copies results to blocks.
    Place,
    /// Reads results, from this byte of all on.
    Results(usize),
    /// Answers a question that is no part of a batch.
    Question,
}

/// All that is under way on a device.
#[derive(Debug)]
pub(super) struct Floor {
    drive: Drive,
    timeout: Duration,
    clock: Clock,
    /// The sets of ranges, by lane.
    pub(super) range_sets: Vec<u16>,
    pub(super) placement: Placement,
    works: VecDeque<Work>,
    lanes: [Option<Run>; N_LANES],
    todo: VecDeque<(usize, Errand, Sqe, Content)>,
    errands: HashMap<u16, (usize, Errand)>,
    /// The data of the answer to a question, and the completion once it has come.
    answer: (Vec<u8>, Option<Cqe>),
    pub(super) finished: VecDeque<Finished>,
    counted: DeviceStats,
    /// Since when it has had a job.
    busy_since: Option<Instant>,
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
            placement: Placement::default(),
            works: VecDeque::new(),
            lanes: [const { None }; N_LANES],
            todo: VecDeque::new(),
            errands: HashMap::new(),
            answer: (Vec::new(), None),
            finished: VecDeque::new(),
            counted: DeviceStats::default(),
            busy_since: None,
            broken: None,
        }
    }

    /// Takes a batch.
    pub(super) fn begin(&mut self, job: Job, slot: HostSlot) {
        self.busy_since.get_or_insert_with(Instant::now);
        self.works.push_back(Work {
            job,
            slot,
            next_row: 0,
            n_on_lanes: 0,
            n_beyond: 0,
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
        self.rest();
    }

    /// Counts the time that it was busy, where it has nothing left.
    fn rest(&mut self) {
        if self.works.is_empty() {
            let since = self.busy_since.take();
            self.counted.busy_seconds +=
                since.map_or(0.0, |since| since.elapsed().as_secs_f64());
        }
    }

    /// What was counted until now.
    pub(super) fn stats(&self) -> DeviceStats {
        let now = self.busy_since.map_or(0.0, |since| since.elapsed().as_secs_f64());
        DeviceStats {
            queued: u32::try_from(self.works.len()).unwrap_or(u32::MAX),
            busy_seconds: self.counted.busy_seconds + now,
            ..self.counted.clone()
        }
    }

    /// Whether nothing is on the lanes.
    pub(super) fn is_idle(&self) -> bool {
        self.lanes.iter().all(Option::is_none) && self.errands.is_empty()
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
        let Self { works, drive, placement, .. } = self;
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
                    work.n_beyond += 1;
                }
                Next::Part(part) => {
                    let mut part = *part;
                    work.next_row += part.n_rows();
                    work.n_on_lanes += 1;
                    let job = work.job.id;
                    self.counted.media_read_bytes += part.media_bytes;
                    let mut fills = std::mem::take(&mut part.fills);
                    let [.., results] = terms.layout.ranges(lane, drive.memory);
                    let sizes = (part.result_bytes() as u64, results.bytes.into());
                    let way = placement.next(lane, sizes);
                    if let Way::Blocks(blocks) = way {
                        fills.push(Part::clear(drive, results.from, blocks));
                    }
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
                        way,
                        executed: Duration::ZERO,
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
        let [.., results] = terms.layout.ranges(lane, drive.memory);
        let bytes = run.part.result_bytes() as u64;
        let waited = self.clock.waited();
        if run.step == Step::Executing {
            run.executed = waited;
        }
        match (run.step, run.way) {
            (Step::Filling, _) => {
                let execute = run.part.execute(drive, self.range_sets[lane]);
                self.todo.push_back((lane, Errand::Execute, execute, Content::None));
                (run.step, run.n_open) = (Step::Executing, 1);
                run.given = EXECUTE + time_of(run.part.media_bytes);
            }
            (Step::Executing, Way::Blocks(blocks)) => {
                let (entry, content) = Part::place(drive, results.from, blocks);
                self.todo.push_back((lane, Errand::Place, entry, content));
                (run.step, run.n_open) = (Step::Placing, 1);
                run.given = self.timeout + time_of(bytes);
            }
            (_, way) => {
                let reads = match way {
                    Way::Memory => run.part.reads(drive, results.from),
                    Way::Blocks(blocks) => Part::reads_of_blocks(drive, blocks),
                };
                run.answers = vec![0; run.part.answer_bytes()];
                (run.step, run.n_open) = (Step::Reading, reads.len());
                for (entry, bytes, at) in reads {
                    let read = Content::ToHost(bytes);
                    self.todo.push_back((lane, Errand::Results(at), entry, read));
                }
                run.given = self.timeout + time_of(bytes);
            }
        }
        run.until = waited + run.given;
    }

    /// Takes a part off its lane and adds what it has come to to its batch.
    fn end(&mut self, lane: usize) {
        let Some(run) = self.lanes[lane].take() else { return };
        if run.step == Step::Reading && run.failed.is_none() {
            let time = self.clock.waited().saturating_sub(run.executed);
            let bytes = run.part.result_bytes() as u64;
            self.placement.took(run.way, bytes, time);
        }
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
            self.counted.samples += work.n_samples();
            self.finished.push_back(work.finished());
            self.rest();
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
        let Errand::Results(at) = errand else { return };
        let (begin, n_answers) = (at + from, run.answers.len());
        let (answers, samples) =
            bytes.split_at(n_answers.saturating_sub(begin).min(bytes.len()));
        if let Some(place) = run.answers.get_mut(begin..begin + answers.len()) {
            place.copy_from_slice(answers);
        }
        let of = |work: &&mut Work| work.job.id == run.job;
        let Some(work) = self.works.iter_mut().find(of) else { return };
        let first = (begin + answers.len()).saturating_sub(n_answers);
        let part = run.part.span();
        let begin = part.start + first;
        // What was read beyond the last sample, to whole dwords or blocks, is dropped.
        let n = samples.len().min(part.end.saturating_sub(begin));
        if let Some(place) = work.slot.get_mut(begin..begin + n) {
            // The cache has `samples`, and nobody here reads `place` soon.
            run.samples.add(first, &samples[..n]);
            copy_past_caches(place, &samples[..n]);
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
        } else if !cqe.status.is_success() && matches!(errand, Errand::Place) {
            // The results are still in memory.
            self.placement.close();
            run.way = Way::Memory;
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is the report")]

    use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
    use bothends_core::sample::{Encoding, Extent};
    use bothends_dataset::TableBuilder;
    use bothends_nvme::preprocess::{Head, Kind, Part as Place};
    use bothends_slots::{Ring, RingConfig};

    use super::super::lanes::Layout;
    use super::super::media::Media;
    use super::*;
    use crate::words::address::{BlockRange, BlockUse, MediaAt};

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
            way: Way::Memory,
            executed: Duration::ZERO,
            answers: Vec::new(),
            samples: Sum::default(),
        }
    }

    fn job(id: u64, samples: &[u64]) -> Job {
        Job {
            id: JobId(id),
            epoch: EpochIdx(0),
            batch: BatchIdx(0),
            samples: samples.iter().map(|id| SampleId(*id)).collect(),
            need_ns: 0,
        }
    }

    fn slot() -> HostSlot {
        let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes: 4096 }).unwrap();
        ring.take(Duration::ZERO).unwrap().host().unwrap()
    }

    /// Whoever revokes a batch, or has to make its rows, makes these samples.
    #[test]
    fn samples_that_the_device_did_not_make_are_not_counted() {
        let mut table = TableBuilder::new(Encoding::Opaque);
        let file = table.file("shard").unwrap();
        table.sample(Extent { file, offset: 0, len: 4 }, 0);
        // The device has eight blocks.
        table.sample(Extent { file, offset: 8 * 4096, len: 4 }, 0);
        let table = table.build().unwrap();
        let at = BlockUse { media: MediaAt::Image, scratch: None };
        let media = Media::of(&table, (&at, None), (8, 4096), &mut || Ok(())).unwrap();
        let layout = Layout { records: 4096, table: 4096, results: 4096, most_items: 2 };
        let recipe = (String::new(), 0);
        let terms = Terms { table, media, recipe, seed: 0, sample_bytes: 4, layout };
        let mut floor = floor();
        floor.begin(job(0, &[1, 1]), slot());
        floor.begin(job(1, &[0, 0]), slot());
        floor.revoke(JobId(1));
        floor.start(0, &terms);
        floor.finish();
        assert_eq!((floor.stats().jobs, floor.stats().samples), (2, 0));

        floor.begin(job(2, &[0, 1, 0]), slot());
        while floor.works[0].next_row < 3 {
            floor.start(0, &terms);
            floor.works[0].n_on_lanes = 0;
        }
        floor.finish();
        assert_eq!((floor.stats().jobs, floor.stats().samples), (3, 2));
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
    fn results_that_cannot_be_copied_to_blocks_are_read_from_memory() {
        let mut floor = floor();
        let scratch = BlockRange { first: 4, n_blocks: 4 };
        floor.placement = Placement::new(Some(scratch), 4096);
        let way = Way::Blocks(BlockRange { first: 6, n_blocks: 1 });
        floor.lanes[1] = Some(Run { step: Step::Placing, way, ..run() });
        floor.errands.insert(7, (1, Errand::Place));
        let status = Status::INVALID_FIELD;
        let cqe = Cqe { result: 0, sq_head: 0, sq_id: 0, id: 7, status };
        floor.hear(Heard::Completion(cqe));
        let run = floor.lanes[1].as_ref().unwrap();
        assert_eq!((run.way, run.n_open, &run.failed), (Way::Memory, 0, &None));
        let mut later = (0..99).map(|_| floor.placement.next(1, (1, 4096)));
        assert!(later.all(|way| way == Way::Memory));
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
