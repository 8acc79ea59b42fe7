//! What a user is told of a store that was there and does not answer: once when it has been gone for a while, and once
//! when it is back.

use std::time::{Duration, Instant};

/// Shorter ones are seen in the figures, and nobody has to do anything about them.
const WORTH_TELLING: Duration = Duration::from_secs(10);

/// Since when requests have failed.
#[derive(Debug, Default)]
pub(super) struct Absence {
    since: Option<Instant>,
    is_told: bool,
}

impl Absence {
    /// A request failed for this reason. What is to be said, if it is time to.
    pub(super) fn failed(
        &mut self,
        why: &str,
        patience: Duration,
        now: Instant,
    ) -> Option<String> {
        let gone = now.saturating_duration_since(*self.since.get_or_insert(now));
        if gone < WORTH_TELLING || self.is_told {
            return None;
        }
        self.is_told = true;
        let (gone, most) = (gone.as_secs(), patience.as_secs());
        Some(format!(
            "the store has not answered for {gone} s and is waited for up to {most} s (--fetch-patience): {why}"
        ))
    }

    /// A request was answered. What is to be said, if the user was told that the store was gone.
    pub(super) fn answered(&mut self, now: Instant) -> Option<String> {
        let Self { since, is_told } = std::mem::take(self);
        let gone = now.saturating_duration_since(since.filter(|_| is_told)?);
        Some(format!("the store answers again after {} s", gone.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_gone_for_long_is_told_once_and_so_is_its_return() {
        let began = Instant::now();
        let at = |s| began + Duration::from_secs(s);
        let patience = Duration::from_secs(120);
        let mut absence = Absence::default();
        assert_eq!(absence.failed("refused", patience, at(0)), None);
        assert_eq!(absence.answered(at(3)), None, "nobody heard of it");
        assert_eq!(absence.failed("refused", patience, at(4)), None);
        assert_eq!(absence.failed("refused", patience, at(13)), None);
        let told = absence.failed("refused", patience, at(15)).unwrap();
        assert!(told.contains("for 11 s") && told.contains("up to 120 s"), "{told}");
        assert!(told.ends_with(": refused"), "{told}");
        assert_eq!(absence.failed("refused", patience, at(20)), None, "once");
        let back = absence.answered(at(44)).unwrap();
        assert_eq!(back, "the store answers again after 40 s");
        assert_eq!(absence.answered(at(45)), None);
    }
}
