//! A value received where it shall be: the line before it, the value and the end of its line come with one read, each into
//! memory of its own. There is room for one byte more, which must not come: whoever asks next would take it for its answer.

use std::io::{self, IoSliceMut, Read, Write};

use bytes::BytesMut;
use tokio::io::AsyncRead;
use tokio::net::TcpStream;

use crate::fetcher::progress;

use super::Heard;

/// Longer than the line before any value: `$`, at most 20 digits, the end of the line.
const MOST_HEAD: usize = 24;
/// Of a line.
const END: &[u8; 2] = b"\r\n";

/// What answers come from.
pub(super) trait Stream: AsyncRead + Unpin {
    /// Reads what is there into the first of `parts`, then into the second and so on; waits until something is. Number
    /// of bytes, 0 at the end.
    async fn read_parts(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize>;
}

impl Stream for TcpStream {
    async fn read_parts(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        loop {
            // A connection that always has more leaves the thread to others now and then.
            tokio::task::coop::consume_budget().await;
            self.readable().await?;
            match self.try_read_vectored(parts) {
                // Readiness may be old. It is not taken back after less than there was room for, as more has often come
                // meanwhile.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

/// Bytes in memory.
impl Stream for &[u8] {
    async fn read_parts(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read_vectored(parts)
    }
}

/// What an answer is.
#[derive(Debug)]
pub(super) enum InPlace {
    /// A value of the expected length, which is in its place now.
    Received,
    /// Something else, which may have begun with these bytes.
    Other(BytesMut),
}

/// Receives a value of as many bytes as `place` has.
///
/// # Errors
/// What the stream says, and whether anything came before.
pub(super) async fn receive_in_place(
    stream: &mut impl Stream,
    place: &mut [u8],
) -> Result<InPlace, (Heard, io::Error)> {
    let mut expected = [0; MOST_HEAD];
    let n_head = head(&mut expected, place.len());
    let (mut head, mut end) = ([0; MOST_HEAD], [0; END.len() + 1]);
    let (head, expected) = (&mut head[..n_head], &expected[..n_head]);
    let whole = n_head + place.len() + END.len();
    let mut come = 0;
    while come < whole {
        let read = {
            let mut parts = [&mut *head, &mut *place, &mut end].map(IoSliceMut::new);
            let mut left = &mut parts[..];
            IoSliceMut::advance_slices(&mut left, come);
            stream.read_parts(left).await
        };
        let n_bytes = match read {
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            read => read,
        };
        let heard = if come == 0 { Heard::Nothing } else { Heard::Something };
        let n_bytes = n_bytes.map_err(|error| (heard, error))?;
        progress::came(n_bytes);
        come += n_bytes;
        let n_compared = come.min(n_head);
        let is_other = head[..n_compared] != expected[..n_compared];
        let is_end = come < whole || (come == whole && end.starts_with(END));
        if is_other || !is_end {
            let mut bytes = BytesMut::with_capacity(come);
            bytes.extend_from_slice(head);
            bytes.extend_from_slice(place);
            bytes.extend_from_slice(&end);
            bytes.truncate(come);
            return Ok(InPlace::Other(bytes));
        }
    }
    Ok(InPlace::Received)
}

/// Writes the line before a value of `len` bytes; its own length.
fn head(line: &mut [u8; MOST_HEAD], len: usize) -> usize {
    let mut left = &mut line[..];
    // It has room for every number.
    let _ = write!(left, "${len}\r\n");
    let n_left = left.len();
    MOST_HEAD - n_left
}
