//! The stream transport, host side: messages over TCP or a Unix socket, encrypted as the address says.
//!
//! A result goes from the socket straight into the job's slot. Every wait has a deadline. An encrypted
//! connection opens with the handshake of its channel (`channel.rs`). A plain one opens with a key exchange
//! (`key.rs`) in which both sides prove that they know the shared key; without keys it is an exchange of
//! nonces. `listen.rs` is the other side.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::CsdError;
use crate::channel::destination::{Destination, Payload, Plain};
use crate::channel::security::{Reach, Security};
use crate::channel::{Channel, READ_BYTES, noise, tls};
use crate::host::remote::{Link, Remote, refusal};
use crate::socket::{Readiness, Socket, connect_within, left_until};
use crate::words::address::Address;
use crate::words::job::transfer_time;
use crate::words::key::{self, Role};
use crate::words::trust::Protection;
use crate::words::wire::{HEADER_BYTES, Header, Message};

/// A device reached through a socket.
pub type Stream = Remote<StreamLink>;

/// The host's end of a socket.
#[derive(Debug)]
pub struct StreamLink {
    channel: Channel,
    inbox: Inbox,
    security: Security,
    /// As the user wrote it, for errors.
    address: String,
    /// The name that the device's certificate is for.
    host: String,
    /// How long a payload may stay away.
    patience: Option<Duration>,
}

impl Stream {
    /// Connects to a socket's address; blocks up to `timeout`, which later also bounds
    /// each answer.
    ///
    /// # Errors
    /// [`CsdError::Unreachable`]; [`CsdError::Unauthenticated`] and [`CsdError::Untrusted`] where
    /// `security` lacks what the address needs, or forbids it; [`CsdError::Address`] for a directory.
    pub fn connect(
        address: &Address,
        security: Security,
        timeout: Duration,
    ) -> Result<Self, CsdError> {
        let name = address.to_string();
        let unreachable =
            |source| CsdError::Unreachable { address: name.clone(), source };
        let socket: Socket = match (address, address.host_and_port()) {
            (_, Some((host, port))) => {
                // Asked before a name is looked up, and before a packet leaves this machine.
                let protection = address.protection();
                security.permits(protection, Reach::Here, &name)?;
                let found = (host, port).to_socket_addrs().map_err(unreachable)?;
                let found: Vec<SocketAddr> = found.collect();
                let is_beyond =
                    found.iter().any(|at| !at.ip().to_canonical().is_loopback());
                security.permits(protection, is_beyond.into(), &name)?;
                connect_tcp(&found, timeout).map_err(unreachable)?.into()
            }
            (Address::Unix(path), None) => {
                connect_within(path, timeout).map_err(unreachable)?.into()
            }
            (_, None) => return Err(address.is_no_socket()),
        };
        Self::over_socket(socket.protected_as(address), name, security, timeout)
    }

