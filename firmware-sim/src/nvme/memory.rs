//! The namespace of subsystem local memory.
//!
//! Its bytes are in stripes with a lock each: a program that writes samples, a copy of records and a host that reads
//! results wait for each other only where they are at the same bytes. The bytes of one command are not read or written
//! all at once, which the standard does not ask for either.

use std::ops::Range;
use std::sync::{PoisonError, RwLock};

use bothends_nvme::Status;
use bothends_nvme::commands::{BlockSource, ByteSource, FastOnly, Source};

use super::blocks::BlockMedia;
use super::{BLOCK_BYTES, BLOCKS, MEMORY};

/// Bytes of a stripe: several samples; the largest memory, 64 GiB, has 16,384 of them.
const STRIPE_BYTES: usize = 4 << 20;

/// Memory of the device. Several may read at once.
#[derive(Debug)]
pub(super) struct Memory {
    stripes: Box<[RwLock<Vec<u8>>]>,
    /// Bytes of each stripe but the last.
    stripe_bytes: usize,
    size: u64,
}

/// What addresses and lengths are multiples of.
const DWORD: u64 = 4;

/// Bytes of memory within one stripe.
struct Piece<'a> {
    stripe: &'a RwLock<Vec<u8>>,
    /// Where they are in the stripe.
    span: Range<usize>,
    /// How many bytes of the whole come before them.
    at: usize,
}

impl Memory {
    /// Memory of `size` zeros.
    pub(super) fn new(size: usize) -> Self {
        Self::with_stripes(size, STRIPE_BYTES)
    }

    fn with_stripes(size: usize, stripe_bytes: usize) -> Self {
        let bytes = |first| vec![0; stripe_bytes.min(size - first)];
        let stripes = (0..size).step_by(stripe_bytes).map(|at| RwLock::new(bytes(at)));
        Self { stripes: stripes.collect(), stripe_bytes, size: size as u64 }
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
        for Piece { stripe, span, at } in self.pieces(from, to.len())? {
            let own = stripe.read().unwrap_or_else(PoisonError::into_inner);
            to[at..][..span.len()].copy_from_slice(&own[span]);
        }
        Ok(())
    }

    /// Writes `bytes` from `to` on: `fill` is given them in pieces, each with the number of bytes before it.
    ///
    /// # Errors
    /// Invalid Field if they are not there; those of `fill`.
    pub(super) fn write(
        &self,
        to: u64,
        bytes: usize,
        mut fill: impl FnMut(usize, &mut [u8]) -> Result<(), Status>,
    ) -> Result<(), Status> {
        for Piece { stripe, span, at } in self.pieces(to, bytes)? {
            let mut own = stripe.write().unwrap_or_else(PoisonError::into_inner);
            fill(at, &mut own[span])?;
        }
        Ok(())
    }

    /// Writes `from`.
    ///
    /// # Errors
    /// Invalid Field if its place is not there.
    pub(super) fn put(&self, to: u64, from: &[u8]) -> Result<(), Status> {
        self.write(to, from.len(), |at, piece| {
            piece.copy_from_slice(&from[at..][..piece.len()]);
            Ok(())
        })
    }

