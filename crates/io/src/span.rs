//! Which bytes a request needs, and what to do after a read that was short, refused or interrupted. Both
//! readers follow it, so they give the same bytes and the same errors.
//!
//! An O_DIRECT read covers the request with whole blocks (the window). The bytes before it (`skip`) and
//! after it are slack that nobody sees. At the end of a file the last block is short. This file does not
//! read.

use std::io;
use std::ops::Range;

use crate::files::is_invalid;
use crate::{IoError, OpenFile};

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
    /// Reads begin and end at multiples of this: 1 without O_DIRECT.
    block: usize,
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
        Self::cover(offset, len, file.block()).ok_or_else(|| truncated(file, offset, len))
    }

    /// `None` beyond the largest offset a file has.
    fn cover(offset: u64, len: usize, block: usize) -> Option<Self> {
        let skip = usize::try_from(offset % block as u64).ok()?;
        let window = skip.checked_add(len)?.checked_next_multiple_of(block)?;
        let start = offset - skip as u64;
        i64::try_from(start.checked_add(window as u64)?).ok()?;
        Some(Self { start, window, skip, len, done: 0, block, n_retries: 0 })
    }

    /// Memory the window needs, in bytes.
    pub(crate) fn window_bytes(&self) -> usize {
        self.window
    }

    /// What reads begin and end at multiples of.
    pub(crate) fn block(&self) -> usize {
        self.block
    }

    /// Where in the window the request lies.
    pub(crate) fn range(&self) -> Range<usize> {
        self.skip..self.skip + self.len
    }

    /// The read that is due. It begins at a block, so one that came in part is read again.
    pub(crate) fn piece(&self) -> Piece {
        let at = self.done - self.done % self.block;
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
            Err(error) if self.block > 1 && is_invalid(&error) => {
                match file.go_buffered() {
                    Ok(()) => {
                        self.block = 1;
                        Next::Read
                    }
                    Err(error) => Next::Fail(IoError::at(file.path(), "read", error)),
                }
            }
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

#[cfg(test)]
mod tests {
    use nix::errno::Errno;
    use proptest::prelude::*;

    use super::*;
    use crate::{ALIGNMENT, Direct};

    /// What a read does instead of all that was asked for.
    #[derive(Debug, Clone, Copy)]
    enum Fault {
        None,
        /// That many bytes at most (whole blocks of a direct read).
        Short(usize),
        Errno(Errno),
    }

    fn faults() -> impl Strategy<Value = Vec<Fault>> {
        let fault = prop_oneof![
            Just(Fault::None),
            (1..9000_usize).prop_map(Fault::Short),
            Just(Fault::Errno(Errno::EINTR)),
            Just(Fault::Errno(Errno::EAGAIN)),
        ];
        proptest::collection::vec(fault, 0..12)
    }

    /// Reads as the kernel would, with those faults first.
    fn serve(
        disk: &[u8],
        piece: Piece,
        fault: Fault,
        dst: &mut [u8],
    ) -> io::Result<usize> {
        let start = usize::try_from(piece.offset).unwrap().min(disk.len());
        let mut n = (piece.len as usize).min(disk.len() - start);
        match fault {
            Fault::None => {}
            Fault::Short(most) => n = n.min(most),
            Fault::Errno(errno) => return Err(errno.into()),
        }
        dst[piece.at..piece.at + n].copy_from_slice(&disk[start..start + n]);
        Ok(n)
    }

    fn any_file() -> (tempfile::NamedTempFile, OpenFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = OpenFile::open(file.path(), Direct::Off).unwrap();
        (file, open)
    }

    proptest! {
        #[test]
        fn whatever_happens_the_bytes_are_right_or_the_file_ends(
            (disk_len, offset, len) in (0..40_000_usize, 0..45_000_usize, 0..30_000_usize),
            block in prop::sample::select(vec![1, 512, ALIGNMENT]),
            faults in faults(),
        ) {
            let disk: Vec<u8> = (0..disk_len).map(|n| (n * 31 % 251).to_le_bytes()[0]).collect();
            let (_keep, file) = any_file();
            let mut span = Span::cover(offset as u64, len, block).unwrap();
            let mut window = vec![0; span.window_bytes()];
            let mut faults = faults.into_iter();
            let mut outcome = None;
            while !span.is_done() && outcome.is_none() {
                let piece = span.piece();
                prop_assert!(piece.offset.is_multiple_of(block as u64), "{piece:?}");
                prop_assert!((piece.at | piece.len as usize).is_multiple_of(block));
                let fault = match faults.next().unwrap_or(Fault::None) {
                    Fault::Short(most) => Fault::Short(most.next_multiple_of(block)),
                    other @ (Fault::None | Fault::Errno(_)) => other,
                };
                let result = serve(&disk, piece, fault, &mut window);
                match span.after(&file, result) {
                    Next::Read => {}
                    Next::Done => prop_assert!(span.is_done()),
                    Next::Fail(error) => outcome = Some(error),
                }
            }
            match (outcome, disk.get(offset..offset + len)) {
                (None, Some(expected)) => prop_assert_eq!(&window[span.range()], expected),
                (None, None) => prop_assert_eq!(len, 0),
                (Some(IoError::Truncated { .. }), None) => {}
                (outcome, _) => prop_assert!(false, "{outcome:?}"),
            }
        }
    }

    #[test]
    fn a_refused_direct_read_goes_on_through_the_page_cache() {
        let (_keep, file) = any_file();
        let mut span = Span::cover(5000, 10_000, ALIGNMENT).unwrap();
        assert_eq!(span.piece(), Piece { at: 0, offset: 4096, len: 12_288 });
        let next = span.after(&file, Err(Errno::EINVAL.into()));
        assert!(matches!(next, Next::Read));
        assert!(matches!(span.after(&file, Ok(1000)), Next::Read));
        assert_eq!(span.piece(), Piece { at: 1000, offset: 5096, len: 11_288 });
        let next = span.after(&file, Err(Errno::EINVAL.into()));
        assert!(matches!(next, Next::Fail(IoError::Failed { .. })), "not twice");
    }

    #[test]
    fn interruptions_do_not_go_on_for_ever() {
        let (_keep, file) = any_file();
        let mut span = Span::cover(0, 10, 1).unwrap();
        let n_tried = (0..).take_while(|_| {
            matches!(span.after(&file, Err(Errno::EINTR.into())), Next::Read)
        });
        assert_eq!(n_tried.count(), MAX_RETRIES as usize);
    }

    #[test]
    fn long_reads_come_in_pieces() {
        let (_keep, file) = any_file();
        let mut span = Span::cover(0, 3 << 30, ALIGNMENT).unwrap();
        assert_eq!(span.piece().len, 1 << 30);
        assert!(matches!(span.after(&file, Ok(1 << 30)), Next::Read));
        assert_eq!((span.piece().at, span.piece().offset), (1 << 30, 1 << 30));
    }
}
