//! Connections to a server, and values received in memory of their own.
//!
//! The `redis` crate receives the answers to all requests of a connection in one buffer, moves them whenever that
//! grows, and copies each value out of it. Nothing of an answer is seen before it is whole: over a slow link that is
//! too late, and there is no limit to what it holds. So answers are read here: a value as it comes, and others
//! in `values/replies.rs`. A connection has one request at a time, as with HTTP.

mod connection;
mod in_place;
mod replies;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use bytes::{Buf, Bytes, BytesMut};
use futures_util::FutureExt;
use redis::{
    Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult, cmd,
};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use crate::client::dial::{Dialer, Spread};
use crate::client::failure::is_open_files;
use crate::client::idle::Idle;
use crate::client::trusted;
use crate::fetcher::progress;

use super::CONNECT_WITHIN;
use connection::Connection;
use in_place::{InPlace, Stream, receive_in_place};

/// The longest line that is read: a number, a confirmation, an error. That of protected mode has 900 bytes.
pub(super) const LONGEST_LINE: usize = 4096;
/// Room for what is around a value: the line before it, and the answer to a second command.
const AROUND: usize = 512;
/// More than this is not taken for granted before it comes.
const FIRST_BYTES: usize = 1 << 20;

/// Connections to one server, logged in to one database.
pub(super) struct Values {
    host: String,
    port: u16,
    /// Holds the password, so none of this is ever printed.
    greeting: Vec<Cmd>,
    idle: Idle<(), Connection>,
    dialer: Dialer,
    security: Security,
}

/// Whether connections are over TLS.
pub(super) enum Security {
    Plain,
    Tls(Trust),
}

/// Whom connections trust; read when the first one is made.
pub(super) struct Trust {
    ca_file: Option<PathBuf>,
    config: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl Trust {
    /// The system's certificates, and those in `ca_file`.
    pub(super) fn of(ca_file: Option<PathBuf>) -> Self {
        Self { ca_file, config: OnceLock::new() }
    }

    fn config(&self) -> Result<Arc<ClientConfig>, String> {
        self.config.get_or_init(|| trusted(self.ca_file.as_deref())).clone()
    }
}

/// What to receive at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expected {
    /// Bytes of the value.
    pub(super) most: u64,
    /// Whether a number follows it.
    pub(super) number: Number,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    None,
    Follows,
}

/// What was received.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Got {
    /// A value in memory of its own, and the number that was expected.
    Value(Bytes, Option<u64>),
    /// A value in its place.
    InPlace,
}

impl Values {
    /// Nothing for a server that is not reached over TCP.
    pub(super) fn of(info: &ConnectionInfo, security: Security) -> Option<Self> {
        let ConnectionAddr::Tcp(host, port) = info.addr() else { return None };
        let settings = info.redis_settings();
        let mut greeting = Vec::new();
        if let Some(password) = settings.password() {
            let mut login = cmd("AUTH");
            login.arg(settings.username()).arg(password);
            greeting.push(login);
        }
        if settings.db() != 0 {
            let mut select = cmd("SELECT");
            select.arg(settings.db());
            greeting.push(select);
        }
        let (idle, dialer) = (Idle::default(), Dialer::new(Spread::Steady));
        let (host, port) = (host.clone(), *port);
        Some(Self { host, port, greeting, idle, dialer, security })
    }

    /// Sends `request`, which may be two commands, and receives a value and perhaps a number. The value may be received
    /// in `place`, if it is one of so many bytes and no number follows. Not tried again, except on a new connection
    /// where a kept one turns out to be closed.
    pub(super) async fn get(
        &self,
        request: &[u8],
        expected: Expected,
        mut place: Option<&mut [u8]>,
    ) -> Result<Got, Failed> {
        if let Some(mut kept) = self.idle.take(()) {
            let wait = self.idle.wait(());
            match exchange(&mut kept, request, expected, place.as_deref_mut()).await {
                Err((Heard::Nothing, error)) if error.is_io_error() => {}
                ended => {
                    wait.end();
                    return self.ended(kept, ended);
                }
            }
        }
        // In memory of its own: room for what seldom happens would be copied with each request.
        let mut new = Box::pin(self.connect()).await?;
        let ended = exchange(&mut new, request, expected, place).await;
        self.ended(new, ended)
    }

