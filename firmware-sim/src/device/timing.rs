//! A drive's model in this machine's time: when a command that has arrived may be answered, and how late the
//! answers are.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::drive::{Demand, Drive};
use super::vitals::Vitals;

/// An answer that comes more than this after its time is late.
pub const TOLERANCE: Duration = Duration::from_micros(100);

/// A model, and the clock that it is asked by.
#[derive(Debug)]
pub struct Timing {
    drive: Mutex<Drive>,
    began: Instant,
    lateness: Mutex<Lateness>,
}

/// How answers kept to their times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Answers with a modelled time.
    pub n_answers: u64,
    /// Those that came more than [`TOLERANCE`] after it.
    pub n_late: u64,
    /// All answers' time after their own, in nanoseconds.
    pub sum_ns: u64,
    /// The greatest.
    pub worst_ns: u64,
}

impl Lateness {
    /// The mean time after an answer's own, in nanoseconds.
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns / self.n_answers.max(1)
    }

    /// Counts an answer that came `by` after its time.
    fn count(&mut self, by: Duration) {
        let by_ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.n_answers += 1;
        self.n_late += u64::from(by > TOLERANCE);
        self.sum_ns = self.sum_ns.saturating_add(by_ns);
        self.worst_ns = self.worst_ns.max(by_ns);
    }
}

impl Timing {
    /// A model whose time begins now.
    #[must_use]
    pub fn new(drive: Drive) -> Self {
        Self {
            drive: Mutex::new(drive),
            began: Instant::now(),
            lateness: Mutex::default(),
        }
    }

    /// An execution that has arrived at `at` begins: with what time [`Timing::take`] is to be told of it, once it has
    /// run.
    pub fn begin(&self, at: Instant) -> Instant {
        let awake_ns = lock(&self.drive).begin(self.ns(at));
        self.instant(awake_ns).unwrap_or(at)
    }

    /// When a command that has arrived at `at` is complete.
    pub fn take(&self, at: Instant, demand: &Demand) -> Instant {
        let at_ns = self.ns(at);
        let end_ns = lock(&self.drive).take(at_ns, demand).end_ns;
        // A time that cannot be counted is now: no preset's constants lead there.
        self.instant(end_ns).unwrap_or(at)
    }

    /// How the drive is at `at`.
    pub fn vitals(&self, at: Instant) -> Vitals {
        let at_ns = self.ns(at);
        lock(&self.drive).vitals(at_ns)
    }

    /// Answers whose times were `due` were sent at `at`.
    pub fn answered(&self, due: &[Instant], at: Instant) {
        let mut lateness = lock(&self.lateness);
        due.iter().for_each(|due| lateness.count(at.saturating_duration_since(*due)));
    }

    /// How answers have kept to their times so far.
    pub fn lateness(&self) -> Lateness {
        *lock(&self.lateness)
    }

    fn instant(&self, ns: u64) -> Option<Instant> {
        self.began.checked_add(Duration::from_nanos(ns))
    }

    fn ns(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.began).as_nanos();
        u64::try_from(since).unwrap_or(u64::MAX)
    }
}

fn lock<T>(own: &Mutex<T>) -> MutexGuard<'_, T> {
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_later_than_the_tolerance_is_late() {
        let mut own = Lateness::default();
        for micros in [0, 50, 100, 150, 1000] {
            own.count(Duration::from_micros(micros));
        }
        assert_eq!((own.n_answers, own.n_late), (5, 2));
        assert_eq!((own.mean_ns(), own.worst_ns), (260_000, 1_000_000));
        assert_eq!(Lateness::default().mean_ns(), 0);
    }
}
