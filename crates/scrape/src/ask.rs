//! The other side of HTTP: a program is asked for its numbers, or is given something to keep. Plain
//! HTTP/1.1, one request on each connection, with a deadline and a bound for everything.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Largest answer that is read.
const MOST_ANSWER_BYTES: usize = 16 << 20;

/// Programs that are asked at the same time.
const AT_ONCE: usize = 32;

/// Where a program answers: `http://HOST:PORT/PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: u16,
    path: String,
}

impl Endpoint {
    /// From `http://HOST:PORT/PATH`, `HOST:PORT` or `:PORT` (this machine); `path` is what a text without
    /// one means. `None` for everything else, so also for `https`.
    #[must_use]
    pub fn parse(text: &str, path: &str) -> Option<Self> {
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some(_) => return None,
            None => text,
        };
        let (authority, own) = match rest.find('/') {
            Some(at) if rest.len() > at + 1 => rest.split_at(at),
            Some(at) => (&rest[..at], path),
            None => (rest, path),
        };
        let (host, port) = authority.rsplit_once(':')?;
        let host = host.strip_prefix('[').map_or(Some(host), |h| h.strip_suffix(']'))?;
        let is_plain = |c: char| c.is_ascii_graphic() && !"@?#".contains(c);
        let is_one =
            host.chars().all(is_plain) && own.chars().all(|c| c.is_ascii_graphic());
        let host = if host.is_empty() { "127.0.0.1" } else { host };
        let port = port.parse().ok().filter(|port| *port != 0)?;
        is_one.then(|| Self { host: host.to_owned(), port, path: own.to_owned() })
    }

    /// `HOST:PORT`.
    #[must_use]
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// What it answers to GET.
    ///
    /// # Errors
    /// It does not answer in time, or with something else than success.
    pub fn get(&self, patience: Duration) -> Result<String> {
        self.exchange("GET", &[], "", patience)
    }

    /// Gives it a JSON text by POST.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn post_json(&self, json: &str, patience: Duration) -> Result<String> {
        let head = ["Content-Type: application/json"];
        self.exchange("POST", &head, json, patience)
    }

    fn exchange(
        &self,
        method: &str,
        head: &[&str],
        body: &str,
        patience: Duration,
    ) -> Result<String> {
        let ends = Instant::now() + patience;
        let mut stream = self.connect(ends)?;
        let head: String = head.iter().flat_map(|line| [*line, "\r\n"]).collect();
        let request = format!(
            "{method} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{head}Content-Length: {}\
             \r\n\r\n{body}",
            self.path,
            self.authority(),
            body.len()
        );
        stream.set_write_timeout(Some(left(ends)?))?;
        stream.write_all(request.as_bytes())?;
        body_of(&answer(&mut stream, ends)?)
    }

    fn connect(&self, ends: Instant) -> Result<TcpStream> {
        let addresses: Vec<SocketAddr> =
            (self.host.as_str(), self.port).to_socket_addrs()?.collect();
        let mut last = Error::new(ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, left(ends)?) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Asks all of them by GET, many at the same time; the answers are in the order of the endpoints.
#[must_use]
pub fn get_all(endpoints: &[Endpoint], patience: Duration) -> Vec<Result<String>> {
    let mut answers = Vec::with_capacity(endpoints.len());
    for some in endpoints.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            let asked: Vec<_> =
                some.iter().map(|it| scope.spawn(|| it.get(patience))).collect();
            answers.extend(asked.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }));
        });
    }
    answers
}

fn left(ends: Instant) -> Result<Duration> {
    let left = ends.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(Error::new(ErrorKind::TimedOut, "no answer in time")),
        false => Ok(left),
    }
}

/// Everything up to the end of the connection.
fn answer(stream: &mut TcpStream, ends: Instant) -> Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut part = vec![0; 64 << 10];
    loop {
        stream.set_read_timeout(Some(left(ends)?))?;
        match stream.read(&mut part) {
            Ok(0) => return Ok(answer),
            Ok(n) => answer.extend_from_slice(&part[..n]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The deadline, as the socket says it.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                left(ends)?;
            }
            Err(error) => return Err(error),
        }
        if answer.len() > MOST_ANSWER_BYTES {
            return Err(Error::new(ErrorKind::InvalidData, "the answer has no end"));
        }
    }
}

