//! The stream transport, host side: messages over TCP or a Unix socket.
//!
//! A result goes from the socket straight into the job's slot. Every wait has a deadline. The connection
//! opens with a key exchange (`key.rs`) in which both sides prove that they know the shared key; without
//! keys it is an exchange of nonces. Connections to other machines require a key. `listen.rs` is the
//! other side.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::Xxh3;

use crate::CsdError;
use crate::host::remote::{Link, Remote};
use crate::socket::{Readiness, Socket, left_until};
use crate::words::address::Address;
use crate::words::key::{self, Key, Role};
use crate::words::wire::{HEADER_BYTES, Header, Message};

/// A result is received and hashed in pieces of this size: a batch is larger than a
/// processor's own cache, and a second walk over it would fetch it from memory again.
const PIECE_BYTES: usize = 128 << 10;

/// A device reached through a socket.
pub type Stream = Remote<StreamLink>;

/// The host's end of a socket.
#[derive(Debug)]
pub struct StreamLink {
    socket: Socket,
    inbox: Inbox,
    key: Option<Key>,
    address: String,
}

impl Stream {
    /// Connects to `tcp://` or `unix://`; blocks up to `timeout`, which later also bounds
    /// each answer.
    ///
    /// # Errors
    /// [`CsdError::Unreachable`]; [`CsdError::Unauthenticated`] for TCP beyond this machine
    /// without a key; [`CsdError::Address`] for a directory.
    pub fn connect(
        address: &Address,
        key: Option<Key>,
        timeout: Duration,
    ) -> Result<Self, CsdError> {
        let unreachable =
            |source| CsdError::Unreachable { address: address.to_string(), source };
        let socket = match address {
            Address::Tcp { host, port } => {
                let found =
                    (host.as_str(), *port).to_socket_addrs().map_err(unreachable)?;
                let found: Vec<SocketAddr> = found.collect();
                // Asked before a packet leaves this machine.
                if key.is_none() && found.iter().any(|at| !at.ip().is_loopback()) {
                    return Err(no_key(&address.to_string()));
                }
                connect_tcp(&found, timeout).map_err(unreachable)?.into()
            }
            Address::Unix(path) => UnixStream::connect(path).map_err(unreachable)?.into(),
            Address::Spool(_) => return Err(address.is_no_socket()),
        };
        Self::over_socket(socket, address.to_string(), key, timeout)
    }

    /// Speaks to the device at the other end of a connected socket; `name` is for errors.
    ///
    /// # Errors
    /// As [`Stream::connect`].
    pub fn over_socket(
        socket: Socket,
        name: String,
        key: Option<Key>,
        timeout: Duration,
    ) -> Result<Self, CsdError> {
        let is_beyond = socket.prepare().and_then(|()| socket.is_beyond_machine());
        let is_beyond = is_beyond
            .map_err(|source| CsdError::Unreachable { address: name.clone(), source })?;
        if is_beyond && key.is_none() {
            return Err(no_key(&name));
        }
        let link = StreamLink { socket, inbox: Inbox::default(), key, address: name };
        Ok(Self::over(link, timeout))
    }
}

fn no_key(name: &str) -> CsdError {
    let what = format!("{name} is beyond this machine and no key file is given");
    CsdError::Unauthenticated { what }
}

