//! The contents of a report as data: JSON that is embedded in every page, for anyone to plot.
//!
//! Nothing here draws. `assemble.rs` makes it from a recording; read `page.rs` next.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use bothends_figures::{Audits, Damaged, Energy, Fetches, SourceSamples, Stall, What};

use crate::series::{Held, Step, Waiting};

/// One report: several strategies over the same epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReportInput {
    /// The heading.
    pub title: String,
    /// Caveats: what is emulated, generated or left out, in plain sentences.
    pub note: String,
    /// What is missing from the record of the run, and what its figures must not be taken for, in plain sentences.
    pub gaps: Vec<String>,
    /// What is emulated; it determines which figures are called modelled.
    pub emulated: Vec<Emulated>,
    /// The machine: processor, cores, memory, system.
    pub machine: String,
    /// The command that reproduces this report.
    pub command: String,
    /// The time of its creation, ISO 8601.
    pub date: String,
    /// The version of the program.
    pub version: String,
    /// The settings of the run, by the names of its flags.
    pub config: BTreeMap<String, Value>,
    /// The rate of each prong by itself, if measured.
    pub alone: Option<Alone>,
    /// Energy of the whole run.
    pub energy: Energy,
    /// Samples of the whole run that were decoded in spite of a damage, each once.
    #[serde(default)]
    pub damaged: Damaged,
    /// What the whole run fetched from a remote store, if its data are in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetches: Option<Fetches>,
    /// One entry per epoch, in the order in which they ran.
    pub runs: Vec<StrategyRun>,
}

/// An emulated part of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Emulated {
    /// The device's speed comes from a model.
    Device,
    /// The accelerator's speed comes from a model.
    Accelerator,
    /// The images were generated.
    Images,
}

/// The rate of each part by itself, in images per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Alone {
    /// The host's workers alone.
    pub front_images_per_s: f64,
    /// All devices alone; absent if there are none.
    pub back_images_per_s: Option<f64>,
    /// The accelerator; absent if it consumes everything at once.
    pub accelerator_images_per_s: Option<f64>,
}

impl Alone {
    /// The best that any scheme could reach: both prongs at once, or the accelerator.
    #[must_use]
    pub fn bound_images_per_s(&self) -> f64 {
        let together = self.front_images_per_s + self.back_images_per_s.unwrap_or(0.0);
        together.min(self.accelerator_images_per_s.unwrap_or(f64::INFINITY))
    }
}

/// One epoch under one strategy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StrategyRun {
    /// Its name: `cpu`, `mte`, `ordered`, …
    pub strategy: String,
    /// The epoch's number: only epochs with the same number have the same samples.
    pub epoch: u32,
    /// Images delivered.
    pub samples: u64,
    /// Wall-clock seconds of the epoch.
    pub seconds: f64,
    /// Images delivered per second of the epoch.
    pub images_per_s: f64,
    /// `busy_s` ÷ (`busy_s` + `stall_s`), 0..=1, which counts from the first batch on; absent without
    /// an accelerator.
    pub utilisation: Option<f64>,
    /// Seconds in which the accelerator computed, on its own timeline.
    pub busy_s: Option<f64>,
    /// Seconds between the end of a step and the next batch, on the accelerator's own timeline.
    pub stall_s: Option<f64>,
    /// Seconds outside the steps, by the training loop's clock: the sum of `stall`. Together with the
    /// seconds in steps, they are the length of the epoch.
    pub idle_s: Option<f64>,
    /// Seconds until the first batch.
    pub first_batch_s: Option<f64>,
    /// Batches that the host made and that were delivered.
    pub front_batches: u64,
    /// Batches that devices made and that were delivered.
    pub back_batches: u64,
    /// η: the rate ÷ the best rate possible, from the rates of the prongs by themselves.
    pub efficiency: Option<f64>,
    /// CPU milliseconds of the host process per image.
    pub cpu_ms_per_image: Option<f64>,
    /// The largest resident memory of the host process in bytes.
    pub peak_rss_bytes: Option<u64>,
    /// Late device batches that the host made again.
    pub rescued: u64,
    /// Device batches of which the host made samples again, and what came of it.
    #[serde(default)]
    pub audits: Audits,
    /// Samples of each data set, where several were mixed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceSamples>,
    /// The digest of the delivered stream, in order (hex).
    pub stream_digest: String,
    /// The digest of the delivered content, independent of order (hex).
    pub content_digest: String,
    /// The causes of the idle seconds; absent if the epoch did not end.
    pub stall: Option<Stall>,
    /// Energy of this epoch by itself, if strategies were compared.
    pub energy: Option<Energy>,
    /// What happened when; it may be thinned out.
    pub events: Vec<Event>,
    /// Images per second in each interval.
    pub rate: Vec<Step>,
    /// Finished batches that waited.
    pub waiting: Vec<Waiting>,
    /// CPUs that the host process used.
    pub cores: Vec<Step>,
    /// Memory of the host process (PSS).
    pub memory: Vec<Held>,
}

/// One event of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds since the epoch began.
    pub t_s: f64,
    /// The batch, in plan order.
    pub batch: u32,
    /// Who made the batch.
    pub prong: Prong,
    /// What happened: it was made, delivered or rescued; with `ordered` also claimed.
    pub kind: What,
}

/// Which end a batch was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Prong {
    /// The host's workers.
    Front,
    /// A device.
    Back,
}

/// A report that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// Not the JSON of a report.
    #[error("cannot read the report's JSON; write it with this release of bothends")]
    Json(#[source] serde_json::Error),
}

impl ReportInput {
    /// Reads what [`ReportInput::to_json`] wrote.
    ///
    /// # Errors
    /// [`ReportError::Json`] with line and column as its source.
    pub fn from_json(json: &str) -> Result<Self, ReportError> {
        serde_json::from_str(json).map_err(ReportError::Json)
    }

    /// This input as JSON, for other programs to plot.
    ///
    /// # Errors
    /// [`ReportError::Json`]; none is known to occur.
    pub fn to_json(&self) -> Result<String, ReportError> {
        serde_json::to_string(self).map_err(ReportError::Json)
    }

    /// The end of the time axis of every plot, in seconds.
    pub(crate) fn longest_s(&self) -> f64 {
        let events = self.runs.iter().flat_map(|run| &run.events).map(|event| event.t_s);
        let looks = self.runs.iter().flat_map(|run| &run.memory).map(|held| held.t_s);
        let epochs = self.runs.iter().map(|run| run.seconds);
        let ends = events.chain(looks).chain(epochs).filter(|s| s.is_finite());
        ends.fold(1e-9, f64::max)
    }

    /// Whether an accelerator consumed the batches.
    pub(crate) fn has_accelerator(&self) -> bool {
        self.emulated.contains(&Emulated::Accelerator)
            || self.runs.iter().any(|run| run.utilisation.is_some())
    }

    /// Images delivered in the whole run.
    pub(crate) fn n_images(&self) -> u64 {
        self.runs.iter().map(|run| run.samples).sum()
    }

    /// The run of strategy `cpu`, with which the others are compared.
    #[must_use]
    pub fn host_alone(&self) -> Option<&StrategyRun> {
        self.runs.iter().find(|run| run.strategy == "cpu")
    }
}
