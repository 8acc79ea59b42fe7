//! From rows of a JPEG's scan to planes, by the note of an earlier visit: without the file's headers, and
//! without the rest of its scan.
//!
//! Of a file of 110 kB, the box of a random resized crop needs about 70 %. What was read is held against the
//! note's checksums first: a file may have changed since. Whoever keeps notes keeps the length and the age of the
//! file next to them. What is wrong leads to an error, and the caller reads the whole file. Read
//! `entropy/note.rs` for what a note has.

#![deny(
    clippy::arithmetic_side_effects,
    reason = "numbers that a note gives; a release does not check sums in this crate"
)]

use std::ops::Range;

use bothends_core::recipe::Size;

use super::{Decoder, ScanBytes, ScanKind, Stage};
use crate::error::SampleFault;
use crate::jpeg::entropy::entry_points::EntryPoints;
use crate::jpeg::entropy::note::{Note, short_checksum};
use crate::jpeg::file::code::Class;
use crate::jpeg::file::frame::Frame;
use crate::jpeg::planes::{Chroma, McuBox, Region};
use crate::jpeg::{damaged, unreadable};

/// Rows of a JPEG's scan, with the note that describes the image.
#[derive(Debug, Clone)]
pub struct Noted<'a> {
    note: Note<'a>,
    frame: Frame,
    bytes: &'a [u8],
    /// Where the first of them lies among the scan's data.
    from: usize,
}

impl<'a> Noted<'a> {
    /// The image with this note, of whose file `bytes` have been read, the first of them at byte `from`.
    ///
    /// # Errors
    /// [`SampleFault::Damaged`] where the note describes no image, or the bytes begin before its scan.
    pub fn new(note: &'a [u8], from: u32, bytes: &'a [u8]) -> Result<Self, SampleFault> {
        let note = Note::read(note).ok_or_else(undescribed)?;
        let frame = note.frame().ok_or_else(undescribed)?;
        let from = match bytes {
            [] => Some(0),
            _ => from.checked_sub(note.data_at()),
        };
        let from = from.and_then(|from| usize::try_from(from).ok());
        Ok(Self { note, frame, bytes, from: from.ok_or_else(undescribed)? })
    }

    /// Rows and columns of the image.
    #[must_use]
    pub fn size(&self) -> Size {
        self.frame.size
    }

    pub(crate) fn frame(&self) -> &Frame {
        &self.frame
    }

    /// The bytes of the file that [`Decoder`] reads for `region`, and those that share a checksum with them;
    /// `None` where the note does not say.
    #[must_use]
    pub fn bytes_for(&self, region: &Region) -> Option<Range<u32>> {
        let rows = McuBox::of(&self.frame, region, Chroma::Upsampled).down;
        let mut all: Option<Range<usize>> = None;
        for check in self.note.checks(rows)? {
            let (bytes, _) = check?;
            let start = all.map_or(bytes.start, |before| before.start);
            all = Some(start..bytes.end);
        }
        let in_file = |place: usize| {
            u32::try_from(place).ok().and_then(|at| at.checked_add(self.note.data_at()))
        };
        let Range { start, end } = all.filter(|all| !all.is_empty())?;
        Some(in_file(start)?..in_file(end)?)
    }

    /// Holds the bytes of these rows of MCUs against their checksums.
    fn check(&self, rows: Range<usize>, scan: &ScanBytes<'_>) -> Result<(), SampleFault> {
        for check in self.note.checks(rows).ok_or_else(undescribed)? {
            let (bytes, checksum) = check.ok_or_else(undescribed)?;
            let bytes = scan.get(bytes).map_err(|_| damaged("it is too short"))?;
            if short_checksum(bytes) != checksum {
                return Err(damaged("it is no longer what its note describes"));
            }
        }
        Ok(())
    }

    /// The components in the order of the scan.
    fn scan_order(&self) -> impl Iterator<Item = Result<usize, SampleFault>> {
        let places = 0..self.frame.components().len();
        places.map(|place| self.note.component_at(place).ok_or_else(undescribed))
    }
}

impl Decoder {
    /// Makes what `region` needs of an image with a note into [`Self::planes`]; needs the bytes that
    /// [`Noted::bytes_for`] names.
    ///
    /// # Errors
    /// [`SampleFault::Damaged`] when they have not been read, or are not those of the image that the note
    /// describes.
    pub fn decode_noted(
        &mut self,
        noted: &Noted<'_>,
        region: &Region,
        chroma: Chroma,
    ) -> Result<(), SampleFault> {
        let Noted { note, ref frame, bytes, from } = *noted;
        let mcus = McuBox::of(frame, region, chroma);
        self.n_planes = frame.components().len();
        self.model = frame.model;
        self.points.clear();
        let kind = ScanKind::of(noted.scan_order().map(|component| {
            let component = component?;
            let steps = note.steps(component).ok_or_else(undescribed)?;
            Ok((component, frame.components()[component], steps))
        }))?;
        for (component, codes) in noted.scan_order().zip(self.codes.iter_mut()) {
            let code = note.codes(component?).ok_or_else(undescribed)?;
            for ((class, code), own) in
                [Class::Dc, Class::Ac].into_iter().zip(&code).zip(codes)
            {
                own.set(class, code)?;
            }
        }
        if self.until == Stage::Tables {
            return Ok(());
        }
        let restart_interval = note.restart_interval();
        let scan = ScanBytes { frame, bytes, from, restart_interval };
        noted.check(mcus.down.clone(), &scan)?;
        self.decode_from(EntryPoints::of_note(note), &scan, &kind, &mcus)
            .map_err(unreadable)
    }
}

fn undescribed() -> SampleFault {
    damaged("its note does not describe an image")
}
