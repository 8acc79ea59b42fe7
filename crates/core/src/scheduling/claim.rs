//! A batch that somebody is preprocessing, as a value that is consumed exactly once.
//!
//! [`crate::epoch::EpochState`] makes a claim and ends it: finished, given back or refused. A claim that
//! is merely dropped (its thread panicked, its queue was torn down) reports itself, so no batch is ever
//! forgotten. Nothing here decides who may claim what; `select` does. Read `ledger.rs` next.

mod sync;

use std::sync::PoisonError;

use crate::ids::{BatchIdx, Prong};
use sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering};

/// Why a batch is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClaimKind {
    /// Nobody else is making the batch.
    First,
    /// A device is making it but is late, or is expected to be: the host makes it too; or the host
    /// is making it, will be for long, and an idle device makes it too. The first result counts.
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

/// Where dropped claims report themselves. A healthy run never drops one, and an epoch asks
/// with every question: so asking in vain costs one load.
#[derive(Debug, Clone, Default)]
pub(crate) struct Returned(Arc<Dropped>);

#[derive(Debug, Default)]
struct Dropped {
    /// Whether the list holds anything. Changed under the list's lock only, so it cannot fall
    /// after the list; the release store pairs with the load in `take`, which thus sees
    /// every claim whose drop came before the question.
    is_any: AtomicBool,
    /// The lock is held for a push or a pop only.
    tickets: Mutex<Vec<Ticket>>,
}

impl Returned {
    fn put(&self, ticket: Ticket) {
        let mut tickets = self.0.lock();
        tickets.push(ticket);
        self.0.is_any.store(true, Ordering::Release);
    }

    /// One of the dropped claims, if there is any.
    pub(crate) fn take(&self) -> Option<Ticket> {
        if !self.0.is_any.load(Ordering::Acquire) {
            return None;
        }
        let mut tickets = self.0.lock();
        let ticket = tickets.pop();
        self.0.is_any.store(!tickets.is_empty(), Ordering::Release);
        ticket
    }
}

impl Dropped {
    /// A push leaves the list whole even if another holder of the lock panicked.
    fn lock(&self) -> MutexGuard<'_, Vec<Ticket>> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Every interleaving of threads that drop claims and one that asks for them. Run with
/// `RUSTFLAGS="--cfg loom"`.
#[cfg(loom)]
#[cfg(test)]
mod loom_models {
    use loom::thread;

    use super::*;

    fn ticket(serial: u64) -> Ticket {
        let batch = BatchIdx(0);
        Ticket { batch, prong: Prong::Front, kind: ClaimKind::First, serial }
    }

    /// The serial numbers that `take` gives until it gives none.
    fn take_all(returned: &Returned, seen: &mut Vec<u64>) {
        seen.extend(std::iter::from_fn(|| returned.take()).map(|ticket| ticket.serial));
    }

    #[test]
    fn claims_dropped_on_other_threads_are_seen_once_each() {
        loom::model(|| {
            let returned = Returned::default();
            let droppers = [1, 2].map(|serial| {
                let claim = ticket(serial).claim(&returned);
                thread::spawn(move || drop(claim))
            });
            let mut seen = Vec::new();
            // These may come before, between or amid the drops …
            take_all(&returned, &mut seen);
            take_all(&returned, &mut seen);
            for dropper in droppers {
                dropper.join().unwrap();
            }
            // … and this one comes after all of them.
            take_all(&returned, &mut seen);
            seen.sort_unstable();
            assert_eq!(seen, [1, 2]);
        });
    }

    #[test]
    fn a_drop_that_came_before_the_question_is_seen_by_it() {
        loom::model(|| {
            let returned = Returned::default();
            let told = Arc::new(AtomicBool::new(false));
            let claim = ticket(1).claim(&returned);
            let dropper = {
                let told = told.clone();
                thread::spawn(move || {
                    drop(claim);
                    told.store(true, Ordering::Release);
                })
            };
            let was_told = told.load(Ordering::Acquire);
            let seen = returned.take();
            assert!(seen.is_some() || !was_told, "a dropped claim was overlooked");
            dropper.join().unwrap();
            assert!(seen.is_some() != returned.take().is_some(), "lost, or seen twice");
        });
    }

    #[test]
    fn two_who_ask_do_not_get_the_same_claim() {
        loom::model(|| {
            let returned = Returned::default();
            drop(ticket(1).claim(&returned));
            let other = {
                let returned = returned.clone();
                thread::spawn(move || returned.take().is_some())
            };
            let here = returned.take().is_some();
            assert!(here != other.join().unwrap(), "lost, or seen twice");
        });
    }
}
