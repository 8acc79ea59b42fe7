//! Who watches a run, and what is told.

use bothends_figures::{
    Bytes, Counted, EnergyDomain, EpochResult, Fetches, Moment, UsageSample,
};

use crate::collect::log::EventLog;

/// A moment of a run, for a progress bar.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The epoch.
    pub epoch: u32,
    /// The strategy it runs under.
    pub strategy: &'static str,
    /// Batches that it delivers.
    pub n_batches: u32,
    /// Delivered, made by the host.
    pub front: u32,
    /// Delivered, made by devices.
    pub back: u32,
    /// Samples per second so far.
    pub images_per_s: f64,
    /// Share of the time in which the consumer waited.
    pub stalled: f64,
    /// Sums of the epoch so far.
    pub counted: Counted,
    /// Bytes moved in the whole run; those of storage until the epoch before.
    pub bytes: Bytes,
    /// What was fetched from a remote store in the whole run; `None` where the data are in none.
    pub fetches: Option<Fetches>,
}

/// An epoch that is over.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'a> {
    /// Its figures.
    pub result: &'a EpochResult,
    /// Its sums, of which the last [`Progress`] had all but the end.
    pub counted: Counted,
    /// What happened when.
    pub log: &'a EventLog,
    /// What the process used meanwhile.
    pub usage: &'a [UsageSample],
    /// Energy of the run so far, as the devices say, for an observer that asks for it.
    pub energy: &'a [EnergyDomain],
    /// Bytes moved in the run so far.
    pub bytes: Bytes,
    /// What was fetched from a remote store in the run so far; `None` where the data are in none.
    pub fetches: Option<Fetches>,
}

/// Who watches a run.
pub trait Observer {
    /// A step that takes a while begins.
    fn phase(&mut self, _what: &str) {}
    /// A batch was consumed.
    fn batch(&mut self, _progress: Progress) {}
    /// Something that the user should know.
    fn note(&mut self, _text: &str) {}
    /// An epoch begins: nothing of it is consumed yet.
    fn begin(&mut self, _progress: Progress) {}
    /// What happened to batches since the last call, in order.
    fn moments(&mut self, _moments: &[Moment]) {}
    /// An epoch is over.
    fn end(&mut self, _ended: Ended<'_>) {}
    /// Whether devices are to be asked for their energy after every epoch.
    fn asks_for_energy(&self) -> bool {
        false
    }
}
