//! A connection to one node: many requests at once, answered in any order.
//!
//! A task writes what is asked and another one reads what is answered, so that a request that nobody waits for any
//! more leaves the connection intact. A node that is silent while somebody waits is given up, and so is one
//! whose answer means nothing. Errors are about the connection; who asked says for which object.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsConnector;

use crate::client::dial::Dialer;
use crate::client::failure::is_open_files;
use crate::fetcher::progress::Progress;

use super::frame::{self, Answer, Ask, HEADER_BYTES, Header, LONGEST_BODY, Run};

/// How long a connection may take, with its login.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// A node that says nothing for longer, though it was asked, is given up: early enough to ask another one.
const SILENT_FOR: Duration = Duration::from_secs(4);
/// How often that is looked at: a request that was sent during the silence is overdue later than it began.
const LOOK: Duration = Duration::from_secs(1);
/// Bytes of requests that a connection takes in a second, at least.
const SLOWEST: f64 = (128 << 10) as f64;
/// Requests on one connection; the protocol has 32,768.
const MOST_ASKED: usize = 4096;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// No connection: the node, and what the system said.
    Unreachable(String),
    /// No connection, as there are too many open files.
    OpenFiles,
    /// No trusted one.
    Tls(String),
    /// The node wants a login and has none, or another one.
    Denied(String),
    /// The connection broke, or means nothing.
    Broken(String),
    /// What is asked does not fit into a request.
    TooLong,
    /// The node answered that it does not do it.
    Refused(frame::Failed),
}

/// Who connects, and how.
#[derive(Clone)]
pub(super) struct Access {
    pub(super) login: Option<(String, String)>,
    /// What is trusted, where the connection is encrypted.
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) dialer: Arc<Dialer>,
}

/// An open connection; it ends when the last one who has it drops it.
#[derive(Debug)]
pub(super) struct Connection {
    outgoing: mpsc::UnboundedSender<Bytes>,
    asked: Arc<Mutex<Asked>>,
    /// The names that the node has given to statements.
    prepared: Mutex<HashMap<String, Bytes>>,
}

/// Who waits for an answer.
#[derive(Debug)]
struct Waiter {
    /// When the request has been sent at the latest.
    sent: Instant,
    tell: oneshot::Sender<Result<Answer, Trouble>>,
    /// None but that of a fetch is looked at.
    progress: Option<Progress>,
}

/// Who waits for which answer.
#[derive(Debug, Default)]
struct Asked {
    waiting: HashMap<i16, Waiter>,
    /// When all requests have been sent at the latest.
    sent: Option<Instant>,
    next: i16,
    /// Why there will be no more answers.
    ended: Option<Trouble>,
}

impl Asked {
    /// A number that no other request has, for one of `len` bytes. What an upload sends may be on its way for
    /// long, and that nobody answers it before is no silence.
    fn enter(
        &mut self,
        len: usize,
        now: Instant,
        tell: oneshot::Sender<Result<Answer, Trouble>>,
    ) -> Option<i16> {
        if self.ended.is_some() || self.waiting.len() >= MOST_ASKED {
            return None;
        }
        loop {
            self.next = self.next.wrapping_add(1).max(0);
            if !self.waiting.contains_key(&self.next) {
                let begins = self.sent.map_or(now, |sent| sent.max(now));
                let sent = begins + Duration::from_secs_f64(len as f64 / SLOWEST);
                self.sent = Some(sent);
                let progress = Progress::of_task();
                self.waiting.insert(self.next, Waiter { sent, tell, progress });
                return Some(self.next);
            }
        }
    }

    fn end(&mut self, why: Trouble) {
        for (_, waiter) in self.waiting.drain() {
            // Who waited may be gone.
            let _ = waiter.tell.send(Err(why.clone()));
        }
        self.ended.get_or_insert(why);
    }

    fn is_overdue(&self, now: Instant) -> bool {
        let late = |sent: Instant| now.saturating_duration_since(sent) >= SILENT_FOR;
        self.waiting.values().any(|waiter| late(waiter.sent))
    }

    /// Answers come one after another, so all who wait see that the link is slow and not dead, and not only the
    /// one whose answer comes.
    fn came(&self, n_bytes: usize) {
        for progress in self.waiting.values().filter_map(|it| it.progress.as_ref()) {
            progress.came(n_bytes);
        }
    }
}

