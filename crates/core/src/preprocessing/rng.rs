//! Keyed, counter-based random numbers: the stream of draws of one op on one sample, made from Philox
//! blocks (`philox.rs`).
//!
//! A number is a pure function of (seed, epoch, sample, op, position in the stream). No state is
//! shared, so it does not matter who draws, when, or what runs at the same time. `docs/numbers.md`
//! defines every step so that it can be rewritten elsewhere; do not change anything here without a new
//! recipe version. `rng/variates.rs` has the distributions other than the uniform one, and
//! `recipe/draw.rs` says what is drawn from a stream.

mod variates;

use crate::philox::{multiply, philox4x32_10, words};
use crate::sample::SampleKey;

/// Most ops a stream can tell apart; the last number is the shuffle's.
pub const MAX_OPS: u32 = 0xFFFF;

/// The random numbers of one op on one sample, in the order in which they are drawn.
///
/// Key: the seed's low and high word. Counter: `op_index · 2^16 + block`, the sample's low
/// and high word, the epoch; no two (op, block, sample, epoch) share one.
#[derive(Debug, Clone)]
pub struct Draws {
    key: [u32; 2],
    counter: [u32; 4],
    words: [u32; 4],
    n_used: usize,
}

impl Draws {
    /// The stream of op number `op_index` (counted from 0 in the recipe's list, below
    /// [`MAX_OPS`]) on the sample of `key`.
    #[must_use]
    pub fn new(key: SampleKey, op_index: u32) -> Self {
        debug_assert!(op_index < MAX_OPS, "a recipe has fewer ops");
        let [sample_low, sample_high] = words(key.sample.0);
        Self {
            key: words(key.seed),
            counter: [op_index << 16, sample_low, sample_high, key.epoch.0],
            words: [0; 4],
            n_used: 4,
        }
    }

    /// The next word. An op draws far fewer than the 2^18 words of its stream.
    pub fn next_u32(&mut self) -> u32 {
        if self.n_used == 4 {
            self.words = philox4x32_10(self.counter, self.key);
            self.counter[0] = self.counter[0].wrapping_add(1);
            self.n_used = 0;
        }
        self.n_used += 1;
        self.words[self.n_used - 1]
    }

    /// A multiple of 2^-53 in [0, 1): 27 bits of the next word, then 26 of the one after.
    pub fn uniform(&mut self) -> f64 {
        let high = f64::from(self.next_u32() >> 5);
        let low = f64::from(self.next_u32() >> 6);
        (high * 67_108_864.0 + low) / 9_007_199_254_740_992.0
    }

    /// An integer in 0..n from one word by 64-bit multiply and shift; 0 when n is 0. The
    /// probability of each value is off by less than 2^-32.
    pub fn below(&mut self, n: u32) -> u32 {
        multiply(self.next_u32(), n).0
    }

    /// True with probability `p`: whether a [`Self::uniform`] draw is less than `p`.
    pub fn bernoulli(&mut self, p: f64) -> bool {
        self.uniform() < p
    }
}

/// Two bytes for every element of a sample, for ops that need one number per pixel: more than
/// a stream of [`Draws`] holds.
///
/// Key: the seed's words, the low one exclusive-or `(op_index + 1) · 0x9E37_79B9`, the high
/// one exclusive-or `0x7F4A_7C15`. Counter: the block, the sample's low and high word, the
/// epoch. Each block of four words has eight numbers, the low half of a word first.
#[derive(Debug, Clone)]
pub struct Noise {
    key: [u32; 2],
    counter: [u32; 4],
    words: [u32; 4],
    n_used: usize,
}

impl Noise {
    /// The numbers of op number `op_index` on the sample of `key`.
    #[must_use]
    pub fn new(key: SampleKey, op_index: u32) -> Self {
        let [seed_low, seed_high] = words(key.seed);
        let [sample_low, sample_high] = words(key.sample.0);
        let own = (op_index + 1).wrapping_mul(0x9E37_79B9);
        Self {
            key: [seed_low ^ own, seed_high ^ 0x7F4A_7C15],
            counter: [0, sample_low, sample_high, key.epoch.0],
            words: [0; 4],
            n_used: 8,
        }
    }

