//! When a device that says nothing is gone: its machine may have vanished without closing the connection.
//!
//! A device that is silent is asked (`Ping`), which it answers at once whatever it is making. One that says
//! nothing then either, for much longer than it has lately taken to answer, is gone. Anything that comes from it is a
//! sign of life. Times are the caller's; nothing here waits or sends.

use std::time::Duration;

/// A device with a job is asked once it has been silent for so long; one without, later.
const QUIET: Duration = Duration::from_millis(250);
const QUIET_AND_IDLE: Duration = Duration::from_secs(1);

/// How long an answer may take, besides what [`SLOWNESS`] adds.
const PATIENCE: Duration = Duration::from_millis(600);

/// An answer may take so many times as long as the longest of late: a device that is far away, or on a
/// machine that is short of CPU time, is not taken for dead.
const SLOWNESS: u32 = 10;

/// With every answer the longest of late becomes an eighth shorter: one that was slow once is soon held to
/// what it usually takes.
const FADES_BY: u32 = 8;

/// It never takes longer than this to be noticed.
const MOST_PATIENCE: Duration = Duration::from_secs(10);

/// What is known of a device's signs of life.
#[derive(Debug)]
pub(crate) struct Pulse {
    heard: Duration,
    /// A question that has not been answered.
    asked: Option<Duration>,
    longest: Duration,
    /// When this host last stopped looking for what comes, and for how long it had not looked when it last
    /// began to: when it stopped, the answer had not come.
    left: Duration,
    away: Duration,
}

impl Pulse {
    /// Of a device that has just answered its first question, after so long.
    pub(crate) fn new(now: Duration, took: Duration) -> Self {
        let longest = took.min(MOST_PATIENCE / SLOWNESS);
        Self { heard: now, asked: None, longest, left: now, away: Duration::ZERO }
    }

    /// This host looks for what has come.
    pub(crate) fn looks(&mut self, now: Duration) {
        self.away = now.saturating_sub(self.left);
    }

    /// Until it looks again, the device may have answered.
    pub(crate) fn looks_away(&mut self, now: Duration) {
        self.left = now;
    }

    /// Something has come from it.
    pub(crate) fn heard(&mut self, now: Duration) {
        self.heard = now;
    }

    /// The answer has come; `false` of one that nobody asked for.
    #[must_use]
    pub(crate) fn answered(&mut self, now: Duration) -> bool {
        let Some(asked) = self.asked.take() else { return false };
        // Behind a result it has waited for that, and tells nothing of the device.
        if self.heard <= asked {
            let took = now.saturating_sub(asked).saturating_sub(self.away);
            let took = took.min(MOST_PATIENCE / SLOWNESS);
            self.longest = took.max(self.longest - self.longest / FADES_BY);
        }
        self.heard(now);
        true
    }

    /// Whether it is to be asked now, which is then taken to be done.
    pub(crate) fn asks(&mut self, now: Duration, n_jobs: usize) -> bool {
        let quiet = if n_jobs > 0 { QUIET } else { QUIET_AND_IDLE };
        let is_due = self.asked.is_none() && now.saturating_sub(self.heard) >= quiet;
        if is_due {
            (self.asked, self.left, self.away) = (Some(now), now, Duration::ZERO);
        }
        is_due
    }

    /// How long it may say nothing.
    pub(crate) fn patience(&self) -> Duration {
        (PATIENCE + self.longest * SLOWNESS).min(MOST_PATIENCE)
    }

