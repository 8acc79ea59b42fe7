//! What one prong holds: its open claims, and its batches that wait for delivery.
//!
//! A hand has few claims (the slots of a device, the workers of the host), so lists are walked.
//! `rates.rs` decides when a claim is overdue; the hand only remembers it.

use crate::claim::Ticket;
use crate::ids::{BatchIdx, Ns};

/// A claim that has not ended.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    pub(crate) ticket: Ticket,
    /// When it was claimed.
    pub since: Ns,
    /// Older claims at that moment, those of earlier epochs included: they are done first.
    pub ahead: u32,
    /// Whether it has been declared overdue.
    pub overdue: bool,
}

impl Held {
    /// The batch.
    #[must_use]
    pub fn batch(&self) -> BatchIdx {
        self.ticket.batch
    }

    /// When it ends if every claim of this hand takes `each_ns`, one after the other.
    #[must_use]
    pub fn end_at(&self, each_ns: u64) -> Ns {
        self.since.plus(each_ns.saturating_mul(u64::from(self.ahead) + 1))
    }
}

/// What one prong holds.
#[derive(Debug, Clone, Default)]
pub struct Hand {
    held: Vec<Held>,
    waiting: u32,
    n_before: u32,
    freed_at: Ns,
}

impl Hand {
    /// The open claims, oldest first.
    #[must_use]
    pub fn held(&self) -> &[Held] {
        &self.held
    }

    /// Number of open claims.
    #[must_use]
    pub fn n_held(&self) -> u32 {
        u32::try_from(self.held.len()).unwrap_or(u32::MAX)
    }

    /// Open claims, those of earlier epochs included: a new one is done after them.
    #[must_use]
    pub fn in_line(&self) -> u32 {
        self.n_held() + self.n_before
    }

    /// Batches made and not delivered.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Open claims and batches not delivered: what takes memory.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.n_held() + self.waiting
    }

    /// Says how many open claims of earlier epochs the prong has.
    pub(crate) fn comes_after(&mut self, n_before: u32) {
        self.n_before = n_before;
    }

    pub(crate) fn take(&mut self, ticket: Ticket, now: Ns) {
        let ahead = self.in_line();
        self.held.push(Held { ticket, since: now, ahead, overdue: false });
    }

    /// When the open claims, oldest first, end if `parallel` of them are worked on at once and each takes `each_ns`. Of
    /// earlier epochs nobody knows when they were begun: half of each is left.
    pub(crate) fn ends(
        &self,
        parallel: u32,
        each_ns: u64,
        now: Ns,
    ) -> impl Iterator<Item = (&Held, Ns)> {
        (self.n_before..).zip(&self.held).map(move |(nth, held)| {
            // Those that wait are begun as the ones so far before them end.
            let (rounds, of) = (nth / parallel.max(1), nth % parallel.max(1));
            let of = of.checked_sub(self.n_before).map(|of| &self.held[of as usize]);
            let end = of.map_or_else(
                || now.plus(each_ns / 2),
                |of| self.begun_at(of, parallel).plus(each_ns),
            );
            let end = if rounds > 0 { end.max(now) } else { end };
            (held, end.plus(each_ns.saturating_mul(u64::from(rounds))))
        })
    }

    /// When a claim that is worked on was begun: as it was claimed, or as one that was ahead of it ended. Where several
    /// are worked on at once, a later end may be taken for that one.
    fn begun_at(&self, held: &Held, parallel: u32) -> Ns {
        if held.ahead < parallel { held.since } else { held.since.max(self.freed_at) }
    }

    /// Ends a claim; `None` when it is void (its device was lost meanwhile).
    pub(crate) fn end(&mut self, ticket: Ticket, now: Ns) -> Option<Held> {
        let at = self.held.iter().position(|held| held.ticket.serial == ticket.serial)?;
        self.freed_at = now;
        Some(self.held.remove(at))
    }

    /// All claims, oldest first, ended.
    pub(crate) fn end_all(&mut self) -> Vec<Held> {
        std::mem::take(&mut self.held)
    }

    /// Declares claims overdue that have not ended when they should have: after `limit_ns`
    /// for each claim up to them. Whether there was a new one.
    pub(crate) fn declare_overdue(&mut self, limit_ns: u64, now: Ns) -> bool {
        let mut news = false;
        for held in self.held.iter_mut().filter(|held| !held.overdue) {
            held.overdue = held.end_at(limit_ns) <= now;
            news |= held.overdue;
        }
        news
    }

    pub(crate) fn wait_more(&mut self) {
        self.waiting += 1;
    }

    pub(crate) fn wait_less(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
    }
}
