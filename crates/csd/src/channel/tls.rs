//! TLS 1.3 over a socket, with a certificate on both sides.
//!
//! Each side checks that an authority of its own choice signed the other's certificate, and the host that
//! the device's is for the name in the address. Sessions are not resumed: a connection lasts as long as a
//! run. A record that was changed, repeated, left out or exchanged does not open, and ends the channel.

use std::fmt;
use std::io;
use std::time::Instant;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, InsufficientSizeError, UnbufferedStatus,
};

use super::buffers::{Intake, Opened, Outgoing, failed_since};
use super::destination::Destination;
use super::security::TlsConfigs;
use crate::CsdError;
use crate::socket::{Socket, closed};
use crate::words::admission::MAX_TLS_HANDSHAKE_BYTES;
use crate::words::trust::{Protection, Remedy};

/// Sealed at a time, in several records of 16 KiB: one write sends them.
const PIECE_BYTES: usize = 128 << 10;
/// Bytes of a record's header.
const HEADER_BYTES: usize = 5;
/// What a record adds: its header, its type and its tag.
const RECORD_OVERHEAD: usize = HEADER_BYTES + 1 + 16;
const MAX_RECORD_BYTES: usize = 16 << 10;
/// Room for several records: one read fetches them.
const INTAKE_BYTES: usize = 256 << 10;
/// What a device may say in its handshake. The host came to it, so this bounds memory alone.
const MAX_DEVICE_HANDSHAKE_BYTES: usize = 128 << 10;

/// An open TLS channel: what turns its records into bytes and back.
pub(crate) struct Tls {
    side: Side,
    intake: Intake,
    opened: Opened,
    out: Outgoing,
    /// A step has failed. No later one is tried.
    is_broken: bool,
}

enum Side {
    Host(UnbufferedClientConnection),
    Device(UnbufferedServerConnection),
}

/// Takes what was opened.
type Sink<'a> = &'a mut dyn FnMut(&[u8]);

