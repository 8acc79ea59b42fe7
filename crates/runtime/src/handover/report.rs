//! What an epoch was: who made what, what was lost, why the consumer waited. What its consumers took of it,
//! `deal/taken.rs` counts.

use bothends_core::epoch::Counts;
use bothends_figures::{Audits, Damaged, Skipped, Stall};

use crate::collect::log::EventLog;
use crate::collect::producer::LineReport;
use crate::handover::account::FeedAccount;
use crate::handover::epoch::Remains;
use crate::threads::times::ThreadSeconds;

/// An epoch after its end.
#[derive(Debug)]
pub struct EpochReport {
    /// Who delivered, lost, rescued and wasted how many batches.
    pub counts: Counts,
    /// One entry per device, in the order of `--csd`.
    pub back: Vec<LineReport>,
    /// Samples that the bad-sample policy was applied to.
    pub skipped: Vec<Skipped>,
    /// Samples that the caller's decoder decoded, as `ops` refused them.
    pub redecoded: Vec<Skipped>,
    /// Samples that were decoded in spite of a damage.
    pub damaged: Damaged,
    /// Device batches of which the host recomputed samples, and what came of it.
    pub audits: Audits,
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
        let Remains { collected, account, stall, cpu, .. } = remains;
        let (mut counts, back, log): (Counts, _, _) = match collected {
            Some(collected) => (collected.state.counts(), collected.back, collected.log),
            None => Default::default(),
        };
        let FeedAccount {
            backpressure_s,
            skipped,
            redecoded,
            damages,
            audits,
            made_again,
            n_samples: _,
        } = account;
        for device in made_again {
            let Some(of) = counts.back.get_mut(usize::from(device.0)) else { continue };
            // What it made was thrown away, and the host has delivered another one.
            of.delivered = of.delivered.saturating_sub(1);
            of.wasted += 1;
            counts.front.delivered += 1;
        }
        Self {
            counts,
            back,
            skipped,
            redecoded,
            damaged: damages.figures(),
            audits,
            stall,
            cpu,
            backpressure_s,
            log,
        }
    }
}
