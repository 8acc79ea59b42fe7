//! The worker threads of the front: from a record to a sample, finished, in its part of a slot;
//! and whatever is left to do to batches that are made (`make/chores.rs`), which comes first.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::Instant;

use bothends_core::ids::SampleId;
use bothends_core::sample::{Record, SampleKey};
use bothends_dataset::Piece;
use bothends_io::{Bytes, OpenFile};
use bothends_ops::{Damage, Delivery, Finish, Scratch};
use bothends_side_index::{CachedRecord, Name, is_at_rest};
use bothends_slots::Part;
use crossbeam::channel::{Receiver, Sender, select_biased};

use crate::collect::stall::WaitClock;
use crate::make::backlog::Handed;
use crate::make::chores::Chores;
use crate::make::front::Progress;
use crate::make::transcode::{Decoded, Transcoding};
use crate::read::blocks::CachedPiece;
use crate::read::reader::residency::{Residency, Resident, Turn};
use crate::read::source::{Note, Source};
use crate::threads::shutdown::{PATIENCE, Stop};
use crate::threads::times::Meter;

/// A record on its way to a worker, read or not.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) progress: Arc<Progress>,
    pub(crate) row: u32,
    pub(crate) sample: SampleId,
    pub(crate) part: Part,
    pub(crate) piece: Piece,
    pub(crate) record: Arrival,
    /// Where the record is long: it counts until the worker has dropped it.
    pub(crate) handed: Option<Handed>,
}

impl Task {
    /// Bytes of memory that its record has.
    pub(crate) fn record_bytes(&self) -> usize {
        match &self.record {
            Arrival::Read(Ok(found)) => found.bytes.len(),
            Arrival::Read(Err(_))
            | Arrival::Resident(_)
            | Arrival::Cached(_)
            | Arrival::Asked => 0,
        }
    }

    /// Nobody wants its batch any more.
    pub(crate) fn leave_out(self) {
        let Self { progress, part, .. } = self;
        // The joiner can only put the slot together once the part is gone.
        drop(part);
        progress.row_left_out();
    }
}

/// How a record reaches its worker.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// It was read from a file, or could not be.
    Read(Result<Found, String>),
    /// The page cache has it, as far as is known: the worker reads it, or gives it back to the reader.
    Resident(Turn),
    /// It is on a local disk, and the worker reads it: it was fetched before.
    Cached(Box<CachedRecord>),
    /// The worker asks for it (`supplied`): a call that takes long holds up nobody else.
    Asked,
}

/// A record that has been read, and what the side index knows it by.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) bytes: RecordBytes,
    pub(crate) name: Name,
    pub(crate) form: Form,
}

/// What a record's bytes are.
#[derive(Debug)]
pub(crate) enum Form {
    /// Those of its file.
    File,
    /// Those of its file, which the block cache would know by this name.
    Cacheable(Name),
    /// Row groups of the block cache.
    Blocks(Box<CachedPiece>),
}

impl Form {
    /// What was read alone of `file`, or of the block cache in its place.
    pub(crate) fn of(
        source: &Source,
        (sample, file): (SampleId, &OpenFile),
        cached: Option<Box<CachedPiece>>,
    ) -> Self {
        match cached {
            Some(piece) => Self::Blocks(piece),
            None if source.blocks().is_some() && is_at_rest(file.changed_ns()) => {
                Self::Cacheable(source.exact_name(sample, file))
            }
            None => Self::File,
        }
    }
}

/// A record's bytes.
#[derive(Debug)]
pub(crate) enum RecordBytes {
    /// A read of its own.
    Own(Bytes),
    /// A part of a read that brought several records.
    Part(Arc<Bytes>, Range<usize>),
    /// Read once more, or given by the caller.
    Given(Vec<u8>),
    /// A part of what a request to a remote store brought.
    Fetched(bothends_storage::Bytes, Range<usize>),
    /// The beginning of memory that the worker keeps.
    Kept(Vec<u8>, usize),
}

impl Deref for RecordBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Part(bytes, range) => &bytes[range.clone()],
            Self::Given(bytes) => bytes,
            Self::Fetched(bytes, range) => &bytes[range.clone()],
            Self::Kept(memory, len) => &memory[..*len],
        }
    }
}

/// What one worker thread owns.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) source: Arc<Source>,
    /// From the cut to the output; `None` where the cut is the output.
    pub(crate) finish: Option<Arc<Finish>>,
    pub(crate) tasks: Receiver<Task>,
    /// Where it reports what the page cache had.
    pub(crate) residency: Arc<Residency>,
    /// The way back to the reader for what the page cache did not have.
    pub(crate) missed: Sender<Task>,
    pub(crate) chores: Chores,
    /// Where the block cache grows.
    pub(crate) transcoding: Option<Transcoding>,
    pub(crate) kept: Kept,
    pub(crate) waits: Arc<WaitClock>,
    pub(crate) meter: Meter,
    pub(crate) stop: Stop,
}

