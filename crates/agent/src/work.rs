//! One sample: its record is read, decoded and augmented into its place in a slot.
//!
//! A worker does this with a [`Bench`], which keeps what is expensive to create from sample to sample.
//! Nothing here knows jobs or queues. Read `work/batch.rs` next for a job whose samples are being made,
//! then `work/line.rs` for the jobs of a session, `work/shares.rs` for how sessions share the workers, and
//! `work/results.rs` for samples that several sessions want.

pub(crate) mod batch;
pub(crate) mod line;
pub(crate) mod results;
pub(crate) mod shares;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bothends_core::one_line;
use bothends_core::sample::{Encoding, Extent, FileIdx, SampleKey};
use bothends_dataset::{Piece, Table, WrongChecksum};
use bothends_ops::{OpsError, SampleFault, Scratch};
use bothends_side_index::{Name, SideIndex, Wait};

use crate::costs::{SampleWork, ThreadClock};
use crate::session::{Agreed, Known};
use crate::store::{Choose, Identity, Store, Wanted};
use results::Original;

/// A longer record's memory is not kept for the next.
const KEPT_BYTES: usize = 16 << 20;

/// What one worker keeps from sample to sample.
#[derive(Debug, Default)]
pub(crate) struct Bench {
    record: Vec<u8>,
    scratch: Scratch,
    /// What is known of the record being worked on.
    note: Vec<u8>,
    /// Bytes that were read for the sample being worked on.
    read_bytes: u64,
}

/// Where a worker works.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) agreed: &'a Agreed,
    pub(crate) store: &'a dyn Store,
    pub(crate) clock: ThreadClock,
}

/// How one sample went.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) work: SampleWork,
    /// What was read for it: rows of its record where they are enough.
    pub(crate) read_bytes: u64,
    pub(crate) fault: Option<Fault>,
    /// It was made in spite of a damaged record.
    pub(crate) is_damaged: bool,
    /// The file that it was made of, where it was made.
    pub(crate) source: Option<(FileIdx, Identity)>,
    pub(crate) origin: Origin,
}

/// Where a sample comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was made, or was to be.
    Own,
    /// It is a copy of one that was made for somebody else.
    Shared,
}

/// Why a sample that was made for somebody else is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// This session would make it of another file.
    OfAnotherFile,
    /// It is not what was made any more.
    Corrupt,
}

/// Why a sample was not made.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Its bytes could not be read.
    Unread(String),
    /// This machine could not read, whatever the file holds.
    Machine(String),
    /// The worker broke on it.
    Broke,
    /// Its bytes are no such sample.
    Bad,
    /// It has so many pixels, which is more than this device decodes. The host makes it.
    Beyond(u64),
}

/// What was read of a sample for which nothing was.
const NOWHERE: Extent = Extent { file: FileIdx(0), offset: 0, len: 0 };

/// What a pixel counts that was not decoded, in nanoseconds: about what it takes to decode it.
const PIXEL_NS: u64 = 5;

impl Attempt {
    /// What others may copy; these are its bytes.
    pub(crate) fn original<'a>(&self, bytes: &'a [u8]) -> Option<Original<'a>> {
        let source = self.source.filter(|_| self.fault.is_none())?;
        Some(Original { bytes, checksum: None, source, is_damaged: self.is_damaged })
    }

    /// How long a worker would have been at a sample that was refused; 0 for any other.
    pub(crate) fn refused_ns(&self) -> u64 {
        match self.fault {
            Some(Fault::Beyond(pixels)) => pixels.saturating_mul(PIXEL_NS).max(1),
            Some(Fault::Unread(_) | Fault::Machine(_) | Fault::Broke | Fault::Bad)
            | None => 0,
        }
    }
}

