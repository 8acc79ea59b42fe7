//! The result of a run as JSON. Scripts depend on the names.
//!
//! Every figure here was measured in this run, except where its own `source` says
//! `modelled(…)`; an emulated device says so beside its name.

use bothends_energy::{Figure, Quantities};
use serde::{Deserialize, Deserializer, Serialize};

use crate::settings::Settings;
use crate::stall::Stall;

/// A figure that is no number, as a rate of an epoch without time, is `null` in JSON.
fn or_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Version of the program.
    #[serde(default)]
    pub version: String,
    /// What the run was told.
    #[serde(default)]
    pub config: Settings,
    /// One entry per epoch; left out where epochs have lines of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<EpochResult>,
    /// Processor time.
    #[serde(default)]
    pub cpu: Cpu,
    /// Memory of the host process.
    pub memory: Memory,
    /// Bytes moved.
    #[serde(default)]
    pub bytes: Bytes,
    /// Energy.
    pub energy: Energy,
    /// Rates measured alone, where they were measured.
    pub alone: Alone,
}

/// One epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochResult {
    /// Its number.
    pub epoch: u32,
    /// The strategy it ran under.
    pub strategy: String,
    /// Samples delivered (masked and skipped rows not counted).
    pub samples: u64,
    /// Batches delivered.
    pub batches: u32,
    /// From the start to the end of the last step.
    pub seconds: f64,
    /// `samples / seconds`.
    #[serde(deserialize_with = "or_nan")]
    pub images_per_s: f64,
    /// From the start to the first batch.
    #[serde(default)]
    pub first_batch_s: f64,
    /// From the end of the last step of the epoch before to the first batch of this one: all that
    /// a training loop waits between two epochs. `None` in the first epoch of a run.
    #[serde(default)]
    pub gap_s: Option<f64>,
    /// XXH3-128 of the stream, with `--digest`.
    pub stream_digest: Option<String>,
    /// Sum of the samples' own digests, with `--digest`.
    pub content_digest: Option<String>,
    /// The host's part.
    pub front: FrontResult,
    /// The devices' parts, in the order of `--csd`.
    pub back: Vec<BackResult>,
    /// Late or lost device batches that the host made again.
    pub rescued: u32,
    /// Samples that the bad-sample policy was applied to.
    #[serde(default)]
    pub skipped: Vec<Skipped>,
    /// Seconds in which a finished batch waited for the consumer: the loader was ahead.
    #[serde(default)]
    pub backpressure_s: f64,
    /// Device batches that the host recomputed, in whole or in part, and found equal.
    #[serde(default)]
    pub audited: u64,
    /// Seconds in which finished batches waited for that.
    #[serde(default)]
    pub audit_s: f64,
    /// Claims that were dropped unfinished: 0 in a healthy run.
    #[serde(default)]
    pub returned_claims: u32,
    /// Most finished device batches that waited at once.
    #[serde(default)]
    pub peak_waiting_back_batches: u32,
    /// η, where both prongs were measured alone.
    pub efficiency: Option<f64>,
    /// Processor seconds of the host for deciding what is made where, and for bringing batches
    /// into the output's form and handing them over, whoever made them.
    pub feed_cpu_s: Option<f64>,
    /// Processor milliseconds of the host process per sample.
    pub cpu_ms_per_image: Option<f64>,
    /// Largest resident memory of the host process in this epoch. Memory that an earlier epoch of the
    /// same process took and kept is in it.
    pub peak_rss_bytes: Option<u64>,
    /// Energy of this epoch alone, where strategies were compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<Energy>,
    /// The accelerator's side.
    pub accelerator: AcceleratorResult,
}

/// The host's part of an epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrontResult {
    /// Batches made by the host and delivered.
    pub batches: u32,
    /// `batches / seconds` of the epoch.
    #[serde(default, deserialize_with = "or_nan")]
    pub rate_batches_per_s: f64,
    /// Batches made by the host for nothing: the device was first after all.
    #[serde(default)]
    pub wasted: u32,
    /// Processor seconds of the host's reader, of those that open files for it, and of the workers.
    pub cpu_s: Option<f64>,
}

/// A device's part of an epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackResult {
    /// As given on the command line.
    pub device: String,
    /// Whether models stand in for hardware.
    pub emulated: bool,
    /// Batches made by the device and delivered.
    pub batches: u32,
    /// `batches / seconds` of the epoch.
    #[serde(default, deserialize_with = "or_nan")]
    pub rate_batches_per_s: f64,
    /// Results that came after their batch had been declared overdue.
    #[serde(default)]
    pub late: u32,
    /// Claims that came to nothing.
    #[serde(default)]
    pub lost: u32,
    /// Results that were not needed any more, repeated ones included.
    #[serde(default)]
    pub wasted: u32,
    /// Processor seconds of the host for asking it, and for receiving and checking its batches.
    pub host_cpu_s: Option<f64>,
    /// Why the device was lost, if it was.
    pub failure: Option<String>,
}

