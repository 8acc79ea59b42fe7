//! The flags that say where a run shows what it did.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Results")]
pub(crate) struct ShowArgs {
    /// Write the result as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
    /// Write a page of charts of this run
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Write a trace for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE.json", hide_short_help = true)]
    pub(crate) trace: Option<PathBuf>,
    /// Write OpenTelemetry spans at the end of each epoch: to a file of OTLP/JSON lines, or to a collector
    /// at http://HOST:PORT
    #[arg(long, value_name = "FILE|URL", hide_short_help = true)]
    pub(crate) trace_otlp: Option<PathBuf>,
    /// Write events as they happen, one JSON object per line, for `bothends report`
    #[arg(long, value_name = "FILE.jsonl", hide_short_help = true)]
    pub(crate) events: Option<PathBuf>,
    /// Serve Prometheus metrics over HTTP while the run lasts: HOST:PORT, or :PORT for this machine only
    #[arg(long, value_name = "ADDR", hide_short_help = true)]
    pub(crate) metrics: Option<String>,
    /// Compute the digests of the delivered stream
    #[arg(long)]
    pub(crate) digest: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// The file written by `run --events`, even if the run did not finish
    #[arg(value_name = "EVENTS.jsonl")]
    pub(crate) events: PathBuf,
    /// The page
    #[arg(value_name = "OUT.html")]
    pub(crate) page: PathBuf,
    /// Also write a trace for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE.json")]
    pub(crate) trace: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    /// Where hosts and agents serve their metrics (`--metrics`): HOST:PORT, :PORT for this machine, or
    /// http://HOST:PORT/PATH
    #[arg(value_name = "URL", required = true)]
    pub(crate) urls: Vec<String>,
    /// Seconds between updates
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    pub(crate) every: f64,
    /// Print one frame as text, 80 columns wide, after two readings
    #[arg(long)]
    pub(crate) once: bool,
}