/// What one step led to.
enum Turn {
    /// There may be more to do at once.
    Again,
    /// Nothing goes on without more bytes of the peer.
    Blocked,
    /// What was to be sealed is, and all that could be opened.
    Open,
    /// The peer has closed.
    Closed,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// The host's side of the handshake with the device at `host`. What a device says that speaks without
/// protection is put into `said`, for it may be a refusal.
///
/// A device that refuses the host's certificate says so after this.
pub(crate) fn greet(
    socket: &mut Socket,
    (configs, host): (&TlsConfigs, &str),
    deadline: Instant,
    said: &mut Vec<u8>,
) -> Result<Tls, CsdError> {
    let name =
        ServerName::try_from(host.to_owned()).map_err(|_| CsdError::Untrusted {
            what: format!("`{host}` cannot be the name in a certificate"),
            remedy: "use the name or address that is in the device's certificate".into(),
        })?;
    let side = UnbufferedClientConnection::new(configs.host.clone(), name);
    let side = side.map(Side::Host).map_err(|error| of_device(&error))?;
    let mut tls = Tls::new(side, MAX_DEVICE_HANDSHAKE_BYTES);
    let began = Instant::now();
    let shaken = tls.shake(socket, deadline, MAX_DEVICE_HANDSHAKE_BYTES);
    if matches!(shaken, Err(Shaken::Foreign(Protection::Plain))) {
        said.extend_from_slice(tls.intake.unread());
    }
    shaken.map_err(|failed| failed.explain(began, of_device))?;
    tls.intake.make_room(INTAKE_BYTES);
    Ok(tls)
}

/// The device's side of the handshake.
pub(crate) fn admit(
    socket: &mut Socket,
    configs: &TlsConfigs,
    deadline: Instant,
) -> Result<Tls, CsdError> {
    let side = UnbufferedServerConnection::new(configs.device.clone());
    let side = side.map(Side::Device).map_err(|error| of_host(&error))?;
    let mut tls = Tls::new(side, MAX_TLS_HANDSHAKE_BYTES);
    let began = Instant::now();
    let shaken = tls.shake(socket, deadline, MAX_TLS_HANDSHAKE_BYTES);
    shaken.map_err(|failed| failed.explain(began, of_host))?;
    tls.intake.make_room(INTAKE_BYTES);
    Ok(tls)
}

impl Tls {
    /// The other side's own certificate, in DER.
    pub(crate) fn peer_certificate(&self) -> Option<Vec<u8>> {
        let certificates = match &self.side {
            Side::Host(side) => side.peer_certificates(),
            Side::Device(side) => side.peer_certificates(),
        };
        certificates?.first().map(|certificate| certificate.to_vec())
    }
}

/// Why a handshake failed.
enum Shaken {
    Tls(rustls::Error),
    Link(io::Error),
    Foreign(Protection),
    TooLong,
}

impl Shaken {
    fn explain(
        self,
        began: Instant,
        of_peer: fn(&rustls::Error) -> CsdError,
    ) -> CsdError {
        match self {
            Self::Tls(error) => of_peer(&error),
            Self::Link(error) => failed_since(began, "exchange certificates")(error),
            Self::Foreign(theirs) => Protection::Tls.is_not(theirs),
            Self::TooLong => {
                CsdError::Malformed { what: "a TLS handshake without an end" }
            }
        }
    }
}

/// What a host says about an error in a connection with a device.
fn of_device(error: &rustls::Error) -> CsdError {
    if let rustls::Error::AlertReceived(alert) = error {
        let what = format!("the device refuses this side's certificate ({alert:?})");
        let remedy = "give the host a current certificate signed by an authority that the device \
                      trusts";
        return CsdError::Untrusted { what, remedy: remedy.into() };
    }
    let rustls::Error::InvalidCertificate(why) = error else {
        return no_handshake(error);
    };
    let what = format!("the device's certificate is not valid ({why})");
    CsdError::Untrusted { what, remedy: Remedy::CheckDevice }
}

/// What a device says about an error in a connection with a host.
fn of_host(error: &rustls::Error) -> CsdError {
    if let rustls::Error::AlertReceived(alert) = error {
        let what = format!("the host refuses this side's certificate ({alert:?})");
        let remedy = "give the device a current certificate for the name in the address, signed \
                      by an authority that the host trusts";
        return CsdError::Untrusted { what, remedy: remedy.into() };
    }
    let what = if let rustls::Error::InvalidCertificate(why) = error {
        format!("the host's certificate is not valid ({why})")
    } else if matches!(error, rustls::Error::NoCertificatesPresented) {
        "the host has no certificate".to_owned()
    } else {
        return no_handshake(error);
    };
    CsdError::Untrusted { what, remedy: Remedy::CertifyHost }
}

fn no_handshake(error: &rustls::Error) -> CsdError {
    CsdError::Untrusted {
        what: format!("there is no TLS connection ({error})"),
        remedy: "use an address that begins with tls:// on both sides".into(),
    }
}

/// What is said about an error once the handshake is done.
fn broken(side: &Side, error: &rustls::Error) -> io::Error {
    let is_alert = matches!(error, rustls::Error::AlertReceived(_));
    let what = "a record that was changed on its way";
    io::Error::other(match side {
        Side::Host(_) if is_alert => of_device(error),
        Side::Device(_) if is_alert => of_host(error),
        Side::Host(_) | Side::Device(_) => CsdError::Malformed { what },
    })
}

/// Takes one step: what was opened goes to `opened`, what is to be sent to `out`. `seal` is sealed if
/// the connection is ready for it. The number is how many bytes of the peer's were used up.
fn act<D>(
    status: UnbufferedStatus<'_, '_, D>,
    opened: Sink<'_>,
    out: &mut Outgoing,
    seal: &[u8],
) -> (usize, Result<Turn, rustls::Error>) {
    let UnbufferedStatus { mut discard, state } = status;
    let turn = match state {
        Err(error) => Err(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                None => break Ok(Turn::Again),
                Some(Err(error)) => break Err(error),
                Some(Ok(record)) => {
                    discard += record.discard;
                    opened(record.payload);
                }
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            encode(&mut data, out).map(|()| Turn::Again)
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(Turn::Again)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Turn::Blocked),
        Ok(ConnectionState::WriteTraffic(_)) if seal.is_empty() => Ok(Turn::Open),
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            let n_records = seal.len() / MAX_RECORD_BYTES + 1;
            let room = out.room(seal.len() + n_records * RECORD_OVERHEAD);
            match traffic.encrypt(seal, room) {
                Ok(n) => {
                    out.add(n);
                    Ok(Turn::Open)
                }
                Err(error) => Err(rustls::Error::General(error.to_string())),
            }
        }
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(Turn::Closed),
        // Neither side is asked to send any, and there are no others.
        Ok(ConnectionState::ReadEarlyData(_) | _) => {
            Err(rustls::Error::General("data before the handshake".to_owned()))
        }
    };
    (discard, turn)
}

fn encode<D>(
    data: &mut EncodeTlsData<'_, D>,
    out: &mut Outgoing,
) -> Result<(), rustls::Error> {
    let mut room = 0;
    loop {
        match data.encode(out.room(room)) {
            Ok(n) => {
                out.add(n);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(InsufficientSizeError {
                required_size,
            })) => {
                room = required_size;
            }
            Err(error @ EncodeError::AlreadyEncoded) => {
                return Err(rustls::Error::General(error.to_string()));
            }
        }
    }
}

impl Tls {
    fn new(side: Side, most_bytes: usize) -> Self {
        let mut intake = Intake::default();
        intake.make_room(most_bytes);
        Self {
            side,
            intake,
            opened: Opened::default(),
            out: Outgoing::default(),
            is_broken: false,
        }
    }

