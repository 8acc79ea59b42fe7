//! Sleep: a device that nobody has asked for anything for some time uses less, and takes time to wake.
//!
//! It is a pure function of the commands so far. There is no state between idle and sleep.

/// The constants of sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SleepConfig {
    /// Power of the sleeping device, in milliwatts.
    pub power_mw: u64,
    /// How long it is idle before it sleeps, in nanoseconds.
    pub after_ns: u64,
    /// How long it takes to wake, in nanoseconds.
    pub wake_ns: u64,
}

/// A device that may be asleep.
#[derive(Debug)]
pub struct Sleep {
    config: SleepConfig,
    /// From when on nothing is to do.
    idle_from_ns: u64,
    /// Until when sleep is accounted for.
    seen_ns: u64,
}

impl Sleep {
    /// A device that is awake.
    #[must_use]
    pub fn new(config: SleepConfig) -> Self {
        Self { config, idle_from_ns: 0, seen_ns: 0 }
    }

    /// Power of the sleeping device, in milliwatts.
    #[must_use]
    pub fn power_mw(&self) -> u64 {
        self.config.power_mw
    }

    /// It has work until `end_ns`.
    pub fn work_until(&mut self, end_ns: u64) {
        self.idle_from_ns = self.idle_from_ns.max(end_ns);
    }

    /// For how long it has slept until `now_ns` since it was asked last. Asking alone does not wake it.
    pub fn look(&mut self, now_ns: u64) -> u64 {
        let for_ns = now_ns.saturating_sub(self.asleep_from_ns().max(self.seen_ns));
        self.seen_ns = self.seen_ns.max(now_ns);
        for_ns
    }

    /// How long it takes to wake for a command that arrives at `at_ns`.
    #[must_use]
    pub fn wake_ns(&self, at_ns: u64) -> u64 {
        if at_ns > self.asleep_from_ns() { self.config.wake_ns } else { 0 }
    }

    fn asleep_from_ns(&self) -> u64 {
        self.idle_from_ns.saturating_add(self.config.after_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_device_sleeps_until_it_is_asked_and_each_moment_is_counted_once() {
        let config = SleepConfig { power_mw: 5, after_ns: 100, wake_ns: 7 };
        let mut sleep = Sleep::new(config);
        assert_eq!((sleep.look(100), sleep.wake_ns(100)), (0, 0));
        assert_eq!((sleep.look(150), sleep.wake_ns(150)), (50, 7));
        assert_eq!((sleep.look(160), sleep.wake_ns(160)), (10, 7), "only looked at");
        assert_eq!(sleep.wake_ns(100), 0, "a command of before");
        sleep.work_until(1000);
        assert_eq!((sleep.look(900), sleep.wake_ns(900)), (0, 0));
        assert_eq!((sleep.look(1200), sleep.wake_ns(1200)), (100, 7));
    }
}
