//! The collector's account of one producer: what it may be given, what it owes, how it fares.
//! A producer outlives epochs; what it does in one is in the epoch's own account
//! (`collect/in_flight.rs`).

use std::time::{Duration, Instant};

use bothends_core::ids::{DeviceIdx, Prong};
use bothends_slots::{Job, JobId, Lost, Polled, Producer, Rejected, Slot};

use crate::collect::capacity::Room;
use crate::devices::presence::Presence;

/// How long a producer that has never answered may owe an answer.
const FIRST_ANSWER: Duration = Duration::from_secs(2);

/// Jobs in a row that may come to nothing before a producer counts as lost.
const MOST_FAILURES: u32 = 3;

/// How long a device that is to go may take to finish what it has.
const LONGEST_LEAVING: Duration = Duration::from_secs(10);

/// Who takes part from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joins {
    /// The device that was there before, or the first one.
    Again,
    /// Another device in its place.
    Another,
}

/// What is known of a device that takes part from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Joined {
    /// Jobs it takes at a time.
    pub(crate) depth: u32,
    pub(crate) joins: Joins,
    /// The number of the connection (`devices/trust.rs`).
    pub(crate) connection: u64,
}

/// One producer, as the collector sees it.
#[derive(Debug)]
pub(crate) struct Line {
    prong: Prong,
    /// `None` when it is lost, or was from the beginning.
    producer: Option<Box<dyn Producer>>,
    /// Where it is said how a device is; `None` of the host.
    presence: Option<Presence>,
    /// The number of the connection to it.
    connection: u64,
    /// Jobs it takes before one is finished.
    depth: u32,
    open: u32,
    room: Room,
    /// When it last finished something or was given something while idle.
    busy_since: Instant,
    /// Jobs that came to nothing since the last that did not.
    n_failures: u32,
    /// What the last batch took it.
    last: Option<Duration>,
    /// Since when it is to go, once it has finished what it has.
    leaving: Option<Instant>,
}

/// One producer's part of an epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LineReport {
    /// Answers that nobody waited for: repeated, or of an epoch before.
    pub extra: u32,
    /// Why it was lost in this epoch.
    pub lost: Option<String>,
    /// Why a job came to nothing, the latest one.
    pub last_failure: Option<String>,
    /// How far an emulated device was behind its model.
    pub behind: Behind,
    /// Batches that it finished, and the time that it spent on them.
    pub(crate) n_made: u64,
    pub(crate) total_ns: u64,
}

/// Answers of an emulated device that came later than its model says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Behind {
    n: u32,
    most_ns: u64,
    all_ns: u64,
    /// Answers of which the device does not say whether they were late.
    n_unknown: u32,
}

impl Behind {
    /// One more answer.
    pub(crate) fn add(&mut self, ns: Option<u64>) {
        let Some(ns) = ns else {
            self.n_unknown += 1;
            return;
        };
        self.n += u32::from(ns > 0);
        self.most_ns = self.most_ns.max(ns);
        self.all_ns = self.all_ns.saturating_add(ns);
    }

    /// How many; `None` where the device does not say.
    #[must_use]
    pub fn n(&self) -> Option<u32> {
        (self.n_unknown == 0).then_some(self.n)
    }

    /// By how many seconds at most; `None` where the device does not say.
    #[must_use]
    pub fn most_s(&self) -> Option<f64> {
        self.n().map(|_| Duration::from_nanos(self.most_ns).as_secs_f64())
    }

    /// By how many seconds in all; `None` where the device does not say.
    #[must_use]
    pub fn all_s(&self) -> Option<f64> {
        self.n().map(|_| Duration::from_nanos(self.all_ns).as_secs_f64())
    }
}

impl LineReport {
    /// Counts a batch of so many rows, of which `n_valid` have samples. Returns the time that it stands for, and of how
    /// many samples.
    pub(crate) fn learn(
        &mut self,
        work_ns: u64,
        (n_valid, n_rows): (usize, usize),
    ) -> (u64, usize) {
        // A batch that is nearly empty, such as the last of an epoch may be, does not say how long others take: they have
        // taken the mean, or as many times as long at most.
        if 2 * n_valid < n_rows {
            let mean_ns = self.mean_ns().unwrap_or(u64::MAX);
            return (of_whole(work_ns, n_valid, n_rows).min(mean_ns), n_rows);
        }
        self.n_made += 1;
        self.total_ns += work_ns;
        (work_ns, n_valid)
    }

