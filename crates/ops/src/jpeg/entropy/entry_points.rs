//! The side index of one image: places inside its scan where decoding can begin.
//!
//! A scan can only be read from its start, because every symbol's length and every DC depend
//! on what came before. An entry point is what there is to know in the middle: the bit, and
//! the DC of each component. There is one for every few MCUs of a row, counted from the start in
//! each row, and one for the end. With them a decoder skips what a crop does not need, and
//! reads two rows at a time; a GPU reads all of them at once.
//!
//! They are kept in a note (`note.rs`) with what else there is to know. Notes of earlier versions
//! are entry points alone, one for every [`OLD_STEP`] MCUs; they are read like the others.
//!
//! The form is a list of 64-bit numbers, little-endian: bits 0–24 the byte, from the start of
//! the scan's data in the file; 25–27 the bit, from the left; 28–63 three DCs of 12 bits.
//! Scans beyond 32 MiB, more than three components and DCs beyond 12 bits (no encoder makes
//! them) have none. Wrong entry points give a wrong image or an error: whoever keeps them
//! keeps the image's hash next to them. Read `note.rs` next.

#![deny(
    clippy::arithmetic_side_effects,
    reason = "numbers that a file gives; a release does not check sums in this crate"
)]

use super::note::{NewNote, Note};
use super::point::FilePoint;
use super::sequential::EntryPoint;

/// MCUs from one entry point to the next in notes that do not say it.
const OLD_STEP: usize = 8;

/// The entry points of an image, in their stored form.
#[derive(Debug, Clone, Copy)]
pub struct EntryPoints<'a> {
    numbers: &'a [[u8; 8]],
    step: usize,
}

impl<'a> EntryPoints<'a> {
    /// Takes the stored form; `None` when it is none.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        // The first entry point is the scan's first bit, all zeros: no beginning of a note.
        if let Some(note) = Note::read(bytes) {
            return Some(Self::of_note(note));
        }
        match bytes.as_chunks() {
            (numbers, []) if numbers.first() == Some(&[0; 8]) => {
                Some(Self { numbers, step: OLD_STEP })
            }
            _ => None,
        }
    }

    pub(crate) fn of_note(note: Note<'a>) -> Self {
        Self { numbers: note.points(), step: note.step() }
    }

    pub(crate) fn len(self) -> usize {
        self.numbers.len()
    }

    /// MCUs of a row from one to the next.
    pub(crate) fn step(self) -> usize {
        self.step
    }

    pub(crate) fn get(self, idx: usize) -> Option<FilePoint> {
        self.numbers.get(idx).map(|number| FilePoint::unpack(u64::from_le_bytes(*number)))
    }
}

/// Entry points in the making.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    points: Vec<EntryPoint>,
    packed: Vec<u64>,
    stored: Vec<u8>,
}

impl Builder {
    pub(crate) fn clear(&mut self) {
        self.points.clear();
        self.stored.clear();
    }

    pub(crate) fn push(&mut self, point: EntryPoint) {
        self.points.push(point);
    }

    /// Makes a note of the points; `place` says where a byte of the unstuffed data lies in the
    /// file, from the start of the scan's data.
    pub(crate) fn finish(
        &mut self,
        note: &NewNote<'_>,
        mut place: impl FnMut(usize) -> usize,
    ) {
        self.stored.clear();
        self.packed.clear();
        for point in &self.points {
            let EntryPoint { position, dc: [a, b, c, d] } = *point;
            let packed = FilePoint {
                byte: place((position / 8) as usize),
                bit: (position % 8) as u8,
                dc: [a, b, c],
            };
            let Some(packed) = packed.pack().filter(|_| d == 0) else { return };
            self.packed.push(packed);
        }
        note.write(&self.packed, &mut self.stored);
    }

    /// The stored form; empty when there is none.
    pub(crate) fn stored(&self) -> &[u8] {
        &self.stored
    }
}
