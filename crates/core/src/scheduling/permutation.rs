//! The order of an epoch as a function: a keyed bijection on 0..n with random access and no table.
//!
//! It is a Feistel network over the ⌈log2 n⌉ bits of a position with Philox as its round function,
//! repeated until the value is below n (fewer than two steps on average). It is a good shuffle (see the
//! χ² tests below) and not a cipher. It does not know batches or ranks; `plan.rs` does.

use crate::ids::EpochIdx;
use crate::philox::{PERMUTATION_DOMAIN, philox4x32_10, words};

/// Rounds of the network. Six pass the χ² tests below and five fail them; twice as many
/// for what those tests do not see.
const N_ROUNDS: u32 = 12;

/// Bits of the smallest network. Smaller ones mix slowly (one-bit halves), and whole orders
/// of three or four elements show that every network of two-bit halves or more is an even
/// permutation; walking out of 64 values hides both.
const MIN_BITS: u32 = 6;

/// A bijection on 0..n, keyed by (seed, epoch). A few words; copies freely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permutation {
    n: u64,
    key: [u32; 2],
    epoch: u32,
    low_bits: u32,
    low_mask: u32,
    high_mask: u32,
    n_rounds: u32,
}

impl Permutation {
    /// The permutation of 0..n that belongs to (seed, epoch). Any n is accepted.
    #[must_use]
    pub fn new(n: u64, seed: u64, epoch: EpochIdx) -> Self {
        let bits = (u64::BITS - n.saturating_sub(1).leading_zeros()).max(MIN_BITS);
        let high_bits = bits / 2;
        let low_bits = bits - high_bits;
        Self {
            n,
            key: words(seed),
            epoch: epoch.0,
            low_bits,
            low_mask: u32::MAX >> (u32::BITS - low_bits),
            high_mask: u32::MAX >> (u32::BITS - high_bits),
            n_rounds: N_ROUNDS,
        }
    }

    /// The element at position `i`.
    ///
    /// # Panics
    /// When `i` is not below n, like an index into a slice.
    #[must_use]
    pub fn at(&self, i: u64) -> u64 {
        assert!(i < self.n, "position {i} is not below {}", self.n);
        let mut value = self.forward(i);
        while value >= self.n {
            value = self.forward(value);
        }
        value
    }

    /// All rounds on one value of the whole bit range: even rounds change the high half by
    /// the low one, odd rounds the low half by the high one.
    fn forward(&self, value: u64) -> u64 {
        let (mut high, mut low) = self.split(value);
        for round in 0..self.n_rounds {
            self.apply(round, &mut high, &mut low);
        }
        self.join(high, low)
    }

    fn apply(&self, round: u32, high: &mut u32, low: &mut u32) {
        if round.is_multiple_of(2) {
            *high ^= self.word(round, *low) & self.high_mask;
        } else {
            *low ^= self.word(round, *high) & self.low_mask;
        }
    }

    /// The round function: first word of the block (domain + round, half, 0, epoch).
    fn word(&self, round: u32, half: u32) -> u32 {
        philox4x32_10([PERMUTATION_DOMAIN | round, half, 0, self.epoch], self.key)[0]
    }

    fn split(&self, value: u64) -> (u32, u32) {
        let high = words(value >> self.low_bits)[0];
        (high, words(value)[0] & self.low_mask)
    }

