//! What an epoch was: who made what, what was lost, why the consumer waited.

use bothends_core::epoch::Counts;
use bothends_figures::{Skipped, Stall};

use crate::collect::log::EventLog;
use crate::handover::epoch::Remains;
use crate::threads::times::ThreadSeconds;

/// One device's part of an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackReport {
    /// Results that matched nothing: repeated, or of an epoch before.
    pub extra: u32,
    /// Why the device was lost in this epoch.
    pub lost: Option<String>,
    /// Why a job came to nothing, the latest one.
    pub last_failure: Option<String>,
}

/// An epoch after its end.
#[derive(Debug)]
pub struct EpochReport {
    /// Who delivered, lost, rescued and wasted how many batches.
    pub counts: Counts,
    /// One entry per device, in the order of `--csd`.
    pub back: Vec<BackReport>,
    /// Samples that the bad-sample policy was applied to.
    pub skipped: Vec<Skipped>,
    /// Samples that the caller's decoder decoded, as `ops` refused them.
    pub redecoded: Vec<Skipped>,
    /// Device batches that the host recomputed and found equal.
    pub audited: u64,
    /// Why the consumer waited.
    pub stall: Stall,
    /// What the epoch's threads used, prong by prong.
    pub cpu: ThreadSeconds,
    /// Seconds in which a finished batch waited for the consumer: the loader was ahead.
    pub backpressure_s: f64,
    /// What happened when.
    pub log: EventLog,
}

impl EpochReport {
    pub(crate) fn new(remains: Remains) -> Self {
        let (counts, back, log) = match remains.collected {
            Some(collected) => (collected.epoch.counts(), collected.back, collected.log),
            None => (Counts::default(), Vec::new(), EventLog::default()),
        };
        let back = back.into_iter().map(|link| BackReport {
            extra: link.extra,
            lost: link.lost,
            last_failure: link.last_failure,
        });
        Self {
            counts,
            back: back.collect(),
            skipped: remains.account.skipped,
            redecoded: remains.account.redecoded,
            audited: remains.account.audited,
            stall: remains.stall,
            cpu: remains.cpu,
            backpressure_s: remains.account.backpressure_s,
            log,
        }
    }
}