    /// Speaks to the device at the other end of a connected socket; `name` is its address, or what
    /// errors are to call it.
    ///
    /// # Errors
    /// As [`Stream::connect`].
    pub fn over_socket(
        socket: Socket,
        name: String,
        security: Security,
        timeout: Duration,
    ) -> Result<Self, CsdError> {
        socket
            .prepare()
            .map_err(|source| CsdError::Unreachable { address: name.clone(), source })?;
        security.permits_peer(&socket, &name)?;
        let host = match name.parse::<Address>() {
            Ok(Address::Tls { host, .. }) => host,
            _ => String::new(),
        };
        let (channel, inbox) = (socket.into(), Inbox::default());
        let patience = None;
        let link = StreamLink { channel, inbox, security, address: name, host, patience };
        Ok(Self::over(link, timeout))
    }
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
        let mut said = Vec::new();
        let (socket, security) = (&mut self.channel.socket, &self.security);
        let sealed = match (socket.protection(), security.key(), security.tls()) {
            (Protection::Noise, Some(key), _) => {
                noise::greet(socket, key, deadline, &mut said)
                    .map(|noise| self.channel.seal_with_noise(noise))
            }
            (Protection::Tls, _, Some(configs)) => {
                tls::greet(socket, (configs, &self.host), deadline, &mut said)
                    .map(|tls| self.channel.seal_with_tls(tls))
            }
            (protection @ (Protection::Noise | Protection::Tls), ..) => {
                security.permits(protection, Reach::Here, &self.address)
            }
            (Protection::Plain, ..) => self.exchange_keys(deadline),
        };
        match sealed {
            Err(error) if !said.is_empty() => {
                Err(self.heard_refusal(said, deadline).unwrap_or(error))
            }
            sealed => sealed,
        }
    }

    fn send(&mut self, message: &[u8], deadline: Instant) -> Result<(), CsdError> {
        self.channel
            .write_all(message, deadline)
            .map_err(CsdError::lost("send a message"))
    }

    fn receive(&mut self, deadline: Instant) -> Result<Option<Message>, CsdError> {
        self.inbox.next_until(deadline, &mut self.channel, "wait for a message")
    }

    fn take_payload(
        &mut self,
        dst: &mut [u8],
        deadline: Instant,
    ) -> Result<Result<u64, String>, CsdError> {
        let mut payload = Payload::new(dst);
        let mut n_read = 0;
        while !payload.is_whole() {
            n_read += self.fill(&mut payload, deadline + transfer_time(n_read))?;
        }
        Ok(Ok(payload.checksum()))
    }

    fn drop_payload(&mut self, len: u64, deadline: Instant) -> Result<(), CsdError> {
        let mut n_read = 0;
        let mut scratch = vec![0; READ_BYTES];
        while n_read < len {
            let most = usize::try_from(len - n_read).unwrap_or(usize::MAX);
            let mut dropped = Plain::new(&mut scratch[..most.min(READ_BYTES)]);
            n_read += self.fill(&mut dropped, deadline + transfer_time(n_read))?;
        }
        Ok(())
    }

    fn may_fall_silent(&self) -> bool {
        self.channel.socket.local_ip().is_some()
    }

    fn expects_bytes_within(&mut self, patience: Duration) {
        self.patience = Some(patience);
    }
}

impl StreamLink {
    /// The key exchange of a plain connection.
    fn exchange_keys(&mut self, deadline: Instant) -> Result<(), CsdError> {
        let refused = |what: String| Err(CsdError::Unauthenticated { what });
        let began = Instant::now();
        let ours = key::nonce().map_err(CsdError::lost("make a nonce"))?;
        self.send(&Message::Greet { nonce: ours }.encode(), deadline)?;
        let answer = match self.receive(deadline) {
            Err(error @ CsdError::Malformed { .. }) => {
                return Err(self.inbox.stranger(Protection::Plain).unwrap_or(error));
            }
            answer => answer?,
        };
        let answer = answer.ok_or_else(|| CsdError::Timeout {
            doing: "hello",
            waited: began.elapsed(),
        })?;
        let Message::Challenge { nonce: theirs, proof } = answer else {
            return Err(refusal(answer)
                .unwrap_or(CsdError::Malformed { what: "a message out of turn" }));
        };
        let mut our_proof = None;
        if let Some(key) = self.security.key() {
            let proven =
                proof.is_some_and(|it| key.accepts(&it, Role::Device, &ours, &theirs));
            if !proven {
                return refused(format!(
                    "the device at {} does not have our key",
                    self.address
                ));
            }
            our_proof = Some(key.prove(Role::Host, &ours, &theirs));
        } else if proof.is_some() {
            return refused(format!("the device at {} asks for a key", self.address));
        }
        self.send(&Message::Prove { proof: our_proof }.encode(), deadline)
    }

    /// What a device says without protection that does not get to protecting it: nobody vouches
    /// for it, so it explains why there is no connection and does nothing else.
    fn heard_refusal(&mut self, said: Vec<u8>, deadline: Instant) -> Option<CsdError> {
        self.inbox = Inbox { bytes: said, ..Inbox::default() };
        refusal(self.receive(deadline).ok()??)
    }

