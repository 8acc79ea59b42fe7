//! The free slots of a ring, shared by its handles and its slots.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::memory::Memory;

/// Free memory, and who waits for it.
#[derive(Debug)]
pub(crate) struct Pool {
    free: Mutex<Vec<Memory>>,
    returned: Condvar,
}

impl Pool {
    /// All of it free.
    pub(crate) fn new(free: Vec<Memory>) -> Self {
        Self { free: Mutex::new(free), returned: Condvar::new() }
    }

    /// Takes a slot's memory, waiting up to `timeout` for one.
    pub(crate) fn take(&self, timeout: Duration) -> Option<Memory> {
        let (mut free, _) = self
            .returned
            .wait_timeout_while(self.lock(), timeout, |free| free.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        free.pop()
    }

    /// How many are free at this moment.
    pub(crate) fn n_free(&self) -> usize {
        self.lock().len()
    }

    /// Takes a slot's memory back and wakes one who waits.
    pub(crate) fn put_back(&self, memory: Memory) {
        self.lock().push(memory);
        self.returned.notify_one();
    }

    /// The free slots. Nobody can panic while holding this lock with the list half
    /// changed, so a poisoned lock is as good as any.
    fn lock(&self) -> MutexGuard<'_, Vec<Memory>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