/// What a worker keeps from sample to sample.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    scratch: Scratch,
    /// What is known of the record being worked on.
    note: Note,
    /// A sample at the cut, on its way to the output.
    cut: Vec<u8>,
    /// Where records are read that the page cache has.
    record: Vec<u8>,
}

impl Kept {
    /// Takes back the memory that a record was read to.
    fn keep(&mut self, bytes: RecordBytes) {
        if let RecordBytes::Kept(memory, _) = bytes {
            self.record = memory;
        }
    }
}

impl Worker {
    /// The loop of a worker thread.
    pub(crate) fn run(mut self) -> Kept {
        let mut kept = std::mem::take(&mut self.kept);
        while !self.stop.is_set() {
            if let Some(transcoding) = &self.transcoding
                && self.tasks.is_empty()
            {
                transcoding.idles();
            }
            // A chore holds up a batch that is made: it comes first.
            select_biased! {
                recv(self.chores.waiting()) -> chore => match chore {
                    Ok(chore) => chore.run(),
                    Err(_) => break,
                },
                recv(self.tasks) -> task => match task {
                    Ok(task) => self.work(task, &mut kept),
                    Err(_) => break,
                },
                default(PATIENCE) => {}
            }
            self.meter.note();
        }
        kept
    }

    fn work(&self, task: Task, kept: &mut Kept) {
        let started = Instant::now();
        if task.progress.is_revoked() {
            return task.leave_out();
        }
        let Some(task) = self.read_resident(task, kept) else { return };
        let Task { progress, row, sample, mut part, piece, record, handed } = task;
        let read = match record {
            Arrival::Read(read) => read,
            Arrival::Cached(record) => self.read_cached(sample, piece, &record),
            Arrival::Asked => {
                match self.source.read_until(sample, piece, Some(&self.stop)) {
                    Ok(bytes) => Ok(Found {
                        bytes: RecordBytes::Given(bytes),
                        name: self.source.name_of_supplied(sample),
                        form: Form::File,
                    }),
                    Err(unmade) => Err(unmade.to_string()),
                }
            }
            // It is in its row.
            Arrival::Resident(_) => {
                drop(part);
                return progress.row_done(row, Ok(None), started.elapsed());
            }
        };
        let result = read.and_then(|read| {
            let key = self.source.key(progress.epoch, sample);
            let work = || self.make(kept, key, (piece, &read), &mut part);
            let made = self.waits.decoding(work);
            kept.keep(read.bytes);
            made
        });
        drop(handed);
        // The joiner can only put the slot together once the part is gone.
        drop(part);
        progress.row_done(row, result, started.elapsed());
    }

    /// The task with its record where the page cache was said to have it; one that is delivered as it is has been
    /// read into its row. Nothing where it went back to the reader.
    fn read_resident(&self, mut task: Task, kept: &mut Kept) -> Option<Task> {
        let Arrival::Resident(turn) = task.record else { return Some(task) };
        let Task { sample, piece, ref mut part, .. } = task;
        let (source, residency) = (&*self.source, &self.residency);
        if source.is_undecoded() {
            if residency.read_into(source, (piece, turn), part) {
                return Some(task);
            }
        } else {
            let key = source.key(task.progress.epoch, sample);
            let mut memory = std::mem::take(&mut kept.record);
            match residency.read(source, (key, piece, turn), &mut memory, &mut kept.note)
            {
                Some(Resident { file, cached, piece, len }) => {
                    task.piece = piece;
                    let (name, bytes) =
                        (source.name(sample, &file), RecordBytes::Kept(memory, len));
                    let form = Form::of(source, (sample, &file), cached);
                    task.record = Arrival::Read(Ok(Found { bytes, name, form }));
                    return Some(task);
                }
                None => kept.record = memory,
            }
        }
        if let Err(unsent) = self.missed.send(task) {
            // Nobody reads any more.
            unsent.into_inner().leave_out();
        }
        None
    }

    /// Reads a record from the record cache; one that is damaged there is fetched again. Blocks.
    fn read_cached(
        &self,
        sample: SampleId,
        piece: Piece,
        record: &CachedRecord,
    ) -> Result<Found, String> {
        let Some(remote) = self.source.remote() else {
            return Err("it is not remote".to_owned());
        };
        let bytes = match remote.cache().and_then(|cache| cache.read(record)) {
            Some(bytes) => RecordBytes::Given(bytes),
            None => {
                let read = self
                    .source
                    .read_until(sample, piece, Some(&self.stop))
                    .map_err(|e| e.to_string())?;
                let (range, bytes) = (0..read.len(), bothends_storage::Bytes::from(read));
                self.source.keep_fetched(remote, (sample, piece), (&bytes, &range));
                RecordBytes::Fetched(bytes, range)
            }
        };
        let name = self.source.name_of_fetched(remote, sample);
        Ok(Found { bytes, name, form: Form::File })
    }

