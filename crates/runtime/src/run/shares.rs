//! Whose time an epoch is, besides the loader's (`collect/stall.rs`).

use std::time::{Duration, Instant};

/// Shares without gaps between.
#[derive(Debug)]
pub(crate) struct Shares {
    pub(crate) since: Instant,
    /// In the accelerator's steps.
    pub(crate) steps: Duration,
    /// In the consumer's work between the steps: digests, checkpoints, whoever watches.
    pub(crate) own: Duration,
}

impl Shares {
    /// Of an epoch that begins.
    pub(crate) fn begin(since: Instant) -> Self {
        Self { since, steps: Duration::ZERO, own: Duration::ZERO }
    }

    /// Until now it was the consumer's own time.
    pub(crate) fn own(&mut self) {
        let took = self.lap();
        self.own += took;
    }

    /// Until now the accelerator computed.
    pub(crate) fn step(&mut self) {
        let took = self.lap();
        self.steps += took;
    }

    /// Until now the loader was waited for.
    pub(crate) fn waited(&mut self) {
        self.lap();
    }

    fn lap(&mut self) -> Duration {
        let since = std::mem::replace(&mut self.since, Instant::now());
        self.since - since
    }
}
