//! The device's side of the stream transport: a listener, and the service of one accepted connection in
//! the caller's thread.
//!
//! It spawns nothing; the agent decides who accepts and how often. Read `serving.rs` next.

use std::collections::VecDeque;
use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::socket::{Backlog, listen};

use crate::channel::Channel;
use crate::channel::security::{Reach, Security};
use crate::device::admit::{self, tell};
use crate::device::serving::{DeviceLink, MAX_UNSENT, Payload, serve_link};
use crate::host::stream::Inbox;
use crate::socket::{Readiness, connect_within, wait};
use crate::words::address::Address;
use crate::words::admission::{ADMISSION_TIMEOUT, Credential, Peer};
use crate::words::job::Busy;
use crate::words::member::Announcement;
use crate::words::wire::Message;
use crate::{CsdError, Serve};

pub use crate::device::serving::Ended;
pub use crate::socket::{Socket, have_spoken};

/// A listener whose queue is full for so long lives, and is stopped.
const ANSWERS_WITHIN: Duration = Duration::from_millis(100);

/// A socket that hosts connect to. A Unix socket's file is removed when this is dropped or withdrawn.
#[derive(Debug)]
pub struct Listener {
    address: Address,
    socket: Bound,
}

#[derive(Debug)]
enum Bound {
    Tcp(TcpListener),
    /// With the file that goes with it, if it was made here and is not removed yet.
    Unix(UnixListener, Mutex<Option<SocketFile>>),
}

/// A socket's file as it was made: another listener may have replaced it.
#[derive(Debug, PartialEq, Eq)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// What is at `path`, if it is a socket.
    fn at(path: &Path) -> Option<Self> {
        let found = std::fs::symlink_metadata(path).ok()?;
        let (device, inode) = (found.dev(), found.ino());
        let path = path.to_owned();
        found.file_type().is_socket().then_some(Self { path, device, inode })
    }

    /// Removes it; whatever else has its name stays.
    fn remove(&self) {
        if Self::at(&self.path).as_ref() == Some(self) {
            // Nobody is left to tell.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

impl Listener {
    /// Listens at `address`, a socket's. A socket file that nobody listens at
    /// any more is replaced.
    ///
    /// # Errors
    /// [`CsdError::Place`] when the address cannot be had; [`CsdError::Unauthenticated`] and
    /// [`CsdError::Untrusted`] where `security` lacks what the address needs, or forbids
    /// it; [`CsdError::Address`] for a directory.
    pub fn bind(address: &Address, security: &Security) -> Result<Self, CsdError> {
        let failed = CsdError::at("listen at", address);
        if let Some((host, port)) = address.host_and_port() {
            let (name, protection) = (address.to_string(), address.protection());
            security.permits(protection, Reach::Here, &name)?;
            let at: Vec<_> = (host, port).to_socket_addrs().map_err(&failed)?.collect();
            let is_beyond = at.iter().any(|it| !it.ip().to_canonical().is_loopback());
            security.permits(protection, is_beyond.into(), &name)?;
            let socket = TcpListener::bind(at.as_slice()).map_err(&failed)?;
            // As many may wait as the kernel allows; the standard library asks for 128, which a flood fills.
            listen(&socket, Backlog::MAXALLOWABLE).map_err(|e| failed(e.into()))?;
            socket.set_nonblocking(true).map_err(&failed)?;
            let port = socket.local_addr().map_err(&failed)?.port();
            let address = address.with_port(port);
            return Ok(Self { address, socket: Bound::Tcp(socket) });
        }
        match address {
            Address::Unix(path) => {
                remove_abandoned(path);
                let socket = UnixListener::bind(path).map_err(&failed)?;
                socket.set_nonblocking(true).map_err(&failed)?;
                let socket = Bound::Unix(socket, Mutex::new(SocketFile::at(path)));
                Ok(Self { address: address.clone(), socket })
            }
            Address::Spool(_)
            | Address::Tcp { .. }
            | Address::Noise { .. }
            | Address::Tls { .. }
            | Address::Nvme(_)
            | Address::Drive(_) => Err(address.is_no_socket()),
        }
    }

    /// Takes over a socket that listens already, as a service manager hands it on: `address` says of
    /// what kind it is. Its file stays when this is dropped.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn adopt(
        address: &Address,
        socket: OwnedFd,
        security: &Security,
    ) -> Result<Self, CsdError> {
        let failed = CsdError::at("listen at", address);
        if address.host_and_port().is_some() {
            let (name, protection) = (address.to_string(), address.protection());
            let socket = TcpListener::from(socket);
            let at = socket.local_addr().map_err(&failed)?;
            let is_beyond = !at.ip().to_canonical().is_loopback();
            security.permits(protection, is_beyond.into(), &name)?;
            socket.set_nonblocking(true).map_err(&failed)?;
            let address = address.with_port(at.port());
            return Ok(Self { address, socket: Bound::Tcp(socket) });
        }
        match address {
            Address::Unix(_) => {
                let socket = UnixListener::from(socket);
                socket.set_nonblocking(true).map_err(&failed)?;
                let socket = Bound::Unix(socket, Mutex::default());
                Ok(Self { address: address.clone(), socket })
            }
            Address::Spool(_)
            | Address::Tcp { .. }
            | Address::Noise { .. }
            | Address::Tls { .. }
            | Address::Nvme(_)
            | Address::Drive(_) => Err(address.is_no_socket()),
        }
    }

    /// Where it listens; port 0 has become the port that was given.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Removes a Unix socket's file, once: whoever is connected stays so, and another listener may take
    /// the place. A device that ends does this before it waits for anybody. Does not block.
    pub fn withdraw(&self) {
        if let Bound::Unix(_, file) = &self.socket
            && let Some(file) = file.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            file.remove();
        }
    }

    /// Waits up to `timeout` for a host.
    ///
    /// # Errors
    /// [`CsdError::Place`] when the listening socket broke.
    pub fn accept(&self, timeout: Duration) -> Result<Option<Socket>, CsdError> {
        let failed = CsdError::at("accept a host at", &self.address);
        // It never blocks: where there is no time to wait, it says itself that nobody is there.
        let waits = !timeout.is_zero();
        if waits && !wait(self.as_fd(), Readiness::Read, timeout).map_err(&failed)? {
            return Ok(None);
        }
        let accepted = match &self.socket {
            Bound::Tcp(socket) => socket.accept().map(|(stream, _)| stream.into()),
            Bound::Unix(socket, _) => socket.accept().map(|(stream, _)| stream.into()),
        };
        match accepted {
            Ok(socket) => Ok(Some(Socket::protected_as(socket, &self.address))),
            // The host has left again already.
            Err(error) if is_passing(&error) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Bound::Tcp(socket) => socket.as_fd(),
            Bound::Unix(socket, _) => socket.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.withdraw();
    }
}

fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    [ConnectionAborted, ConnectionReset, Interrupted, WouldBlock].contains(&error.kind())
}

