//! Coordinated reads: samples arranged so that ranks that step together have equal work.
//!
//! A step of data-parallel training lasts as long as its slowest rank. Where the work of a sample varies
//! (the length of a text, the resolution of a photograph), the step of many ranks almost always waits for a
//! rank with one of the largest samples. [`together`] sorts a window of samples by work and gives each step
//! samples of nearly the same work, as the coordinated reads of tf.data service do. It is a permutation, so
//! every sample is still delivered exactly once, and a pure function, so every rank and every resumed run
//! finds the same one.
//!
//! The samples of a batch then resemble each other in work, which a shuffled batch does not. Whoever
//! chooses this knows whether the training minds.

use crate::philox::{POOL_DOMAIN, philox4x32_10, words};

/// What all ranks together take in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The number of ranks.
    pub ranks: u32,
    /// Samples of a batch of one rank.
    pub batch_size: u32,
}

impl Step {
    /// Samples of all ranks.
    #[must_use]
    pub fn n_samples(self) -> usize {
        let n = u64::from(self.ranks) * u64::from(self.batch_size);
        usize::try_from(n).unwrap_or(usize::MAX)
    }
}

/// Arranges a window of consecutive positions of a plan, whose samples take `work`, in any unit. Item
/// `i` is the place in `work` of the sample that position `i` gets. As in a plan, each step has
/// the batch of rank 0, then that of rank 1, and so on.
///
/// Positions after the last whole step keep their samples. `key` decides in which order steps of little
/// and much work come; give a run's seed mixed with its epoch and the number of the window.
#[must_use]
pub fn together(work: &[u64], step: Step, key: u64) -> Vec<u32> {
    let n_step = step.n_samples();
    let mut order: Vec<u32> = (0..).take(work.len()).collect();
    if n_step == 0 || n_step > work.len() {
        return order;
    }
    let n_whole = work.len() - work.len() % n_step;
    let rest = order.split_off(n_whole);
    // Ties keep the plan's order, so that equal work changes nothing but the order of steps.
    order.sort_by_key(|at| work[*at as usize]);
    let mut steps: Vec<&[u32]> = order.chunks_exact(n_step).collect();
    shuffle(&mut steps, key);
    let dealt = steps.into_iter().flat_map(|samples| deal(samples, step));
    dealt.chain(rest).collect()
}

/// Samples of rising work, dealt like cards, from the left and then from the right: every rank gets one
/// of the smallest, one of the largest, and nearly the same sum.
fn deal(samples: &[u32], step: Step) -> Vec<u32> {
    let (ranks, batch) = (step.ranks as usize, step.batch_size as usize);
    let mut dealt = vec![0; samples.len()];
    for (row, round) in samples.chunks_exact(ranks).enumerate() {
        for (at, sample) in round.iter().enumerate() {
            let rank = if row % 2 == 0 { at } else { ranks - 1 - at };
            dealt[rank * batch + row] = *sample;
        }
    }
    dealt
}

/// Fisher–Yates with numbers of the key.
fn shuffle<T>(items: &mut [T], key: u64) {
    for last in (1..items.len()).rev() {
        let [low, high] = words(last as u64);
        let drawn = philox4x32_10([POOL_DOMAIN, low, high, 0], words(key));
        // The high word of a product is uniform enough: a window has few steps.
        let at = (u64::from(drawn[0]) * (last as u64 + 1)) >> 32;
        items.swap(last, usize::try_from(at).unwrap_or(last));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn step(ranks: u32, batch_size: u32) -> Step {
        Step { ranks, batch_size }
    }

    /// The sums of a step's ranks.
    fn sums(work: &[u64], samples: &[u32], batch_size: u32) -> Vec<u64> {
        let batches = samples.chunks(batch_size as usize);
        batches.map(|batch| batch.iter().map(|at| work[*at as usize]).sum()).collect()
    }

    #[test]
    fn every_rank_of_a_step_gets_the_same_work() {
        // Two steps of two ranks of two samples: the small ones together, and the large ones.
        let work = [9, 1, 8, 2, 3, 7, 4, 6];
        let order = together(&work, step(2, 2), 0);
        let mut steps: Vec<_> =
            order.chunks(4).map(|samples| sums(&work, samples, 2)).collect();
        steps.sort();
        assert_eq!(steps, [[5, 5], [15, 15]]);
    }

    #[test]
    fn nothing_to_arrange_is_left_as_it_is() {
        for (n, ranks, batch) in [(3, 2, 2), (0, 2, 2), (5, 0, 4), (5, 4, 0)] {
            let order = together(&vec![1; n], step(ranks, batch), 0);
            assert_eq!(order, (0..).take(n).collect::<Vec<u32>>());
        }
        let huge = step(u32::MAX, u32::MAX);
        assert_eq!(together(&[2, 1], huge, 0), [0, 1]);
    }

    #[test]
    fn steps_of_little_work_do_not_come_first() {
        let work: Vec<u64> = (0..1000).collect();
        let order = together(&work, step(5, 2), 7);
        let firsts: Vec<u32> = order.iter().step_by(10).copied().collect();
        assert!(!firsts.is_sorted());
        let other = together(&work, step(5, 2), 8);
        assert_ne!(order, other, "another key is another order of steps");
    }

    proptest! {
        #[test]
        fn every_sample_is_there_once(
            work in prop::collection::vec(any::<u64>(), 0..200),
            ranks in 0_u32..9, batch in 0_u32..9, key: u64,
        ) {
            let mut order = together(&work, step(ranks, batch), key);
            prop_assert_eq!(&order, &together(&work, step(ranks, batch), key));
            order.sort_unstable();
            prop_assert_eq!(order, (0..).take(work.len()).collect::<Vec<u32>>());
        }

        #[test]
        fn the_slowest_ranks_of_all_steps_never_take_longer_than_in_the_plans_order(
            work in prop::collection::vec(0_u64..1_000_000, 32..600),
            ranks in 1_u32..9, key: u64,
        ) {
            let of = step(ranks, 1);
            let n_whole = work.len() - work.len() % of.n_samples();
            let total = |order: &[u32]| -> u64 {
                let steps = order[..n_whole].chunks(of.n_samples());
                steps.filter_map(|it| sums(&work, it, 1).into_iter().max()).sum()
            };
            let plan: Vec<u32> = (0..).take(work.len()).collect();
            prop_assert!(total(&together(&work, of, key)) <= total(&plan));
        }
    }
}
