//! The front prong: one thread that reads, and workers that decode.
//!
//! A front batch is shared by all workers: the reader keeps many reads in flight and passes
//! each record on as it arrives, with the piece of the slot that its pixels go to; whichever
//! worker is free takes the next. A slow image therefore never holds a batch back, and one or
//! two batches in flight keep every worker busy (memory: `quota` slots, not one per worker).
//!
//! This module decides nothing: it makes the batches it is given. Policies for bad samples
//! are the feed's (`feed.rs`); who makes which batch is the collector's (`collect.rs`).

use std::collections::{HashMap, VecDeque};
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bothends_accel::Part;
use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::sample::{Extent, SampleKey};
use bothends_dataset::Piece;
use bothends_io::{Bytes, OpenFile, ReadRequest, Reader};
use bothends_ops::Scratch;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender};

use crate::collect::Event;
use crate::shutdown::{PATIENCE, Stop};
use crate::side_index::Name;
use crate::source::Source;
use crate::stall::StallGauge;

/// Most bytes of records that are read together because they lie side by side.
const MOST_TOGETHER: u64 = 128 << 10;

/// Pause between two looks at the reader while it has nothing finished.
const READ_PATIENCE: Duration = Duration::from_millis(20);

/// A batch for the front to make. Its parts are the rows of one slot.
#[derive(Debug)]
pub(crate) struct FrontJob {
    /// Names this submission.
    pub(crate) id: u64,
    pub(crate) epoch: EpochIdx,
    /// Row by row: the sample, or `None` for a masked row, and where its bytes go.
    pub(crate) rows: Vec<(Option<SampleId>, Part)>,
}

/// What the workers of one batch share: who is last reports it.
#[derive(Debug)]
struct Progress {
    id: u64,
    epoch: EpochIdx,
    left: AtomicU32,
    work_ns: AtomicU64,
    /// Rows that could not be made. The feed tries them again and finds out why.
    bad: Mutex<Vec<u32>>,
    tell: Sender<Event>,
}

impl Progress {
    /// One more row is done; the last one reports the batch. The row's part must have been
    /// dropped before.
    fn row_done(&self, row: u32, result: Result<(), String>, spent: Duration) {
        if result.is_err() {
            self.bad.lock().unwrap_or_else(PoisonError::into_inner).push(row);
        }
        let spent_ns = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        // Read after the AcqRel below, by the last row only.
        self.work_ns.fetch_add(spent_ns, Ordering::Relaxed);
        // AcqRel: the last row sees every other row's bytes, time and bad rows.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let mut bad = self.bad.lock().unwrap_or_else(PoisonError::into_inner);
            let mut bad = std::mem::take(&mut *bad);
            bad.sort_unstable();
            let work_ns = self.work_ns.load(Ordering::Relaxed);
            // A collector that is gone needs no answer.
            let _ = self.tell.send(Event::FrontDone { id: self.id, work_ns, bad });
        }
    }
}

/// A record that has been read, on its way to a worker.
#[derive(Debug)]
pub(crate) struct Task {
    progress: Arc<Progress>,
    row: u32,
    sample: SampleId,
    part: Part,
    piece: Piece,
    record: Arrival,
}

/// How a record reaches its worker.
#[derive(Debug)]
enum Arrival {
    /// It was read from a file, or could not be.
    Read(Result<Found, String>),
    /// The worker asks for it (`supplied`): a call that takes long holds up nobody else.
    Asked,
}

/// A record that has been read, and what the side index knows it by.
#[derive(Debug)]
struct Found {
    bytes: RecordBytes,
    name: Name,
}

/// A record's bytes.
#[derive(Debug)]
enum RecordBytes {
    /// A read of its own.
    Own(Bytes),
    /// A part of a read that brought several records.
    Part(Arc<Bytes>, Range<usize>),
    /// Read once more.
    Again(Vec<u8>),
    /// What the caller gave.
    Asked(Vec<u8>),
}

impl Deref for RecordBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Part(bytes, range) => &bytes[range.clone()],
            Self::Again(bytes) | Self::Asked(bytes) => bytes,
        }
    }
}

/// What the reader thread owns for one epoch.
#[derive(Debug)]
pub(crate) struct ReadStage {
    pub(crate) source: Arc<Source>,
    pub(crate) reader: Box<dyn Reader>,
    pub(crate) jobs: Receiver<FrontJob>,
    pub(crate) tasks: Sender<Task>,
    pub(crate) tell: Sender<Event>,
    pub(crate) stop: Stop,
}

/// A row waiting for its record.
#[derive(Debug)]
struct Waiting {
    progress: Arc<Progress>,
    row: u32,
    sample: SampleId,
    part: Part,
    piece: Piece,
}

