//! What enqueued work may still use, and its owner has let go of.
//!
//! Nothing in here waits: it is looked at from time to time (`Gpu::sweep`). What is still in use
//! when the last handle goes is leaked, since memory that is freed under a copy ends up in somebody
//! else's hands.
#![allow(unsafe_code, reason = "frees device memory that it was given")]

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Event;
use crate::driver::{Address, Driver};

/// What ends when the device is done with it.
pub(super) enum Buried {
    /// Device memory, to be freed by its driver.
    Memory(Address, Arc<dyn Driver>),
    /// A value of somebody's, to be dropped.
    Kept(Box<dyn Send>),
}

impl Buried {
    /// Ends it: the device is done with it.
    fn end(self) {
        match self {
            // SAFETY: allocated by this driver, buried once by its only owner, and every
            // use that it knew of has been reached.
            Self::Memory(at, driver) => unsafe { driver.free(at) },
            Self::Kept(value) => drop(value),
        }
    }
}

/// A value that is kept for the device's sake.
pub(super) type Kept = Box<dyn Send>;

/// Everything buried, each with the events that its uses end with.
#[derive(Default)]
pub(super) struct Graveyard {
    graves: Mutex<Vec<(Vec<Arc<Event>>, Buried)>>,
    /// What is in use by work that no event has been recorded behind yet.
    undated: Mutex<Vec<Kept>>,
}

impl fmt::Debug for Graveyard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graveyard({})", self.len())
    }
}

impl Graveyard {
    pub(super) fn bury(&self, events: Vec<Arc<Event>>, what: Buried) {
        self.graves().push((events, what));
    }

    /// Keeps a value that work which nobody has told us of may use.
    pub(super) fn keep(&self, value: Kept) {
        self.undated().push(value);
    }

    /// All such values, for an event to be recorded behind their uses.
    pub(super) fn take_undated(&self) -> Vec<Kept> {
        std::mem::take(&mut *self.undated())
    }

    /// Puts them back where that failed.
    pub(super) fn put_back(&self, mut values: Vec<Kept>) {
        self.undated().append(&mut values);
    }

    pub(super) fn len(&self) -> usize {
        let undated = self.undated().len();
        self.graves().len() + undated
    }

    /// Some event that something waits for.
    pub(super) fn an_event(&self) -> Option<Arc<Event>> {
        let graves = self.graves();
        graves.iter().find_map(|(events, _)| events.last().cloned())
    }

    /// Ends what the device is done with; returns how much is left.
    pub(super) fn sweep(&self) -> usize {
        let (over, left) = {
            let mut graves = self.graves();
            let is_over = |events: &mut Vec<Arc<Event>>| {
                // An event that cannot be asked is not reached: the device has failed, and who
                // knows what it still does.
                events.retain(|event| !event.is_reached().unwrap_or(false));
                events.is_empty()
            };
            let over = graves.extract_if(.., |(events, _)| is_over(events));
            (over.collect::<Vec<_>>(), graves.len())
        };
        // Outside the lock: what is dropped may bury in its turn.
        over.into_iter().for_each(|(_, buried)| buried.end());
        left + self.undated().len()
    }

    fn undated(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.undated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn graves(&self) -> MutexGuard<'_, Vec<(Vec<Arc<Event>>, Buried)>> {
        self.graves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Graveyard {
    fn drop(&mut self) {
        self.sweep();
        for value in self.take_undated() {
            let _ = Box::leak(value);
        }
        for (_, buried) in self.graves().drain(..) {
            match buried {
                Buried::Kept(value) => drop(Box::leak(value)),
                Buried::Memory(..) => {}
            }
        }
    }
}
