//! Everything about one epoch that is decided, none of it done.

use crate::claim::Claim;
use crate::ids::{BatchIdx, DeviceIdx, Ns};
use crate::select::StrategyConfig;

/// What an epoch is told before it starts.
#[derive(Debug, Clone)]
pub struct EpochConfig {
    /// Batches of the epoch, delivered ones included.
    pub n_batches: u32,
    /// Who claims what, what is delivered next.
    pub strategy: StrategyConfig,
    /// The host.
    pub front: FrontConfig,
    /// The devices; their numbers are their places here.
    pub devices: Vec<DeviceConfig>,
    /// Nanoseconds the accelerator takes for a batch; `None` when unknown or at once.
    pub accelerator_ns: Option<u64>,
    /// Batches that an earlier part of this epoch delivered: half-open ranges.
    pub done: Vec<(u32, u32)>,
    /// What happens when a device is lost or late.
    pub recovery: Recovery,
}

/// What an epoch is told of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontConfig {
    /// Batches the host makes side by side, each at `1 / parallel` of its rate (at least 1):
    /// the number of workers where each makes a batch of its own, 1 where they share one.
    pub parallel: u32,
    /// Batches that are being made or wait for delivery at most (at least 1). Beyond it
    /// the host takes one batch more only if delivery waits for that very batch, so memory
    /// is bounded by `quota + 1` plus the devices' `buffer`s.
    pub quota: u32,
    /// Nanoseconds of one host batch (all workers together), if known from before.
    pub prior_ns: Option<u64>,
}

/// What an epoch is told of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Jobs outstanding at most (at least 1).
    pub slots: u32,
    /// Batches outstanding or waiting for delivery at most (at least 1).
    pub buffer: u32,
    /// Nanoseconds of one device batch, if known from before.
    pub prior_ns: Option<u64>,
}

/// What happens when a device is lost or late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recovery {
    /// Its claims go back or are redone by the host.
    #[default]
    On,
    /// Nothing: the published behaviour of the schemes that `mte` and `wrr` follow. An
    /// epoch may then wait for ever.
    Off,
}

/// What is delivered next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// This batch. It is not picked again; say [`EpochState::delivered`] when it was taken.
    Deliver(BatchIdx),
    /// Nothing yet: ask again after the next event, or at [`EpochState::wake_at`].
    Wait,
    /// Every batch has been picked.
    End,
}

/// What became of a finished batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// It counts: keep it until it is delivered.
    Committed,
    /// Somebody else was first, or the claim had been taken away: throw the bytes away.
    Wasted,
}

/// What has happened in an epoch so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// The host's share.
    pub front: ProngCounts,
    /// Each device's share.
    pub back: Vec<ProngCounts>,
    /// Device claims that the host began to redo.
    pub rescued: u32,
    /// Claims that were dropped; 0 in a healthy run.
    pub returned: u32,
    /// Most device batches that ever waited for delivery at once.
    pub peak_waiting: u32,
    /// Batches delivered, as half-open ranges in rising order, the resumed ones included.
    pub delivered: Vec<(u32, u32)>,
}

/// What one prong has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProngCounts {
    /// Batches delivered that this prong made.
    pub delivered: u32,
    /// Batches finished that did not count.
    pub wasted: u32,
    /// Claims that ended without a batch: failed, corrupt, or gone with the device.
    pub lost: u32,
    /// Batches finished after they had been declared overdue.
    pub late: u32,
}

/// One epoch: its books, its rates and its strategy. Takes questions and events with the
/// caller's time; never blocks.
#[derive(Debug)]
pub struct EpochState {
    config: EpochConfig,
}

impl EpochState {
    /// An epoch in which nothing has happened.
    #[must_use]
    pub fn new(config: EpochConfig) -> Self {
        Self { config }
    }

    /// The host has a free hand: what it makes next. A rescue comes first.
    pub fn next_front(&mut self, now: Ns) -> Option<Claim> {
        let _ = (now, &self.config);
        None
    }

    /// A device has a free job slot: what it makes next.
    pub fn next_back(&mut self, device: DeviceIdx, now: Ns) -> Option<Claim> {
        let _ = (device, now);
        None
    }

    /// The consumer has room: what it gets next.
    pub fn next_delivery(&mut self, now: Ns) -> Pick {
        let _ = now;
        Pick::End
    }

    /// When to ask again though nothing happened; later than `now`.
    #[must_use]
    pub fn wake_at(&self, now: Ns) -> Option<Ns> {
        let _ = now;
        None
    }

    /// A batch is made. `work_ns` is the prong's own time for it: worker-nanoseconds divided
    /// by workers on the host, device time on a device.
    pub fn finish(&mut self, claim: Claim, work_ns: u64, now: Ns) -> Finish {
        let _ = (claim.close(), work_ns, now);
        Finish::Wasted
    }

    /// A batch could not be made (failed, corrupt): it becomes free again and is counted.
    pub fn give_back(&mut self, claim: Claim, now: Ns) {
        let _ = (claim.close(), now);
    }

    /// A device had no room for the claim: it becomes free again, and nothing is counted.
    pub fn refused(&mut self, claim: Claim, now: Ns) {
        let _ = (claim.close(), now);
    }

    /// A device is gone. Claims it held are void; finishing one is harmless.
    pub fn device_lost(&mut self, device: DeviceIdx, now: Ns) {
        let _ = (device, now);
    }

    /// A lost device is back.
    pub fn device_joined(&mut self, device: DeviceIdx, now: Ns) {
        let _ = (device, now);
    }

    /// The consumer took a picked batch.
    pub fn delivered(&mut self, batch: BatchIdx, now: Ns) {
        let _ = (batch, now);
    }

    /// What has happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts::default()
    }
}
