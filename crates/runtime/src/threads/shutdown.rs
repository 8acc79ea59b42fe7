//! How an epoch ends: the contract, and the one flag that all loops read.
//!
//! The numbers are referred to by the tests in `tests/shutdown.rs`; an implementation that
//! disagrees with a sentence here is wrong.
//!
//! **End.** 1. When the last batch of the plan has been handed to the feed, the collector
//! closes the feed's queue; the consumer receives every batch, then `None`, and `None` again
//! for ever. 2. Device results that are still under way are given up: their claims end, their
//! slots go back, the transports are handed back for the next epoch.
//!
//! **Failure of a prong.** 3. A lost device gives its claims back and is named in the summary;
//! the epoch goes on. 4. An error that no policy covers (a bad sample under `raise`, a reader
//! that cannot read) reaches the consumer's `next` exactly once, after the batches that were
//! ready before it; then `None`. 5. A panic in a thread of ours is reported as an error of
//! that thread, never as a hang.
//!
//! **Cancel.** 6. Dropping the epoch stops it at any point: the consumer does not wait for
//! unfinished batches. 7. After the end, a failure or a cancel every thread has been joined
//! and every slot is back; nothing waits longer than [`PATIENCE`]. But for one: a device that
//! falls silent in the middle of an answer keeps its thread and that answer's slot until the
//! transport's own deadline; the next epoch does without it, or finds it well again. 8. A
//! consumer that keeps every slot is told so after two seconds: nothing else could go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The longest that a loop stays in one wait before it looks at the stop flag again.
pub const PATIENCE: Duration = Duration::from_millis(100);

/// The flag that ends every loop of an epoch. Cheap to clone; setting it is final.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    is_set: AtomicBool,
    /// The thread that panicked first.
    dead: OnceLock<&'static str>,
}

impl Stop {
    /// Asks every loop to end.
    pub(crate) fn set(&self) {
        // Pairs with the load in `is_set`: what was written before is seen after.
        self.0.is_set.store(true, Ordering::Release);
    }

    /// Whether loops shall end.
    pub(crate) fn is_set(&self) -> bool {
        self.0.is_set.load(Ordering::Acquire)
    }

    /// A thread panicked: everything ends, and the consumer is told.
    pub(crate) fn died(&self, thread: &'static str) {
        // The first one is the cause; later ones follow from it.
        let _ = self.0.dead.set(thread);
        self.set();
    }

    /// The thread that panicked, if one did.
    pub(crate) fn dead_thread(&self) -> Option<&'static str> {
        self.0.dead.get().copied()
    }
}
