//! What a store delivers to requests alone: ranged GETs of HTTP, or GETs of Redis, over warm connections.
//!
//! `scripts/measure-remote` compares loaders with it. It shares no line with them and does nothing but
//! receive: no TLS, no retry, no check of what comes beyond its length; signatures are made beforehand. Each
//! thread has a connection, takes the next record of the list, and nobody waits for an order; with
//! `--in-order` the list is a window instead, which moves on when its oldest record has come.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of the command line"
)]

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// No answer takes as long.
const TIMEOUT: Duration = Duration::from_secs(60);
const HELP: &str =
    "bare-gets http|redis HOST:PORT RECORDS IN-FLIGHT EPOCHS BATCH [--in-order]
RECORDS has a line for each record: its length, a tab, its path or key; for HTTP, further headers, each after a tab.
Prints JSON.";

/// A record to ask for.
struct Record {
    len: usize,
    name: String,
    /// Lines of HTTP, each with its end.
    headers: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Protocol {
    Http,
    Redis,
}

/// A connection that stays open, one request at a time.
struct Connection<'a> {
    stream: TcpStream,
    protocol: Protocol,
    address: &'a str,
    buffer: Vec<u8>,
}

impl<'a> Connection<'a> {
    fn open(protocol: Protocol, address: &'a str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { stream, protocol, address, buffer: vec![0; 256 << 10] })
    }

    /// Asks for the record and receives all of it.
    fn get(&mut self, record: &Record) -> io::Result<()> {
        let Record { len, name, headers } = record;
        let (request, end) = match self.protocol {
            Protocol::Http => {
                let last = len.saturating_sub(1);
                let host = self.address;
                let request = format!(
                    "GET {name} HTTP/1.1\r\nHost: {host}\r\nRange: bytes=0-{last}\r\n{headers}\r\n"
                );
                (request, &b"\r\n\r\n"[..])
            }
            Protocol::Redis => (
                format!("*2\r\n$3\r\nGET\r\n${}\r\n{name}\r\n", name.len()),
                &b"\r\n"[..],
            ),
        };
        self.stream.write_all(request.as_bytes())?;
        let mut have = 0;
        let head = loop {
            have += self.some(have)?;
            let found = self.buffer[..have].windows(end.len()).position(|at| at == end);
            if let Some(at) = found {
                break at;
            }
        };
        let text = String::from_utf8_lossy(&self.buffer[..head]);
        let (told, tail) = match self.protocol {
            Protocol::Http => (http_length(&text), 0),
            Protocol::Redis => (text.strip_prefix('$').and_then(|n| n.parse().ok()), 2),
        };
        if told != Some(*len) {
            let line = text.lines().next().unwrap_or_default();
            return Err(io::Error::other(format!("{name}, {len} bytes: `{line}`")));
        }
        let mut missing = (len + tail + head + end.len()).saturating_sub(have);
        while missing > 0 {
            missing = missing.saturating_sub(self.some(0)?);
        }
        Ok(())
    }

    /// What comes next, from `at` on in the buffer.
    fn some(&mut self, at: usize) -> io::Result<usize> {
        match self.stream.read(&mut self.buffer[at..]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            other => other,
        }
    }
}

/// The length of the body of an answer that has what was asked for.
fn http_length(head: &str) -> Option<usize> {
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?;
    let mut fields = lines.filter_map(|line| line.split_once(':'));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
    length.1.trim().parse().ok().filter(|_| matches!(status, "200" | "206"))
}

/// Which record is asked for next, and which have come.
struct Window {
    state: Mutex<State>,
    change: Condvar,
    /// So many from the oldest missing one on may be asked for.
    width: usize,
}

#[derive(Default)]
struct State {
    asked: usize,
    /// All before it have been delivered.
    oldest: usize,
    /// From the oldest on: whether it has come.
    came: VecDeque<bool>,
    /// When which number of records had been delivered.
    delivered: Vec<Instant>,
    failed: Option<io::Error>,
}

impl Window {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next record to ask for; nothing once all are, or somebody failed.
    fn next(&self, n_records: usize) -> Option<usize> {
        let blocked = |s: &mut State| {
            s.failed.is_none() && s.asked < n_records && s.asked >= s.oldest + self.width
        };
        let state = self.state();
        let waited = self.change.wait_while(state, blocked);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.failed.is_some() || state.asked >= n_records {
            return None;
        }
        state.asked += 1;
        state.came.push_back(false);
        Some(state.asked - 1)
    }

