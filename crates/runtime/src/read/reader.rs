//! The reader thread of the front: from a job's rows to their records, on the way to workers.
//!
//! It has files opened (`opener.rs`), keeps as many reads on their way as the reader takes, and
//! reads records that lie side by side together. What the page cache has, workers read themselves
//! (`reader/residency.rs`).

pub(crate) mod residency;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bothends_core::ids::SampleId;
use bothends_core::sample::{Extent, FileIdx};
use bothends_dataset::Piece;
use bothends_io::{Bytes, OpenFile, ReadDone, ReadRequest, Reader};
use bothends_side_index::Wait;
use bothends_slots::Part;
use crossbeam::channel::{Receiver, Sender, select};

use crate::make::backlog::Backlog;
use crate::make::front::{FrontJob, Progress};
use crate::make::worker::{Arrival, Form, Found, RecordBytes, Task};
use crate::read::blocks::CachedPiece;
use crate::read::opener::{Open, Opened, Opener};
use crate::read::reader::residency::{Guess, MOST_BYTES, Residency};
use crate::read::source::{Note, Source};
use crate::threads::shutdown::{PATIENCE, Stop};
use crate::threads::times::Meter;

/// Most bytes of records that are read together because they lie side by side.
const MOST_TOGETHER: u64 = 128 << 10;

/// Pause between two looks at the reader while it has nothing finished.
const READ_PATIENCE: Duration = Duration::from_millis(20);

/// Pause between two looks at the workers while they have too many bytes.
const ROOM_PATIENCE: Duration = Duration::from_millis(1);

/// What the reader thread owns.
#[derive(Debug)]
pub(crate) struct ReadStage {
    pub(crate) source: Arc<Source>,
    pub(crate) reader: Box<dyn Reader>,
    pub(crate) jobs: Receiver<FrontJob>,
    pub(crate) tasks: Sender<Task>,
    pub(crate) backlog: Arc<Backlog>,
    /// What workers are to read themselves.
    pub(crate) guess: Guess,
    /// As many records as wait for workers while this thread has time to read what the page cache has, too.
    pub(crate) n_ahead: usize,
    pub(crate) residency: Arc<Residency>,
    /// What they could not.
    pub(crate) missed: Receiver<Task>,
    pub(crate) meter: Meter,
    pub(crate) notes: Sender<String>,
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
    /// Whether a worker has looked for it in the page cache.
    is_missed: bool,
}

/// Rows whose records one read brings: they lie in one file, without a gap.
#[derive(Debug)]
struct Together {
    first: Waiting,
    others: Vec<Waiting>,
}

impl Together {
    fn file(&self) -> FileIdx {
        self.first.piece.extent.file
    }

    fn offset(&self) -> u64 {
        self.first.piece.extent.offset
    }

    /// The offset behind its last byte.
    fn end(&self) -> u64 {
        end_of(self.others.last().unwrap_or(&self.first).piece.extent)
    }

    fn members(self) -> impl Iterator<Item = Waiting> {
        std::iter::once(self.first).chain(self.others)
    }
}

/// A read on its way: whose records it brings, and from which file.
#[derive(Debug)]
struct InFlight {
    rows: Together,
    file: Arc<OpenFile>,
    /// Where it brings row groups of the block cache in place of the only row's record.
    cached: Option<Box<CachedPiece>>,
}

/// What is between jobs and records.
#[derive(Debug)]
struct Way {
    /// Rows that no file has been opened for.
    queue: VecDeque<Waiting>,
    /// Those that workers have given back, which come first.
    missed: VecDeque<Waiting>,
    opener: Opener<Together>,
    /// By the tags of their requests.
    in_flight: HashMap<u64, InFlight>,
    next_tag: u64,
    /// Bytes that have been counted of those that the reader has read.
    counted: u64,
    /// Of the record that is about to be read.
    note: Note,
}

impl Way {
    fn new(opener: Opener<Together>) -> Self {
        let (queue, missed) = (VecDeque::new(), VecDeque::new());
        let (in_flight, note) = (HashMap::new(), Note::default());
        Self { queue, missed, opener, in_flight, next_tag: 0, counted: 0, note }
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty()
            && self.missed.is_empty()
            && self.opener.is_idle()
            && self.in_flight.is_empty()
    }
}

/// The offset behind an extent.
fn end_of(extent: Extent) -> u64 {
    extent.offset.saturating_add(u64::from(extent.len))
}

impl Waiting {
    /// What a worker gave back.
    fn again(task: Task) -> Self {
        let Task { progress, row, sample, part, piece, record: _, handed: _ } = task;
        Self { progress, row, sample, part, piece, is_missed: true }
    }

    fn with(self, record: Arrival) -> Task {
        let Self { progress, row, sample, part, piece, is_missed: _ } = self;
        Task { progress, row, sample, part, piece, record, handed: None }
    }

    /// Nobody wants its batch any more.
    fn leave_out(self) {
        self.with(Arrival::Asked).leave_out();
    }
}

