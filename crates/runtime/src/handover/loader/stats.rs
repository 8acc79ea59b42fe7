//! What a loader has done, as numbers. It counts nothing itself: the running epoch's deal and the
//! reports of those that are over say it.

use bothends_figures::{
    Audits, Damaged, Fetches, RecordCacheUse, Skipped, SourceSamples, Stall,
};
use bothends_side_index::{BlockCacheStats, SideIndexStats};
use serde::Serialize;

use crate::handover::deal::taken::Taken;
use crate::handover::report::EpochReport;
use crate::runtime::host::Device;

/// What a loader has done since it was opened. Batches count when a consumer takes them, all
/// else when its epoch is over.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LoaderStats {
    /// The epoch that runs, or the next one.
    pub epoch: u32,
    /// Batches that the host made, of those delivered.
    pub front_batches: u64,
    /// One entry per device, in the order of `csds`.
    pub back: Vec<DeviceStats>,
    /// Samples of each data set of a mix, of those delivered in epochs that are over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceSamples>,
    /// Claims of devices that the host redid.
    pub rescued: u64,
    /// Samples that the bad-sample policy was applied to, each once: the quarantine list.
    pub skipped: Vec<Skipped>,
    /// Samples that `ops` refused and the caller's decoder decoded, each once.
    pub redecoded: Vec<Skipped>,
    /// Samples that were decoded in spite of a damage, each once. They are no bad samples.
    pub damaged: Damaged,
    /// Batches of devices of which the host made samples again and compared them.
    pub audits: Audits,
    /// Seconds for which a consumer waited, by cause.
    pub stall: Stall,
    /// Seconds for which a finished batch waited for a consumer.
    pub backpressure_s: f64,
    /// Bytes read from storage.
    pub storage_read_bytes: u64,
    /// Where what is known about the images is kept; `None` where nothing is.
    pub side_index: Option<SideIndexStats>,
    /// Images transcoded while the host was idle; `None` where the data are no image files, or it is off.
    pub block_cache: Option<BlockCacheStats>,
    /// Records of a remote store that are kept on a local disk; `None` where they are not.
    pub record_cache: Option<RecordCacheUse>,
    /// What was fetched from a remote store; `None` where the data are in none.
    pub fetches: Option<Fetches>,
    /// CPU seconds of this process.
    pub cpu_seconds: Option<f64>,
    /// The most memory this process had resident, in bytes.
    pub peak_rss_bytes: Option<u64>,
    /// The way that batches take to whoever trains, and why not a better one: `pinned (not p2p: …)`.
    pub path: Option<String>,
}

/// A device's part of it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DeviceStats {
    /// As given in `csds`; of a pool, the member that had this place of it last.
    pub device: String,
    /// Whether it says of itself that it is emulated.
    pub emulated: bool,
    /// Batches it made, of those delivered.
    pub batches: u64,
    /// Claims it was late with.
    pub late: u64,
    /// Why it was lost, or a job of it, the last time.
    pub failure: Option<String>,
    /// Batches that it may be making or have ready at once.
    pub slots: u32,
    /// Of these, how many it can use at the rates of the last epoch, also of a run before;
    /// `None` while they are not known, and for a strategy that lets nothing wait for its turn.
    pub slots_needed: Option<u32>,
}

impl LoaderStats {
    /// What consumers have got of an epoch. Its report also counts batches that lay ready when it was broken off.
    pub(super) fn add_taken(&mut self, devices: &[Device], taken: &Taken) {
        self.front_batches += u64::from(taken.front.n_batches);
        for (sum, made) in self.of_devices(devices).iter_mut().zip(taken.back()) {
            sum.batches += u64::from(made.n_batches);
        }
    }

    /// All of an epoch that is over, except for what consumers have got of it.
    pub(super) fn add(&mut self, devices: &[Device], report: &EpochReport) {
        let EpochReport { counts, back, skipped, redecoded, audits, .. } = report;
        self.rescued += u64::from(counts.rescued);
        let sums = self.of_devices(devices).iter_mut();
        for (sum, (counts, report)) in sums.zip(counts.back.iter().zip(back)) {
            sum.late += u64::from(counts.late);
            let failure = report.lost.as_ref().or(report.last_failure.as_ref());
            sum.failure = failure.cloned().or(sum.failure.take());
        }
        add_once(&mut self.skipped, skipped);
        add_once(&mut self.redecoded, redecoded);
        self.audits += *audits;
        self.stall += report.stall;
        self.backpressure_s += report.backpressure_s;
    }

    /// What consumers have got of each data set of a mix, in an epoch that is over.
    pub(super) fn add_sources(&mut self, taken: &Taken) {
        if taken.n_batches() == 0 {
            return;
        }
        let mut sources = taken.sources();
        for (sum, known) in sources.iter_mut().zip(&self.sources) {
            sum.samples += known.samples;
        }
        self.sources = sources;
    }

    /// The part of each device.
    pub(super) fn of_devices(&mut self, devices: &[Device]) -> &mut [DeviceStats] {
        self.back.resize_with(devices.len(), DeviceStats::default);
        for (stats, device) in self.back.iter_mut().zip(devices) {
            stats.device = device.shown_name();
            stats.emulated = device.presence.is_emulated();
            stats.failure = device.presence.missing().or(stats.failure.take());
        }
        &mut self.back
    }
}

/// Adds samples to those that are known, in their order; of one that is known the newest stays.
fn add_once(known: &mut Vec<Skipped>, new: &[Skipped]) {
    known.splice(0..0, new.iter().rev().cloned());
    known.sort_by_key(|bad| bad.sample);
    known.dedup_by_key(|bad| bad.sample);
}
