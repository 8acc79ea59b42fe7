//! The result of a run as JSON. Scripts depend on the names.
//!
//! Every figure was measured in this run, unless its own `source` says `modelled(…)`. Emulated
//! devices are marked as such.

use std::ops::AddAssign;

use bothends_energy::{Figure, Quantities};
use serde::{Deserialize, Deserializer, Serialize};

use crate::data::DataSet;
use crate::settings::Settings;
use crate::stall::Stall;

/// A figure that is not a number, such as the rate of an epoch that took no time, is `null` in JSON.
fn or_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// A whole run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The version of the program.
    #[serde(default)]
    pub version: String,
    /// When it began, ISO 8601; empty, as the next two, where no program of ours ran it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub date: String,
    /// The command as it was typed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// The machine: processor, cores, memory, system.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// The settings of the run.
    #[serde(default)]
    pub config: Settings,
    /// The data set as it was listed; `None` in what older releases wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<DataSet>,
    /// What ended it before its last epoch's end: the name of a signal, `stop_after`, or `asked` of a
    /// program that embeds it. `None` of a run that went to its end.
    #[serde(default)]
    pub stopped: Option<String>,
    /// One entry per epoch; left out if each epoch has a line of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<EpochResult>,
    /// CPU time.
    #[serde(default)]
    pub cpu: Cpu,
    /// Memory of the host process.
    pub memory: Memory,
    /// Bytes moved.
    #[serde(default)]
    pub bytes: Bytes,
    /// Images transcoded while the host was idle; `None` where there is no such cache.
    #[serde(default)]
    pub block_cache: Option<BlockCacheUse>,
    /// Records of a remote store that are kept on a local disk; `None` without `--cache`.
    #[serde(default)]
    pub record_cache: Option<RecordCacheUse>,
    /// What was fetched; `None` where the data are in no remote store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetches: Option<Fetches>,
    /// Faults that emulated devices were given, in the order of the devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<InjectedFault>,
    /// Energy.
    pub energy: Energy,
    /// The rate of each prong by itself, if measured.
    pub alone: Alone,
    /// Samples of all epochs that were decoded in spite of a damage, each once.
    #[serde(default)]
    pub damaged: Damaged,
}

/// One epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochResult {
    /// Its number.
    pub epoch: u32,
    /// Its strategy.
    pub strategy: String,
    /// Samples delivered, without masked and skipped rows.
    pub samples: u64,
    /// Of these, those of each data set, if several were mixed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceSamples>,
    /// Batches delivered.
    pub batches: u32,
    /// Batches of this epoch that earlier runs had delivered, from whose state this one was resumed. The
    /// digests include them, and no other figure does. `None` of an epoch that began in this run.
    #[serde(default)]
    pub resumed_at: Option<u32>,
    /// Batches of this epoch that had been delivered, with those of earlier runs, when the run was stopped:
    /// all figures and digests are of these alone. `None` of an epoch that went to its end.
    #[serde(default)]
    pub stopped_at: Option<u32>,
    /// From the start to the end of the last step.
    pub seconds: f64,
    /// `samples / seconds`.
    #[serde(deserialize_with = "or_nan")]
    pub images_per_s: f64,
    /// From the start to the first batch.
    #[serde(default)]
    pub first_batch_s: f64,
    /// From the end of the last step of the previous epoch to the first batch of this one: all that
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
    /// Samples to which the bad-sample policy was applied.
    #[serde(default)]
    pub skipped: Vec<Skipped>,
    /// Samples that were decoded in spite of a damage.
    #[serde(default)]
    pub damaged: Damaged,
    /// Seconds in which a finished batch waited for the consumer: the loader was ahead.
    #[serde(default)]
    pub backpressure_s: f64,
    /// Device batches that were audited: the host recomputed them, in whole or in part.
    #[serde(default)]
    pub audited: u64,
    /// Seconds in which finished batches waited for that.
    #[serde(default)]
    pub audit_s: f64,
    /// Samples that the host recomputed and compared for that.
    #[serde(default)]
    pub audit_samples: u64,
    /// Of these, samples that were not what the host made.
    #[serde(default)]
    pub audit_differences: u64,
    /// Claims that were dropped unfinished: 0 in a healthy run.
    #[serde(default)]
    pub returned_claims: u32,
    /// The most finished device batches that waited at once.
    #[serde(default)]
    pub peak_waiting_back_batches: u32,
    /// η, if each prong was measured by itself.
    pub efficiency: Option<f64>,
    /// CPU seconds of the host for deciding what is made where, converting batches to the output
    /// format and handing them over, whoever made them.
    pub feed_cpu_s: Option<f64>,
    /// CPU milliseconds of the host process per sample.
    pub cpu_ms_per_image: Option<f64>,
    /// The largest resident memory of the host process in this epoch, including memory that it took
    /// in an earlier epoch and kept.
    pub peak_rss_bytes: Option<u64>,
    /// Energy of this epoch by itself, if strategies were compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<Energy>,
    /// The accelerator's part.
    pub accelerator: AcceleratorResult,
}