impl Connection {
    /// Connects to `host` and logs in.
    pub(super) async fn open(
        (host, port): (&str, u16),
        access: &Access,
    ) -> Result<Self, Trouble> {
        let opening = async {
            let stream = access.dialer.connect(host, port).await;
            let stream = stream.map_err(|error| unconnected(&error))?;
            // Requests are small and never wait for more.
            let _ = stream.set_nodelay(true);
            let connection = match &access.tls {
                None => Self::over(stream),
                Some(config) => {
                    let name = ServerName::try_from(host.to_owned());
                    let no_name = |_| Trouble::Tls("the host has no valid name".into());
                    let connector = TlsConnector::from(Arc::clone(config));
                    let secured = connector.connect(name.map_err(no_name)?, stream).await;
                    Self::over(secured.map_err(|error| untrusted(&error))?)
                }
            };
            connection.log_in(access).await?;
            Ok(connection)
        };
        let why = format!("no answer within {} s", CONNECT_WITHIN.as_secs());
        let late = |_| Trouble::Unreachable(why);
        tokio::time::timeout(CONNECT_WITHIN, opening).await.map_err(late)?
    }

    fn over(stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        let (mut from, mut to) = split(stream);
        let asked = Arc::new(Mutex::new(Asked::default()));
        let (outgoing, mut frames) = mpsc::unbounded_channel::<Bytes>();
        let (writing, reading) = (Arc::clone(&asked), Arc::clone(&asked));
        let mut reader = tokio::spawn(async move {
            let why = read(&mut from, &reading).await;
            lock(&reading).end(why);
        });
        tokio::spawn(async move {
            let write = async {
                while let Some(frame) = frames.recv().await {
                    if let Err(error) = to.write_all(&frame).await {
                        lock(&writing).end(broken(&error));
                        break;
                    }
                }
            };
            tokio::select! {
                // Nobody has the connection any more, or it broke.
                () = write => reader.abort(),
                // Nobody waits for what a node does not take.
                _ = &mut reader => return,
            }
            let _ = to.shutdown().await;
        });
        Self { outgoing, asked, prepared: Mutex::default() }
    }

    async fn log_in(&self, access: &Access) -> Result<(), Trouble> {
        let answer = self.ask(Ask::Startup, &frame::startup()).await?;
        if answer == Answer::Ready {
            return Ok(());
        }
        if answer != Answer::Authenticate {
            return Err(meaningless());
        }
        let Some((user, password)) = &access.login else {
            return Err(Trouble::Denied("the server requires a login".to_owned()));
        };
        let login = frame::login(user, password);
        let answer = self.ask(Ask::AuthResponse, &login).await?;
        if answer == Answer::LoggedIn { Ok(()) } else { Err(meaningless()) }
    }

    /// Whether it may be asked.
    pub(super) fn is_open(&self) -> bool {
        lock(&self.asked).ended.is_none()
    }

    /// What the node answers, unless that is a refusal.
    async fn ask(&self, ask: Ask, body: &[u8]) -> Result<Answer, Trouble> {
        if body.len() > LONGEST_BODY {
            return Err(Trouble::TooLong);
        }
        let (tell, told) = oneshot::channel();
        let stream = {
            let mut asked = lock(&self.asked);
            let full = || Trouble::Broken("too many requests on one connection".into());
            let entered = asked.enter(body.len(), Instant::now(), tell);
            entered.ok_or_else(|| asked.ended.clone().unwrap_or_else(full))?
        };
        let gone = || Trouble::Broken("the connection was closed".to_owned());
        self.outgoing.send(frame::request(ask, stream, body)).map_err(|_| gone())?;
        let answer = told.await.map_err(|_| gone())??;
        if let Answer::Failed(failed) = answer {
            Err(refused(failed))
        } else {
            Ok(answer)
        }
    }

    /// Runs a statement that is used once.
    pub(super) async fn query(
        &self,
        statement: &str,
        run: Run<'_>,
    ) -> Result<Answer, Trouble> {
        self.ask(Ask::Query, &frame::query(statement, run)).await
    }

    /// Runs a statement that is used often.
    pub(super) async fn execute(
        &self,
        statement: &str,
        run: Run<'_>,
    ) -> Result<Answer, Trouble> {
        let known = lock(&self.prepared).get(statement).cloned();
        let id = match known {
            Some(id) => id,
            None => self.prepare(statement).await?,
        };
        match self.ask(Ask::Execute, &frame::execute(&id, run)).await {
            // It has forgotten what it was told.
            Err(Trouble::Refused(failed)) if failed.code == UNPREPARED => {
                let id = self.prepare(statement).await?;
                self.ask(Ask::Execute, &frame::execute(&id, run)).await
            }
            done => done,
        }
    }