    /// Mean nanoseconds per batch, where there was one: the next epoch's prior.
    pub(crate) fn mean_ns(&self) -> Option<u64> {
        self.total_ns.checked_div(self.n_made)
    }
}

/// How long a batch takes that has no empty rows, after one with `n_valid` samples took `work_ns`.
fn of_whole(work_ns: u64, n_valid: usize, n_rows: usize) -> u64 {
    let whole = u128::from(work_ns) * n_rows as u128;
    let whole = whole.checked_div(n_valid as u128);
    u64::try_from(whole.unwrap_or(work_ns.into())).unwrap_or(u64::MAX)
}

impl Line {
    /// A producer that takes `depth` jobs at a time; `None` is one that was lost before.
    pub(crate) fn new(
        prong: Prong,
        producer: Option<Box<dyn Producer>>,
        depth: u32,
    ) -> Self {
        Self {
            prong,
            producer,
            presence: None,
            connection: 0,
            depth,
            open: 0,
            room: Room::default(),
            busy_since: Instant::now(),
            n_failures: 0,
            last: None,
            leaving: None,
        }
    }

    /// That of a device, which is said there to be stuck when it is.
    pub(crate) fn of(self, presence: Presence) -> Self {
        Self { connection: presence.connection(), presence: Some(presence), ..self }
    }

    pub(crate) fn prong(&self) -> Prong {
        self.prong
    }

    /// The number of the connection that it makes batches over.
    pub(crate) fn connection(&self) -> u64 {
        self.connection
    }

    /// Whether it has lied, and must not take part again.
    pub(crate) fn is_expelled(&self) -> bool {
        self.presence.as_ref().is_some_and(Presence::is_expelled)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.producer.is_some()
    }

    /// Whether it is there and takes jobs: what nobody else makes is left to it.
    pub(crate) fn takes_part(&self) -> bool {
        self.is_up() && self.leaving.is_none() && self.room.is_counted_on()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.is_up()
            && self.leaving.is_none()
            && self.open < self.depth
            && self.room.is_likely(Instant::now())
    }

    /// It is to go when it has finished what it has; whether that is news. Another member than this one
    /// may have the line by now.
    pub(crate) fn leave(&mut self, member: &str) -> bool {
        let is_its = self.presence.as_ref().is_some_and(|it| it.name() == member);
        let is_news = is_its && self.is_up() && self.leaving.is_none();
        if is_news {
            self.leaving = Some(Instant::now());
        }
        is_news
    }

    /// Whether one that is to go has finished, or why nobody waits for that any longer.
    pub(crate) fn has_left(&self) -> Option<Result<(), String>> {
        let since = self.leaving.filter(|_| self.is_up())?;
        if self.open == 0 {
            return Some(Ok(()));
        }
        let is_over = since.elapsed() > LONGEST_LEAVING;
        let s = LONGEST_LEAVING.as_secs();
        is_over.then(|| Err(format!("it has not finished its last jobs within {s} s")))
    }

    /// It had no room after all; why it takes part no longer, where it does not.
    pub(crate) fn was_full(&mut self) -> Option<String> {
        let now = Instant::now();
        let Some(presence) = &self.presence else {
            // There is nobody else to make what the host makes.
            self.room.rests(now);
            return None;
        };
        let since = self.room.refused(now, self.last)?;
        let why = format!("it has taken no job for {} s", since.as_secs());
        presence.is_stuck(&why);
        Some(why)
    }

    /// Whether one that took no job takes part again from now on, on trial.
    pub(crate) fn tries_again(&mut self) -> bool {
        self.is_up() && self.room.tries_again(Instant::now())
    }

    /// Nobody waits for what it has.
    pub(crate) fn abandon(&mut self) -> Result<(), Lost> {
        if self.open == 0 {
            return Ok(());
        }
        self.open = 0;
        self.producer.as_mut().map_or(Ok(()), |producer| producer.abandon())
    }