impl Site<'_> {
    /// Where the sample's record is, or as much of it as is needed.
    fn piece(self, key: SampleKey) -> Piece {
        let Known { table, pipeline, .. } = &*self.agreed.known;
        table.piece(key.sample, |blocks| pipeline.groups_for(key, blocks).ok())
    }

    /// Reads a sample's record, or the row groups of one, to `bytes`, or the part of it that `choose` names; which
    /// file it was, and which part.
    fn read(
        self,
        key: SampleKey,
        piece: Piece,
        bytes: &mut Vec<u8>,
        choose: Choose<'_>,
    ) -> Result<(Identity, Option<Range<u32>>), Fault> {
        let table = &self.agreed.known.table;
        let Extent { file, offset, len } = piece.extent;
        let path = table.file_path(file);
        let wanted = Wanted { path: &path, offset, len, mark: table.mark(file) };
        let read = self.store.read_part(wanted, choose, bytes);
        let (identity, part) = read.map_err(|e| match e.is_of_machine() {
            true => Fault::Machine(one_line(&e)),
            false => Fault::Unread(one_line(&e)),
        })?;
        let (file_len, _) = identity.age;
        if table.file_len(key.sample).is_some_and(|expected| expected != file_len) {
            return Err(Fault::Unread(format!(
                "{path} has {file_len} bytes here, but {len} in the host's copy of the data; \
                 synchronise this device's data root"
            )));
        }
        if !self.agreed.seen.is_same(file, &identity) {
            return Err(Fault::Machine(format!(
                "{path} was replaced or changed on the device since this session began; \
                 begin another run to use the new one"
            )));
        }
        Ok((identity, part))
    }

    /// Whether the session would make the sample of this very file.
    fn has(self, (file, identity): &(FileIdx, Identity)) -> bool {
        let table = &self.agreed.known.table;
        let (path, mark) = (table.file_path(*file), table.mark(*file));
        // A read of no bytes still says which file it is.
        let wanted = Wanted { path: &path, offset: 0, len: 0, mark };
        let found = self.store.read(wanted, &mut Vec::new());
        found.is_ok_and(|found| found == *identity)
            && self.agreed.seen.is_same(*file, identity)
    }

    /// Has the sample's record brought nearer while others are being made.
    pub(crate) fn read_ahead(self, key: SampleKey) {
        let Extent { file, offset, len } = self.piece(key).extent;
        let table = &self.agreed.known.table;
        let (path, mark) = (table.file_path(file), table.mark(file));
        self.store.read_ahead(Wanted { path: &path, offset, len, mark });
    }
}

impl Bench {
    /// Makes one sample in `place`, which is zero where it cannot be made. A panic is caught: it
    /// costs what this bench has kept, and the sample.
    pub(crate) fn attempt(
        &mut self,
        site: Site<'_>,
        key: SampleKey,
        place: &mut [u8],
    ) -> Attempt {
        let begun_ns = (site.clock)();
        self.read_bytes = 0;
        // Whatever a panic leaves half done is in the bench, which is thrown away, or in
        // `place`, which is zeroed.
        let made = catch_unwind(AssertUnwindSafe(|| {
            let piece = site.piece(key);
            (piece.extent, self.make(site, key, piece, place))
        }));
        if self.record.capacity() > KEPT_BYTES {
            self.record = Vec::new();
        }
        let (extent, made) = made.unwrap_or_else(|_| {
            *self = Self::default();
            (NOWHERE, Err(Fault::Broke))
        });
        let (source, fault) = match made {
            Ok(identity) => (Some((extent.file, identity)), None),
            Err(fault) => (None, Some(fault)),
        };
        if fault.is_some() {
            place.fill(0);
        }
        let work = SampleWork {
            extent,
            source_pixels: self.scratch.source_pixels(),
            cpu_ns: (site.clock)().saturating_sub(begun_ns),
            output_bytes: u32::try_from(place.len()).unwrap_or(u32::MAX),
        };
        let is_damaged = fault.is_none() && self.scratch.damage().is_some();
        let (read_bytes, origin) = (self.read_bytes, Origin::Own);
        Attempt { work, read_bytes, fault, is_damaged, source, origin }
    }

