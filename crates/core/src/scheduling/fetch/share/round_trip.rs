//! How long it takes to the store and back, without the queue that the hosts' own requests make.
//!
//! Of what a host has in flight at its limit, a part waits in a queue of the link, and a request of one byte may
//! wait behind it. A limit that followed from such a time would make a longer queue, and that a higher limit. So what
//! counts is the least of the last minutes, and once a minute the host lets the queue run empty: it requests nothing
//! until only a part of the bandwidth-delay product is in flight, and only then a byte is requested. A product that was
//! estimated too large then makes a shorter queue, so that the estimate falls with each time until it is right.
//!
//! Several hosts may share the link, such as the ranks of a machine, and a queue is empty only if none of them fills it.
//! So all do this at the same moment, at the start of each minute of the wall clock, and go on for a second: one that
//! has little in flight waits for the others. The clocks of one machine agree, and those that NTP sets differ by
//! milliseconds. Until its first such moment a host has what it measured at the start: a queue that others fill would
//! tell it nothing new.
//!
//! What it costs: while the queue runs empty, the link is full. Then the host has a part of its product in flight until
//! the second is over and a byte has come, and is at its limit again a round trip later. So it loses at most
//! (max(1 s, RTT) + RTT) / 60 s of what it makes: 1.9 % at 150 ms. Devices go on.
//!
//! Nothing here reads a clock: whoever fetches says what time it is.

const SECOND_NS: u64 = 1_000_000_000;

/// The queue runs empty whenever the wall clock's time is a multiple of this …
const EVERY_NS: u64 = 60 * SECOND_NS;
/// … unless a host looks so late that the others would be done before it: then it waits for the next time.
const LATE_NS: u64 = SECOND_NS / 2;
/// It stays empty for so long after that moment …
const SPAN_NS: u64 = SECOND_NS;
/// … and the attempt ends after so long, whatever came of it.
const MOST_NS: u64 = 10 * SECOND_NS;
/// The link is full again after this and a few round trips.
const REFILL_NS: u64 = 2 * SECOND_NS;
const REFILL_ROUND_TRIPS: u64 = 4;

/// A time is forgotten after once to twice this, if there are newer ones.
const KEPT_NS: u64 = 180 * SECOND_NS;
/// So many are asked for at the start, while the link is not yet full …
const AT_START: u32 = 3;
/// … with so much time between them …
const START_EVERY_NS: u64 = 2 * SECOND_NS;
/// … and while the queue is empty: results of devices may be in it for a moment, and other hosts' last records.
const EMPTY_EVERY_NS: u64 = SECOND_NS / 5;

/// The minute of the wall clock that begins when all let the queue run empty.
pub(super) fn minute(wall_ns: u64) -> u64 {
    wall_ns / EVERY_NS
}

/// A byte that is requested now. It is given back with the answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Asked {
    /// The number of the attempt in which the queue had run empty; `None` outside of one.
    attempt: Option<u64>,
}

/// The least time there and back, and when it is measured.
#[derive(Debug, Clone)]
pub(super) struct RoundTrip {
    /// The least of the last minutes, and of those before them.
    least: [Option<u64>; 2],
    /// Since when the first of them counts.
    age_ns: u64,
    n: u32,
    /// Since when the last one was asked for.
    asked_ns: u64,
    /// To let the queue run empty.
    n_attempts: u64,
    phase: Phase,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// The host has all that its limit allows, for so long.
    Full(u64),
    /// It lets the queue run empty, for so long.
    Drains(u64),
    /// Its part of the queue is empty; so long since draining began.
    Empty { since_ns: u64, is_answered: bool },
}

impl RoundTrip {
    pub(super) fn new() -> Self {
        Self {
            least: [None; 2],
            age_ns: 0,
            n: 0,
            asked_ns: u64::MAX,
            n_attempts: 0,
            phase: Phase::Full(u64::MAX),
        }
    }

