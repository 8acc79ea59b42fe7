//! A socket with what protects it: nothing, Noise or TLS. Above it all of them are streams of bytes that
//! never block on their own.
//!
//! A channel begins plain and is sealed once its handshake is done. Then what arrived may be here although
//! the socket has nothing to read, and what was taken may not have left: `wait`, `is_sending` and `flush`
//! say so. `noise.rs` and `tls.rs` are the two protections, `security.rs` what they need.

mod buffers;
pub(crate) mod destination;
pub(crate) mod noise;
pub mod security;
pub(crate) mod tls;

use std::io;
use std::time::{Duration, Instant};

use destination::{Destination, Plain};
use noise::Noise;
use tls::Tls;

use crate::socket::{Readiness, Socket, left_until};

/// Read at most at a time. A batch is larger than a processor's own cache: whoever hashes what was read, piece
/// by piece, need not fetch it from memory again.
pub(crate) const READ_BYTES: usize = 128 << 10;

/// A connected byte stream, protected or not.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) socket: Socket,
    seal: Seal,
}

#[derive(Debug)]
enum Seal {
    Plain,
    Noise(Box<Noise>),
    Tls(Box<Tls>),
}

impl From<Socket> for Channel {
    fn from(socket: Socket) -> Self {
        Self { socket, seal: Seal::Plain }
    }
}

impl Channel {
    /// From now on everything is in records of Noise.
    pub(crate) fn seal_with_noise(&mut self, noise: Noise) {
        self.seal = Seal::Noise(Box::new(noise));
    }

    /// From now on everything is in records of TLS.
    pub(crate) fn seal_with_tls(&mut self, tls: Tls) {
        self.seal = Seal::Tls(Box::new(tls));
    }

    /// The certificate that the other side has proved to be its own, where it is protected by TLS.
    pub(crate) fn peer_certificate(&self) -> Option<Vec<u8>> {
        match &self.seal {
            Seal::Plain | Seal::Noise(_) => None,
            Seal::Tls(tls) => tls.peer_certificate(),
        }
    }

    /// Reads what is there into `dst`; `None` when nothing is.
    pub(crate) fn read_ready(&mut self, dst: &mut [u8]) -> io::Result<Option<usize>> {
        self.fill_ready(&mut Plain::new(dst))
    }

    /// Reads what is there to where it goes; `None` when nothing is.
    fn fill_ready(&mut self, to: &mut dyn Destination) -> io::Result<Option<usize>> {
        match &mut self.seal {
            Seal::Plain => {
                let room = to.room();
                let most = room.len().min(READ_BYTES);
                let read = self.socket.read_ready(&mut room[..most])?;
                to.filled(read.unwrap_or(0));
                Ok(read)
            }
            Seal::Noise(noise) => noise.fill_ready(&mut self.socket, to),
            Seal::Tls(tls) => tls.fill_ready(&mut self.socket, to),
        }
    }

    /// Takes of `src` what can be sent now, or soon; `None` when nothing can.
    pub(crate) fn write_ready(&mut self, src: &[u8]) -> io::Result<Option<usize>> {
        match &mut self.seal {
            Seal::Plain => self.socket.write_ready(src),
            Seal::Noise(noise) => noise.write_ready(&mut self.socket, src),
            Seal::Tls(tls) => tls.write_ready(&mut self.socket, src),
        }
    }

    /// Whether something that was taken has not left yet.
    pub(crate) fn is_sending(&self) -> bool {
        match &self.seal {
            Seal::Plain => false,
            Seal::Noise(noise) => noise.is_sending(),
            Seal::Tls(tls) => tls.is_sending(),
        }
    }

    /// Sends what was taken, as far as the socket takes it now; whether all has left.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        match &mut self.seal {
            Seal::Plain => Ok(true),
            Seal::Noise(noise) => noise.flush(&mut self.socket),
            Seal::Tls(tls) => tls.flush(&mut self.socket),
        }
    }

    /// Reads some bytes to where they go as soon as there are any; 0 at `deadline`, or when nothing has come
    /// for `patience`. Parts of a record that cannot be opened yet count.
    pub(crate) fn fill(
        &mut self,
        to: &mut dyn Destination,
        patience: Duration,
        deadline: Instant,
    ) -> io::Result<usize> {
        let mut n_sealed = self.n_sealed();
        let mut until = deadline.min(Instant::now() + patience);
        loop {
            // What came in time counts, however late it is looked at.
            let now = Instant::now();
            match self.fill_ready(to)? {
                Some(n) => return Ok(n),
                None if n_sealed != self.n_sealed() && now < deadline => {
                    n_sealed = self.n_sealed();
                    until = deadline.min(now + patience);
                }
                None if now >= until => return Ok(0),
                None => drop(self.wait(Readiness::Read, left_until(until))?),
            }
        }
    }

    /// Bytes that are here and cannot be opened before more come.
    fn n_sealed(&self) -> usize {
        match &self.seal {
            Seal::Plain => 0,
            Seal::Noise(noise) => noise.n_sealed(),
            Seal::Tls(tls) => tls.n_sealed(),
        }
    }

    /// Sends all of `src`, or fails with `TimedOut` at `deadline`.
    pub(crate) fn write_all(&mut self, src: &[u8], deadline: Instant) -> io::Result<()> {
        let mut n_written = 0;
        while n_written < src.len() || !self.flush()? {
            let taken = match src.get(n_written..) {
                Some(rest) if !rest.is_empty() => self.write_ready(rest)?,
                _ => None,
            };
            match taken {
                Some(n) => n_written += n,
                None if Instant::now() >= deadline => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                None => drop(self.wait(Readiness::Write, left_until(deadline))?),
            }
        }
        Ok(())
    }

    /// Waits up to `timeout`; whether there is something to do. What is here and was not read, though
    /// the socket has nothing more, counts as readable.
    pub(crate) fn wait(&self, what: Readiness, timeout: Duration) -> io::Result<bool> {
        let is_here = match &self.seal {
            Seal::Plain => false,
            Seal::Noise(noise) => noise.is_readable(),
            Seal::Tls(tls) => tls.is_readable(),
        };
        let reads = !matches!(what, Readiness::Write);
        let timeout = if is_here && reads { Duration::ZERO } else { timeout };
        let what = if reads && self.is_sending() { Readiness::Either } else { what };
        let is_ready = self.socket.wait(what, timeout)?;
        Ok(is_ready || (is_here && reads))
    }
}
