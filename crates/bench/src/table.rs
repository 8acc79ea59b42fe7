//! Formats the cells of a table. It computes nothing.

use std::fmt::Debug;

/// A figure with this many decimals, or a dash if it is missing.
pub(crate) fn cell(value: Option<f64>, places: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.places$}"))
}

/// A choice as it is typed, and as in JSON.
pub(crate) fn word(choice: impl Debug) -> String {
    format!("{choice:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_a_dash() {
        assert_eq!(cell(Some(1.25), 1) + &cell(None, 3), "1.2–");
    }
}
