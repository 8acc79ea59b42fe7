//! Commands whose completion comes later than they are taken: executions, and those that await an event.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bothends_nvme::{Cqe, Status};

use crate::nvme::programs::Execution;

/// A completion that comes later. It tells the queue's head as it is then: a head that went back would look like a
/// queue that has filled up again.
#[derive(Debug)]
pub(in crate::nvme) struct Later {
    entry: Cqe,
    head: Arc<AtomicU16>,
}

impl Later {
    /// The completion `entry`, of the queue with this head.
    pub(in crate::nvme) fn new(entry: Cqe, head: Arc<AtomicU16>) -> Self {
        Self { entry, head }
    }

    /// The command's identifier.
    pub(in crate::nvme) fn id(&self) -> u16 {
        self.entry.id
    }

    /// The completion.
    pub(in crate::nvme) fn completion(self, result: Result<u64, Status>) -> Cqe {
        let mut entry = self.entry;
        entry.sq_head = self.head.load(Ordering::Relaxed);
        match result {
            Ok(value) => entry.result = value,
            Err(status) => entry.status = status,
        }
        entry
    }
}

/// Where the completions of a connection go that its own thread does not send.
pub(in crate::nvme) trait Outlet: Debug + Send + Sync {
    /// Has a completion sent, without waiting for the host, and ends the command's time in flight.
    fn post(&self, completion: &Cqe);
}

/// An execution that has not begun. Who takes it out completes it: the thread that runs it, or who aborts it.
#[derive(Debug)]
pub(in crate::nvme) struct Waiting {
    own: Mutex<Option<(Execution, Later)>>,
    outlet: Arc<dyn Outlet>,
}

impl Waiting {
    pub(in crate::nvme) fn new(
        execution: Execution,
        later: Later,
        outlet: Arc<dyn Outlet>,
    ) -> Self {
        Self { own: Mutex::new(Some((execution, later))), outlet }
    }

    /// Takes it out, if it is still there.
    pub(in crate::nvme) fn begin(&self) -> Option<(Execution, Later)> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Completes it with `status`, if it has not begun; says whether.
    pub(in crate::nvme) fn abort(&self, status: Status) -> Aborted {
        let Some((execution, later)) = self.begin() else { return Aborted::No };
        // Nothing holds the ranges when the host learns that they are free.
        drop(execution);
        self.outlet.post(&later.completion(Err(status)));
        Aborted::Yes
    }
}

/// Whether a command was aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::nvme) enum Aborted {
    /// It has begun, has ended, or never was.
    No,
    /// It was, and its completion says so.
    Yes,
}