/// Removes the socket file of a listener that died.
fn remove_abandoned(path: &Path) {
    // A file that is not a socket refuses, too. What is not removed, `bind` names.
    let Some(file) = SocketFile::at(path) else { return };
    let answer = connect_within(path, ANSWERS_WITHIN);
    if answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        file.remove();
    }
}

/// Under what terms a host is served.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// What this device has to prove who it is, and asks of hosts.
    pub security: &'a Security,
    /// Serving ends soon after this becomes true.
    pub stop: &'a AtomicBool,
}

/// Serves one host until it is gone or `terms.stop` is set; then `serve.close()` has been
/// called. Blocks for that long, in the caller's thread.
///
/// # Errors
/// [`CsdError::Unauthenticated`], [`CsdError::Untrusted`], [`CsdError::Version`],
/// [`CsdError::Timeout`] and [`CsdError::Malformed`] say why this host was not, or not any longer, served.
pub fn serve_connection(
    socket: impl Into<Socket>,
    serve: &mut dyn Serve,
    terms: Terms<'_>,
) -> Result<Ended, CsdError> {
    match admit(socket, terms) {
        Ok(host) => host.serve(serve, terms.stop),
        Err(error) => {
            serve.close();
            let is_gone = matches!(error, CsdError::LinkLost { .. });
            if is_gone { Ok(Ended::HostGone) } else { Err(error) }
        }
    }
}

/// A host that has said who it is and may be served.
pub struct Admitted(StreamDevice, Option<Credential>);

/// Asks a host who it is. Blocks for as long as that takes, which is bounded.
///
/// # Errors
/// As [`serve_connection`]; [`CsdError::LinkLost`] for a host that has left again.
pub fn admit(socket: impl Into<Socket>, terms: Terms<'_>) -> Result<Admitted, CsdError> {
    let mut channel = Channel::from(socket.into());
    let inbox = admit::admit(&mut channel, terms.security)?;
    let credential = admit::credential(&channel, terms.security);
    let device = StreamDevice { channel, inbox, outbox: Outbox::default() };
    Ok(Admitted(device, credential))
}

/// What a host wants whose first message is no host's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// To be listed.
    Announce(Announcement),
    /// The list.
    Members,
}

/// How long an admitted host may take for its first message before it counts as one that wants jobs.
const FIRST_MESSAGE: Duration = ADMISSION_TIMEOUT;

/// How long one that asked for a list may take to read it: as long as hosts wait for one.
const LIST_TIME: Duration = Duration::from_secs(3);

