//! `run --trace-otlp FILE|URL`: the run's epochs as spans of OpenTelemetry, each when it is over.
//!
//! A file that cannot be written fails the run, as other results do. A collector that does not take
//! the spans is told of once, and the run goes on without.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// Where the spans go.
#[derive(Debug)]
enum To {
    File {
        path: PathBuf,
        file: BufWriter<File>,
    },
    Collector(Endpoint),
    /// It took no more.
    Nowhere,
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
            _ => Ok(()),
        }
    }

    fn export(&mut self, epoch: &EpochRecord) {
        for request in self.spans.epoch(epoch, self.began_ns) {
            match &mut self.to {
                To::File { file, .. } if self.error.is_none() => {
                    let written = writeln!(file, "{request}").and_then(|()| file.flush());
                    self.error = written.err();
                }
                To::Collector(endpoint) => {
                    if let Err(error) = endpoint.post_json(&request, PATIENCE) {
                        say::note(&format!(
                            "note: no more traces: the collector at {} does not accept them: {error}",
                            endpoint.authority()
                        ));
                        self.to = To::Nowhere;
                    }
                }
                To::File { .. } | To::Nowhere => {}
            }
        }
    }
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
        endpoint.map(Self::Collector)
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

    #[test]
    fn a_collector_that_refuses_is_given_one_request() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let collector = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 64 << 10];
            let n = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n").unwrap();
            String::from_utf8_lossy(&request[..n]).into_owned()
        });
        let mut trace = OtlpTrace::start(Path::new(&url), 0, "job-7").unwrap();
        let epoch = EpochRecord::new(0, "ordered", 4);
        // Nobody is there any more the second time.
        trace.export(&epoch);
        trace.export(&epoch);
        assert!(matches!(trace.to, To::Nowhere));
        let request = collector.join().unwrap();
        assert!(request.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("Content-Type: application/json\r\n"), "{request}");
        trace.end().unwrap();
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