    fn came(&self, at: usize, order: Order) {
        let mut state = self.state();
        let now = Instant::now();
        if order == Order::Any {
            state.delivered.push(now);
            return;
        }
        let place = at - state.oldest;
        state.came[place] = true;
        while state.came.front() == Some(&true) {
            state.came.pop_front();
            state.oldest += 1;
            state.delivered.push(now);
        }
        self.change.notify_all();
    }
}

/// Reads all records once and returns when each was delivered.
fn epoch(
    connections: &mut [Connection<'_>],
    records: &[Record],
    order: Order,
) -> io::Result<Vec<Instant>> {
    let width = if order == Order::Plan { connections.len() } else { usize::MAX / 2 };
    let window = Window { state: Mutex::default(), change: Condvar::new(), width };
    std::thread::scope(|scope| {
        for connection in connections {
            scope.spawn(|| {
                while let Some(at) = window.next(records.len()) {
                    if let Err(e) = connection.get(&records[at]) {
                        window.state().failed.get_or_insert(e);
                        window.change.notify_all();
                        return;
                    }
                    window.came(at, order);
                }
            });
        }
    });
    let state = window.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    state.failed.map_or(Ok(state.delivered), Err)
}

#[derive(Clone, Copy, PartialEq)]
enum Order {
    Any,
    Plan,
}

fn records(text: &str) -> Option<Vec<Record>> {
    let line = |line: &str| {
        let mut parts = line.split('\t');
        let (len, name) = (parts.next()?.parse().ok()?, parts.next()?.to_owned());
        let headers = parts.map(|header| format!("{header}\r\n")).collect();
        Some(Record { len, name, headers })
    };
    text.lines().map(line).collect()
}

/// A result of one epoch, as JSON.
fn told(begin: Instant, delivered: &[Instant], batch: usize, bytes: usize) -> String {
    let mut batches = delivered.chunks(batch).filter_map(|chunk| chunk.last()).copied();
    let first = batches.next().unwrap_or(begin);
    let (longest, _) = batches.fold((Duration::ZERO, first), |(longest, before), at| {
        (longest.max(at - before), at)
    });
    let seconds = begin.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a number of records")]
    let rate = delivered.len() as f64 / seconds;
    format!(
        "{{\"samples\": {}, \"bytes\": {bytes}, \"seconds\": {seconds}, \"samples_per_s\": {rate}, \
         \"first_batch_s\": {}, \"longest_gap_s\": {}}}",
        delivered.len(),
        (first - begin).as_secs_f64(),
        longest.as_secs_f64()
    )
}

fn run(words: &[String]) -> Result<(), String> {
    let [protocol, address, file, in_flight, epochs, batch, rest @ ..] = words else {
        return Err(HELP.into());
    };
    let protocol = match protocol.as_str() {
        "http" => Protocol::Http,
        "redis" => Protocol::Redis,
        _ => return Err(HELP.into()),
    };
    let order = match rest {
        [] => Order::Any,
        [word] if word == "--in-order" => Order::Plan,
        _ => return Err(HELP.into()),
    };
    let number = |text: &String| text.parse().ok().filter(|n| *n >= 1_usize).ok_or(HELP);
    let (in_flight, epochs, batch) =
        (number(in_flight)?, number(epochs)?, number(batch)?);
    let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    let records = records(&text).ok_or_else(|| format!("{file}: {HELP}"))?;
    let bytes = records.iter().map(|record| record.len).sum();
    let open = |_| Connection::open(protocol, address);
    let connections: io::Result<Vec<_>> = (0..in_flight).map(open).collect();
    let mut connections = connections.map_err(|e| format!("{address}: {e}"))?;
    let mut results = Vec::new();
    for _ in 0..epochs {
        let begin = Instant::now();
        let delivered = epoch(&mut connections, &records, order);
        let delivered = delivered.map_err(|e| format!("{address}: {e}"))?;
        results.push(told(begin, &delivered, batch, bytes));
    }
    println!("{{\"epochs\": [{}]}}", results.join(", "));
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bare-gets: {why}");
            ExitCode::FAILURE
        }
    }
}
