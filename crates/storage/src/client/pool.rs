//! Connections: opened within a deadline, kept while they are idle.

use std::fmt::{self, Debug, Formatter};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::{Response, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::dial::{Dialer, Spread};
use super::failure::{Failure, is_of_machine, no_connection};
use super::form::{Whole, origin_form, with_host};
use super::idle::{Idle, Wait};
use super::proxy::{Proxies, Proxy};

/// How long a connection may take, with all its addresses.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// The same to a cloud's own address, which is next to the machine or nowhere.
const CONNECT_TO_MACHINE_WITHIN: Duration = Duration::from_secs(1);

/// Bytes that are read at once, and kept as a buffer by each connection. Buffers that grow with what is read, up to
/// 400 KiB, take 4 % more of the client's CPU time for records of 110 kB: what is freed of them is faulted in again. The head of an
/// answer may be as long.
const READ: usize = 64 << 10;

/// How long a connection is kept, and for how many requests, more or less.
const KEPT_FOR: Duration = Duration::from_secs(300);
const MOST_REQUESTS: u32 = 1000;

/// Scheme, host and port.
pub(super) type Key = String;

/// The connections of a client.
#[derive(Debug)]
pub(super) struct Pool {
    idle: Idle<Key, Sender>,
    dialer: Dialer,
    proxies: Proxies,
    ca_file: Option<PathBuf>,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
    /// What is known of the cloud's own service on this machine. It stands alone: no other memory is published
    /// through it.
    machine: AtomicU8,
}

/// Whether the cloud's own service is on this machine, the one that gives credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(super) enum Machine {
    /// Nobody knows: most often, it is not there.
    Unknown,
    /// The environment says that credentials come from it.
    Expected,
    /// It has answered.
    There,
}

/// An open connection.
pub(super) struct Sender {
    key: Key,
    sender: SendRequest<Full<Bytes>>,
    /// The one that forwards requests to the server.
    proxy: Option<Proxy>,
    /// Until when, and for how many requests, it is kept.
    until: Instant,
    n_left: u32,
}

impl Debug for Sender {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("to", &self.key).finish_non_exhaustive()
    }
}

impl Sender {
    /// The request as it is sent on this connection.
    pub(super) fn form(&self, request: &Whole) -> Result<Whole, Failure> {
        let form = with_host(request)?;
        match &self.proxy {
            Some(proxy) => Ok(proxy.forwarded(form)),
            None => origin_form(form),
        }
    }

    /// The proxy that its requests are forwarded by.
    pub(super) fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    pub(super) async fn send(
        &mut self,
        request: Whole,
    ) -> hyper::Result<Response<Incoming>> {
        self.n_left = self.n_left.saturating_sub(1);
        self.sender.send_request(request).await
    }

    /// Whether it is time for another one. One that is kept forever stays with the front end that it found, however busy
    /// that is, and never finds those that were added.
    fn is_worn(&self) -> bool {
        self.n_left == 0 || Instant::now() >= self.until
    }
}

impl Pool {
    pub(super) fn new(ca_file: Option<&Path>, proxies: Proxies) -> Self {
        let ca_file = ca_file.map(Path::to_owned);
        let machine = AtomicU8::new(Machine::Unknown as u8);
        let (idle, dialer) = (Idle::default(), Dialer::new(Spread::InTurn));
        Self { idle, dialer, proxies, ca_file, tls: OnceLock::new(), machine }
    }

    /// What is known of the cloud's own service.
    pub(super) fn machine(&self) -> Machine {
        let known = self.machine.load(Ordering::Relaxed);
        let all = [Machine::Unknown, Machine::Expected, Machine::There];
        all.into_iter().find(|one| *one as u8 == known).unwrap_or(Machine::Unknown)
    }

    /// So much is known of it now.
    pub(super) fn know_machine(&self, now: Machine) {
        self.machine.fetch_max(now as u8, Ordering::Relaxed);
    }

