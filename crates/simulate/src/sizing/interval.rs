//! Intervals of figures: how repeated measurements determine them, and how many of their digits are
//! worth printing. It knows nothing of hosts or devices.

use serde::{Deserialize, Serialize};

use crate::table::figure;

/// The fewest and the most rounds of a measurement.
const LEAST_ROUNDS: usize = 3;
const MOST_ROUNDS: usize = 8;

/// A rate is known well enough if its ends differ from it by this fraction.
const NARROW: f64 = 0.03;

/// Student's t for 95 %, two-sided, by degrees of freedom from 1.
const T_95: [f64; 8] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31];

/// The interval in which a figure lies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// A figure that is known exactly.
    #[must_use]
    pub fn exact(value: f64) -> Self {
        Self { low: value, high: value }
    }

    /// The 95 % confidence interval of the mean of repeated measurements; of a single measurement, the
    /// measurement itself. `None` without any.
    #[must_use]
    pub fn of_rounds(values: &[f64]) -> Option<(f64, Self)> {
        let n = float(values.len());
        let mean = values.iter().sum::<f64>() / n;
        if values.is_empty() {
            return None;
        }
        if values.len() == 1 {
            return Some((mean, Self::exact(mean)));
        }
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        let t = T_95[(values.len() - 2).min(T_95.len() - 1)];
        let half = t * (squares / (n - 1.0) / n).sqrt();
        Some((mean, Self { low: (mean - half).max(0.0), high: mean + half }))
    }

    /// Half of its width, as a fraction of its middle.
    #[must_use]
    pub fn half_width(self) -> f64 {
        let middle = f64::midpoint(self.low, self.high);
        if middle > 0.0 { (self.high - self.low) / 2.0 / middle } else { 0.0 }
    }

    /// Whether the interval is small enough not to measure again.
    #[must_use]
    pub fn is_narrow(self) -> bool {
        self.half_width() <= NARROW
    }

    /// The interval with its ends multiplied by these factors.
    #[must_use]
    pub fn scaled(self, low: f64, high: f64) -> Self {
        Self { low: self.low * low, high: self.high * high }
    }

    /// `1.08 to 1.13`, or `about 1.10` if the ends print the same.
    #[must_use]
    pub fn ratios(self) -> String {
        self.words(|value| {
            let places = if value < 9.995 { 2 } else { 1 };
            format!("{value:.places$}")
        })
    }

    /// `1980 to 2110`: three digits.
    #[must_use]
    pub fn rates(self) -> String {
        self.words(three_digits)
    }

    fn words(self, text: impl Fn(f64) -> String) -> String {
        let (low, high) = (text(self.low), text(self.high));
        if low == high { format!("about {low}") } else { format!("{low} to {high}") }
    }
}

/// Whether a measurement with these rates so far continues: until they agree, or until more rounds
/// would not help.
#[must_use]
pub fn wants_another_round(rates: &[f64]) -> bool {
    let agree = Interval::of_rounds(rates).is_some_and(|(_, ends)| ends.is_narrow());
    rates.len() < LEAST_ROUNDS || (!agree && rates.len() < MOST_ROUNDS)
}

/// A modelled or measured rate, of which at most three digits are meaningful.
#[must_use]
pub fn three_digits(value: f64) -> String {
    if !value.is_finite() || value < 100.0 {
        let places = match value.abs() {
            v if v >= 99.95 => 0,
            v if v >= 9.995 => 1,
            _ => 2,
        };
        return format!("{value:.places$}");
    }
    let step = 10_f64.powf(value.log10().floor() - 2.0);
    figure((value / step).round() * step)
        .split('.')
        .next()
        .map_or_else(String::new, str::to_owned)
}

#[expect(clippy::cast_precision_loss, reason = "a handful of rounds")]
fn float(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_rounds_that_agree_narrow_the_interval() {
        assert_eq!(Interval::of_rounds(&[]), None);
        assert_eq!(Interval::of_rounds(&[7.0]), Some((7.0, Interval::exact(7.0))));
        // Mean 100, standard deviation 1, three rounds: 4.30 / √3.
        let (mean, three) = Interval::of_rounds(&[99.0, 100.0, 101.0]).unwrap();
        assert!((mean - 100.0).abs() < 1e-9);
        assert!((three.high - mean - 4.30 / 3_f64.sqrt()).abs() < 1e-9, "{three:?}");
        let many = [99.0, 100.0, 101.0, 99.0, 100.0, 101.0];
        let (_, six) = Interval::of_rounds(&many).unwrap();
        assert!(six.high < three.high && six.low > three.low);
        assert!(three.is_narrow());
    }

    #[test]
    fn a_measurement_ends_when_it_is_steady_or_hopeless() {
        assert!(wants_another_round(&[]) && wants_another_round(&[100.0, 100.0]));
        assert!(!wants_another_round(&[100.0, 100.5, 101.0]));
        assert!(wants_another_round(&[100.0, 50.0, 200.0]));
        assert!(!wants_another_round(&[100.0, 50.0, 200.0, 1.0, 7.0, 9.0, 300.0, 8.0]));
    }

    #[test]
    fn digits_say_what_is_known() {
        for (value, expected) in [
            (2052.4, "2050"),
            (217.7, "218"),
            (99.96, "100"),
            (48.44, "48.4"),
            (0.0683, "0.07"),
            (12_345.0, "12300"),
        ] {
            assert_eq!(three_digits(value), expected);
        }
        assert_eq!(Interval { low: 1.0812, high: 1.1258 }.ratios(), "1.08 to 1.13");
        assert_eq!(Interval { low: 1.101, high: 1.104 }.ratios(), "about 1.10");
        assert_eq!(Interval { low: 1983.0, high: 2108.0 }.rates(), "1980 to 2110");
        assert_eq!(Interval::exact(1000.0).half_width(), 0.0);
    }
}