/// One read for `first` and those behind it whose records follow on its own.
fn together(first: Waiting, queue: &mut VecDeque<Waiting>) -> Together {
    let mut rows = Together { first, others: Vec::new() };
    while let Some(next) = queue.front() {
        let next = next.piece.extent;
        let follows = next.file == rows.file()
            && next.offset == rows.end()
            && end_of(next) - rows.offset() <= MOST_TOGETHER;
        if !follows {
            break;
        }
        rows.others.extend(queue.pop_front());
    }
    rows
}

impl ReadStage {
    /// The loop of the reader thread.
    pub(crate) fn run(mut self) {
        let files = Arc::clone(&self.source) as Arc<dyn Open>;
        let opener = Opener::new(files, self.meter.times(), self.notes.clone());
        let mut way = Way::new(opener);
        while !self.stop.is_set() {
            if way.is_empty() && !self.take_one(&mut way) {
                break;
            }
            way.missed.extend(self.missed.try_iter().map(Waiting::again));
            while let Ok(job) = self.jobs.try_recv() {
                self.unpack(job, &mut way.queue);
            }
            self.submit(&mut way);
            self.meter.note();
            if way.in_flight.is_empty() {
                // Nothing can be read before a file is open.
                way.opener.wait(READ_PATIENCE);
                continue;
            }
            if let Some(done) = self.reader.poll(READ_PATIENCE) {
                self.ended(done, &mut way);
            }
        }
        while !way.in_flight.is_empty() {
            match self.reader.poll(PATIENCE) {
                Some(done) => drop(way.in_flight.remove(&done.tag)),
                None => break,
            }
        }
    }

    /// Passes on what a read brought, or has its records read again.
    fn ended(&self, done: ReadDone, way: &mut Way) {
        let n_bytes = self.reader.bytes_read();
        let more = n_bytes - std::mem::replace(&mut way.counted, n_bytes);
        self.residency.read_bytes.fetch_add(more, Ordering::Relaxed);
        let Some(read) = way.in_flight.remove(&done.tag) else { return };
        match done.result {
            Ok(bytes) => self.arrived(read, bytes),
            Err(error) => self.failed(read, &error.to_string()),
        }
    }

    /// Takes what has come in the meantime, without waiting for it.
    fn catch_up(&mut self, way: &mut Way) {
        way.missed.extend(self.missed.try_iter().map(Waiting::again));
        while !way.in_flight.is_empty()
            && let Some(done) = self.reader.poll(Duration::ZERO)
        {
            self.ended(done, way);
        }
    }

    /// Waits a while for something to do; false when nobody is left to give anything.
    fn take_one(&self, way: &mut Way) -> bool {
        select! {
            recv(self.jobs) -> job => match job {
                Ok(job) => self.unpack(job, &mut way.queue),
                Err(_) => return false,
            },
            recv(self.missed) -> task => match task {
                Ok(task) => way.missed.push_back(Waiting::again(task)),
                Err(_) => return false,
            },
            default(PATIENCE) => {}
        }
        true
    }

    fn unpack(&self, job: FrontJob, queue: &mut VecDeque<Waiting>) {
        let before = queue.len();
        for (row, (sample, part)) in (0..).zip(job.rows) {
            let progress = Arc::clone(&job.progress);
            let piece = self.source.piece(self.source.key(progress.epoch, sample));
            let is_missed = false;
            queue.push_back(Waiting { progress, row, sample, part, piece, is_missed });
        }
        // In the order of their places, so that neighbours meet; rows keep their numbers.
        let place = |w: &Waiting| (w.piece.extent.file, w.piece.extent.offset);
        queue.make_contiguous()[before..].sort_by_key(place);
    }

    fn submit(&mut self, way: &mut Way) {
        while self.reader.in_flight() < self.reader.depth() {
            let Some((mut rows, opened)) = self.next_open(way) else { return };
            let file = match opened {
                Ok(file) => file,
                Err(why) => {
                    for row in rows.members() {
                        self.pass_on(row, Arrival::Read(Err(why.clone())));
                    }
                    continue;
                }
            };
            let tag = way.next_tag;
            let cached = self.cached(&rows, &file);
            if cached.is_none() {
                self.narrow(&mut rows, &file, &mut way.note);
            }
            let request = match cached.as_deref() {
                Some(CachedPiece { file, offset, len, .. }) => ReadRequest {
                    file: Arc::clone(file),
                    offset: *offset,
                    len: *len,
                    tag,
                },
                None => {
                    let offset = rows.offset();
                    let len = u32::try_from(rows.end() - offset).unwrap_or(u32::MAX);
                    ReadRequest { file: Arc::clone(&file), offset, len, tag }
                }
            };
            if self.reader.submit(request).is_err() {
                way.opener.put_back(rows, Ok(file));
                return;
            }
            way.next_tag += 1;
            way.in_flight.insert(tag, InFlight { rows, file, cached });
        }
    }

