//! A delivered batch: the end of a sample's walk through the house.

use std::time::Instant;

use bothends_accel::Slot;
use bothends_core::ids::{BatchIdx, Label, Prong, SampleId};
use crossbeam::channel::Sender;

use crate::collect::Event;

/// One row of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The sample, or `None` in a masked slot (policy `pad`): its bytes are zero.
    pub sample: Option<SampleId>,
    /// Its class; -1 in a masked slot.
    pub label: Label,
}

/// A batch in the consumer's hands. Dropping it gives its slot back to the ring.
#[derive(Debug)]
pub struct Batch {
    /// Its place in the plan.
    pub index: BatchIdx,
    /// Who made it. For accounts only: the bytes do not depend on it.
    pub prong: Prong,
    /// When its last byte was in place.
    pub ready: Instant,
    pub(crate) rows: Vec<Row>,
    pub(crate) sample_bytes: usize,
    pub(crate) slot: Slot,
    /// Behind the slot: it tells of the slot's return, so it is dropped after it.
    #[expect(dead_code, reason = "it acts when it is dropped")]
    pub(crate) release: Release,
}

/// Tells the collector, when dropped, that a slot is free again.
#[derive(Debug)]
pub(crate) struct Release(Sender<Event>);

impl Release {
    pub(crate) fn new(tell: Sender<Event>) -> Self {
        Self(tell)
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        // A full queue means that the collector is about to look anyway.
        let _ = self.0.try_send(Event::Released);
    }
}

impl Batch {
    /// The rows in order. Fewer than the batch size where bad samples were skipped.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Rows that hold a sample.
    #[must_use]
    pub fn n_valid(&self) -> u32 {
        let n = self.rows.iter().filter(|row| row.sample.is_some()).count();
        u32::try_from(n).unwrap_or(u32::MAX)
    }

    /// Bytes of one sample as delivered.
    #[must_use]
    pub fn sample_bytes(&self) -> usize {
        self.sample_bytes
    }

    /// The bytes of row `i`; empty when there is no such row.
    #[must_use]
    pub fn sample(&self, i: usize) -> &[u8] {
        let start = i * self.sample_bytes;
        self.slot.get(start..start + self.sample_bytes).unwrap_or(&[])
    }

    /// All rows' bytes, one behind the other.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.slot[..self.rows.len() * self.sample_bytes]
    }
}
