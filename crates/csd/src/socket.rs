//! A connected socket, TCP or Unix, that never blocks on its own: waiting is always `poll(2)` with a
//! timeout.
//!
//! It knows nothing about messages, which `stream.rs` and `listen.rs` do, and nothing about encryption, which
//! is `channel.rs`'s.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    self, AddressFamily, SockFlag, SockType, UnixAddr, getsockopt, setsockopt, sockopt,
};

use crate::words::address::Address;
use crate::words::trust::Protection;

/// A peer that acknowledges nothing for this long is gone.
const DEAD_PEER: Duration = Duration::from_secs(10);

/// What a Unix socket may hold of what its reader has not fetched. The default, 208 KiB, is a
/// fiftieth of a batch: each time it fills up, the sender sleeps until the reader has been
/// scheduled. TCP sizes its buffers itself.
const UNIX_BUFFER_BYTES: usize = 4 << 20;

/// How often a full queue of a Unix socket is tried.
const QUEUE_LOOK: Duration = Duration::from_millis(10);

/// A connected byte stream, and how what is sent through it is to be protected.
#[derive(Debug)]
pub struct Socket {
    pipe: Pipe,
    protection: Protection,
}

#[derive(Debug)]
enum Pipe {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Self { pipe: Pipe::Tcp(stream), protection: Protection::Plain }
    }
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Self { pipe: Pipe::Unix(stream), protection: Protection::Plain }
    }
}

/// Of each of these sockets, whether something has come from the other side, be it the end. One call of
/// the system for all of them; does not wait.
pub fn have_spoken<'a>(sockets: impl Iterator<Item = &'a Socket>) -> Vec<bool> {
    let watch = |socket: &'a Socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN);
    let mut watched: Vec<_> = sockets.map(watch).collect();
    // Where a signal interrupts it, nobody is known to have spoken; the next look shows it.
    let is_known = poll(&mut watched, PollTimeout::ZERO).is_ok();
    watched.iter().map(|it| is_known && it.any().unwrap_or(true)).collect()
}

