//! A set of batches that finds its first, last and next member quickly.
//!
//! One bit per batch, and two cursors that enclose all members. Strategies walk both ends of an epoch, so
//! both must be cheap. Nothing here knows what membership means.

use crate::ids::BatchIdx;

const BITS: u32 = u64::BITS;

/// A set of batches of one epoch.
#[derive(Debug, Clone)]
pub struct BatchSet {
    words: Vec<u64>,
    len: u32,
    /// Every word before this one is empty.
    low: usize,
    /// Every word from this one on is empty.
    high: usize,
}

impl BatchSet {
    /// The set of all batches below `n`.
    #[must_use]
    pub fn full(n: u32) -> Self {
        let mut words = vec![u64::MAX; n.div_ceil(BITS) as usize];
        if let Some(last) = words.last_mut()
            && !n.is_multiple_of(BITS)
        {
            *last >>= BITS - n % BITS;
        }
        Self { high: words.len(), words, len: n, low: 0 }
    }

    /// The empty set that may hold batches below `n`.
    #[must_use]
    pub fn empty(n: u32) -> Self {
        Self { words: vec![0; n.div_ceil(BITS) as usize], len: 0, low: 0, high: 0 }
    }

    /// Number of members.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `batch` is a member.
    #[must_use]
    pub fn contains(&self, batch: BatchIdx) -> bool {
        self.words.get(place(batch).0).is_some_and(|word| word & place(batch).1 != 0)
    }

    /// The lowest member.
    #[must_use]
    pub fn first(&self) -> Option<BatchIdx> {
        member(self.low, *self.words.get(self.low)?, u64::trailing_zeros)
    }

    /// The highest member.
    #[must_use]
    pub fn last(&self) -> Option<BatchIdx> {
        let word = self.high.checked_sub(1)?;
        member(word, *self.words.get(word)?, |bits| BITS - 1 - bits.leading_zeros())
    }

    /// The lowest member that is not below `from`.
    #[must_use]
    pub fn first_from(&self, from: BatchIdx) -> Option<BatchIdx> {
        let (at, bit) = place(from);
        let begun = self.words.get(at)? & !(bit - 1);
        if begun != 0 {
            return member(at, begun, u64::trailing_zeros);
        }
        let start = self.low.max(at + 1);
        let rest = self.words.get(start..self.high)?;
        let skipped = rest.iter().position(|word| *word != 0)?;
        member(start + skipped, rest[skipped], u64::trailing_zeros)
    }

    /// The member with `n` members below it.
    #[must_use]
    pub fn nth(&self, n: u32) -> Option<BatchIdx> {
        let mut below = n;
        for (at, word) in (self.low..).zip(self.words.get(self.low..self.high)?) {
            if below < word.count_ones() {
                let without_lower = (0..below).fold(*word, |rest, _| rest & (rest - 1));
                return member(at, without_lower, u64::trailing_zeros);
            }
            below -= word.count_ones();
        }
        None
    }

    /// Number of members below `batch`.
    #[must_use]
    pub fn count_below(&self, batch: BatchIdx) -> u32 {
        let (at, bit) = place(batch);
        let end = at.clamp(self.low, self.high);
        let whole: u32 = self.words[self.low..end].iter().map(|w| w.count_ones()).sum();
        let begun = self.words.get(at).map_or(0, |word| (word & (bit - 1)).count_ones());
        whole + begun
    }

    /// Adds a batch below the set's bound; a member stays one.
    pub(crate) fn insert(&mut self, batch: BatchIdx) {
        let (at, bit) = place(batch);
        if self.words[at] & bit == 0 {
            self.words[at] |= bit;
            let (low, high) = match self.len {
                0 => (at, at + 1),
                _ => (self.low.min(at), self.high.max(at + 1)),
            };
            (self.low, self.high) = (low, high);
            self.len += 1;
        }
    }

    /// Removes a batch below the set's bound, if it is a member.
    pub(crate) fn remove(&mut self, batch: BatchIdx) {
        let (at, bit) = place(batch);
        if self.words[at] & bit != 0 {
            self.words[at] &= !bit;
            self.len -= 1;
            while self.low < self.high && self.words[self.low] == 0 {
                self.low += 1;
            }
            while self.high > self.low && self.words[self.high - 1] == 0 {
                self.high -= 1;
            }
        }
    }
}

/// The word of a batch and its bit there.
fn place(batch: BatchIdx) -> (usize, u64) {
    ((batch.0 / BITS) as usize, 1 << (batch.0 % BITS))
}

fn member(word: usize, bits: u64, bit_of: impl Fn(u64) -> u32) -> Option<BatchIdx> {
    let base = u32::try_from(word).ok()? * BITS;
    (bits != 0).then(|| BatchIdx(base + bit_of(bits)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against the standard library's ordered set.
        #[test]
        fn it_is_an_ordered_set(
            n in 0_u32..300,
            begins_full in any::<bool>(),
            // Few values, far apart: sets become empty, and words too.
            steps in prop::collection::vec((any::<bool>(), 0_u32..5, 0_u32..3), 0..60),
        ) {
            let mut set = if begins_full { BatchSet::full(n) } else { BatchSet::empty(n) };
            let mut twin: BTreeSet<u32> = (0..if begins_full { n } else { 0 }).collect();
            for (add, far, near) in steps {
                let value = far * 63 + near;
                if value < n && add {
                    set.insert(BatchIdx(value));
                    twin.insert(value);
                } else if value < n {
                    set.remove(BatchIdx(value));
                    twin.remove(&value);
                }
                prop_assert_eq!(set.len() as usize, twin.len());
                prop_assert_eq!(set.is_empty(), twin.is_empty());
                prop_assert_eq!(set.contains(BatchIdx(value)), twin.contains(&value));
                prop_assert_eq!(set.first().map(|b| b.0), twin.first().copied());
                prop_assert_eq!(set.last().map(|b| b.0), twin.last().copied());
                let from = twin.range(value..).next().copied();
                prop_assert_eq!(set.first_from(BatchIdx(value)).map(|b| b.0), from);
                let below = twin.range(..value).count();
                prop_assert_eq!(set.count_below(BatchIdx(value)) as usize, below);
                let nth = twin.iter().nth(value as usize).copied();
                prop_assert_eq!(set.nth(value).map(|b| b.0), nth);
            }
        }
    }
}
