//! How an epoch ends, and the engine that it runs on: the contract, and the flags that all
//! loops read.
//!
//! The numbers are referred to by the tests in `tests/shutdown.rs`; an implementation that
//! disagrees with a sentence here is wrong.
//!
//! **End.** 1. When the last batch of the plan has been handed to the feed, the collector
//! closes the feed's queue; the consumer receives every batch, then `None`, and `None` again
//! forever. 2. Results that are still under way are given up: their claims end, their jobs are
//! revoked, and their slots go back when they are answered.
//!
//! **Failure of a prong.** 3. A lost device gives its claims back and is named in the summary;
//! the epoch goes on. 4. An error that no policy covers (a bad sample under `raise`, a reader
//! that cannot read) reaches the consumer's `next` exactly once, after the batches that were
//! ready before it; then `None`. 5. A panic in a thread of ours is reported as an error of
//! that thread, never as a hang.
//!
//! **Cancel.** 6. Dropping the epoch stops it at any point: the consumer does not wait for
//! unfinished batches. 7. Reader, workers, collector and the devices' threads outlive it: what
//! they have of it comes back as soon as they look at it next, and nobody waits for that. A
//! device that falls silent in the middle of an answer keeps that answer's slot until the
//! transport's own deadline; the next epoch does without it, or finds it well again. Where it makes
//! what nobody else would (`csd`) the epoch waits for it until it has taken no job for ten seconds,
//! or for 20 batches' time if that is longer (`collect/capacity.rs`); then the host makes it, and the
//! device is asked again once in a second. 8. A consumer that keeps every slot is told so after
//! two seconds: nothing else could go on.
//!
//! **The engine's end.** 9. Closing the loader, or a panic in one of the engine's threads, ends
//! them all: every thread is joined and every slot is back; nothing waits longer than
//! [`PATIENCE`], except for threads in a call that does not return. A device's thread in the middle of
//! an answer, or that reaches a device which says nothing, is left alone and ends by the
//! transport's deadline. One in a call of the file system or of the caller's (a server that is
//! gone) is waited for five seconds (`threads/join.rs`); then a note says so, and it ends with that
//! call: what it has of a slot comes back then. 10. After a panic
//! the next epoch begins with an engine of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The longest that a loop stays in one wait before it looks at the stop flag again.
pub const PATIENCE: Duration = Duration::from_millis(100);

/// The flag that ends every loop of an engine or of an epoch. Cheap to clone; setting it is
/// final.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    is_set: AtomicBool,
    /// The thread that panicked first.
    dead: OnceLock<&'static str>,
    /// An epoch ends with its engine.
    engine: Option<Stop>,
}

impl Stop {
    /// The flag of an epoch on the engine that this is the flag of.
    pub(crate) fn of_epoch(&self) -> Self {
        Self(Arc::new(Flag { engine: Some(self.clone()), ..Flag::default() }))
    }

    /// Asks every loop to end.
    pub(crate) fn set(&self) {
        // Pairs with the load in `is_set`: what was written before is seen after.
        self.0.is_set.store(true, Ordering::Release);
    }

    /// Whether loops shall end.
    pub(crate) fn is_set(&self) -> bool {
        self.0.is_set.load(Ordering::Acquire)
            || self.0.engine.as_ref().is_some_and(Self::is_set)
    }

    /// Whether the engine of an epoch has been asked to end.
    pub(crate) fn has_no_engine(&self) -> bool {
        self.0.engine.as_ref().is_some_and(Self::is_set)
    }

    /// A thread panicked: everything ends, and the consumer is told.
    pub(crate) fn died(&self, thread: &'static str) {
        // The first one is the cause; later ones follow from it.
        let _ = self.0.dead.set(thread);
        self.set();
    }

    /// The thread that panicked, if one did.
    pub(crate) fn dead_thread(&self) -> Option<&'static str> {
        let engine = || self.0.engine.as_ref().and_then(Self::dead_thread);
        self.0.dead.get().copied().or_else(engine)
    }
}
