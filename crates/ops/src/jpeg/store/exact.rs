//! A JPEG as a record of blocks, if the record is known to hold all of it.
//!
//! What was packed is unpacked and made a file again, which must have the very bytes of the original:
//! then its coefficients are those that any decoder finds in it, since a file that is damaged, or that
//! only some decoders take, is not what an encoder writes. A quarter of the time goes into that.

use bothends_core::blocks::{Blocks, Head, Profile};

use super::packer::Packer;
use super::rebuild::put_together;
use super::stored::{Stored, unpack};
use crate::jpeg::coefficients::Coefficients;
use crate::jpeg::decoder::Decoder;
use crate::kernels::Level;

/// Packs files, each exactly or not at all; keeps its memory from file to file.
#[derive(Debug)]
pub struct ExactPacker {
    level: Level,
    decoder: Decoder,
    packer: Packer,
    remainder: Vec<u8>,
    coefficients: Coefficients,
    again: Vec<u8>,
}

/// A record of blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exact {
    /// What it may have in common with others.
    pub profile: Vec<u8>,
    /// Its head, which names the profile at offset 0.
    pub head: Vec<u8>,
    /// Its row groups.
    pub groups: Vec<u8>,
}

impl ExactPacker {
    /// With the kernels of `level`.
    #[must_use]
    pub fn new(level: Level) -> Self {
        Self {
            level,
            decoder: Decoder::new(level),
            packer: Packer::default(),
            remainder: Vec::new(),
            coefficients: Coefficients::default(),
            again: Vec::new(),
        }
    }

    /// The record of `file`; `None` if there is none that can be made into the file again.
    #[must_use]
    pub fn pack(&mut self, file: &[u8]) -> Option<Exact> {
        let packed = self.packer.pack(&mut self.decoder, file, &mut self.remainder)?;
        let head = packed.lengths.head(packed.size, 0, packed.row_lengths)?;
        let exact = Exact { profile: packed.profile, head, groups: packed.groups };
        let (profile, head) = (Profile::read(&exact.profile)?, Head::read(&exact.head)?);
        let stored = Stored::new(Blocks::new(profile, head)?, 0, &exact.groups).ok()?;
        unpack(self.level, &stored, &mut self.coefficients).ok()?;
        let Self { coefficients, remainder, again, .. } = self;
        put_together(self.level, coefficients, remainder, again).ok()?;
        (again == file).then_some(exact)
    }

    /// What is needed besides the last record to write its file again.
    #[must_use]
    pub fn remainder(&self) -> &[u8] {
        &self.remainder
    }

    /// Gives back what one huge image took, if its file or its coefficients took more than
    /// `keep_bytes`.
    pub fn release_above(&mut self, keep_bytes: usize) {
        self.decoder.release_above(keep_bytes);
        self.coefficients.release_above(keep_bytes);
        if self.again.capacity() > keep_bytes {
            self.packer = Packer::default();
            self.remainder = Vec::new();
            self.again = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_jpeg_is_not_packed() {
        let mut packer = ExactPacker::new(Level::of_process());
        for bytes in [&b""[..], b"\xff\xd8\xff\xd9", b"\x89PNG"] {
            assert!(packer.pack(bytes).is_none());
        }
        packer.release_above(0);
    }
}
