//! Who is served next when several sessions want the same workers: start-time fair queueing, by need.
//!
//! A session has a clock, which runs on by the time that workers spend on it, divided by the weight of its
//! job. The session whose clock is furthest behind is served next, so over time jobs that want workers have
//! them in proportion to their weights, whatever their samples cost and however many sessions they have.
//! Of sessions whose clocks are about equal the one whose batch is needed first is served
//! ([`TOLERANCE_SAMPLES`]). A session without a job's name is a job of its own.
//!
//! A session is *fed* while its host does not need the batch for longer than it takes to make it
//! ([`Want::is_fed`]). While another one is not, a fed session is served as if it wanted nothing. Its need
//! comes nearer as time passes, so it is served in time, and nobody waits forever.
//!
//! How long a sample will take is not known when it is begun: the clock runs on by what samples of this
//! session took lately, and is corrected when it is done.
//!
//! A session that wanted nothing for a while resumes at the time of those that are being served. It
//! neither catches up nor is punished. While others wait, a session has no more workers at once
//! than its part, rounded up: one whose samples take forever leaves the rest to the others.
//!
//! A sample that was begun is finished, so one of a second holds up everybody whose samples take a
//! millisecond, as soon as their queues have been empty for a moment. Sessions of *long* samples
//! therefore get at most half of the workers, rounded up, while one of much shorter samples is
//! present (`Shares::blocked_ns`). A single worker waits a few milliseconds for the session of short
//! samples before it begins a long one, if that session has had less than its share (`Shares::grace_ns`).
//! Both leave workers idle that somebody wants: half of them, or a fifth of the one, at most.
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

/// Samples that take less hold nobody up for long.
const LONG_NS: u64 = 50_000_000;

/// How much longer than the shortest a session's samples are that are long.
const LONG_TIMES: u64 = 10;

/// A session is present for so long after its last sample: one that asks for four batches a second
/// always is.
const PRESENT_NS: u64 = 250_000_000;

/// How long the only worker waits for a session to come back: a host that has just got a batch asks
/// for the next one within a round trip.
const GRACE_NS: u64 = 10_000_000;

/// A long sample is held back for one part in so many of what it takes, at most.
const GRACE_PARTS: u64 = 4;

/// A session is fed only if its batch is needed this much later than it can be made at the earliest.
const FED_NS: u64 = 50_000_000;

/// Clocks that differ by less than so many samples count as equal: need decides between them. A small part
/// of a batch, so that jobs have their shares in any few batches.
const TOLERANCE_SAMPLES: u64 = 4;

/// The same in time, for sessions of long samples.
const MOST_TOLERANCE_NS: u64 = 8_000_000;

/// The weight of a job with the share 1 and the priority 0.
pub(crate) const WEIGHT_ONE: u64 = 16;

/// Parts of the workers are counted in so small ones that many sessions of a job have some.
const PART_ONE: u64 = 1 << 12;

/// A job as its sessions' neighbours see it.
pub(crate) type JobNumber = u64;

/// What a session wants at a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Want {
    /// When its host needs the first batch of which a sample waits.
    pub(crate) due_ns: u64,
    /// How many samples wait up to the end of that batch.
    pub(crate) n_samples: u64,
}

impl Want {
    /// Whether the batch is needed later than it can be made by a single worker, with twice the time to
    /// spare, if a sample takes so long.
    fn is_fed(self, now_ns: u64, sample_ns: u64) -> bool {
        let work_ns = self.n_samples.saturating_mul(sample_ns);
        let least_ns = work_ns.saturating_mul(2).max(FED_NS);
        self.due_ns.saturating_sub(now_ns) > least_ns
    }
}

/// The clocks of all sessions that share some workers.
#[derive(Debug, Clone)]
pub(crate) struct Shares {
    n_workers: usize,
    /// The clock of the session that was served last, when it was.
    served_ns: u64,
    seats: BTreeMap<SeatId, Share>,
    /// How many sessions of each job want workers, or have some.
    jobs: BTreeMap<JobNumber, u64>,
    /// Workers at samples of sessions that have left.
    n_left: usize,
    /// The session that the only worker holds back, and since when.
    held: Option<(SeatId, u64)>,
}

