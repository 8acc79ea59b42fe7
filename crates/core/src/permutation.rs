//! The order of an epoch as a function: a keyed bijection on 0..n with random access in
//! both directions and no table.
//!
//! A Feistel network over the ⌈log2 n⌉ bits of a position, with Philox as its round
//! function, walked until the value is below n (fewer than two steps on average). It is a
//! good shuffle (the χ² tests below), not a cipher. It does not know batches or ranks:
//! `plan.rs` does.

use crate::ids::EpochIdx;
use crate::rng::{PERMUTATION_DOMAIN, philox4x32_10, words};

/// Rounds of the network. Three already pass every χ² test below and two fail them; the
/// rest is margin.
const N_ROUNDS: u32 = 12;

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
        // Two bits at least, so that both halves have one.
        let bits = (u64::BITS - n.saturating_sub(1).leading_zeros()).max(2);
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

    /// The position of element `x`: `inverse(at(i)) == i`.
    ///
    /// # Panics
    /// When `x` is not below n.
    #[must_use]
    pub fn inverse(&self, x: u64) -> u64 {
        assert!(x < self.n, "element {x} is not below {}", self.n);
        let mut value = self.backward(x);
        while value >= self.n {
            value = self.backward(value);
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

    /// The rounds of `forward` from last to first; each undoes itself.
    fn backward(&self, value: u64) -> u64 {
        let (mut high, mut low) = self.split(value);
        for round in (0..self.n_rounds).rev() {
            self.apply(round, &mut high, &mut low);
        }
        self.join(high, low)
    }

    fn apply(&self, round: u32, high: &mut u32, low: &mut u32) {
        if round % 2 == 0 {
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
