//! Why the consumer waits: seconds by cause.

use serde::{Deserialize, Serialize};

/// Seconds by cause. The first four are the consumer's waits for a batch; `consumer` is its
/// own work before it gives the batch to the accelerator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// Workers had no records.
    pub read: f64,
    /// Workers were decoding.
    pub decode: f64,
    /// A device held the batch.
    pub device: f64,
    /// The batch was being converted and handed over.
    pub copy: f64,
    /// The consumer had the batch and was busy with it (digests).
    pub consumer: f64,
}

impl std::ops::AddAssign for Stall {
    fn add_assign(&mut self, other: Self) {
        self.read += other.read;
        self.decode += other.decode;
        self.device += other.device;
        self.copy += other.copy;
        self.consumer += other.consumer;
    }
}

impl Stall {
    /// Seconds in which the consumer waited.
    #[must_use]
    pub fn waited(&self) -> f64 {
        self.read + self.decode + self.device + self.copy
    }
}