/// Connects to a Unix socket, within so long. The kernel has no such limit: where the listener's queue is full, as it is
/// of a process that is stopped, connecting waits without end.
pub(crate) fn connect_within(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let deadline = Instant::now() + timeout;
    let address = UnixAddr::new(path)?;
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    loop {
        match socket::connect(socket.as_raw_fd(), &address) {
            Ok(()) => return Ok(socket.into()),
            Err(Errno::EAGAIN) if Instant::now() < deadline => thread::sleep(QUEUE_LOOK),
            Err(Errno::EAGAIN) => {
                let what = "its queue is full: the process that listens does not run";
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// What a wait is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Readiness {
    Read,
    Write,
    Either,
}

impl Socket {
    /// To be protected as connections to this address are.
    #[must_use]
    pub fn protected_as(self, address: &Address) -> Self {
        Self { protection: address.protection(), ..self }
    }

    /// Closes it at once. The other side is told that it was reset: over TCP that is one packet and
    /// nothing is left of the connection, where an orderly end takes four and is kept for a minute.
    pub fn hang_up(self) {
        if let Pipe::Tcp(stream) = &self.pipe {
            // Without it the end is orderly.
            let now = libc::linger { l_onoff: 1, l_linger: 0 };
            let _ = setsockopt(stream, sockopt::Linger, &now);
        }
    }

    pub(crate) fn protection(&self) -> Protection {
        self.protection
    }

    /// Who runs the process at the other end of a Unix socket, or had it listen there.
    pub(crate) fn peer_uid(&self) -> io::Result<Option<u32>> {
        match &self.pipe {
            Pipe::Tcp(_) => Ok(None),
            Pipe::Unix(stream) => {
                let peer = getsockopt(stream, sockopt::PeerCredentials)?;
                Ok(Some(peer.uid()))
            }
        }
    }

    /// Sets what this crate relies on: no blocking, no delay of small frames, and notice
    /// of a peer whose machine is gone.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        match &self.pipe {
            Pipe::Unix(stream) => {
                stream.set_nonblocking(true)?;
                // The kernel gives what it allows; less costs speed alone.
                let _ = setsockopt(stream, sockopt::SndBuf, &UNIX_BUFFER_BYTES);
                Ok(())
            }
            Pipe::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                let dead_ms = u32::try_from(DEAD_PEER.as_millis()).unwrap_or(u32::MAX);
                setsockopt(stream, sockopt::KeepAlive, &true)?;
                setsockopt(stream, sockopt::TcpKeepIdle, &5)?;
                setsockopt(stream, sockopt::TcpKeepInterval, &1)?;
                setsockopt(stream, sockopt::TcpKeepCount, &5)?;
                setsockopt(stream, sockopt::TcpUserTimeout, &dead_ms)?;
                Ok(())
            }
        }
    }

    /// The address of this side; `None` of a socket of this machine.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        match &self.pipe {
            Pipe::Unix(_) => None,
            Pipe::Tcp(stream) => stream.local_addr().ok().map(|at| at.ip()),
        }
    }

    /// The address of the other side; `None` of a socket of this machine.
    pub(crate) fn peer_ip(&self) -> Option<IpAddr> {
        match &self.pipe {
            Pipe::Unix(_) => None,
            Pipe::Tcp(stream) => stream.peer_addr().ok().map(|at| at.ip()),
        }
    }

    /// Whether the peer is on another machine.
    pub(crate) fn is_beyond_machine(&self) -> io::Result<bool> {
        match &self.pipe {
            Pipe::Unix(_) => Ok(false),
            Pipe::Tcp(stream) => {
                Ok(!stream.peer_addr()?.ip().to_canonical().is_loopback())
            }
        }
    }

    /// Whether the peer is known to be on this machine: it is at a Unix socket, at a loopback address, or
    /// at the address by which it has reached this one.
    pub(crate) fn is_of_machine(&self) -> bool {
        let Pipe::Tcp(stream) = &self.pipe else { return true };
        let theirs = stream.peer_addr().map(|at| at.ip().to_canonical());
        theirs.is_ok_and(|theirs| {
            let ours = self.local_ip().map(|ip| ip.to_canonical());
            theirs.is_loopback() || Some(theirs) == ours
        })
    }

    /// Reads what is there into `dst`; `None` when nothing is.
    pub(crate) fn read_ready(&mut self, dst: &mut [u8]) -> io::Result<Option<usize>> {
        let read = match &mut self.pipe {
            Pipe::Tcp(stream) => stream.read(dst),
            Pipe::Unix(stream) => stream.read(dst),
        };
        match ready(read)? {
            Some(0) if !dst.is_empty() => Err(closed()),
            n => Ok(n),
        }
    }

    /// Writes what fits now; `None` when nothing does.
    pub(crate) fn write_ready(&mut self, src: &[u8]) -> io::Result<Option<usize>> {
        ready(match &mut self.pipe {
            Pipe::Tcp(stream) => stream.write(src),
            Pipe::Unix(stream) => stream.write(src),
        })
    }

    /// As [`wait`].
    pub(crate) fn wait(&self, what: Readiness, timeout: Duration) -> io::Result<bool> {
        wait(self.as_fd(), what, timeout)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.pipe {
            Pipe::Tcp(stream) => stream.as_fd(),
            Pipe::Unix(stream) => stream.as_fd(),
        }
    }
}

/// Waits up to `timeout`, rounded up to a millisecond; whether `fd` became ready (or broke,
/// which the next read or write will say).
pub(crate) fn wait(
    fd: BorrowedFd<'_>,
    what: Readiness,
    timeout: Duration,
) -> io::Result<bool> {
    let events = match what {
        Readiness::Read => PollFlags::POLLIN,
        Readiness::Write => PollFlags::POLLOUT,
        Readiness::Either => PollFlags::POLLIN | PollFlags::POLLOUT,
    };
    let timeout_ms = timeout.as_micros().div_ceil(1000);
    let timeout_ms = i32::try_from(timeout_ms).unwrap_or(i32::MAX);
    let timeout = PollTimeout::try_from(timeout_ms).unwrap_or(PollTimeout::MAX);
    match poll(&mut [PollFd::new(fd, events)], timeout) {
        Ok(n_ready) => Ok(n_ready > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// The time that is left, zero when there is none.
pub(crate) fn left_until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// The other side closed the connection.
pub(crate) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the other side closed the connection")
}

fn ready(moved: io::Result<usize>) -> io::Result<Option<usize>> {
    match moved {
        Ok(n) => Ok(Some(n)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error),
    }
}