    /// Copies a sample that was made for somebody else.
    ///
    /// # Errors
    /// It must not be used.
    pub(crate) fn copy(
        site: Site<'_>,
        original: Original<'_>,
        place: &mut [u8],
    ) -> Result<Attempt, Unfit> {
        let begun_ns = (site.clock)();
        if !site.has(&original.source) {
            return Err(Unfit::OfAnotherFile);
        }
        original.copy_to(place).ok_or(Unfit::Corrupt)?;
        let work = SampleWork {
            extent: NOWHERE,
            source_pixels: 0,
            cpu_ns: (site.clock)().saturating_sub(begun_ns),
            output_bytes: u32::try_from(place.len()).unwrap_or(u32::MAX),
        };
        let (is_damaged, source) = (original.is_damaged, Some(original.source));
        let origin = Origin::Shared;
        Ok(Attempt { work, read_bytes: 0, fault: None, is_damaged, source, origin })
    }

    /// Makes a sample of its record, or of those rows of it that the side index knows to be enough. Which file it
    /// was read from.
    fn make(
        &mut self,
        site: Site<'_>,
        key: SampleKey,
        piece: Piece,
        place: &mut [u8],
    ) -> Result<Identity, Fault> {
        let Known { table, pipeline, .. } = &*site.agreed.known;
        // What a store holds needs no entry points.
        let is_indexed = table.encoding() == Encoding::Image && piece.is_record();
        let index = site.store.side_index().filter(|_| is_indexed);
        let Self { record, note, scratch, read_bytes } = self;
        let mut choose = |identity: &Identity| {
            let name = name_of(table, key, identity);
            let is_known = index?.note_of(name, note, Wait::ForDisk);
            let rows = is_known.then(|| pipeline.scan_for(key, note)).flatten()?;
            piece.scan(rows.clone()).map(|_| rows)
        };
        let (mut identity, rows) = site.read(key, piece, record, &mut choose)?;
        *read_bytes += record.len() as u64;
        if let Some(rows) = rows.and_then(|rows| piece.scan(rows)) {
            let record = table.record(key.sample, rows, record);
            let mut record = record.map_err(|WrongChecksum| Fault::Bad)?;
            record.entry_points = note;
            if pipeline.run(scratch, key, record, place).is_ok() {
                return Ok(identity);
            }
            // They are not what they were: the whole record says what it is now.
            (identity, _) = site.read(key, piece, &mut self.record, &mut |_| None)?;
            self.read_bytes += self.record.len() as u64;
        }
        self.make_of_record(site, (key, piece), (&identity, index), place)?;
        Ok(identity)
    }

    /// Makes a sample of its record, or the row groups of one, which have been read from the file of that
    /// identity; keeps what is new of it.
    fn make_of_record(
        &mut self,
        site: Site<'_>,
        (key, piece): (SampleKey, Piece),
        (identity, index): (&Identity, Option<&SideIndex>),
        place: &mut [u8],
    ) -> Result<(), Fault> {
        let Known { table, pipeline, .. } = &*site.agreed.known;
        let Self { record: bytes, scratch, note, .. } = self;
        let record = table.record(key.sample, piece, bytes);
        let mut record = record.map_err(|WrongChecksum| Fault::Bad)?;
        let name = name_of(table, key, identity);
        if index.is_some_and(|index| index.look_up(name, bytes, note)) {
            record.entry_points = note;
        }
        pipeline.run(scratch, key, record, place).map_err(|error| {
            let OpsError::BadSample(SampleFault::BeyondPixels { size, .. }) = error
            else {
                return Fault::Bad;
            };
            Fault::Beyond(u64::from(size.height) * u64::from(size.width))
        })?;
        let new = scratch.new_entry_points();
        if let Some(index) = index.filter(|_| !new.is_empty()) {
            index.keep(name, bytes, new);
        }
        Ok(())
    }
}

/// What the side index knows a sample's record by that lies in this file.
fn name_of(table: &Table, key: SampleKey, identity: &Identity) -> Name {
    let index_key = table.index_key(key.sample);
    match identity.changed_ns {
        Some(changed_ns) => Name::of_file(index_key, identity.age, changed_ns),
        None => Name::new(index_key, identity.age),
    }
}
