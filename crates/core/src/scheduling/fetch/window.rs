//! How many requests may be in flight: the ramp, growth while it pays, and throttling.
//!
//! From one request on, the window grows by one after every `ramp` answers. With adaptive growth it
//! stops where throughput does, near the bandwidth-delay product: more would only queue. It is halved
//! when the server says that it is asked too much, and grows by one per round afterwards. A round is as
//! many answers as the window was wide when it began, and one latency long at least.

use crate::ids::Ns;

use super::config::{FetchConfig, Growth};

/// Throughput grows if it exceeds the best so far so many percent.
const GROWS_PERCENT: u64 = 110;
/// A window so many percent of that with the best throughput should exceed it …
const WIDER_PERCENT: u64 = 150;
/// … in one of so many rounds.
const FLAT_ROUNDS: u32 = 3;
/// After so many rounds at one width the window is tried wider again: links change.
const HELD_ROUNDS: u32 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// One more after every `ramp` answers.
    Ramp,
    /// Throughput does not grow any more; so many rounds ago.
    Hold(u32),
    /// One more after every round.
    Recover,
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
    throttled_at: Option<Ns>,
}

#[derive(Debug, Clone, Copy)]
struct Round {
    began: Ns,
    limit: u32,
    left: u32,
    bytes: u64,
    /// Whether the window kept a request back.
    limited: bool,
}

impl Window {
    pub(super) fn new(config: &FetchConfig) -> Self {
        let most = config.max_requests.max(1);
        let limit = if config.ramp == 0 { most } else { 1 };
        let (ramp, growth) = (config.ramp, config.growth);
        let round = Round { began: Ns(0), limit, left: limit, bytes: 0, limited: false };
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
            throttled_at,
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
        let is_earned = match self.phase {
            Phase::Ramp => self.credit >= self.ramp,
            Phase::Hold(_) => false,
            Phase::Recover => self.credit >= self.limit,
        };
        if is_earned {
            self.credit = 0;
            self.limit = self.limit.saturating_add(1).min(self.most);
        }
        self.round.bytes = self.round.bytes.saturating_add(bytes);
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
        self.limit = (self.limit / 2).max(1);
        self.credit = 0;
        self.phase = Phase::Recover;
        self.begin_round(now);
    }

    fn end_round(&mut self, now: Ns) {
        if self.growth == Growth::Adaptive && self.round.limited {
            self.judge(now);
        }
        self.begin_round(now);
    }

    fn judge(&mut self, now: Ns) {
        let round = self.round;
        match self.phase {
            Phase::Recover => {}
            Phase::Hold(rounds) if rounds < HELD_ROUNDS => {
                self.phase = Phase::Hold(rounds + 1);
            }
            Phase::Hold(_) => {
                (self.best, self.n_flat) = ((round.rate(now), round.limit), 0);
                self.phase = Phase::Ramp;
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

    fn begin_round(&mut self, now: Ns) {
        let limit = self.limit;
        self.round = Round { began: now, limit, left: limit, bytes: 0, limited: false };
    }
}

impl Round {
    /// Bytes per second up to now.
    fn rate(&self, now: Ns) -> u64 {
        let ns = u128::from(now.since(self.began).max(1));
        let rate = u128::from(self.bytes) * 1_000_000_000 / ns;
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// Whether `a` is at least so many percent of `b`.
fn exceeds(a: u64, b: u64, percent: u64) -> bool {
    u128::from(a) * 100 >= u128::from(b) * u128::from(percent) && a > b
}
