//! The reference reader: one `pread` per record, at the time it is polled for.
//!
//! It overlaps nothing and blocks as long as the disk takes, whatever the timeout. It is used where
//! io_uring is not available, and it defines what every reader must deliver.

use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use crate::reader::Read;
use crate::span::{Next, Span};
use crate::{
    ALIGNMENT, Buffer, IoError, OpenFile, Pool, ReadDone, ReadInto, ReadRequest, Reader,
    ReaderConfig, Refusal, Refused,
};

/// Bytes read at a time where `dst` cannot be read into directly.
const BOUNCE_BYTES: usize = 1 << 20;

/// Reads with `pread(2)`.
#[derive(Debug)]
pub struct PreadReader {
    pool: Pool,
    depth: usize,
    max_record_bytes: u32,
    queue: VecDeque<Queued>,
    bytes_read: u64,
    note: Option<String>,
}

/// To be read when its turn comes, or already ended.
#[derive(Debug)]
enum Queued {
    Read(Read),
    Ended(ReadDone),
}

impl PreadReader {
    /// A reader of that depth and those buffers.
    pub(crate) fn new(config: &ReaderConfig, note: Option<String>) -> Self {
        Self {
            pool: Pool::of(config.buffers()),
            depth: config.depth as usize,
            max_record_bytes: config.max_record_bytes,
            queue: VecDeque::with_capacity(config.depth as usize),
            bytes_read: 0,
            note,
        }
    }

    /// Reads into one place.
    fn read_one(&mut self, read: &mut ReadInto<'_>) -> Result<(), IoError> {
        let (file, offset) = (read.file, read.offset);
        self.bytes_read += match read.window() {
            Some((mut span, window)) => fill(file, &mut span, window)?,
            None => fill_slice(file, offset, read.bytes())?,
        };
        Ok(())
    }
}

impl Reader for PreadReader {
    fn submit(&mut self, request: ReadRequest) -> Result<(), Refused> {
        if self.queue.len() == self.depth {
            return Err(Refused { request, reason: Refusal::QueueFull });
        }
        let read = Read::begin(request, &self.pool, self.max_record_bytes)?;
        self.queue.push_back(read.map_or_else(Queued::Ended, Queued::Read));
        Ok(())
    }

    fn poll(&mut self, _timeout: Duration) -> Option<ReadDone> {
        match self.queue.pop_front()? {
            Queued::Ended(done) => Some(done),
            Queued::Read(mut read) => {
                let memory = read.memory.buffer_mut().as_mut_slice();
                let result = fill(&read.file, &mut read.span, memory);
                self.bytes_read += *result.as_ref().unwrap_or(&0);
                Some(read.end(result.map(|_| ())))
            }
        }
    }

    fn read_into(
        &mut self,
        file: &Arc<OpenFile>,
        offset: u64,
        dst: &mut [u8],
    ) -> Result<(), IoError> {
        self.bytes_read += fill_slice(file, offset, dst)?;
        Ok(())
    }

    fn read_all(&mut self, reads: &mut [ReadInto<'_>]) -> Vec<Result<(), IoError>> {
        reads.iter_mut().map(|read| self.read_one(read)).collect()
    }

    fn in_flight(&self) -> usize {
        self.queue.len()
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn name(&self) -> &'static str {
        "pread"
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }
}

/// Reads the span's window into `memory` and says how many bytes came.
fn fill(file: &OpenFile, span: &mut Span, memory: &mut [u8]) -> Result<u64, IoError> {
    let mut bytes_read = 0;
    while !span.is_done() {
        let piece = span.piece();
        let dst = &mut memory[piece.at..piece.at + piece.len as usize];
        let result = file.file().read_at(dst, piece.offset);
        bytes_read += *result.as_ref().unwrap_or(&0) as u64;
        match span.after(file, result) {
            Next::Read => {}
            Next::Done => break,
            Next::Fail(error) => return Err(error),
        }
    }
    Ok(bytes_read)
}

/// How many bytes of `dst` can be read without a copy.
pub(crate) fn direct_len(file: &OpenFile, offset: u64, dst: &[u8]) -> usize {
    if !file.is_direct() {
        return dst.len();
    }
    let aligned = dst.as_ptr().addr().is_multiple_of(ALIGNMENT)
        && offset.is_multiple_of(ALIGNMENT as u64);
    if aligned { dst.len() - dst.len() % ALIGNMENT } else { 0 }
}

/// Fills `dst` from `offset`, by way of a buffer where it cannot be read into directly,
/// and says how many bytes came.
pub(crate) fn fill_slice(
    file: &OpenFile,
    offset: u64,
    dst: &mut [u8],
) -> Result<u64, IoError> {
    let (direct, rest) = dst.split_at_mut(direct_len(file, offset, dst));
    let mut bytes_read = fill(file, &mut Span::new(file, offset, direct.len())?, direct)?;
    let mut offset = offset + direct.len() as u64;
    for part in rest.chunks_mut(BOUNCE_BYTES) {
        let mut span = Span::new(file, offset, part.len())?;
        let mut bounce = Buffer::new(span.window_bytes());
        bytes_read += fill(file, &mut span, bounce.as_mut_slice())?;
        part.copy_from_slice(&bounce.as_slice()[span.range()]);
        offset += part.len() as u64;
    }
    Ok(bytes_read)
}
