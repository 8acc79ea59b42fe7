//! What a fetch queue has done, and what it waited for.
//!
//! Plain numbers; the queue keeps them, and stats, metrics and reports show them.

use super::FetchQueue;
use crate::ids::Ns;

/// The state and the counts of a [`FetchQueue`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FetchFigures {
    /// Requests in flight.
    pub in_flight: u32,
    /// Their bytes.
    pub in_flight_bytes: u64,
    /// Requests that failed and wait to be retried.
    pub waiting: u32,
    /// Requests that may be in flight now.
    pub window: u32,
    /// Bytes in the reorder buffer: they have arrived and have not been taken.
    pub reordered_bytes: u64,
    /// Bytes that have been requested and have not been taken: in flight, to be retried, reordered.
    pub held_bytes: u64,
    /// Positions offered and neither taken, withdrawn nor failed.
    pub offered: u64,
    /// The time that few recent answers exceeded; 0 as long as there are too few to say.
    pub p99_ns: u64,
    /// What has happened so far.
    pub counts: FetchCounts,
    /// What new requests waited for so far.
    pub waits: FetchWaits,
}

impl FetchFigures {
    /// The same, with the counts and waits of a queue that came before it.
    #[must_use]
    pub fn after(mut self, before: &Self) -> Self {
        let (counts, waits) = (&mut self.counts, &mut self.waits);
        let (more, waited) = (&before.counts, &before.waits);
        for (count, more) in [
            (&mut counts.requested, more.requested),
            (&mut counts.answered, more.answered),
            (&mut counts.bytes, more.bytes),
            (&mut counts.joined, more.joined),
            (&mut counts.hedged, more.hedged),
            (&mut counts.hedges_won, more.hedges_won),
            (&mut counts.retried, more.retried),
            (&mut counts.throttled, more.throttled),
            (&mut counts.timed_out, more.timed_out),
            (&mut counts.cancelled, more.cancelled),
            (&mut counts.withdrawn, more.withdrawn),
            (&mut counts.failed, more.failed),
            (&mut counts.urgent, more.urgent),
            (&mut waits.requests_ns, waited.requests_ns),
            (&mut waits.bytes_ns, waited.bytes_ns),
            (&mut waits.reorder_ns, waited.reorder_ns),
            (&mut waits.retry_ns, waited.retry_ns),
            (&mut waits.offer_ns, waited.offer_ns),
        ] {
            *count = count.saturating_add(more);
        }
        counts.most_in_flight = counts.most_in_flight.max(more.most_in_flight);
        self
    }
}

/// What has happened in a fetch queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FetchCounts {
    /// Requests sent, hedges and retries included.
    pub requested: u64,
    /// Requests answered whose bytes counted.
    pub answered: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Positions that came with the request of another one.
    pub joined: u64,
    /// Second requests for a late position.
    pub hedged: u64,
    /// Second requests that were answered first.
    pub hedges_won: u64,
    /// Requests sent again after a failure.
    pub retried: u64,
    /// Answers of a server that was asked too much.
    pub throttled: u64,
    /// Requests that were cancelled because nothing answered them in time.
    pub timed_out: u64,
    /// Requests that were cancelled because nobody needs them any more.
    pub cancelled: u64,
    /// Positions withdrawn before they were taken.
    pub withdrawn: u64,
    /// Positions that failed finally.
    pub failed: u64,
    /// Positions requested beyond a bound because delivery waited for them.
    pub urgent: u64,
    /// The most requests that were in flight at once.
    pub most_in_flight: u32,
}

/// How long nothing new could be requested, by cause, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FetchWaits {
    /// As many requests as the window admits are in flight: latency is the limit.
    pub requests_ns: u64,
    /// As many bytes as may be are in flight: the link is the limit.
    pub bytes_ns: u64,
    /// The reorder buffer is full: the consumer, or one late position, is the limit.
    pub reorder_ns: u64,
    /// Failed requests wait to be retried, and hold the places of others or are all that is left to request; or the
    /// store is asked too much, and few requests are admitted.
    pub retry_ns: u64,
    /// All that was offered is requested, and nothing waits to be retried.
    pub offer_ns: u64,
}

/// Why nothing new is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Requests,
    Bytes,
    Reorder,
    Retry,
    Offer,
}

impl FetchQueue {
    /// The wait under which time is booked in which nothing new is requested: what a store refuses makes the window
    /// small, and is neither its latency nor a lack of offers.
    pub(super) fn booked_as(&self, cause: Cause, now: Ns) -> Cause {
        let was_throttled = |at: Ns| now < at.plus(self.config.timeout_ns);
        match cause {
            Cause::Offer if !self.retries.is_empty() => Cause::Retry,
            Cause::Requests if self.throttled_at.is_some_and(was_throttled) => {
                Cause::Retry
            }
            Cause::Requests
            | Cause::Bytes
            | Cause::Reorder
            | Cause::Retry
            | Cause::Offer => cause,
        }
    }
}

/// What is being waited for, and since when.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    since: Option<(Cause, Ns)>,
    pub(super) waits: FetchWaits,
}

impl Waiting {
    /// The queue is asked again: books the time since it last had nothing to request.
    pub(super) fn end(&mut self, now: Ns) {
        let Some((cause, since)) = self.since.take() else { return };
        let total = match cause {
            Cause::Requests => &mut self.waits.requests_ns,
            Cause::Bytes => &mut self.waits.bytes_ns,
            Cause::Reorder => &mut self.waits.reorder_ns,
            Cause::Retry => &mut self.waits.retry_ns,
            Cause::Offer => &mut self.waits.offer_ns,
        };
        *total = total.saturating_add(now.since(since));
    }

    /// What is being waited for.
    pub(super) fn cause(&self) -> Option<Cause> {
        self.since.map(|(cause, _)| cause)
    }

    /// Nothing can be requested from now on.
    pub(super) fn begin(&mut self, cause: Cause, now: Ns) {
        self.since = Some((cause, now));
    }
}
