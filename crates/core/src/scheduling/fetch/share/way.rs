//! How long the way to the store and back takes, without the queue that the host's own requests make.
//!
//! Of what the host has in flight at its limit, a part waits in a queue of the link, and a request of one byte may
//! wait behind it. A limit that followed from such a time would make a longer queue, and that a higher limit. So what
//! counts is the least of the last minutes, and once a minute the host lets the queue run empty: it requests nothing
//! until only a part of the bandwidth-delay product is in flight, and only then the byte is requested. A product that was
//! estimated too large then makes a shorter queue, so that the estimate falls with each time until it is right.

const SECOND_NS: u64 = 1_000_000_000;

/// The queue runs empty once in so long, and the first time as soon as there is a limit …
const EVERY_NS: u64 = 60 * SECOND_NS;
/// … and the attempt ends after so long, whatever came of it.
const MOST_NS: u64 = 10 * SECOND_NS;
/// The link is full again after this and a few round trips.
const REFILL_NS: u64 = 2 * SECOND_NS;
const REFILL_ROUND_TRIPS: u64 = 4;

/// A time is forgotten after once to twice this, if there are newer ones.
const KEPT_NS: u64 = 180 * SECOND_NS;
/// So many are asked for at the start, while the link is not yet full.
const AT_START: u32 = 3;

/// The least time there and back, and when it is measured.
#[derive(Debug, Clone)]
pub(super) struct Way {
    /// The least of the last minutes, and of those before them.
    least: [Option<u64>; 2],
    /// Since when the first of them counts.
    age_ns: u64,
    n: u32,
    phase: Phase,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// The host has all that its limit allows, for so long.
    Full(u64),
    /// It lets the queue run empty, for so long.
    Drains(u64),
    /// The queue is empty, and the answer is waited for; so long since draining began.
    Empty(u64),
}

impl Way {
    pub(super) fn new() -> Self {
        Self { least: [None; 2], age_ns: 0, n: 0, phase: Phase::Full(u64::MAX) }
    }

    /// A byte took so long there and back.
    pub(super) fn took(&mut self, ns: u64) {
        if self.age_ns >= KEPT_NS {
            self.least = [None, self.least[0]];
            self.age_ns = 0;
        }
        self.least[0] = Some(self.least[0].map_or(ns, |least| least.min(ns)));
        self.n = self.n.saturating_add(1);
        if let Phase::Empty(_) = self.phase {
            self.phase = Phase::Full(0);
        }
    }

    /// The least of the last minutes.
    pub(super) fn least_ns(&self) -> Option<u64> {
        self.least.iter().flatten().min().copied()
    }

    /// So much time has passed in which the host was not limited.
    pub(super) fn unlimited(&mut self, ns: u64) {
        self.age_ns = self.age_ns.saturating_add(ns);
        self.phase = match self.phase {
            Phase::Full(since) => Phase::Full(since.saturating_add(ns)),
            Phase::Drains(_) | Phase::Empty(_) => Phase::Full(0),
        };
    }

    /// So much time has passed in which it was limited; whether as little is in flight as is to be while the queue
    /// runs empty.
    pub(super) fn limited(&mut self, ns: u64, in_flight: Level) {
        self.age_ns = self.age_ns.saturating_add(ns);
        self.phase = match self.phase {
            Phase::Full(since) if since >= EVERY_NS => Phase::Drains(0),
            Phase::Full(since) => Phase::Full(since.saturating_add(ns)),
            Phase::Drains(since) | Phase::Empty(since) if since >= MOST_NS => {
                Phase::Full(0)
            }
            Phase::Drains(since) if in_flight == Level::High => {
                Phase::Drains(since.saturating_add(ns))
            }
            Phase::Drains(since) | Phase::Empty(since) => {
                Phase::Empty(since.saturating_add(ns))
            }
        };
    }

    /// Whether the queue is to run empty.
    pub(super) fn is_draining(&self) -> bool {
        !matches!(self.phase, Phase::Full(_))
    }

    /// Whether the way is to be measured now.
    pub(super) fn is_asked(&self) -> bool {
        self.n < AT_START || matches!(self.phase, Phase::Empty(_))
    }

    /// Whether what arrives now says what the link carries.
    pub(super) fn is_full(&self) -> bool {
        let round_trips = self.least_ns().unwrap_or(0).saturating_mul(REFILL_ROUND_TRIPS);
        let refill_ns = REFILL_NS.max(round_trips.min(MOST_NS));
        matches!(self.phase, Phase::Full(since) if since >= refill_ns)
    }
}

/// How much is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// No more than is to be while the queue runs empty.
    Low,
    /// More.
    High,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn seconds(way: &mut Way, n: u64, in_flight: Level) {
        (0..n * 20).for_each(|_| way.limited(50 * MS, in_flight));
    }

    #[test]
    fn it_is_measured_at_the_start_and_then_while_the_queue_is_empty() {
        let mut way = Way::new();
        for ns in [300 * MS, 200 * MS, 400 * MS] {
            assert!(way.is_asked() && way.is_full());
            way.took(ns);
        }
        assert_eq!((way.is_asked(), way.least_ns()), (false, Some(200 * MS)));
        seconds(&mut way, 1, Level::High);
        assert!(way.is_draining() && !way.is_asked() && !way.is_full());
        way.took(500 * MS);
        assert!(way.is_draining(), "it was asked before");
        way.limited(50 * MS, Level::Low);
        assert!(way.is_draining() && way.is_asked());
        way.took(150 * MS);
        assert_eq!(way.least_ns(), Some(150 * MS));
        assert!(!way.is_draining() && !way.is_asked() && !way.is_full());
        seconds(&mut way, 3, Level::High);
        assert!(way.is_full());
        seconds(&mut way, 56, Level::High);
        assert!(!way.is_draining());
        seconds(&mut way, 2, Level::High);
        assert!(way.is_draining());
        // Requests that never end: the attempt does.
        seconds(&mut way, 11, Level::High);
        assert!(!way.is_draining());
        seconds(&mut way, 61, Level::High);
        assert!(way.is_draining());
        way.unlimited(50 * MS);
        assert!(!way.is_draining(), "no device has work any more");
    }

    #[test]
    fn a_way_that_has_become_longer_is_believed_after_some_minutes() {
        let mut way = Way::new();
        way.took(20 * MS);
        for minute in 1..=7 {
            way.unlimited(60 * SECOND_NS);
            way.took(150 * MS);
            let expected = if minute < 6 { 20 * MS } else { 150 * MS };
            assert_eq!(way.least_ns(), Some(expected), "minute {minute}");
        }
        // Nothing is forgotten for which there is nothing newer.
        way.unlimited(3600 * SECOND_NS);
        assert_eq!(way.least_ns(), Some(150 * MS));
    }
}
