//! A batch somebody is preprocessing, as a value that is consumed exactly once.
//!
//! A claim is made by [`crate::epoch::EpochState`] and ends there too: finished, given back
//! or refused. One that is merely dropped (its thread panicked, its queue was torn down)
//! reports itself, so no batch is ever forgotten. Nothing here decides who may claim what:
//! `select` does. Read `ledger.rs` next.

use std::sync::{Arc, Mutex, PoisonError};

use crate::ids::{BatchIdx, Prong};

/// Why a batch is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClaimKind {
    /// Nobody else is making the batch.
    First,
    /// A device is making it but is late, or is expected to be: the host makes it too, and
    /// the first result counts.
    Rescue,
}

/// A batch somebody is preprocessing. Finish it; a dropped claim goes back by itself.
#[derive(Debug)]
#[must_use = "a dropped claim goes back and is counted as a fault"]
pub struct Claim {
    ticket: Ticket,
    returned: Returned,
    open: bool,
}

impl Claim {
    /// The batch to make.
    #[must_use]
    pub fn batch(&self) -> BatchIdx {
        self.ticket.batch
    }

    /// Who makes it.
    #[must_use]
    pub fn prong(&self) -> Prong {
        self.ticket.prong
    }

    /// Whether this is the batch's first claim or a rescue.
    #[must_use]
    pub fn kind(&self) -> ClaimKind {
        self.ticket.kind
    }

    /// Ends the claim without reporting it as dropped.
    pub(crate) fn close(mut self) -> Ticket {
        self.open = false;
        self.ticket
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.open {
            self.returned.put(self.ticket);
        }
    }
}

/// What a claim says: enough to find it again in the books. `serial` tells two claims of
/// one batch apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) batch: BatchIdx,
    pub(crate) prong: Prong,
    pub(crate) kind: ClaimKind,
    pub(crate) serial: u64,
}

impl Ticket {
    /// The claim that a prong holds in its hands.
    pub(crate) fn claim(self, returned: &Returned) -> Claim {
        Claim { ticket: self, returned: returned.clone(), open: true }
    }
}

/// Where dropped claims report themselves. The lock is held for a push or a swap only.
#[derive(Debug, Clone, Default)]
pub(crate) struct Returned(Arc<Mutex<Vec<Ticket>>>);

impl Returned {
    fn put(&self, ticket: Ticket) {
        // A push leaves the list whole even if another holder of the lock panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(ticket);
    }

    /// The dropped claim that has waited longest in this list, if any.
    pub(crate) fn take(&self) -> Option<Ticket> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket() -> Ticket {
        let batch = BatchIdx(7);
        Ticket { batch, prong: Prong::Front, kind: ClaimKind::First, serial: 3 }
    }

    #[test]
    fn a_dropped_claim_reports_itself() {
        let returned = Returned::default();
        drop(ticket().claim(&returned));
        assert_eq!(returned.take(), Some(ticket()));
        assert_eq!(returned.take(), None);
    }

    #[test]
    fn a_closed_claim_does_not() {
        let returned = Returned::default();
        assert_eq!(ticket().claim(&returned).close(), ticket());
        assert_eq!(returned.take(), None);
    }

    #[test]
    fn a_claim_dropped_by_a_panicking_thread_reports_itself() {
        let returned = Returned::default();
        let claim = ticket().claim(&returned);
        let thread = std::thread::spawn(move || {
            let _held = claim;
            panic!("a worker's bug");
        });
        assert!(thread.join().is_err());
        assert_eq!(returned.take(), Some(ticket()));
    }
}
