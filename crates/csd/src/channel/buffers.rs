//! Sealed bytes on their way in and out.

use std::io;
use std::time::Instant;

use super::destination::Destination;
use crate::CsdError;
use crate::socket::{Readiness, Socket, left_until};

/// Sealed bytes that have arrived and were not opened, in a buffer of a fixed size.
#[derive(Debug, Default)]
pub(super) struct Intake {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Intake {
    /// From now on so many bytes at most are here at once. There are not more now.
    pub(super) fn make_room(&mut self, most_bytes: usize) {
        self.bytes.resize(most_bytes.max(self.end), 0);
    }

    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(super) fn unread_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    /// The first `n` bytes were opened.
    pub(super) fn take(&mut self, n: usize) {
        self.start = (self.start + n).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads what is there; `None` when nothing is. A full buffer is an error: its owner takes what can be
    /// opened before it reads on.
    pub(super) fn read_from(&mut self, socket: &mut Socket) -> io::Result<Option<usize>> {
        // What is in the way of a read of half the buffer is moved: less than half is copied.
        if self.start > 0 && self.bytes.len() - self.end < self.bytes.len() / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.bytes.len() {
            let what = "more than fits came before it could be opened";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let read = socket.read_ready(&mut self.bytes[self.end..])?;
        self.end += read.unwrap_or(0);
        Ok(read)
    }

    /// As [`Self::read_from`], once there is something; [`io::ErrorKind::TimedOut`] at `deadline`.
    pub(super) fn await_from(
        &mut self,
        socket: &mut Socket,
        deadline: Instant,
    ) -> io::Result<usize> {
        loop {
            if let Some(n) = self.read_from(socket)? {
                return Ok(n);
            }
            let left = left_until(deadline);
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            socket.wait(Readiness::Read, left)?;
        }
    }
}

/// A handshake that failed so: a peer that says nothing is late, not gone.
pub(super) fn failed_since(
    began: Instant,
    doing: &'static str,
) -> impl Fn(io::Error) -> CsdError {
    move |error| match error.kind() == io::ErrorKind::TimedOut {
        true => CsdError::Timeout { doing: "hello", waited: began.elapsed() },
        false => CsdError::lost(doing)(error),
    }
}

/// Sealed bytes that have not left.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// `n` bytes of room after what is here, to write into; then [`Self::add`].
    pub(super) fn room(&mut self, n: usize) -> &mut [u8] {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
        if self.bytes.len() < self.end + n {
            self.bytes.resize(self.end + n, 0);
        }
        &mut self.bytes[self.end..self.end + n]
    }

    /// `n` bytes of the room that was asked for are to be sent.
    pub(super) fn add(&mut self, n: usize) {
        self.end = (self.end + n).min(self.bytes.len());
    }

    /// Sends what the socket takes now; whether all has left.
    pub(super) fn flush(&mut self, socket: &mut Socket) -> io::Result<bool> {
        while !self.is_empty() {
            match socket.write_ready(&self.bytes[self.start..self.end])? {
                Some(n) => self.start += n,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Sends all, or fails with [`io::ErrorKind::TimedOut`] at `deadline`.
    pub(super) fn flush_until(
        &mut self,
        socket: &mut Socket,
        deadline: Instant,
    ) -> io::Result<()> {
        while !self.flush(socket)? {
            let left = left_until(deadline);
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            socket.wait(Readiness::Write, left)?;
        }
        Ok(())
    }
}

/// Opened bytes that nobody has read yet.
#[derive(Debug, Default)]
pub(super) struct Opened {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Opened {
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// `n` bytes to open into, while nothing is here; then [`Self::opened`].
    pub(super) fn room(&mut self, n: usize) -> &mut [u8] {
        (self.start, self.end) = (0, 0);
        if self.bytes.len() < n {
            self.bytes.resize(n, 0);
        }
        &mut self.bytes[..n]
    }

    /// `n` bytes were opened into the room that was asked for.
    pub(super) fn opened(&mut self, n: usize) {
        self.end = n.min(self.bytes.len());
    }

    /// Adds a copy.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
        let end = self.end + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[self.end..end].copy_from_slice(bytes);
        self.end = end;
    }

    /// Moves as much as there is, or as fits.
    pub(super) fn fill(&mut self, to: &mut dyn Destination) -> usize {
        let n = to.take(&self.bytes[self.start..self.end]);
        self.start += n;
        n
    }
}