/// Samples of one data set of a mix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSamples {
    /// The data set's name.
    pub name: String,
    /// How many of its samples were delivered.
    pub samples: u64,
}

/// The host's part of an epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrontResult {
    /// Batches made by the host and delivered.
    pub batches: u32,
    /// `batches / seconds` of the epoch.
    #[serde(default, deserialize_with = "or_nan")]
    pub rate_batches_per_s: f64,
    /// Batches that the host made in vain, because the device was first after all.
    #[serde(default)]
    pub wasted: u32,
    /// CPU seconds of the host's reader, of the threads that open files for it, and of the workers.
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
    /// Claims that were lost.
    #[serde(default)]
    pub lost: u32,
    /// Results that were no longer needed, including repeated ones.
    #[serde(default)]
    pub wasted: u32,
    /// Of an emulated device: batches that it finished later than its model, since this machine is too slow for it.
    /// `None` where it does not say, as an emulated NVMe drive.
    #[serde(default)]
    pub late_completions: Option<u32>,
    /// By how much at most, in seconds; `None` where it does not say.
    #[serde(default)]
    pub max_lateness_seconds: Option<f64>,
    /// By how much in all, in seconds; `None` where it does not say.
    #[serde(default)]
    pub lateness_seconds: Option<f64>,
    /// CPU seconds of the host for sending it requests, and for receiving and checking its batches.
    pub host_cpu_s: Option<f64>,
    /// Why the device was lost, if it was.
    pub failure: Option<String>,
}

/// An emulated device is behind its model if it was late for more than this part of an epoch.
const BEHIND_PART: f64 = 0.01;

impl BackResult {
    /// Whether an emulated device was so late, in an epoch of so many seconds, that its figures are not
    /// those of its model; `None` where it does not say. A device that is not emulated has no model.
    #[must_use]
    pub fn is_behind(&self, epoch_s: f64) -> Option<bool> {
        match self.emulated {
            true => self.lateness_seconds.map(|late_s| late_s > epoch_s * BEHIND_PART),
            false => Some(false),
        }
    }
}

/// A fault that an emulated device was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectedFault {
    /// The device, as given on the command line.
    pub device: String,
    /// As given: `die@50%`.
    pub fault: String,
    /// How often it has struck, in all epochs; `None` where the device could not be asked at the end, as
    /// one that has died.
    pub struck: Option<u64>,
    /// Of a fault that strikes at a part of an epoch: the batches that the device begins before.
    pub after: Option<u64>,
    /// The most batches of one epoch that the device has begun.
    pub begun: Option<u64>,
}

/// The accelerator's part of an epoch.
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
    /// Seconds of waiting on the accelerator's own timeline: from the end of a step to the moment when
    /// the next batch was ready. It includes neither the wait for the first batch, nor the consumer's
    /// own work while a batch was ready, nor late wake-ups. `utilisation` is computed from it, and its
    /// causes are not known.
    #[serde(default)]
    pub stall_s: f64,
    /// Seconds of the epoch outside the steps, by the clock of the consumer's thread. They include
    /// the wait for the first batch and the consumer's own work.
    #[serde(default)]
    pub idle_s: f64,
    /// The same time by cause. The sum is [`Self::idle_s`], not [`Self::stall_s`].
    pub stall_by: Stall,
}

/// What was measured while an accelerator was fed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Seen {
    /// Steps, including the first and the last, which are not measured.
    pub n_steps: u32,
    /// Computing ÷ (computing + stall) on the accelerator's own timeline, as
    /// [`AcceleratorResult::utilisation`]; `None` for an accelerator without a rate.
    pub utilisation: Option<f64>,
    /// Samples that it received per second.
    pub images_per_s: f64,
    /// The 99th percentile of a step's stall in milliseconds, on the accelerator's own timeline
    /// ([`AcceleratorResult::stall_s`]).
    pub p99_wait_ms: f64,
    /// CPU time of this process per sample; `None` if the kernel does not report it.
    pub cpu_ms_per_image: Option<f64>,
    /// CPU time of the processes of emulated devices per sample of the whole epoch; `None` without
    /// emulated devices.
    pub device_cpu_ms_per_image: Option<f64>,
    /// The peak memory of this process.
    pub peak_pss_bytes: Option<u64>,
}

