//! Which bytes a request needs, and what to do after a read that was short, refused or
//! interrupted. Both readers follow it, so they give the same bytes and the same errors.
//!
//! An O_DIRECT read covers the request by whole blocks (the window); the bytes before
//! (`skip`) and behind are slack that nobody sees. At a file's end the last block is short.
//! Does not read.

use std::io;
use std::ops::Range;

use crate::files::is_invalid;
use crate::{ALIGNMENT, IoError, OpenFile};

/// Longest single read in bytes: below the kernel's own bound of 2 GiB less a page.
const MAX_PIECE_BYTES: usize = 1 << 30;

/// How often one request is tried again after EINTR or EAGAIN before that is an error.
const MAX_RETRIES: u32 = 1000;

/// One request on its way.
#[derive(Debug)]
pub(crate) struct Span {
    /// File offset of the window, and its length.
    start: u64,
    window: usize,
    /// Where the request lies in the window.
    skip: usize,
    len: usize,
    /// Bytes of the window that are read.
    done: usize,
    /// The window consists of whole blocks, for O_DIRECT.
    direct: bool,
    n_retries: u32,
}

/// The next read: `len` bytes from `offset` of the file to `at` of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) at: usize,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

/// What to do after a read.
#[derive(Debug)]
pub(crate) enum Next {
    /// Read `Span::piece`.
    Read,
    /// All bytes are there.
    Done,
    /// They will not be.
    Fail(IoError),
}

impl Span {
    /// The request for `len` bytes from `offset` of `file`.
    pub(crate) fn new(file: &OpenFile, offset: u64, len: usize) -> Result<Self, IoError> {
        Self::cover(offset, len, file.is_direct())
            .ok_or_else(|| truncated(file, offset, len))
    }

    /// `None` beyond the largest offset a file has.
    #[expect(clippy::fn_params_excessive_bools, reason = "mirrors the field")]
    fn cover(offset: u64, len: usize, direct: bool) -> Option<Self> {
        let block = if direct { ALIGNMENT } else { 1 };
        let skip = usize::try_from(offset % block as u64).ok()?;
        let window = skip.checked_add(len)?.checked_next_multiple_of(block)?;
        let start = offset - skip as u64;
        i64::try_from(start.checked_add(window as u64)?).ok()?;
        Some(Self { start, window, skip, len, done: 0, direct, n_retries: 0 })
    }

    /// Memory the window needs, in bytes.
    pub(crate) fn window_bytes(&self) -> usize {
        self.window
    }

    /// Where in the window the request lies.
    pub(crate) fn range(&self) -> Range<usize> {
        self.skip..self.skip + self.len
    }

    /// The read that is due. With whole blocks it begins at a block, so a block that came
    /// in part is read again.
    pub(crate) fn piece(&self) -> Piece {
        let at = if self.direct { self.done - self.done % ALIGNMENT } else { self.done };
        let len = (self.window - at).min(MAX_PIECE_BYTES);
        let len = u32::try_from(len).expect("a piece is at most 1 GiB");
        Piece { at, offset: self.start + at as u64, len }
    }

    /// Whether nothing needs to be read.
    pub(crate) fn is_done(&self) -> bool {
        self.len == 0 || self.done >= self.skip + self.len
    }

    /// Takes the result of reading [`piece`](Self::piece): how many bytes came.
    pub(crate) fn after(&mut self, file: &OpenFile, result: io::Result<usize>) -> Next {
        match result {
            Ok(n) => {
                let done = self.piece().at + n;
                if done <= self.done {
                    let offset = self.start + self.skip as u64;
                    return Next::Fail(truncated(file, offset, self.len));
                }
                self.done = done;
                if self.is_done() { Next::Done } else { Next::Read }
            }
            Err(error) if is_passing(&error) && self.n_retries < MAX_RETRIES => {
                self.n_retries += 1;
                Next::Read
            }
            Err(error) if self.direct && is_invalid(&error) => match file.go_buffered() {
                Ok(()) => {
                    self.direct = false;
                    Next::Read
                }
                Err(error) => Next::Fail(IoError::at(file.path(), "read", error)),
            },
            Err(error) => Next::Fail(IoError::at(file.path(), "read", error)),
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

fn truncated(file: &OpenFile, offset: u64, len: usize) -> IoError {
    IoError::Truncated { path: file.path().to_owned(), offset, len: len as u64 }
}