#[derive(Debug, Clone)]
struct Share {
    /// Worker time, divided by the weight.
    clock_ns: u64,
    guess_ns: u64,
    weight: u64,
    job: Option<JobNumber>,
    /// Sessions of its job, this one among them, that want workers, or have some.
    n_alike: u64,
    /// What it wanted at the last choice.
    want: Option<Want>,
    lengths: Lengths,
    /// Workers that are at its samples.
    n_at_work: usize,
    /// Whether it wanted a worker at the last choice, and was not fed while another one was not.
    waits: bool,
    /// When its last sample was done.
    last_ns: Option<u64>,
    /// For how long a worker was idle in front of its next sample.
    held_ns: u64,
}

/// How long the samples of a session take that workers are found at: each counts by the time it
/// takes. A session with one long sample among a hundred short ones is one of long samples.
#[derive(Debug, Clone, Default)]
struct Lengths {
    sum_ns: u128,
    sum_of_squares: u128,
}

/// What a session's clock ran on by when a sample was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Charge(u64);

/// What came of a sample that was begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spent {
    /// For how long the worker was at it.
    pub(crate) took_ns: u64,
    /// What else it counts as: one that was refused counts as if it had been made, so asking for
    /// more of them gains nothing.
    pub(crate) refused_ns: u64,
    pub(crate) on: Effort,
}

/// What a worker did for a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// It made the sample, or tried to.
    Making,
    /// It copied the sample, or left it to whoever makes it: this says nothing of how long samples take.
    Copying,
}

/// Whom a worker is to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// This session, which counts as served.
    Serve(SeatId, Charge),
    /// Nobody for so many nanoseconds, unless something changes before.
    Hold(u64),
    /// Nobody wants anything.
    Nothing,
}

impl Shares {
    pub(crate) fn of(n_workers: usize) -> Self {
        let (seats, jobs) = (BTreeMap::new(), BTreeMap::new());
        Self { n_workers, served_ns: 0, seats, jobs, n_left: 0, held: None }
    }

    pub(crate) fn enter(&mut self, seat: SeatId) {
        self.seats.insert(seat, Share::new(self.served_ns));
    }

    /// From now on the session is of this job, or of one of its own, with this weight.
    pub(crate) fn weigh(&mut self, seat: SeatId, job: Option<JobNumber>, weight: u64) {
        if let Some(share) = self.seats.get_mut(&seat) {
            (share.job, share.weight) = (job, weight.max(1));
        }
    }

    pub(crate) fn leave(&mut self, seat: SeatId) {
        let gone = self.seats.remove(&seat);
        self.n_left += gone.map_or(0, |share| share.n_at_work);
    }

    /// The session that is served next, at `now_ns`, of those that want it.
    pub(crate) fn next(
        &mut self,
        now_ns: u64,
        wants: impl Fn(SeatId) -> Option<Want>,
    ) -> Next {
        self.book_hold(now_ns);
        self.book_wants(now_ns, wants);
        let blocked_ns = self.blocked_ns(now_ns);
        let shortest_ns = self.shortest_ns(now_ns);
        let may = |share: &Share| blocked_ns.is_none() || !share.is_long(shortest_ns);
        let waiting = || self.seats.iter().filter(|(_, share)| share.waits);
        let allowed = || waiting().filter(|(_, share)| may(share));
        // The workers of those that wait are fewer than all, so one of them has less than its part.
        let all: u64 = allowed().map(|(_, share)| share.part()).sum();
        let n_workers = self.n_workers as u64;
        let most = |share: &Share| (n_workers * share.part()).div_ceil(all.max(1));
        let within =
            || allowed().filter(|(_, share)| (share.n_at_work as u64) < most(share));
        let last_ns = within().map(|(_, share)| share.equal_ns()).min();
        let equal =
            within().filter(|(_, it)| last_ns.is_some_and(|last| it.clock_ns <= last));
        let first = equal.min_by_key(|(seat, it)| (it.due_ns(), it.clock_ns, **seat));
        let Some(seat) = first.map(|(seat, _)| *seat) else {
            return match blocked_ns {
                Some(ns) if waiting().next().is_some() => Next::Hold(ns),
                Some(_) | None => Next::Nothing,
            };
        };
        if let Some(ns) = self.grace_ns(seat, now_ns) {
            self.held = Some((seat, now_ns));
            return Next::Hold(ns);
        }
        self.begin(seat)
    }

