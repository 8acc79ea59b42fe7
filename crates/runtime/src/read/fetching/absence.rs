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
    /// Requests that were given up so far.
    n_timed_out: u64,
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
            "the store has not answered for {gone} s and is waited for up to {most} s (`fetch_patience`): {why}"
        ))
    }

    /// So many requests were given up in all, as nothing came. What is to be said, if it is time to.
    pub(super) fn timed_out(
        &mut self,
        n: u64,
        patience: Duration,
        now: Instant,
    ) -> Option<String> {
        let before = std::mem::replace(&mut self.n_timed_out, n);
        (n > before).then(|| self.failed("it is silent", patience, now)).flatten()
    }

    /// A request was answered. What is to be said, if the user was told that the store was gone.
    pub(super) fn answered(&mut self, now: Instant) -> Option<String> {
        let (since, is_told) = (self.since.take(), std::mem::take(&mut self.is_told));
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

    #[test]
    fn a_store_that_is_silent_is_told_too() {
        let began = Instant::now();
        let at = |s| began + Duration::from_secs(s);
        let patience = Duration::from_secs(120);
        let mut absence = Absence::default();
        assert_eq!(absence.timed_out(0, patience, at(0)), None);
        assert_eq!(absence.timed_out(3, patience, at(4)), None);
        assert_eq!(absence.timed_out(3, patience, at(16)), None, "nothing new");
        let told = absence.timed_out(4, patience, at(17)).unwrap();
        assert!(
            told.ends_with(
                "for 13 s and is waited for up to 120 s (`fetch_patience`): it is silent"
            ),
            "{told}"
        );
    }
}
