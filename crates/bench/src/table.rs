//! What stands in the cells of a table. Nothing here is computed.

use std::fmt::Debug;

/// A figure with its places after the point, or a dash where there is none.
pub(crate) fn cell(value: Option<f64>, places: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.places$}"))
}

/// A choice as it is typed, and as JSON has it.
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
