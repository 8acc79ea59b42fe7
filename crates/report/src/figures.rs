//! What a report takes from the results of a run: the part of their JSON that is drawn.
//!
//! A figure that is missing is missing, never a zero.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Alone, StallSeconds};

/// One entry of the result's `epochs`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct EpochFigures {
    /// Samples delivered.
    pub samples: u64,
    /// Batches delivered.
    pub batches: u32,
    /// From the start to the end of the last step.
    pub seconds: f64,
    /// Samples per second; no number in an epoch without one.
    pub images_per_s: Option<f64>,
    /// Digest of the stream, with `--digest`.
    pub stream_digest: Option<String>,
    /// Digest of the content, with `--digest`.
    pub content_digest: Option<String>,
    /// The host's part.
    pub front: FrontFigures,
    /// The devices' parts.
    pub back: Vec<BackFigures>,
    /// Late or lost device batches that the host made again.
    pub rescued: u64,
    /// η, where both prongs were measured alone.
    pub efficiency: Option<f64>,
    /// Processor milliseconds of the host process per sample.
    pub cpu_ms_per_image: Option<f64>,
    /// Largest resident memory of the host process.
    pub peak_rss_bytes: Option<u64>,
    /// The accelerator's side.
    pub accelerator: AcceleratorFigures,
}

/// The host's part of an epoch.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct FrontFigures {
    /// Batches made by the host and delivered.
    pub batches: u32,
}

/// A device's part of an epoch.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct BackFigures {
    /// As given on the command line.
    pub device: String,
    /// Whether models stand in for hardware.
    pub emulated: bool,
    /// Batches made by the device and delivered.
    pub batches: u32,
}

/// The accelerator's side of an epoch.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct AcceleratorFigures {
    /// Share of the time in which it computed; `None` for `host`.
    pub utilisation: Option<f64>,
    /// Seconds of waiting by cause.
    pub stall_by: StallSeconds,
}

/// The result without its epochs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct RunFigures {
    /// Memory of the host process.
    pub memory: MemoryFigures,
    /// Energy by domain.
    pub energy: EnergyFigures,
    /// Rates measured alone, where they were.
    pub alone: AloneFigures,
}

/// Memory of the host process.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct MemoryFigures {
    /// Largest resident set.
    pub peak_rss_bytes: Option<u64>,
}

/// Energy of the run.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct EnergyFigures {
    /// What was metered or modelled.
    pub domains: Vec<EnergyFigure>,
}

/// One energy figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnergyFigure {
    /// The part of the system.
    pub name: String,
    /// The figure.
    pub joules: f64,
    /// Lower end of what it may be.
    pub low: f64,
    /// Upper end of what it may be.
    pub high: f64,
    /// `measured(…)` or `modelled(…)`.
    pub source: String,
}

/// Rates measured alone.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct AloneFigures {
    /// The host's workers alone.
    pub front_images_per_s: Option<f64>,
    /// All devices alone.
    pub back_images_per_s: Option<f64>,
}

impl EpochFigures {
    /// Takes them from an entry of the result's `epochs`.
    ///
    /// # Errors
    /// The first figure that is not there or no figure.
    pub fn of(result: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(result)
    }
}

impl RunFigures {
    /// Takes them from a result.
    ///
    /// # Errors
    /// The first figure that is not there or no figure.
    pub fn of(result: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(result)
    }

    /// The rates measured alone, beside what the accelerator takes.
    pub(crate) fn alone(&self, accelerator_images_per_s: Option<f64>) -> Option<Alone> {
        Some(Alone {
            front_images_per_s: self.alone.front_images_per_s?,
            back_images_per_s: self.alone.back_images_per_s.unwrap_or(0.0),
            accelerator_images_per_s,
        })
    }
}