    fn begin(&mut self, seat: SeatId) -> Next {
        let Some(share) = self.seats.get_mut(&seat) else { return Next::Nothing };
        self.served_ns = self.served_ns.max(share.clock_ns);
        share.n_at_work += 1;
        share.held_ns = 0;
        let charge = Charge(share.scaled(share.guess_ns));
        share.clock_ns = share.clock_ns.saturating_add(charge.0);
        Next::Serve(seat, charge)
    }

    /// What was begun for a session is done, or came to nothing, at `now_ns`.
    pub(crate) fn done(
        &mut self,
        seat: SeatId,
        charge: Charge,
        spent: Spent,
        now_ns: u64,
    ) {
        let Some(share) = self.seats.get_mut(&seat) else {
            self.n_left = self.n_left.saturating_sub(1);
            return;
        };
        let Spent { took_ns, refused_ns, on } = spent;
        share.n_at_work = share.n_at_work.saturating_sub(1);
        let clock_ns = share.clock_ns.saturating_sub(charge.0);
        let spent_ns = share.scaled(took_ns.saturating_add(refused_ns));
        share.clock_ns = clock_ns.saturating_add(spent_ns);
        share.last_ns = Some(now_ns);
        if on == Effort::Copying {
            return;
        }
        let older = share.guess_ns - share.guess_ns / GUESS_PARTS;
        share.guess_ns = older.saturating_add(took_ns / GUESS_PARTS);
        share.lengths.add(took_ns);
    }

    /// The shortest samples of the sessions that are present, if any are known.
    fn shortest_ns(&self, now_ns: u64) -> Option<u64> {
        let present = self.seats.values().filter(|share| share.is_present(now_ns));
        present.filter_map(|share| share.lengths.typical_ns()).min()
    }

    /// For how long sessions of long samples get no further worker; `None` where they may have one.
    fn blocked_ns(&self, now_ns: u64) -> Option<u64> {
        let shortest_ns = self.shortest_ns(now_ns)?;
        let long = self.seats.values().filter(|share| share.is_long(Some(shortest_ns)));
        let n_at_work: usize = long.map(|share| share.n_at_work).sum();
        if n_at_work + self.n_left < self.n_workers.div_ceil(2) {
            return None;
        }
        let short = self.seats.values().filter(|share| {
            share.lengths.typical_ns() == Some(shortest_ns) && share.is_present(now_ns)
        });
        short.filter_map(|share| share.last_ns).max().map(|last_ns| {
            // One that waits or is at work stays present; then whoever is done asks again.
            PRESENT_NS.saturating_sub(now_ns.saturating_sub(last_ns)).max(GRACE_NS)
        })
    }

    /// For how long the only worker waits before it begins a long sample of `seat`: for a session
    /// of shorter ones that has just been served, and has had less.
    fn grace_ns(&self, seat: SeatId, now_ns: u64) -> Option<u64> {
        let long = self.seats.get(&seat).filter(|_| self.n_workers == 1)?;
        let long_ns = long.lengths.typical_ns()?;
        let left_ns = (long_ns / GRACE_PARTS).checked_sub(long.held_ns)?;
        let away_ns = |share: &Share| {
            let is_owed = !share.waits && share.clock_ns < long.clock_ns;
            let is_shorter = long.is_long(Some(share.lengths.typical_ns()?));
            let away_ns = now_ns.saturating_sub(share.last_ns?);
            (is_owed && is_shorter).then_some(away_ns)
        };
        let away_ns = self.seats.values().filter_map(away_ns).min()?;
        let wait_ns = GRACE_NS.saturating_sub(away_ns).min(left_ns);
        (wait_ns > 0).then_some(wait_ns)
    }

    /// Notes who wants a worker now, and is not fed while others are not.
    fn book_wants(&mut self, now_ns: u64, wants: impl Fn(SeatId) -> Option<Want>) {
        let mut is_anybody_in_need = false;
        self.jobs.clear();
        for (seat, share) in &mut self.seats {
            share.want = wants(*seat);
            is_anybody_in_need |= share.want.is_some() && !share.is_fed(now_ns);
        }
        for share in self.seats.values_mut() {
            let is_put_off = is_anybody_in_need && share.is_fed(now_ns);
            let waits = share.want.is_some() && !is_put_off;
            if waits && !share.waits {
                share.clock_ns = share.clock_ns.max(self.served_ns);
            }
            share.waits = waits;
            if let Some(job) = share.job
                && (waits || share.n_at_work > 0)
            {
                *self.jobs.entry(job).or_default() += 1;
            }
        }
        for share in self.seats.values_mut() {
            let n_alike = share.job.and_then(|job| self.jobs.get(&job));
            share.n_alike = n_alike.copied().unwrap_or(1);
        }
    }