    /// An idle connection to the server of `uri`.
    pub(super) async fn kept(&self, uri: &Uri) -> Option<Sender> {
        let key = key(uri)?;
        loop {
            let mut sender = self.idle.take(key.clone())?;
            if sender.sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    /// That an answer on this kept connection is waited for.
    pub(super) fn wait(&self, sender: &Sender) -> Wait<'_, Key, Sender> {
        self.idle.wait(sender.key.clone())
    }

    /// The rest of an answer is not waited for, of which nothing has come since then.
    pub(super) fn gave_up(&self, sender: Sender, since: Instant) {
        self.idle.gave_up(sender.key, since);
    }

    pub(super) fn keep(&self, sender: Sender) {
        if !sender.sender.is_closed() && !sender.is_worn() {
            self.idle.keep(sender.key.clone(), sender);
        }
    }

    /// A new connection to the server of `uri`.
    pub(super) async fn connect(&self, uri: &Uri) -> Result<Sender, Failure> {
        let no_host = || Failure::Unusable("the address has no host".to_owned());
        let host = uri.host().ok_or_else(no_host)?;
        let within =
            if is_of_machine(host) { CONNECT_TO_MACHINE_WITHIN } else { CONNECT_WITHIN };
        let key = key(uri).ok_or_else(no_host)?;
        let is_tls = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let server = format!("{host}:{port}");
        let proxy = self.proxies.before(uri)?;
        let shown = match &proxy {
            Some(proxy) => format!("{proxy} (the proxy for {host})"),
            None => server.clone(),
        };
        let opening = async {
            let to = proxy.as_ref().map(|proxy| (&*proxy.host, proxy.port));
            let (to, port) = to.unwrap_or((host, port));
            let stream = self.dialer.connect(bare(to), port).await;
            let mut stream =
                stream.map_err(|error| no_connection(shown.clone(), &error))?;
            // Requests are small and never wait for more.
            let _ = stream.set_nodelay(true);
            if !is_tls {
                return driven(stream, key, proxy.clone()).await;
            }
            if let Some(proxy) = &proxy {
                proxy.tunnel(&mut stream, &server).await?;
            }
            self.secured(bare(host), &server, stream, key).await
        };
        let late = |_| Failure::Unreachable {
            host: shown.clone(),
            why: format!("no answer within {} s", within.as_secs()),
        };
        tokio::time::timeout(within, opening).await.map_err(late)?
    }

    async fn secured(
        &self,
        host: &str,
        shown: &str,
        stream: TcpStream,
        key: Key,
    ) -> Result<Sender, Failure> {
        let failed = |why: String| Failure::Tls { host: shown.to_owned(), why };
        let config = self.tls.get_or_init(|| config(self.ca_file.as_deref()));
        let config = config.clone().map_err(failed)?;
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| failed("the host has no valid name".to_owned()))?;
        let secured = TlsConnector::from(config).connect(name, stream).await;
        let secured = secured.map_err(|error| handshake_failure(shown, &error))?;
        driven(secured, key, None).await
    }
}

/// A host as it is looked up: of an address of IPv6 without its brackets.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// An HTTP connection over `stream`, driven by a task; to a `proxy` if that forwards the requests.
async fn driven<S>(stream: S, key: Key, proxy: Option<Proxy>) -> Result<Sender, Failure>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let opened =
        Builder::new().read_buf_exact_size(Some(READ)).handshake(TokioIo::new(stream));
    let opened = opened.await;
    let (sender, connection) = opened.map_err(|error| Failure::broken(&error))?;
    tokio::spawn(async move {
        // Whoever waits for an answer on it hears of a failure.
        let _ = connection.await;
    });
    // From three to five quarters, so that those that were opened together are not closed together.
    let more = RandomState::new().hash_one(0) % u64::from(MOST_REQUESTS / 2 + 1);
    let n_left = MOST_REQUESTS * 3 / 4 + u32::try_from(more).unwrap_or(0);
    let until = Instant::now() + KEPT_FOR * n_left / MOST_REQUESTS;
    Ok(Sender { key, sender, proxy, until, n_left })
}

fn key(uri: &Uri) -> Option<Key> {
    Some(format!("{}://{}", uri.scheme_str()?, uri.authority()?))
}

/// Why there is no trusted connection. Only what TLS itself refuses stays so: a connection that breaks
/// during the handshake is one that breaks, and the next one may hold.
fn handshake_failure(host: &str, error: &io::Error) -> Failure {
    let host = host.to_owned();
    let below = error.get_ref().and_then(|below| below.downcast_ref::<rustls::Error>());
    match below {
        Some(refused) => {
            let mut why = refused.to_string();
            // `openssl req -x509` makes such a certificate, unless it is told otherwise.
            if why.contains("CaUsedAsEndEntity") {
                why = "the server's certificate is that of a CA; make one with \
                       basicConstraints=CA:FALSE"
                    .to_owned();
            }
            Failure::Tls { host, why }
        }
        None => {
            let why = format!("the TLS handshake broke off: {}", error.kind());
            Failure::Unreachable { host, why }
        }
    }
}

/// What is trusted: the system's certificates (or those that SSL_CERT_FILE names), and the user's own.
pub(crate) fn config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if let Some(path) = ca_file {
        let unusable = |why: &dyn fmt::Display| {
            format!("cannot use the CA file `{}`: {why}", path.display())
        };
        let found = CertificateDer::pem_file_iter(path).map_err(|e| unusable(&e))?;
        for found in found {
            let found = found.map_err(|error| unusable(&error))?;
            roots.add(found).map_err(|error| unusable(&error))?;
        }
    }
    if roots.is_empty() {
        return Err("this system has no CA certificates; install its package \
                    ca-certificates"
            .to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
