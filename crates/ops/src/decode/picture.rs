//! An image as decoders of planes see it: a JPEG file, or what a store has of one.
//!
//! Both become the same planes, in parts, and callers need not know which it is. Nothing here decodes;
//! `jpeg.rs` does.

use bothends_core::sample::{Encoding, Record};

use crate::decode::Format;
use crate::error::SampleFault;
use crate::jpeg::file::frame::Frame;
use crate::jpeg::{Chroma, Decoder, EntryPoints, Opened, Region, Stored};

/// An image whose size and planes are known. Lives on the stack for one sample: a box for the
/// larger variant would be an allocation for each.
#[expect(clippy::large_enum_variant, reason = "made once per sample, never kept")]
#[derive(Debug)]
pub(crate) enum Picture<'a> {
    /// A file, and from where in it a decoder may begin.
    File(Opened<'a>, Option<EntryPoints<'a>>),
    /// A record of blocks.
    Stored(Stored<'a>),
}

impl<'a> Picture<'a> {
    /// Opens a record, if it is one; `None` for other formats.
    pub(crate) fn open(record: Record<'a>) -> Result<Option<Self>, SampleFault> {
        if record.encoding != Encoding::Image {
            return Ok(None);
        }
        if let Some(groups) = record.row_groups {
            let stored = Stored::new(groups.blocks, groups.first, record.bytes)?;
            return Ok(Some(Self::Stored(stored)));
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
            Self::Stored(stored) => &stored.frame,
        }
    }

    /// Whether decoding it may teach entry points.
    pub(crate) fn is_first_visit(&self) -> bool {
        match self {
            Self::File(_, entry_points) => entry_points.is_none(),
            Self::Stored(_) => false,
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
            Self::Stored(stored) => decoder.decode_stored(&stored, region, chroma),
        }
    }
}
