//! Commands whose completion comes later than they are taken: executions, and those that await an event.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bothends_nvme::{Cqe, Status};

use crate::nvme::programs::{Execution, Stop};

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

/// An execution from when it is taken to when it ends. Until it begins, who takes it out completes it: the thread
/// that runs it, or who aborts it. It keeps no connection open.
#[derive(Debug)]
pub(in crate::nvme) struct Waiting {
    own: Mutex<Option<(Execution, Later)>>,
    stop: Stop,
    outlet: Weak<dyn Outlet>,
}

impl Waiting {
    pub(in crate::nvme) fn new(
        execution: Execution,
        later: Later,
        outlet: Weak<dyn Outlet>,
    ) -> Self {
        Self { own: Mutex::new(Some((execution, later))), stop: Stop::default(), outlet }
    }

    /// Takes it out, if it is still there.
    pub(in crate::nvme) fn begin(&self) -> Option<(Execution, Later)> {
        self.own().take()
    }

    /// Whether nobody has taken it out.
    pub(in crate::nvme) fn is_there(&self) -> bool {
        self.own().is_some()
    }

    /// What tells it to end once it has begun.
    pub(in crate::nvme) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Completes it with `status`, if it has not begun, and says whether. One that has is told to end.
    pub(in crate::nvme) fn abort(&self, status: Status) -> Aborted {
        self.stop.ask(status);
        let Some((execution, later)) = self.begin() else { return Aborted::No };
        // Nothing holds the ranges when the host learns that they are free.
        drop(execution);
        if let Some(outlet) = self.outlet.upgrade() {
            outlet.post(&later.completion(Err(status)));
        }
        Aborted::Yes
    }

    fn own(&self) -> MutexGuard<'_, Option<(Execution, Later)>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
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
