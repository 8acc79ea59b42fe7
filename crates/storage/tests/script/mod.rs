//! A server that answers from a script, and what is asked of it.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bothends_storage::{
    Fetch, Fetched, Fetcher, Location, Objects, Options, StorageError,
};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const ONE: NonZero<usize> = NonZero::<usize>::MIN;

/// Answers each request with what `answer` gives for its number and first line; closes where that is empty. It
/// lives as long as the test's process.
pub(crate) fn server(
    answer: impl Fn(usize, &str) -> Vec<u8> + Send + Sync + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let (asked, answer) = (Arc::new(AtomicUsize::new(0)), Arc::new(answer));
    let count = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (answer, count) = (Arc::clone(&answer), Arc::clone(&count));
            thread::spawn(move || serve(stream.unwrap(), &*answer, &count));
        }
    });
    (at, asked)
}

fn serve(
    mut stream: TcpStream,
    answer: &dyn Fn(usize, &str) -> Vec<u8>,
    asked: &AtomicUsize,
) {
    let mut head = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).is_ok_and(|n| n == 1) {
        head.push(byte[0]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        head.clear();
        let number = asked.fetch_add(1, Ordering::SeqCst);
        let bytes = answer(number, text.lines().next().unwrap());
        let is_sent = stream.write_all(&bytes).is_ok();
        // What promises more than it has ends with the connection.
        if !is_sent || bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 206 Cut") {
            return;
        }
    }
}

pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let len = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {len}\r\n\r\n{body}")
        .into_bytes()
}

/// An error of S3, with its text where the request may have one.
pub(crate) fn s3_error(line: &str, status: &str, code: &str) -> Vec<u8> {
    let secret = "the key was s3cret";
    let body = format!(
        "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{secret}</Message>\
         <Region>eu-west-1</Region><AWSAccessKeyId>s3cret</AWSAccessKeyId></Error>"
    );
    answer(status, "", if line.starts_with("HEAD") { "" } else { &body })
}

pub(crate) fn options(at: SocketAddr) -> Options {
    let mut options =
        Options { endpoint: Some(format!("http://{at}")), ..Options::default() };
    for (name, value) in [
        ("AWS_ACCESS_KEY_ID", "s3cret-id"),
        ("AWS_SECRET_ACCESS_KEY", "s3cret-key"),
        ("AWS_SESSION_TOKEN", "s3cret-token"),
    ] {
        options.variables.insert(name.to_owned(), value.to_owned());
    }
    options
}

pub(crate) fn open(url: &str, options: &Options) -> Arc<dyn Objects> {
    Location::parse(url, options).unwrap().open().unwrap()
}

pub(crate) fn fetch(
    objects: Arc<dyn Objects>,
) -> Result<bothends_storage::Bytes, StorageError> {
    let mut fetcher = Fetcher::start(objects, ONE).unwrap();
    let (object, range) = ("a".into(), 2..6);
    fetcher.submit(Fetch { tag: 1, object, range, expected: None, timeout: PATIENCE });
    let Fetched { result, .. } = fetcher.poll(PATIENCE).unwrap();
    result
}

pub(crate) fn one_line(error: &StorageError) -> String {
    let text = error.to_string();
    assert!(!text.contains('\n') && !text.contains("s3cret"), "{text}");
    text
}

/// A server's key, and its certificate in a file for whoever is to trust it.
pub(crate) struct Certified {
    pub(crate) key: rcgen::CertifiedKey<rcgen::KeyPair>,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) ca_file: PathBuf,
}

pub(crate) fn certified(host: &str) -> Certified {
    let key = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, key.cert.pem()).unwrap();
    Certified { key, folder, ca_file }
}

/// Of a server that asks no client for a certificate.
pub(crate) fn tls(key: &rcgen::CertifiedKey<rcgen::KeyPair>) -> rustls::ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let private =
        rustls::pki_types::PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
    rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], private.into())
        .unwrap()
}

/// Answers each request over TLS with the bytes 2 to 5 of ten.
pub(crate) fn secured(key: &rcgen::CertifiedKey<rcgen::KeyPair>) -> SocketAddr {
    secured_by(key, |_| {
        let head = "Content-Range: bytes 2-5/10\r\nConnection: close\r\n";
        answer("206 Partial Content", head, "2345")
    })
}

/// Answers each request over TLS with what `answer` gives for it.
pub(crate) fn secured_by(
    key: &rcgen::CertifiedKey<rcgen::KeyPair>,
    answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
) -> SocketAddr {
    let (config, answer) = (Arc::new(tls(key)), Arc::new(answer));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let stream = rustls::StreamOwned::new(connection, stream.unwrap());
            let answer = Arc::clone(&answer);
            thread::spawn(move || serve_secured(stream, &*answer));
        }
    });
    at
}

fn serve_secured(mut stream: impl Read + Write, answer: &dyn Fn(&str) -> Vec<u8>) {
    let mut request = [0; 4096];
    // A client that does not trust hangs up here.
    while let Ok(n @ 1..) = stream.read(&mut request) {
        let bytes = answer(&String::from_utf8_lossy(&request[..n]));
        let closes = bytes.windows(5).any(|word| word == b"close");
        if stream.write_all(&bytes).is_err() || closes {
            return;
        }
    }
}
