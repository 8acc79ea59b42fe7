//! What happened when, the sums so far, and what the process used in the meantime.

use std::ops::Add;

use serde::{Deserialize, Serialize};

use crate::stall::Stall;

/// What happened to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// A prong claimed it.
    Claimed,
    /// The host claimed a batch that a device holds.
    Rescued,
    /// A prong finished it.
    Made,
    /// A device's claim was lost.
    Lost,
    /// It was handed over.
    Delivered,
}

/// One event of one batch.
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
    /// Samples delivered: made by the host, made by devices.
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
    /// CPU seconds of this process since then.
    pub cpu_s: Option<f64>,
    /// Memory of this process, with shared pages divided among the processes that share them. Between
    /// two epochs, the end of one and the start of the next have the last value seen.
    pub pss_bytes: Option<u64>,
}
