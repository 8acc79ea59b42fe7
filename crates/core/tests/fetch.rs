//! The fetch queue under whatever arrives: random offers, withdrawals, answers in any order, failures
//! of every kind, silence and time, checked with accounts of the test's own.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bothends_core::fetch::{
    Failure, FetchConfig, FetchQueue, FetchStep, Growth, Hedge, RequestId, Wanted,
};
use bothends_core::ids::Ns;
use proptest::collection::vec;
use proptest::prelude::*;

const MILLI: u64 = 1_000_000;

/// Something that happens. Numbers choose among what there is.
#[derive(Debug, Clone, Copy)]
enum Event {
    Offer(u8),
    OfferAgain(u8),
    Withdraw(u16),
    Answer(u16),
    Hear(u16),
    Fail(u16, Failure),
    /// An answer to a request that is not in flight any more.
    AnswerAgain,
    Pass(u16),
    TakeLowest,
    TakeAny(u16),
    Await(u16),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let failure = prop_oneof![
        Just(Failure::Reset),
        Just(Failure::Timeout),
        Just(Failure::GoAway),
        Just(Failure::Refused),
        Just(Failure::Final),
        Just(Failure::Throttled { retry_after_ns: None }),
        (0_u64..3_000)
            .prop_map(|ms| Failure::Throttled { retry_after_ns: Some(ms * MILLI) }),
    ];
    let event = prop_oneof![
        4 => (1_u8..20).prop_map(Event::Offer),
        1 => any::<u8>().prop_map(Event::OfferAgain),
        1 => any::<u16>().prop_map(Event::Withdraw),
        8 => any::<u16>().prop_map(Event::Answer),
        2 => any::<u16>().prop_map(Event::Hear),
        2 => (any::<u16>(), failure).prop_map(|(at, failure)| Event::Fail(at, failure)),
        1 => Just(Event::AnswerAgain),
        3 => (0_u16..1_500).prop_map(Event::Pass),
        6 => Just(Event::TakeLowest),
        1 => any::<u16>().prop_map(Event::TakeAny),
        1 => any::<u16>().prop_map(Event::Await),
    ];
    vec(event, 1..250)
}

fn configs() -> impl Strategy<Value = FetchConfig> {
    let bounds = (1_u32..12, 1_u64..8_000, 1_u64..16_000, 0_u32..3);
    let joins = (prop_oneof![Just(0_u64), 1_u64..6_000], 0_u64..200);
    (bounds, joins, any::<[bool; 2]>(), any::<u64>()).prop_map(
        |(bounds, joins, [adapts, hedges], seed)| FetchConfig {
            max_requests: bounds.0,
            max_bytes: bounds.1,
            reorder_bytes: bounds.2,
            first_requests: bounds.3,
            ramp: bounds.3,
            growth: if adapts { Growth::Adaptive } else { Growth::Fixed },
            hedge: if hedges { Hedge::On } else { Hedge::Off },
            most_joined_bytes: joins.0,
            max_gap_bytes: joins.1,
            seed,
            ..FetchConfig::default()
        },
    )
}

/// A request in flight.
#[derive(Debug, Clone)]
struct Sent {
    object: u32,
    range: Range<u64>,
    at: Ns,
}

/// The queue, and what its caller knows of it.
struct Caller {
    config: FetchConfig,
    queue: FetchQueue,
    now: Ns,
    /// Offered, and neither taken, withdrawn nor failed; with object and range.
    open: BTreeMap<u64, (u32, Range<u64>)>,
    /// Those of them that have arrived.
    here: BTreeSet<u64>,
    withdrawn: Vec<u64>,
    in_flight: BTreeMap<RequestId, Sent>,
    gone: Option<RequestId>,
    awaited: Option<u64>,
    n_offered: u64,
    wake: Option<Ns>,
    n_failed: usize,
    n_taken: usize,
    places: u64,
}

impl Caller {
    fn new(config: FetchConfig) -> Self {
        Self {
            config,
            queue: FetchQueue::new(config),
            now: Ns(0),
            open: BTreeMap::new(),
            here: BTreeSet::new(),
            withdrawn: Vec::new(),
            in_flight: BTreeMap::new(),
            gone: None,
            awaited: None,
            n_offered: 0,
            wake: None,
            n_failed: 0,
            n_taken: 0,
            places: config.seed | 1,
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Offer(n) => (0..n).for_each(|_| self.offer()),
            Event::OfferAgain(which) => {
                if let Some(position) = self.withdrawn.pop() {
                    self.offer_at(position, which.into());
                }
            }
            Event::Withdraw(which) => {
                if let Some(position) = nth(self.open.keys(), which) {
                    self.queue.withdraw(position);
                    self.open.remove(&position);
                    self.here.remove(&position);
                    self.withdrawn.push(position);
                }
            }
            Event::Answer(which) => {
                if let Some(request) = nth(self.in_flight.keys(), which) {
                    self.answer(request);
                }
            }
            Event::Hear(which) => {
                if let Some(request) = nth(self.in_flight.keys(), which) {
                    self.queue.heard(request, self.now);
                }
            }
            Event::Fail(which, failure) => {
                if let Some(request) = nth(self.in_flight.keys(), which) {
                    self.fail(request, failure);
                }
            }
            Event::AnswerAgain => {
                if let Some(request) = self.gone {
                    self.queue.heard(request, self.now);
                    assert!(self.queue.arrived(request, self.now).is_empty());
                    assert!(
                        self.queue.failed(request, Failure::Final, self.now).is_empty()
                    );
                }
            }
            Event::Pass(ms) => self.now = self.now.plus(u64::from(ms) * MILLI),
            Event::TakeLowest => self.take_lowest(),
            Event::TakeAny(which) => {
                if let Some(position) = nth(self.here.iter(), which) {
                    self.take(position);
                }
            }
            Event::Await(which) => {
                if let Some(position) = nth(self.open.keys(), which) {
                    self.awaited = Some(position);
                    self.queue.awaits(position);
                }
            }
        }
        self.carry_out();
    }

