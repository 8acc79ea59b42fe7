//! The reader interface: requests in, bytes out, out of order, never more than `depth` in flight.
//!
//! Read `pread.rs` next, the reference; then `uring.rs`.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::buffer::Memory;
use crate::span::Span;
use crate::{Buffer, Bytes, IoError, OpenFile, Pool};

/// A record to read.
#[derive(Debug, Clone)]
pub struct ReadRequest {
    /// The file; stays open until the read is done.
    pub file: Arc<OpenFile>,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
    /// The caller's name for it; comes back in [`ReadDone`].
    pub tag: u64,
}

/// Bytes to read into memory of the caller's, with room round them.
#[derive(Debug)]
pub struct ReadInto<'a> {
    /// The file.
    pub file: &'a Arc<OpenFile>,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: usize,
    /// Memory that may be written to. What it holds besides the bytes means nothing afterwards.
    pub room: &'a mut [u8],
    /// Where in `room` the first byte goes.
    pub at: usize,
}

impl ReadInto<'_> {
    /// Where the bytes go.
    ///
    /// # Panics
    /// When they do not lie in the room: a mistake of the caller.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.room[self.at..][..self.len]
    }

    /// The span, and the part of the room that is its window: what is read goes there without
    /// a copy. `None` where there is nothing to read, or where whole blocks have no place in
    /// the room as they lie in the file. Only the span is asked for the block, for the file may
    /// go buffered at any time.
    pub(crate) fn window(&mut self) -> Option<(Span, &mut [u8])> {
        let span = Span::new(self.file, self.offset, self.len).ok()?;
        let start = self.at.checked_sub(span.range().start)?;
        let window = self.room.get_mut(start..)?.get_mut(..span.window_bytes())?;
        let is_aligned = window.as_ptr().addr().is_multiple_of(span.block());
        (is_aligned && !span.is_done()).then_some((span, window))
    }
}

/// A read that ended.
#[derive(Debug)]
pub struct ReadDone {
    /// As in the request.
    pub tag: u64,
    /// Exactly the bytes asked for, or why not.
    pub result: Result<Bytes, IoError>,
}

/// A request that was not taken; it comes back untouched.
#[derive(Debug, thiserror::Error)]
#[error("the reader did not take a request: {reason}")]
pub struct Refused {
    /// The request.
    pub request: ReadRequest,
    /// Why.
    pub reason: Refusal,
}

/// Why a request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// `depth` reads are on their way: poll first.
    #[error("its queue is full")]
    QueueFull,
    /// Every buffer is on its way or in a caller's hands: drop some [`Bytes`] first.
    #[error("no buffer is free")]
    NoBuffer,
}

/// Reads records.
///
/// # Contract
///
/// 1. Every request taken ends in exactly one [`ReadDone`], in any order, also when it
///    fails; no request ends before it is polled for.
/// 2. At most `depth` are on their way; one more comes back as [`Refusal::QueueFull`].
/// 3. The same request gives the same bytes or the same kind of error from every reader.
/// 4. Memory is the pool's, plus at most `depth` records longer than a pool buffer.
/// 5. `poll` returns at once when nothing is on its way, and after `timeout` at the latest
///    as far as the kernel allows: a plain `pread` of a dead disk does not end.
/// 6. Dropping a reader waits for the reads on their way; [`Bytes`] stay good.
/// 7. `read_into` and `read_all` return only when no read of theirs is on its way, whatever
///    happens: the memory is their caller's.
///
/// `conformance` holds these as callable checks.
pub trait Reader: Send + Debug {
    /// Takes a request; does not wait for the disk. Some are handed on together: one may only
    /// begin with the next `poll`.
    ///
    /// # Errors
    /// [`Refused`] with the request in it.
    fn submit(&mut self, request: ReadRequest) -> Result<(), Refused>;

    /// Waits up to `timeout` for a read to end; `None` when none did.
    fn poll(&mut self, timeout: Duration) -> Option<ReadDone>;