    /// Whether it is gone, where all that had come until `now` is known.
    pub(crate) fn is_gone(&self, now: Duration) -> bool {
        let since = self.asked.map(|asked| asked.max(self.heard));
        since.is_some_and(|since| now.saturating_sub(since) >= self.patience())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(5);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// When a host that looks every few milliseconds takes it for gone. `answer` says how long it takes
    /// to answer a question that is asked then.
    fn is_gone_at(
        n_jobs: usize,
        answer: impl Fn(Duration) -> Option<Duration>,
    ) -> Option<Duration> {
        let (mut pulse, mut now) = (Pulse::new(ms(0), ms(1)), ms(0));
        let mut due = None;
        while now < ms(60_000) {
            pulse.looks(now);
            if due.is_some_and(|due| due <= now) {
                assert!(pulse.answered(now));
                due = None;
            }
            pulse.looks_away(now);
            if pulse.is_gone(now) {
                return Some(now);
            }
            if pulse.asks(now, n_jobs) {
                due = answer(now).map(|took| now + took);
            }
            now += STEP;
        }
        None
    }

    #[test]
    fn a_device_that_vanishes_with_a_job_is_noticed_within_a_second() {
        for dies in (0..5000).step_by(50).map(ms) {
            let gone = is_gone_at(1, |asked| (asked < dies).then_some(ms(5))).unwrap();
            assert!(gone > dies && gone - dies <= ms(1000), "{dies:?} {gone:?}");
        }
        let idle = is_gone_at(0, |_| None).unwrap();
        assert!(idle <= ms(2000), "{idle:?}");
    }

    #[test]
    fn one_that_answers_is_not_gone_however_long_its_batch_takes() {
        assert_eq!(is_gone_at(1, |_| Some(ms(5))), None);
        // Far away, and slower by and by.
        assert_eq!(is_gone_at(1, |asked| Some(ms(150) + asked / 100)), None);
    }

    #[test]
    fn one_that_was_slow_is_given_time() {
        let (mut pulse, late) = (Pulse::new(ms(0), ms(1)), ms(400));
        assert!(pulse.asks(ms(300), 1) && !pulse.asks(ms(301), 1));
        assert!(pulse.answered(ms(300) + late));
        assert!(pulse.asks(ms(1000), 1));
        assert!(!pulse.is_gone(ms(1000) + SLOWNESS * late));
        // What comes meanwhile is a sign of life, too, and no answer.
        pulse.heard(ms(4000));
        assert!(!pulse.is_gone(ms(8500)) && pulse.is_gone(ms(8700)));
        let mut slow = Pulse::new(ms(0), ms(1));
        slow.asks(ms(300), 1);
        assert!(slow.answered(ms(9000)));
        assert_eq!(slow.patience(), MOST_PATIENCE);
        // Its next connection begins with that: it would be lost again and again.
        assert_eq!(Pulse::new(ms(0), ms(1500)).patience(), MOST_PATIENCE);
    }

    /// It had ten seconds for the rest of its life.
    #[test]
    fn one_slow_answer_is_forgotten() {
        let (mut pulse, mut now) = (Pulse::new(ms(0), ms(1)), ms(1000));
        for (n, took) in [2000].into_iter().chain([5; 40]).enumerate() {
            assert!(pulse.asks(now, 0), "{n}");
            now += ms(took);
            assert!(pulse.answered(now));
            now += QUIET_AND_IDLE;
        }
        assert!(pulse.patience() < ms(700), "{:?}", pulse.patience());
        // Nothing that only the device says.
        assert!(!pulse.answered(now));
    }

    #[test]
    fn time_in_which_the_host_looked_away_or_took_a_result_is_not_the_devices() {
        let mut pulse = Pulse::new(ms(0), ms(1));
        assert!(pulse.asks(ms(1000), 0));
        pulse.looks(ms(1000));
        pulse.looks_away(ms(1001));
        // Between two epochs.
        pulse.looks(ms(9000));
        assert!(pulse.answered(ms(9001)));
        assert!(pulse.patience() < ms(700), "{:?}", pulse.patience());
        assert!(pulse.asks(ms(11_000), 1));
        pulse.heard(ms(16_000));
        assert!(pulse.answered(ms(16_001)));
        assert!(pulse.patience() < ms(700), "{:?}", pulse.patience());
    }
}