    fn turn(
        side: &mut Side,
        intake: &mut Intake,
        out: &mut Outgoing,
        (opened, seal): (Sink<'_>, &[u8]),
    ) -> Result<Turn, rustls::Error> {
        let here = intake.unread_mut();
        let (n_used, turn) = match side {
            Side::Host(side) => act(side.process_tls_records(here), opened, out, seal),
            Side::Device(side) => act(side.process_tls_records(here), opened, out, seal),
        };
        intake.take(n_used);
        turn
    }

    fn is_shaking(&self) -> bool {
        match &self.side {
            Side::Host(side) => side.is_handshaking(),
            Side::Device(side) => side.is_handshaking(),
        }
    }

    /// The handshake, until `deadline` or as long as the peer sends no more than `most_bytes`.
    fn shake(
        &mut self,
        socket: &mut Socket,
        deadline: Instant,
        most_bytes: usize,
    ) -> Result<(), Shaken> {
        let mut n_read = 0;
        loop {
            let opened = &mut self.opened;
            let mut sink = |bytes: &[u8]| opened.push(bytes);
            let (side, intake, out) = (&mut self.side, &mut self.intake, &mut self.out);
            let turn = Self::turn(side, intake, out, (&mut sink, &[]));
            match turn {
                Ok(Turn::Again) => continue,
                Ok(Turn::Closed) => return Err(Shaken::Link(closed())),
                Ok(Turn::Blocked | Turn::Open) => {}
                Err(error) => {
                    self.send_alert(socket, deadline);
                    return Err(Shaken::Tls(error));
                }
            }
            self.out.flush_until(socket, deadline).map_err(Shaken::Link)?;
            if !self.is_shaking() {
                return Ok(());
            }
            if n_read >= most_bytes {
                return Err(Shaken::TooLong);
            }
            let is_first = n_read == 0;
            n_read += self.intake.await_from(socket, deadline).map_err(Shaken::Link)?;
            while is_first && self.intake.unread().len() < 2 {
                n_read +=
                    self.intake.await_from(socket, deadline).map_err(Shaken::Link)?;
            }
            match Protection::of_start(self.intake.unread()) {
                Some(theirs) if is_first && theirs != Protection::Tls => {
                    return Err(Shaken::Foreign(theirs));
                }
                _ => {}
            }
        }
    }

    /// Tells the peer what was wrong, if it still listens. After an error rustls has an alert to send. It
    /// is asked for it once and never again: it panics when it meets what was wrong a second time.
    fn send_alert(&mut self, socket: &mut Socket, deadline: Instant) {
        let Self { side, intake, out, .. } = self;
        drop(Self::turn(side, intake, out, (&mut |_| {}, &[])));
        drop(self.out.flush_until(socket, deadline));
    }

    /// Takes a step of an open connection, unless one has failed before.
    fn step(
        &mut self,
        sink: &mut dyn FnMut(&[u8], &mut Opened),
        seal: &[u8],
    ) -> io::Result<Turn> {
        if self.is_broken {
            return Err(io::Error::other("the connection has failed before"));
        }
        let Self { side, intake, opened, out, .. } = self;
        let turn =
            Self::turn(side, intake, out, (&mut |bytes| sink(bytes, opened), seal));
        turn.map_err(|error| {
            self.is_broken = true;
            broken(&self.side, &error)
        })
    }

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
        let here = self.intake.unread();
        let has_record = match here {
            [_, _, _, high, low, rest @ ..] => {
                rest.len() >= usize::from(u16::from_be_bytes([*high, *low]))
            }
            _ => false,
        };
        has_record || !self.opened.is_empty()
    }

    /// Seals a piece of `src` once the one before has left.
    pub(super) fn write_ready(
        &mut self,
        socket: &mut Socket,
        src: &[u8],
    ) -> io::Result<Option<usize>> {
        if src.is_empty() || !self.out.flush(socket)? {
            return Ok(None);
        }
        let piece = &src[..src.len().min(PIECE_BYTES)];
        loop {
            // What has come must be opened first.
            match self.step(&mut |bytes, opened| opened.push(bytes), piece)? {
                Turn::Again => {}
                Turn::Open => break,
                Turn::Closed => return Err(closed()),
                Turn::Blocked => return Ok(None),
            }
        }
        self.out.flush(socket)?;
        Ok(Some(piece.len()))
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
            let mut n_filled = 0;
            let mut sink = |bytes: &[u8], opened: &mut Opened| {
                let n = to.take(bytes);
                n_filled += n;
                opened.push(&bytes[n..]);
            };
            match self.step(&mut sink, &[])? {
                Turn::Again if n_filled > 0 => return Ok(Some(n_filled)),
                Turn::Again => {}
                Turn::Closed => return Err(closed()),
                Turn::Open | Turn::Blocked => {
                    // An answer to a peer that changes its keys may be under way.
                    self.out.flush(socket)?;
                    if self.intake.read_from(socket)?.is_none() {
                        return Ok(None);
                    }
                }
            }
        }
    }
}
