//! Listings and identities are tried again, for a while: nobody schedules them as fetches are.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use crate::StorageError;

/// For how long. The error must reach the user within 10 s.
pub(crate) const WITHIN: Duration = Duration::from_secs(8);
/// The same of a listing that has begun: the address and the credentials are right, and minutes of work would be lost.
pub(crate) const WITHIN_LISTING: Duration = Duration::from_secs(180);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// One that has less time would end without an answer, and that of the one before is worth more.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(500);

/// The pauses between attempts. They are random, as many processes that begin at once meet the same failure.
#[derive(Debug)]
pub(crate) struct Pauses {
    until: Instant,
    next: Duration,
    random: RandomState,
    n: u32,
}

impl Pauses {
    pub(crate) fn new() -> Self {
        Self::within(WITHIN)
    }

    /// For so long.
    pub(crate) fn within(time: Duration) -> Self {
        let (until, random) = (Instant::now() + time, RandomState::new());
        Self { until, next: FIRST_PAUSE, random, n: 0 }
    }

    /// What is left of the time.
    pub(crate) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Waits as long as the store asks for and up to a quarter more, or a pause; false at once where too little time is
    /// left for an attempt after it.
    pub(crate) async fn wait(&mut self, asked: Option<Duration>) -> bool {
        let pause = self.pause(asked);
        if pause.saturating_add(SHORTEST_ATTEMPT) >= self.left() {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }

    fn pause(&mut self, asked: Option<Duration>) -> Duration {
        self.n += 1;
        // From 0 to 1.
        let part = self.random.hash_one(self.n) as f64 / u64::MAX as f64;
        if let Some(asked) = asked {
            return asked.saturating_add((asked / 4).mul_f64(part));
        }
        let pause = self.next.mul_f64(0.5 + part);
        self.next = (2 * self.next).min(LONGEST_PAUSE);
        pause
    }
}

/// What `attempt` gives, tried again as long as that may help and there is time. `place` is for the message
/// when there is none.
pub(crate) async fn retried<T, F>(
    place: &str,
    attempt: impl FnMut() -> F,
) -> Result<T, StorageError>
where
    F: Future<Output = Result<T, StorageError>>,
{
    retried_within(WITHIN, place, attempt).await
}

/// The same for so long.
pub(crate) async fn retried_within<T, F>(
    time: Duration,
    place: &str,
    mut attempt: impl FnMut() -> F,
) -> Result<T, StorageError>
where
    F: Future<Output = Result<T, StorageError>>,
{
    let mut pauses = Pauses::within(time);
    loop {
        let error = match tokio::time::timeout(pauses.left(), attempt()).await {
            Ok(Err(error)) if error.is_transient() => error,
            Ok(done) => return done,
            Err(_) => {
                return Err(StorageError::TimedOut {
                    place: place.to_owned(),
                    after: time,
                });
            }
        };
        if !pauses.wait(error.retry_after()).await {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of 256 ranks came back together, again and again.
    #[test]
    fn pauses_are_random_and_grow() {
        let asked = Duration::from_secs(4);
        let mut first = std::collections::BTreeSet::new();
        for _ in 0..256 {
            let mut pauses = Pauses::new();
            let mut expected = FIRST_PAUSE;
            for number in 0..8 {
                let pause = pauses.pause(None);
                assert!((expected / 2..=expected * 3 / 2).contains(&pause), "{pause:?}");
                expected = (2 * expected).min(LONGEST_PAUSE);
                if number == 0 {
                    first.insert(pause);
                }
            }
            let pause = pauses.pause(Some(asked));
            assert!((asked..=asked * 5 / 4).contains(&pause), "{pause:?}");
        }
        assert!(first.len() > 200, "{}", first.len());
    }
}
