//! Whether a producer has room for a job, as far as it is known without asking it: one that had
//! none is left alone for a moment, and one that has had none for long is not counted on.
//!
//! Under most strategies the host makes what a device without room does not; under `csd` nobody
//! would. Says when, and does nothing (`collect/collector.rs` does).

use std::time::{Duration, Instant};

/// How long a producer without room is left alone.
const REST: Duration = Duration::from_millis(20);

/// How long it may have none before nobody counts on it: a transport gives up an answer that has
/// stopped in the middle no later, which says more …
const LONGEST_FULL: Duration = Duration::from_secs(10);

/// … or so many times what its last batch took: what it is at may take it as long.
const FULL_BATCHES: u32 = 20;

/// The pause before one that nobody counts on is asked again; to be asked costs it nothing.
const PAUSE: Duration = Duration::from_secs(1);

/// One producer's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Room {
    /// It took the last job that it was offered, if there was one.
    #[default]
    Some,
    /// It has refused every job since then; the last one when it was `asked`.
    None { since: Instant, asked: Instant },
    /// It has for so long that nobody counts on it.
    GivenUp { since: Instant, asked: Instant },
    /// Nobody did, and it is asked once more.
    OnTrial { since: Instant },
}

impl Room {
    /// Whether it may be offered a job.
    pub(crate) fn is_likely(self, now: Instant) -> bool {
        match self {
            Self::Some | Self::OnTrial { .. } => true,
            Self::None { asked, .. } => now - asked >= REST,
            Self::GivenUp { .. } => false,
        }
    }

    pub(crate) fn is_counted_on(self) -> bool {
        !matches!(self, Self::GivenUp { .. })
    }

    /// It has refused a job, and is counted on whatever happens.
    pub(crate) fn rests(&mut self, now: Instant) {
        *self = Self::None { since: now, asked: now };
    }

    /// It has refused a job, its last batch having taken it so long. For how long it has had no
    /// room, where nobody counts on it from now on.
    pub(crate) fn refused(
        &mut self,
        now: Instant,
        batch: Option<Duration>,
    ) -> Option<Duration> {
        let longest =
            batch.map_or(LONGEST_FULL, |it| LONGEST_FULL.max(it * FULL_BATCHES));
        *self = match *self {
            Self::Some => Self::None { since: now, asked: now },
            Self::None { since, .. } if now - since < longest => {
                Self::None { since, asked: now }
            }
            Self::None { since, .. }
            | Self::GivenUp { since, .. }
            | Self::OnTrial { since } => Self::GivenUp { since, asked: now },
        };
        match *self {
            Self::GivenUp { since, .. } => Some(now - since),
            Self::Some | Self::None { .. } | Self::OnTrial { .. } => None,
        }
    }

    /// Whether it is asked once more from now on, after having been given up.
    pub(crate) fn tries_again(&mut self, now: Instant) -> bool {
        let Self::GivenUp { since, asked } = *self else { return false };
        let is_due = now - asked >= PAUSE;
        if is_due {
            *self = Self::OnTrial { since };
        }
        is_due
    }

    /// It has taken a job; whether it had been given up.
    pub(crate) fn took(&mut self) -> bool {
        matches!(std::mem::take(self), Self::GivenUp { .. } | Self::OnTrial { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// Asked every second, it is given up after so many.
    fn given_up_after(batch: Option<Duration>) -> Option<u32> {
        let (mut room, began) = (Room::default(), Instant::now());
        (0..1000).find(|n| room.refused(began + *n * S, batch).is_some())
    }

    #[test]
    fn one_that_is_slow_is_given_more_time() {
        assert_eq!(given_up_after(None), Some(10));
        assert_eq!(given_up_after(Some(S / 1000)), Some(10));
        assert_eq!(given_up_after(Some(2 * S)), Some(40));
    }

    #[test]
    fn a_job_taken_begins_the_count_anew() {
        let (mut room, now) = (Room::default(), Instant::now());
        assert_eq!(room.refused(now, None), None);
        assert!(!room.is_likely(now) && room.is_likely(now + REST));
        assert!(!room.took());
        assert!(room.is_likely(now));
        assert_eq!(room.refused(now + 11 * S, None), None, "since it took a job");
        assert!(room.is_counted_on());
    }

    #[test]
    fn one_that_was_given_up_is_asked_again_and_has_one_chance_each_time() {
        let (mut room, now) = (Room::default(), Instant::now());
        room.refused(now, None);
        assert_eq!(room.refused(now + 10 * S, None), Some(10 * S));
        assert!(!room.is_likely(now + 99 * S) && !room.is_counted_on());
        assert!(!room.tries_again(now + 10 * S + PAUSE / 2));
        assert!(room.tries_again(now + 11 * S));
        assert!(!room.tries_again(now + 11 * S), "once");
        assert!(room.is_likely(now + 11 * S) && room.is_counted_on());
        assert_eq!(room.refused(now + 12 * S, None), Some(12 * S));
        assert!(room.tries_again(now + 13 * S));
        assert!(room.took());
        assert_eq!(room, Room::Some);
    }
}
