//! How many requests may be in flight: the ramp, growth while it pays, and throttling.
//!
//! From the first requests on, the window grows by one after every `ramp` answers. With adaptive growth it
//! stops where throughput does, near the bandwidth-delay product: more would only queue. Where throughput
//! is at its best and answers take more than twice as long as they did, it shrinks. It is halved when the
//! server says that it is asked too much, or an eighth of a round is not answered in time. Then it grows as
//! in the ramp up to the half, and by one per round from there. A round is as many answers as the window
//! was wide when it began, and one latency long at least.

use crate::ids::Ns;

use super::config::{FetchConfig, Growth};

/// Throughput grows if it exceeds the best so far so many percent.
const GROWS_PERCENT: u64 = 110;
/// A window so many percent of that with the best throughput should exceed it …
const WIDER_PERCENT: u64 = 150;
/// … in one of so many rounds.
const FLAT_ROUNDS: u32 = 3;
/// Throughput is still at its best with so many percent of it.
const BEST_PERCENT: u64 = 90;
/// Answers that take so many times as long as the least of a round wait in a queue.
const QUEUED: u64 = 2;
/// One in so many requests of a round that is not answered in time means congestion.
const CONGESTED: u32 = 8;
/// After so many rounds at one width a wider one by a quarter is tried: links change.
const HELD_ROUNDS: u32 = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// One more after every `ramp` answers.
    Ramp,
    /// Throughput does not grow any more; so many rounds ago.
    Hold(u32),
    /// As in the ramp up to a threshold, and one more after every round from there.
    Recover(u32),
}

/// The window.
#[derive(Debug)]
pub(super) struct Window {
    ramp: u32,
    growth: Growth,
    most: u32,
    limit: u32,
    /// Answers since the limit was last raised.
    credit: u32,
    phase: Phase,
    round: Round,
    /// The best throughput of a round in bytes per second, and how wide the window was.
    best: (u64, u32),
    n_flat: u32,
    /// The least mean latency of a round; it rises slowly, because links change.
    least_ns: Option<u64>,
    throttled_at: Option<Ns>,
    was_answered: bool,
}

#[derive(Debug, Clone, Copy)]
struct Round {
    began: Ns,
    limit: u32,
    left: u32,
    bytes: u64,
    n_answers: u64,
    latency_ns: u64,
    /// Requests that were not answered in time.
    n_late: u32,
    /// Whether the window kept a request back.
    limited: bool,
}

impl Window {
    pub(super) fn new(config: &FetchConfig) -> Self {
        let most = config.max_requests.max(1);
        let first = config.first_requests.clamp(1, most);
        let limit = if config.ramp == 0 { most } else { first };
        let (ramp, growth) = (config.ramp, config.growth);
        let round = Round::new(Ns(0), limit);
        let phase = Phase::Ramp;
        let (best, n_flat, throttled_at) = ((0, 0), 0, None);
        Self {
            ramp,
            growth,
            most,
            limit,
            credit: 0,
            phase,
            round,
            best,
            n_flat,
            least_ns: None,
            throttled_at,
            was_answered: false,
        }
    }

    /// Requests that may be in flight.
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// A request was kept back because the window is full.
    pub(super) fn limits(&mut self) {
        self.round.limited = true;
    }

    /// A request was sent while none was in flight: what came before says nothing of the link.
    pub(super) fn begins(&mut self, now: Ns) {
        self.begin_round(now);
    }

    /// A request was answered after `latency_ns`.
    pub(super) fn answered(&mut self, bytes: u64, latency_ns: u64, now: Ns) {
        self.credit = self.credit.saturating_add(1);
        self.was_answered = true;
        let is_earned = match self.phase {
            Phase::Ramp => self.credit >= self.ramp,
            Phase::Hold(_) => false,
            Phase::Recover(half) if self.limit < half => self.credit >= self.ramp,
            Phase::Recover(_) => self.credit >= self.limit,
        };
        if is_earned {
            self.credit = 0;
            self.limit = self.limit.saturating_add(1).min(self.most);
        }
        self.round.bytes = self.round.bytes.saturating_add(bytes);
        self.round.n_answers += 1;
        self.round.latency_ns = self.round.latency_ns.saturating_add(latency_ns);
        self.round.left = self.round.left.saturating_sub(1);
        // Answers come in bursts, and a round that is shorter than the way there and back may
        // hold little else than one.
        if self.round.left == 0 && now.since(self.round.began) >= latency_ns {
            self.end_round(now);
        }
    }

