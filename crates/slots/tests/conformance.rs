//! The suites over the kinds of memory of this crate and of others, and over rings right and
//! wrong.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bothends_slots::conformance::memory::{self, Keeper};
use bothends_slots::{
    Backing, Heap, Kind, Registration, Ring, RingConfig, SLOT_ALIGN, SlotError,
};

/// Stands in for memory that is pinned: counts what is locked.
#[derive(Debug, Default)]
struct Locked(Arc<AtomicU32>);

#[derive(Debug)]
struct Lock(Arc<AtomicU32>);

impl Registration for Lock {}

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Kind for Locked {
    fn name(&self) -> &'static str {
        "pinned"
    }

    fn allocate(&self, bytes: usize) -> Option<Result<Backing, SlotError>> {
        Heap.allocate(bytes)
    }

    fn register(&self, _: &Backing) -> Result<Option<Box<dyn Registration>>, SlotError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Some(Box::new(Lock(Arc::clone(&self.0)))))
    }
}

/// Stands in for the memory of a device, which the host cannot address.
#[derive(Debug)]
struct Remote;

impl Kind for Remote {
    fn name(&self) -> &'static str {
        "device"
    }

    fn allocate(&self, bytes: usize) -> Option<Result<Backing, SlotError>> {
        let is_possible =
            bytes > 0 && bytes.checked_next_multiple_of(SLOT_ALIGN).is_some();
        is_possible.then(|| match bytes {
            ..0x1000_0000 => {
                Ok(Backing::of_device(bytes, Box::new(())).at_device_address(0x7000))
            }
            slot_bytes => Err(SlotError::OutOfMemory { slot_bytes }),
        })
    }
}

const TWO: RingConfig = RingConfig { n_slots: 2, slot_bytes: 4096 };

#[test]
fn kinds_of_memory_keep_the_contract() {
    memory::all(&Heap);
    memory::all(&Remote);
    let locked = Locked::default();
    memory::all(&locked);
    assert_eq!(locked.0.load(Ordering::Relaxed), 0, "nothing stays locked");
}

#[test]
fn host_code_is_refused_memory_without_host_bytes() {
    let ring = Ring::of(&Remote, TWO).unwrap();
    let slot = ring.take(Duration::ZERO).unwrap().host().unwrap_err();
    assert_eq!((slot.kind(), slot.len()), ("device", 4096));
    assert_eq!(slot.device_address(), Some(0x7000));
    let host = Ring::new(TWO).unwrap().take(Duration::ZERO).unwrap();
    assert_eq!(host.device_address(), None, "the host's is no device's");
    drop(slot);
    assert_eq!(ring.free(), 2, "a refused slot is still a slot");
}

#[test]
fn the_ring_ends_registrations_before_their_memory() {
    memory::registrations_end_before_their_memory(&|kind| {
        Box::new(Ring::of(kind, TWO).unwrap())
    });
}

/// Keeps registrations next to the slots, as one might: they outlive the memory.
struct Naive {
    slots: std::sync::Mutex<Vec<Backing>>,
    registered: Vec<Box<dyn Registration>>,
}

impl Naive {
    fn new(kind: &dyn Kind) -> Self {
        let mut registered = Vec::new();
        let mut slots = Vec::new();
        for _ in 0..TWO.n_slots {
            let memory = kind.allocate(TWO.slot_bytes).unwrap().unwrap();
            registered.extend(kind.register(&memory).unwrap());
            slots.push(memory);
        }
        Self { slots: slots.into(), registered }
    }
}

impl Keeper for Naive {
    fn take(&self) -> Option<Box<dyn Send>> {
        assert!(!self.registered.is_empty());
        Some(Box::new(self.slots.lock().unwrap().pop()?))
    }
}

#[test]
#[should_panic(expected = "freed while registered")]
fn a_ring_that_frees_a_registered_slot_is_found_out() {
    memory::registrations_end_before_their_memory(&|kind| Box::new(Naive::new(kind)));
}
