//! The reader thread of the front: from a job's rows to their records, on the way to workers.
//!
//! It opens files, keeps as many reads on their way as the reader takes, and reads records
//! that lie side by side together.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bothends_core::ids::SampleId;
use bothends_core::sample::Extent;
use bothends_dataset::Piece;
use bothends_io::{Bytes, OpenFile, ReadRequest, Reader};
use bothends_slots::Part;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender};

use crate::make::front::{FrontJob, Progress};
use crate::make::worker::{Arrival, Found, RecordBytes, Task};
use crate::read::side_index::Name;
use crate::read::source::Source;
use crate::threads::shutdown::{PATIENCE, Stop};

/// Most bytes of records that are read together because they lie side by side.
const MOST_TOGETHER: u64 = 128 << 10;

/// Pause between two looks at the reader while it has nothing finished.
const READ_PATIENCE: Duration = Duration::from_millis(20);

/// What the reader thread owns for one epoch.
#[derive(Debug)]
pub(crate) struct ReadStage {
    pub(crate) source: Arc<Source>,
    pub(crate) reader: Box<dyn Reader>,
    pub(crate) jobs: Receiver<FrontJob>,
    pub(crate) tasks: Sender<Task>,
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
        let before = queue.len();
        for (row, (sample, part)) in (0..).zip(job.rows) {
            let progress = Arc::clone(&job.progress);
            let piece = self.source.piece(self.source.key(progress.epoch, sample));
            queue.push_back(Waiting { progress, row, sample, part, piece });
        }
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
