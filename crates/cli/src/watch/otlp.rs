//! `run --trace-otlp FILE|URL`: the run's epochs as spans of OpenTelemetry, each when it is over.
//!
//! A file that cannot be written fails the run, as other results do. A collector that does not take
//! the spans costs these spans alone: it is told of once, tried again with later epochs, and at the end
//! the epochs that it lacks are counted.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bothends_report::{EpochRecord, Spans};
use bothends_runtime::{Ended, Observer, Progress};
use bothends_scrape::Endpoint;

use super::recorder::{Keep, record};
use crate::failed::{Failed, cannot_write, wrong};
use crate::say;

/// Where collectors take traces over HTTP.
const PATH: &str = "/v1/traces";

/// How long a collector may take for one request.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a collector that failed is left alone: one that never answers takes five seconds a minute of
/// a run with short epochs.
const REST: Duration = Duration::from_secs(60);

/// Where the spans go.
#[derive(Debug)]
enum To {
    File { path: PathBuf, file: BufWriter<File> },
    Collector(Collector),
}

/// A collector, and how it has fared.
#[derive(Debug)]
struct Collector {
    endpoint: Endpoint,
    /// When it last failed.
    failed: Option<Instant>,
    /// Epochs of which it has not all spans.
    n_lost: u32,
    n_epochs: u32,
}

/// The export under way.
#[derive(Debug)]
pub(crate) struct OtlpTrace {
    to: To,
    spans: Spans,
    began_ns: u64,
    /// The first thing that went wrong with the file.
    error: Option<io::Error>,
}

impl OtlpTrace {
    /// Makes the file, or reads the address.
    pub(crate) fn start(to: &Path, rank: u32, run: &str) -> Result<Self, Failed> {
        let spans = Spans::new(env!("CARGO_PKG_VERSION"), rank, run);
        Ok(Self { to: To::of(to)?, spans, began_ns: 0, error: None })
    }

    /// What of it could not be written.
    pub(crate) fn end(self) -> Result<(), Failed> {
        match (self.to, self.error) {
            (To::File { path, .. }, Some(error)) => Err(cannot_write(&path, &error)),
            (To::File { .. }, None) => Ok(()),
            (To::Collector(collector), _) => {
                collector.summary().iter().for_each(|line| say::note(line));
                Ok(())
            }
        }
    }

    fn export(&mut self, epoch: &EpochRecord) {
        let requests = self.spans.epoch(epoch, self.began_ns);
        match &mut self.to {
            To::File { file, .. } => {
                for request in requests {
                    if self.error.is_none() {
                        let written = writeln!(file, "{request}");
                        self.error = written.and_then(|()| file.flush()).err();
                    }
                }
            }
            To::Collector(collector) => {
                let told = collector.export(requests);
                told.iter().for_each(|line| say::note(line));
            }
        }
    }
}

impl Collector {
    /// Hands an epoch over, unless the collector is at rest. What is to be said.
    fn export(&mut self, requests: impl IntoIterator<Item = String>) -> Option<String> {
        self.n_epochs += 1;
        if self.failed.is_some_and(|failed| failed.elapsed() < REST) {
            self.n_lost += 1;
            return None;
        }
        self.failed = None;
        let mut why = None;
        for request in requests {
            match self.endpoint.post_json(&request, PATIENCE) {
                Ok(answer) => why = why.or(rejected(&answer)),
                Err(error) => {
                    self.failed = Some(Instant::now());
                    why = Some(error.to_string());
                    break;
                }
            }
        }
        let why = why?;
        self.n_lost += 1;
        (self.n_lost == 1).then(|| {
            format!(
                "note: the collector at {} does not accept the traces: {why}; it is tried again with \
                 later epochs",
                self.endpoint.authority()
            )
        })
    }

    /// What it lacks at the end.
    fn summary(&self) -> Option<String> {
        let Self { endpoint, n_lost, n_epochs, .. } = self;
        (*n_lost > 0).then(|| {
            format!(
                "note: the collector at {} lacks the traces of {n_lost} of {n_epochs} epochs",
                endpoint.authority()
            )
        })
    }
}

/// What a collector says that has not taken all spans of a request that it accepted (OTLP, "Partial
/// Success").
fn rejected(answer: &str) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_str(answer).ok()?;
    let partial = &answer["partialSuccess"];
    // 64-bit integers are text in JSON of Protocol Buffers.
    let n = &partial["rejectedSpans"];
    let n = n.as_u64().or_else(|| n.as_str()?.parse().ok()).filter(|n| *n > 0)?;
    let why = partial["errorMessage"].as_str().unwrap_or("without a reason");
    Some(format!("it rejected {n} spans: {why}"))
}

