//! `run --metrics ADDR`: the run's counters for Prometheus, over HTTP, as long as the run lasts.
//!
//! One thread answers one request after another and keeps nobody waiting: a client that has not
//! sent its request within a second is dropped. It serves numbers, the program's version, the rank
//! and the run's name, and nothing else about the run or the machine.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bothends_report::Metrics;
use bothends_runtime::{Bytes, Ended, Moment, Observer, Progress};

use crate::failed::{Failed, wrong};
use crate::say;
use crate::watch::recorder::now;

/// Longest request that is read.
const MOST_REQUEST_BYTES: usize = 8 << 10;

/// How long one who asks may take for it, and for taking the answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// From one look for somebody who asks to the next.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What every path but `/metrics` answers.
const HINT: &str = "bothends: the metrics of this run are at /metrics\n";

/// Where launchers say which job the ranks of a machine, or of several, belong to.
const JOBS: [&str; 2] = ["TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"];

/// The counters, and who serves them. The address is given up when it is dropped.
#[derive(Debug)]
pub(crate) struct MetricsServer {
    metrics: Arc<Mutex<Metrics>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens, and says where.
    pub(crate) fn start(address: &str, rank: u32) -> Result<Self, Failed> {
        let addresses = parse(address)?;
        let listener = TcpListener::bind(&*addresses).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener = listener.map_err(|e| {
            anyhow::anyhow!(
                "cannot listen on `--metrics {address}`: {e}; is the port free?"
            )
        })?;
        let at = listener.local_addr()?;
        let run = run_name(|variable| std::env::var(variable).ok());
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), rank, &run);
        let metrics = Arc::new(Mutex::new(metrics));
        let stop = Arc::new(AtomicBool::new(false));
        let (asked, stopped) = (Arc::clone(&metrics), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("be-metrics".to_owned())
            .spawn(move || serve(&listener, &asked, &stopped))?;
        say::note(&format!("metrics: http://{at}/metrics"));
        Ok(Self { metrics, stop, thread: Some(thread) })
    }

    fn tell(&self, tell: impl FnOnce(&mut Metrics)) {
        tell(&mut self.metrics.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has already printed it.
            let _ = thread.join();
        }
    }
}

impl Observer for MetricsServer {
    fn batch(&mut self, progress: Progress) {
        self.tell(|metrics| {
            metrics.counted(progress.counted);
            metrics.bytes(&by_path(progress.bytes));
        });
    }

    fn begin(&mut self, progress: Progress) {
        self.tell(|metrics| metrics.begin(progress.epoch, progress.n_batches));
    }

    fn moments(&mut self, moments: &[Moment]) {
        self.tell(|metrics| {
            moments.iter().for_each(|moment| metrics.moment(moment));
        });
    }

    fn end(&mut self, ended: Ended<'_>) {
        self.tell(|metrics| {
            metrics.counted(ended.counted);
            metrics.bytes(&by_path(ended.bytes));
            metrics.energy(ended.energy.to_vec());
        });
    }
}

/// The launcher's job, which all its ranks share; else when this process began, and its number.
fn run_name(told: impl Fn(&str) -> Option<String>) -> String {
    // torchrun writes `none` unless it was given a name.
    let job = JOBS.iter().find_map(|job| told(job).filter(|name| name != "none"));
    job.unwrap_or_else(|| format!("{}-{}", now(), std::process::id()))
}

/// The address as typed; without a host, this machine alone can reach it.
fn parse(address: &str) -> Result<Vec<SocketAddr>, Failed> {
    let with_host = match address.strip_prefix(':') {
        Some(port) => format!("127.0.0.1:{port}"),
        None => address.to_owned(),
    };
    let found = with_host.to_socket_addrs().map(Vec::from_iter).unwrap_or_default();
    if found.is_empty() {
        return Err(wrong(format!(
            "`--metrics {address}`: give HOST:PORT, or :PORT for this machine alone"
        )));
    }
    Ok(found)
}

/// What was read from storage is known when an epoch is over, and absent before.
fn by_path(bytes: Bytes) -> Vec<(&'static str, u64)> {
    let read = (bytes.storage_read > 0).then_some(("storage_read", bytes.storage_read));
    let moved = [
        ("device_to_host", bytes.device_to_host),
        ("host_to_accelerator", bytes.host_to_accelerator),
    ];
    read.into_iter().chain(moved).collect()
}

/// Answers until it is stopped.
fn serve(listener: &TcpListener, metrics: &Mutex<Metrics>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            // One who goes away in the middle has lost nothing that we owe.
            Ok((stream, _)) => drop(answer(stream, metrics)),
            Err(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
}

fn answer(mut stream: TcpStream, metrics: &Mutex<Metrics>) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = request(&mut stream)?;
    let (status, body) = answer_to(&String::from_utf8_lossy(&request), metrics);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes())?;
    stream.flush()
}

/// The request's head, to the empty line, within the patience there is.
fn request(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
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
fn answer_to(head: &str, metrics: &Mutex<Metrics>) -> (&'static str, String) {
    let hint = |status| (status, HINT.to_owned());
    let words: Vec<&str> = head.lines().next().unwrap_or_default().split(' ').collect();
    match words[..] {
        [method, path, version] if version.starts_with("HTTP/1.") => {
            match (method, path.split('?').next()) {
                ("GET", Some("/metrics")) => {
                    let metrics = metrics.lock().unwrap_or_else(PoisonError::into_inner);
                    ("200 OK", metrics.text())
                }
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

    fn server() -> (MetricsServer, SocketAddr) {
        // A port that was free a moment ago.
        let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        (MetricsServer::start(&format!(":{}", at.port()), 5).unwrap(), at)
    }

    #[test]
    fn it_answers_what_is_asked_and_survives_what_is_not() {
        let (server, at) = server();
        server.tell(|metrics| metrics.begin(3, 77));
        let answer = ask(at, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("\r\n\r\n# HELP bothends_"), "{answer}");
        assert!(
            answer.contains("\nbothends_epoch_batches{rank=\"5\",run=\""),
            "{answer}"
        );
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
        assert!(TcpStream::connect(at).is_err(), "it ends with the run");
    }

    #[test]
    fn one_who_says_nothing_is_left_soon() {
        let (_server, at) = server();
        let _silent = TcpStream::connect(at).unwrap();
        let began = Instant::now();
        assert!(ask(at, b"GET /metrics HTTP/1.1\r\n\r\n").contains("200 OK"));
        assert!(began.elapsed() < 5 * PATIENCE);
    }

    #[test]
    fn the_ranks_of_a_job_have_one_run() {
        let slurm = |variable: &str| match variable {
            "SLURM_JOB_ID" => Some("4711".to_owned()),
            _ => Some("none".to_owned()),
        };
        assert_eq!(run_name(slurm), "4711");
        let alone = run_name(|_| None);
        assert!(alone.ends_with(&format!("-{}", std::process::id())), "{alone}");
    }

    #[test]
    fn without_a_host_it_is_this_machine_alone() {
        let loopback = parse(":9100").unwrap();
        assert!(loopback.iter().all(|at| at.ip().is_loopback() && at.port() == 9100));
        assert_eq!(parse("0.0.0.0:9100").unwrap()[0].to_string(), "0.0.0.0:9100");
        for wrong in ["", "9100", "localhost", ":x", ":70000"] {
            assert!(matches!(parse(wrong), Err(Failed::Arguments(_))), "{wrong}");
        }
    }
}
