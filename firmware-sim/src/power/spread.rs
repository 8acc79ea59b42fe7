//! Energy of work that takes time: it is used evenly from the work's beginning to its end, and none of it before.
//!
//! All sums are integers, and nothing is lost: a whole number of milliwatts flows for the time of the work, and what
//! that leaves over comes with its end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The energy of all work so far, as far as it has been used.
#[derive(Debug, Default)]
pub struct Spread {
    /// Until when it is counted, and how much was used until then.
    at_ns: u64,
    used_pj: u128,
    /// What flows now, in milliwatts.
    flow_mw: u128,
    /// Where the flow changes, the first change first.
    changes: BinaryHeap<Reverse<Change>>,
}

/// In the order of its fields, the first of which is the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Change {
    at_ns: u64,
    begins_mw: u128,
    ends_mw: u128,
    rest_pj: u128,
}

impl Spread {
    /// Work from `start_ns` to `end_ns` uses `energy_pj`. Work that nobody told of before it began takes the same time,
    /// from now on: its energy is not used all at once.
    pub fn add(&mut self, start_ns: u64, end_ns: u64, energy_pj: u128) {
        let time_ns = end_ns.saturating_sub(start_ns);
        let start_ns = start_ns.max(self.at_ns);
        let end_ns = start_ns.saturating_add(time_ns);
        let time_ns = u128::from(end_ns - start_ns);
        if time_ns == 0 && start_ns == self.at_ns {
            self.used_pj += energy_pj;
            return;
        }
        let flow_mw = energy_pj.checked_div(time_ns).unwrap_or(0);
        let none = Change { at_ns: start_ns, begins_mw: 0, ends_mw: 0, rest_pj: 0 };
        let rest_pj = energy_pj - flow_mw * time_ns;
        let begin = Change { begins_mw: flow_mw, ..none };
        let end = Change { at_ns: end_ns, ends_mw: flow_mw, rest_pj, ..none };
        self.changes.extend([Reverse(begin), Reverse(end)]);
    }

    /// Goes on to `now_ns`.
    pub fn look(&mut self, now_ns: u64) {
        while let Some(Reverse(change)) = self.changes.peek().copied()
            && change.at_ns <= now_ns
        {
            self.changes.pop();
            self.flow_until(change.at_ns);
            self.flow_mw = (self.flow_mw + change.begins_mw) - change.ends_mw;
            self.used_pj += change.rest_pj;
        }
        self.flow_until(now_ns);
    }

    fn flow_until(&mut self, now_ns: u64) {
        let time_ns = now_ns.saturating_sub(self.at_ns);
        self.used_pj += self.flow_mw * u128::from(time_ns);
        self.at_ns = self.at_ns.max(now_ns);
    }

    /// What was used until `now_ns`, or until it was last looked at if that is later, in picojoules.
    #[must_use]
    pub fn used_pj(&self, now_ns: u64) -> u128 {
        if now_ns <= self.at_ns {
            return self.used_pj;
        }
        let flowed =
            |mw: u128, from_ns: u64| mw * u128::from(now_ns.saturating_sub(from_ns));
        let come = self.changes.iter().filter(|change| change.0.at_ns <= now_ns);
        let (more_pj, less_pj) = come.fold((0, 0), |(more, less), Reverse(change)| {
            let begun = flowed(change.begins_mw, change.at_ns) + change.rest_pj;
            (more + begun, less + flowed(change.ends_mw, change.at_ns))
        });
        (self.used_pj + flowed(self.flow_mw, self.at_ns) + more_pj) - less_pj
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn energy_is_used_evenly_and_not_before_its_time() {
        let mut spread = Spread::default();
        spread.add(10, 20, 1003);
        spread.add(15, 15, 7);
        for (now_ns, used_pj) in [(9, 0), (10, 0), (12, 200), (15, 507), (19, 907)] {
            assert_eq!(spread.used_pj(now_ns), used_pj, "before it, at {now_ns}");
            spread.look(now_ns);
            assert_eq!(spread.used_pj(now_ns), used_pj, "at {now_ns}");
        }
        assert_eq!((spread.used_pj(20), spread.used_pj(90)), (1010, 1010));
        // Told of at 19, with a time of before: it is used from then on.
        spread.add(0, 10, 100);
        assert_eq!((spread.used_pj(24), spread.used_pj(29)), (1060, 1110));
    }

    proptest! {
        #[test]
        fn energy_is_conserved(
            work in prop::collection::vec((0_u64..100, 0_u64..1000, 0_u64..1 << 40), 0..50),
        ) {
            let mut spread = Spread::default();
            let (mut now_ns, mut all_pj) = (0, 0);
            for (later_ns, time_ns, energy_pj) in work {
                now_ns += later_ns;
                let before_pj = spread.used_pj(now_ns);
                spread.look(now_ns);
                prop_assert_eq!(spread.used_pj(now_ns), before_pj);
                spread.add(now_ns, now_ns + time_ns, energy_pj.into());
                all_pj += u128::from(energy_pj);
            }
            prop_assert!(spread.used_pj(now_ns) <= all_pj);
            prop_assert_eq!(spread.used_pj(now_ns + 1000), all_pj);
        }
    }
}
