//! How long recent answers took: the time that few of them exceeded, and the one after which an answer is not late
//! but slow.
//!
//! A quantile of the last answers rather than of all: links change. It is determined every few answers only,
//! so that it costs next to nothing.

/// Answers kept.
const KEPT: usize = 256;
/// The quantile is determined after so many answers.
const EVERY: usize = 16;
/// With fewer answers nothing is said.
const ENOUGH: usize = 32;
/// A slow answer takes so many times as long as almost all others.
const OF_P99: u64 = 4;
/// But not longer than so many times the median: where one connection in ten is slow, almost all are not quick, and
/// slow answers that are waited for would make the next ones wait even longer.
const OF_MEDIAN: u64 = 16;

/// The latencies of recent answers.
#[derive(Debug)]
pub(super) struct Recent {
    kept: Vec<u64>,
    next: usize,
    sorted: Vec<u64>,
    p99_ns: Option<u64>,
    slow_ns: Option<u64>,
}

impl Recent {
    pub(super) fn new() -> Self {
        let kept = Vec::with_capacity(KEPT);
        Self {
            kept,
            next: 0,
            sorted: Vec::with_capacity(KEPT),
            p99_ns: None,
            slow_ns: None,
        }
    }

    /// One more answer; a request that was overtaken by its hedge counts with its age.
    pub(super) fn push(&mut self, latency_ns: u64) {
        if self.kept.len() < KEPT {
            self.kept.push(latency_ns);
        } else {
            self.kept[self.next % KEPT] = latency_ns;
        }
        self.next = self.next.wrapping_add(1);
        if self.kept.len() >= ENOUGH && self.next.is_multiple_of(EVERY) {
            self.find();
        }
    }

    /// The 99th percentile; `None` as long as there are too few answers.
    pub(super) fn p99_ns(&self) -> Option<u64> {
        self.p99_ns
    }

    /// An answer that takes longer is slow, as a mean one; `None` as long as there are too few answers.
    pub(super) fn slow_ns(&self) -> Option<u64> {
        self.slow_ns
    }

    fn find(&mut self) {
        self.sorted.clear();
        self.sorted.extend_from_slice(&self.kept);
        let rank = (self.sorted.len() * 99).div_ceil(100).max(1) - 1;
        let (quicker, p99_ns, _) = self.sorted.select_nth_unstable(rank);
        let p99_ns = *p99_ns;
        let median = quicker.len() / 2;
        let (_, median_ns, _) = quicker.select_nth_unstable(median);
        let slow_ns = p99_ns.saturating_mul(OF_P99);
        self.p99_ns = Some(p99_ns);
        self.slow_ns = Some(slow_ns.min(median_ns.saturating_mul(OF_MEDIAN)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_answers_say_nothing_and_many_exceed_the_quantile_one_in_a_hundred_times() {
        let mut recent = Recent::new();
        (1..ENOUGH as u64).for_each(|ns| recent.push(ns));
        assert_eq!(recent.p99_ns(), None);
        let mut recent = Recent::new();
        (1..=KEPT as u64).for_each(|ns| recent.push(ns));
        // The 254th of 256.
        assert_eq!(recent.p99_ns(), Some(254));
    }

    #[test]
    fn slow_is_four_times_almost_all_but_not_where_many_are_slow() {
        let mut recent = Recent::new();
        (1..=KEPT as u64).for_each(|ns| recent.push(1_000 + ns));
        assert_eq!(recent.slow_ns(), Some(4 * 1_254));
        // One in eight.
        (0..KEPT).for_each(|n| recent.push(if n % 8 == 0 { 1_000_000 } else { 1_000 }));
        assert_eq!(recent.p99_ns(), Some(1_000_000));
        assert_eq!(recent.slow_ns(), Some(16 * 1_000));
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut recent = Recent::new();
        (0..KEPT).for_each(|_| recent.push(1_000));
        (0..KEPT).for_each(|_| recent.push(1));
        assert_eq!(recent.p99_ns(), Some(1));
    }
}