    /// After an error nobody knows what comes next on a connection, so it is closed.
    fn ended(
        &self,
        connection: Connection,
        ended: Result<Got, (Heard, RedisError)>,
    ) -> Result<Got, Failed> {
        let received = ended.map_err(|(_, error)| Failed::ToAnswer(error))?;
        self.idle.keep((), connection);
        Ok(received)
    }

    async fn connect(&self) -> Result<Connection, Failed> {
        let opening = async {
            let stream = self.dialer.connect(&self.host, self.port).await;
            let stream = stream.map_err(|error| match is_open_files(&error) {
                true => Failed::OpenFiles,
                false => Failed::ToConnect(error.into()),
            })?;
            // Requests are small and never wait for more.
            stream.set_nodelay(true).map_err(|error| Failed::ToConnect(error.into()))?;
            let connection = match &self.security {
                Security::Plain => Connection::Plain(stream),
                Security::Tls(trust) => {
                    let config = trust.config().map_err(Failed::Untrusted)?;
                    let no_name = |_| Failed::Untrusted("the host has no name".into());
                    let name =
                        ServerName::try_from(self.host.clone()).map_err(no_name)?;
                    let secured = TlsConnector::from(config).connect(name, stream).await;
                    Connection::Secured(Box::new(secured.map_err(to_secure)?))
                }
            };
            self.greeted(connection).await.map_err(Failed::ToConnect)
        };
        let late = |_| {
            let late = io::Error::from(io::ErrorKind::TimedOut);
            Failed::ToConnect(late.into())
        };
        tokio::time::timeout(CONNECT_WITHIN, opening).await.map_err(late)?
    }

    /// The connection, logged in.
    async fn greeted(&self, mut stream: Connection) -> RedisResult<Connection> {
        for command in &self.greeting {
            send(&mut stream, &command.get_packed_command()).await?;
            let mut answer = Answer::of(0);
            let line = answer.line(&mut stream, 0).await?;
            understood(line)?;
        }
        Ok(stream)
    }
}

/// All of a request, also what TLS still has in memory.
async fn send(stream: &mut (impl AsyncWrite + Unpin), request: &[u8]) -> io::Result<()> {
    stream.write_all(request).await?;
    stream.flush().await
}

/// Only what TLS itself refuses stays so: a handshake that breaks off may succeed with the next connection.
fn to_secure(error: io::Error) -> Failed {
    let below = error.get_ref().and_then(|below| below.downcast_ref::<rustls::Error>());
    match below {
        Some(refused) => Failed::Untrusted(refused.to_string()),
        None => Failed::ToConnect(error.into()),
    }
}

/// Whether these bytes, of which no more come, are an answer to a request for a value of at most 4 KiB, followed by a
/// number if there is an odd number of them.
pub(crate) fn is_value(mut bytes: &[u8]) -> bool {
    let number = if bytes.len() % 2 == 1 { Number::Follows } else { Number::None };
    let expected = Expected { most: 4096, number };
    let mut answer = Answer::of(expected.most);
    // Bytes in memory are always ready.
    let mut again = bytes;
    let received = answer.receive(&mut bytes, expected).now_or_never();
    let received = received.and_then(Result::ok);
    // The same bytes are the same value where it has a place, whatever length that has.
    let len = received.as_ref().map_or(12, |(value, _)| value.len());
    let mut place = vec![0; len];
    let whole = Expected { most: len as u64, number: Number::None };
    let in_place = receive(&mut again, whole, Some(&mut place)).now_or_never();
    if let (Some((value, None)), Some(Ok(got))) = (&received, in_place) {
        assert!(
            got == Got::InPlace && *value == place
                || got == Got::Value(value.clone(), None)
        );
    }
    received.is_some()
}

/// Where a request failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// There was no connection for it.
    ToConnect(RedisError),
    /// There are too many open files for one.
    OpenFiles,
    /// The server is not who it should be, or speaks no TLS.
    Untrusted(String),
    /// It was sent.
    ToAnswer(RedisError),
    /// Its answer is longer than any that means something.
    TooLong {
        /// Bytes that it may have.
        most: usize,
    },
}

/// What of an answer had come when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Nothing,
    Something,
}

async fn exchange(
    stream: &mut (impl Stream + AsyncWrite),
    request: &[u8],
    expected: Expected,
    place: Option<&mut [u8]>,
) -> Result<Got, (Heard, RedisError)> {
    send(stream, request).await.map_err(|e| (Heard::Nothing, e.into()))?;
    receive(stream, expected, place).await
}

