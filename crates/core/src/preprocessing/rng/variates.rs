//! Normal, gamma, beta and Dirichlet variates, by rejection from uniform ones. They are exactly defined
//! because they use only `arith`. `docs/numbers.md` has the steps.

use super::Draws;
use crate::arith::{exp, ln};

impl Draws {
    /// A number of `low` to `high`, evenly.
    pub fn between(&mut self, [low, high]: [f64; 2]) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// A whole number of `low` to `high`, both included, evenly; `low` where they are in the
    /// wrong order.
    pub fn integer(&mut self, [low, high]: [u32; 2]) -> u32 {
        low + self.below((high.saturating_sub(low)).saturating_add(1))
    }

    /// A number of the normal distribution with mean 0 and deviation 1 (Marsaglia's polar
    /// method, SIAM Review 6 (1964) 260): pairs of `uniform` until one lies in the circle.
    pub fn normal(&mut self) -> f64 {
        loop {
            let x = 2.0 * self.uniform() - 1.0;
            let y = 2.0 * self.uniform() - 1.0;
            let square = x * x + y * y;
            if 0.0 < square && square < 1.0 {
                return x * ((-2.0 * ln(square)) / square).sqrt();
            }
        }
    }

    /// The logarithm of a number of the gamma distribution of this shape and scale 1
    /// (Marsaglia and Tsang, ACM TOMS 26 (2000) 363). Its logarithm, because numbers of
    /// small shapes are smaller than any `f64`.
    pub fn ln_gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let larger = self.ln_gamma(shape + 1.0);
            // 1 − u is never 0.
            return larger + ln(1.0 - self.uniform()) / shape;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = 1.0 + c * x;
            if v <= 0.0 {
                continue;
            }
            let v = v * v * v;
            let u = 1.0 - self.uniform();
            if ln(u) < 0.5 * x * x + d - d * v + d * ln(v) {
                return ln(d) + ln(v);
            }
        }
    }

    /// A number of the beta distribution with both parameters `alpha`: two gamma variates,
    /// the first by their sum.
    pub fn beta(&mut self, alpha: f64) -> f64 {
        let first = self.ln_gamma(alpha);
        let second = self.ln_gamma(alpha);
        1.0 / (1.0 + exp(second - first))
    }

    /// Shares of one, from the Dirichlet distribution with all parameters `alpha`: gamma
    /// variates by their sum.
    pub fn dirichlet(&mut self, alpha: f64, shares: &mut [f64]) {
        let mut largest = f64::NEG_INFINITY;
        for share in &mut *shares {
            *share = self.ln_gamma(alpha);
            largest = largest.max(*share);
        }
        let mut sum = 0.0;
        for share in &mut *shares {
            *share = exp(*share - largest);
            sum += *share;
        }
        for share in shares {
            *share /= sum;
        }
    }

    /// The numbers below `order.len()` in an even order: from the last place down, each
    /// exchanged with one of those up to it.
    pub fn permutation(&mut self, order: &mut [usize]) {
        for (place, number) in order.iter_mut().enumerate() {
            *number = place;
        }
        for last in (1..order.len()).rev() {
            let n = u32::try_from(last + 1).unwrap_or(u32::MAX);
            order.swap(last, self.below(n) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{EpochIdx, SampleId};
    use crate::sample::SampleKey;

    fn draws(sample: u64) -> Draws {
        let key = SampleKey { seed: 11, epoch: EpochIdx(0), sample: SampleId(sample) };
        Draws::new(key, 3)
    }

    /// Mean and variance of 100,000.
    fn moments(mut draw: impl FnMut(&mut Draws) -> f64) -> [f64; 2] {
        let n = 100_000;
        let values: Vec<f64> = (0..n).map(|sample| draw(&mut draws(sample))).collect();
        let n = n as f64;
        let mean = values.iter().sum::<f64>() / n;
        let square = |v: f64| (v - mean) * (v - mean);
        [mean, values.iter().map(|v| square(*v)).sum::<f64>() / n]
    }

    #[test]
    fn normal_numbers_have_mean_0_and_variance_1() {
        let [mean, variance] = moments(Draws::normal);
        assert!(mean.abs() < 0.015 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    /// Beta(a, a): mean ½, variance 1 ÷ (4 (2a + 1)).
    #[test]
    fn beta_numbers_have_their_moments() {
        for alpha in [0.1, 0.2, 0.8, 1.0, 3.0] {
            let [mean, variance] = moments(|draws| draws.beta(alpha));
            let expected = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            assert!((mean - 0.5).abs() < 0.01, "alpha {alpha}: mean {mean}");
            assert!((variance - expected).abs() < 0.004, "alpha {alpha}: {variance}");
        }
    }

    #[test]
    fn the_smallest_alpha_gives_shares_and_no_nan() {
        for sample in 0..1000 {
            let share = draws(sample).beta(0.001);
            assert!((0.0..=1.0).contains(&share), "{share}");
        }
    }

    #[test]
    fn dirichlet_shares_sum_to_one_and_are_alike() {
        let mut sums = [0.0; 3];
        for sample in 0..20_000 {
            let mut shares = [0.0; 3];
            draws(sample).dirichlet(1.0, &mut shares);
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            for (sum, share) in sums.iter_mut().zip(shares) {
                *sum += share / 20_000.0;
            }
        }
        assert!(sums.iter().all(|mean| (mean - 1.0 / 3.0).abs() < 0.01), "{sums:?}");
    }

    #[test]
    fn every_order_of_three_is_as_likely() {
        let mut seen = std::collections::HashMap::new();
        for sample in 0..12_000 {
            let mut order = [0; 3];
            draws(sample).permutation(&mut order);
            *seen.entry(order).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 6);
        assert!(seen.values().all(|n| (1_800..2_200).contains(n)), "{seen:?}");
    }

    #[test]
    fn integers_include_both_ends() {
        let mut seen = [false; 3];
        (0..100).for_each(|s| seen[(draws(s).integer([5, 7]) - 5) as usize] = true);
        assert_eq!(seen, [true; 3]);
        assert_eq!(draws(0).integer([4, 4]), 4);
    }
}
