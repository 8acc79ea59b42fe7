//! `Noise_NNpsk0_25519_AESGCM_SHA256` over a socket: whoever has the shared key speaks, and nobody else can
//! read or change a byte.
//!
//! Every message of the handshake and every record is its length in two bytes, big endian, and as many
//! bytes. A host sends the first message, the device the second. Each has 48 bytes, and the first cannot be
//! made without the key. The third is an empty record of the host: by it the device knows that the first
//! was not a copy of an earlier one. Records that follow have 1 to 65,519 bytes and 16 more as a tag, under
//! a count that both sides keep: one that was changed, repeated, left out or exchanged does not open, and ends
//! the channel. A Noise key lasts for 2⁶⁴ − 1 records, which is longer than any connection.

use std::fmt;
use std::io;
use std::time::Instant;

use snow::params::NoiseParams;
use snow::{Builder, HandshakeState, TransportState};

use super::buffers::{Intake, Opened, Outgoing, failed_since};
use super::destination::Destination;
use crate::CsdError;
use crate::socket::Socket;
use crate::words::admission::MAX_NOISE_HANDSHAKE_BYTES;
use crate::words::key::Key;
use crate::words::trust::Protection;

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";

/// Both sides hash it into the handshake; another protocol under the same key meets nobody.
const PROLOGUE: &[u8] = b"bothends noise 1";

const LENGTH_BYTES: usize = 2;
const TAG_BYTES: usize = 16;
const MAX_RECORD_BYTES: usize = u16::MAX as usize;

/// Most bytes in one record.
pub(crate) const MAX_PLAIN_BYTES: usize = MAX_RECORD_BYTES - TAG_BYTES;

/// Room for a few records: one read fetches several.
const INTAKE_BYTES: usize = 256 << 10;

/// An open Noise channel: what turns its records into bytes and back.
pub(crate) struct Noise {
    state: TransportState,
    intake: Intake,
    opened: Opened,
    out: Outgoing,
    /// A record did not open. No later one is tried.
    is_broken: bool,
}

impl fmt::Debug for Noise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Noise")
            .field("is_broken", &self.is_broken)
            .finish_non_exhaustive()
    }
}

/// The host's side of the handshake. What a device says that speaks without protection is put into
/// `said`, for it may be a refusal.
pub(crate) fn greet(
    socket: &mut Socket,
    key: &Key,
    deadline: Instant,
    said: &mut Vec<u8>,
) -> Result<Noise, CsdError> {
    let mut state = begin(key, |builder| builder.build_initiator())?;
    let mut wire = Wire::new();
    wire.send(socket, deadline, |out| state.write_message(&[], out))?;
    let heard = wire
        .hear(socket, deadline, |message| state.read_message(message, &mut []).is_ok());
    match heard? {
        Heard::Opened => {}
        Heard::Foreign(Some(Protection::Plain)) => {
            said.extend_from_slice(wire.intake.unread());
            return Err(Protection::Noise.is_not(Protection::Plain));
        }
        Heard::Foreign(Some(theirs)) => return Err(Protection::Noise.is_not(theirs)),
        Heard::Foreign(None) => {
            let what = "the device's answer is not a Noise handshake";
            return Err(CsdError::Malformed { what });
        }
        Heard::Shut => {
            let what = "the device has another key".to_owned();
            return Err(CsdError::Unauthenticated { what });
        }
    }
    let mut state = state.into_transport_mode().map_err(|_| unfinished())?;
    wire.send(socket, deadline, |out| state.write_message(&[], out))?;
    Ok(wire.into_noise(state))
}

/// The device's side of the handshake.
pub(crate) fn admit(
    socket: &mut Socket,
    key: &Key,
    deadline: Instant,
) -> Result<Noise, CsdError> {
    let mut state = begin(key, |builder| builder.build_responder())?;
    let mut wire = Wire::new();
    let heard = wire
        .hear(socket, deadline, |message| state.read_message(message, &mut []).is_ok());
    let another_key = || {
        let what = "the host has another key".to_owned();
        CsdError::Unauthenticated { what }
    };
    match heard? {
        Heard::Opened => {}
        Heard::Foreign(Some(theirs)) => return Err(Protection::Noise.is_not(theirs)),
        Heard::Foreign(None) => {
            let what = "a first message that is not a Noise handshake";
            return Err(CsdError::Malformed { what });
        }
        Heard::Shut => return Err(another_key()),
    }
    wire.send(socket, deadline, |out| state.write_message(&[], out))?;
    let mut state = state.into_transport_mode().map_err(|_| unfinished())?;
    let heard = wire.hear(socket, deadline, |message| {
        matches!(state.read_message(message, &mut []), Ok(0))
    });
    match heard? {
        Heard::Opened => Ok(wire.into_noise(state)),
        Heard::Foreign(_) | Heard::Shut => Err(another_key()),
    }
}

