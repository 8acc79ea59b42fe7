//! One sample: its record is read, decoded and augmented into its place in a slot.
//!
//! A worker does this with a [`Bench`], which keeps what is expensive to create from sample to sample.
//! Nothing here knows jobs or queues. Read `work/batch.rs` next for a job whose samples are being made,
//! then `work/line.rs` for the jobs of a session and `work/shares.rs` for how sessions share the
//! workers.

pub(crate) mod batch;
pub(crate) mod line;
pub(crate) mod shares;

use std::panic::{AssertUnwindSafe, catch_unwind};

use bothends_core::one_line;
use bothends_core::sample::{Encoding, Extent, FileIdx, SampleKey};
use bothends_dataset::{Piece, WrongChecksum};
use bothends_ops::{OpsError, SampleFault, Scratch};
use bothends_side_index::Name;

use crate::costs::{SampleWork, ThreadClock};
use crate::session::{Agreed, Known};
use crate::store::{Store, Wanted};

/// A longer record's memory is not kept for the next.
const KEPT_BYTES: usize = 16 << 20;

/// What one worker keeps from sample to sample.
#[derive(Debug, Default)]
pub(crate) struct Bench {
    record: Vec<u8>,
    scratch: Scratch,
    /// What is known of the record being worked on.
    note: Vec<u8>,
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
    pub(crate) fault: Option<Fault>,
    /// It was made in spite of a damaged record.
    pub(crate) is_damaged: bool,
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

/// What a pixel counts that was not decoded, in nanoseconds: about what it takes to decode it.
const PIXEL_NS: u64 = 5;

impl Attempt {
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
        // Whatever a panic leaves half done is in the bench, which is thrown away, or in
        // `place`, which is zeroed.
        let made = catch_unwind(AssertUnwindSafe(|| {
            let piece = site.piece(key);
            (piece.extent, self.make(site, key, piece, place).err())
        }));
        if self.record.capacity() > KEPT_BYTES {
            self.record = Vec::new();
        }
        let (extent, fault) = made.unwrap_or_else(|_| {
            *self = Self::default();
            (Extent { file: FileIdx(0), offset: 0, len: 0 }, Some(Fault::Broke))
        });
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
        Attempt { work, fault, is_damaged }
    }

    fn make(
        &mut self,
        site: Site<'_>,
        key: SampleKey,
        piece: Piece,
        place: &mut [u8],
    ) -> Result<(), Fault> {
        let Known { table, pipeline, .. } = &*site.agreed.known;
        let Extent { file, offset, len } = piece.extent;
        let path = table.file_path(file);
        let Self { record: bytes, scratch, note } = self;
        let wanted = Wanted { path: &path, offset, len, mark: table.mark(file) };
        let identity =
            site.store.read(wanted, bytes).map_err(|e| match e.is_of_machine() {
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
        if !site.agreed.seen.is_same(file, &identity) {
            return Err(Fault::Machine(format!(
                "{path} was replaced or changed beside the device since this session began; \
                 begin another run to use the new one"
            )));
        }
        let record = table.record(key.sample, piece, bytes);
        let mut record = record.map_err(|WrongChecksum| Fault::Bad)?;
        // What a store holds needs no entry points.
        let is_indexed =
            record.encoding == Encoding::Image && record.row_groups.is_none();
        let index = site.store.side_index().filter(|_| is_indexed);
        let index = index
            .map(|index| (index, Name::new(table.index_key(key.sample), identity.age)));
        if index.is_some_and(|(index, name)| index.look_up(name, bytes, note)) {
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
        if let Some((index, name)) = index.filter(|_| !new.is_empty()) {
            index.keep(name, bytes, new);
        }
        Ok(())
    }
}
