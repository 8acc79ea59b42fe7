//! A proxy between host and device that spoils one message: it reads both directions message by
//! message, and strikes at the chosen one. What is spoiled where is a [`Plan`]; whether it came to
//! that, [`Proxy::struck`] says.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bothends_csd::wire::{HEADER_BYTES, Header, Message};
use bothends_csd::{Inquiry, SessionId};

/// Kinds of messages by their number on the wire; the odd ones out are never sent in a run.
pub const KINDS: [&str; 24] = [
    "",
    "Greet",
    "Challenge",
    "Prove",
    "Refused",
    "Hello",
    "Welcome",
    "Open",
    "Opened",
    "Job",
    "Done",
    "Failed",
    "Revoke",
    "AskStats",
    "Stats",
    "Busy",
    "Attest",
    "Attested",
    "Ping",
    "Pong",
    "Announce",
    "Announced",
    "AskMembers",
    "Members",
];

/// What is done to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// One bit of its header is flipped.
    FlipHeader,
    /// One bit of its body is flipped: of the list of bad rows, say.
    FlipBody,
    /// One bit of its payload is flipped.
    FlipPayload,
    /// The connection is cut within it.
    Cut,
    /// It comes after the next one of its direction.
    Swap,
    /// It comes twice.
    Replay,
    /// It comes once more after some later messages.
    ReplayLate,
    /// Noise comes before it.
    Noise,
    /// The same message of another session comes before it.
    Foreign,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::FlipHeader,
        Self::FlipBody,
        Self::FlipPayload,
        Self::Cut,
        Self::Swap,
        Self::Replay,
        Self::ReplayLate,
        Self::Noise,
        Self::Foreign,
    ];

    /// Whether nothing that follows on the connection can be trusted, which one side must notice.
    #[must_use]
    pub fn is_fatal(self) -> bool {
        matches!(self, Self::FlipHeader | Self::FlipBody | Self::Cut | Self::Noise)
    }
}

/// Which message is spoiled, and how.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Its kind, by number.
    pub kind: u8,
    /// How many of that kind pass before it.
    pub skip: u32,
    /// What is done.
    pub fault: Fault,
    /// Where, within it.
    pub seed: u64,
}

/// A proxy at work. Its threads end with the connections.
#[derive(Debug)]
pub struct Proxy {
    struck: Arc<Mutex<bool>>,
    threads: Vec<JoinHandle<()>>,
}

impl Proxy {
    /// Stands between the two.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn between(
        host: &UnixStream,
        device: &UnixStream,
        plan: Plan,
    ) -> std::io::Result<Self> {
        let struck = Arc::new(Mutex::new(false));
        let mut threads = Vec::new();
        for (from, to) in [(host, device), (device, host)] {
            let mut way = Way {
                from: from.try_clone()?,
                to: to.try_clone()?,
                plan,
                n_seen: 0,
                held: None,
                struck: Arc::clone(&struck),
            };
            threads.push(std::thread::spawn(move || way.pump()));
        }
        Ok(Self { struck, threads })
    }

    /// Whether the message came, and was spoiled.
    #[must_use]
    pub fn struck(&self) -> bool {
        *self.struck.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end of both directions.
    pub fn join(self) {
        for thread in self.threads {
            drop(thread.join());
        }
    }
}

/// One direction.
struct Way {
    from: UnixStream,
    to: UnixStream,
    plan: Plan,
    n_seen: u32,
    /// What comes later than it should, and after how many messages.
    held: Option<(Whole, u32)>,
    struck: Arc<Mutex<bool>>,
}

/// A message with its payload.
#[derive(Clone)]
struct Whole {
    header: [u8; HEADER_BYTES],
    body: Vec<u8>,
    payload: Vec<u8>,
}

/// A held message waits so long for the next one.
const HOLD: Duration = Duration::from_millis(30);

impl Way {
    fn pump(&mut self) {
        while let Some(whole) = self.next() {
            let passed = match self.is_the_one(&whole) {
                true => self.strike(whole),
                false => self.pass(&whole),
            };
            if passed.is_err() {
                break;
            }
        }
        self.cut();
    }

