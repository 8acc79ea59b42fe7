//! How many samples of a batch come from each source of a mix: exact numbers from weights, for any
//! batch at once and without a table.
//!
//! A batch of B samples is an interval of length B, cut into one piece for each source, as long as the
//! source's part of B. The samples are B points at distance 1 on it: a piece of length q then holds ⌊q⌋ or
//! ⌈q⌉ of them, and all pieces together hold B (systematic sampling: Madow, "On the theory of systematic
//! sampling", 1949). From batch to batch the points are shifted, so that over a period, the fewest batches
//! for which every source's part is whole, each place is taken once and the numbers are exact. The shift
//! grows by about the golden ratio, which spreads what is rounded evenly over the period. How many samples
//! a source has given before a batch is a sum of floors, found as Euclid finds a divisor.
//!
//! It does not know which samples these are; `mix.rs` does.

/// Most that the weights may add up to as whole numbers without a common divisor: sums and
/// products of them stay within 128 bits.
const MOST_TOTAL: u64 = 1 << 60;

/// Most decimals of a weight.
const MOST_DECIMALS: usize = 18;

/// Steps near the golden ratio of the period among which the most even one is taken.
const STEPS_TRIED: u128 = 64;

/// What the weights say of every batch. Positions on the interval are in units in which a point's
/// shift is a whole number: `period` of them are the distance of two points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shares {
    /// Where each source's piece ends.
    ends: Vec<u128>,
    /// Batches after which all begins again.
    period: u128,
    /// What the shift grows by.
    step: u128,
}

impl Shares {
    /// The shares of sources with these weights, whole numbers above 0, in batches of
    /// `batch_size`. `None` where they are too far apart ([`MOST_TOTAL`]).
    pub(super) fn new(weights: &[u64], batch_size: u32) -> Option<Self> {
        let divisor = weights.iter().copied().fold(0, |a, b| gcd(a.into(), b.into()));
        let whole = |&weight: &u64| u128::from(weight) / divisor_of(divisor);
        let total: u128 = weights.iter().map(whole).sum();
        if total == 0 || total > u128::from(MOST_TOTAL) {
            return None;
        }
        let size = u128::from(batch_size.max(1));
        let unit = u128::from(gcd(size, total));
        let ends = weights.iter().map(whole).scan(0, |end, weight| {
            *end += weight * size / unit;
            Some(*end)
        });
        let period = total / unit;
        Some(Self { ends: ends.collect(), period, step: step_of(period) })
    }

    /// Batches over which every source's number is exactly its part.
    pub(super) fn period(&self) -> u128 {
        self.period
    }

    /// Where the sources' pieces end, which is all that they depend on.
    pub(super) fn ends(&self) -> &[u128] {
        &self.ends
    }

    /// How many samples of a batch the source gives.
    pub(super) fn of_batch(&self, source: usize, batch: u128) -> u32 {
        let n = self.points(self.ends[source], batch)
            - self.points(self.start(source), batch);
        u32::try_from(n).unwrap_or(u32::MAX)
    }

    /// How many samples the source gives in all batches before this one.
    pub(super) fn before(&self, source: usize, batch: u128) -> u128 {
        let (end, start) = (self.ends[source], self.start(source));
        let (periods, rest) = (batch / self.period, batch % self.period);
        periods * (end - start) + self.points_until(end, rest)
            - self.points_until(start, rest)
    }

    fn start(&self, source: usize) -> u128 {
        source.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// The shift of a batch's points begins in the middle, as rounding to the nearest does.
    fn first_shift(&self) -> u128 {
        self.period / 2
    }

    /// Points of a batch before a position.
    fn points(&self, position: u128, batch: u128) -> u128 {
        let turn = batch % self.period;
        let shift = (turn * self.step + self.first_shift()) % self.period;
        (position + self.period - 1 - shift) / self.period
    }

    /// Points before a position of all batches before one in the first period.
    fn points_until(&self, position: u128, batch: u128) -> u128 {
        let (whole, part) = (position / self.period, position % self.period);
        // A shift below `part` is one more point; the two sums differ where there is one.
        let (n, m, first) = (batch, self.period, self.first_shift());
        let is_below = floor_sum(n, m, self.step, first) + n
            - floor_sum(n, m, self.step, first + m - part);
        whole * n + is_below
    }
}

/// Weights as whole numbers in the same ratio; `Err` of the place of one that is no number above 0,
/// or has too many digits.
pub(super) fn whole_weights(weights: &[f64]) -> Result<Vec<u64>, usize> {
    let texts: Vec<String> = weights.iter().map(f64::to_string).collect();
    let decimals =
        |text: &String| text.split_once('.').map_or(0, |(_, after)| after.len());
    if let Some(i) = texts.iter().position(|text| decimals(text) > MOST_DECIMALS) {
        return Err(i);
    }
    let n = texts.iter().map(decimals).max().unwrap_or(0);
    let place = |(i, text): (usize, &String)| {
        let (whole, after) = text.split_once('.').unwrap_or((text, ""));
        let digits = format!("{whole}{after:0<n$}");
        digits.parse::<u64>().ok().filter(|number| *number > 0).ok_or(i)
    };
    texts.iter().enumerate().map(place).collect()
}

fn divisor_of(divisor: u64) -> u128 {
    u128::from(divisor.max(1))
}

fn gcd(mut a: u128, mut b: u128) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    u64::try_from(a).unwrap_or(u64::MAX)
}

