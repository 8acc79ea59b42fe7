//! A slot's way back: who is told of it, and what is known of slots that are on it.
//!
//! It does not bring them back: they come with the batch, or with what keeps that for the device
//! (`handover/gpu/target.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::collect::wakeup::Bell;

/// How many batches of an engine its consumers have given back of which the device may still read the slots.
/// Cloning gives another handle on the same count.
#[derive(Debug, Clone)]
pub(crate) struct Returning(Arc<Count>);

#[derive(Debug)]
struct Count {
    /// Of whoever waits for slots.
    bell: Bell,
    n: AtomicU32,
}

impl Returning {
    pub(crate) fn new(bell: Bell) -> Self {
        Self(Arc::new(Count { bell, n: AtomicU32::new(0) }))
    }

    /// Whom slots that are back are told of.
    pub(crate) fn bell(&self) -> &Bell {
        &self.0.bell
    }

    pub(crate) fn n(&self) -> u32 {
        // Relaxed, as all of these: nothing else depends on it.
        self.0.n.load(Ordering::Relaxed)
    }

    /// One of them is back, or kept for good.
    pub(crate) fn has_one_less(&self) {
        self.0.n.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Tells the collector, when dropped, that a slot is free again.
#[derive(Debug)]
pub(crate) struct Release {
    returning: Returning,
    /// Whether it is counted there.
    is_counted: bool,
}

impl Release {
    pub(crate) fn new(returning: &Returning) -> Self {
        Self { returning: returning.clone(), is_counted: false }
    }

    /// Whom it tells.
    pub(crate) fn bell(&self) -> &Bell {
        self.returning.bell()
    }

    /// From now on it is the device that keeps the slot; where that is counted.
    pub(crate) fn is_with_device(&mut self) -> &Returning {
        if !self.is_counted {
            self.is_counted = true;
            self.returning.0.n.fetch_add(1, Ordering::Relaxed);
        }
        &self.returning
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        if self.is_counted {
            self.returning.has_one_less();
        }
        self.bell().ring();
    }
}