    /// Ends both directions.
    fn cut(&self) {
        for stream in [&self.from, &self.to] {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    /// The next message; while one is held, no longer than that.
    fn next(&mut self) -> Option<Whole> {
        let mut header = [0; HEADER_BYTES];
        if let Some((held, _)) = &self.held {
            let held = held.clone();
            self.from.set_read_timeout(Some(HOLD)).ok()?;
            let first = self.from.read(&mut header[..1]);
            self.from.set_read_timeout(None).ok()?;
            match first {
                Ok(1) => self.from.read_exact(&mut header[1..]).ok()?,
                Ok(_) => return None,
                Err(_) => {
                    self.held = None;
                    return Some(held);
                }
            }
        } else {
            self.from.read_exact(&mut header).ok()?;
        }
        let decoded = Header::decode(&header).ok()?;
        let mut body = vec![0; decoded.body_bytes()];
        self.from.read_exact(&mut body).ok()?;
        let mut payload = vec![0; usize::try_from(decoded.payload_bytes()).ok()?];
        self.from.read_exact(&mut payload).ok()?;
        Some(Whole { header, body, payload })
    }

    fn is_the_one(&mut self, whole: &Whole) -> bool {
        if whole.header[8] != self.plan.kind || self.has_struck() {
            return false;
        }
        let has_place = match self.plan.fault {
            Fault::FlipBody => !whole.body.is_empty(),
            Fault::FlipPayload => !whole.payload.is_empty(),
            Fault::Foreign => whole.foreign().is_some(),
            Fault::FlipHeader
            | Fault::Cut
            | Fault::Swap
            | Fault::Replay
            | Fault::ReplayLate
            | Fault::Noise => true,
        };
        let is_later = has_place && self.n_seen < self.plan.skip;
        self.n_seen += u32::from(has_place);
        has_place && !is_later
    }

    fn has_struck(&self) -> bool {
        *self.struck.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn strike(&mut self, mut whole: Whole) -> std::io::Result<()> {
        *self.struck.lock().unwrap_or_else(PoisonError::into_inner) = true;
        let mut dice = Dice(self.plan.seed);
        match self.plan.fault {
            Fault::FlipHeader => dice.flip(&mut whole.header),
            Fault::FlipBody => dice.flip(&mut whole.body),
            Fault::FlipPayload => dice.flip(&mut whole.payload),
            Fault::Cut => {
                let bytes = whole.bytes();
                self.to.write_all(&bytes[..dice.below(bytes.len())])?;
                self.cut();
                return Ok(());
            }
            Fault::Swap => {
                self.held = Some((whole, 1));
                return Ok(());
            }
            Fault::Replay => self.send(&whole)?,
            Fault::ReplayLate => {
                let n_later = 2 + u32::try_from(dice.below(4)).unwrap_or(0);
                self.held = Some((whole.clone(), n_later));
                return self.send(&whole);
            }
            Fault::Noise => {
                let noise: Vec<u8> = (0..=dice.below(300)).map(|_| dice.byte()).collect();
                self.to.write_all(&noise)?;
            }
            Fault::Foreign => {
                if let Some(foreign) = whole.foreign() {
                    self.to.write_all(&foreign)?;
                    self.to.write_all(&whole.payload)?;
                }
            }
        }
        self.send(&whole)
    }

    /// Passes a message on, and behind it what was held, when its time has come.
    fn pass(&mut self, whole: &Whole) -> std::io::Result<()> {
        self.send(whole)?;
        match self.held.take() {
            Some((held, 1)) => self.send(&held),
            later => {
                self.held = later.map(|(held, n)| (held, n - 1));
                Ok(())
            }
        }
    }

    fn send(&mut self, whole: &Whole) -> std::io::Result<()> {
        self.to.write_all(&whole.bytes())
    }
}

impl Whole {
    fn bytes(&self) -> Vec<u8> {
        [&self.header[..], &self.body, &self.payload].concat()
    }

    /// The message without its payload, as one of another session; `None` where it is of none.
    fn foreign(&self) -> Option<Vec<u8>> {
        let message =
            Message::decode(&Header::decode(&self.header).ok()?, &self.body).ok()?;
        let other = |session: SessionId| SessionId((session.0 ^ 0x5a5a).max(1));
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "the others are of no session"
        )]
        let message = match message {
            Message::Opened(session) => Message::Opened(other(session)),
            Message::Job(session, job) => Message::Job(other(session), job),
            Message::Completed(session, answer) => {
                Message::Completed(other(session), answer)
            }
            Message::Revoke(session, job) => Message::Revoke(other(session), job),
            Message::Attest(session, Inquiry { seed, samples }) => {
                Message::Attest(other(session), Inquiry { seed, samples })
            }
            Message::Attested(session, records) => {
                Message::Attested(other(session), records)
            }
            _ => return None,
        };
        Some(message.encode())
    }
}

/// SplitMix64: good enough to choose a bit.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn byte(&mut self) -> u8 {
        let [byte, ..] = self.next().to_le_bytes();
        byte
    }

    fn below(&mut self, n: usize) -> usize {
        let n = u64::try_from(n).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % n).unwrap_or(0)
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        let at = self.below(bytes.len());
        bytes[at] ^= 1 << (self.next() % 8);
    }
}

