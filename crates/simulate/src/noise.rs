//! Seeded noise: uniform, and log-normal with mean 1.
//!
//! It is deterministic on each platform. Logarithm and cosine may differ in the last bit between
//! platforms, and no strategy may depend on that.

/// A stream of random numbers (`SplitMix64`).
#[derive(Debug, Clone)]
pub struct Noise(u64);

impl Noise {
    /// The stream for a seed and a purpose.
    #[must_use]
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut noise = Self(seed ^ purpose.wrapping_mul(0xD1B5_4A32_D192_ED03));
        noise.next();
        noise
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1].
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit exactly")]
    pub fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// True with a probability of `percent` %.
    pub fn happens(&mut self, percent: u32) -> bool {
        self.uniform() * 100.0 <= f64::from(percent)
    }

    /// Log-normal with mean 1 and coefficient of variation `cv` (Box–Muller).
    pub fn factor(&mut self, cv: f64) -> f64 {
        if cv <= 0.0 {
            return 1.0;
        }
        let variance = cv.mul_add(cv, 1.0).ln();
        let turn = std::f64::consts::TAU * self.uniform();
        let normal = (-2.0 * self.uniform().ln()).sqrt() * turn.cos();
        (normal * variance.sqrt() - variance / 2.0).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_have_the_mean_and_the_variation_they_are_asked_for() {
        let mut noise = Noise::new(1, 2);
        let n = 200_000_u32;
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..n {
            let factor = noise.factor(0.3);
            sum += factor;
            squares += factor * factor;
        }
        let mean = sum / f64::from(n);
        let cv = (squares / f64::from(n) - mean * mean).sqrt() / mean;
        assert!((mean - 1.0).abs() < 0.005, "{mean}");
        assert!((cv - 0.3).abs() < 0.005, "{cv}");
    }

    #[test]
    fn without_variation_there_is_no_noise() {
        assert!((Noise::new(1, 2).factor(0.0) - 1.0).abs() < f64::EPSILON);
    }
}
