//! What an epoch knows about its devices in advance.

/// What an epoch is told of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Jobs outstanding at most (at least 1).
    pub slots: u32,
    /// Batches outstanding or waiting for delivery at most (at least 1).
    pub buffer: u32,
    /// Nanoseconds of one device batch, if known from before.
    pub prior_ns: Option<u64>,
    /// The shard of the data that it has; `None` when it has all.
    pub shard: Option<u16>,
    /// What its last answer in the epoch before was worth; [`Standing::New`] in the first.
    pub standing: Standing,
}

/// What a device's last answer was worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Standing {
    /// There is none since it joined, or it was a failure.
    #[default]
    New,
    /// It was a batch, but overdue.
    Late,
    /// It was a batch in time.
    Proven,
}

/// What happens when a device is lost or late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recovery {
    /// Its claims go back or are redone by the host.
    #[default]
    On,
    /// Nothing: the published behaviour of the schemes that `mte` and `wrr` follow. An
    /// epoch may then wait forever.
    Off,
}
