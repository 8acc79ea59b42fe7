//! Why the consumer waits: seconds by cause.

use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// Seconds in which the consumer did not compute, by cause: waits as timed by the loader, and the
/// consumer's work between its steps as timed by the loop around them. Every moment has exactly one
/// cause, so the sum is the consumer's idle time
/// ([`AcceleratorResult::idle_s`](crate::AcceleratorResult::idle_s)), which is measured separately.
///
/// Where several consumers share an epoch, one of them at a time waits for the loader, whosever batch is next, and
/// that time counts once. The others' waits meanwhile do not count, nor does a wait for a consumer that has not
/// come for its batch yet. Waits for memory on a GPU count for each consumer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stall {
    /// The strategy: other batches were ready, but nobody was making the one whose turn it was.
    pub order: f64,
    /// The host's workers were waiting for records.
    pub read: f64,
    /// The host's workers were decoding and augmenting.
    pub decode: f64,
    /// A device had the batch.
    pub device: f64,
    /// The batch was being finished: bad samples replaced, a device audited, rows mixed.
    pub finish: f64,
    /// A device's batch was being converted to the output format (normalised, cast, laid out) in the
    /// slot in which it is delivered. The host's workers write this format directly.
    pub copy: f64,
    /// The consumer itself: its work between the steps (digests, checkpoints, observers), and waits
    /// for slots that it kept, or that its GPU had not finished with, on the host and on the GPU.
    pub consumer: f64,
}

impl Stall {
    /// The causes in the order in which a batch meets them: name and seconds.
    #[must_use]
    pub fn by_cause(&self) -> [(&'static str, f64); 7] {
        [
            ("order", self.order),
            ("read", self.read),
            ("decode", self.decode),
            ("device", self.device),
            ("finish", self.finish),
            ("copy", self.copy),
            ("consumer", self.consumer),
        ]
    }

    /// The sum: the consumer's idle seconds.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.by_cause().iter().map(|(_, seconds)| seconds).sum()
    }

    /// Seconds in which the consumer waited for the loader: all except its own.
    #[must_use]
    pub fn waited(&self) -> f64 {
        self.total() - self.consumer
    }

    fn with(self, other: Self, both: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            order: both(self.order, other.order),
            read: both(self.read, other.read),
            decode: both(self.decode, other.decode),
            device: both(self.device, other.device),
            finish: both(self.finish, other.finish),
            copy: both(self.copy, other.copy),
            consumer: both(self.consumer, other.consumer),
        }
    }
}

impl Add for Stall {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.with(other, |a, b| a + b)
    }
}

impl Sub for Stall {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.with(other, |a, b| a - b)
    }
}

impl AddAssign for Stall {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}
