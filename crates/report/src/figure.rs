//! Formats figures, and labels them measured or modelled.
//!
//! A figure that is not a number is written as a dash, never as a zero.

use crate::{Emulated, ReportInput};

/// Printed in place of a missing figure.
pub(crate) const NONE: &str = "–";

/// Three significant digits at most: 1234, 123, 12.3, 1.23, 0.012.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => NONE.to_owned(),
        _ if size >= 99.95 => format!("{value:.0}"),
        _ if size >= 9.995 => format!("{value:.1}"),
        _ if size >= 0.9995 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A share of one as a percentage.
pub(crate) fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1} %", share * 100.0) } else { NONE.to_owned() }
}

/// A figure, or the dash.
pub(crate) fn or_none(value: Option<f64>, write: fn(f64) -> String) -> String {
    value.map_or_else(|| NONE.to_owned(), write)
}

/// Bytes as megabytes (10^6).
#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
pub(crate) fn megabytes(n_bytes: u64) -> String {
    number(n_bytes as f64 / 1e6)
}

/// The first digits of a digest, enough to see whether two are equal.
pub(crate) fn short_digest(digest: &str) -> String {
    let short: String = digest.chars().take(10).collect();
    if short.is_empty() { NONE.to_owned() } else { short }
}

/// Where a figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Measured on this machine, but possibly dependent on something emulated.
    MeasuredWith(&'static [Emulated]),
    /// Stated by a model if this part is emulated, measured otherwise.
    ModelOf(Emulated),
}

/// Measured, of both prongs and the accelerator.
pub(crate) const BOTH_ENDS: Origin =
    Origin::MeasuredWith(&[Emulated::Device, Emulated::Accelerator]);

/// Measured, independent of anything emulated.
pub(crate) const MEASURED: Origin = Origin::MeasuredWith(&[]);

/// The label for the origin of a figure of this report.
pub(crate) fn origin_words(origin: Origin, input: &ReportInput) -> String {
    let stands_in = |part: &Emulated| input.emulated.contains(part);
    match origin {
        Origin::ModelOf(part) if stands_in(&part) => "modelled".to_owned(),
        Origin::ModelOf(_) => "measured".to_owned(),
        Origin::MeasuredWith(parts) => {
            let models: Vec<&str> = parts
                .iter()
                .filter(|part| stands_in(part))
                .map(|part| part.word())
                .collect();
            match models.as_slice() {
                [] => "measured".to_owned(),
                models => format!("measured with a modelled {}", models.join(" and ")),
            }
        }
    }
}

impl Emulated {
    fn word(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Accelerator => "accelerator",
            Self::Images => "images",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        for (value, written) in [
            (1234.4, "1234"),
            (99.97, "100"),
            (12.34, "12.3"),
            (9.996, "10.0"),
            (1.234, "1.23"),
            (0.99, "0.990"),
            (0.0, "0.00"),
            (-12.34, "-12.3"),
            (f64::NAN, NONE),
            (f64::INFINITY, NONE),
        ] {
            assert_eq!(number(value), written);
        }
        assert_eq!(percent(0.9876), "98.8 %");
        assert_eq!(percent(f64::NAN), NONE);
        assert_eq!(or_none(None, percent), NONE);
        assert_eq!(megabytes(123_456_789), "123");
        assert_eq!(short_digest("0123456789abcdef"), "0123456789");
        assert_eq!(short_digest(""), NONE);
    }

    #[test]
    fn nothing_emulated_is_called_measured_without_saying_so() {
        let mut input = crate::example::input();
        let with_both = Origin::MeasuredWith(&[Emulated::Device, Emulated::Accelerator]);
        let words = origin_words(with_both, &input);
        assert_eq!(words, "measured with a modelled device and accelerator");
        assert_eq!(
            origin_words(Origin::ModelOf(Emulated::Accelerator), &input),
            "modelled"
        );
        input.emulated.clear();
        assert_eq!(origin_words(with_both, &input), "measured");
        assert_eq!(
            origin_words(Origin::ModelOf(Emulated::Accelerator), &input),
            "measured"
        );
    }
}