    /// Fills `dst` with the bytes from `offset` and waits for them, while other reads go
    /// on. Past the page cache and without a copy where the file is direct and `dst`'s
    /// address and `offset` are multiples of [`ALIGNMENT`](crate::ALIGNMENT) (a remainder
    /// of the length below that is copied). Blocks as long as the disk takes.
    ///
    /// # Errors
    /// [`IoError::Truncated`], [`IoError::Failed`]; `dst` may then be filled in part.
    fn read_into(
        &mut self,
        file: &Arc<OpenFile>,
        offset: u64,
        dst: &mut [u8],
    ) -> Result<(), IoError>;

    /// Reads into many places and waits for all of them, several at a time where the reader can,
    /// while other reads go on; what became of each, in order. Past the page cache and without
    /// a copy where the file is direct and the room holds whole [blocks](OpenFile::block) round
    /// the bytes, at addresses as they lie in the file. The others are read one after another,
    /// as by [`read_into`](Self::read_into). Blocks as long as the disk takes.
    ///
    /// # Errors
    /// Of each: [`IoError::Truncated`], [`IoError::Failed`], [`IoError::Ring`]; its room may
    /// then be filled in part.
    ///
    /// # Panics
    /// When bytes do not lie in their room.
    fn read_all(&mut self, reads: &mut [ReadInto<'_>]) -> Vec<Result<(), IoError>>;

    /// Requests that were taken and have not come out of `poll`.
    fn in_flight(&self) -> usize;

    /// Most requests on their way at once.
    fn depth(&self) -> usize;

    /// `uring` or `pread`.
    fn name(&self) -> &'static str;

    /// Bytes that came from storage or page cache, the slack of O_DIRECT included.
    fn bytes_read(&self) -> u64;

    /// What the user should know: why it is not the fastest reader that was chosen.
    fn note(&self) -> Option<&str>;
}

/// Which reader to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReaderKind {
    /// io_uring, or `pread` where the kernel or its owner does not allow that.
    Auto,
    /// io_uring or an error.
    Uring,
    /// `pread`.
    Pread,
}

/// How to read. Memory is at most `n_buffers · buffer_bytes + depth · max_record_bytes`;
/// the second term counts only records longer than a buffer.
#[derive(Debug, Clone, Copy)]
pub struct ReaderConfig {
    /// Which reader.
    pub kind: ReaderKind,
    /// Most requests on their way, 1 to 4096.
    pub depth: u32,
    /// Bytes of one pool buffer, 1 to 1 GiB, rounded up to
    /// [`ALIGNMENT`](crate::ALIGNMENT). A direct read needs up to 8190 more bytes than its
    /// record.
    pub buffer_bytes: u32,
    /// Number of pool buffers, 1 to 16,384.
    pub n_buffers: u32,
    /// Longest record that is read, in bytes.
    pub max_record_bytes: u32,
}

impl Default for ReaderConfig {
    /// 16 reads on their way and 24 buffers of 256 KiB (6 MiB, below the usual 8 MiB of
    /// memory that may be locked); records up to 256 MiB.
    fn default() -> Self {
        Self {
            kind: ReaderKind::Auto,
            depth: 16,
            buffer_bytes: 256 << 10,
            n_buffers: 24,
            max_record_bytes: 256 << 20,
        }
    }
}

impl ReaderConfig {
    /// Most buffers of a pool: io_uring registers no more at once (IORING_MAX_REG_BUFFERS).
    pub const MOST_BUFFERS: u32 = 1 << 14;

    /// The pool's buffers, not yet a pool: a ring wants to know them first.
    pub(crate) fn buffers(&self) -> Vec<Buffer> {
        (0..self.n_buffers).map(|_| Buffer::new(self.buffer_bytes as usize)).collect()
    }