/// CPU time of the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Of the host process.
    pub seconds: Option<f64>,
    /// Per sample delivered.
    pub ms_per_image: Option<f64>,
    /// Of device processes that the run started, as they report it; `None` where one of them cannot be asked any more.
    pub device_process_seconds: Option<f64>,
}

/// Memory of the host process; emulated devices are processes of their own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// The largest resident set.
    pub peak_rss_bytes: Option<u64>,
    /// The largest proportional set seen: it is sampled twice a second and at the end of the run.
    pub peak_pss_bytes: Option<u64>,
}

/// Bytes moved in the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Bytes {
    /// Read by the host, from storage or from the page cache.
    pub storage_read: u64,
    /// Whether the host read through the page cache, which may have spared it reads from storage.
    pub page_cache: bool,
    /// Samples received from devices.
    pub device_to_host: u64,
    /// Delivered to the accelerator.
    pub host_to_accelerator: u64,
}

/// What was fetched from a remote store, as of a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Fetches {
    /// Requests sent, hedges and retries included.
    pub requests: u64,
    /// Bytes that answers brought.
    pub bytes: u64,
    /// Records that came with the request of a neighbour.
    pub joined: u64,
    /// Second requests for records that were late.
    pub hedged: u64,
    /// Of these, requests that were answered first.
    pub hedges_won: u64,
    /// Requests sent again after a failure.
    pub retried: u64,
    /// Answers of a store that was asked too much.
    pub throttled: u64,
    /// Requests that nothing answered in time.
    pub timed_out: u64,
    /// Records that could not be had by any attempt.
    pub failed: u64,
    /// Records that a device took, or an epoch that was ended, before they were used.
    pub withdrawn: u64,
    /// Records that the cache on a local disk had, so that they were not fetched, and their bytes.
    #[serde(default)]
    pub cached: u64,
    /// Bytes of these.
    #[serde(default)]
    pub cached_bytes: u64,
    /// Records that were damaged in the cache, and fetched again.
    #[serde(default)]
    pub cache_damaged: u64,
    /// Requests in flight now.
    pub in_flight: u32,
    /// The most that were in flight at once.
    #[serde(default)]
    pub most_in_flight: u32,
    /// Requests that may be in flight now.
    pub window: u32,
    /// Bytes that have come and wait for their turn now.
    pub reordered_bytes: u64,
    /// The time in milliseconds that few of the latest answers exceeded; 0 while there are few.
    pub p99_ms: f64,
    /// Seconds in which nothing more could be requested, by cause.
    pub waits: FetchWaits,
}

/// Seconds in which nothing more could be requested of a store, by what was waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct FetchWaits {
    /// As many requests as may be are in flight: latency is the limit.
    pub requests_s: f64,
    /// As many bytes as may be are in flight: the link is the limit.
    pub bytes_s: f64,
    /// What has come fills its memory: the consumer, or a late record, is the limit.
    pub reorder_s: f64,
    /// Requests that failed wait to be sent again.
    pub retry_s: f64,
    /// All that is known to be needed is requested: the host is the limit.
    pub ahead_s: f64,
}

impl FetchWaits {
    /// Each cause with its name.
    #[must_use]
    pub fn by_cause(&self) -> [(&'static str, f64); 5] {
        let Self { requests_s, bytes_s, reorder_s, retry_s, ahead_s } = *self;
        [
            ("requests", requests_s),
            ("bytes", bytes_s),
            ("reorder", reorder_s),
            ("retry", retry_s),
            ("ahead", ahead_s),
        ]
    }
}

/// What the block cache has, and has done in the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockCacheUse {
    /// Records that can be read, and bytes of their segments.
    pub records: u64,
    /// Bytes of the data set's segments.
    pub bytes: u64,
    /// The most bytes of all data sets.
    pub limit_bytes: u64,
    /// Images transcoded.
    pub transcoded: u64,
    /// Records read from it.
    pub read: u64,
    /// Bytes of these.
    pub read_bytes: u64,
    /// Records that were damaged: their images were decoded from their files.
    pub damaged: u64,
    /// Why nothing is transcoded; `None` while images are.
    pub off: Option<String>,
}

