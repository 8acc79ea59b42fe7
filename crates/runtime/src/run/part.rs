//! How much of an epoch a run has done: the one that it was resumed in, and the one that it was stopped in.

use bothends_figures::EpochResult;

use crate::config::drive::DriveConfig;
use crate::error::RuntimeError;
use crate::runtime::host::{EpochOptions, Runtime};

/// An epoch's batches, as those of this run and those of earlier ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// Delivered before this run.
    n_before: u32,
    /// All others.
    n_left: u32,
}

impl Part {
    /// Of an epoch with these options.
    pub(crate) fn of(
        runtime: &Runtime,
        options: &EpochOptions,
    ) -> Result<Self, RuntimeError> {
        let n_planned = runtime.plan(options)?.n_batches();
        let n_done = options.done.iter().map(|(from, to)| to - from).sum();
        let n_passed = match options.start {
            0 => 0,
            _ => {
                let whole = EpochOptions { start: 0, ..options.clone() };
                runtime.plan(&whole)?.n_batches().saturating_sub(n_planned)
            }
        };
        let n_left = n_planned.saturating_sub(n_done);
        Ok(Self { n_before: n_passed.saturating_add(n_done), n_left })
    }

    /// Batches that were delivered before this run; `None` of an epoch that begins in it.
    pub(crate) fn resumed_at(self) -> Option<u32> {
        (self.n_before > 0).then_some(self.n_before)
    }

    /// Batches that have been delivered of an epoch that is over and of which this run has delivered `n`;
    /// `None` where those are all.
    pub(crate) fn stopped_at(self, n: u32) -> Option<u32> {
        (n < self.n_left).then(|| self.n_before.saturating_add(n))
    }
}

/// What stopped a run of `n_planned` epochs before its end.
pub(crate) fn stopped_by(
    how: &DriveConfig,
    epochs: &[EpochResult],
    n_planned: usize,
) -> Option<String> {
    let is_whole = epochs.last().is_none_or(|epoch| epoch.stopped_at.is_none());
    let is_whole = is_whole && epochs.len() == n_planned;
    let by = if how.stop.is_asked() { "asked" } else { "stop_after" };
    (!is_whole).then(|| by.to_owned())
}
