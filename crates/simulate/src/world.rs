//! What is simulated: a host, devices, links, an accelerator, and what goes wrong.
//!
//! All times are virtual nanoseconds. Only values; what they do is in `play.rs`.

use bothends_core::epoch::Recovery;
use bothends_core::objective::Objective;
use bothends_core::select::StrategyConfig;
use serde::Deserialize;

/// One epoch's world, as one rank sees it.
#[derive(Debug, Clone)]
pub struct World {
    /// Batches of the epoch.
    pub n_batches: u32,
    /// Who claims what, what is delivered next.
    pub strategy: StrategyConfig,
    /// What the epoch is run for.
    pub objective: Objective,
    /// Whether the host stands in for lost and late devices.
    pub recovery: Recovery,
    /// The host.
    pub host: Host,
    /// The devices.
    pub devices: Vec<Device>,
    /// Shards of the data that the batches are dealt to in turn; 1 where every device has
    /// all of it.
    pub shards: u16,
    /// What devices send their results over; each serves one result at a time.
    pub links: Vec<Link>,
    /// Bytes of a batch on a link.
    pub batch_bytes: u64,
    /// The accelerator.
    pub accelerator: Accelerator,
    /// How much dearer the epoch's last batch is than its first, for host and devices, as a
    /// factor on both sides of 1: 0.25 makes costs rise from 0.75 to 1.25.
    pub slope: f64,
    /// Seed of all noise.
    pub seed: u64,
}

/// The host's workers.
#[derive(Debug, Clone, Copy)]
pub struct Host {
    /// Mean time of a batch, all workers together.
    pub batch_ns: u64,
    /// Batches made side by side, each at `1 / parallel` of the rate.
    pub parallel: u32,
    /// As in `FrontConfig`.
    pub quota: u32,
    /// Coefficient of variation of a batch's time.
    pub cv: f64,
    /// A time in which it is slower.
    pub slowdown: Option<Slowdown>,
    /// What the strategy is told beforehand: so many times `batch_ns`, 1 being the truth;
    /// `None`: nothing.
    pub prior: Option<f64>,
}

/// A device: one batch at a time, the others wait in its queue.
#[derive(Debug, Clone)]
pub struct Device {
    /// Mean time of a batch.
    pub batch_ns: u64,
    /// As in `DeviceConfig`.
    pub slots: u32,
    /// As in `DeviceConfig`.
    pub buffer: u32,
    /// Coefficient of variation of a batch's time.
    pub cv: f64,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// When it is away.
    pub absence: Option<Absence>,
    /// How its rate changes by itself.
    pub drift: Option<Drift>,
    /// The link that its results go over: a place in `World::links`.
    pub link: Option<usize>,
    /// From the end of a batch (and its way over the link) until the host has it.
    pub latency_ns: u64,
    /// Finished batches that it can hold until they have gone over the link; with so many it
    /// stands still (at least 1).
    pub outputs: u32,
    /// The shard of the data that it has; `None` when it has all.
    pub shard: Option<u16>,
    /// What the strategy is told beforehand: so many times `batch_ns`, 1 being the truth;
    /// `None`: nothing.
    pub prior: Option<f64>,
}

impl Device {
    /// A device with all the data, next to the host, that never changes and never fails.
    #[must_use]
    pub fn steady(batch_ns: u64) -> Self {
        Self {
            batch_ns,
            slots: 1,
            buffer: 32,
            cv: 0.0,
            faults: Vec::new(),
            absence: None,
            drift: None,
            link: None,
            latency_ns: 0,
            outputs: u32::MAX,
            shard: None,
            prior: Some(1.0),
        }
    }
}

/// A device leaves (this is reported) and comes back, again and again.
#[derive(Debug, Clone, Copy)]
pub struct Absence {
    /// When it leaves first.
    pub first_ns: u64,
    /// How long it stays away.
    pub for_ns: u64,
    /// From one leaving to the next; more than `for_ns`.
    pub every_ns: u64,
}

/// A device's time for a batch goes up and down as a sine.
#[derive(Debug, Clone, Copy)]
pub struct Drift {
    /// 0.5: between half and one and a half times its mean.
    pub amplitude: f64,
    /// From one slowest moment to the next.
    pub period_ns: u64,
}

/// What several devices send their results over.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its bandwidth.
    pub bytes_per_s: u64,
}

/// What takes the batches.
#[derive(Debug, Clone, Copy)]
pub struct Accelerator {
    /// Time of a step.
    pub step_ns: u64,
    /// Lost before each step under `wrr`, which looks for a device's batch each time.
    pub poll_ns: u64,
    /// Whether the strategy is told `step_ns`.
    pub known: bool,
}

/// The host is slower in a part of its work.
#[derive(Debug, Clone, Copy)]
pub enum Slowdown {
    /// Once it has made so many batches: a neighbour arrives.
    After {
        /// In percent of the epoch's batches.
        percent: u32,
        /// Factor on the time of a batch.
        factor: f64,
    },
    /// In its first batches: cold caches.
    First {
        /// Number of batches.
        batches: u32,
        /// Factor on the time of a batch.
        factor: f64,
    },
}

/// What goes wrong with a device. A repeated completion is not here: the claim it would
/// finish is consumed, so it cannot reach the epoch's state.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// It is gone, and this is reported, when so many percent of the epoch are delivered.
    Die {
        /// Percent of the epoch.
        percent: u32,
    },
    /// It does nothing for a while, and nobody says so. `u64::MAX`: for ever.
    Stall {
        /// Percent of the epoch.
        percent: u32,
        /// For how long.
        ns: u64,
    },
    /// It is slower from then on.
    Throttle {
        /// Percent of the epoch.
        percent: u32,
        /// Factor on the time of a batch.
        factor: f64,
    },
    /// Its first batches take twice their time.
    SlowStart {
        /// Number of batches.
        batches: u32,
    },
    /// Each batch with this probability takes five times its time.
    Late {
        /// Percent of its batches.
        percent: u32,
    },
    /// Each batch with this probability is rubbish, which the host notices.
    Corrupt {
        /// Percent of its batches.
        percent: u32,
    },
}