/// What the cache of fetched records has, and has done in the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordCacheUse {
    /// Where its segments are.
    pub folder: String,
    /// Records that can be read.
    pub records: u64,
    /// Bytes of the data set's segments.
    pub bytes: u64,
    /// The most bytes of all data sets.
    pub limit_bytes: u64,
    /// Records written to it.
    pub kept: u64,
    /// Records that were fetched and not written, as the disk was slower than the network.
    pub left_out: u64,
    /// Records read from it, and not fetched.
    pub hits: u64,
    /// Bytes of these.
    pub saved_bytes: u64,
    /// Records that were damaged, and fetched again.
    pub damaged: u64,
    /// Why nothing more is written; `None` while records are.
    pub off: Option<String>,
}

/// Energy of the run by domain, and what can be counted without a meter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    /// The sum of figures of one kind: measured if the host has a meter, or else modelled. `None` if
    /// the model lacks a quantity.
    pub joules_per_sample: Option<f64>,
    /// Lower end of what it may be.
    pub joules_per_sample_low: Option<f64>,
    /// Upper end of what it may be.
    pub joules_per_sample_high: Option<f64>,
    /// `measured(…)` with all domains added and, of several ranks on a machine, by how many it was
    /// divided; or `modelled(PROFILE@VERSION)`.
    pub joules_per_sample_source: Option<String>,
    /// The run's sums: at most one of each kind, the measured one first. Domains must not be added
    /// elsewhere, because some are parts of others.
    #[serde(default)]
    pub totals: Vec<Figure>,
    /// Measured and modelled figures. The modelled ones add up to the modelled total; the source of
    /// the measured total names the domains that it adds.
    pub domains: Vec<EnergyDomain>,
    /// What the devices report themselves: the same joules as the profile's `device N` lines, so
    /// they are not part of any sum.
    #[serde(default)]
    pub devices: Vec<EnergyDomain>,
    /// What was counted.
    #[serde(default)]
    pub quantities: Quantities,
    /// Meters that could not be read, quantities that could not be counted, and what figures must not be
    /// taken for, one line each.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// Those of the remarks that are of meters which failed while they were read: their figures are
    /// missing.
    #[serde(default)]
    pub failures: Vec<String>,
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
    /// For a measured figure: less what the idle machine draws in this time, if that was measured
    /// (`--energy-idle`).
    pub net_of_idle_joules: Option<f64>,
    /// For measured processors: this process's share of that, by CPU time.
    pub attributed_joules: Option<f64>,
}

/// A figure without the other two numbers of a measured one.
impl From<Figure> for EnergyDomain {
    fn from(Figure { name, joules, low, high, source }: Figure) -> Self {
        let (net_of_idle_joules, attributed_joules) = (None, None);
        Self { name, joules, low, high, source, net_of_idle_joules, attributed_joules }
    }
}

/// The rates of the prongs, each measured by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Alone {
    /// The host's workers, in images per second.
    pub front_images_per_s: Option<f64>,
    /// All devices together, in images per second.
    pub back_images_per_s: Option<f64>,
}

/// Samples whose records are damaged and were decoded all the same, with the pixels that Pillow
/// gives. They are samples like any other: no policy is applied to them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damaged {
    /// How many, each counted once.
    pub samples: u64,
    /// The first of them, at most [`Damaged::MOST_NAMED`], by their numbers.
    pub named: Vec<DamagedSample>,
}

impl Damaged {
    /// The most samples that are named; the others are only counted.
    pub const MOST_NAMED: usize = 1000;
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedSample {
    /// The sample.
    pub sample: u64,
    /// Its file.
    pub file: String,
    /// What is wrong with it.
    pub what: String,
}

/// What audits of devices came to: the host made samples again and compared them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Audits {
    /// Device batches that were audited, in whole or in part.
    pub batches: u64,
    /// Samples that were compared.
    pub samples: u64,
    /// Of these, samples that were not what the host made.
    pub differences: u64,
    /// Seconds in which finished batches waited for it.
    pub seconds: f64,
}

impl AddAssign for Audits {
    fn add_assign(&mut self, other: Self) {
        self.batches += other.batches;
        self.samples += other.samples;
        self.differences += other.differences;
        self.seconds += other.seconds;
    }
}

/// A sample to which a policy was applied.
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
