//! The ring of slots: all memory that batches are made in, allocated once.
//!
//! A ring bounds the run: to make a batch, take a slot or wait for one. It does not know what is in a
//! slot. Read `slot.rs` next.

use std::sync::Arc;
use std::time::Duration;

use crate::SlotError;
use crate::heap::Heap;
use crate::memory::{Kind, Memory};
use crate::pool::Pool;
use crate::slot::Slot;

/// How much memory a ring has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingConfig {
    /// Slots; at least 1.
    pub n_slots: u32,
    /// Bytes of one slot; at least 1.
    pub slot_bytes: usize,
}

/// A fixed number of equal slots. Cloning gives another handle on the same slots; the
/// memory is freed when the last handle and the last slot are gone.
#[derive(Debug, Clone)]
pub struct Ring {
    config: RingConfig,
    pool: Arc<Pool>,
}

impl Ring {
    /// Allocates all slots, as zeros, in ordinary memory of this process.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn new(config: RingConfig) -> Result<Self, SlotError> {
        Self::of(&Heap, config)
    }

    /// Allocates all slots, as zeros, in memory of this kind.
    ///
    /// # Errors
    /// [`SlotError::RingSize`] for a size of 0 or beyond the address space;
    /// [`SlotError::OutOfMemory`] and [`SlotError::Registration`].
    pub fn of(kind: &dyn Kind, config: RingConfig) -> Result<Self, SlotError> {
        let RingConfig { n_slots, slot_bytes } = config;
        let impossible = || SlotError::RingSize { n_slots, slot_bytes };
        if n_slots == 0 {
            return Err(impossible());
        }
        let free = (0..n_slots)
            .map(|_| Memory::new(kind, slot_bytes).ok_or_else(impossible)?)
            .collect::<Result<Vec<_>, SlotError>>()?;
        Ok(Self { config, pool: Arc::new(Pool::new(free)) })
    }

    /// Takes a free slot, waiting up to `timeout` for one; `None` when all stayed taken.
    ///
    /// The slot holds whatever the batch before left in it.
    #[must_use]
    pub fn take(&self, timeout: Duration) -> Option<Slot> {
        Some(Slot::new(self.pool.take(timeout)?, Arc::clone(&self.pool)))
    }

    /// Slots that nobody has at this moment.
    #[must_use]
    pub fn free(&self) -> u32 {
        u32::try_from(self.pool.n_free()).unwrap_or(u32::MAX)
    }

    /// All slots, free and taken.
    #[must_use]
    pub fn n_slots(&self) -> u32 {
        self.config.n_slots
    }

    /// Bytes of one slot.
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.config.slot_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(n_slots: u32, slot_bytes: usize) -> Ring {
        Ring::new(RingConfig { n_slots, slot_bytes }).unwrap()
    }

    #[test]
    fn a_ring_has_as_many_slots_as_it_says() {
        let ring = ring(3, 100);
        let slots: Vec<_> =
            (0..3).map(|_| ring.take(Duration::ZERO).expect("a free slot")).collect();
        assert_eq!(ring.free(), 0);
        assert!(ring.take(Duration::ZERO).is_none());
        drop(slots);
        assert_eq!(ring.free(), 3);
    }

    #[test]
    fn who_waits_gets_the_slot_that_comes_back() {
        let ring = ring(1, 8);
        let mut slot = ring.take(Duration::ZERO).unwrap().host().unwrap();
        slot[0] = 42;
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| ring.take(Duration::from_secs(60)));
            drop(slot);
            let slot = waiting.join().unwrap().expect("the slot").host().unwrap();
            assert_eq!(slot[0], 42);
        });
    }

    #[test]
    fn a_slot_may_outlive_its_ring() {
        let slot = {
            let ring = ring(2, 5000);
            ring.take(Duration::ZERO).unwrap().host().unwrap()
        };
        assert!(slot.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for (n_slots, slot_bytes) in
            [(0, 1), (1, 0), (1, usize::MAX), (1, usize::MAX / 2)]
        {
            let error = Ring::new(RingConfig { n_slots, slot_bytes }).unwrap_err();
            assert!(matches!(error, SlotError::RingSize { .. }), "{error}");
        }
        let error =
            Ring::new(RingConfig { n_slots: 1, slot_bytes: 1 << 60 }).unwrap_err();
        assert!(matches!(error, SlotError::OutOfMemory { .. }), "{error}");
    }
}
