//! How much memory decoding an image may take: known from its first bytes, before any is taken.
//!
//! The bound of one image is a constant, and counted alike for a file and for what a store has
//! of it: whether a sample is bad must not depend on who makes it or with what settings. What
//! workers take together is bounded, too, and that by waiting: images that need much take turns.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bothends_core::recipe::{MAX_DECODE_BYTES, Size};

use crate::error::SampleFault;

/// Images that may take more than this take turns; those below are as good as all there are.
const LARGE_BYTES: u64 = 256 << 20;

/// Whether an image may be decoded that needs so much at most.
pub(crate) fn check_room(size: Size, need_bytes: u64) -> Result<(), SampleFault> {
    match need_bytes {
        0..=MAX_DECODE_BYTES => Ok(()),
        _ => Err(SampleFault::TooMuchMemory { size, need_bytes }),
    }
}

/// What large images that are decoded at the same time may take together. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    most_bytes: u64,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    taken_bytes: Mutex<u64>,
    given_back: Condvar,
}

/// Memory that a large image may take until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Shared, u64);

impl Room {
    pub(crate) fn new(most_bytes: u64) -> Self {
        Self { most_bytes, shared: Arc::default() }
    }

    /// Waits until so much is free, which is as long as other images are being decoded; one
    /// that needs more than there is gets it when nobody else has any.
    pub(crate) fn take(&self, need_bytes: u64) -> Option<Turn<'_>> {
        if need_bytes <= LARGE_BYTES {
            return None;
        }
        let shared = &*self.shared;
        let has_no_room = |taken: &mut u64| {
            *taken > 0 && taken.saturating_add(need_bytes) > self.most_bytes
        };
        let taken = shared.given_back.wait_while(shared.taken(), has_no_room);
        *taken.unwrap_or_else(PoisonError::into_inner) += need_bytes;
        Some(Turn(shared, need_bytes))
    }
}

impl Shared {
    fn taken(&self) -> MutexGuard<'_, u64> {
        self.taken_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Self(shared, bytes) = self;
        *shared.taken() -= *bytes;
        shared.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    #[cfg_attr(target_family = "wasm", ignore = "it starts threads")]
    fn large_images_take_turns_and_one_beyond_all_room_gets_it_alone() {
        let room = Room::new(600 << 20);
        assert!(room.take(LARGE_BYTES).is_none(), "most images wait for nobody");
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|threads| {
            for need in [300_u64 << 20, 300 << 20, 900 << 20, 290 << 20, 310 << 20] {
                let (room, now, most) = (room.clone(), &now, &most);
                threads.spawn(move || {
                    for _ in 0..50 {
                        let _turn = room.take(need).unwrap();
                        let taken = now.fetch_add(need, Ordering::SeqCst) + need;
                        most.fetch_max(taken, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(need, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(most.into_inner(), 900 << 20, "never two that are too much together");
        assert_eq!(*room.shared.taken(), 0);
    }
}
