//! An image as decoders of planes see it: a JPEG file, rows of one, or what a store has of one.
//!
//! All become the same planes, in parts, and callers need not know which it is. Nothing here decodes;
//! `jpeg.rs` does.

use bothends_core::sample::{Encoding, Record, RecordPart};

use crate::decode::Format;
use crate::error::SampleFault;
use crate::jpeg::file::frame::Frame;
use crate::jpeg::{Chroma, Decoder, EntryPoints, Noted, Opened, Region, Stored};

/// An image whose size and planes are known. Lives on the stack for one sample: a box for the
/// larger variant would be an allocation for each.
#[expect(clippy::large_enum_variant, reason = "made once per sample, never kept")]
#[derive(Debug)]
pub(crate) enum Picture<'a> {
    /// A file, and from where in it a decoder may begin.
    File(Opened<'a>, Option<EntryPoints<'a>>),
    /// Rows of a file's scan, with its note.
    Noted(Noted<'a>),
    /// A record of blocks.
    Stored(Stored<'a>),
}

impl<'a> Picture<'a> {
    /// Opens a record, if it is one; `None` for other formats.
    pub(crate) fn open(record: Record<'a>) -> Result<Option<Self>, SampleFault> {
        if record.encoding != Encoding::Image {
            return Ok(None);
        }
        match record.part {
            RecordPart::Whole => {}
            RecordPart::RowGroups(groups) => {
                let stored = Stored::new(groups.blocks, groups.first, record.bytes)?;
                return Ok(Some(Self::Stored(stored)));
            }
            RecordPart::Scan { from, .. } => {
                let noted = Noted::new(record.entry_points, from, record.bytes)?;
                return Ok(Some(Self::Noted(noted)));
            }
        }
        if Format::of(record.bytes)? != Format::Jpeg {
            return Ok(None);
        }
        let file = Opened::new(record.bytes)?;
        Ok(Some(Self::File(file, EntryPoints::new(record.entry_points))))
    }

    /// Its geometry and colours.
    pub(crate) fn frame(&self) -> &Frame {
        match self {
            Self::File(file, _) => &file.frame,
            Self::Noted(noted) => noted.frame(),
            Self::Stored(stored) => &stored.frame,
        }
    }

    /// Whether decoding it may teach entry points.
    pub(crate) fn is_first_visit(&self) -> bool {
        match self {
            Self::File(_, entry_points) => entry_points.is_none(),
            Self::Noted(_) | Self::Stored(_) => false,
        }
    }

    /// Makes what `region` needs into the decoder's planes.
    pub(crate) fn decode(
        self,
        decoder: &mut Decoder,
        region: &Region,
        chroma: Chroma,
    ) -> Result<(), SampleFault> {
        match self {
            Self::File(file, points) => decoder.decode(file, region, chroma, points),
            Self::Noted(noted) => decoder.decode_noted(&noted, region, chroma),
            Self::Stored(stored) => decoder.decode_stored(&stored, region, chroma),
        }
    }
}