    /// Reads what comes next of a payload; one that stays away is a lost link, for nothing can follow it. What is in
    /// the socket is read after the deadline, too: this host may have been suspended.
    fn fill(
        &mut self,
        to: &mut dyn Destination,
        deadline: Instant,
    ) -> Result<u64, CsdError> {
        let lost = CsdError::lost("read a result");
        // From a device that must not fall silent every byte counts.
        let patience = self.patience.unwrap_or_else(|| left_until(deadline));
        match self.channel.fill(to, patience, deadline).map_err(&lost)? {
            0 => Err(lost(io::ErrorKind::TimedOut.into())),
            n => Ok(n as u64),
        }
    }

    /// The address of this side, where it has one.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        self.channel.socket.local_ip()
    }
}

/// A message on its way in. Takes no byte beyond its message, so that a payload stays in
/// the socket, and no more memory than has arrived.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    header: Option<Header>,
    /// The most bytes of a body of a peer that is not admitted.
    limit: Option<usize>,
}

/// Read so many bytes at most at a time.
const CHUNK_BYTES: usize = 1 << 18;

impl Inbox {
    /// From now on a body has so many bytes at most, or as many as its kind may.
    pub(crate) fn limit(&mut self, most_bytes: Option<usize>) {
        self.limit = most_bytes;
    }

    /// What is to be said when the first bytes that came are of a peer that expects another
    /// protection than this side's.
    pub(crate) fn stranger(&self, ours: Protection) -> Option<CsdError> {
        let theirs = Protection::of_start(&self.bytes)?;
        (theirs != ours).then(|| ours.is_not(theirs))
    }

    /// The header of the next message if it is here; does not wait, and takes nothing beyond it.
    pub(crate) fn header(
        &mut self,
        channel: &mut Channel,
    ) -> Result<Option<Header>, CsdError> {
        if self.header.is_none() {
            let filled = self.fill(channel, HEADER_BYTES);
            if !matches!(filled, Ok(true)) {
                // What a stranger says explains more than that it hung up.
                Header::check_start(&self.bytes)?;
                return filled.map(|_| None);
            }
            let (header, _) = self
                .bytes
                .split_first_chunk()
                .ok_or(CsdError::Malformed { what: "a header that is cut short" })?;
            self.header = Some(Header::decode(header)?);
        }
        Ok(self.header)
    }

    /// The next message if all of it is here; does not wait.
    pub(crate) fn next(
        &mut self,
        channel: &mut Channel,
    ) -> Result<Option<Message>, CsdError> {
        let Some(header) = self.header(channel)? else { return Ok(None) };
        if self.limit.is_some_and(|most_bytes| header.body_bytes() > most_bytes) {
            return Err(CsdError::Malformed { what: "a long message before admission" });
        }
        if !self.fill(channel, HEADER_BYTES + header.body_bytes())? {
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
        channel: &mut Channel,
        doing: &'static str,
    ) -> Result<Option<Message>, CsdError> {
        loop {
            if let Some(message) = self.next(channel)? {
                return Ok(Some(message));
            }
            let left = left_until(deadline);
            if left.is_zero() {
                return Ok(None);
            }
            channel.wait(Readiness::Read, left).map_err(CsdError::lost(doing))?;
        }
    }

    /// Whether `len` bytes are here now.
    fn fill(&mut self, channel: &mut Channel, len: usize) -> Result<bool, CsdError> {
        while self.bytes.len() < len {
            let n_had = self.bytes.len();
            self.bytes.resize(len.min(n_had + CHUNK_BYTES), 0);
            let read = channel.read_ready(&mut self.bytes[n_had..]);
            let n_read = read.as_ref().map_or(0, |n| n.unwrap_or(0));
            self.bytes.truncate(n_had + n_read);
            if read.map_err(CsdError::lost("receive a message"))?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
