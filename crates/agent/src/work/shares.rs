//! Who is served next when several sessions want the same workers: start-time fair queueing.
//!
//! A session has a clock, which runs on by the time that workers spend on it. The session whose clock is
//! furthest behind is served next, so over time all that want workers have them for equally long,
//! whatever their samples cost. How long a sample will take is not known when it is begun: the clock runs
//! on by what samples of this session took lately, and is corrected when it is done.
//!
//! A session that wanted nothing for a while resumes at the time of those that are being served. It
//! neither catches up nor is punished. While others wait, a session has no more workers at once
//! than its part, rounded up: one whose samples take forever leaves the rest to the others.
//!
//! It decides and knows neither jobs nor threads; whoever calls holds the lock. Scouts are shared
//! in the same way as workers.

use std::collections::BTreeMap;

/// A session as its neighbours see it: numbers are not used twice.
pub(crate) type SeatId = u64;

/// What a sample is believed to take before one of the session has been made.
const FIRST_GUESS_NS: u64 = 1_000_000;

/// The guess follows what samples take by one part in so many.
const GUESS_PARTS: u64 = 8;

/// The clocks of all sessions that share some workers.
#[derive(Debug)]
pub(crate) struct Shares {
    n_workers: usize,
    /// The clock of the session that was served last, when it was.
    now_ns: u64,
    seats: BTreeMap<SeatId, Share>,
}

#[derive(Debug)]
struct Share {
    clock_ns: u64,
    guess_ns: u64,
    /// Workers that are at its samples.
    n_at_work: usize,
    /// Whether it wanted a worker at the last choice.
    waits: bool,
}

/// What a session's clock ran on by when a sample was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Charge(u64);

impl Shares {
    pub(crate) fn of(n_workers: usize) -> Self {
        Self { n_workers, now_ns: 0, seats: BTreeMap::new() }
    }

    pub(crate) fn enter(&mut self, seat: SeatId) {
        let (clock_ns, guess_ns) = (self.now_ns, FIRST_GUESS_NS);
        let share = Share { clock_ns, guess_ns, n_at_work: 0, waits: false };
        self.seats.insert(seat, share);
    }

    pub(crate) fn leave(&mut self, seat: SeatId) {
        self.seats.remove(&seat);
    }

    /// The session that is served next, of those that want it; it counts as served.
    pub(crate) fn next(
        &mut self,
        wants: impl Fn(SeatId) -> bool,
    ) -> Option<(SeatId, Charge)> {
        let mut n_waiting = 0;
        for (seat, share) in &mut self.seats {
            let waits = wants(*seat);
            if waits && !share.waits {
                share.clock_ns = share.clock_ns.max(self.now_ns);
            }
            share.waits = waits;
            n_waiting += usize::from(waits);
        }
        // The workers of those that wait are fewer than all, so one of them has less than its part.
        let part = self.n_workers.div_ceil(n_waiting.max(1));
        let waiting = self.seats.iter_mut().filter(|(_, share)| share.waits);
        let within = waiting.filter(|(_, share)| share.n_at_work < part);
        let (seat, share) =
            within.min_by_key(|(seat, share)| (share.clock_ns, **seat))?;
        self.now_ns = self.now_ns.max(share.clock_ns);
        share.n_at_work += 1;
        let charge = Charge(share.guess_ns);
        share.clock_ns = share.clock_ns.saturating_add(charge.0);
        Some((*seat, charge))
    }

