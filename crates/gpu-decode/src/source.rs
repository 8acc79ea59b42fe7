//! Where samples come from: for each its description, its bytes, and the host's own way to make it.
//!
//! [`Source`] is what a [`GpuProng`](crate::GpuProng) asks for; [`TableSource`] is the one over a
//! table of extents. Of a store's record only the row groups below the box are read, of a JPEG that
//! the side index describes only the rows of MCUs: nothing of its headers, and nothing is hashed
//! by the host.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::{Decision, Size};
use bothends_core::sample::{Encoding, Extent, FileIdx, SampleKey};
use bothends_dataset::Table;
use bothends_io::{Files, OpenFile, ReadInto, Reader};
use bothends_ops::jpeg::ScanNote;
use bothends_ops::resize::Crop;
use bothends_ops::{Damage, Pipeline, Scratch};
use bothends_side_index::{Name, SideIndex, Wait};

use crate::{Batch, NotHere, Placed};

/// Bytes that a sample needs, and where they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The file.
    pub file: FileIdx,
    /// The first byte in it.
    pub offset: u64,
    /// How many.
    pub len: usize,
    /// The byte of the upload that the first goes to.
    pub at: u32,
    /// Bytes of the upload that may be written to for it: its own are among them.
    pub room: Range<u32>,
}

impl Reading {
    /// What is placed of a record that begins at byte `record_at` of `file`.
    fn new(placed: Placed, file: FileIdx, record_at: u64) -> Result<Self, NotHere> {
        let Placed { bytes, at, room } = placed;
        let len = usize::try_from(bytes.end - bytes.start);
        let len = len.map_err(|_| NotHere::NoRoom)?;
        Ok(Self { file, offset: record_at + bytes.start, len, at, room })
    }
}

/// Samples to be made.
pub trait Source: Debug + Send {
    /// Adds a sample to `batch` as row `row`; what is to be read for it. Does not read the
    /// sample's own bytes.
    ///
    /// # Errors
    /// [`NotHere`] where the GPU cannot make it: `batch` is then as before.
    fn describe(
        &mut self,
        key: (EpochIdx, SampleId),
        row: u32,
        batch: &mut Batch,
    ) -> Result<Reading, NotHere>;

    /// Reads what [`Self::describe`] asked for of some samples, in the order in which it did, each
    /// to its place in `upload`: several at a time, where storage allows. What became of each.
    /// Blocks until none is on its way.
    ///
    /// # Errors
    /// Of each, one line: it cannot be read. What is in its room then means nothing.
    fn read(
        &mut self,
        readings: &[Reading],
        upload: &mut [u8],
    ) -> Vec<Result<(), String>>;

    /// Makes a sample on the host, wherever the GPU could not, or says that it is bad; with what is
    /// wrong with its record where it is made all the same.
    ///
    /// # Errors
    /// One line: it cannot be made.
    fn make(
        &mut self,
        key: (EpochIdx, SampleId),
        out: &mut [u8],
    ) -> Result<Option<Damage>, String>;
}

/// A data set as its table has it, on storage that this process reads.
#[derive(Debug)]
pub struct TableSource {
    /// Where records lie.
    pub table: Arc<Table>,
    /// Open files.
    pub files: Arc<Files>,
    /// Reads them.
    pub reader: Box<dyn Reader>,
    /// What earlier epochs left to know; without it plain JPEGs go through the host.
    pub side_index: Option<Arc<SideIndex>>,
    /// The recipe up to the cut.
    pub pipeline: Pipeline,
    /// The run's seed.
    pub seed: u64,
    /// Memory that stays from sample to sample.
    pub memory: Memory,
}

/// Memory of a [`TableSource`].
#[derive(Debug, Default)]
pub struct Memory {
    decision: Decision,
    scratch: Scratch,
    record: Vec<u8>,
    note: Vec<u8>,
}

impl TableSource {
    fn key(&self, (epoch, sample): (EpochIdx, SampleId)) -> SampleKey {
        SampleKey { seed: self.seed, epoch, sample }
    }

    fn open(&self, file: FileIdx) -> Result<Arc<OpenFile>, String> {
        let opened = self.files.open(file, || self.table.file_path(file));
        opened.map_err(|error| error.to_string())
    }

    /// The crop that is all of the sample.
    fn crop(&mut self, key: SampleKey, size: Size) -> Result<Crop, NotHere> {
        let crop = self.pipeline.only_crop_of(key, size, &mut self.memory.decision);
        // What the host refuses it refuses again, with its reason.
        crop.ok().flatten().ok_or(NotHere::OtherSteps)
    }