    fn offer(&mut self) {
        self.n_offered += 1;
        self.places = self.places.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.offer_at(self.n_offered, self.places >> 33);
    }

    /// Places that are often neighbours, sometimes equal, and sometimes empty.
    fn offer_at(&mut self, position: u64, place: u64) {
        let (object, start) = (u32::try_from(place % 3).unwrap(), place / 3 % 64 * 100);
        let len = [100, 90, 0, 400, 2_000][usize::try_from(place / 7 % 5).unwrap()];
        let range = start..start + len;
        self.open.insert(position, (object, range.clone()));
        self.queue.offer(Wanted { position, object, range });
    }

    fn take_lowest(&mut self) {
        if let Some(lowest) = self.open.keys().next().copied()
            && self.here.contains(&lowest)
        {
            self.take(lowest);
        }
    }

    fn take(&mut self, position: u64) {
        self.queue.taken(position);
        self.open.remove(&position);
        self.here.remove(&position);
        self.n_taken += 1;
    }

    fn answer(&mut self, request: RequestId) {
        let sent = self.in_flight.remove(&request).unwrap();
        self.gone = Some(request);
        for piece in self.queue.arrived(request, self.now) {
            let (object, range) = &self.open[&piece.position];
            let start = sent.range.start;
            let bytes = start + piece.bytes.start..start + piece.bytes.end;
            assert_eq!((*object, range.clone()), (sent.object, bytes));
            assert!(self.here.insert(piece.position), "{} came twice", piece.position);
        }
    }

    fn fail(&mut self, request: RequestId, failure: Failure) {
        self.in_flight.remove(&request).unwrap();
        self.gone = Some(request);
        let failed = self.queue.failed(request, failure, self.now).to_vec();
        failed.into_iter().for_each(|position| self.has_failed(position));
    }

    fn has_failed(&mut self, position: u64) {
        assert!(self.open.remove(&position).is_some(), "{position} failed twice");
        assert!(!self.here.contains(&position), "{position} had come");
        self.n_failed += 1;
    }

    fn missing(&self) -> impl Iterator<Item = u64> {
        self.open.keys().copied().filter(|position| !self.here.contains(position))
    }

    fn carry_out(&mut self) {
        for _ in 0..10_000 {
            let before = self.queue.figures();
            match self.queue.next(self.now) {
                FetchStep::Request { request, object, range, timeout_ns } => {
                    assert!(
                        timeout_ns > 0 && timeout_ns <= self.config.throttled_deadline_ns
                    );
                    let sent = Sent { object, range, at: self.now };
                    self.check_request(&sent, before.held_bytes, before.p99_ns);
                    assert!(self.in_flight.insert(request, sent).is_none());
                }
                FetchStep::Cancel { request } => {
                    assert!(self.in_flight.remove(&request).is_some());
                    self.gone = Some(request);
                }
                FetchStep::GiveUp { position } => self.has_failed(position),
                FetchStep::WakeAt(at) => {
                    assert!(at > self.now, "it would be asked in vain for ever");
                    self.wake = Some(at);
                    return self.check_figures();
                }
                FetchStep::Idle => {
                    self.wake = None;
                    assert!(self.in_flight.is_empty(), "an answer would be waited for");
                    return self.check_figures();
                }
            }
        }
        panic!("the queue finds no end of things to do");
    }

