//! How long a device has been waited for.
//!
//! A device may have answered while nobody looked: its host was stopped, its virtual machine paused, or the
//! program had other things to do. Such time is not the device's, and little of it counts.

use std::time::{Duration, Instant};

/// The longest wait between two looks at whether something has come.
pub(super) const LOOK: Duration = Duration::from_millis(250);
/// The most time between two looks that counts. The rest is the scheduler's, or the host was away.
const COUNTED: Duration = Duration::from_millis(500);

/// A clock that stands still while the host is away.
#[derive(Debug)]
pub(super) struct Clock {
    looked: Instant,
    waited: Duration,
}

impl Clock {
    pub(super) fn new(now: Instant) -> Self {
        Self { looked: now, waited: Duration::ZERO }
    }

    /// Looks now whether something has come; the time on this clock.
    pub(super) fn look(&mut self, now: Instant) -> Duration {
        let since = now.saturating_duration_since(self.looked);
        self.waited += since.min(COUNTED);
        self.looked = self.looked.max(now);
        self.waited
    }

    /// The time when it was looked last.
    pub(super) fn waited(&self) -> Duration {
        self.waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_a_host_is_away_hardly_counts() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut clock = Clock::new(start);
        assert_eq!(clock.look(at(250)), Duration::from_millis(250));
        assert_eq!(clock.look(at(60_250)), Duration::from_millis(750));
        assert_eq!(clock.look(at(60_251)), Duration::from_millis(751));
        assert_eq!(clock.look(at(0)), Duration::from_millis(751), "never backwards");
        assert_eq!(clock.look(at(60_252)), Duration::from_millis(752));
    }

    /// Who looks seldom waits longer, but not forever.
    #[test]
    fn a_host_that_looks_seldom_still_gives_up() {
        let start = Instant::now();
        let mut clock = Clock::new(start);
        let looks = (1..).take_while(|n| {
            clock.look(start + Duration::from_secs(*n)) <= Duration::from_secs(10)
        });
        assert_eq!(looks.count(), 20);
    }
}
