//! The metrics of a running run for Prometheus: counters, gauges and a histogram in the text format,
//! version 0.0.4.
//!
//! This only makes text; the command line serves it.

use std::collections::BTreeMap;
use std::fmt::Write;

use bothends_figures::{Counted, EnergyDomain, Fetches, Moment, What};

use crate::series::Queue;

/// The upper ends of the histogram's buckets, in seconds.
const BUCKETS_S: [f64; 12] =
    [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

const SIDES: [&str; 2] = ["front", "back"];

/// Times from claim to result.
#[derive(Debug, Clone, Copy, Default)]
struct Histogram {
    buckets: [u64; BUCKETS_S.len()],
    count: u64,
    sum_s: f64,
}

impl Histogram {
    fn add(&mut self, seconds: f64) {
        for (bucket, end) in self.buckets.iter_mut().zip(BUCKETS_S) {
            *bucket += u64::from(seconds <= end);
        }
        self.count += 1;
        self.sum_s += seconds;
    }
}

/// What is known of a run so far.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    version: String,
    /// The labels of every sample.
    labels: Vec<(&'static str, String)>,
    epoch: u32,
    n_batches: u32,
    n_delivered: u32,
    /// Of earlier epochs.
    before: Counted,
    now: Counted,
    latency: [Histogram; 2],
    n_rescued: u64,
    n_lost: u64,
    /// When each open claim was made.
    claims: BTreeMap<(Option<u16>, u32), f64>,
    queue: Queue,
    /// The latest batch that each end claimed.
    ends: [Option<u32>; 2],
    /// By path.
    bytes: Vec<(&'static str, u64)>,
    fetches: Option<Fetches>,
    energy: Vec<EnergyDomain>,
}

impl Metrics {
    /// Empty metrics for this release of the program. Every sample has the labels `rank` and `run`, so
    /// the ranks of a job can be summed and runs on the same port distinguished.
    #[must_use]
    pub fn new(version: &str, rank: u32, run: &str) -> Self {
        let labels = vec![("rank", rank.to_string()), ("run", run.to_owned())];
        Self { version: version.to_owned(), labels, ..Self::default() }
    }

    /// An epoch begins.
    pub fn begin(&mut self, epoch: u32, n_batches: u32) {
        self.before = self.before + std::mem::take(&mut self.now);
        (self.epoch, self.n_batches, self.n_delivered) = (epoch, n_batches, 0);
        self.claims.clear();
        self.queue = Queue::default();
        self.ends = [None; 2];
    }

    /// Something happened to a batch.
    pub fn moment(&mut self, moment: &Moment) {
        let side = usize::from(moment.device.is_some());
        let key = (moment.device, moment.batch);
        self.n_rescued += u64::from(moment.what == What::Rescued);
        self.n_lost += u64::from(moment.what == What::Lost);
        match moment.what {
            What::Claimed | What::Rescued => {
                self.claims.insert(key, moment.t_s);
                self.ends[side] = Some(moment.batch);
            }
            What::Made => {
                if let Some(since_s) = self.claims.remove(&key) {
                    self.latency[side].add((moment.t_s - since_s).max(0.0));
                }
            }
            What::Lost => {
                self.claims.remove(&key);
            }
            What::Delivered => self.n_delivered += 1,
        }
        self.queue.take(moment);
    }

    /// The epoch's sums so far.
    pub fn counted(&mut self, now: Counted) {
        self.now = now;
    }

    /// The run's bytes so far, by path.
    pub fn bytes(&mut self, bytes: &[(&'static str, u64)]) {
        self.bytes = bytes.to_vec();
    }

    /// What the run has fetched from a remote store so far, if its data are in one.
    pub fn fetches(&mut self, fetches: Option<Fetches>) {
        self.fetches = fetches;
    }

    /// The run's energy so far, by domain.
    pub fn energy(&mut self, figures: Vec<EnergyDomain>) {
        self.energy = figures;
    }

    /// Everything, in Prometheus's format.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = Text { text: String::new(), labels: &self.labels };
        let version = ("version", self.version.as_str());
        text.family("build_info", "gauge", "The program's release.");
        text.sample("build_info", &[version], 1.0);
        self.counters(&mut text);
        self.fetching(&mut text);
        self.histogram(&mut text);
        self.gauges(&mut text);
        self.joules(&mut text);
        text.text
    }

    fn counters(&self, text: &mut Text<'_>) {
        let Counted { samples, stall, busy_s } = self.before + self.now;
        text.family("samples_total", "counter", "Samples delivered, by who made them.");
        for (side, n) in SIDES.into_iter().zip(samples) {
            text.sample("samples_total", &[("side", side)], count(n));
        }
        let help =
            "Seconds in which the accelerator had no batch, by what was waited for.";
        text.family("stall_seconds_total", "counter", help);
        for (who, seconds) in stall.by_cause() {
            text.sample("stall_seconds_total", &[("who", who)], seconds);
        }
        let help =
            "Seconds in which the accelerator computed (0 with the accelerator host).";
        text.family("accelerator_busy_seconds_total", "counter", help);
        text.sample("accelerator_busy_seconds_total", &[], busy_s);
        for (name, help, n) in [
            (
                "rescued_batches_total",
                "Batches of devices that the host began to make again.",
                self.n_rescued,
            ),
            (
                "lost_batches_total",
                "Batches that failed at a device or were lost with it.",
                self.n_lost,
            ),
        ] {
            text.family(name, "counter", help);
            text.sample(name, &[], count(n));
        }
        if !self.bytes.is_empty() {
            text.family("bytes_total", "counter", "Bytes moved, by their way.");
        }
        for (path, n) in &self.bytes {
            text.sample("bytes_total", &[("path", path)], count(*n));
        }
    }

    /// Of data in a remote store.
    fn fetching(&self, text: &mut Text<'_>) {
        let Some(fetches) = &self.fetches else { return };
        let help = "Requests to the remote store, by outcome.";
        text.family("fetch_requests_total", "counter", help);
        for (what, n) in [
            ("sent", fetches.requests),
            ("hedged", fetches.hedged),
            ("retried", fetches.retried),
            ("throttled", fetches.throttled),
            ("timed_out", fetches.timed_out),
        ] {
            text.sample("fetch_requests_total", &[("what", what)], count(n));
        }
        let help = "Records found in the cache of fetched records, by outcome.";
        text.family("record_cache_reads_total", "counter", help);
        for (what, n) in [("hit", fetches.cached), ("damaged", fetches.cache_damaged)] {
            text.sample("record_cache_reads_total", &[("what", what)], count(n));
        }
        let help = "Bytes read from the cache instead of being fetched.";
        text.family("record_cache_saved_bytes_total", "counter", help);
        let saved = count(fetches.cached_bytes);
        text.sample("record_cache_saved_bytes_total", &[], saved);
        let help = "Seconds in which nothing more could be requested, by cause.";
        text.family("fetch_wait_seconds_total", "counter", help);
        for (cause, seconds) in fetches.waits.by_cause() {
            text.sample("fetch_wait_seconds_total", &[("cause", cause)], seconds);
        }
        for (name, help, value) in [
            ("fetch_in_flight", "Requests in flight.", count(fetches.in_flight.into())),
            (
                "fetch_window",
                "Requests that may be in flight.",
                count(fetches.window.into()),
            ),
            (
                "fetch_reordered_bytes",
                "Bytes that have arrived and wait for their turn.",
                count(fetches.reordered_bytes),
            ),
        ] {
            text.family(name, "gauge", help);
            text.sample(name, &[], value);
        }
    }

    fn histogram(&self, text: &mut Text<'_>) {
        let help = "Seconds from when a prong took a batch on to when it finished it.";
        text.family("batch_latency_seconds", "histogram", help);
        for (side, histogram) in SIDES.into_iter().zip(&self.latency) {
            let name = "batch_latency_seconds_bucket";
            for (n, end) in histogram.buckets.iter().zip(BUCKETS_S) {
                text.sample(name, &[("side", side), ("le", &end.to_string())], count(*n));
            }
            let all = count(histogram.count);
            text.sample(name, &[("side", side), ("le", "+Inf")], all);
            text.sample("batch_latency_seconds_sum", &[("side", side)], histogram.sum_s);
            text.sample("batch_latency_seconds_count", &[("side", side)], all);
        }
    }

    fn gauges(&self, text: &mut Text<'_>) {
        text.family("queue_depth", "gauge", "Batches in each stage.");
        let claimed = |by_device: bool| {
            let of = |(device, _): &&(Option<u16>, u32)| device.is_some() == by_device;
            count(self.claims.keys().filter(of).count() as u64)
        };
        let [front, back] = self.queue.waiting();
        for (stage, n) in [
            ("front_claimed", claimed(false)),
            ("back_claimed", claimed(true)),
            ("front_waiting", f64::from(front)),
            ("back_waiting", f64::from(back)),
        ] {
            text.sample("queue_depth", &[("stage", stage)], n);
        }
        for (side, end) in SIDES.into_iter().zip(self.ends) {
            let name = format!("{side}_cursor");
            let help =
                format!("The latest batch that the {side} took on, in plan order.");
            if let Some(batch) = end {
                text.family(&name, "gauge", &help);
                text.sample(&name, &[], f64::from(batch));
            }
        }
        for (name, help, value) in [
            ("epoch", "The current epoch.", self.epoch),
            ("epoch_batches", "Batches that the epoch delivers.", self.n_batches),
            (
                "epoch_delivered",
                "Batches of the epoch delivered so far.",
                self.n_delivered,
            ),
        ] {
            text.family(name, "gauge", help);
            text.sample(name, &[], f64::from(value));
        }
    }

    /// Figures that do not say that they were measured count as modelled.
    fn joules(&self, text: &mut Text<'_>) {
        let joules = self.energy.iter().filter(|figure| figure.joules.is_finite());
        let mut sums: BTreeMap<(&str, &str), f64> = BTreeMap::new();
        for figure in joules {
            let is_measured = figure.source.starts_with("measured(");
            let source = if is_measured { "measured" } else { "modelled" };
            *sums.entry((&figure.name, source)).or_default() += figure.joules;
        }
        if !sums.is_empty() {
            let help = "Energy by domain, as of the last epoch that ended.";
            text.family("energy_joules_total", "counter", help);
        }
        for ((domain, source), joules) in sums {
            let labels = [("domain", domain), ("source", source)];
            text.sample("energy_joules_total", &labels, joules);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
fn count(n: u64) -> f64 {
    n as f64
}

/// The text format, family by family.
#[derive(Debug)]
struct Text<'a> {
    text: String,
    /// The labels of every sample.
    labels: &'a [(&'static str, String)],
}

impl Text<'_> {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP bothends_{name} {help}");
        let _ = writeln!(self.text, "# TYPE bothends_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let of_all = self.labels.iter().map(|(name, value)| (*name, value.as_str()));
        let labels: Vec<String> = labels
            .iter()
            .copied()
            .chain(of_all)
            .map(|(name, value)| format!("{name}=\"{}\"", escape(value)))
            .collect();
        let _ = writeln!(self.text, "bothends_{name}{{{}}} {value}", labels.join(","));
    }
}

/// A label's value, with backslash, quote and newline escaped.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use bothends_figures::Stall;

    use super::*;
    use crate::example;

    fn metrics() -> Metrics {
        let recording = example::recording();
        let mut metrics = Metrics::new("0.1.0", 2, "job-7");
        for epoch in &recording.epochs {
            metrics.begin(epoch.epoch, epoch.n_batches);
            epoch.moments.iter().for_each(|moment| metrics.moment(moment));
            let stall = Stall { decode: 1.5, ..Stall::default() };
            metrics.counted(Counted { samples: [100, 28], stall, busy_s: 0.25 });
        }
        metrics.bytes(&[("storage_read", 12), ("device_to_host", 34)]);
        metrics.energy(example::input().energy.domains);
        metrics
    }

    #[test]
    fn the_sums_of_all_epochs_are_there() {
        let text = metrics().text();
        for (sample, value) in [
            ("build_info{version=\"0.1.0\",", 1.0),
            ("samples_total{side=\"front\",", 200.0),
            ("samples_total{side=\"back\",", 56.0),
            ("stall_seconds_total{who=\"decode\",", 3.0),
            ("accelerator_busy_seconds_total{", 0.5),
            ("bytes_total{path=\"device_to_host\",", 34.0),
            ("batch_latency_seconds_bucket{side=\"front\",le=\"+Inf\",", 75.0),
            ("batch_latency_seconds_count{side=\"back\",", 5.0),
            ("queue_depth{stage=\"back_waiting\",", 0.0),
            ("epoch_delivered{", 40.0),
            ("rescued_batches_total{", 1.0),
            ("lost_batches_total{", 0.0),
            ("energy_joules_total{domain=\"memory\",source=\"modelled\",", 21.25),
            ("energy_joules_total{domain=\"package\",source=\"measured\",", 412.0),
        ] {
            let line = format!("bothends_{sample}rank=\"2\",run=\"job-7\"}} {value}");
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }

    /// Every metric that the dashboard shows exists, with its name and labels.
    #[test]
    fn the_dashboard_shows_metrics_that_there_are() {
        const DASHBOARD: &str = include_str!("../../../configs/dashboards/grafana.json");
        let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let targets =
            panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
        // Those of agents are checked where these are made.
        let shown: String = targets
            .map(|target| target["expr"].as_str().unwrap().to_owned() + "\n")
            .filter(|query| !query.contains("bothends_agent_"))
            .collect();
        let text = metrics().text();
        let families: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE bothends_")?.split(' ').next())
            .collect();
        let names = shown.split("bothends_").skip(1);
        let mut n_shown = 0;
        for name in names {
            let end = name.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap();
            let (name, rest) = name.split_at(end);
            let family = name.strip_suffix("_bucket").unwrap_or(name);
            assert!(families.contains(&family), "bothends_{name} is no metric");
            assert!(rest.starts_with("{run=~\"$run\",rank=~\"$rank\""), "{name}{rest}");
            n_shown += 1;
        }
        assert!(n_shown >= panels.len() && n_shown >= 8, "{n_shown} in {shown}");
        // The labels by which it groups are labels of the metric.
        for query in shown.lines() {
            let by = query.split("by (").nth(1).map(|by| by.split(')').next().unwrap());
            let name = query.split("bothends_").nth(1).unwrap();
            let end = name.find('{').unwrap();
            let line = format!("bothends_{}{{", &name[..end]);
            let sample = text.lines().find(|l| l.starts_with(&line)).unwrap();
            for label in by.unwrap_or_default().split(", ").filter(|l| !l.is_empty()) {
                assert!(sample.contains(&format!("{label}=\"")), "{label} of {sample}");
            }
        }
    }

    #[test]
    fn fetches_are_there_where_the_data_are_remote() {
        let fetches =
            Fetches { requests: 9, retried: 2, window: 5, ..Fetches::default() };
        let mut metrics = metrics();
        assert!(!metrics.text().contains("fetch_"));
        metrics.fetches(Some(fetches));
        let text = metrics.text();
        for (sample, value) in [
            ("fetch_requests_total{what=\"sent\",", 9.0),
            ("fetch_requests_total{what=\"retried\",", 2.0),
            ("fetch_wait_seconds_total{cause=\"reorder\",", 0.0),
            ("fetch_window{", 5.0),
        ] {
            let line = format!("bothends_{sample}rank=\"2\",run=\"job-7\"}} {value}");
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_fresh_one_has_no_figures_that_nobody_counted() {
        let text = Metrics::new("x\"\\\n", 0, "").text();
        assert!(text.contains("version=\"x\\\"\\\\\\n\""), "{text}");
        for absent in ["energy_joules_total", "bytes_total", "front_cursor"] {
            assert!(!text.contains(absent), "{absent}");
        }
    }

    #[test]
    fn a_histogram_counts_what_is_below_each_end() {
        let mut histogram = Histogram::default();
        [0.001, 0.02, 3.0, 99.0].iter().for_each(|seconds| histogram.add(*seconds));
        assert_eq!(histogram.buckets, [1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 3, 3]);
        assert_eq!(histogram.count, 4);
    }
}