    /// Makes one sample, with what is known of its record; keeps what is new. What is wrong with the
    /// record, where the sample is made all the same.
    fn make(
        &self,
        kept: &mut Kept,
        key: SampleKey,
        (piece, read): (Piece, &Found),
        part: &mut Part,
    ) -> Result<Option<Damage>, String> {
        if let Form::Blocks(blocks) = &read.form {
            let made = match blocks.record(&read.bytes) {
                Some(record) => self.run_recipe(kept, key, record, part),
                None => Err("its outline is broken".to_owned()),
            };
            return match made {
                Ok(()) => {
                    self.was_cached(&read.bytes);
                    Ok(None)
                }
                Err(_) => {
                    let damage = self.make_from_file(kept, key, read.name, part)?;
                    // Else it is not the blocks that are to blame.
                    self.were_damaged(blocks, key.sample);
                    Ok(damage)
                }
            };
        }
        if piece.is_scan() {
            return self.make_from_scan(kept, key, (piece, read), part);
        }
        self.make_from_bytes(kept, key, (piece, read), part)
    }

    /// Makes a sample of rows of its record's scan and of the note that names them, or else of the whole record,
    /// read on this thread.
    fn make_from_scan(
        &self,
        kept: &mut Kept,
        key: SampleKey,
        (piece, read): (Piece, &Found),
        part: &mut Part,
    ) -> Result<Option<Damage>, String> {
        let Found { bytes, name, .. } = read;
        let mut note = std::mem::take(&mut kept.note);
        let index = self.source.side_index();
        let made = match index.and_then(|index| note.take(index, *name)) {
            Some(note) => {
                let mut record = self.source.record(key.sample, piece, bytes)?;
                record.entry_points = note;
                self.run_recipe(kept, key, record, part)
            }
            None => Err("its note is no longer there".to_owned()),
        };
        kept.note = note;
        if made.is_ok() {
            return Ok(None);
        }
        self.make_from_file(kept, key, *name, part)
    }

    fn was_cached(&self, bytes: &[u8]) {
        if let Some(blocks) = self.source.blocks() {
            blocks.cache.was_read(bytes.len() as u64);
        }
    }

    fn were_damaged(&self, blocks: &CachedPiece, sample: SampleId) {
        if let Some(of_run) = self.source.blocks() {
            of_run.was_damaged(blocks, self.source.record_of(sample));
        }
    }

    /// Makes a sample from its whole record, read on this thread, where what was read in place of that is of no use.
    fn make_from_file(
        &self,
        kept: &mut Kept,
        key: SampleKey,
        name: Name,
        part: &mut Part,
    ) -> Result<Option<Damage>, String> {
        let whole = self.source.whole(key.sample);
        let bytes = self
            .source
            .read_until(key.sample, whole, Some(&self.stop))
            .map_err(|e| e.to_string())?;
        let (bytes, form) = (RecordBytes::Given(bytes), Form::File);
        self.make_from_bytes(kept, key, (whole, &Found { bytes, name, form }), part)
    }

    fn make_from_bytes(
        &self,
        kept: &mut Kept,
        key: SampleKey,
        (piece, read): (Piece, &Found),
        part: &mut Part,
    ) -> Result<Option<Damage>, String> {
        let Found { bytes, name, form } = read;
        let mut note = std::mem::take(&mut kept.note);
        let mut record = self.source.record(key.sample, piece, bytes)?;
        let index = self.source.side_index();
        if index.is_some_and(|index| index.look_up(*name, bytes, note.bytes())) {
            record.entry_points = note.bytes();
        }
        let made = self.run_recipe(kept, key, record, part);
        kept.note = note;
        made?;
        let scratch = &kept.scratch;
        let new = scratch.new_entry_points();
        if let Some(index) = index
            && !new.is_empty()
        {
            index.keep(*name, bytes, new);
        }
        if let Some(transcoding) = &self.transcoding
            && let Form::Cacheable(name) = *form
            && scratch.damage().is_none()
        {
            let (sample, pixels) = (key.sample, scratch.source_pixels());
            transcoding.offer(&Decoded { sample, name, bytes, pixels });
        }
        Ok(scratch.damage())
    }

    /// From a record to its sample's place in the slot.
    fn run_recipe(
        &self,
        kept: &mut Kept,
        key: SampleKey,
        record: Record<'_>,
        part: &mut Part,
    ) -> Result<(), String> {
        if self.source.is_undecoded() {
            return Source::put_undecoded(record.bytes, part);
        }
        let Kept { scratch, cut, .. } = kept;
        let pipeline = &self.source.pipeline;
        match &self.finish {
            None => {
                pipeline.run(scratch, key, record, part).map_err(|e| e.to_string())?;
            }
            Some(finish) => {
                let to = Delivery { finish, cut, out: part };
                let made = pipeline.run_to_output(scratch, key, record, to);
                made.map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }
}