impl Admitted {
    /// What the host wants of a registry; `None` of one that is to be served. Waits for its first message,
    /// but not for long, and takes none that may be long: that is for whoever serves.
    ///
    /// # Errors
    /// As [`serve_connection`]; [`CsdError::LinkLost`] for a host that has left again.
    pub fn question(&mut self, stop: &AtomicBool) -> Result<Option<Question>, CsdError> {
        let until = Instant::now() + FIRST_MESSAGE;
        let device = &mut self.0;
        // A flag alone; nothing else is published with it.
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            let header = device.inbox.header(&mut device.channel);
            if let Err(error @ CsdError::Version { .. }) = &header {
                // As in `serve`.
                tell(&mut device.channel, error);
            }
            let next = match header? {
                Some(header) if !header.asks_registry() => return Ok(None),
                Some(_) => device.inbox.next(&mut device.channel)?,
                None => None,
            };
            match next {
                Some(Message::Announce(told)) => {
                    return Ok(Some(Question::Announce(told)));
                }
                Some(_) => return Ok(Some(Question::Members)),
                None => device.wait(FIRST_MESSAGE / 100)?,
            }
        }
        Ok(None)
    }

    /// Answers one that was to be answered and not served.
    pub fn answer(mut self, answer: &Message) {
        let deadline = Instant::now() + LIST_TIME;
        admit::say_until(&mut self.0.channel, answer, deadline);
    }

    /// Whether the host is on this machine, as far as its address shows.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.0.channel.socket.is_of_machine()
    }

    /// What the host has proved; `None` where it had to prove nothing.
    #[must_use]
    pub fn credential(&self) -> Option<Credential> {
        self.1
    }

    /// Who the host is, as far as this device can tell.
    #[must_use]
    pub fn peer(&self) -> Peer {
        Peer::at(self.1, self.0.channel.socket.peer_ip())
    }

    /// Serves the host until it is gone or `stop` is set; then `serve.close()` has been called.
    ///
    /// # Errors
    /// As [`serve_connection`].
    pub fn serve(
        mut self,
        serve: &mut dyn Serve,
        stop: &AtomicBool,
    ) -> Result<Ended, CsdError> {
        let ended = serve_link(&mut self.0, serve, stop);
        if let Err(error @ CsdError::Version { .. }) = &ended {
            // Over an encrypted channel the first message says the version. The header that
            // carries the answer has ours in the place where every version has it.
            tell(&mut self.0.channel, error);
        }
        ended
    }

    /// Tells the host that there is no room, and lets it read that.
    pub fn turn_away(mut self, busy: Busy) {
        admit::say(&mut self.0.channel, &Message::Busy(busy));
    }
}

impl std::fmt::Debug for Admitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Admitted")
    }
}

/// The device's end of a socket.
struct StreamDevice {
    channel: Channel,
    inbox: Inbox,
    outbox: Outbox,
}

/// What waits to be sent, oldest first; the first has left up to `n_sent`.
#[derive(Default)]
struct Outbox {
    parts: VecDeque<Part>,
    n_sent: usize,
}

enum Part {
    Message(Vec<u8>),
    /// Sent from the slot that it was made in.
    Payload(Payload),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Message(bytes) => bytes,
            Self::Payload(payload) => payload.bytes(),
        }
    }
}

impl Outbox {
    fn push(&mut self, part: Part) {
        if !part.bytes().is_empty() {
            self.parts.push_back(part);
        }
    }

    fn n_payloads(&self) -> usize {
        self.parts.iter().filter(|part| matches!(part, Part::Payload(_))).count()
    }

    /// Sends what the channel takes now.
    fn flush(&mut self, channel: &mut Channel) -> io::Result<()> {
        while let Some(part) = self.parts.front() {
            let bytes = part.bytes();
            let Some(n) = channel.write_ready(&bytes[self.n_sent..])? else { break };
            self.n_sent += n;
            if self.n_sent == bytes.len() {
                self.parts.pop_front();
                self.n_sent = 0;
            }
        }
        channel.flush().map(drop)
    }
}

impl StreamDevice {
    fn flush(&mut self) -> Result<(), CsdError> {
        self.outbox.flush(&mut self.channel).map_err(CsdError::lost("send to the host"))
    }
}

impl DeviceLink for StreamDevice {
    fn receive(&mut self) -> Result<Option<Message>, CsdError> {
        self.inbox.next(&mut self.channel)
    }

    fn send(
        &mut self,
        message: &Message,
        payload: Option<Payload>,
    ) -> Result<(), CsdError> {
        self.outbox.push(Part::Message(message.encode()));
        if let Some(payload) = payload {
            self.outbox.push(Part::Payload(payload));
        }
        self.flush()
    }

    fn is_sending(&self) -> bool {
        !self.outbox.parts.is_empty() || self.channel.is_sending()
    }

    fn n_unsent(&self) -> usize {
        self.outbox.n_payloads()
    }

    fn is_crowded(&self) -> bool {
        self.outbox.parts.len() > MAX_UNSENT
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), CsdError> {
        let what = match (self.is_crowded(), self.is_sending()) {
            (true, _) => Readiness::Write,
            (false, true) => Readiness::Either,
            (false, false) => Readiness::Read,
        };
        self.channel.wait(what, timeout).map_err(CsdError::lost("wait for the host"))?;
        self.flush()
    }
}