/// The body of an answer that says success.
fn body_of(answer: &[u8]) -> Result<String> {
    let malformed = |what: &str| Error::new(ErrorKind::InvalidData, what.to_owned());
    let text = String::from_utf8_lossy(answer);
    let (head, body) =
        text.split_once("\r\n\r\n").ok_or_else(|| malformed("not an HTTP answer"))?;
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    let code = status.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
    match code {
        Some(code) if code.starts_with('2') => {}
        Some(_) => return Err(malformed(&format!("the answer is `{status}`"))),
        None => return Err(malformed("not an HTTP answer")),
    }
    let is_chunked = lines.any(|line| {
        let line = line.to_ascii_lowercase();
        line.starts_with("transfer-encoding:") && line.contains("chunked")
    });
    match is_chunked {
        true => unchunked(body).ok_or_else(|| malformed("a chunk that is cut off")),
        false => Ok(body.to_owned()),
    }
}

/// A body in chunks (RFC 9112 §7.1), put together.
fn unchunked(mut body: &str) -> Option<String> {
    let mut whole = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n")?;
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(whole);
        }
        whole += rest.get(..size)?;
        body = rest.get(size..)?.strip_prefix("\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::{PATIENCE, Scrape};

    fn at(address: SocketAddr) -> Endpoint {
        Endpoint::parse(&address.to_string(), "/metrics").unwrap()
    }

    /// Somebody who answers one request with these bytes.
    fn says(bytes: &'static [u8]) -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let n = stream.read(&mut request).unwrap();
            assert!(request[..n].starts_with(b"GET /metrics HTTP/1.1\r\n"));
            stream.write_all(bytes).unwrap();
        });
        at(address)
    }

    #[test]
    fn an_endpoint_is_written_in_several_ways() {
        for (text, authority, path) in [
            (":9100", "127.0.0.1:9100", "/metrics"),
            ("nas:9100", "nas:9100", "/metrics"),
            ("http://nas:9100", "nas:9100", "/metrics"),
            ("http://nas:9100/", "nas:9100", "/metrics"),
            ("http://[::1]:9100/other", "[::1]:9100", "/other"),
        ] {
            let endpoint = Endpoint::parse(text, "/metrics").unwrap();
            assert_eq!(
                (endpoint.authority(), endpoint.path.as_str()),
                (authority.to_owned(), path)
            );
        }
        for wrong in [
            "",
            "nas",
            "https://nas:1",
            "nas:0",
            "nas:70000",
            "a b:1",
            "u@h:1",
            "[::1:1",
            "h:1/a b",
        ] {
            assert_eq!(Endpoint::parse(wrong, "/"), None, "{wrong}");
        }
    }

    #[test]
    fn answers_come_in_the_order_of_the_questions() {
        let servers = ["one\n", "two\n"].map(|text| {
            Scrape::start(&crate::parse(":0").unwrap(), || text.to_owned()).unwrap()
        });
        let gone = at(TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
        let [one, two] = servers.each_ref().map(|server| at(server.address()));
        let answers = get_all(&[one, gone, two], PATIENCE);
        assert_eq!(answers[0].as_deref().unwrap(), "one\n");
        assert_eq!(answers[1].as_ref().unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(answers[2].as_deref().unwrap(), "two\n");
    }

    #[test]
    fn an_answer_is_read_as_it_is_framed() {
        for (bytes, body) in [
            (&b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"[..], Ok("hi")),
            (b"HTTP/1.0 200 OK\r\n\r\nhi", Ok("hi")),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\nh\r\n1\r\ni\r\n0\r\n\r\n",
                Ok("hi"),
            ),
            (
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\nff\r\nh",
                Err("a chunk that is cut off"),
            ),
            (b"HTTP/1.1 404 Not Found\r\n\r\n", Err("the answer is `HTTP/1.1 404 Not Found`")),
            (b"SSH-2.0-OpenSSH\r\n\r\n", Err("not an HTTP answer")),
            (b"", Err("not an HTTP answer")),
            (b"\xff\xfe", Err("not an HTTP answer")),
        ] {
            let answer = says(bytes).get(PATIENCE).map_err(|error| error.to_string());
            assert_eq!(answer.as_deref().map_err(String::as_str), body);
        }
    }

    #[test]
    fn one_who_says_nothing_is_left_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = at(listener.local_addr().unwrap());
        let error = silent.get(Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.to_string(), "no answer in time");
    }
}
