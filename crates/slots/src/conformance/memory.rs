//! Checks of a [`Kind`] of memory, and of owners of its slots.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Backing, Heap, Kind, Registration, Ring, RingConfig, SLOT_ALIGN, SlotError};

/// Sizes that have gone wrong somewhere: one byte, round a page, a batch.
const SIZES: [usize; 5] = [1, 4095, 4096, 4097, 602_112];

/// Every check of a kind.
pub fn all(kind: &dyn Kind) {
    assert!(!kind.name().is_empty(), "a kind without a name");
    impossible_sizes_are_refused(kind);
    slots_have_the_bytes_they_say(kind);
    what_was_written_stays(kind);
}

/// No bytes, and more than can be addressed.
pub fn impossible_sizes_are_refused(kind: &dyn Kind) {
    for slot_bytes in [0, usize::MAX, usize::MAX / 2] {
        let made = Ring::of(kind, RingConfig { n_slots: 1, slot_bytes });
        assert!(
            matches!(
                made,
                Err(SlotError::RingSize { .. } | SlotError::OutOfMemory { .. })
            ),
            "a slot of {slot_bytes} bytes"
        );
    }
}

/// Zeros, aligned, where the host can address them; else no bytes to be had.
pub fn slots_have_the_bytes_they_say(kind: &dyn Kind) {
    for slot_bytes in SIZES {
        let ring = ring(kind, slot_bytes);
        let slot = ring.take(Duration::ZERO).expect("a free slot");
        assert_eq!((slot.len(), slot.kind()), (slot_bytes, kind.name()));
        let Ok(slot) = slot.host() else { continue };
        assert_eq!(slot.len(), slot_bytes);
        assert_eq!(slot.as_ptr().addr() % SLOT_ALIGN, 0, "an address not aligned");
        assert!(slot.iter().all(|&byte| byte == 0), "memory that is not zeros");
    }
}

/// Slots are apart from each other, and keep their bytes while they wait in the ring.
pub fn what_was_written_stays(kind: &dyn Kind) {
    let ring = ring(kind, 5000);
    let take = || (0..2).filter_map(|_| ring.take(Duration::ZERO)?.host().ok());
    let mut written: Vec<_> = take().collect();
    for (slot, byte) in written.iter_mut().zip(1..) {
        slot.fill(byte);
    }
    drop(written);
    let slots: Vec<_> = take().collect();
    let found: BTreeSet<u8> = slots.iter().map(|slot| slot[4999]).collect();
    assert!(found.is_empty() || found == BTreeSet::from([1, 2]), "{found:?}");
}

fn ring(kind: &dyn Kind, slot_bytes: usize) -> Ring {
    Ring::of(kind, RingConfig { n_slots: 2, slot_bytes }).expect("memory for two slots")
}

// ---- who keeps slots ----------------------------------------------------------------------

/// Somebody who keeps slots of a kind: a ring.
pub trait Keeper {
    /// A slot, to be dropped by whoever has it.
    fn take(&self) -> Option<Box<dyn Send>>;
}

impl Keeper for Ring {
    fn take(&self) -> Option<Box<dyn Send>> {
        Some(Box::new(Self::take(self, Duration::ZERO)?))
    }
}

/// Makes a keeper of two slots of 4,096 bytes.
pub type Keep<'a> = &'a dyn Fn(&dyn Kind) -> Box<dyn Keeper>;

/// Drops a keeper and its slots in some order.
type End = fn(Box<dyn Keeper>, Vec<Box<dyn Send>>);

/// A registration ends before its memory is freed, whoever of keeper and slot goes first, and
/// nothing stays registered or allocated.
pub fn registrations_end_before_their_memory(keep: Keep<'_>) {
    let orders: [End; 3] = [
        |keeper, slots| drop((slots, keeper)),
        |keeper, slots| {
            drop(keeper);
            drop(slots);
        },
        |keeper, mut slots| {
            drop(slots.pop());
            drop(keeper);
            drop(slots);
        },
    ];
    for end in orders {
        let kind = Watched::default();
        let keeper = keep(&kind);
        let slots: Vec<_> = (0..2).filter_map(|_| keeper.take()).collect();
        assert_eq!(slots.len(), 2, "two slots");
        assert_eq!(locked(&kind.0).registered.len(), 2, "every slot is registered");
        end(keeper, slots);
        let log = locked(&kind.0);
        assert_eq!(log.freed_while_registered, 0, "memory was freed while registered");
        assert!(log.registered.is_empty(), "registrations outlived their memory");
        assert!(log.allocated.is_empty(), "memory was never freed");
    }
}

/// Memory that watches what becomes of it.
#[derive(Debug, Default)]
struct Watched(Arc<Mutex<Log>>);

#[derive(Debug, Default)]
struct Log {
    allocated: BTreeSet<usize>,
    registered: BTreeSet<usize>,
    freed_while_registered: u32,
}

/// Frees the memory at an address; next to the bytes, which it keeps until it has reported it.
#[derive(Debug)]
struct Freeing {
    log: Arc<Mutex<Log>>,
    number: usize,
}

#[derive(Debug)]
struct Registered {
    log: Arc<Mutex<Log>>,
    number: usize,
}

fn locked(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Freeing {
    fn drop(&mut self) {
        let mut log = locked(&self.log);
        log.allocated.remove(&self.number);
        log.freed_while_registered += u32::from(log.registered.contains(&self.number));
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        locked(&self.log).registered.remove(&self.number);
    }
}

impl Registration for Registered {}

impl Kind for Watched {
    fn name(&self) -> &'static str {
        "watched"
    }

    fn allocate(&self, bytes: usize) -> Option<Result<Backing, SlotError>> {
        // The host need not look into it.
        drop(Heap.allocate(bytes)?);
        let number = locked(&self.0).allocated.last().map_or(0, |last| last + 1);
        locked(&self.0).allocated.insert(number);
        let owner = Freeing { log: Arc::clone(&self.0), number };
        Some(Ok(Backing::of_device(bytes, Box::new(owner))))
    }

    fn register(
        &self,
        _memory: &Backing,
    ) -> Result<Option<Box<dyn Registration>>, SlotError> {
        let mut log = locked(&self.0);
        let number = log.allocated.last().copied().unwrap_or(0);
        log.registered.insert(number);
        Ok(Some(Box::new(Registered { log: Arc::clone(&self.0), number })))
    }
}