fn connect_tcp(found: &[SocketAddr], timeout: Duration) -> io::Result<TcpStream> {
    let deadline = Instant::now() + timeout;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in found {
        let left = left_until(deadline);
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(address, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Link for StreamLink {
    fn greet(&mut self, deadline: Instant) -> Result<(), CsdError> {
        let refused = |what: String| Err(CsdError::Unauthenticated { what });
        let began = Instant::now();
        let ours = key::nonce().map_err(CsdError::lost("make a nonce"))?;
        self.send(&Message::Greet { nonce: ours }.encode(), deadline)?;
        let answer = self.receive(deadline)?;
        let answer = answer.ok_or_else(|| CsdError::Timeout {
            doing: "hello",
            waited: began.elapsed(),
        })?;
        if let Message::Refused { reason } = answer {
            return refused(format!("the device says: {reason}"));
        }
        let Message::Challenge { nonce: theirs, proof } = answer else {
            return Err(CsdError::Malformed { what: "a message out of turn" });
        };
        let mut our_proof = None;
        if let Some(key) = &self.key {
            let proven =
                proof.is_some_and(|it| key.accepts(&it, Role::Device, &ours, &theirs));
            if !proven {
                return refused(format!(
                    "the device at {} has not our key",
                    self.address
                ));
            }
            our_proof = Some(key.prove(Role::Host, &ours, &theirs));
        } else if proof.is_some() {
            return refused(format!("the device at {} asks for a key", self.address));
        }
        self.send(&Message::Prove { proof: our_proof }.encode(), deadline)
    }

    fn send(&mut self, message: &[u8], deadline: Instant) -> Result<(), CsdError> {
        self.socket.write_all(message, deadline).map_err(CsdError::lost("send a message"))
    }

    fn receive(&mut self, deadline: Instant) -> Result<Option<Message>, CsdError> {
        self.inbox.next_until(deadline, &mut self.socket, "wait for a message")
    }

    fn take_payload(
        &mut self,
        dst: &mut [u8],
        deadline: Instant,
    ) -> Result<Result<u64, String>, CsdError> {
        let mut hash = Xxh3::new();
        for piece in dst.chunks_mut(PIECE_BYTES) {
            self.fill(piece, deadline)?;
            hash.update(piece);
        }
        Ok(Ok(hash.digest()))
    }

    fn drop_payload(&mut self, len: u64, deadline: Instant) -> Result<(), CsdError> {
        let mut left = len;
        let mut scratch = vec![0; PIECE_BYTES];
        while left > 0 {
            let n_bytes = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
            self.fill(&mut scratch[..n_bytes], deadline)?;
            left -= n_bytes as u64;
        }
        Ok(())
    }
}

impl StreamLink {
    /// Fills `dst` from the socket; a payload that stays away is a lost link, for nothing
    /// can follow it.
    fn fill(&mut self, dst: &mut [u8], deadline: Instant) -> Result<(), CsdError> {
        let n_read =
            self.socket.fill(dst, deadline).map_err(CsdError::lost("read a result"))?;
        if n_read < dst.len() {
            return Err(CsdError::lost("read a result")(io::ErrorKind::TimedOut.into()));
        }
        Ok(())
    }
}

/// A message on its way in. Takes no byte beyond its message, so that a payload stays in
/// the socket, and no more memory than has arrived.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    header: Option<Header>,
}

/// Read so many bytes at most at a time.
const CHUNK_BYTES: usize = 1 << 18;

impl Inbox {
    /// The next message if all of it is here; does not wait.
    pub(crate) fn next(
        &mut self,
        socket: &mut Socket,
    ) -> Result<Option<Message>, CsdError> {
        let header = match self.header {
            Some(header) => header,
            None => {
                let filled = self.fill(socket, HEADER_BYTES);
                if !matches!(filled, Ok(true)) {
                    // What a stranger says explains more than that it hung up.
                    Header::check_start(&self.bytes)?;
                    return filled.map(|_| None);
                }
                let (header, _) = self
                    .bytes
                    .split_first_chunk()
                    .ok_or(CsdError::Malformed { what: "a header that is cut short" })?;
                *self.header.insert(Header::decode(header)?)
            }
        };
        if !self.fill(socket, HEADER_BYTES + header.body_bytes())? {
            return Ok(None);
        }
        let message = Message::decode(&header, &self.bytes[HEADER_BYTES..])?;
        self.header = None;
        self.bytes.clear();
        self.bytes.shrink_to(CHUNK_BYTES);
        Ok(Some(message))
    }

    /// The next message, or `None` at the deadline; what failed was the step `doing`.
    pub(crate) fn next_until(
        &mut self,
        deadline: Instant,
        socket: &mut Socket,
        doing: &'static str,
    ) -> Result<Option<Message>, CsdError> {
        loop {
            if let Some(message) = self.next(socket)? {
                return Ok(Some(message));
            }
            let left = left_until(deadline);
            if left.is_zero() {
                return Ok(None);
            }
            socket.wait(Readiness::Read, left).map_err(CsdError::lost(doing))?;
        }
    }

    /// Whether `len` bytes are here now.
    fn fill(&mut self, socket: &mut Socket, len: usize) -> Result<bool, CsdError> {
        while self.bytes.len() < len {
            let n_had = self.bytes.len();
            self.bytes.resize(len.min(n_had + CHUNK_BYTES), 0);
            let read = socket.read_ready(&mut self.bytes[n_had..]);
            let n_read = read.as_ref().map_or(0, |n| n.unwrap_or(0));
            self.bytes.truncate(n_had + n_read);
            if read.map_err(CsdError::lost("receive a message"))?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