    /// Notes for how long a session was held back until now.
    fn book_hold(&mut self, now_ns: u64) {
        let Some((seat, since_ns)) = self.held.take() else { return };
        if let Some(share) = self.seats.get_mut(&seat) {
            let held_ns = now_ns.saturating_sub(since_ns);
            share.held_ns = share.held_ns.saturating_add(held_ns);
        }
    }
}

impl Share {
    fn new(clock_ns: u64) -> Self {
        Self {
            clock_ns,
            guess_ns: FIRST_GUESS_NS,
            weight: WEIGHT_ONE,
            job: None,
            n_alike: 1,
            want: None,
            lengths: Lengths::default(),
            n_at_work: 0,
            waits: false,
            last_ns: None,
            held_ns: 0,
        }
    }

    /// What a worker's time counts on its clock.
    fn scaled(&self, ns: u64) -> u64 {
        if (self.weight, self.n_alike) == (WEIGHT_ONE, 1) {
            return ns;
        }
        let parts = u128::from(ns) * u128::from(WEIGHT_ONE) * u128::from(self.n_alike);
        u64::try_from(parts / u128::from(self.weight)).unwrap_or(u64::MAX)
    }

    /// Its part of the workers, next to those of other sessions.
    fn part(&self) -> u64 {
        (self.weight * PART_ONE / self.n_alike).max(1)
    }

    /// Clocks up to this count as equal to its own.
    fn equal_ns(&self) -> u64 {
        let few_ns = self.guess_ns.saturating_mul(TOLERANCE_SAMPLES);
        self.clock_ns.saturating_add(self.scaled(few_ns.min(MOST_TOLERANCE_NS)))
    }

    /// Whether its host can wait for what it wants.
    fn is_fed(&self, now_ns: u64) -> bool {
        self.want.is_some_and(|want| want.is_fed(now_ns, self.guess_ns))
    }

    fn due_ns(&self) -> u64 {
        self.want.map_or(0, |want| want.due_ns)
    }

    fn is_present(&self, now_ns: u64) -> bool {
        let is_recent = |last_ns| now_ns.saturating_sub(last_ns) < PRESENT_NS;
        self.waits || self.n_at_work > 0 || self.last_ns.is_some_and(is_recent)
    }

    /// Whether its samples are long compared with those that take so long; or may be, for it has had
    /// nothing yet.
    fn is_long(&self, shortest_ns: Option<u64>) -> bool {
        let Some(shortest_ns) = shortest_ns else { return false };
        let least_ns = shortest_ns.saturating_mul(LONG_TIMES).max(LONG_NS);
        let typical_ns = self.lengths.typical_ns();
        typical_ns.map_or(self.last_ns.is_none(), |ns| ns >= least_ns)
    }
}

impl Lengths {
    /// Older samples count less: one of 32 samples ago a third of what it did.
    const PARTS: u128 = 32;

    fn add(&mut self, took_ns: u64) {
        // A year at most, so that squares stay within range.
        let took_ns = u128::from(took_ns.clamp(1, 1 << 55));
        self.sum_ns = self.sum_ns - self.sum_ns / Self::PARTS + took_ns;
        let older = self.sum_of_squares - self.sum_of_squares / Self::PARTS;
        self.sum_of_squares = older.saturating_add(took_ns * took_ns);
    }

