//! `run --metrics ADDR`: the run's counters for Prometheus, over HTTP, as long as the run lasts.
//!
//! They are numbers, the program's version, the rank and the run's name, and nothing else about
//! the run or the machine. Who asks is answered by `scrape`.

use std::sync::{Arc, Mutex, PoisonError};

use bothends_report::Metrics;
use bothends_runtime::{Bytes, Ended, Moment, Observer, Progress};
use bothends_scrape::Scrape;

use crate::failed::{Failed, wrong};
use crate::say;

/// The counters, and who serves them. The address is given up when it is dropped.
#[derive(Debug)]
pub(crate) struct MetricsServer {
    metrics: Arc<Mutex<Metrics>>,
    #[cfg_attr(not(test), expect(dead_code, reason = "it answers until it is dropped"))]
    scrape: Scrape,
}

impl MetricsServer {
    /// Listens, and says where.
    pub(crate) fn start(address: &str, rank: u32, run: &str) -> Result<Self, Failed> {
        let addresses = bothends_scrape::parse(address)
            .map_err(|why| wrong(format!("`--metrics {address}`: {why}")))?;
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), rank, run);
        let metrics = Arc::new(Mutex::new(metrics));
        let asked = Arc::clone(&metrics);
        let text = move || asked.lock().unwrap_or_else(PoisonError::into_inner).text();
        let scrape = Scrape::start(&addresses, text).map_err(|e| {
            anyhow::anyhow!(
                "cannot listen on `--metrics {address}`: {e}; is the port free?"
            )
        })?;
        say::note(&format!("metrics: http://{}/metrics", scrape.address()));
        Ok(Self { metrics, scrape })
    }

    fn tell(&self, tell: impl FnOnce(&mut Metrics)) {
        tell(&mut self.metrics.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Observer for MetricsServer {
    fn batch(&mut self, progress: Progress) {
        self.tell(|metrics| {
            metrics.counted(progress.counted);
            metrics.bytes(&by_path(progress.bytes));
            metrics.fetches(progress.fetches);
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
            metrics.fetches(ended.fetches);
            metrics.energy(ended.energy.to_vec());
        });
    }
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn the_run_is_asked_for_its_numbers() {
        let server = MetricsServer::start(":0", 5, "job-7").unwrap();
        server.tell(|metrics| metrics.begin(3, 77));
        let mut stream = TcpStream::connect(server.scrape.address()).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(
            answer.contains("\nbothends_epoch_batches{rank=\"5\",run=\"job-7\"}"),
            "{answer}"
        );
        assert!(matches!(MetricsServer::start("9100", 0, ""), Err(Failed::Arguments(_))));
    }
}
