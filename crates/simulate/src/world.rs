//! What is simulated: a host, devices, links, an accelerator, and faults.
//!
//! All times are virtual nanoseconds. These are only values; `play.rs` has the behaviour.

use bothends_core::epoch::Recovery;
use bothends_core::objective::Objective;
use bothends_core::select::StrategyConfig;
use serde::Deserialize;

/// One epoch's world, as one rank sees it.
#[derive(Debug, Clone)]
pub struct World {
    /// Batches of the epoch.
    pub n_batches: u32,
    /// The strategy: who claims what, and what is delivered next.
    pub strategy: StrategyConfig,
    /// The objective of the epoch.
    pub objective: Objective,
    /// Whether the host stands in for lost and late devices.
    pub recovery: Recovery,
    /// The host.
    pub host: Host,
    /// The devices.
    pub devices: Vec<Device>,
    /// The number of shards to which batches are assigned round-robin; 1 if every device has all data.
    pub shards: u16,
    /// The links for the results of devices; each carries one result at a time.
    pub links: Vec<Link>,
    /// Bytes of a batch on a link.
    pub batch_bytes: u64,
    /// The accelerator.
    pub accelerator: Accelerator,
    /// How much more the epoch's last batch costs than its first, for host and devices, as a deviation
    /// from 1 in both directions: with 0.25, costs rise from 0.75 to 1.25.
    pub slope: f64,
    /// The seed of all noise.
    pub seed: u64,
}

/// The host's workers.
#[derive(Debug, Clone, Copy)]
pub struct Host {
    /// The mean time of a batch with all workers together.
    pub batch_ns: u64,
    /// The number of batches made in parallel, each at `1 / parallel` of the rate.
    pub parallel: u32,
    /// As in `FrontConfig`.
    pub quota: u32,
    /// Coefficient of variation of a batch's time.
    pub cv: f64,
    /// A period in which it is slower.
    pub slowdown: Option<Slowdown>,
    /// What the strategy knows in advance, as a multiple of `batch_ns`: 1 is the truth, `None` is
    /// nothing.
    pub prior: Option<f64>,
    /// Where its records come over a link.
    pub records: Option<Records>,
}

/// The records of a host that fetches them: those of a batch cross the link before the batch is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Records {
    /// The link, which results of devices may share: an index of `World::links`.
    pub link: usize,
    /// Bytes of the records of a batch.
    pub batch_bytes: u64,
}

/// A device: it makes one batch at a time, and others wait in its queue.
#[derive(Debug, Clone)]
pub struct Device {
    /// The mean time of a batch.
    pub batch_ns: u64,
    /// As in `DeviceConfig`.
    pub slots: u32,
    /// As in `DeviceConfig`.
    pub buffer: u32,
    /// Coefficient of variation of a batch's time.
    pub cv: f64,
    /// Its faults.
    pub faults: Vec<Fault>,
    /// When it is absent.
    pub absence: Option<Absence>,
    /// How its rate drifts.
    pub drift: Option<Drift>,
    /// The link for its results: an index of `World::links`.
    pub link: Option<usize>,
    /// The time from the end of a batch (and its transfer over the link) until the host has it.
    pub latency_ns: u64,
    /// How many finished batches it can hold until they are transferred, at least 1; with this many, it
    /// stops.
    pub outputs: u32,
    /// The shard of the data that it has; `None` if it has all data.
    pub shard: Option<u16>,
    /// What the strategy knows in advance, as a multiple of `batch_ns`: 1 is the truth, `None` is
    /// nothing.
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

/// A device leaves (which is reported) and comes back, repeatedly.
#[derive(Debug, Clone, Copy)]
pub struct Absence {
    /// When it first leaves.
    pub first_ns: u64,
    /// How long it stays away.
    pub for_ns: u64,
    /// The time from one departure to the next; more than `for_ns`.
    pub every_ns: u64,
}

/// A device's time per batch varies as a sine.
#[derive(Debug, Clone, Copy)]
pub struct Drift {
    /// 0.5: between half and one and a half times its mean.
    pub amplitude: f64,
    /// The period: the time from one slowest moment to the next.
    pub period_ns: u64,
}

/// A link that several devices may share.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its bandwidth.
    pub bytes_per_s: u64,
}

/// The consumer of the batches.
#[derive(Debug, Clone, Copy)]
pub struct Accelerator {
    /// The time of a step.
    pub step_ns: u64,
    /// Time lost before each step under `wrr`, which looks for a device's batch each time.
    pub poll_ns: u64,
    /// Whether the strategy knows `step_ns`.
    pub known: bool,
}

/// The host is slower during a part of its work.
#[derive(Debug, Clone, Copy)]
pub enum Slowdown {
    /// From a point on, because a neighbour arrives.
    After {
        /// When, in percent of the epoch's batches.
        percent: u32,
        /// The factor for the time of a batch.
        factor: f64,
    },
    /// During its first batches, because caches are cold.
    First {
        /// The number of batches.
        batches: u32,
        /// The factor for the time of a batch.
        factor: f64,
    },
}

/// A fault of a device. Repeated completions are not among them: the claim that one would finish is
/// already consumed, so it cannot reach the state of the epoch.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// It is lost, which is reported, when this percentage of the epoch has been delivered.
    Die {
        /// When, in percent of the epoch.
        percent: u32,
    },
    /// It silently does nothing for a while; `u64::MAX` means forever.
    Stall {
        /// When, in percent of the epoch.
        percent: u32,
        /// For how long.
        ns: u64,
    },
    /// It is slower from a point on.
    Throttle {
        /// When, in percent of the epoch.
        percent: u32,
        /// The factor for the time of a batch.
        factor: f64,
    },
    /// Its first batches take twice their time.
    SlowStart {
        /// The number of batches.
        batches: u32,
    },
    /// With this probability, a batch takes five times as long.
    Late {
        /// Percent of its batches.
        percent: u32,
    },
    /// With this probability, a batch is corrupt, which the host notices.
    Corrupt {
        /// Percent of its batches.
        percent: u32,
    },
}