    fn typical_ns(&self) -> Option<u64> {
        let typical = self.sum_of_squares.checked_div(self.sum_ns)?;
        Some(u64::try_from(typical).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    /// A batch that is needed at once.
    const NOW: Want = Want { due_ns: 0, n_samples: 1 };

    /// Workers on a clock that runs from event to event.
    struct World {
        shares: Shares,
        now_ns: u64,
        /// Until when somebody is at which sample, and since when.
        busy: Vec<(u64, u64, SeatId, Charge)>,
        used_ns: BTreeMap<SeatId, u64>,
        n_done: BTreeMap<SeatId, u64>,
        /// Whose samples were made, and how long they took, in this order.
        made: Vec<(SeatId, u64)>,
        /// For how long workers were idle while somebody wanted them, all together.
        held_ns: u64,
    }

    /// When hosts ask for samples: all the time, or so many and then nothing for a while.
    #[derive(Debug, Clone, Copy)]
    enum Asks {
        Always,
        Never,
        /// So many at a time, and the next so many nanoseconds after the last one was made.
        InTurn(u64, u64),
    }

    impl World {
        fn new(n_workers: usize, n_seats: u64) -> Self {
            let mut shares = Shares::of(n_workers);
            (0..n_seats).for_each(|seat| shares.enter(seat));
            let (used_ns, n_done) = (BTreeMap::new(), BTreeMap::new());
            let (busy, made) = (Vec::new(), Vec::new());
            Self { shares, now_ns: 0, busy, used_ns, n_done, made, held_ns: 0 }
        }

        /// Goes on until `until_ns`, with sessions that want as said and samples that take as said.
        fn run(
            &mut self,
            until_ns: u64,
            wants: impl Fn(SeatId) -> bool,
            cost_ns: impl Fn(SeatId, u64) -> u64,
        ) {
            let asks = |seat| if wants(seat) { Asks::Always } else { Asks::Never };
            self.run_as(until_ns, asks, cost_ns);
        }

        /// The same, with sessions that ask as said.
        fn run_as(
            &mut self,
            until_ns: u64,
            asks: impl Fn(SeatId) -> Asks,
            cost_ns: impl Fn(SeatId, u64) -> u64,
        ) {
            // What is left of the samples that each has asked for, and when it asks again.
            let seats: Vec<SeatId> = self.shares.seats.keys().copied().collect();
            let mut left: BTreeMap<SeatId, u64> = BTreeMap::new();
            let in_turn = |seat: &&SeatId| matches!(asks(**seat), Asks::InTurn(..));
            let mut again: BTreeMap<SeatId, u64> =
                seats.iter().filter(in_turn).map(|seat| (*seat, self.now_ns)).collect();
            while self.now_ns < until_ns {
                for seat in &seats {
                    if let Asks::InTurn(n, _) = asks(*seat)
                        && again.get(seat).is_some_and(|at| *at <= self.now_ns)
                    {
                        again.remove(seat);
                        left.insert(*seat, n);
                    }
                }
                let mut hold_ns = u64::MAX;
                while self.busy.len() < self.shares.n_workers {
                    let wants = |seat| match asks(seat) {
                        Asks::Always => true,
                        Asks::Never => false,
                        Asks::InTurn(..) => left.get(&seat).is_some_and(|n| *n > 0),
                    };
                    let wants = |seat| wants(seat).then_some(NOW);
                    let (seat, charge) = match self.shares.next(self.now_ns, wants) {
                        Next::Serve(seat, charge) => (seat, charge),
                        Next::Hold(ns) => {
                            assert!(ns > 0, "a wait that is none is repeated for ever");
                            hold_ns = ns;
                            break;
                        }
                        Next::Nothing => break,
                    };
                    left.entry(seat).and_modify(|n| *n -= 1);
                    let n_done = self.n_done.entry(seat).or_default();
                    let ends_ns = self.now_ns + cost_ns(seat, *n_done);
                    *n_done += 1;
                    self.busy.push((ends_ns, self.now_ns, seat, charge));
                }
                let ends = self.busy.iter().map(|busy| busy.0).min();
                let asked = again.values().copied().min();
                let holds = self.now_ns.saturating_add(hold_ns);
                let next_ns = [ends, asked, Some(holds), Some(until_ns)];
                let next_ns = next_ns.into_iter().flatten().min().unwrap();
                if hold_ns < u64::MAX {
                    let n_idle = self.shares.n_workers - self.busy.len();
                    self.held_ns += (next_ns - self.now_ns) * n_idle as u64;
                }
                self.now_ns = next_ns;
                let over = |busy: &mut (u64, u64, SeatId, Charge)| busy.0 <= next_ns;
                let ended: Vec<_> = self.busy.extract_if(.., over).collect();
                for (ends_ns, began_ns, seat, charge) in ended {
                    let spent = Spent {
                        took_ns: ends_ns - began_ns,
                        refused_ns: 0,
                        on: Effort::Making,
                    };
                    self.shares.done(seat, charge, spent, next_ns);
                    *self.used_ns.entry(seat).or_default() += ends_ns - began_ns;
                    self.made.push((seat, ends_ns - began_ns));
                    if let Asks::InTurn(_, pause_ns) = asks(seat)
                        && left.get(&seat) == Some(&0)
                        && self.shares.seats[&seat].n_at_work == 0
                    {
                        again.insert(seat, next_ns + pause_ns);
                    }
                }
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

    /// The largest difference, in any window of so many samples, between the part of the workers' time that
    /// a job had and its part of the weights.
    fn worst_window(world: &World, jobs: &[(Vec<SeatId>, u64)], n_samples: usize) -> f64 {
        let all: u64 = jobs.iter().map(|(_, weight)| weight).sum();
        let apart = |window: &[(SeatId, u64)], (seats, weight): &(Vec<SeatId>, u64)| {
            let took = |is_own: &dyn Fn(SeatId) -> bool| {
                let own = window.iter().filter(|(seat, _)| is_own(*seat));
                own.map(|(_, took_ns)| *took_ns).sum::<u64>() as f64
            };
            let had = took(&|seat| seats.contains(&seat)) / took(&|_| true);
            (had - *weight as f64 / all as f64).abs()
        };
        // What was begun before anything was known of the samples is left out.
        let windows = world.made.windows(n_samples).skip(64).step_by(61);
        windows
            .flat_map(|window| jobs.iter().map(move |job| apart(window, job)))
            .fold(0.0, f64::max)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Batches of 16 samples; jobs of one to three sessions.
        #[test]
        fn jobs_have_their_shares_in_any_thirty_two_batches(
            n_workers in 1_usize..=4,
            jobs in prop::collection::vec((1_u64..=3, 4_u64..=64), 2..=4),
            costs in prop::collection::vec(4_u64..=16, 12),
            wobble in prop::collection::vec(4_u64..=12, 7),
        ) {
            let n_seats: u64 = jobs.iter().map(|(n_seats, _)| n_seats).sum();
            let mut world = World::new(n_workers, n_seats);
            let mut of = Vec::new();
            let mut first = 0;
            for (number, (n_seats, weight)) in (0..).zip(&jobs) {
                let seats: Vec<SeatId> = (first..first + n_seats).collect();
                first += n_seats;
                seats.iter().for_each(|seat| world.shares.weigh(*seat, Some(number), *weight));
                of.push((seats, *weight));
            }
            let nth = |n: u64| usize::try_from(n).unwrap();
            let cost = |seat: SeatId, n: u64| costs[nth(seat)] * wobble[nth(n % 7)] * (MS / 64);
            world.run(3_000 * MS, |_| true, cost);
            let worst = worst_window(&world, &of, 32 * 16);
            prop_assert!(worst <= 0.05, "{worst}: {of:?} {:?}", world.used_ns);
        }
    }

    /// A consumer that takes a batch each second, and asks for the next one as soon as one is made, next to
    /// one that wants all it can have.
    #[test]
    fn who_is_fed_takes_nothing_from_who_is_not_and_is_served_in_time() {
        for n_workers in [1, 2, 4] {
            let (mut shares, mut now_ns, mut used_ns) =
                (Shares::of(n_workers), 0, [0, 0]);
            (0..2).for_each(|seat| shares.enter(seat));
            let (mut n_left, mut due_ns) = (16_u64, 1_000 * MS);
            let mut busy: Vec<(u64, SeatId, Charge)> = Vec::new();
            while now_ns < 20_000 * MS {
                while busy.len() < n_workers {
                    let fed = Want { due_ns, n_samples: n_left };
                    let wants = |seat| Some(if seat == 0 { NOW } else { fed });
                    let Next::Serve(seat, charge) = shares.next(now_ns, wants) else {
                        panic!("both want it")
                    };
                    if seat == 1 {
                        n_left -= 1;
                    }
                    if n_left == 0 {
                        assert!(
                            now_ns < due_ns,
                            "the batch for {due_ns} comes at {now_ns}"
                        );
                        (n_left, due_ns) = (16, due_ns + 1_000 * MS);
                    }
                    busy.push((now_ns + MS, seat, charge));
                }
                now_ns = busy.iter().map(|it| it.0).min().unwrap();
                for (_, seat, charge) in busy.extract_if(.., |it| it.0 <= now_ns) {
                    let spent = Spent { took_ns: MS, refused_ns: 0, on: Effort::Making };
                    shares.done(seat, charge, spent, now_ns);
                    used_ns[usize::try_from(seat).unwrap()] += MS;
                }
            }
            let part = used_ns[0] as f64 / used_ns.iter().sum::<u64>() as f64;
            assert!(part >= 0.95, "{part} of {n_workers}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn who_needs_it_earlier_is_served_no_later(
            n_workers in 1_usize..=4,
            history in prop::collection::vec((0_u64..5, 1_u64..20), 0..60),
            dues in prop::collection::vec(0_u64..400, 5),
            weights in prop::collection::vec(1_u64..=64, 5),
            by in 1_u64..400,
        ) {
            let mut shares = Shares::of(n_workers);
            for (seat, weight) in (0..).zip(weights) {
                shares.enter(seat);
                shares.weigh(seat, None, weight);
            }
            let mut now_ns = 0;
            for (seat, took_ms) in history {
                let one = |it| (it == seat).then_some(NOW);
                let Next::Serve(seat, charge) = shares.next(now_ns, one) else { continue };
                now_ns += took_ms * MS;
                let spent = Spent { took_ns: took_ms * MS, refused_ns: 0, on: Effort::Making };
                shares.done(seat, charge, spent, now_ns);
            }
            let due = |seat: SeatId| now_ns + dues[usize::try_from(seat).unwrap()] * MS;
            let want = |due_ns| Some(Want { due_ns, n_samples: 4 });
            let served = shares.clone().next(now_ns, |seat| want(due(seat)));
            let Next::Serve(first, _) = served else { panic!("all want it") };
            let earlier = |seat| {
                let by_ns = if seat == first { by * MS } else { 0 };
                want(due(seat).saturating_sub(by_ns))
            };
            let served = shares.next(now_ns, earlier);
            prop_assert!(matches!(served, Next::Serve(seat, _) if seat == first), "{served:?}");
        }
    }

    #[test]
    fn a_job_has_no_more_for_having_more_sessions() {
        let mut world = World::new(3, 6);
        // Five ranks of one job, and one of another with twice the weight.
        (0..5).for_each(|seat| world.shares.weigh(seat, Some(7), WEIGHT_ONE));
        world.shares.weigh(5, Some(8), 2 * WEIGHT_ONE);
        world.run(3_000 * MS, |_| true, |_, _| MS);
        let ranks: u64 = (0..5).map(|seat| world.used_ns[&seat]).sum();
        let other = world.used_ns[&5] as f64 / ranks as f64;
        assert!((1.9..=2.1).contains(&other), "{other}: {:?}", world.used_ns);
        assert!(world.unfairness(0..5) <= 1.1, "{:?}", world.used_ns);
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
        let Next::Serve(seat, charge) = shares.next(0, |_| Some(NOW)) else { panic!() };
        shares.leave(seat);
        assert_eq!(shares.n_left, 1);
        shares.done(
            seat,
            charge,
            Spent { took_ns: MS, refused_ns: 0, on: Effort::Making },
            MS,
        );
        assert_eq!(shares.n_left, 0);
        assert!(matches!(shares.next(MS, |_| Some(NOW)), Next::Serve(2, _)));
        assert_eq!(shares.next(MS, |_| None), Next::Nothing);
    }

    /// A host of 1-ms samples got 2 % of its rate next to two whose samples took 0.7 s: whenever it
    /// had nothing to do for a moment, both workers were gone.
    #[test]
    fn a_host_of_short_samples_keeps_half_of_the_workers_beside_those_of_long_ones() {
        for (n_workers, n_long) in [(2, 2), (2, 6), (3, 1), (8, 3), (16, 20)] {
            let asks = |seat| match seat {
                0 => Asks::InTurn(64, MS / 5),
                _ => Asks::Always,
            };
            let cost = |seat, _| if seat == 0 { MS } else { 700 * MS };
            let mut alone = World::new(n_workers, 1);
            alone.run_as(20_000 * MS, asks, cost);
            let mut world = World::new(n_workers, 1 + n_long);
            world.run_as(20_000 * MS, asks, cost);
            let (had, has) = (alone.n_done[&0] as f64, world.n_done[&0] as f64);
            // Half of the workers, and all but what the first long samples took.
            let half = (n_workers / 2) as f64 / n_workers as f64;
            assert!(has >= 0.9 * half * had, "{has} of {had}, {n_workers} workers");
            let long_ns: u64 = (1..=n_long).map(|seat| world.used_ns[&seat]).sum();
            assert!(long_ns >= 9_000 * MS * n_workers as u64, "{long_ns}");
        }
    }

    /// With one worker there is nothing to set aside; a host that is back within a round trip still
    /// has its share.
    #[test]
    fn the_only_worker_waits_for_the_session_that_has_had_less() {
        let asks = |seat| match seat {
            0 => Asks::InTurn(16, MS),
            _ => Asks::Always,
        };
        let cost = |seat, _| if seat == 0 { MS } else { 700 * MS };
        let mut world = World::new(1, 2);
        world.run_as(60_000 * MS, asks, cost);
        let (short, long) = (world.used_ns[&0], world.used_ns[&1]);
        assert!(short * 10 >= long * 9, "{short} and {long}");
        assert!(world.held_ns * 10 <= short, "{} idle", world.held_ns);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_held_back_is_bounded_and_nobody_starves(
            n_workers in 1_usize..=9,
            n_asked in 1_u64..=64,
            pause_ms in 0_u64..=2_000,
            long_ms in 50_u64..=2_000,
            n_long in 1_u64..=12,
        ) {
            let mut world = World::new(n_workers, 1 + n_long);
            let asks = |seat| match seat {
                0 => Asks::InTurn(n_asked, pause_ms * MS),
                _ => Asks::Always,
            };
            let cost = |seat, _| if seat == 0 { MS } else { long_ms * MS };
            let until_ns = 60_000 * MS;
            world.run_as(until_ns, asks, cost);
            let all_ns = until_ns * n_workers as u64;
            // Half of them, rounded down, or a fifth of the only one.
            let idle_ns = match n_workers {
                1 => all_ns / 5,
                n => all_ns / n as u64 * (n / 2) as u64,
            };
            prop_assert!(world.held_ns <= idle_ns + all_ns / 100, "{}", world.held_ns);
            for seat in 0..=n_long {
                prop_assert!(world.n_done[&seat] > 0, "{seat}: {:?}", world.n_done);
            }
        }
    }

    #[test]
    fn one_long_sample_among_many_makes_a_session_one_of_long_samples() {
        let mut lengths = Lengths::default();
        assert_eq!(lengths.typical_ns(), None);
        (0..1000).for_each(|_| lengths.add(MS));
        assert!(lengths.typical_ns().unwrap().abs_diff(MS) < MS / 50);
        lengths.add(700 * MS);
        (0..100).for_each(|_| lengths.add(MS));
        assert!(lengths.typical_ns().unwrap() > LONG_NS, "{lengths:?}");
        (0..1000).for_each(|_| lengths.add(MS));
        assert!(lengths.typical_ns().unwrap() < 2 * MS, "{lengths:?}");
        (0..1000).for_each(|_| lengths.add(u64::MAX));
        lengths.add(0);
    }

    #[test]
    fn a_session_that_gets_copies_keeps_no_worker_from_its_equal() {
        let mut shares = Shares::of(2);
        (0..2).for_each(|seat| shares.enter(seat));
        let mut now_ns = 0;
        let efforts = [(60 * MS, Effort::Making), (MS / 100, Effort::Copying)];
        for (seat, (took_ns, on)) in (0..2).zip(efforts) {
            for _ in 0..8 {
                let one = |it| (it == seat).then_some(NOW);
                let Next::Serve(seat, charge) = shares.next(now_ns, one) else {
                    panic!()
                };
                now_ns += took_ns;
                let spent = Spent { took_ns, refused_ns: 0, on };
                shares.done(seat, charge, spent, now_ns);
            }
        }
        for only in 0..2 {
            let mut shares = shares.clone();
            let one = |seat| (seat == only).then_some(NOW);
            for _ in 0..2 {
                let next = shares.next(now_ns, one);
                assert!(matches!(next, Next::Serve(seat, _) if seat == only), "{next:?}");
            }
        }
    }

    #[test]
    fn samples_that_are_refused_count_as_if_they_were_made() {
        let mut shares = Shares::of(1);
        (0..2).for_each(|seat| shares.enter(seat));
        let mut n_served = [0; 2];
        for n in 0..1000 {
            let now_ns = n * MS;
            let Next::Serve(seat, charge) = shares.next(now_ns, |_| Some(NOW)) else {
                panic!("both want it")
            };
            let refused_ns = if seat == 1 { 700 * MS } else { 0 };
            let spent = Spent { took_ns: MS / 10, refused_ns, on: Effort::Making };
            shares.done(seat, charge, spent, now_ns + MS / 10);
            n_served[usize::try_from(seat).unwrap()] += 1;
        }
        assert!(n_served[1] <= 3, "{n_served:?}");
    }
}
