//! The memory that batches take on the host: how much they need, and who gets how many slots.
//!
//! Numbers alone: nothing is allocated here. `runtime`, which is to be read next, makes the
//! rings of these sizes, and `slots` holds them.

use bothends_ops::Finish;

use crate::config::run::{MemoryBudget, RunConfig};
use crate::error::RuntimeError;

/// Jobs a device holds at once: one being made, one waiting, so that it never idles while a
/// result travels.
pub(crate) const DEVICE_DEPTH: u32 = 2;

/// Slots of batches in the output's form that the consumer does not hold: being converted, ready.
const CONVERTED: u32 = 2;

/// Feed, ready, and the one that is in nobody's hands for a moment; and the rescue slot outside
/// the front's quota. The consumer's come to them.
const OUTSIDE: u32 = 4;

/// The fewest slots that the front makes progress with, and the most that it has a use for.
const FRONT: (u32, u32) = (3, 16);

/// The most slots that a device has a use for.
const MOST_PER_DEVICE: u32 = 64;

/// What batches take, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    batch_size: u32,
    /// Batches that the consumer may hold.
    held: u32,
    /// One sample as a prong makes it.
    cut: usize,
    /// One sample's part of all batches in the output's form; 0 where the cut is the output.
    converted: usize,
    /// What mixing keeps beside the batch it mixes.
    kept: usize,
}

impl Sizes {
    /// Of batches whose samples have `cut` bytes and leave through `finish`.
    pub(crate) fn new(config: &RunConfig, cut: usize, finish: &Finish) -> Self {
        let batch_size = config.batch_size;
        let delivered = finish.sample_bytes();
        let n_kept = if finish.mixes() { finish.distance() } else { 0 };
        Self {
            batch_size,
            held: config.held_batches,
            cut,
            converted: if finish.is_identity() { 0 } else { delivered },
            kept: n_kept.min(batch_size as usize).saturating_mul(delivered),
        }
    }

    /// One slot that prongs fill.
    pub(crate) fn slot(self) -> usize {
        self.cut.saturating_mul(self.batch_size as usize)
    }

    /// One slot of a batch in the output's form; `None` where the cut is the output.
    pub(crate) fn converted_slot(self) -> Option<usize> {
        let slot = self.converted.saturating_mul(self.batch_size as usize);
        (self.converted > 0).then_some(slot)
    }

    /// Slots in the output's form.
    pub(crate) fn n_converted(self) -> u32 {
        self.held.saturating_add(CONVERTED)
    }

    /// Slots that are in no prong's quota.
    fn n_outside(self) -> u32 {
        self.held.saturating_add(OUTSIDE)
    }

    /// Everything but the slots that prongs fill.
    fn beside(self) -> usize {
        let slot = self.converted_slot().unwrap_or(0);
        slot.saturating_mul(self.n_converted() as usize).saturating_add(self.kept)
    }

    /// Everything, with so many slots.
    fn total(self, n_slots: u32) -> usize {
        self.slot().saturating_mul(n_slots as usize).saturating_add(self.beside())
    }

    /// The largest batch of such samples that fits into `budget`; 0 when none does.
    fn largest_batch(self, n_slots: u32, budget: usize) -> u32 {
        let sample = (self.cut.saturating_mul(n_slots as usize))
            .saturating_add(self.converted.saturating_mul(self.n_converted() as usize));
        let fits = budget.saturating_sub(self.kept) / sample.max(1);
        u32::try_from(fits).unwrap_or(u32::MAX)
    }
}

/// How many slots each prong may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) front: u32,
    pub(crate) per_device: u32,
    pub(crate) total: u32,
}

impl Room {
    /// Divides the budget. Every prong gets what it needs to make progress.
    ///
    /// # Errors
    /// [`RuntimeError::Memory`] when that is more than the budget's limit.
    pub(crate) fn divide(
        budget: MemoryBudget,
        sizes: Sizes,
        n_devices: u32,
    ) -> Result<Self, RuntimeError> {
        let for_devices = DEVICE_DEPTH.saturating_mul(n_devices);
        let outside = sizes.n_outside();
        let least = outside.saturating_add(FRONT.0).saturating_add(for_devices);
        let for_slots = match budget {
            MemoryBudget::Slots(bytes) => bytes,
            MemoryBudget::Total(bytes) if sizes.total(least) > bytes => {
                return Err(RuntimeError::Memory {
                    batch_size: sizes.batch_size,
                    given_bytes: bytes,
                    least_bytes: sizes.total(least),
                    largest_batch: sizes.largest_batch(least, bytes),
                });
            }
            MemoryBudget::Total(bytes) => bytes - sizes.beside(),
        };
        let afford = u32::try_from(for_slots / sizes.slot().max(1)).unwrap_or(u32::MAX);
        let share = afford.min(4096).max(least) - outside;
        let front = (share / 3).clamp(FRONT.0, FRONT.1).min(share - for_devices);
        let left = share - front;
        let per_device = left.checked_div(n_devices).unwrap_or(0).min(MOST_PER_DEVICE);
        Ok(Self { front, per_device, total: outside + front + per_device * n_devices })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 256 samples of DINO in f32: ten views, 522,240 bytes before they are converted.
    const DINO: Sizes =
        Sizes { batch_size: 256, held: 1, cut: 522_240, converted: 4 * 522_240, kept: 0 };

    #[test]
    fn memory_that_batches_cannot_do_with_is_refused_with_what_they_can() {
        let n_bytes = |n_samples: usize| n_samples * 522_240 * (8 + 3 * 4);
        let budget = MemoryBudget::Total(32 << 20);
        let refused = Room::divide(budget, DINO, 0).unwrap_err();
        let RuntimeError::Memory { least_bytes, largest_batch, .. } = refused else {
            panic!("{refused}")
        };
        assert_eq!((least_bytes, largest_batch), (n_bytes(256), 3));
        for (bytes, batch_size) in [(least_bytes, 256), (32 << 20, 3)] {
            let sizes = Sizes { batch_size, ..DINO };
            assert!(Room::divide(MemoryBudget::Total(bytes), sizes, 0).is_ok());
        }
        let budget = MemoryBudget::Total(least_bytes - 1);
        assert!(Room::divide(budget, DINO, 0).is_err());
    }

    #[test]
    fn without_a_limit_prongs_get_what_they_need() {
        let room = Room::divide(MemoryBudget::Slots(0), DINO, 3).unwrap();
        assert_eq!(room, Room { front: 3, per_device: 2, total: 5 + 3 + 6 });
    }

    #[test]
    fn a_limit_is_held_and_nobody_starves() {
        let sizes = [(0, 0), (100, 0), (400, 3200)].map(|(converted, kept)| Sizes {
            batch_size: 32,
            held: 1,
            cut: 100,
            converted,
            kept,
        });
        for (sizes, n_devices) in
            sizes.into_iter().flat_map(|s| (0..30).map(move |n| (s, n)))
        {
            for bytes in (0..1_000_000).step_by(997) {
                match Room::divide(MemoryBudget::Total(bytes), sizes, n_devices) {
                    Ok(room) => {
                        assert!(sizes.total(room.total) <= bytes, "{room:?} of {bytes}");
                        assert!(room.front >= FRONT.0, "{room:?}");
                        assert!(n_devices == 0 || room.per_device >= DEVICE_DEPTH);
                    }
                    Err(RuntimeError::Memory { least_bytes, largest_batch, .. }) => {
                        assert!(least_bytes > bytes && largest_batch < 32);
                        let enough = MemoryBudget::Total(least_bytes);
                        assert!(Room::divide(enough, sizes, n_devices).is_ok());
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }
}