async fn receive(
    stream: &mut impl Stream,
    expected: Expected,
    place: Option<&mut [u8]>,
) -> Result<Got, (Heard, RedisError)> {
    let mut answer = match place {
        None => Answer::of(expected.most),
        Some(place) => match receive_in_place(stream, place).await {
            Ok(InPlace::Received) => return Ok(Got::InPlace),
            Ok(InPlace::Other(bytes)) => Answer { bytes },
            Err((heard, error)) => return Err((heard, error.into())),
        },
    };
    let received = answer.receive(stream, expected).await;
    let (value, number) = received.map_err(|error| (answer.heard(), error))?;
    Ok(Got::Value(value, number))
}

/// What has come of one answer.
struct Answer {
    bytes: BytesMut,
}

impl Answer {
    /// The memory is that of a value of `most` bytes, if that is not too much to be taken for granted.
    fn of(most: u64) -> Self {
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(FIRST_BYTES);
        Self { bytes: BytesMut::with_capacity(most + AROUND) }
    }

    fn heard(&self) -> Heard {
        if self.bytes.is_empty() { Heard::Nothing } else { Heard::Something }
    }

    /// A value, `$length`, its bytes and the end of a line; and perhaps a number, `:number`.
    async fn receive(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        expected: Expected,
    ) -> RedisResult<(Bytes, Option<u64>)> {
        let line = self.line(stream, 0).await?;
        let n_line = line.len();
        let digits = line.strip_prefix(b"$").and_then(|line| line.strip_suffix(b"\r\n"));
        let Some(digits) = digits else { return Err(refused(line)) };
        let len = number(digits).filter(|len| *len <= expected.most);
        let len = len.and_then(|len| usize::try_from(len).ok()).ok_or_else(unreadable)?;
        let end = n_line + len + 2;
        while self.bytes.len() < end {
            self.more(stream, end).await?;
        }
        let mut follows = None;
        let mut whole = end;
        if expected.number == Number::Follows {
            let line = self.line(stream, end).await?;
            whole = end + line.len();
            let digits =
                line.strip_prefix(b":").and_then(|line| line.strip_suffix(b"\r\n"));
            let Some(digits) = digits else { return Err(refused(line)) };
            follows = Some(number(digits).ok_or_else(unreadable)?);
        }
        let ends_well = self.bytes.get(end - 2..end) == Some(b"\r\n");
        if !ends_well || self.bytes.len() != whole {
            return Err(unreadable());
        }
        self.bytes.truncate(end - 2);
        self.bytes.advance(n_line);
        Ok((self.bytes.split().freeze(), follows))
    }

    /// The line that begins at `at`, with its end.
    async fn line(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        at: usize,
    ) -> RedisResult<&[u8]> {
        loop {
            if let Some(len) = self.len_of_line(at)? {
                return Ok(self.bytes.get(at..at + len).unwrap_or_default());
            }
            self.more(stream, at + LONGEST_LINE).await?;
        }
    }

    /// Of the line that begins at `at`, with its end; `None` while that has not come.
    fn len_of_line(&self, at: usize) -> RedisResult<Option<usize>> {
        let come = self.bytes.get(at..).unwrap_or_default();
        let end = come.windows(2).take(LONGEST_LINE).position(|end| end == b"\r\n");
        match end {
            Some(end) => Ok(Some(end + 2)),
            None if come.len() > LONGEST_LINE => Err(unreadable()),
            None => Ok(None),
        }
    }

    /// Waits for more of what goes on to `end` at least.
    async fn more(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        end: usize,
    ) -> RedisResult<()> {
        let come = self.bytes.len();
        if come == self.bytes.capacity() {
            let missing = end.saturating_sub(come) + AROUND;
            self.bytes.reserve(missing.min(come.max(FIRST_BYTES)));
        }
        let n_bytes = stream.read_buf(&mut self.bytes).await?;
        if n_bytes == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        progress::came(n_bytes);
        Ok(())
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A line that is no error means what was asked for has been done.
fn understood(line: &[u8]) -> RedisResult<()> {
    redis::parse_redis_value(line)?.extract_error().map(|_| ())
}

/// The error in a line that should be a value.
fn refused(line: &[u8]) -> RedisError {
    let told = line.starts_with(b"-").then(|| understood(line).err());
    told.flatten().unwrap_or_else(unreadable)
}

fn unreadable() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "an answer that is not a value").into()
}
