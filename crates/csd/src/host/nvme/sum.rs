//! The checksum of a part's samples, computed as they come: a processor that has just copied bytes still has them in its
//! cache, and hardly ever once the last has come.

use std::fmt;
use std::hash::Hasher as _;

use twox_hash::XxHash3_64;

/// The checksum of the first bytes of all, as far as they have come in order.
#[derive(Default)]
pub(super) struct Sum {
    hash: XxHash3_64,
    n_bytes: usize,
}

impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sum").field("n_bytes", &self.n_bytes).finish_non_exhaustive()
    }
}

impl Sum {
    /// Takes bytes that have come, and which begin at byte `at` of all. Those that have come out of order are left to
    /// [`Sum::of`], and so is everything once bytes have come again: a sum of those that were replaced proves nothing.
    pub(super) fn add(&mut self, at: usize, bytes: &[u8]) {
        if at < self.n_bytes {
            *self = Self::default();
        }
        if at == self.n_bytes {
            self.hash.write(bytes);
            self.n_bytes += bytes.len();
        }
    }

    /// The checksum of `all`, whose first bytes are those that were added.
    pub(super) fn of(mut self, all: &[u8]) -> u64 {
        self.hash.write(all.get(self.n_bytes..).unwrap_or_default());
        self.hash.finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use twox_hash::XxHash3_64;

    use super::*;

    #[test]
    fn bytes_that_come_again_count_as_they_came_last() {
        let mut all = vec![1; 300];
        let mut sum = Sum::default();
        sum.add(0, &all[..100]);
        sum.add(100, &all[100..200]);
        all[50..150].fill(2);
        sum.add(50, &all[50..150]);
        sum.add(200, &all[200..]);
        assert_eq!(sum.of(&all), XxHash3_64::oneshot(&all));
    }

    proptest! {
        /// Whatever comes in whatever order, the sum is that of the whole.
        #[test]
        fn it_is_that_of_the_whole(
            all in prop::collection::vec(any::<u8>(), 0..2000),
            part in 1_usize..700,
            order in any::<prop::sample::Index>(),
        ) {
            let mut parts: Vec<usize> = (0..all.len()).step_by(part).collect();
            // In order, except for one that comes last.
            if !parts.is_empty() {
                let late = parts.remove(order.index(parts.len()));
                parts.push(late);
            }
            let mut sum = Sum::default();
            for at in parts {
                sum.add(at, &all[at..all.len().min(at + part)]);
            }
            prop_assert_eq!(sum.of(&all), XxHash3_64::oneshot(&all));
        }
    }
}