impl To {
    fn of(to: &Path) -> Result<Self, Failed> {
        let text = to.to_string_lossy();
        if !text.contains("://") {
            let file = File::create(to).map_err(|e| cannot_write(to, &e))?;
            return Ok(Self::File { path: to.to_owned(), file: BufWriter::new(file) });
        }
        let endpoint = Endpoint::parse(&text, PATH).ok_or_else(|| {
            wrong(format!(
                "`--trace-otlp {text}`: give a file, or http://HOST:PORT of a collector (a local \
                one can forward traces over TLS)"
            ))
        });
        endpoint.map(|endpoint| {
            Self::Collector(Collector { endpoint, failed: None, n_lost: 0, n_epochs: 0 })
        })
    }
}

impl Observer for OtlpTrace {
    fn begin(&mut self, _: Progress) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.began_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    }

    fn end(&mut self, ended: Ended<'_>) {
        self.export(&record(&ended, Keep::Moments));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Answers each request with the next of these statuses, and hands the requests over.
    fn collector(
        statuses: &'static [&'static str],
    ) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = move |status: &&str| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 64 << 10];
            let n = stream.read(&mut request).unwrap();
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..n]).into_owned()
        };
        (url, std::thread::spawn(move || statuses.iter().map(answer).collect()))
    }

    fn of(trace: &mut OtlpTrace) -> &mut Collector {
        let To::Collector(collector) = &mut trace.to else { panic!("a file") };
        collector
    }

    /// One that was being restarted at the end of an epoch got no span of the days after it.
    #[test]
    fn a_collector_that_was_away_gets_the_epochs_after() {
        let (url, collector) = collector(&["503 Busy", "200 OK"]);
        let mut trace = OtlpTrace::start(Path::new(&url), 0, "job-7").unwrap();
        let epoch = EpochRecord::new(0, "ordered", 4);
        trace.export(&epoch);
        // It is at rest, and asked nothing.
        trace.export(&epoch);
        assert_eq!(of(&mut trace).n_lost, 2);
        let rested = Instant::now().checked_sub(REST).unwrap();
        of(&mut trace).failed = Some(rested);
        trace.export(&epoch);
        let requests = collector.join().unwrap();
        let [request, _] = &requests[..] else { panic!("{requests:?}") };
        assert!(request.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("Content-Type: application/json\r\n"), "{request}");
        let said = of(&mut trace).summary().unwrap();
        assert!(said.ends_with("lacks the traces of 2 of 3 epochs"), "{said}");
        trace.end().unwrap();
    }

    #[test]
    fn a_collector_that_fails_is_told_of_once() {
        let (url, collector) = collector(&["503 Busy"]);
        let mut trace = OtlpTrace::start(Path::new(&url), 0, "job-7").unwrap();
        let request = || ["{}".to_owned()];
        let said = of(&mut trace).export(request()).unwrap();
        assert!(said.contains("503 Busy`; it is tried again"), "{said}");
        collector.join().unwrap();
        // Nobody is there any more.
        of(&mut trace).failed = Some(Instant::now().checked_sub(REST).unwrap());
        assert_eq!(of(&mut trace).export(request()), None);
    }

    #[test]
    fn spans_that_were_rejected_are_told_of() {
        for n in ["5", "\"5\""] {
            let answer = format!(
                "{{\"partialSuccess\":{{\"rejectedSpans\":{n},\"errorMessage\":\"full\"}}}}"
            );
            assert_eq!(rejected(&answer).as_deref(), Some("it rejected 5 spans: full"));
        }
        for all in [
            "",
            "{}",
            "{\"partialSuccess\":{}}",
            "{\"partialSuccess\":{\"rejectedSpans\":0}}",
        ] {
            assert_eq!(rejected(all), None, "{all}");
        }
    }

    #[test]
    fn only_files_and_plain_addresses_are_taken() {
        for wrong in ["https://collector:4318", "http://collector", "ftp://x:1/y"] {
            let error = OtlpTrace::start(Path::new(wrong), 0, "").unwrap_err();
            assert!(matches!(error, Failed::Arguments(_)), "{error:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.jsonl");
        let mut trace = OtlpTrace::start(&path, 0, "job-7").unwrap();
        trace.export(&EpochRecord::new(0, "ordered", 4));
        trace.export(&EpochRecord::new(1, "ordered", 4));
        trace.end().unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 2);
        let absent = folder.path().join("absent/trace.jsonl");
        assert!(matches!(OtlpTrace::start(&absent, 0, ""), Err(Failed::Run(_))));
    }
}
