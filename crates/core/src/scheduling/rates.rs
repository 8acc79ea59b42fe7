//! How fast the prongs are: recent times per batch, and what follows from them.
//!
//! The caller supplies the times; nothing here reads a clock. `view.rs` in `select` combines them into
//! rates.

/// Times kept of each prong.
const KEPT: usize = 32;
/// The host's mean is taken over so many of its last batches.
const HOST_MEAN: usize = 32;
/// A device's mean is taken over so many of its last batches: fewer, because it throttles.
const DEVICE_MEAN: usize = 8;
/// A device's high quantile is the second longest of so many of its last batches.
const HIGH_OF: usize = 16;
/// A device's single time counts at most so many times its mean: one stall is no rate. One so
/// many times below what was known before is more than chance.
const OUTLIER: u64 = 4;

/// A device that has never answered is overdue after this long …
const FIRST_OVERDUE_NS: u64 = 2_000_000_000;
/// … or after so many host batches, whichever is longer.
const FIRST_OVERDUE_BATCHES: u64 = 10;

/// A device that is much quicker than the host is overdue after one part in so many of the time
/// in which the host makes a batch: it is redone in no less than that.
const PATIENCE: u64 = 4;

/// The recent times of one prong, in nanoseconds per batch.
#[derive(Debug, Clone)]
pub struct Times {
    recent: [u64; KEPT],
    n: usize,
    /// Of these the one from before the epoch, where there is one.
    n_prior: usize,
    mean_of: usize,
    mean_ns: u64,
    high_ns: u64,
}

impl Times {
    /// No time of the host yet, or the one known from before.
    #[must_use]
    pub fn of_host(prior_ns: Option<u64>) -> Self {
        Self::new(HOST_MEAN, prior_ns)
    }

    /// No time of a device yet, or the one known from before.
    #[must_use]
    pub fn of_device(prior_ns: Option<u64>) -> Self {
        Self::new(DEVICE_MEAN, prior_ns)
    }

    fn new(mean_of: usize, prior_ns: Option<u64>) -> Self {
        let mut times = Self {
            recent: [0; KEPT],
            n: 0,
            n_prior: usize::from(prior_ns.is_some()),
            mean_of,
            mean_ns: 0,
            high_ns: 0,
        };
        if let Some(ns) = prior_ns {
            times.push(ns);
        }
        times
    }

    /// Takes a time from before the epoch where nothing is known.
    pub fn learn(&mut self, ns: u64) {
        if self.n == 0 {
            self.n_prior = 1;
            self.push(ns);
        }
    }

    /// The mean of the last times; `None` when there is none.
    #[must_use]
    pub fn mean_ns(&self) -> Option<u64> {
        (self.n > 0).then_some(self.mean_ns)
    }

    /// Whether no batch of this epoch has been timed: what is known, if anything, is from before.
    #[must_use]
    pub fn is_untried(&self) -> bool {
        self.n == self.n_prior
    }

    /// A time that few batches exceed; `None` when there is no time at all.
    #[must_use]
    pub fn high_ns(&self) -> Option<u64> {
        (self.n > 0).then_some(self.high_ns)
    }

    /// Adds the time of a batch. One from before is forgotten if the first of this epoch is far
    /// below it: no batch is quick by accident.
    pub fn push(&mut self, ns: u64) {
        let is_refuted = self.n > 0 && self.is_untried() && ns < self.mean_ns / OUTLIER;
        if is_refuted {
            (self.n, self.n_prior) = (0, 0);
        }
        self.recent[self.n % KEPT] = ns.max(1);
        self.n += 1;
        let (sum, n) = self
            .last(self.mean_of)
            .fold((0_u64, 0), |(s, n), t| (s.saturating_add(t), n + 1));
        self.mean_ns = sum / n;
        let (mut longest, mut second) = (0, 0);
        for ns in self.last(HIGH_OF) {
            second = second.max(ns.min(longest));
            longest = longest.max(ns);
        }
        self.high_ns = if self.n < HIGH_OF / 2 { longest } else { second };
    }

