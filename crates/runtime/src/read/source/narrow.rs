//! Which part of a JPEG is read: the rows of its scan that the crop needs, where the side index says which
//! bytes they are.
//!
//! A random resized crop needs about 70 % of a photograph's bytes; the others stay in the page cache, on the
//! disk or on the server. What was read is held against the note's checksums when it is decoded, and the whole
//! record is read where it is no longer what the note describes.

use bothends_core::ids::SampleId;
use bothends_core::sample::SampleKey;
use bothends_dataset::Piece;
use bothends_io::OpenFile;
use bothends_side_index::{Name, SideIndex, Wait};

use super::Source;

/// A note of the side index, in memory that is kept from record to record.
#[derive(Debug, Default)]
pub(crate) struct Note {
    bytes: Vec<u8>,
    /// Whose it is, until it is taken: where a worker reads a record itself, one look at the index says what to
    /// read, and how to decode it.
    of: Option<Name>,
}

impl Note {
    /// The note of the record with this name, if there is one; it is looked for unless it is here.
    fn look_up(&mut self, index: &SideIndex, name: Name, wait: Wait) -> Option<&[u8]> {
        if self.of != Some(name) {
            self.of = index.note_of(name, &mut self.bytes, wait).then_some(name);
        }
        self.of.map(|_| &*self.bytes)
    }

    /// The same, for the last time.
    pub(crate) fn take(&mut self, index: &SideIndex, name: Name) -> Option<&[u8]> {
        self.look_up(index, name, Wait::ForDisk)?;
        self.of = None;
        Some(&self.bytes)
    }

    /// The memory, for a note that is held against the whole record.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        self.of = None;
        &mut self.bytes
    }
}

impl Source {
    /// What is read of `piece`, which lies in `file`, for the sample of `key`: rows of its scan, or all of it.
    /// Reads a note to `note`.
    pub(crate) fn narrowed(
        &self,
        (key, piece): (SampleKey, Piece),
        file: &OpenFile,
        note: &mut Note,
        wait: Wait,
    ) -> Piece {
        let rows = self.scan_rows((key, piece), self.name(key.sample, file), note, wait);
        // A file that is kept open may have changed since.
        rows.filter(|_| file.is_unchanged()).unwrap_or(piece)
    }

    /// The same of a record that is fetched, and has this name. Waits for no disk.
    pub(crate) fn narrowed_to_fetch(
        &self,
        (key, piece): (SampleKey, Piece),
        name: Name,
        note: &mut Note,
    ) -> Piece {
        self.scan_rows((key, piece), name, note, Wait::Never).unwrap_or(piece)
    }

    fn scan_rows(
        &self,
        (key, piece): (SampleKey, Piece),
        name: Name,
        note: &mut Note,
        wait: Wait,
    ) -> Option<Piece> {
        let index = self.side_index().filter(|_| piece.is_record())?;
        // Who transcodes needs all of the record.
        if self.blocks().is_some_and(|blocks| blocks.cache.takes_more()) {
            return None;
        }
        let note = note.look_up(index, name, wait)?;
        piece.scan(self.pipeline.scan_for(key, note)?)
    }

    /// All of a sample's record.
    pub(crate) fn whole(&self, sample: SampleId) -> Piece {
        self.table.piece(sample, |_| None)
    }
}
