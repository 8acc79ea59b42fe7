//! Which batches the front will make next, for a reader that fetches records before there is a slot
//! for them.
//!
//! The collector says it after each decision, and the reader of remote data asks. It is a forecast:
//! a device may claim any of these batches first, and then the forecast no longer has it. Nothing
//! is computed while nobody asks.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bothends_core::ids::{BatchIdx, EpochIdx};
use bothends_core::plan::Plan;

/// The forecast, shared by the collector and the reader. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ahead(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Batches that are asked for.
    n_batches: AtomicU32,
    /// Changes with what is said.
    version: AtomicU64,
    said: Mutex<Vec<Soon>>,
}

/// Batches of an epoch in the order in which the front would claim them.
#[derive(Debug, Clone)]
pub(crate) struct Soon {
    pub(crate) epoch: EpochIdx,
    pub(crate) plan: Arc<Plan>,
    pub(crate) batches: Vec<BatchIdx>,
}

impl Soon {
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.plan, &other.plan) && self.batches == other.batches
    }
}

impl Ahead {
    /// From now on so many batches are asked for.
    pub(crate) fn ask_for(&self, n_batches: u32) {
        self.0.n_batches.store(n_batches, Ordering::Relaxed);
    }

    /// How many batches are asked for; 0 where nobody reads ahead.
    pub(crate) fn n_batches(&self) -> u32 {
        self.0.n_batches.load(Ordering::Relaxed)
    }

    /// What the front will make next, the first epoch first.
    pub(crate) fn say(&self, soon: Vec<Soon>) {
        let mut said = self.0.said.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same =
            said.len() == soon.len() && said.iter().zip(&soon).all(|(a, b)| a.is(b));
        if !is_same {
            *said = soon;
            // Release: whoever sees the version has every job that was handed out before.
            self.0.version.fetch_add(1, Ordering::Release);
        }
    }

    /// What was said since `seen`, if it differs; `seen` becomes its version.
    pub(crate) fn news(&self, seen: &mut u64) -> Option<Vec<Soon>> {
        if self.0.version.load(Ordering::Acquire) == *seen {
            return None;
        }
        let said = self.0.said.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = self.0.version.load(Ordering::Acquire);
        Some(said.clone())
    }
}
