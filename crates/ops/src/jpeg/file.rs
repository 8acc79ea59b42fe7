//! What a file says before its pixels: segments, frame, tables and the first scan's header.
//!
//! [`Opened`] is a file that has been read so far. Nothing here decodes entropy-coded data.
//! Reading order: as the modules are listed.

#![deny(
    clippy::arithmetic_side_effects,
    reason = "numbers that a file gives; a release does not check sums in this crate"
)]

pub(crate) mod frame;
pub(crate) mod header;

pub(crate) mod code;
mod standard;

pub(crate) mod application;

use bothends_core::recipe::Size;

use self::frame::Frame;
use self::header::{Next, Scan, Segments};
use super::damaged;
use crate::error::SampleFault;

/// A file whose headers have been read, up to its first scan.
#[derive(Debug)]
pub struct Opened<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) segments: Segments<'a>,
    pub(crate) frame: Frame,
    pub(crate) scan: Scan,
}

impl<'a> Opened<'a> {
    /// Reads the headers of a JPEG file.
    ///
    /// # Errors
    /// [`SampleFault`] when it is damaged or of a kind that is refused by name.
    pub fn new(bytes: &'a [u8]) -> Result<Self, SampleFault> {
        let mut segments = Segments::new(bytes)?;
        let scan = match segments.next()? {
            Next::Scan(scan) => scan,
            Next::End => return Err(damaged("there is no image in it")),
        };
        let frame = segments.settled_frame()?;
        Ok(Self { bytes, segments, frame, scan })
    }

    /// Rows and columns of the image.
    #[must_use]
    pub fn size(&self) -> Size {
        self.frame.size
    }
}
