//! What happened when, what it adds up to, and what the process used meanwhile.

use std::ops::Add;

use serde::{Deserialize, Serialize};

use crate::stall::Stall;

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

/// Sums of one epoch so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counted {
    /// Samples delivered: the host's, the devices'.
    pub samples: [u64; 2],
    /// Seconds in which the consumer had no batch, by cause.
    pub stall: Stall,
    /// Seconds in which the accelerator computed.
    pub busy_s: f64,
}

impl Add for Counted {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            samples: [0, 1].map(|side| self.samples[side] + other.samples[side]),
            stall: self.stall + other.stall,
            busy_s: self.busy_s + other.busy_s,
        }
    }
}

/// What the host process had used at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct UsageSample {
    /// Seconds since the epoch began.
    pub t_s: f64,
    /// Processor seconds of this process since then.
    pub cpu_s: Option<f64>,
    /// Memory of this process, shared pages divided among those who share them. Where one epoch
    /// follows another it is, at the end of one and the beginning of the other, what was seen last.
    pub pss_bytes: Option<u64>,
}
