//! When a shared resource (the wires of a channel) is occupied: reservations without overlap.
//!
//! A single next-free time would let a transfer that starts late block an earlier gap that nobody uses.
//! Reservations are kept sorted, and a request gets the first gap that fits. Nothing here knows what is
//! transferred.

use std::collections::VecDeque;

/// The reservations of one thing.
#[derive(Debug, Default, Clone)]
pub struct Timeline {
    /// Sorted, disjoint, non-touching half-open intervals `[start, end)`.
    taken: VecDeque<(u64, u64)>,
}

impl Timeline {
    /// Takes the thing for `len_ns` at the first gap from `earliest_ns` on; says when it starts.
    pub fn reserve(&mut self, earliest_ns: u64, len_ns: u64) -> u64 {
        if len_ns == 0 {
            return earliest_ns;
        }
        // Everything that ends at or before the earliest start is out of the way.
        let first = self.taken.partition_point(|&(_, end)| end <= earliest_ns);
        let mut start = earliest_ns;
        let mut place = first;
        while let Some(&(taken_start, taken_end)) = self.taken.get(place) {
            if start.saturating_add(len_ns) <= taken_start {
                break;
            }
            start = taken_end;
            place += 1;
        }
        self.insert(place, start, start.saturating_add(len_ns));
        start
    }

    /// Promises that nothing before `at_ns` will be asked for any more.
    pub fn forget_before(&mut self, at_ns: u64) {
        while self.taken.front().is_some_and(|&(_, end)| end <= at_ns) {
            self.taken.pop_front();
        }
    }

    /// Puts `[start, end)` at `place`, joined with the neighbours that it touches.
    fn insert(&mut self, place: usize, start: u64, end: u64) {
        let joins_next = self.taken.get(place).is_some_and(|next| next.0 == end);
        let end = if joins_next { self.taken[place].1 } else { end };
        let joins_last = place > 0 && self.taken[place - 1].1 == start;
        match (joins_last, joins_next) {
            (true, true) => {
                self.taken[place - 1].1 = end;
                self.taken.remove(place);
            }
            (true, false) => self.taken[place - 1].1 = end,
            (false, true) => self.taken[place].0 = start,
            (false, false) => self.taken.insert(place, (start, end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Timeline;

    #[test]
    fn a_gap_is_used_when_it_fits_and_skipped_when_not() {
        let mut line = Timeline::default();
        assert_eq!(line.reserve(100, 10), 100);
        assert_eq!(line.reserve(0, 50), 0);
        assert_eq!(line.reserve(0, 60), 110, "only 50 are free before 100");
        assert_eq!(line.reserve(0, 50), 50, "exactly the gap");
        assert_eq!(line.taken, [(0, 170)], "touching reservations are one");
    }

    proptest! {
        /// Against the naive meaning: a row of ticks.
        #[test]
        fn first_fit_without_overlap(
            requests in prop::collection::vec((0_usize..60, 1_usize..8), 1..30),
        ) {
            let mut line = Timeline::default();
            let mut ticks = vec![false; 400];
            for (earliest, len) in requests {
                let free = |s: usize| ticks[s..s + len].iter().all(|taken| !taken);
                let expected = (earliest..).find(|&s| free(s)).expect("400 are enough");
                prop_assert_eq!(line.reserve(earliest as u64, len as u64), expected as u64);
                ticks[expected..expected + len].fill(true);
                let taken: Vec<_> = line.taken.iter().collect();
                prop_assert!(taken.windows(2).all(|pair| pair[0].1 < pair[1].0));
            }
        }
    }
}
