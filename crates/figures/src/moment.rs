//! What happened when, and what the process used meanwhile.

use serde::{Deserialize, Serialize};

/// What happened to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// A prong took it on.
    Claimed,
    /// The host took on a batch that a device holds.
    Rescued,
    /// A prong finished it.
    Made,
    /// A device's claim came to nothing.
    Lost,
    /// It went to be handed over.
    Delivered,
}

/// One moment of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Seconds since the epoch began.
    pub t_s: f64,
    /// The batch, in plan order.
    pub batch: u32,
    /// `None` for the host, else the device's number.
    pub device: Option<u16>,
    /// What happened.
    #[serde(rename = "moment")]
    pub what: What,
}

/// What the host process had used at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct UsageSample {
    /// Seconds since the epoch began.
    pub t_s: f64,
    /// Processor seconds of this process since then.
    pub cpu_s: Option<f64>,
    /// Memory of this process, shared pages divided among those who share them.
    pub pss_bytes: Option<u64>,
}
