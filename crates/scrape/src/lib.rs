//! The numbers of a program for Prometheus, over HTTP, for as long as somebody wants to give them.
//!
//! One thread answers one request after another and keeps nobody waiting: a client that has not
//! sent its request within a second is dropped. It serves the text that it is given at `/metrics` and
//! nothing else. What the numbers are is for the caller. `ask` asks such programs, and `text` reads
//! what they answer.

mod ask;
mod text;

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use ask::{Endpoint, get_all};
pub use text::{Sample, samples};

/// Longest request that is read.
const MOST_REQUEST_BYTES: usize = 8 << 10;

/// How long one who asks may take for it, and for taking the answer.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// From one look for somebody who asks to the next.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What every path but `/metrics` answers.
const HINT: &str = "bothends: the metrics are at /metrics\n";

/// Who answers. The address is given up when this is dropped.
#[derive(Debug)]
pub struct Scrape {
    at: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The addresses that `HOST:PORT` means; without a host, this machine alone can reach it.
///
/// # Errors
/// Its form is another ([`ErrorKind::InvalidInput`]), or the host cannot be looked up. The error says what
/// to give instead.
pub fn parse(address: &str) -> Result<Vec<SocketAddr>> {
    let port = address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    if !matches!(port, Some(Ok(_))) {
        let why = "give HOST:PORT, or :PORT for this machine alone";
        return Err(Error::new(ErrorKind::InvalidInput, why));
    }
    let with_host = match address.strip_prefix(':') {
        Some(port) => format!("127.0.0.1:{port}"),
        None => address.to_owned(),
    };
    let unknown = |why: String| {
        let why = format!("{why}; give a name or an address of this machine");
        Error::new(ErrorKind::NotFound, why)
    };
    let found: Vec<_> = with_host
        .to_socket_addrs()
        .map_err(|e| unknown(format!("the host cannot be looked up ({e})")))?
        .collect();
    match found.is_empty() {
        true => Err(unknown("the host has no address".to_owned())),
        false => Ok(found),
    }
}

/// An address at which nobody answers yet: for a program that may open no socket once it serves.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    at: SocketAddr,
}

impl Bound {
    /// The first of these addresses that is free.
    ///
    /// # Errors
    /// None is.
    pub fn at(addresses: &[SocketAddr]) -> Result<Self> {
        let listener = TcpListener::bind(addresses)?;
        listener.set_nonblocking(true)?;
        let at = listener.local_addr()?;
        Ok(Self { listener, at })
    }

    /// Answers with what `text` says at the time, on a thread of its own.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn answer(self, text: impl Fn() -> String + Send + 'static) -> Result<Scrape> {
        let Self { listener, at } = self;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let named = std::thread::Builder::new().name("be-metrics".to_owned());
        let thread = named.spawn(move || serve(&listener, &text, &stopped))?;
        Ok(Scrape { at, stop, thread: Some(thread) })
    }
}

impl Scrape {
    /// Answers with what `text` says at the time, at the first of these addresses that is free.
    ///
    /// # Errors
    /// None is, or there is no thread for it.
    pub fn start(
        addresses: &[SocketAddr],
        text: impl Fn() -> String + Send + 'static,
    ) -> Result<Self> {
        Bound::at(addresses)?.answer(text)
    }

    /// Where it answers; port 0 has become the port that was given.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.at
    }
}

impl Drop for Scrape {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has stated why.
            let _ = thread.join();
        }
    }
}

/// Answers until it is stopped.
fn serve(listener: &TcpListener, text: &dyn Fn() -> String, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            // One who goes away in the middle has lost nothing that we owe.
            Ok((stream, _)) => drop(answer(stream, text)),
            Err(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
}

fn answer(mut stream: TcpStream, text: &dyn Fn() -> String) -> Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = request(&mut stream)?;
    let (status, body) = answer_to(&String::from_utf8_lossy(&request), text);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes())?;
    stream.flush()
}

/// The request's head, to the empty line, within the patience there is.
fn request(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let ends = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let left = ends.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > MOST_REQUEST_BYTES {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => break,
            n => head.extend_from_slice(&part[..n]),
        }
    }
    Ok(head)
}

/// Status and body for a request's head.
fn answer_to(head: &str, text: &dyn Fn() -> String) -> (&'static str, String) {
    let hint = |status| (status, HINT.to_owned());
    let words: Vec<&str> = head.lines().next().unwrap_or_default().split(' ').collect();
    match words[..] {
        [method, path, version] if version.starts_with("HTTP/1.") => {
            match (method, path.split('?').next()) {
                ("GET", Some("/metrics")) => ("200 OK", text()),
                ("GET", Some("/")) => hint("200 OK"),
                ("GET", _) => hint("404 Not Found"),
                _ => hint("405 Method Not Allowed"),
            }
        }
        _ => hint("400 Bad Request"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(at: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    fn server() -> Scrape {
        let text = || "# HELP bothends_x of a test\n".to_owned();
        Scrape::start(&parse(":0").unwrap(), text).unwrap()
    }

    #[test]
    fn it_answers_what_is_asked_and_survives_what_is_not() {
        let server = server();
        let at = server.address();
        let answer = ask(at, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("\r\n\r\n# HELP bothends_"), "{answer}");
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "200"),
            (b"GET /favicon.ico HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"nonsense\r\n\r\n", "400"),
            (b"\xff\xfe\r\n\r\n", "400"),
        ] {
            let answer = ask(at, request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
            assert!(answer.contains("at /metrics"), "{answer}");
        }
        assert_eq!(ask(at, &[b'x'; 20_000]), "", "no end of a request");
        drop(TcpStream::connect(at).unwrap());
        assert!(ask(at, b"GET /metrics?x=1 HTTP/1.0\r\n\r\n").contains("200 OK"));
        drop(server);
        assert!(TcpStream::connect(at).is_err(), "the address is given up");
    }

    #[test]
    fn one_who_says_nothing_is_left_soon() {
        let server = server();
        let _silent = TcpStream::connect(server.address()).unwrap();
        let began = Instant::now();
        let answer = ask(server.address(), b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.contains("200 OK"));
        assert!(began.elapsed() < 5 * PATIENCE);
    }

    #[test]
    fn without_a_host_it_is_this_machine_alone() {
        let loopback = parse(":9100").unwrap();
        assert!(loopback.iter().all(|at| at.ip().is_loopback() && at.port() == 9100));
        assert_eq!(parse("0.0.0.0:9100").unwrap()[0].to_string(), "0.0.0.0:9100");
        for wrong in ["", "9100", "localhost", ":x", ":70000"] {
            assert_eq!(
                parse(wrong).unwrap_err().kind(),
                ErrorKind::InvalidInput,
                "{wrong}"
            );
        }
        // The form is right: to be told to give HOST:PORT would help nobody.
        let unknown = parse("no such host:9100").unwrap_err().to_string();
        assert!(unknown.starts_with("the host cannot be looked up ("), "{unknown}");
    }
}
