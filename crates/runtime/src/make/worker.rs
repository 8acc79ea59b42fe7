//! The worker threads of the front: from a record to a sample in its part of a slot.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bothends_core::ids::SampleId;
use bothends_core::sample::SampleKey;
use bothends_dataset::Piece;
use bothends_io::Bytes;
use bothends_ops::Scratch;
use bothends_slots::Part;
use crossbeam::channel::{Receiver, RecvTimeoutError};

use crate::collect::stall::StallGauge;
use crate::make::front::Progress;
use crate::read::side_index::Name;
use crate::read::source::Source;
use crate::threads::shutdown::{PATIENCE, Stop};

/// A record that has been read, on its way to a worker.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) progress: Arc<Progress>,
    pub(crate) row: u32,
    pub(crate) sample: SampleId,
    pub(crate) part: Part,
    pub(crate) piece: Piece,
    pub(crate) record: Arrival,
}

/// How a record reaches its worker.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// It was read from a file, or could not be.
    Read(Result<Found, String>),
    /// The worker asks for it (`supplied`): a call that takes long holds up nobody else.
    Asked,
}

/// A record that has been read, and what the side index knows it by.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) bytes: RecordBytes,
    pub(crate) name: Name,
}

/// A record's bytes.
#[derive(Debug)]
pub(crate) enum RecordBytes {
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