    /// The bytes, stripe by stripe.
    fn pieces(
        &self,
        from: u64,
        bytes: usize,
    ) -> Result<impl Iterator<Item = Piece<'_>>, Status> {
        let Range { start, end } = span(from, bytes).ok_or(Status::INVALID_FIELD)?;
        if end as u64 > self.size {
            return Err(Status::INVALID_FIELD);
        }
        let mut next = start;
        Ok(std::iter::from_fn(move || {
            let (n, from) = (next / self.stripe_bytes, next % self.stripe_bytes);
            let bytes = (end - next).min(self.stripe_bytes - from);
            let at = next - start;
            next += bytes;
            let piece =
                || Piece { stripe: &self.stripes[n], span: from..from + bytes, at };
            (bytes > 0).then(piece)
        }))
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
            let first =
                from.first.checked_add(done.into()).ok_or(Status::LBA_OUT_OF_RANGE)?;
            let at = to + u64::from(done) * u64::from(BLOCK_BYTES);
            self.copy_part(at, (first, n), media)?;
            done += n;
        }
        Ok(())
    }

    /// Copies `n_blocks` blocks: straight into their stripe, unless they are in two.
    fn copy_part(
        &self,
        to: u64,
        (first, n_blocks): (u64, u32),
        media: &BlockMedia,
    ) -> Result<(), Status> {
        let bytes = (n_blocks * BLOCK_BYTES) as usize;
        if self.pieces(to, bytes)?.nth(1).is_none() {
            return self.write(to, bytes, |_, piece| media.read(first, piece));
        }
        // A block may be in both.
        let mut part = vec![0; bytes];
        media.read(first, &mut part)?;
        self.put(to, &part)
    }

    fn copy_bytes(&self, to: u64, from: &ByteSource) -> Result<(), Status> {
        const PART: u32 = 64 << 10;
        let mut part = vec![0; PART.min(from.bytes) as usize];
        for done in (0..from.bytes).step_by(PART as usize) {
            let part = &mut part[..PART.min(from.bytes - done) as usize];
            self.read(from.from + u64::from(done), part)?;
            self.put(to + u64::from(done), part)?;
        }
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

fn span(from: u64, bytes: usize) -> Option<Range<usize>> {
    let from = usize::try_from(from).ok()?;
    Some(from..from.checked_add(bytes)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is the report")]

    use proptest::prelude::*;

    use super::*;

    /// What a command does, to places and in lengths that may not be there.
    #[derive(Debug, Clone)]
    enum Command {
        Write(u64, Vec<u8>),
        Fill(u64, usize),
        Copy(u64, ByteSource),
    }

    fn command(size: u64) -> impl Strategy<Value = Command> {
        let bytes = prop::collection::vec(any::<u8>(), 0..90);
        let copy = (0..=size / 4, 0..=size / 4, 0..25_u32).prop_map(|(to, from, n)| {
            let fast_only = FastOnly::No;
            let from =
                ByteSource { nsid: MEMORY, bytes: n * 4, from: from * 4, fast_only };
            Command::Copy(to * 4, from)
        });
        prop_oneof![
            (0..=size, bytes).prop_map(|(to, from)| Command::Write(to, from)),
            (0..=size, 0..90_usize).prop_map(|(to, bytes)| Command::Fill(to, bytes)),
            copy,
        ]
    }

    /// The same in a slice; `false` where it is refused.
    fn carry_out(command: &Command, own: &mut [u8]) -> bool {
        let (to, from) = match command {
            Command::Write(to, from) => (*to, from.clone()),
            Command::Fill(to, bytes) => (*to, vec![0; *bytes]),
            Command::Copy(to, from) => {
                let span = span(from.from, from.bytes as usize).unwrap();
                let overlaps =
                    from.from < to + u64::from(from.bytes) && *to < span.end as u64;
                match own.get(span) {
                    Some(bytes) if !overlaps => (*to, bytes.to_vec()),
                    _ => return false,
                }
            }
        };
        let there = own.get_mut(span(to, from.len()).unwrap());
        there.map(|there| there.copy_from_slice(&from)).is_some()
    }

    fn image(bytes: &[u8]) -> (tempfile::NamedTempFile, BlockMedia) {
        let place = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(place.path(), bytes).unwrap();
        let media = BlockMedia::open(place.path()).unwrap();
        (place, media)
    }

    #[test]
    fn blocks_may_be_in_two_stripes() {
        let bytes: Vec<u8> = (0..=250).cycle().take(4096 * 70).collect();
        let (_place, media) = image(&bytes);
        let memory = Memory::with_stripes(100 * 4096, 7 * 4096);
        for to in [0, 4, 4096 * 6 + 2048] {
            let (first, n_blocks) = (1, 69);
            let from =
                BlockSource { nsid: BLOCKS, first, n_blocks, fast_only: FastOnly::No };
            let all = (to, u64::from(n_blocks * BLOCK_BYTES));
            memory.copy(all, &[Source::Blocks(from)], &media).unwrap();
            let mut found = vec![1; 69 * 4096];
            memory.read(to, &mut found).unwrap();
            assert!(found == bytes[4096..], "to {to}");
        }
    }

    proptest! {
        /// Stripes of any length are one memory.
        #[test]
        fn stripes_are_one_memory(
            (size, stripe, commands) in (1_usize..60, 1_usize..70).prop_flat_map(|(n, stripe)| {
                let size = n * 4;
                let commands = prop::collection::vec(command(size as u64), 1..40);
                (Just(size), Just(stripe), commands)
            }),
        ) {
            let (_place, media) = image(&[0; 4096]);
            let memory = Memory::with_stripes(size, stripe);
            let mut expected = vec![0; size];
            for command in &commands {
                let done = match command {
                    Command::Write(to, from) => memory.put(*to, from),
                    Command::Fill(to, bytes) => memory.write(*to, *bytes, |_, piece| {
                        piece.fill(0);
                        Ok(())
                    }),
                    Command::Copy(to, from) => {
                        let all = (*to, u64::from(from.bytes));
                        memory.copy(all, &[Source::Bytes(*from)], &media)
                    }
                };
                prop_assert_eq!(done.is_ok(), carry_out(command, &mut expected));
                let mut found = vec![1; size];
                memory.read(0, &mut found).unwrap();
                prop_assert_eq!(&found, &expected);
            }
            let mut beyond = vec![1; size];
            prop_assert!(memory.read(1, &mut beyond).is_err());
        }
    }
}
