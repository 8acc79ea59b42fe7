//! What Pillow refuses before libjpeg sees a byte: its own walk over the segments, up to the first
//! scan (`JpegImagePlugin.py`).
//!
//! Not checked: an EXIF resolution that Pillow cannot compute with, and an index of several
//! images (MPO) that breaks off; Pillow refuses a few of these files.

#![deny(
    clippy::arithmetic_side_effects,
    reason = "numbers that a file gives; a release does not check sums in this crate"
)]

use crate::error::SampleFault;
use crate::image::check_size;
use crate::jpeg::file::application::check_application;
use crate::jpeg::file::frame::{Component, Frame, Process};
use crate::jpeg::{damaged, unsupported};

/// What Pillow knows of an image before decoding it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Opening {
    pub(super) height: u16,
    pub(super) width: u16,
    pub(super) n_components: u8,
    components: Vec<Component>,
}

impl Opening {
    /// The frame, its colours and process not yet known.
    pub(super) fn frame(&self) -> Result<Frame, SampleFault> {
        let size = check_size(self.height.into(), self.width.into())?;
        if self.components.len() != usize::from(self.n_components) {
            return Err(damaged("its frame header has the wrong length"));
        }
        let is_factor = |factor: usize| (1..=4).contains(&factor);
        if !self.components.iter().all(|c| is_factor(c.h) && is_factor(c.v)) {
            return Err(damaged("a sampling factor outside 1 to 4"));
        }
        Frame::new(size, Process::Sequential, &self.components)
    }

    /// A frame of the same size, for an image of which nothing can be decoded.
    pub(super) fn blank_frame(&self) -> Result<Frame, SampleFault> {
        let size = check_size(self.height.into(), self.width.into())?;
        let component = Component { h: 1, v: 1, ..Component::default() };
        let components = [component; 4];
        let n_components = usize::from(self.n_components).clamp(1, 4);
        Frame::new(size, Process::Sequential, &components[..n_components])
    }
}

/// Walks to the first scan.
pub(super) fn opened(bytes: &[u8]) -> Result<Opening, SampleFault> {
    if !bytes.starts_with(&[0xff, 0xd8, 0xff]) {
        return Err(damaged("it does not begin with a start of image"));
    }
    let mut walk = Walk { rest: bytes.get(3..).unwrap_or_default(), opening: None };
    let mut before = 0xff;
    loop {
        if before != 0xff {
            before = walk.byte()?;
            continue;
        }
        let marker = walk.byte()?;
        match marker {
            0xff => continue,
            0 => {}
            0xda => {
                walk.segment()?;
                return walk.opening.ok_or_else(|| damaged("a scan without a frame"));
            }
            0xc0..=0xfe => walk.marker(marker)?,
            other => {
                return Err(damaged(format_args!("unknown marker 0x{other:02x}")));
            }
        }
        before = walk.byte()?;
    }
}

struct Walk<'a> {
    rest: &'a [u8],
    opening: Option<Opening>,
}

impl<'a> Walk<'a> {
    fn byte(&mut self) -> Result<u8, SampleFault> {
        let (&byte, rest) = self.rest.split_first().ok_or_else(ended)?;
        self.rest = rest;
        Ok(byte)
    }

    fn segment(&mut self) -> Result<&'a [u8], SampleFault> {
        let (length, rest) = self.rest.split_first_chunk().ok_or_else(ended)?;
        let length = usize::from(u16::from_be_bytes(*length)).saturating_sub(2);
        let (contents, rest) = rest.split_at_checked(length).ok_or_else(ended)?;
        self.rest = rest;
        Ok(contents)
    }

    fn marker(&mut self, marker: u8) -> Result<(), SampleFault> {
        match marker {
            // Without contents, or taken for such.
            0xc8 | 0xd0..=0xd9 | 0xf0..=0xfd => Ok(()),
            0xc4 | 0xcc | 0xdc | 0xdd | 0xdf | 0xfe => self.segment().map(drop),
            0xc0..=0xcf | 0xde => self.frame(),
            0xdb => quantisation(self.segment()?),
            _ => check_application(marker, self.segment()?),
        }
    }

    fn frame(&mut self) -> Result<(), SampleFault> {
        let &[precision, h1, h0, w1, w0, n_components, ref components @ ..] =
            self.segment()?
        else {
            return Err(damaged("its frame header is cut short"));
        };
        let [height, width] = [[h1, h0], [w1, w0]].map(u16::from_be_bytes);
        match (precision, n_components) {
            (8, 1 | 3 | 4) => {}
            (8, 2) => return Err(unsupported("two-component")),
            (8, n) => return Err(damaged(format_args!("it has {n} components"))),
            (12, _) => return Err(unsupported("12-bit")),
            (_, _) => return Err(unsupported("not 8-bit")),
        }
        if !components.len().is_multiple_of(3) {
            return Err(damaged("its frame header is cut short"));
        }
        let components = components.chunks_exact(3).map(component).collect();
        self.opening = Some(Opening { height, width, n_components, components });
        Ok(())
    }
}

/// A component of a frame header (T.81 §B.2.2), from three bytes.
pub(super) fn component(bytes: &[u8]) -> Component {
    let [h, v] = [bytes[1] >> 4, bytes[1] & 15].map(usize::from);
    Component { id: bytes[0], h, v, table: usize::from(bytes[2]) }
}

fn quantisation(mut rest: &[u8]) -> Result<(), SampleFault> {
    while let Some((&head, values)) = rest.split_first() {
        let n_bytes = if head >> 4 == 0 { 64 } else { 128 };
        rest = values
            .get(n_bytes..)
            .ok_or_else(|| damaged("a quantisation table is cut short"))?;
    }
    Ok(())
}

fn ended() -> SampleFault {
    damaged("it ends before its first scan")
}
