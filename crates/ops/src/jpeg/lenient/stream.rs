//! The bytes of a file as Pillow hands them to libjpeg: in pieces of 64 KiB, without a way to wait
//! for more in the middle of one.
//!
//! Where a piece ends is part of the meaning. What libjpeg cannot finish with the bytes at hand it
//! begins again with the next piece, and an image without an end of image is complete or not
//! depending on how far the bit buffer had read ahead. Finding and skipping markers is here, too.
//! Read `markers.rs` next.

use bothends_core::recipe::Truncated;

use crate::error::SampleFault;
use crate::jpeg::damaged;

/// What Pillow reads at once (`ImageFile.MAXBLOCK`).
const PIECE: usize = 1 << 16;

/// What comes after the last byte of a file that is to be filled up.
const END_OF_IMAGE: [u8; 2] = [0xff, 0xd9];

const RST0: u8 = 0xd0;
const RST7: u8 = 0xd7;

/// Why decoding did not go on.
#[derive(Debug)]
pub(super) enum Stop {
    /// There are no more bytes at hand.
    Ended,
    /// libjpeg would not go on either.
    Fault(SampleFault),
}

impl From<SampleFault> for Stop {
    fn from(fault: SampleFault) -> Self {
        Self::Fault(fault)
    }
}

/// Whether marker reading may ask for the next piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pieces {
    /// As long as there are any.
    All,
    /// No: all pixels are there, and Pillow does not look any further.
    AtHand,
}

/// A file, how far it has been read, and the marker that entropy decoding ran into.
#[derive(Debug)]
pub(super) struct Stream<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
    /// End of the pieces at hand.
    limit: usize,
    truncated: Truncated,
    pub(super) pieces: Pieces,
    /// A marker that was read and is still to be acted on.
    pub(super) marker: Option<u8>,
    next_restart: u8,
    /// What was wrong first.
    pub(super) damage: Option<&'static str>,
}

impl<'a> Stream<'a> {
    pub(super) fn new(bytes: &'a [u8], truncated: Truncated) -> Self {
        Self {
            bytes,
            at: 0,
            limit: bytes.len().min(PIECE),
            truncated,
            pieces: Pieces::All,
            marker: None,
            next_restart: 0,
            damage: None,
        }
    }

    /// Makes a note of a damage, if it is the first one.
    pub(super) fn warn(&mut self, what: &'static str) {
        self.damage.get_or_insert(what);
    }

    /// The next piece; `false` when there is none.
    pub(super) fn more(&mut self) -> bool {
        let len = self.bytes.len();
        if self.limit < len {
            self.limit = len.min(self.limit.saturating_add(PIECE));
            return true;
        }
        let can_fill = self.truncated == Truncated::Fill && self.limit == len;
        if can_fill {
            self.warn("it ends before its end of image");
            self.limit = len.saturating_add(END_OF_IMAGE.len());
        }
        can_fill
    }

    /// Whether byte `at` is at hand.
    pub(super) fn has(&self, at: usize) -> bool {
        at < self.limit
    }

    /// Bytes at hand that have not been read.
    pub(super) fn n_at_hand(&self) -> usize {
        self.limit.saturating_sub(self.at)
    }

    /// Whether all bytes of the file are at hand.
    pub(super) fn is_at_end(&self) -> bool {
        self.limit >= self.bytes.len()
    }

    /// The byte at `at`; 0 where there is none.
    pub(super) fn get(&self, at: usize) -> u8 {
        let behind = at.checked_sub(self.bytes.len());
        let own = self.bytes.get(at).copied();
        own.or_else(|| END_OF_IMAGE.get(behind?).copied()).unwrap_or(0)
    }

    /// The next byte of a marker or its segment.
    pub(super) fn byte(&mut self) -> Result<u8, Stop> {
        while !self.has(self.at) {
            if self.pieces == Pieces::AtHand || !self.more() {
                return Err(Stop::Ended);
            }
        }
        self.at += 1;
        Ok(self.get(self.at - 1))
    }

    /// The next two bytes.
    pub(super) fn word(&mut self) -> Result<u16, Stop> {
        Ok(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    /// The next `n` bytes.
    pub(super) fn take(&mut self, n: usize, into: &mut Vec<u8>) -> Result<(), Stop> {
        into.clear();
        for _ in 0..n {
            into.push(self.byte()?);
        }
        Ok(())
    }

    /// Leaves a segment out.
    pub(super) fn skip_segment(&mut self) -> Result<(), Stop> {
        self.at += usize::from(self.length()?);
        Ok(())
    }

    /// The length of the contents of a segment that is left out, in whole or in part.
    pub(super) fn length(&mut self) -> Result<u16, Stop> {
        let length = self.word()?;
        if length < 2 {
            self.warn("a segment shorter than its own length field");
        }
        Ok(length.saturating_sub(2))
    }

    /// The next marker, wherever it is.
    pub(super) fn next_marker(&mut self) -> Result<u8, Stop> {
        loop {
            while self.byte()? != 0xff {
                self.warn("stray bytes between its segments");
            }
            let mut marker = 0xff;
            while marker == 0xff {
                marker = self.byte()?;
            }
            if marker != 0 {
                return Ok(marker);
            }
            self.warn("stray bytes between its segments");
        }
    }

    /// A new scan begins.
    pub(super) fn begin_scan(&mut self) {
        self.next_restart = 0;
    }

    /// Goes on to the restart marker that is due. If another marker is there, that may be left
    /// unread, and the decoder then makes do without data until the next restart.
    pub(super) fn restart(&mut self) -> Result<(), Stop> {
        let due = self.next_restart;
        let found = match self.marker {
            Some(marker) => marker,
            None => self.next_marker()?,
        };
        self.marker = Some(found);
        if found == RST0 + due {
            self.marker = None;
        } else {
            self.warn("a restart marker that is not the next one");
            self.resynchronise(found, due)?;
        }
        self.next_restart = (due + 1) & 7;
        Ok(())
    }

    /// As libjpeg does (`jpeg_resync_to_restart`): a marker of the recent past is skipped, one of
    /// the near future is left for later, and any other restart is taken for the right one.
    fn resynchronise(&mut self, mut found: u8, due: u8) -> Result<(), Stop> {
        loop {
            let ahead = found.wrapping_sub(RST0).wrapping_sub(due) & 7;
            match (found, ahead) {
                (RST0..=RST7, 1 | 2) => return Ok(()),
                (RST0..=RST7, 6 | 7) | (0..0xc0, _) => {
                    found = self.next_marker()?;
                    self.marker = Some(found);
                }
                (RST0..=RST7, _) => {
                    self.marker = None;
                    return Ok(());
                }
                _ => return Ok(()),
            }
        }
    }
}

/// A fault that libjpeg reports as an error.
pub(super) fn fault(why: &str) -> Stop {
    Stop::Fault(damaged(why))
}