    /// The server was asked too much by a request sent at `sent`. Requests that were in flight when
    /// the window was last halved say nothing new.
    pub(super) fn throttled(&mut self, sent: Ns, now: Ns) {
        if self.throttled_at.is_some_and(|at| sent <= at) {
            return;
        }
        self.throttled_at = Some(now);
        let half = (self.limit / 2).max(1);
        // Without an answer since it was last halved the width that was too much is known no better.
        let threshold = match self.phase {
            Phase::Recover(half) if !self.was_answered => half,
            Phase::Recover(_) | Phase::Ramp | Phase::Hold(_) => half,
        };
        (self.limit, self.phase) = (half, Phase::Recover(threshold));
        (self.credit, self.was_answered) = (0, false);
        self.begin_round(now);
    }

    /// A request was not answered in time. One connection may be lost; many say that more is on its
    /// way than the link carries.
    pub(super) fn timed_out(&mut self, sent: Ns, now: Ns) {
        self.round.n_late += 1;
        if self.round.n_late >= self.limit.div_ceil(CONGESTED) {
            self.throttled(sent, now);
        }
    }

    fn end_round(&mut self, now: Ns) {
        if self.growth == Growth::Adaptive && self.round.limited {
            self.judge(now);
        }
        self.begin_round(now);
    }

    fn judge(&mut self, now: Ns) {
        let round = self.round;
        if !matches!(self.phase, Phase::Recover(_)) && self.is_queued(now) {
            self.limit = (self.limit - self.limit / 8).max(1);
            self.phase = Phase::Hold(0);
            return;
        }
        match self.phase {
            Phase::Recover(_) => {}
            Phase::Hold(_) if exceeds(round.rate(now), self.best.0, GROWS_PERCENT) => {
                (self.phase, self.n_flat) = (Phase::Ramp, 0);
            }
            Phase::Hold(rounds) if rounds < HELD_ROUNDS => {
                self.phase = Phase::Hold(rounds + 1);
            }
            Phase::Hold(_) => {
                self.best = (round.rate(now), round.limit);
                self.limit = self.limit.saturating_add(self.limit / 4).min(self.most);
                self.phase = Phase::Hold(0);
            }
            Phase::Ramp => {
                let (best, at) = self.best;
                let rate = round.rate(now);
                if exceeds(rate, best, GROWS_PERCENT) {
                    (self.best, self.n_flat) = ((rate, round.limit), 0);
                } else if exceeds(round.limit.into(), at.into(), WIDER_PERCENT) {
                    self.n_flat += 1;
                }
                if self.n_flat >= FLAT_ROUNDS {
                    self.limit = at.clamp(1, self.most);
                    self.phase = Phase::Hold(0);
                }
            }
        }
    }

    /// Whether answers wait for each other though throughput is at its best.
    fn is_queued(&mut self, now: Ns) -> bool {
        let mean_ns = self.round.latency_ns / self.round.n_answers.max(1);
        let least_ns = self.least_ns.unwrap_or(mean_ns);
        let raised_ns = least_ns.saturating_add(least_ns / 256);
        self.least_ns = Some(mean_ns.min(raised_ns));
        let (rate, (best, _)) = (self.round.rate(now), self.best);
        mean_ns > least_ns.saturating_mul(QUEUED)
            && !exceeds(rate, best, GROWS_PERCENT)
            && is_part(rate, best, BEST_PERCENT)
    }

    fn begin_round(&mut self, now: Ns) {
        self.round = Round::new(now, self.limit);
    }
}

impl Round {
    fn new(began: Ns, limit: u32) -> Self {
        Self {
            began,
            limit,
            left: limit,
            bytes: 0,
            n_answers: 0,
            latency_ns: 0,
            n_late: 0,
            limited: false,
        }
    }

    /// Bytes per second up to now.
    fn rate(&self, now: Ns) -> u64 {
        let ns = u128::from(now.since(self.began).max(1));
        let rate = u128::from(self.bytes) * 1_000_000_000 / ns;
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// Whether `a` is more than `b`, and at least so many percent of it.
fn exceeds(a: u64, b: u64, percent: u64) -> bool {
    a > b && is_part(a, b, percent)
}

/// Whether `a` is at least so many percent of `b`.
fn is_part(a: u64, b: u64, percent: u64) -> bool {
    u128::from(a) * 100 >= u128::from(b) * u128::from(percent)
}
