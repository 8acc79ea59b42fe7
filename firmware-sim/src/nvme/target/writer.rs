//! What is sent on a connection: by its own thread, which may wait for the host, and by those that programs run on,
//! which may not.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use bothends_nvme::Status;
use bothends_nvme::layout::pdu;
use nix::sys::socket::{MsgFlags, send};

use crate::nvme::room::Spill;
use crate::nvme::subsystem::Subsystem;

/// How long a host may leave what it is sent in its socket.
const TO_SEND: Duration = Duration::from_secs(30);
/// Once a connection's own thread has sent so many bytes, completions that have become due meanwhile go before the next
/// PDU.
const TURN_BYTES: usize = 128 << 10;
/// No PDU with data is as small, and each without is.
const SMALL_BYTES: usize = 64;

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Writer {
    stream: Arc<TcpStream>,
    /// Its model is told when completions with a modelled time are sent.
    subsystem: Arc<Subsystem>,
    /// Completions that wait to be sent. Whoever has had the turn looks into it again.
    outbox: Mutex<Outbox>,
    turn: Mutex<()>,
    ended: AtomicBool,
}

/// Completions that wait to be sent.
#[derive(Debug, Default)]
struct Outbox {
    bytes: Vec<u8>,
    /// When those with a modelled time were to be sent.
    due: Vec<Instant>,
}

/// Whether something is left to be sent, which nobody else is about to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    None,
    Some,
}

impl Writer {
    pub(super) fn new(stream: Arc<TcpStream>, subsystem: Arc<Subsystem>) -> Self {
        Self {
            stream,
            subsystem,
            outbox: Mutex::default(),
            turn: Mutex::default(),
            ended: false.into(),
        }
    }

    /// The connection has ended: nobody waits for its programs.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Whether the connection has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Sends all there is, and empties `out`, which has whole PDUs. Waits for the host, [`TO_SEND`] in all.
    ///
    /// # Errors
    /// The host does not read, or has gone.
    pub(super) fn flush(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let by = Instant::now() + TO_SEND;
        let mut sent = 0;
        loop {
            {
                let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
                let earlier = std::mem::take(&mut *self.outbox());
                self.count(&earlier.due);
                self.write(&earlier.bytes, by)?;
                let end = sent + turn_bytes(&out[sent..]);
                self.write(&out[sent..end], by)?;
                sent = end;
            }
            if sent == out.len() && self.outbox().bytes.is_empty() {
                out.clear();
                return Ok(());
            }
        }
    }

    /// Puts a completion where the next [`Writer::post`] or [`Writer::flush`] finds it; `due` says when it was to be
    /// sent, if a model says.
    pub(super) fn put(&self, completion: &[u8], due: Option<Instant>) {
        let mut outbox = self.outbox();
        outbox.bytes.extend_from_slice(completion);
        outbox.due.extend(due);
    }

    /// Has completions sent. What the socket has no room for is sent by the connection's own thread, or by whoever posts
    /// next.
    pub(super) fn post(&self) -> Rest {
        loop {
            match self.try_post() {
                // Looked at without the turn: who has come meanwhile leaves it to this thread.
                Some(Rest::None) if !self.outbox().bytes.is_empty() => {}
                Some(rest) => return rest,
                // Who has the turn looks into the outbox again.
                None => return Rest::None,
            }
        }
    }

    /// Sends what is there now, unless another has the turn.
    fn try_post(&self) -> Option<Rest> {
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let mut own = std::mem::take(&mut *self.outbox());
        if own.bytes.is_empty() {
            return Some(Rest::None);
        }
        self.count(&std::mem::take(&mut own.due));
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let n = send(self.stream.as_raw_fd(), &own.bytes, flags).unwrap_or(0);
        if n < own.bytes.len() {
            own.bytes.drain(..n);
            let mut outbox = self.outbox();
            own.bytes.extend_from_slice(&outbox.bytes);
            outbox.bytes = own.bytes;
            return Some(Rest::Some);
        }
        Some(Rest::None)
    }

    /// Completions are sent now that were due then.
    fn count(&self, due: &[Instant]) {
        let timing = self.subsystem.timing().filter(|_| !due.is_empty());
        if let Some(timing) = timing {
            timing.answered(due, Instant::now());
        }
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, mut bytes: &[u8], by: Instant) -> std::io::Result<()> {
        let mut stream: &TcpStream = &self.stream;
        while !bytes.is_empty() {
            if Instant::now() > by {
                return Err(ErrorKind::TimedOut.into());
            }
            match stream.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => bytes = &bytes[n..],
                Err(e) if is_pause(&e) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl Spill for Writer {
    /// A turn's worth is much.
    fn spill(&self, out: &mut Vec<u8>) -> Result<(), Status> {
        if out.len() < TURN_BYTES {
            return Ok(());
        }
        self.flush(out).map_err(|_| Status::DATA_TRANSFER_ERROR)
    }
}

/// Bytes of so many PDUs at the beginning of `out` that they have [`TURN_BYTES`], or of all, with the small ones behind
/// them: a completion goes with its data.
fn turn_bytes(out: &[u8]) -> usize {
    let mut end = 0;
    while let Some(head) = out.get(end..).and_then(|rest| rest.first_chunk()) {
        let n = pdu::PLEN.get(head) as usize;
        if end >= TURN_BYTES && n > SMALL_BYTES {
            break;
        }
        end = end.saturating_add(n.max(pdu::BYTES));
    }
    end.min(out.len())
}

/// Whether it may go on later.
pub(super) fn is_pause(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use bothends_nvme::pdu::{DataHead, Format, Last};

    use super::*;

    fn data(bytes: u32, out: &mut Vec<u8>) {
        let head = DataHead { id: 1, tag: 0, from: 0, bytes, last: Last::Yes };
        Format::default().before_data_to_host(head, out);
        out.resize(out.len() + bytes as usize, 7);
    }

    #[test]
    fn a_turn_ends_between_pdus_and_with_the_completion_of_its_data() {
        assert_eq!(turn_bytes(&[]), 0);
        let mut out = Vec::new();
        for bytes in [100 << 10, 100 << 10] {
            data(bytes, &mut out);
        }
        let entry = bothends_nvme::Cqe {
            result: 0,
            sq_head: 0,
            sq_id: 1,
            id: 1,
            status: Status::SUCCESS,
        };
        Format::default().response(&entry, &mut out);
        let first = out.len();
        assert_eq!(turn_bytes(&out), first, "all");
        data(1 << 20, &mut out);
        assert_eq!(turn_bytes(&out), first);
        assert_eq!(turn_bytes(&out[first..]), out.len() - first, "one is a turn");
    }
}