    /// What was begun for a session is done, or came to nothing, and took so long.
    pub(crate) fn done(&mut self, seat: SeatId, charge: Charge, took_ns: u64) {
        let Some(share) = self.seats.get_mut(&seat) else { return };
        share.n_at_work = share.n_at_work.saturating_sub(1);
        let clock_ns = share.clock_ns.saturating_sub(charge.0);
        share.clock_ns = clock_ns.saturating_add(took_ns);
        let older = share.guess_ns - share.guess_ns / GUESS_PARTS;
        share.guess_ns = older.saturating_add(took_ns / GUESS_PARTS);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    /// Workers on a clock that runs from event to event.
    struct World {
        shares: Shares,
        now_ns: u64,
        /// Until when somebody is at which sample, and since when.
        busy: Vec<(u64, u64, SeatId, Charge)>,
        used_ns: BTreeMap<SeatId, u64>,
        n_done: BTreeMap<SeatId, u64>,
    }

    impl World {
        fn new(n_workers: usize, n_seats: u64) -> Self {
            let mut shares = Shares::of(n_workers);
            (0..n_seats).for_each(|seat| shares.enter(seat));
            let (used_ns, n_done) = (BTreeMap::new(), BTreeMap::new());
            Self { shares, now_ns: 0, busy: Vec::new(), used_ns, n_done }
        }

        /// Goes on until `until_ns`, with sessions that want as said and samples that take as said.
        fn run(
            &mut self,
            until_ns: u64,
            wants: impl Fn(SeatId) -> bool,
            cost_ns: impl Fn(SeatId, u64) -> u64,
        ) {
            while self.now_ns < until_ns {
                while self.busy.len() < self.shares.n_workers {
                    let Some((seat, charge)) = self.shares.next(&wants) else { break };
                    let n_done = self.n_done.entry(seat).or_default();
                    let ends_ns = self.now_ns + cost_ns(seat, *n_done);
                    *n_done += 1;
                    self.busy.push((ends_ns, self.now_ns, seat, charge));
                }
                let Some(first) = (0..self.busy.len()).min_by_key(|i| self.busy[*i].0)
                else {
                    self.now_ns = until_ns;
                    break;
                };
                let (ends_ns, began_ns, seat, charge) = self.busy.swap_remove(first);
                self.now_ns = ends_ns;
                self.shares.done(seat, charge, ends_ns - began_ns);
                *self.used_ns.entry(seat).or_default() += ends_ns - began_ns;
            }
        }

        /// The largest share over the smallest of those sessions.
        fn unfairness(&self, seats: impl Iterator<Item = SeatId>) -> f64 {
            let used = seats.map(|seat| self.used_ns.get(&seat).copied().unwrap_or(0));
            let used: Vec<u64> = used.collect();
            let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
            *most as f64 / (*least).max(1) as f64
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn sessions_that_are_always_busy_have_equal_shares(
            n_workers in 1_usize..=24,
            costs in prop::collection::vec(8_u64..=200, 2..=16),
            wobble in prop::collection::vec(1_u64..=15, 7),
        ) {
            let n_seats = costs.len() as u64;
            let mut world = World::new(n_workers, n_seats);
            // Each wobbles around its own cost by up to fifteen times.
            let cost = |seat: SeatId, n: u64| {
                let nth = |n: u64| usize::try_from(n).unwrap();
                costs[nth(seat)] * wobble[nth(n % 7)] * (MS / 200)
            };
            // Long enough for many of the dearest samples.
            world.run(12_000 * MS, |_| true, cost);
            let unfairness = world.unfairness(0..n_seats);
            prop_assert!(unfairness <= 1.2, "{unfairness}: {:?}", world.used_ns);
        }
    }

    #[test]
    fn sixteen_sessions_of_equal_samples_take_turns() {
        let mut world = World::new(3, 16);
        world.run(3_200 * MS, |_| true, |_, _| MS);
        let counts: Vec<u64> = world.n_done.values().copied().collect();
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(counts.len() == 16 && most - least <= 2, "{counts:?}");
    }

    #[test]
    fn a_session_that_was_idle_has_no_credit_for_it() {
        let mut world = World::new(1, 2);
        world.run(1_000 * MS, |seat| seat == 0, |_, _| MS);
        let before = world.used_ns[&0];
        world.run(1_100 * MS, |_| true, |_, _| MS);
        let (zero, one) = (world.used_ns[&0] - before, world.used_ns[&1]);
        assert!(zero.abs_diff(one) <= 2 * MS, "{zero} and {one}");
    }

    #[test]
    fn samples_that_never_end_do_not_take_the_others_workers() {
        for (n_workers, n_others, n_held) in [(4, 1, 2), (4, 3, 1), (2, 1, 1), (5, 1, 3)]
        {
            let mut world = World::new(n_workers, 1 + n_others);
            let cost = |seat, _| if seat == 0 { 1_000_000 * MS } else { MS };
            world.run(1_000 * MS, |_| true, cost);
            let held = world.busy.iter().filter(|(.., seat, _)| *seat == 0).count();
            assert_eq!(held, n_held, "of {n_workers} workers beside {n_others}");
            assert!(world.unfairness(1..=n_others) <= 1.2);
        }
    }

    #[test]
    fn who_leaves_is_forgotten_whatever_is_still_at_work_for_it() {
        let mut shares = Shares::of(1);
        shares.enter(1);
        shares.enter(2);
        let (seat, charge) = shares.next(|_| true).unwrap();
        shares.leave(seat);
        shares.done(seat, charge, MS);
        assert_eq!(shares.next(|_| true).map(|(seat, _)| seat), Some(2));
        assert_eq!(shares.next(|_| false), None);
    }
}