/// A way between hosts and a device at a TCP port that can swallow everything: both ends stay connected, as
/// they do where a machine between them, or the other one, has vanished.
#[derive(Debug)]
pub struct Swallow {
    at: SocketAddr,
    swallows: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    accepts: Option<JoinHandle<()>>,
}

impl Swallow {
    /// Leads to the device at this port of this machine.
    ///
    /// # Errors
    /// There is no port or thread for it.
    pub fn before(device: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let at = listener.local_addr()?;
        let (swallows, stop) =
            (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let flags = (Arc::clone(&swallows), Arc::clone(&stop));
        let accepts = std::thread::Builder::new().spawn(move || {
            while !flags.1.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((host, _)) => drop(lead(&host, device, &flags)),
                    Err(_) => std::thread::sleep(HOLD / 10),
                }
            }
        })?;
        Ok(Self { at, swallows, stop, accepts: Some(accepts) })
    }

    /// Where hosts connect.
    #[must_use]
    pub fn address(&self) -> String {
        format!("tcp://{}", self.at)
    }

    /// From now on nothing gets through, in either direction, and nobody hears so.
    pub fn falls_silent(&self) {
        self.swallows.store(true, Ordering::Relaxed);
    }
}

impl Drop for Swallow {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(accepts) = self.accepts.take() {
            drop(accepts.join());
        }
    }
}

/// Moves bytes both ways, on threads of their own, until one end closes.
fn lead(
    host: &TcpStream,
    device: SocketAddr,
    flags: &(Arc<AtomicBool>, Arc<AtomicBool>),
) -> std::io::Result<()> {
    host.set_nonblocking(false)?;
    let device = TcpStream::connect(device)?;
    for (from, to) in [(host, &device), (&device, host)] {
        let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
        let (swallows, stop) = (Arc::clone(&flags.0), Arc::clone(&flags.1));
        from.set_read_timeout(Some(HOLD))?;
        std::thread::Builder::new().spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            while !stop.load(Ordering::Relaxed) {
                let n = match from.read(&mut bytes) {
                    Ok(0) => break,
                    Ok(n) => n,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                    Err(_) => break,
                };
                let is_swallowed = swallows.load(Ordering::Relaxed);
                if !is_swallowed && to.write_all(&bytes[..n]).is_err() {
                    break;
                }
            }
            // Where everything is swallowed, so is the end of the other side.
            if !swallows.load(Ordering::Relaxed) || stop.load(Ordering::Relaxed) {
                drop(to.shutdown(Shutdown::Both));
            }
        })?;
    }
    Ok(())
}