    /// What the block cache has for these rows; it has nothing for several together.
    fn cached(&self, rows: &Together, file: &OpenFile) -> Option<Box<CachedPiece>> {
        self.source.blocks().filter(|_| rows.others.is_empty())?;
        let key = self.source.key(rows.first.progress.epoch, rows.first.sample);
        self.source.cached(key, file).map(Box::new)
    }

    /// Limits the read of a single record to what its sample needs.
    fn narrow(&self, rows: &mut Together, file: &OpenFile, note: &mut Note) {
        let Together { first, others } = rows;
        if others.is_empty() {
            let key = self.source.key(first.progress.epoch, first.sample);
            let narrowed =
                self.source.narrowed((key, first.piece), file, note, Wait::Never);
            first.piece = narrowed;
        }
    }

    /// The next rows whose file is open, or cannot be opened; `None` when there are none yet.
    fn next_open(&mut self, way: &mut Way) -> Option<(Together, Opened)> {
        loop {
            if let Some(open) = way.opener.next() {
                return Some(open);
            }
            if way.opener.is_full() {
                return None;
            }
            let first = way.missed.pop_front().or_else(|| way.queue.pop_front())?;
            if first.progress.is_revoked() {
                first.leave_out();
                continue;
            }
            if self.source.records().is_some() {
                self.pass_on(first, Arrival::Asked);
                continue;
            }
            let rows = match first.is_missed {
                true => Together { first, others: Vec::new() },
                false => together(first, &mut way.queue),
            };
            if self.is_for_worker(&rows, way)
                && let Some(turn) = self.guess.resident(self.residency.tally())
            {
                self.residency.begin(turn);
                self.pass_on(rows.first, Arrival::Resident(turn));
                // It may have waited for room: others do not wait for all that is handed out.
                self.catch_up(way);
                continue;
            }
            if let Some(open) = way.opener.open(rows.file(), rows) {
                return Some(open);
            }
        }
    }

    /// Whether a worker may read these rows, if the page cache has them.
    fn is_for_worker(&self, rows: &Together, way: &Way) -> bool {
        let Waiting { piece, is_missed, .. } = &rows.first;
        let is_quickly_open =
            || !way.opener.is_slow() || self.source.known(rows.file()).is_some();
        rows.others.is_empty()
            && !is_missed
            && piece.extent.len <= MOST_BYTES
            && self.tasks.len() < self.n_ahead
            && is_quickly_open()
    }

    /// Passes on what a read brought.
    fn arrived(&self, InFlight { rows, file, cached }: InFlight, bytes: Bytes) {
        let name = |row: &Waiting| self.source.name(row.sample, &file);
        if rows.others.is_empty() {
            let (row, bytes) = (rows.first, RecordBytes::Own(bytes));
            let form = Form::of(&self.source, (row.sample, &file), cached);
            let found = Found { bytes, name: name(&row), form };
            return self.pass_on(row, Arrival::Read(Ok(found)));
        }
        let (offset, bytes) = (rows.offset(), Arc::new(bytes));
        for row in rows.members() {
            let extent = row.piece.extent;
            let start = usize::try_from(extent.offset - offset).unwrap_or(0);
            let range = start..start + extent.len as usize;
            let bytes = RecordBytes::Part(Arc::clone(&bytes), range);
            let found = Found { bytes, name: name(&row), form: Form::File };
            self.pass_on(row, Arrival::Read(Ok(found)));
        }
    }

    /// Of records that were read together nobody knows which is to blame: each is read once
    /// more, alone. So is one that was looked for in the block cache, which is damaged then.
    fn failed(&self, InFlight { rows, file, cached }: InFlight, why: &str) {
        let is_one = rows.others.is_empty() && cached.is_none();
        if let Some((piece, blocks)) = cached.zip(self.source.blocks()) {
            blocks.was_damaged(&piece, self.source.record_of(rows.first.sample));
        }
        for row in rows.members() {
            let again = match is_one {
                true => Err(why.to_owned()),
                false => {
                    let read = self.source.read(row.sample, row.piece);
                    read.map_err(|unmade| unmade.to_string())
                }
            };
            let name = self.source.name(row.sample, &file);
            let found = again.map(|bytes| Found {
                bytes: RecordBytes::Given(bytes),
                name,
                form: Form::File,
            });
            self.pass_on(row, Arrival::Read(found));
        }
    }

    /// Hands a record to the workers; waits while their queue is full, or they have too many bytes.
    fn pass_on(&self, waiting: Waiting, record: Arrival) {
        let mut task = waiting.with(record);
        let n_bytes = task.record_bytes();
        while !self.backlog.has_room(n_bytes) && !self.stop.is_set() {
            // They have long records to make: that takes longer.
            std::thread::sleep(ROOM_PATIENCE);
        }
        task.handed = self.backlog.hand(n_bytes);
        while !self.stop.is_set() {
            match self.tasks.send_timeout(task, PATIENCE) {
                Ok(()) => return,
                Err(back) => task = back.into_inner(),
            }
        }
    }
}
