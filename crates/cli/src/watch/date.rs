//! When a run began.

/// The date and time in UTC, from the kernel's clock.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%MZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_a_date() {
        let now = now();
        assert!(now.len() == 17 && now.starts_with("20") && now.ends_with('Z'), "{now}");
    }
}