    /// A byte took so long there and back.
    pub(super) fn took(&mut self, asked: Asked, ns: u64) {
        if self.age_ns >= KEPT_NS {
            self.least = [None, self.least[0]];
            self.age_ns = 0;
        }
        self.least[0] = Some(self.least[0].map_or(ns, |least| least.min(ns)));
        self.n = self.n.saturating_add(1);
        if let Phase::Empty { is_answered, .. } = &mut self.phase {
            *is_answered |= asked.attempt == Some(self.n_attempts);
        }
    }

    /// The least of the last minutes.
    pub(super) fn least_ns(&self) -> Option<u64> {
        self.least.iter().flatten().min().copied()
    }

    /// So much time has passed in which the host was not limited.
    pub(super) fn unlimited(&mut self, ns: u64) {
        self.passes(ns);
        self.phase = match self.phase {
            Phase::Full(since) => Phase::Full(since.saturating_add(ns)),
            Phase::Drains(_) | Phase::Empty { .. } => Phase::Full(0),
        };
    }

    /// So much time has passed in which it was limited, until the wall clock had this time; whether as little is in
    /// flight as is to be while the queue runs empty.
    pub(super) fn limited(&mut self, ns: u64, wall_ns: u64, in_flight: Level) {
        self.passes(ns);
        let late_ns = wall_ns % EVERY_NS;
        self.phase = match self.phase {
            Phase::Full(_) if late_ns < LATE_NS => {
                self.n_attempts += 1;
                Phase::Drains(0)
            }
            Phase::Full(since) => Phase::Full(since.saturating_add(ns)),
            Phase::Drains(since_ns) | Phase::Empty { since_ns, .. }
                if since_ns >= MOST_NS =>
            {
                Phase::Full(0)
            }
            Phase::Drains(since) if in_flight == Level::High => {
                Phase::Drains(since.saturating_add(ns))
            }
            Phase::Drains(since) => {
                let since_ns = since.saturating_add(ns);
                Phase::Empty { since_ns, is_answered: false }
            }
            Phase::Empty { is_answered: true, .. } if late_ns >= SPAN_NS => {
                Phase::Full(0)
            }
            Phase::Empty { since_ns, is_answered } => {
                Phase::Empty { since_ns: since_ns.saturating_add(ns), is_answered }
            }
        };
    }

    fn passes(&mut self, ns: u64) {
        self.age_ns = self.age_ns.saturating_add(ns);
        self.asked_ns = self.asked_ns.saturating_add(ns);
    }

    /// Whether the queue is to run empty.
    pub(super) fn is_draining(&self) -> bool {
        !matches!(self.phase, Phase::Full(_))
    }

