//! How fast sessions are opened while others work.
//!
//! Opening a session costs time of the thread that serves its host, which is in nobody's share
//! of the workers: a list of samples is read, and memory is made. A host that opens nothing but sessions would
//! take a core from everybody else. Opens are therefore paid for in time. Some are always free; beyond
//! that they wait until all of them together have taken [`RATE_PARTS`]⁻¹ of the workers' time, and no
//! longer than [`MOST_WAIT`] each. Where nobody else has work, none waits.
//!
//! It decides and sleeps never; whoever calls holds the lock.

use std::time::Duration;

/// What is free: the ranks of several jobs that start at once with a list of a million samples,
/// or some thousand opens of short lists.
const FREE_NS: u64 = 1_000_000_000;

/// Beyond it, opens take one part in so many of the workers' time.
const RATE_PARTS: u64 = 50;

/// An open goes ahead after so much time whatever was spent.
pub(crate) const MOST_WAIT: Duration = Duration::from_secs(1);

/// What a connection and its session take besides what is measured.
pub(crate) const BESIDE_NS: u64 = 300_000;

/// What was spent on opens and is not forgotten yet.
#[derive(Debug)]
pub(crate) struct Openings {
    n_workers: u64,
    spent_ns: u64,
    /// Until when it is counted.
    until_ns: u64,
}

impl Openings {
    pub(crate) fn of(n_workers: u32) -> Self {
        Self { n_workers: n_workers.max(1).into(), spent_ns: 0, until_ns: 0 }
    }

    /// For how long an open should wait at `now_ns`.
    pub(crate) fn wait(&mut self, now_ns: u64) -> Duration {
        self.forget(now_ns);
        let beyond_ns = self.spent_ns.saturating_sub(FREE_NS);
        let wait_ns = beyond_ns.saturating_mul(RATE_PARTS) / self.n_workers;
        Duration::from_nanos(wait_ns).min(MOST_WAIT)
    }

    /// So much was spent.
    pub(crate) fn pay(&mut self, now_ns: u64, ns: u64) {
        self.forget(now_ns);
        // Nobody waits longer after a long attack than after a short one.
        let most_wait_ns = u64::try_from(MOST_WAIT.as_nanos()).unwrap_or(u64::MAX);
        let most_ns = FREE_NS + most_wait_ns * self.n_workers / RATE_PARTS;
        self.spent_ns = self.spent_ns.saturating_add(ns).min(most_ns);
    }

    fn forget(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.until_ns);
        self.until_ns = self.until_ns.max(now_ns);
        let forgotten_ns = passed_ns.saturating_mul(self.n_workers) / RATE_PARTS;
        self.spent_ns = self.spent_ns.saturating_sub(forgotten_ns);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn ns(time: Duration) -> u64 {
        u64::try_from(time.as_nanos()).unwrap()
    }

    /// Hosts that open one session after the other for `until_ns`; how many each opened, and the
    /// longest wait.
    fn flood(n_workers: u32, n_hosts: usize, cost_ns: u64, until_ns: u64) -> (u64, u64) {
        let mut openings = Openings::of(n_workers);
        let mut asks_ns = vec![0; n_hosts];
        let (mut n_opened, mut longest_ns) = (0, 0);
        loop {
            let first = (0..n_hosts).min_by_key(|host| asks_ns[*host]).unwrap();
            let now_ns = asks_ns[first];
            if now_ns >= until_ns {
                return (n_opened, longest_ns);
            }
            let wait_ns = ns(openings.wait(now_ns));
            longest_ns = longest_ns.max(wait_ns);
            openings.pay(now_ns + wait_ns, cost_ns);
            n_opened += 1;
            asks_ns[first] = now_ns + wait_ns + cost_ns;
        }
    }

    proptest! {
        #[test]
        fn opens_take_their_part_and_wait_a_second_at_most(
            n_workers in 1_u32..=64,
            n_hosts in 1_usize..=64,
            cost_us in 50_u64..=2_000,
        ) {
            let cost_ns = cost_us * 1_000;
            let seconds = 60;
            let until_ns = seconds * 1_000 * MS;
            let (n_opened, longest_ns) = flood(n_workers, n_hosts, cost_ns, until_ns);
            prop_assert!(longest_ns <= ns(MOST_WAIT));
            let part_ns = until_ns * u64::from(n_workers) / RATE_PARTS;
            let forced_ns = seconds * n_hosts as u64 * cost_ns;
            let most_ns = FREE_NS + part_ns + forced_ns + n_hosts as u64 * cost_ns;
            prop_assert!(n_opened * cost_ns <= most_ns, "{n_opened} of {cost_ns} ns");
        }
    }

    #[test]
    fn who_starts_with_everybody_else_does_not_wait() {
        // Eight ranks of three jobs, with a list of a million samples.
        let mut openings = Openings::of(2);
        for _ in 0..24 {
            assert_eq!(openings.wait(0), Duration::ZERO);
            openings.pay(0, 40 * MS);
        }
        // A long attack is forgotten as fast as a short one.
        openings.pay(0, u64::MAX);
        assert_eq!(openings.wait(0), MOST_WAIT);
        assert_eq!(openings.wait(1_000 * MS), Duration::ZERO);
    }
}