/// A number without a common divisor with the period, near the golden ratio of it: of those, the one
/// whose multiples are spread most evenly, for which the largest quotient in Euclid's algorithm is
/// the measure.
fn step_of(period: u128) -> u128 {
    // The golden ratio's fraction in 64 bits.
    let golden = (period * 0x9E37_79B9_7F4A_7C15) >> 64;
    let near = (0..STEPS_TRIED).flat_map(|d| [golden.checked_sub(d), Some(golden + d)]);
    let steps = near.flatten().filter(|step| (1..=period).contains(step));
    let coprime = steps.filter(|&step| gcd(step, period) == 1);
    coprime.min_by_key(|&step| largest_quotient(step, period)).unwrap_or(1)
}

fn largest_quotient(mut a: u128, mut b: u128) -> u128 {
    let mut most = 0;
    while a > 0 {
        most = most.max(b / a);
        (a, b) = (b % a, a);
    }
    most
}

/// The sum of ⌊(step·i + first) / m⌋ over i below n.
fn floor_sum(mut n: u128, mut m: u128, mut step: u128, mut first: u128) -> u128 {
    let mut sum = 0;
    loop {
        sum += n * n.saturating_sub(1) / 2 * (step / m) + n * (first / m);
        (step, first) = (step % m, first % m);
        let last = step * n + first;
        if last < m {
            return sum;
        }
        (n, first) = (last / m, last % m);
        (m, step) = (step, m);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn weights_become_whole_numbers_in_the_same_ratio() {
        assert_eq!(whole_weights(&[2.0, 1.0]), Ok(vec![2, 1]));
        assert_eq!(whole_weights(&[0.7, 0.25, 3.0]), Ok(vec![70, 25, 300]));
        assert_eq!(whole_weights(&[1.0 / 3.0]), Ok(vec![3_333_333_333_333_333]));
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300, 1e300] {
            assert_eq!(whole_weights(&[1.0, wrong]), Err(1), "{wrong}");
        }
        assert_eq!(Shares::new(&[u64::MAX, 1], 4), None);
        assert!(Shares::new(&[u64::MAX, u64::MAX], 4).is_some(), "they are 1 and 1");
    }

    #[test]
    fn two_to_one_in_batches_of_four() {
        let shares = Shares::new(&[2, 1], 4).unwrap();
        assert_eq!(shares.period(), 3);
        let batch = |n| [shares.of_batch(0, n), shares.of_batch(1, n)];
        let batches: Vec<_> = (0..6).map(batch).collect();
        assert_eq!(batches[..3], [[3, 1], [3, 1], [2, 2]]);
        assert_eq!(batches[3..], batches[..3]);
        assert_eq!([shares.before(0, 3), shares.before(1, 3)], [8, 4]);
    }

    #[test]
    fn the_largest_shares_do_not_overflow() {
        let weights = [(1 << 60) - 3, 2];
        let shares = Shares::new(&weights, u32::MAX).unwrap();
        let batch = 1 << 95;
        let of = |source| shares.of_batch(source, batch);
        assert_eq!(u64::from(of(0)) + u64::from(of(1)), u64::from(u32::MAX));
        let before = |batch| shares.before(0, batch) + shares.before(1, batch);
        assert_eq!(before(1 << 90), u128::from(u32::MAX) << 90);
        assert_eq!(before(shares.period() - 1), (shares.period() - 1) * 0xFFFF_FFFF);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_batch_is_exact_and_so_is_the_period(
            weights in prop::collection::vec(1_u64..200, 1..9),
            batch_size in 1_u32..300,
        ) {
            let shares = Shares::new(&weights, batch_size).unwrap();
            let total: u64 = weights.iter().sum();
            let size = u64::from(batch_size);
            let period = u64::try_from(shares.period()).unwrap();
            // No fewer batches can be exact.
            let is_whole = |n: u64| weights.iter().all(|w| (n * size * w).is_multiple_of(total));
            prop_assert_eq!((1..=period).find(|&n| is_whole(n)), Some(period));
            let mut given = vec![0_u64; weights.len()];
            let slack = 1.0 + (period as f64).log2() / 3.0;
            for batch in 0..period + 3 {
                let mut left = batch_size;
                for (source, weight) in weights.iter().enumerate() {
                    let before = shares.before(source, batch.into());
                    prop_assert_eq!(before, u128::from(given[source]));
                    let part = size * weight;
                    let drift = given[source] as f64 - (batch * part) as f64 / total as f64;
                    prop_assert!(drift.abs() <= slack, "{} of {}", drift, slack);
                    if batch == period {
                        prop_assert_eq!(given[source], period * part / total);
                    }
                    let n = shares.of_batch(source, batch.into());
                    let is_within = (part / total..=part.div_ceil(total)).contains(&n.into());
                    prop_assert!(is_within, "{} of {} / {}", n, part, total);
                    left -= n;
                    given[source] += u64::from(n);
                }
                prop_assert_eq!(left, 0);
            }
        }
    }
}