    async fn prepare(&self, statement: &str) -> Result<Bytes, Trouble> {
        let answer = self.ask(Ask::Prepare, &frame::prepare(statement)).await?;
        let Answer::Prepared(id) = answer else { return Err(meaningless()) };
        lock(&self.prepared).insert(statement.to_owned(), id.clone());
        Ok(id)
    }
}

/// The node does not know a statement that it is to run.
const UNPREPARED: i32 = 0x2500;
/// It does not know the login.
const BAD_CREDENTIALS: i32 = 0x0100;

fn refused(failed: frame::Failed) -> Trouble {
    match failed.code {
        BAD_CREDENTIALS => Trouble::Denied("the server refuses the login".to_owned()),
        _ => Trouble::Refused(failed),
    }
}

/// Hands answers to those who wait, until the connection ends; why it did.
async fn read(from: &mut (impl AsyncRead + Unpin), asked: &Mutex<Asked>) -> Trouble {
    let mut heard = BytesMut::with_capacity(64 << 10);
    let (mut header, mut silent_since) = (None, Instant::now());
    loop {
        if header.is_none() && heard.len() >= HEADER_BYTES {
            let bytes = heard.split_to(HEADER_BYTES);
            let parsed = bytes.first_chunk().map(|bytes| Header::parse(*bytes));
            let Some(Ok(parsed)) = parsed else { return meaningless() };
            heard.reserve(parsed.body_bytes.saturating_sub(heard.len()).min(1 << 20));
            header = Some(parsed);
        }
        if let Some(known) = header.filter(|known| heard.len() >= known.body_bytes) {
            let body = heard.split_to(known.body_bytes).freeze();
            header = None;
            // Other numbers are those of events, for which nobody has asked.
            let waiting = lock(asked).waiting.remove(&known.stream);
            if let Some(Waiter { tell, .. }) = waiting {
                let Ok(answer) = Answer::parse(known, body) else {
                    let _ = tell.send(Err(meaningless()));
                    return meaningless();
                };
                // Who asked may have given up.
                let _ = tell.send(Ok(answer));
            }
            continue;
        }
        match tokio::time::timeout(LOOK, from.read_buf(&mut heard)).await {
            Ok(Ok(0)) => return Trouble::Broken("the connection was closed".to_owned()),
            Ok(Ok(n_bytes)) => {
                silent_since = Instant::now();
                lock(asked).came(n_bytes);
            }
            Ok(Err(error)) => return broken(&error),
            Err(_)
                if silent_since.elapsed() >= SILENT_FOR
                    && lock(asked).is_overdue(Instant::now()) =>
            {
                let why = format!("no answer within {} s", SILENT_FOR.as_secs());
                return Trouble::Broken(why);
            }
            Err(_) => {}
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn meaningless() -> Trouble {
    let why = "the answer is not one of CQL protocol version 4; is this the native port (9042) of \
               a Cassandra or ScyllaDB, and does it require TLS (cqls://)?";
    Trouble::Broken(why.to_owned())
}

fn broken(error: &io::Error) -> Trouble {
    Trouble::Broken(said(error))
}

/// What the system says, without what it may repeat.
fn said(error: &io::Error) -> String {
    error.kind().to_string()
}

/// Why there is no connection.
fn unconnected(error: &io::Error) -> Trouble {
    match is_open_files(error) {
        true => Trouble::OpenFiles,
        false => Trouble::Unreachable(said(error)),
    }
}

/// Only what TLS itself refuses stays so; a connection that breaks during the handshake is one that breaks.
fn untrusted(error: &io::Error) -> Trouble {
    let below = error.get_ref().and_then(|below| below.downcast_ref::<rustls::Error>());
    match below {
        Some(refused) => Trouble::Tls(refused.to_string()),
        None => {
            let why = format!("the TLS handshake broke off: {}", error.kind());
            Trouble::Unreachable(why)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_request_is_not_overdue_while_it_is_sent() {
        let (mut asked, now) = (Asked::default(), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        let mut enter = |len| asked.enter(len, now, oneshot::channel().0).unwrap();
        enter(100);
        let long = [enter(1 << 20), enter(1 << 20)];
        assert!(!asked.is_overdue(after(3)) && asked.is_overdue(after(5)));
        asked.waiting.retain(|stream, _| long.contains(stream));
        assert!(!asked.is_overdue(after(11)), "8 s for each of them");
        assert!(asked.is_overdue(after(13)));
        asked.waiting.remove(&long[0]);
        assert!(!asked.is_overdue(after(19)) && asked.is_overdue(after(21)));
    }
}