    fn describe_jpeg(
        &mut self,
        key: SampleKey,
        row: u32,
        batch: &mut Batch,
    ) -> Result<Reading, NotHere> {
        let Extent { file, offset, len } = self.table.extent(key.sample);
        let index = self.side_index.clone().ok_or(NotHere::OtherForm)?;
        let open = self.open(file).map_err(|_| NotHere::OtherForm)?;
        batch.read_by(offset, open.block());
        let index_key = self.table.index_key(key.sample);
        let name = Name::of_file(index_key, open.age(), open.changed_ns());
        let mut bytes = std::mem::take(&mut self.memory.note);
        // A file that is kept open may have changed since.
        let is_known =
            open.is_unchanged() && index.note_of(name, &mut bytes, Wait::ForDisk);
        let note = ScanNote::read(&bytes).filter(|_| is_known).ok_or(NotHere::OtherForm);
        let placed = note.and_then(|note| {
            let crop = self.crop(key, note.size())?;
            batch.add_jpeg(row, (&note, len), &crop)
        });
        self.memory.note = bytes;
        Reading::new(placed?, file, offset)
    }
}

impl Source for TableSource {
    fn describe(
        &mut self,
        key: (EpochIdx, SampleId),
        row: u32,
        batch: &mut Batch,
    ) -> Result<Reading, NotHere> {
        let key = self.key(key);
        if self.table.encoding() != Encoding::Image {
            return Err(NotHere::OtherForm);
        }
        let table = Arc::clone(&self.table);
        let Some(blocks) = table.blocks(key.sample) else {
            return self.describe_jpeg(key, row, batch);
        };
        let crop = self.crop(key, blocks.head().size)?;
        let Extent { file, offset, .. } = table.extent(key.sample);
        // One that cannot be opened is not read either.
        let block = self.open(file).map_or(1, |open| open.block());
        batch.read_by(offset, block);
        let placed = batch.add_stored(row, blocks, &crop)?;
        Reading::new(placed, file, offset)
    }

    fn read(
        &mut self,
        readings: &[Reading],
        upload: &mut [u8],
    ) -> Vec<Result<(), String>> {
        let files: Vec<_> =
            readings.iter().map(|reading| self.open(reading.file)).collect();
        let mut reads = Vec::with_capacity(readings.len());
        let (mut rest, mut passed) = (upload, 0);
        for (reading, file) in readings.iter().zip(&files) {
            let Ok(file) = file else { continue };
            let [begin, end] = [reading.room.start, reading.room.end].map(|n| n as usize);
            let (_, behind) = rest.split_at_mut(begin - passed);
            let (room, behind) = behind.split_at_mut(end - begin);
            (rest, passed) = (behind, end);
            let (offset, len, at) = (reading.offset, reading.len, reading.at as usize);
            reads.push(ReadInto { file, offset, len, room, at: at - begin });
        }
        let mut ended = self.reader.read_all(&mut reads).into_iter();
        let of_each = |file: &Result<Arc<OpenFile>, String>| {
            file.as_ref().map_err(String::clone)?;
            let ended = ended.next().expect("one for each that was begun");
            ended.map_err(|error| error.to_string())
        };
        files.iter().map(of_each).collect()
    }

    fn make(
        &mut self,
        key: (EpochIdx, SampleId),
        out: &mut [u8],
    ) -> Result<Option<Damage>, String> {
        let key = self.key(key);
        let table = Arc::clone(&self.table);
        let pipeline = &self.pipeline;
        let piece =
            table.piece(key.sample, |blocks| pipeline.groups_for(key, blocks).ok());
        let Extent { file, offset, len } = piece.extent;
        let file = self.open(file)?;
        let Memory { scratch, record, note, .. } = &mut self.memory;
        record.resize(len as usize, 0);
        let read = self.reader.read_into(&file, offset, record);
        read.map_err(|error| error.to_string())?;
        let opened = table.record(key.sample, piece, record);
        let mut opened = opened.map_err(|error| error.to_string())?;
        let index_key = table.index_key(key.sample);
        let name = Name::of_file(index_key, file.age(), file.changed_ns());
        let index = self.side_index.as_ref();
        if index.is_some_and(|index| index.look_up(name, record, note)) {
            opened.entry_points = note;
        }
        pipeline.run(scratch, key, opened, out).map_err(|error| error.to_string())?;
        // The next epoch's sample of it is then the GPU's.
        let new = scratch.new_entry_points();
        if let Some(index) = index
            && !new.is_empty()
        {
            index.keep(name, record, new);
        }
        Ok(scratch.damage())
    }
}