    /// Holds every number against its bounds.
    pub(crate) fn check(&self) -> Result<(), IoError> {
        let within = |key, got: u64, max| match (1..=max).contains(&got) {
            true => Ok(()),
            false => Err(IoError::Setting { key, got, max }),
        };
        within("depth", u64::from(self.depth), 4096)?;
        within("buffer_bytes", u64::from(self.buffer_bytes), 1 << 30)?;
        within("n_buffers", u64::from(self.n_buffers), u64::from(Self::MOST_BUFFERS))?;
        within("max_record_bytes", u64::from(self.max_record_bytes), u64::from(u32::MAX))
    }
}

/// A request on its way: what is left to read, and the memory it goes to.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) tag: u64,
    pub(crate) file: Arc<OpenFile>,
    pub(crate) span: Span,
    pub(crate) memory: Memory,
}

impl Read {
    /// Gives a request its memory. A request that cannot be served whatever its turn
    /// (beyond all files, longer than the bound) ends at once.
    pub(crate) fn begin(
        request: ReadRequest,
        pool: &Pool,
        max_record_bytes: u32,
    ) -> Result<Result<Self, ReadDone>, Refused> {
        let ReadRequest { file, offset, len, tag } = request;
        if len > max_record_bytes {
            let (len, max) = (u64::from(len), u64::from(max_record_bytes));
            let error = IoError::RecordTooLong { path: file.path().to_owned(), len, max };
            return Ok(Err(ReadDone { tag, result: Err(error) }));
        }
        let span = match Span::new(&file, offset, len as usize) {
            Ok(span) => span,
            Err(error) => return Ok(Err(ReadDone { tag, result: Err(error) })),
        };
        if span.window_bytes() > pool.buffer_bytes() {
            let memory = Memory::Own(Buffer::new(span.window_bytes()));
            return Ok(Ok(Self { tag, file, span, memory }));
        }
        match pool.take() {
            Some(pooled) => {
                Ok(Ok(Self { tag, file, span, memory: Memory::Pooled(pooled) }))
            }
            None => {
                let request = ReadRequest { file, offset, len, tag };
                Err(Refused { request, reason: Refusal::NoBuffer })
            }
        }
    }

    /// The end of the read.
    pub(crate) fn end(self, result: Result<(), IoError>) -> ReadDone {
        let range = self.span.range();
        let result = result.map(|()| Bytes::new(self.memory, range));
        ReadDone { tag: self.tag, result }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ALIGNMENT, Direct};

    /// Bytes 5001 to 14,001 lie in blocks 1 to 3: with all three in the room, and with less.
    #[test]
    fn a_window_is_where_the_room_holds_its_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, vec![7; 50_000]).unwrap();
        for direct in [Direct::Auto, Direct::Off] {
            let file = Arc::new(OpenFile::open(&path, direct).unwrap());
            let is_buffered = file.block() == 1;
            let mut memory = Buffer::new(64 << 10);
            let mut has_window = |room: std::ops::Range<usize>, at: usize, len: usize| {
                let room = &mut memory.as_mut_slice()[room];
                let mut read = ReadInto { file: &file, offset: 5001, len, room, at };
                let window = read.window().map(|(span, window)| {
                    assert_eq!(window.len(), span.window_bytes());
                    window.as_ptr().addr() + span.range().start
                });
                let bytes = read.bytes().as_ptr().addr();
                window.inspect(|at| assert_eq!(*at, bytes)).is_some()
            };
            let first = ALIGNMENT + 5001 % ALIGNMENT;
            let (end, last) = (4 * ALIGNMENT, first + 9000);
            assert!(has_window(ALIGNMENT..end, first - ALIGNMENT, 9000));
            // At another place of a block than in the file.
            let is_there = has_window(ALIGNMENT..end, first + 1 - ALIGNMENT, 9000);
            assert_eq!(is_there, is_buffered);
            // Less room than blocks, before and behind.
            assert_eq!(has_window(first..end, 0, 9000), is_buffered);
            let is_there = has_window(ALIGNMENT..last, first - ALIGNMENT, 9000);
            assert_eq!(is_there, is_buffered);
            assert_eq!(has_window(first..last, 0, 9000), is_buffered);
            assert!(!has_window(ALIGNMENT..end, first - ALIGNMENT, 0), "nothing to read");
        }
    }
}