    /// What exceeds a bound is the position that delivery waits for, alone, or a hedge.
    fn check_request(&self, sent: &Sent, held: u64, p99_ns: u64) {
        let len = sent.range.end - sent.range.start;
        let is_of = |position: &u64| {
            let (object, range) = &self.open[position];
            *object == sent.object
                && range.start >= sent.range.start
                && range.end <= sent.range.end
        };
        let same = self
            .in_flight
            .values()
            .filter(|s| s.object == sent.object && s.range == sent.range);
        let oldest = self.awaited.filter(|it| self.missing().any(|m| m == *it));
        let oldest = oldest.or_else(|| self.missing().next()).unwrap();
        let is_late = |s: &Sent| p99_ns > 0 && self.now.since(s.at) > p99_ns;
        let may_hedge =
            self.config.hedge == Hedge::On && is_of(&oldest) && same.clone().any(is_late);
        let urgent = [self.open.keys().next().copied(), self.awaited];
        let urgent = urgent
            .into_iter()
            .flatten()
            .any(|position| self.open.contains_key(&position) && is_of(&position));
        let bytes: u64 =
            self.in_flight.values().map(|s| s.range.end - s.range.start).sum();
        let is_within = self.in_flight.len() < self.config.max_requests as usize
            && (len == 0 || bytes + len <= self.config.max_bytes);
        // A retry has been counted as held already.
        assert!(
            is_within || urgent || may_hedge || is_of(&oldest),
            "{sent:?} exceeds a bound and nobody waits for it"
        );
        let is_new = self.queue.figures().held_bytes > held;
        if is_new && len > 0 && held + len > self.config.reorder_bytes {
            assert!(urgent, "{sent:?} exceeds the reorder buffer");
            assert!(
                self.open.values().any(|it| *it == (sent.object, sent.range.clone())),
                "{sent:?} is more than the one position"
            );
        }
    }

    fn check_figures(&self) {
        let figures = self.queue.figures();
        let bytes: u64 =
            self.in_flight.values().map(|s| s.range.end - s.range.start).sum();
        assert_eq!(figures.in_flight as usize, self.in_flight.len());
        assert_eq!(figures.in_flight_bytes, bytes);
        assert_eq!(figures.offered, self.open.len() as u64);
        assert_eq!(figures.counts.failed, self.n_failed as u64);
        assert!(figures.held_bytes >= figures.reordered_bytes);
        assert!(self.missing().all(|position| self.queue.is_missing(position)));
        assert!(!self.here.iter().any(|position| self.queue.is_missing(*position)));
    }

    /// From now on everything is answered, the latest first, and taken in order.
    fn end_calmly(&mut self) {
        let limit = 10 * (self.open.len() + 10);
        for _ in 0..limit {
            self.carry_out();
            let waiting: Vec<RequestId> = self.in_flight.keys().rev().copied().collect();
            for request in &waiting {
                self.now = self.now.plus(MILLI);
                // A hedge may have been first.
                if self.in_flight.contains_key(request) {
                    self.answer(*request);
                }
                self.carry_out();
            }
            while self.open.keys().next().is_some_and(|it| self.here.contains(it)) {
                self.take_lowest();
            }
            self.carry_out();
            if self.open.is_empty() && self.in_flight.is_empty() {
                return self.check_empty();
            }
            if self.in_flight.is_empty() {
                self.now = self.wake.expect("something is missing and nothing happens");
            }
        }
        panic!("{} positions are left: {:?}", self.open.len(), self.queue.figures());
    }

    /// From now on nothing is answered: everything fails in time.
    fn end_silently(&mut self) {
        let patience = self.config.throttled_deadline_ns + self.config.deadline_ns;
        for _ in 0..100_000 {
            self.carry_out();
            // What has come is taken, as it comes before what fails.
            for position in self.here.clone() {
                self.take(position);
            }
            self.carry_out();
            if self.open.is_empty() {
                return self.check_empty();
            }
            let wake = self.wake.expect("something is missing and nothing happens");
            assert!(wake.since(self.now) <= patience);
            self.now = wake;
        }
        panic!("{} positions are left", self.open.len());
    }

    fn check_empty(&mut self) {
        self.carry_out();
        let figures = self.queue.figures();
        let left = (figures.in_flight_bytes, figures.reordered_bytes, figures.held_bytes);
        assert_eq!(left, (0, 0, 0));
        assert_eq!((figures.in_flight, figures.waiting, figures.offered), (0, 0, 0));
    }
}

/// One of the members, chosen by a number.
fn nth<'a, T: Copy + 'a>(
    members: impl ExactSizeIterator<Item = &'a T>,
    which: u16,
) -> Option<T> {
    let len = members.len();
    members.copied().nth(usize::from(which) % len.max(1))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_position_arrives_once_or_fails_or_is_withdrawn_within_the_bounds(
        config in configs(),
        events in events(),
    ) {
        let mut caller = Caller::new(config);
        events.into_iter().for_each(|event| caller.happen(event));
        caller.end_calmly();
    }

    #[test]
    fn nothing_hangs_when_nothing_answers_any_more(
        config in configs(),
        events in events(),
    ) {
        let mut caller = Caller::new(config);
        events.into_iter().for_each(|event| caller.happen(event));
        caller.end_silently();
    }

    #[test]
    fn the_same_events_have_the_same_steps(config in configs(), events in events()) {
        let play = || {
            let mut caller = Caller::new(config);
            events.iter().for_each(|event| caller.happen(*event));
            (caller.queue.figures(), caller.in_flight.keys().copied().collect::<Vec<_>>())
        };
        prop_assert_eq!(play(), play());
    }
}
