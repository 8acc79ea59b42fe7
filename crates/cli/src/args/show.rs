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
    /// Write events as they happen, one JSON object per line, for `bothends report`
    #[arg(long, value_name = "FILE.jsonl", hide_short_help = true)]
    pub(crate) events: Option<PathBuf>,
    /// Serve Prometheus metrics over HTTP while the run lasts: HOST:PORT, or :PORT for this
    /// machine alone
    #[arg(long, value_name = "ADDR", hide_short_help = true)]
    pub(crate) metrics: Option<String>,
    /// Compute the digests of the delivered stream
    #[arg(long)]
    pub(crate) digest: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// What `run --events` wrote, also of a run that did not end
    #[arg(value_name = "EVENTS.jsonl")]
    pub(crate) events: PathBuf,
    /// The page
    #[arg(value_name = "OUT.html")]
    pub(crate) page: PathBuf,
    /// Write a trace, too, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE.json")]
    pub(crate) trace: Option<PathBuf>,
}