    /// Adds the time of a device's batch, in which a stall may be hidden.
    pub fn push_limited(&mut self, ns: u64) {
        let limit = self.mean_ns().map_or(u64::MAX, |mean| mean.saturating_mul(OUTLIER));
        self.push(ns.min(limit));
    }

    fn last(&self, n: usize) -> impl Iterator<Item = u64> {
        let from = self.n.saturating_sub(n.min(KEPT));
        (from..self.n).map(|i| self.recent[i % KEPT])
    }
}

/// How long a device's batch may take before its claim is overdue, for each claim in line. The
/// host makes a batch in `host_ns` with all its workers (0: not known), and one of them takes
/// `redo_ns` at least.
/// Between the ordinary and the hopeless: earlier wastes host work on batches that are about
/// to come, later lets delivery wait.
#[must_use]
pub fn overdue_ns(device: &Times, host_ns: u64, redo_ns: u64) -> u64 {
    match (device.mean_ns(), device.high_ns()) {
        (Some(mean), Some(high)) => {
            let own = (mean / 10).saturating_mul(13).max((high / 20).saturating_mul(23));
            own.max(redo_ns / PATIENCE)
        }
        _ => FIRST_OVERDUE_NS.max(host_ns.saturating_mul(FIRST_OVERDUE_BATCHES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_judged_by_its_last_eight_batches() {
        let mut times = Times::of_device(Some(100));
        for _ in 0..8 {
            times.push_limited(300);
        }
        assert_eq!(times.mean_ns(), Some(300));
    }

    #[test]
    fn a_time_from_before_counts_until_the_first_of_this_epoch_refutes_it() {
        for (prior, first, mean) in [(100, 25, 62), (100, 24, 24), (100, 400, 250)] {
            let mut times = Times::of_device(Some(prior));
            assert!(times.is_untried());
            times.push_limited(first);
            assert!(!times.is_untried());
            assert_eq!(times.mean_ns(), Some(mean), "{prior}, then {first}");
        }
        let mut times = Times::of_host(Some(100));
        times.push(1);
        assert_eq!(times.mean_ns(), Some(1));
        times.push(99);
        assert_eq!(times.mean_ns(), Some(50), "its own are never forgotten so");
        assert!(Times::of_device(None).is_untried());
    }

    #[test]
    fn one_stall_is_no_rate() {
        let mut times = Times::of_device(None);
        for _ in 0..16 {
            times.push_limited(100);
        }
        times.push_limited(30_000);
        assert_eq!(times.mean_ns(), Some((7 * 100 + 400) / 8));
        assert_eq!(times.high_ns(), Some(100));
    }

    #[test]
    fn a_lasting_slowdown_is_learned_within_the_window() {
        let mut times = Times::of_device(None);
        for ns in [100; 16].into_iter().chain([6_000; 16]) {
            times.push_limited(ns);
        }
        assert_eq!(times.mean_ns(), Some(6_000));
    }

    #[test]
    fn a_device_that_never_answered_is_overdue_after_two_seconds_or_ten_host_batches() {
        let unknown = Times::of_device(None);
        let limit = |host_ns| overdue_ns(&unknown, host_ns, host_ns);
        assert_eq!(limit(0), 2_000_000_000);
        assert_eq!(limit(1_000_000), 2_000_000_000);
        assert_eq!(limit(900_000_000), 9_000_000_000);
    }

    #[test]
    fn a_device_that_varies_is_given_more_time() {
        let mut steady = Times::of_device(None);
        let mut varying = Times::of_device(None);
        for i in 0..16 {
            steady.push(1_000);
            varying.push(if i % 4 == 0 { 2_000 } else { 700 });
        }
        assert_eq!(overdue_ns(&steady, 0, 0), 1_300);
        assert_eq!(overdue_ns(&varying, 0, 0), 2_300);
        assert_eq!(
            overdue_ns(&steady, 500, 8_000),
            2_000,
            "the host takes long to redo it"
        );
    }
}
