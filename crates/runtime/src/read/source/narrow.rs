//! Which part of a JPEG is read: the rows of its scan that the crop needs, where the side index says which
//! bytes they are.
//!
//! A random resized crop needs about 70 % of a photograph's bytes; the others stay in the page cache, on the
//! disk or on the server. What was read is held against the note's checksums when it is decoded, and the whole
//! record is read where it is no longer what the note describes.

use bothends_core::ids::SampleId;
use bothends_core::sample::SampleKey;
use bothends_dataset::Piece;
use bothends_side_index::{Name, SideIndex};

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
    /// The note of the record with this name, if there is one; read from the disk unless it is here.
    fn look_up(&mut self, index: &SideIndex, name: Name) -> Option<&[u8]> {
        if self.of != Some(name) {
            self.of = index.note_of(name, &mut self.bytes).then_some(name);
        }
        self.of.map(|_| &*self.bytes)
    }

    /// The same, for the last time.
    pub(crate) fn take(&mut self, index: &SideIndex, name: Name) -> Option<&[u8]> {
        self.look_up(index, name)?;
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
    /// What is read of `piece` for the sample of `key`, if its record has this name in the side index: rows of
    /// its scan, or all of it. Reads a note from the disk, to `note`.
    pub(crate) fn narrowed(
        &self,
        key: SampleKey,
        (piece, name): (Piece, Name),
        note: &mut Note,
    ) -> Piece {
        self.scan_rows(key, (piece, name), note).unwrap_or(piece)
    }

    fn scan_rows(
        &self,
        key: SampleKey,
        (piece, name): (Piece, Name),
        note: &mut Note,
    ) -> Option<Piece> {
        let index = self.side_index().filter(|_| piece.is_record())?;
        // Who transcodes needs all of the record.
        let is_transcoded = self.blocks().is_some_and(|of| of.cache.takes_more());
        if is_transcoded || self.is_undecoded() {
            return None;
        }
        let note = note.look_up(index, name)?;
        piece.scan(self.pipeline.scan_for(key, note)?)
    }

    /// All of a sample's record.
    pub(crate) fn whole(&self, sample: SampleId) -> Piece {
        self.table.piece(sample, |_| None)
    }
}