/// The accelerator's side of an epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AcceleratorResult {
    /// `host`, `resnet50-h100`, …
    #[serde(default)]
    pub name: String,
    /// [`Self::busy_s`] ÷ (`busy_s` + [`Self::stall_s`]): from the first batch on, as MLPerf Storage
    /// counts; `None` for `host`.
    pub utilisation: Option<f64>,
    /// Seconds of computing, on the accelerator's own timeline.
    #[serde(default)]
    pub busy_s: f64,
    /// Seconds of waiting on the accelerator's own timeline: from the end of a step to the moment the
    /// next batch was ready. It has neither the wait for the first batch, nor the consumer's own work
    /// while a batch was ready, nor a thread that the system wakes late: `utilisation` is made of it,
    /// and no cause is known for it.
    #[serde(default)]
    pub stall_s: f64,
    /// Seconds of the epoch outside the steps, on the clock of the consumer's thread: the wait for
    /// the first batch and the consumer's own work are in it.
    #[serde(default)]
    pub idle_s: f64,
    /// What held the consumer meanwhile, by cause. The sum is [`Self::idle_s`], not
    /// [`Self::stall_s`].
    pub stall_by: Stall,
}

/// What was seen while an accelerator was fed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Seen {
    /// Steps, the first and the last included, though these do not count.
    pub n_steps: u32,
    /// Computing ÷ (computing + stall) on the accelerator's own timeline, as
    /// [`AcceleratorResult::utilisation`]; `None` for an accelerator without a rate.
    pub utilisation: Option<f64>,
    /// Samples that it got in a second.
    pub images_per_s: f64,
    /// 99 of 100 steps were stalled no longer, in milliseconds, on the accelerator's own timeline
    /// ([`AcceleratorResult::stall_s`]).
    pub p99_wait_ms: f64,
    /// Processor time of this process for a sample; `None` where the kernel does not say.
    pub cpu_ms_per_image: Option<f64>,
    /// Processor time of emulated devices' processes for a sample of the whole epoch; `None`
    /// without any.
    pub device_cpu_ms_per_image: Option<f64>,
    /// The most memory of this process.
    pub peak_pss_bytes: Option<u64>,
}

/// Processor time of the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Of the host process.
    pub seconds: Option<f64>,
    /// Per sample delivered.
    pub ms_per_image: Option<f64>,
    /// Of device processes on this machine, as they say.
    #[serde(default)]
    pub device_process_seconds: f64,
}

/// Memory of the host process; emulated devices are processes of their own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Largest resident set.
    pub peak_rss_bytes: Option<u64>,
    /// Largest proportional set seen: it is looked at twice a second, and when the run is over.
    pub peak_pss_bytes: Option<u64>,
}

/// Bytes moved in the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Bytes {
    /// Read by the host, from storage or from the page cache.
    pub storage_read: u64,
    /// Whether the host read through the page cache: what it read there before, it need not
    /// have read from storage again.
    pub page_cache: bool,
    /// Samples received from devices.
    pub device_to_host: u64,
    /// Delivered to the accelerator.
    pub host_to_accelerator: u64,
}

/// Energy of the run, by domain, and what can be counted without a meter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    /// The sum of figures of one kind: measured where the host has a meter, else modelled.
    /// `None` where the model lacks a quantity.
    pub joules_per_sample: Option<f64>,
    /// Lower end of what it may be.
    pub joules_per_sample_low: Option<f64>,
    /// Upper end of what it may be.
    pub joules_per_sample_high: Option<f64>,
    /// `measured(…)` with all that was added, or `modelled(PROFILE@VERSION)`.
    pub joules_per_sample_source: Option<String>,
    /// The run's sums: at most one of each kind, the measured one first. Nobody else may add
    /// domains, for some are parts of others.
    #[serde(default)]
    pub totals: Vec<Figure>,
    /// What was metered, and what the profile makes of the quantities. The modelled ones add up to
    /// the modelled total; of the measured ones the total's source names those that it adds.
    pub domains: Vec<EnergyDomain>,
    /// What the devices report of themselves: the same joules that the profile's `device N` lines
    /// stand for, so they are in no sum.
    #[serde(default)]
    pub devices: Vec<EnergyDomain>,
    /// What was counted.
    #[serde(default)]
    pub quantities: Quantities,
    /// Meters that could not be read, quantities that could not be counted, one line each.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// One energy figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnergyDomain {
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
    /// Of a measured figure: less what the idle machine draws in that time, where that was
    /// measured (`--energy-idle`).
    pub net_of_idle_joules: Option<f64>,
    /// Of measured processors: this process's share of that, by processor time.
    pub attributed_joules: Option<f64>,
}

/// A figure without the other two numbers of a measured one.
impl From<Figure> for EnergyDomain {
    fn from(Figure { name, joules, low, high, source }: Figure) -> Self {
        let (net_of_idle_joules, attributed_joules) = (None, None);
        Self { name, joules, low, high, source, net_of_idle_joules, attributed_joules }
    }
}

/// Rates measured alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Alone {
    /// The host's workers, in images per second.
    pub front_images_per_s: Option<f64>,
    /// All devices together, in images per second.
    pub back_images_per_s: Option<f64>,
}

/// A sample that a policy was applied to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The sample.
    pub sample: u64,
    /// Its file.
    pub file: String,
    /// What the reader or decoder said.
    pub why: String,
    /// The policy applied: `skip`, `replace` or `zero`.
    pub policy: String,
}