    /// A byte that is to be requested now, if it is time for one.
    pub(super) fn ask(&mut self) -> Option<Asked> {
        let (every_ns, attempt) = match self.phase {
            Phase::Empty { .. } => (EMPTY_EVERY_NS, Some(self.n_attempts)),
            Phase::Full(_) | Phase::Drains(_) if self.n < AT_START => {
                (START_EVERY_NS, None)
            }
            Phase::Full(_) | Phase::Drains(_) => return None,
        };
        if self.asked_ns < every_ns {
            return None;
        }
        self.asked_ns = 0;
        Some(Asked { attempt })
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
    /// When a minute of the wall clock begins.
    const MINUTE: u64 = 29_000_000 * EVERY_NS;

    /// A host that is limited and has more or less in flight, from one time to another.
    fn limited(trip: &mut RoundTrip, ms: std::ops::Range<u64>, in_flight: Level) {
        ms.step_by(50).for_each(|ms| trip.limited(50 * MS, MINUTE + ms * MS, in_flight));
    }

    #[test]
    fn it_is_measured_at_the_start() {
        let mut trip = RoundTrip::new();
        for ns in [300 * MS, 200 * MS, 400 * MS] {
            let asked = trip.ask().unwrap();
            assert_eq!((trip.ask(), trip.is_full()), (None, true));
            trip.took(asked, ns);
            trip.unlimited(2 * SECOND_NS);
        }
        assert_eq!((trip.ask(), trip.least_ns()), (None, Some(200 * MS)));
    }

    #[test]
    fn all_hosts_let_the_queue_run_empty_from_the_start_of_a_minute_for_a_second() {
        // One is drained at once and measures several times; another takes three seconds, and measures once.
        for (drained_ms, full_ms, expected) in [(50, 1050, 5), (3000, 3200, 1)] {
            let mut trip = RoundTrip::new();
            trip.n = AT_START;
            limited(&mut trip, 30_000..60_000, Level::High);
            assert!(!trip.is_draining(), "not before the minute is over");
            limited(&mut trip, 60_000..60_000 + drained_ms, Level::High);
            assert!(trip.is_draining() && !trip.is_full());
            assert_eq!(trip.ask(), None, "its own records are in the queue");
            let mut n = 0;
            for ms in (60_000 + drained_ms..60_000 + full_ms).step_by(200) {
                limited(&mut trip, ms..ms + 50, Level::Low);
                assert!(trip.is_draining(), "{ms}");
                let asked = trip.ask().unwrap();
                limited(&mut trip, ms + 50..ms + 200, Level::Low);
                trip.took(asked, (150 - n) * MS);
                n += 1;
            }
            let ms = 60_000 + full_ms;
            limited(&mut trip, ms..ms + 50, Level::Low);
            assert!(!trip.is_draining() && !trip.is_full());
            assert_eq!(trip.ask(), None);
            assert_eq!(n, expected);
            assert_eq!(trip.least_ns(), Some((151 - n) * MS));
            limited(&mut trip, ms + 50..ms + 2100, Level::High);
            assert!(trip.is_full());
        }
    }

    #[test]
    fn a_host_that_looks_too_late_waits_for_the_next_minute() {
        let mut trip = RoundTrip::new();
        limited(&mut trip, 500..60_000, Level::High);
        assert!(!trip.is_draining());
        limited(&mut trip, 60_450..60_500, Level::High);
        assert!(trip.is_draining());
        trip.unlimited(50 * MS);
        assert!(!trip.is_draining(), "no device has work any more");
    }

    #[test]
    fn a_byte_that_was_asked_for_before_the_queue_was_empty_does_not_end_the_wait() {
        let mut trip = RoundTrip::new();
        limited(&mut trip, 0..50, Level::High);
        let early = trip.ask().unwrap();
        limited(&mut trip, 50..2000, Level::Low);
        trip.took(early, 1900 * MS);
        limited(&mut trip, 2000..2050, Level::Low);
        assert!(trip.is_draining(), "it was asked before");
        let asked = trip.ask().unwrap();
        // Requests or answers that never end: the attempt does.
        limited(&mut trip, 2050..10_200, Level::Low);
        assert!(!trip.is_draining());
        // Nor does one of the minute before.
        limited(&mut trip, 60_000..62_000, Level::Low);
        trip.took(asked, 59_000 * MS);
        limited(&mut trip, 62_000..62_050, Level::Low);
        assert!(trip.is_draining());
        limited(&mut trip, 62_050..70_200, Level::High);
        assert!(!trip.is_draining());
    }

    #[test]
    fn a_time_that_has_become_longer_is_believed_after_some_minutes() {
        let mut trip = RoundTrip::new();
        let asked = || Asked { attempt: None };
        trip.took(asked(), 20 * MS);
        for minute in 1..=7 {
            trip.unlimited(60 * SECOND_NS);
            trip.took(asked(), 150 * MS);
            let expected = if minute < 6 { 20 * MS } else { 150 * MS };
            assert_eq!(trip.least_ns(), Some(expected), "minute {minute}");
        }
        // Nothing is forgotten for which there is nothing newer.
        trip.unlimited(3600 * SECOND_NS);
        assert_eq!(trip.least_ns(), Some(150 * MS));
    }
}
