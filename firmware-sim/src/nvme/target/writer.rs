//! What is sent on a connection: by its own thread, which may wait for the host, and by those that programs run on,
//! which may not.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use nix::sys::socket::{MsgFlags, send};

/// How long a host may leave what it is sent in its socket.
const TO_SEND: Duration = Duration::from_secs(30);

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Writer {
    stream: Arc<TcpStream>,
    /// Completions that wait to be sent. Whoever has had the turn looks into it again.
    outbox: Mutex<Vec<u8>>,
    turn: Mutex<()>,
    ended: AtomicBool,
}

/// Whether something is left to be sent, which nobody else is about to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    None,
    Some,
}

impl Writer {
    pub(super) fn new(stream: Arc<TcpStream>) -> Self {
        Self {
            stream,
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

    /// Sends all there is, and empties `out`. Waits for the host, [`TO_SEND`] in all.
    ///
    /// # Errors
    /// The host does not read, or has gone.
    pub(super) fn flush(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let by = Instant::now() + TO_SEND;
        loop {
            {
                let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
                let earlier = std::mem::take(&mut *self.outbox());
                self.write(&earlier, by)?;
                self.write(out, by)?;
                out.clear();
            }
            if self.outbox().is_empty() {
                return Ok(());
            }
        }
    }

    /// Has a completion sent. What the socket has no room for is sent by the connection's own thread, or by whoever
    /// posts next.
    pub(super) fn post(&self, completion: &[u8]) -> Rest {
        self.outbox().extend_from_slice(completion);
        loop {
            let _turn = match self.turn.try_lock() {
                Ok(turn) => turn,
                Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
                // Who has it looks into the outbox again.
                Err(TryLockError::WouldBlock) => return Rest::None,
            };
            let mut own = std::mem::take(&mut *self.outbox());
            if own.is_empty() {
                return Rest::None;
            }
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let n = send(self.stream.as_raw_fd(), &own, flags).unwrap_or(0);
            if n < own.len() {
                own.drain(..n);
                let mut outbox = self.outbox();
                own.extend_from_slice(&outbox);
                *outbox = own;
                return Rest::Some;
            }
        }
    }

    fn outbox(&self) -> MutexGuard<'_, Vec<u8>> {
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

/// Whether it may go on later.
pub(super) fn is_pause(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
