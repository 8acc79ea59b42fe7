//! Listings and identities are tried again, for a while: nobody schedules them as fetches are.

use std::time::{Duration, Instant};

use crate::StorageError;

/// For how long. The error must reach the user within 10 s.
pub(crate) const WITHIN: Duration = Duration::from_secs(8);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The pauses between attempts.
#[derive(Debug)]
pub(crate) struct Pauses {
    until: Instant,
    next: Duration,
}

impl Pauses {
    pub(crate) fn new() -> Self {
        Self { until: Instant::now() + WITHIN, next: FIRST_PAUSE }
    }

    /// What is left of the time.
    pub(crate) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Waits as long as the store asks for, or a pause; false at once where time is up before.
    pub(crate) async fn wait(&mut self, asked: Option<Duration>) -> bool {
        let pause = asked.unwrap_or(self.next);
        if pause >= self.left() {
            return false;
        }
        tokio::time::sleep(pause).await;
        self.next = (2 * self.next).min(LONGEST_PAUSE);
        true
    }
}

/// What `attempt` gives, tried again as long as that may help and there is time. `place` is for the message
/// when there is none.
pub(crate) async fn retried<T, F>(
    place: &str,
    mut attempt: impl FnMut() -> F,
) -> Result<T, StorageError>
where
    F: Future<Output = Result<T, StorageError>>,
{
    let mut pauses = Pauses::new();
    loop {
        let error = match tokio::time::timeout(pauses.left(), attempt()).await {
            Ok(Err(error)) if error.is_transient() => error,
            Ok(done) => return done,
            Err(_) => {
                return Err(StorageError::TimedOut {
                    place: place.to_owned(),
                    after: WITHIN,
                });
            }
        };
        if !pauses.wait(error.retry_after()).await {
            return Err(error);
        }
    }
}