fn begin(
    key: &Key,
    build: fn(Builder<'_>) -> Result<HandshakeState, snow::Error>,
) -> Result<HandshakeState, CsdError> {
    let psk = key.noise_psk();
    let state = PATTERN
        .parse()
        .and_then(|params: NoiseParams| Builder::new(params).psk(0, &psk))
        .and_then(|builder| builder.prologue(PROLOGUE))
        .and_then(build);
    state.map_err(|error| {
        CsdError::lost("begin a Noise handshake")(io::Error::other(error))
    })
}

fn unfinished() -> CsdError {
    CsdError::Malformed { what: "a Noise handshake without an end" }
}

/// What came in a handshake's turn.
enum Heard {
    /// What was expected.
    Opened,
    /// A message that does not open: of another key, or changed.
    Shut,
    /// What cannot be of this handshake, and what it looks like.
    Foreign(Option<Protection>),
}

/// The socket during a handshake.
struct Wire {
    began: Instant,
    intake: Intake,
    out: Outgoing,
}

impl Wire {
    fn new() -> Self {
        let mut intake = Intake::default();
        intake.make_room(LENGTH_BYTES + MAX_NOISE_HANDSHAKE_BYTES);
        Self { began: Instant::now(), intake, out: Outgoing::default() }
    }

    fn send(
        &mut self,
        socket: &mut Socket,
        deadline: Instant,
        write: impl FnOnce(&mut [u8]) -> Result<usize, snow::Error>,
    ) -> Result<(), CsdError> {
        let lost = failed_since(self.began, "exchange keys");
        seal_into(&mut self.out, MAX_NOISE_HANDSHAKE_BYTES, write).map_err(&lost)?;
        self.out.flush_until(socket, deadline).map_err(lost)
    }

    /// Waits for one message and opens it. Takes no more bytes than a handshake's from the socket.
    fn hear(
        &mut self,
        socket: &mut Socket,
        deadline: Instant,
        opens: impl FnOnce(&[u8]) -> bool,
    ) -> Result<Heard, CsdError> {
        let lost = failed_since(self.began, "exchange keys");
        loop {
            let here = self.intake.unread();
            if let Some((length, rest)) = here.split_first_chunk() {
                let len = usize::from(u16::from_be_bytes(*length));
                if len > MAX_NOISE_HANDSHAKE_BYTES {
                    return Ok(Heard::Foreign(Protection::of_start(here)));
                }
                if let Some(message) = rest.get(..len) {
                    let is_open = opens(message);
                    self.intake.take(LENGTH_BYTES + len);
                    return Ok(if is_open { Heard::Opened } else { Heard::Shut });
                }
            }
            self.intake.await_from(socket, deadline).map_err(&lost)?;
        }
    }

    fn into_noise(self, state: TransportState) -> Noise {
        let Self { mut intake, out, .. } = self;
        intake.make_room(INTAKE_BYTES);
        Noise { state, intake, opened: Opened::default(), out, is_broken: false }
    }
}

/// Writes a record, length first, behind what waits to be sent.
fn seal_into(
    out: &mut Outgoing,
    most_bytes: usize,
    write: impl FnOnce(&mut [u8]) -> Result<usize, snow::Error>,
) -> io::Result<()> {
    let room = out.room(LENGTH_BYTES + most_bytes);
    let (length, record) = room.split_at_mut(LENGTH_BYTES);
    let len = write(record).map_err(io::Error::other)?;
    let as_written = u16::try_from(len).map_err(io::Error::other)?;
    length.copy_from_slice(&as_written.to_be_bytes());
    out.add(LENGTH_BYTES + len);
    Ok(())
}

impl Noise {
    pub(super) fn is_sending(&self) -> bool {
        !self.out.is_empty()
    }

    pub(super) fn flush(&mut self, socket: &mut Socket) -> io::Result<bool> {
        self.out.flush(socket)
    }

    pub(super) fn n_sealed(&self) -> usize {
        self.intake.unread().len()
    }

    pub(super) fn is_readable(&self) -> bool {
        !self.opened.is_empty() || self.record().is_some()
    }

    /// Seals one record of `src` once the one before has left.
    pub(super) fn write_ready(
        &mut self,
        socket: &mut Socket,
        src: &[u8],
    ) -> io::Result<Option<usize>> {
        if src.is_empty() || !self.out.flush(socket)? {
            return Ok(None);
        }
        let plain = &src[..src.len().min(MAX_PLAIN_BYTES)];
        seal_into(&mut self.out, plain.len() + TAG_BYTES, |record| {
            self.state.write_message(plain, record)
        })?;
        self.out.flush(socket)?;
        Ok(Some(plain.len()))
    }

    pub(super) fn fill_ready(
        &mut self,
        socket: &mut Socket,
        to: &mut dyn Destination,
    ) -> io::Result<Option<usize>> {
        loop {
            if !self.opened.is_empty() || to.room().is_empty() {
                return Ok(Some(self.opened.fill(to)));
            }
            match self.record() {
                Some(len) => self.open(len)?,
                None if self.intake.read_from(socket)?.is_none() => return Ok(None),
                None => {}
            }
        }
    }

    /// The length of the first record, if all of it is here.
    fn record(&self) -> Option<usize> {
        let (length, rest) = self.intake.unread().split_first_chunk()?;
        let len = usize::from(u16::from_be_bytes(*length));
        (rest.len() >= len).then_some(len)
    }

    /// Opens the first record, while nothing else is open.
    fn open(&mut self, len: usize) -> io::Result<()> {
        let end = LENGTH_BYTES + len;
        let record = &self.intake.unread()[LENGTH_BYTES..end];
        // An empty record says nothing, and there would be no end of them.
        let opened = match self.is_broken || len <= TAG_BYTES {
            true => None,
            false => self.state.read_message(record, self.opened.room(len)).ok(),
        };
        let Some(n) = opened else {
            self.is_broken = true;
            let what = "a record that was changed on its way";
            return Err(io::Error::other(CsdError::Malformed { what }));
        };
        self.intake.take(end);
        self.opened.opened(n);
        Ok(())
    }
}