    fn join(&self, high: u32, low: u32) -> u64 {
        u64::from(high) << self.low_bits | u64::from(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn permutation(n: u64, seed: u64) -> Permutation {
        Permutation::new(n, seed, EpochIdx(0))
    }

    impl Permutation {
        /// The position of element `x`: `inverse(at(i)) == i`.
        fn inverse(&self, x: u64) -> u64 {
            assert!(x < self.n, "element {x} is not below {}", self.n);
            let mut value = self.backward(x);
            while value >= self.n {
                value = self.backward(value);
            }
            value
        }

        /// The rounds of `forward` from last to first; each undoes itself.
        fn backward(&self, value: u64) -> u64 {
            let (mut high, mut low) = self.split(value);
            for round in (0..self.n_rounds).rev() {
                self.apply(round, &mut high, &mut low);
            }
            self.join(high, low)
        }
    }

    #[test]
    fn a_bijection_for_every_n_up_to_5000() {
        let mut seen = vec![0; 5_000];
        for n in 1..=5_000_u32 {
            let permutation = permutation(u64::from(n), 1);
            for i in 0..u64::from(n) {
                seen[usize::try_from(permutation.at(i)).unwrap()] = n;
            }
            assert!(seen[..n as usize].iter().all(|&last| last == n), "n = {n}");
        }
    }

    #[test]
    fn the_inverse_for_every_small_n() {
        for n in 1..=300 {
            let permutation = permutation(n, 2);
            for i in 0..n {
                assert_eq!(permutation.inverse(permutation.at(i)), i, "n = {n}");
            }
        }
    }

    proptest! {
        #[test]
        fn the_inverse_for_large_n(
            n in (1_u32..=63).prop_flat_map(|bits| (1_u64 << (bits - 1))..=(1_u64 << bits)),
            seed: u64,
            epoch: u32,
            at: u64,
        ) {
            let permutation = Permutation::new(n, seed, EpochIdx(epoch));
            let i = at % n;
            let x = permutation.at(i);
            prop_assert!(x < n);
            prop_assert_eq!(permutation.inverse(x), i);
            prop_assert_eq!(permutation.at(permutation.inverse(i)), i);
        }
    }

    /// Places computed by a Python program written from `docs/numbers.md`.
    #[test]
    fn golden_places() {
        for (n, seed, epoch, places) in GOLDEN_PLACES {
            let permutation = Permutation::new(n, seed, EpochIdx(epoch));
            for &(i, x) in places {
                assert_eq!(permutation.at(i), x, "n = {n}, position {i}");
            }
        }
    }

    /// n, seed, epoch, and (position, element) pairs.
    type Places = (u64, u64, u32, &'static [(u64, u64)]);

    const GOLDEN_PLACES: [Places; 9] = [
        (1, 0, 0, &[(0, 0)]),
        (2, 1, 0, &[(0, 1), (1, 0)]),
        (10, 0, 0, &[(0, 1), (1, 7), (5, 2), (9, 6)]),
        (10, 0, 1, &[(0, 4), (1, 7), (5, 6), (9, 2)]),
        (64, 5, 0, &[(0, 28), (1, 1), (32, 36), (63, 22)]),
        (1000, 9223372036854775809, 2, &[(0, 491), (1, 33), (500, 112), (999, 27)]),
        (
            1281167,
            42,
            89,
            &[(0, 432066), (1, 1046511), (640583, 275816), (1281166, 497320)],
        ),
        (
            1099511627689,
            7,
            3,
            &[
                (0, 576396861731),
                (1, 291876346786),
                (549755813844, 114720086907),
                (1099511627688, 218111337957),
            ],
        ),
        (
            9223372036854775808,
            9,
            4294967295,
            &[
                (0, 7670654164509807020),
                (1, 1189362945333522576),
                (4611686018427387904, 5451895634510674719),
                (9223372036854775807, 7807904567968284261),
            ],
        ),
    ];

    #[test]
    #[should_panic(expected = "position 3 is not below 3")]
    fn a_position_outside_is_refused() {
        let _ = permutation(3, 0).at(3);
    }

    #[test]
    #[should_panic(expected = "element 0 is not below 0")]
    fn nothing_has_no_elements() {
        let _ = permutation(0, 0).inverse(0);
    }

    #[test]
    fn seed_and_epoch_change_the_order() {
        let order = |seed, epoch| -> Vec<u64> {
            let permutation = Permutation::new(1_000, seed, EpochIdx(epoch));
            (0..1_000).map(|i| permutation.at(i)).collect()
        };
        let orders =
            [order(0, 0), order(0, 1), order(1, 0), order(1 << 32, 0), order(1, 1)];
        for (k, one) in orders.iter().enumerate() {
            for other in &orders[..k] {
                // Two independent orders agree in one place on average.
                let n_equal = one.iter().zip(other).filter(|(a, b)| a == b).count();
                assert!(n_equal < 10, "{n_equal} places agree");
            }
        }
    }

    /// χ² of `counts` against an equal share of `total` each.
    fn chi2(counts: &[u32], total: f64) -> f64 {
        let share = total / counts.len() as f64;
        counts.iter().map(|&n| (f64::from(n) - share).powi(2) / share).sum()
    }

    /// How many standard deviations a χ² with `df` degrees of freedom lies above its mean.
    fn excess(chi2: f64, df: f64) -> f64 {
        (chi2 - df) / (2.0 * df).sqrt()
    }

    const N_SEEDS: u32 = 20_000;

    fn orders(n: u64, n_rounds: u32) -> impl Iterator<Item = Vec<usize>> {
        (0..u64::from(N_SEEDS)).map(move |seed| {
            let permutation = Permutation { n_rounds, ..permutation(n, seed) };
            (0..n).map(|i| usize::try_from(permutation.at(i)).unwrap()).collect()
        })
    }

    /// Every element at every position equally often?
    fn position_excess(n: usize, n_rounds: u32) -> f64 {
        let mut counts = vec![0; n * n];
        for order in orders(n as u64, n_rounds) {
            for (i, x) in order.into_iter().enumerate() {
                counts[i * n + x] += 1;
            }
        }
        // One order fills each row and column once, which takes away (n − 1)/n.
        let all = f64::from(N_SEEDS) * n as f64;
        let df = ((n - 1) * (n - 1)) as f64;
        excess(chi2(&counts, all) * (n as f64 - 1.0) / n as f64, df)
    }

    /// Is every pair of elements adjacent equally often?
    fn adjacency_excess(n: usize, n_rounds: u32) -> f64 {
        let mut counts = vec![0; n * n];
        for order in orders(n as u64, n_rounds) {
            for pair in order.windows(2) {
                counts[pair[0] * n + pair[1]] += 1;
            }
        }
        let pairs: Vec<u32> =
            (0..n * n).filter(|k| k / n != k % n).map(|k| counts[k]).collect();
        let all = f64::from(N_SEEDS) * (n as f64 - 1.0);
        excess(chi2(&pairs, all), ((n - 1) * (n - 1)) as f64)
    }

    #[test]
    fn position_and_adjacency_are_even() {
        for n in [3, 5, 8, 10, 16, 23, 33] {
            let (position, adjacency) =
                (position_excess(n, N_ROUNDS), adjacency_excess(n, N_ROUNDS));
            assert!(position.abs() < 4.0, "position, n = {n}: {position} σ");
            assert!(adjacency.abs() < 4.0, "adjacency, n = {n}: {adjacency} σ");
        }
    }

    /// The test above can fail: a network that is too short does.
    #[test]
    fn five_rounds_are_not_even() {
        for n in [3, 5, 8, 10, 16] {
            let worst = position_excess(n, 5).max(adjacency_excess(n, 5));
            assert!(worst > 8.0, "n = {n}: {worst} σ");
        }
    }

    /// All 24 orders of four elements equally often?
    #[test]
    fn whole_orders_are_even() {
        let mut counts = vec![0; 256];
        for order in orders(4, N_ROUNDS) {
            counts[order.iter().fold(0, |code, x| code * 4 + x)] += 1;
        }
        counts.retain(|&n| n > 0);
        assert_eq!(counts.len(), 24);
        let excess = excess(chi2(&counts, f64::from(N_SEEDS)), 23.0);
        assert!(excess < 4.0, "{excess} σ");
    }

    #[test]
    fn a_large_order_has_no_drift() {
        let n = 50_000_u64;
        let bucket = |value: u64| usize::try_from(value * 32 / n).unwrap();
        let (mut places, mut steps) = (vec![0; 32 * 32], vec![0; 32]);
        for epoch in 0..4 {
            let permutation = Permutation::new(n, 7, EpochIdx(epoch));
            let order: Vec<u64> = (0..n).map(|i| permutation.at(i)).collect();
            for (i, &x) in order.iter().enumerate() {
                places[bucket(i as u64) * 32 + bucket(x)] += 1;
            }
            for pair in order.windows(2) {
                steps[bucket((pair[1] + n - pair[0]) % n)] += 1;
            }
        }
        let places = excess(chi2(&places, 4.0 * n as f64), 31.0 * 31.0);
        let steps = excess(chi2(&steps, 4.0 * (n as f64 - 1.0)), 31.0);
        assert!(places.abs() < 4.0, "places: {places} σ");
        assert!(steps < 4.0, "steps: {steps} σ");
    }
}