/// A read on its way.
#[derive(Debug)]
struct InFlight {
    /// Whose record it brings.
    first: (Waiting, Name),
    /// Whose records follow that one without a gap.
    others: Vec<(Waiting, Name)>,
}

impl InFlight {
    fn offset(&self) -> u64 {
        self.first.0.piece.extent.offset
    }

    /// The offset behind its last byte.
    fn end(&self) -> u64 {
        end_of(self.others.last().unwrap_or(&self.first).0.piece.extent)
    }

    fn members(self) -> impl DoubleEndedIterator<Item = (Waiting, Name)> {
        std::iter::once(self.first).chain(self.others)
    }
}

/// The offset behind an extent.
fn end_of(extent: Extent) -> u64 {
    extent.offset.saturating_add(u64::from(extent.len))
}

impl ReadStage {
    /// The loop of the reader thread. Returns the reader for the next epoch.
    pub(crate) fn run(mut self) -> Box<dyn Reader> {
        let mut queue = VecDeque::new();
        let mut in_flight = HashMap::new();
        let mut next_tag = 0;
        while !self.stop.is_set() {
            if queue.is_empty() && in_flight.is_empty() {
                match self.jobs.recv_timeout(PATIENCE) {
                    Ok(job) => self.unpack(job, &mut queue),
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            while let Ok(job) = self.jobs.try_recv() {
                self.unpack(job, &mut queue);
            }
            self.submit(&mut queue, &mut in_flight, &mut next_tag);
            if in_flight.is_empty() {
                continue;
            }
            let Some(done) = self.reader.poll(READ_PATIENCE) else { continue };
            let Some(read) = in_flight.remove(&done.tag) else { continue };
            match done.result {
                Ok(bytes) => self.arrived(read, bytes),
                Err(error) => self.failed(read, &error.to_string()),
            }
        }
        while !in_flight.is_empty() {
            match self.reader.poll(PATIENCE) {
                Some(done) => drop(in_flight.remove(&done.tag)),
                None => break,
            }
        }
        self.reader
    }

    fn unpack(&self, job: FrontJob, queue: &mut VecDeque<Waiting>) {
        let n_rows = u32::try_from(job.rows.len()).unwrap_or(u32::MAX);
        let progress = Arc::new(Progress {
            id: job.id,
            epoch: job.epoch,
            // One more than the rows: an empty batch is reported too, and none too early.
            left: AtomicU32::new(n_rows.saturating_add(1)),
            work_ns: AtomicU64::new(0),
            bad: Mutex::new(Vec::new()),
            tell: self.tell.clone(),
        });
        let before = queue.len();
        for (row, (sample, mut part)) in (0..n_rows).zip(job.rows) {
            match sample {
                Some(sample) => {
                    queue.push_back(Waiting {
                        progress: Arc::clone(&progress),
                        row,
                        sample,
                        part,
                        piece: self.source.piece(self.source.key(job.epoch, sample)),
                    });
                }
                None => {
                    part.fill(0);
                    drop(part);
                    progress.row_done(row, Ok(()), Duration::ZERO);
                }
            }
        }
        progress.row_done(n_rows, Ok(()), Duration::ZERO);
        // In the order of their places, so that neighbours meet; rows keep their numbers.
        let place = |w: &Waiting| (w.piece.extent.file, w.piece.extent.offset);
        queue.make_contiguous()[before..].sort_by_key(place);
    }

    fn submit(
        &mut self,
        queue: &mut VecDeque<Waiting>,
        in_flight: &mut HashMap<u64, InFlight>,
        next_tag: &mut u64,
    ) {
        while self.reader.in_flight() < self.reader.depth() {
            let Some(first) = queue.pop_front() else { return };
            if self.source.records().is_some() {
                self.pass_on(first, Arrival::Asked);
                continue;
            }
            let file = match self.source.open_file(first.piece.extent.file) {
                Ok(file) => file,
                Err(why) => {
                    self.pass_on(first, Arrival::Read(Err(why)));
                    continue;
                }
            };
            let read = self.together(first, &file, queue);
            let len = u32::try_from(read.end() - read.offset()).unwrap_or(u32::MAX);
            let tag = *next_tag;
            let request = ReadRequest { file, offset: read.offset(), len, tag };
            if self.reader.submit(request).is_err() {
                read.members().rev().for_each(|(w, _)| queue.push_front(w));
                return;
            }
            *next_tag += 1;
            in_flight.insert(tag, read);
        }
    }

    /// One read for `first` and those behind it whose records follow on its own.
    fn together(
        &self,
        first: Waiting,
        file: &OpenFile,
        queue: &mut VecDeque<Waiting>,
    ) -> InFlight {
        let name = self.source.name(first.sample, file);
        let mut read = InFlight { first: (first, name), others: Vec::new() };
        while let Some(next) = queue.front() {
            let next = next.piece.extent;
            let follows = next.file == read.first.0.piece.extent.file
                && next.offset == read.end()
                && end_of(next) - read.offset() <= MOST_TOGETHER;
            if !follows {
                break;
            }
            if let Some(next) = queue.pop_front() {
                let name = self.source.name(next.sample, file);
                read.others.push((next, name));
            }
        }
        read
    }

    /// Passes on what a read brought.
    fn arrived(&self, read: InFlight, bytes: Bytes) {
        if read.others.is_empty() {
            let (waiting, name) = read.first;
            let found = Found { bytes: RecordBytes::Own(bytes), name };
            return self.pass_on(waiting, Arrival::Read(Ok(found)));
        }
        let (offset, bytes) = (read.offset(), Arc::new(bytes));
        for (waiting, name) in read.members() {
            let extent = waiting.piece.extent;
            let start = usize::try_from(extent.offset - offset).unwrap_or(0);
            let range = start..start + extent.len as usize;
            let bytes = RecordBytes::Part(Arc::clone(&bytes), range);
            self.pass_on(waiting, Arrival::Read(Ok(Found { bytes, name })));
        }
    }

    /// Of records that were read together nobody knows which is to blame: each is read once
    /// more, alone.
    fn failed(&self, read: InFlight, why: &str) {
        let is_one = read.others.is_empty();
        for (waiting, name) in read.members() {
            let again = match is_one {
                true => Err(why.to_owned()),
                false => self.source.read(waiting.sample, waiting.piece),
            };
            let found =
                again.map(|bytes| Found { bytes: RecordBytes::Again(bytes), name });
            self.pass_on(waiting, Arrival::Read(found));
        }
    }

    /// Hands a record to the workers; waits while their queue is full.
    fn pass_on(&self, waiting: Waiting, record: Arrival) {
        let Waiting { progress, row, sample, part, piece } = waiting;
        let mut task = Task { progress, row, sample, part, piece, record };
        while !self.stop.is_set() {
            match self.tasks.send_timeout(task, PATIENCE) {
                Ok(()) => return,
                Err(back) => task = back.into_inner(),
            }
        }
    }
}

/// What one worker thread owns for one epoch.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) source: Arc<Source>,
    pub(crate) tasks: Receiver<Task>,
    /// Lent for the epoch: it has grown to the largest image, and growing again in each
    /// epoch would leave holes in memory.
    pub(crate) scratch: Scratch,
    /// What is known of the record being worked on.
    pub(crate) note: Vec<u8>,
    pub(crate) gauge: Arc<StallGauge>,
    pub(crate) stop: Stop,
}

impl Worker {
    /// The loop of a worker thread.
    pub(crate) fn run(mut self) -> Scratch {
        let mut scratch = std::mem::take(&mut self.scratch);
        while !self.stop.is_set() {
            match self.tasks.recv_timeout(PATIENCE) {
                Ok(task) => self.work(task, &mut scratch),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        scratch
    }

    fn work(&mut self, task: Task, scratch: &mut Scratch) {
        // A gauge for stall attribution; it orders nothing.
        self.gauge.busy_workers.fetch_add(1, Ordering::Relaxed);
        let started = Instant::now();
        let Task { progress, row, sample, mut part, piece, record } = task;
        let read = match record {
            Arrival::Read(read) => read,
            Arrival::Asked => self.source.read(sample, piece).map(|bytes| Found {
                bytes: RecordBytes::Asked(bytes),
                name: self.source.name_of_supplied(sample),
            }),
        };
        let result = read.and_then(|read| {
            let key = self.source.key(progress.epoch, sample);
            self.make(scratch, key, (piece, &read), &mut part)
        });
        // The joiner can only put the slot together once the part is gone.
        drop(part);
        progress.row_done(row, result, started.elapsed());
        self.gauge.busy_workers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Makes one sample, with what is known of its record; keeps what is new.
    fn make(
        &mut self,
        scratch: &mut Scratch,
        key: SampleKey,
        (piece, read): (Piece, &Found),
        part: &mut Part,
    ) -> Result<(), String> {
        let Found { bytes, name } = read;
        let mut record = self.source.record(key.sample, piece, bytes)?;
        let index = self.source.side_index();
        if index.is_some_and(|index| index.look_up(*name, bytes, &mut self.note)) {
            record.entry_points = &self.note;
        }
        let made = self.source.pipeline.run(scratch, key, record, part);
        made.map_err(|e| e.to_string())?;
        let new = scratch.new_entry_points();
        if let Some(index) = index
            && !new.is_empty()
        {
            index.keep(*name, bytes, new);
        }
        Ok(())
    }
}