    pub(crate) fn submit(&mut self, job: Job, slot: Slot) -> Result<(), Box<Rejected>> {
        let Some(producer) = &mut self.producer else { return Ok(()) };
        producer.submit(job, slot)?;
        if self.room.took()
            && let Some(presence) = &self.presence
        {
            presence.is_free();
        }
        if self.open == 0 {
            self.busy_since = Instant::now();
        }
        self.open += 1;
        Ok(())
    }

    /// What it has to say by now.
    pub(crate) fn poll(&mut self) -> Result<Polled, Lost> {
        let Some(producer) = &mut self.producer else { return Ok(Polled::Nothing) };
        let polled = producer.poll(Duration::ZERO)?;
        if matches!(polled, Polled::Completion(_)) {
            self.open = self.open.saturating_sub(1);
        }
        Ok(polled)
    }

    pub(crate) fn revoke(&mut self, job: JobId) -> Result<(), Lost> {
        self.producer.as_mut().map_or(Ok(()), |producer| producer.revoke(job))
    }

    /// It has answered a job that it worked for; how long, in nanoseconds: as it says, else as
    /// the host saw it, from the submission or the answer before, whichever was later.
    pub(crate) fn worked(&mut self, work_ns: Option<u64>) -> u64 {
        let now = Instant::now();
        let seen = now - self.busy_since;
        self.busy_since = now;
        let worked = work_ns.map_or(seen, Duration::from_nanos);
        self.last = Some(worked);
        u64::try_from(worked.as_nanos()).unwrap_or(u64::MAX)
    }

    /// It has made a batch.
    pub(crate) fn made(&mut self) {
        self.n_failures = 0;
    }

    /// A job of its came to nothing; why it counts as lost, if now it does.
    pub(crate) fn failed(&mut self, why: &str) -> Option<String> {
        self.n_failures += 1;
        let n = self.n_failures;
        let is_last = self.is_up() && n >= MOST_FAILURES;
        is_last.then(|| format!("{n} jobs in a row failed; the last: {why}"))
    }

    /// It is there, and was not: nothing of before counts.
    pub(crate) fn join(&mut self, producer: Box<dyn Producer>, joined: Joined) {
        let (presence, connection) = (self.presence.take(), joined.connection);
        let new = Self::new(self.prong, Some(producer), joined.depth);
        *self = Self { presence, connection, ..new };
    }

    /// It is lost.
    pub(crate) fn close(&mut self) {
        (self.producer, self.open, self.leaving) = (None, 0, None);
    }

    /// It goes, though its connection is well: its thread ends when nobody can ask it anything.
    pub(crate) fn see_off(&mut self) {
        self.close();
        if let Some(presence) = &self.presence {
            presence.is_not_asked();
        }
    }

    /// Whether it owes an answer, and may still be expected to give it.
    pub(crate) fn owes(&self) -> bool {
        let limit = self.last.map_or(FIRST_ANSWER, |last| 4 * last);
        self.open > 0 && self.busy_since.elapsed() <= limit
    }
}

/// The device that is number `device` of the run's.
pub(crate) fn device_idx(device: usize) -> DeviceIdx {
    DeviceIdx(u16::try_from(device).unwrap_or(u16::MAX))
}

/// The place of a prong among the lines: the front's, then the devices' in their order.
pub(crate) fn place(prong: Prong) -> usize {
    match prong {
        Prong::Front => 0,
        Prong::Back(device) => 1 + usize::from(device.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_batch_stands_for_a_whole_one() {
        let mut report = LineReport::default();
        assert_eq!(report.learn(100, (1, 64)), (6400, 64), "nothing else is known");
        assert_eq!(report.learn(100, (0, 64)), (100, 64));
        assert_eq!(report.mean_ns(), None);
        assert_eq!(report.learn(1000, (64, 64)), (1000, 64));
        assert_eq!(report.learn(500, (32, 64)), (500, 32));
        assert_eq!(report.learn(100, (1, 64)), (750, 64), "the mean");
        assert_eq!(report.learn(2, (1, 64)), (128, 64));
        assert_eq!(report.mean_ns(), Some(750), "none of the short ones counts");
        assert_eq!(of_whole(u64::MAX, 1, 64), u64::MAX);
    }
}