    /// The key and the counter of the block that comes next, for whoever computes numbers out
    /// of their order.
    #[must_use]
    pub fn key_and_counter(&self) -> ([u32; 2], [u32; 4]) {
        (self.key, self.counter)
    }

    /// The next number.
    #[expect(clippy::cast_possible_truncation, reason = "takes the word apart")]
    pub fn next_u16(&mut self) -> u16 {
        if self.n_used == 8 {
            self.words = philox4x32_10(self.counter, self.key);
            self.counter[0] = self.counter[0].wrapping_add(1);
            self.n_used = 0;
        }
        let word = self.words[self.n_used / 2];
        let half = word >> (16 * (self.n_used % 2));
        self.n_used += 1;
        half as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{EpochIdx, SampleId};
    use std::collections::HashSet;

    fn key(seed: u64, epoch: u32, sample: u64) -> SampleKey {
        SampleKey { seed, epoch: EpochIdx(epoch), sample: SampleId(sample) }
    }

    #[test]
    fn a_stream_is_its_blocks_in_order() {
        let sample = 0x0123_4567_89AB_CDEF;
        let mut draws = Draws::new(key(0xFEDC_BA98_7654_3210, 7, sample), 3);
        for block in 0..3 {
            let counter = [3 << 16 | block, 0x89AB_CDEF, 0x0123_4567, 7];
            for word in philox4x32_10(counter, [0x7654_3210, 0xFEDC_BA98]) {
                assert_eq!(draws.next_u32(), word);
            }
        }
    }

    #[test]
    fn noise_is_its_blocks_in_halves() {
        let mut noise = Noise::new(key(0x1_0000_0002, 7, 5), 0);
        let key = [2 ^ 0x9E37_79B9, 1 ^ 0x7F4A_7C15];
        for block in 0..2 {
            for word in philox4x32_10([block, 5, 0, 7], key) {
                assert_eq!(u32::from(noise.next_u16()), word & 0xFFFF);
                assert_eq!(u32::from(noise.next_u16()), word >> 16);
            }
        }
    }

    #[test]
    fn every_part_of_the_key_matters() {
        let first = |key, op| Draws::new(key, op).next_u32();
        let streams = [
            first(key(1, 0, 0), 0),
            first(key(1 << 32, 0, 0), 0),
            first(key(0, 1, 0), 0),
            first(key(0, 0, 1), 0),
            first(key(0, 0, 1 << 32), 0),
            first(key(0, 0, 0), 1),
            first(key(0, 0, 0), 0),
        ];
        assert_eq!(streams.iter().collect::<HashSet<_>>().len(), streams.len());
    }

    #[test]
    fn uniform_is_in_range_and_even() {
        let mut draws = Draws::new(key(5, 0, 9), 0);
        let mut bins = [0_u32; 16];
        for _ in 0..160_000 {
            let u = draws.uniform();
            assert!((0.0..1.0).contains(&u));
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "0 ≤ u < 1"
            )]
            let bin = (u * 16.0) as usize;
            bins[bin] += 1;
        }
        let chi2: f64 = bins.iter().map(|&n| (f64::from(n) - 1e4).powi(2) / 1e4).sum();
        // 15 degrees of freedom: 37.7 is exceeded for one key in a thousand.
        assert!(chi2 < 37.7, "χ² = {chi2}");
    }

    #[test]
    fn below_stays_below() {
        let mut draws = Draws::new(key(5, 1, 9), 0);
        let mut seen = [0_u32; 7];
        for _ in 0..7_000 {
            seen[draws.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (850..1150).contains(n)), "{seen:?}");
        assert_eq!(draws.below(0), 0);
        assert_eq!(draws.below(1), 0);
        assert!((0..1000).any(|_| draws.below(u32::MAX) > 1 << 31));
    }

    #[test]
    fn bernoulli_is_sure_at_both_ends() {
        let mut draws = Draws::new(key(0, 0, 0), 0);
        assert!((0..1000).all(|_| draws.bernoulli(1.0)));
        assert!((0..1000).all(|_| !draws.bernoulli(0.0)));
    }
}
