//! The namespace of subsystem local memory.

use std::sync::{PoisonError, RwLock};

use bothends_nvme::Status;
use bothends_nvme::commands::{BlockSource, ByteSource, FastOnly, Source};

use super::blocks::BlockMedia;
use super::{BLOCK_BYTES, BLOCKS, MEMORY};

/// Memory of the device. Several may read at once.
#[derive(Debug)]
pub(super) struct Memory {
    bytes: RwLock<Vec<u8>>,
    size: u64,
}

/// What addresses and lengths are multiples of.
const DWORD: u64 = 4;

impl Memory {
    /// Memory of `size` zeros.
    pub(super) fn new(size: usize) -> Self {
        Self { bytes: RwLock::new(vec![0; size]), size: size as u64 }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Whether the bytes are there, and whole dwords.
    ///
    /// # Errors
    /// Invalid Field if they are not.
    pub(super) fn check(&self, from: u64, bytes: u64) -> Result<(), Status> {
        let end = from.checked_add(bytes).ok_or(Status::INVALID_FIELD)?;
        let is_aligned = from.is_multiple_of(DWORD) && bytes.is_multiple_of(DWORD);
        if is_aligned && end <= self.size { Ok(()) } else { Err(Status::INVALID_FIELD) }
    }

    /// Reads into `to`.
    ///
    /// # Errors
    /// Invalid Field if they are not there.
    pub(super) fn read(&self, from: u64, to: &mut [u8]) -> Result<(), Status> {
        let bytes = self.bytes.read().unwrap_or_else(PoisonError::into_inner);
        let there = span(from, to.len()).and_then(|span| bytes.get(span));
        to.copy_from_slice(there.ok_or(Status::INVALID_FIELD)?);
        Ok(())
    }

    /// Writes what `fill` puts into the bytes.
    ///
    /// # Errors
    /// Invalid Field if they are not there; those of `fill`.
    pub(super) fn write(
        &self,
        to: u64,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let mut own = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
        let there = span(to, bytes).and_then(|span| own.get_mut(span));
        fill(there.ok_or(Status::INVALID_FIELD)?)
    }

    /// Copies `sources` to `to` on: from blocks, or from this memory.
    ///
    /// # Errors
    /// As the standard's order has them: alignment and sums, then each source.
    pub(super) fn copy(
        &self,
        (to, bytes): (u64, u64),
        sources: &[Source],
        media: &BlockMedia,
    ) -> Result<(), Status> {
        self.check(to, bytes)?;
        let mut sum = 0_u64;
        for source in sources {
            self.check_source(source)?;
            sum = sum.checked_add(source_bytes(source)).ok_or(Status::INVALID_FIELD)?;
        }
        if sum != bytes {
            return Err(Status::INVALID_FIELD);
        }
        self.check_kinds(sources, (to, bytes))?;
        let mut at = to;
        for source in sources {
            match source {
                Source::Blocks(blocks) => self.copy_blocks(at, blocks, media)?,
                Source::Bytes(own) => self.copy_bytes(at, own)?,
            }
            at += source_bytes(source);
        }
        Ok(())
    }

    /// Whether a source can be one at all.
    fn check_source(&self, source: &Source) -> Result<(), Status> {
        match source {
            Source::Blocks(own) if matches!(own.nsid, BLOCKS | MEMORY) => Ok(()),
            Source::Bytes(own) if own.nsid == MEMORY => {
                self.check(own.from, own.bytes.into())
            }
            Source::Blocks(_) | Source::Bytes(_) => Err(Status::INVALID_FIELD),
        }
    }

    /// Whether it can be a source of this copy.
    fn check_kinds(
        &self,
        sources: &[Source],
        (to, bytes): (u64, u64),
    ) -> Result<(), Status> {
        let is_memory =
            |source: &Source| matches!(source, Source::Blocks(own) if own.nsid == MEMORY);
        if sources.iter().any(is_memory) {
            return Err(Status::INCOMPATIBLE_NAMESPACE);
        }
        if sources.iter().any(is_fast_only) {
            return Err(Status::FAST_COPY);
        }
        let overlaps = |source: &Source| match source {
            Source::Blocks(_) => false,
            Source::Bytes(own) => {
                own.from < to + bytes && to < own.from + u64::from(own.bytes)
            }
        };
        if sources.iter().any(overlaps) { Err(Status::OVERLAPPING_IO) } else { Ok(()) }
    }

    fn copy_blocks(
        &self,
        to: u64,
        from: &BlockSource,
        media: &BlockMedia,
    ) -> Result<(), Status> {
        // A part at a time, so that others get at the memory in between.
        const PART: u32 = 64;
        let mut done = 0;
        while done < from.n_blocks {
            let n = PART.min(from.n_blocks - done);
            let bytes = (n * BLOCK_BYTES) as usize;
            let first =
                from.first.checked_add(done.into()).ok_or(Status::LBA_OUT_OF_RANGE)?;
            let at = to + u64::from(done) * u64::from(BLOCK_BYTES);
            self.write(at, bytes, |part| media.read(first, part))?;
            done += n;
        }
        Ok(())
    }

    fn copy_bytes(&self, to: u64, from: &ByteSource) -> Result<(), Status> {
        let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
        let (Some(source), Ok(at)) =
            (span(from.from, from.bytes as usize), usize::try_from(to))
        else {
            return Err(Status::INVALID_FIELD);
        };
        bytes.copy_within(source, at);
        Ok(())
    }
}

fn source_bytes(source: &Source) -> u64 {
    match source {
        Source::Blocks(own) => u64::from(own.n_blocks) * u64::from(BLOCK_BYTES),
        Source::Bytes(own) => own.bytes.into(),
    }
}

/// No copy of ours is one that the standard calls fast.
fn is_fast_only(source: &Source) -> bool {
    let fast_only = match source {
        Source::Blocks(own) => own.fast_only,
        Source::Bytes(own) => own.fast_only,
    };
    fast_only == FastOnly::Yes
}

fn span(from: u64, bytes: usize) -> Option<std::ops::Range<usize>> {
    let from = usize::try_from(from).ok()?;
    Some(from..from.checked_add(bytes)?)
}
