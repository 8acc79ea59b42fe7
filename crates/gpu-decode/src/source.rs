//! Where samples come from: for each its description, its bytes, and the host's own way to make it.
//!
//! [`Source`] is what a [`GpuProng`](crate::GpuProng) asks for; [`TableSource`] is the one over a
//! table of extents. Of a store's record only the row groups below the box are read, of a JPEG that
//! the side index describes only the rows of MCUs: nothing of its headers, and nothing is hashed
//! by the host.

use std::fmt::Debug;
use std::sync::Arc;

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::{Decision, Size};
use bothends_core::sample::{Encoding, Extent, FileIdx, SampleKey};
use bothends_dataset::Table;
use bothends_io::{Files, OpenFile, Reader};
use bothends_ops::jpeg::ScanNote;
use bothends_ops::resize::Crop;
use bothends_ops::{Damage, Pipeline, Scratch};
use bothends_side_index::{Name, SideIndex};

use crate::{Batch, NotHere};

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

    /// Reads what [`Self::describe`] asked for into `to`, which is as long. Blocks on storage.
    ///
    /// # Errors
    /// One line: it cannot be read. What is in `to` then means nothing.
    fn read(&mut self, reading: &Reading, to: &mut [u8]) -> Result<(), String>;

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
        let age = self.open(file).map_err(|_| NotHere::OtherForm)?.age();
        let name = Name::new(self.table.index_key(key.sample), age);
        let mut bytes = std::mem::take(&mut self.memory.note);
        let is_known = index.note_of(name, &mut bytes);
        let note = ScanNote::read(&bytes).filter(|_| is_known).ok_or(NotHere::OtherForm);
        let placed = note.and_then(|note| {
            let crop = self.crop(key, note.size())?;
            batch.add_jpeg(row, (&note, len), &crop)
        });
        self.memory.note = bytes;
        let placed = placed?;
        let n_bytes = placed.bytes.end - placed.bytes.start;
        let len = usize::try_from(n_bytes).map_err(|_| NotHere::NoRoom)?;
        Ok(Reading { file, offset: offset + placed.bytes.start, len, at: placed.at })
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
        let placed = batch.add_stored(row, blocks, &crop)?;
        let Extent { file, offset, .. } = table.extent(key.sample);
        let n_bytes = placed.bytes.end - placed.bytes.start;
        let len = usize::try_from(n_bytes).map_err(|_| NotHere::NoRoom)?;
        Ok(Reading { file, offset: offset + placed.bytes.start, len, at: placed.at })
    }

    fn read(&mut self, reading: &Reading, to: &mut [u8]) -> Result<(), String> {
        let file = self.open(reading.file)?;
        let read = self.reader.read_into(&file, reading.offset, to);
        read.map_err(|error| error.to_string())
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
        let name = Name::new(table.index_key(key.sample), file.age());
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
