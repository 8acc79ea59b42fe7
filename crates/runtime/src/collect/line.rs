//! The collector's account of one producer: what it may be given, what it owes, how it fares.

use std::time::Duration;

use bothends_core::ids::{Ns, Prong};
use bothends_slots::{Job, JobId, Lost, Polled, Producer, Rejected, Slot};

/// How long a producer that has never answered may owe an answer.
const FIRST_ANSWER_NS: u64 = 2_000_000_000;

/// Jobs in a row that may come to nothing before a producer counts as lost.
const MOST_FAILURES: u32 = 3;

/// Time spent on the batches that were finished.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    n_batches: u64,
    total_ns: u64,
}

impl Work {
    /// Mean nanoseconds per batch, where there was one.
    fn mean_ns(self) -> Option<u64> {
        self.total_ns.checked_div(self.n_batches)
    }
}

/// One producer, as the collector sees it.
#[derive(Debug)]
pub(crate) struct Line {
    prong: Prong,
    /// `None` when it is lost, or was from the beginning.
    producer: Option<Box<dyn Producer>>,
    /// Jobs it takes before one is finished.
    depth: u32,
    open: u32,
    /// When it last finished something or was given something while idle.
    busy_since: Ns,
    /// Jobs that came to nothing since the last that did not.
    n_failures: u32,
    work: Work,
    report: LineReport,
}

/// What is left of one.
#[derive(Debug, Default)]
pub(crate) struct LineReport {
    /// Answers that nobody waited for.
    pub(crate) extra: u32,
    /// Why it was lost.
    pub(crate) lost: Option<String>,
    /// Why jobs came to nothing, the latest one.
    pub(crate) last_failure: Option<String>,
    /// Mean nanoseconds per batch: the next epoch's prior.
    pub(crate) mean_ns: Option<u64>,
    /// It owes an answer that it should have given.
    pub(crate) is_silent: bool,
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
            depth,
            open: 0,
            busy_since: Ns(0),
            n_failures: 0,
            work: Work::default(),
            report: LineReport::default(),
        }
    }

    pub(crate) fn prong(&self) -> Prong {
        self.prong
    }

    pub(crate) fn is_up(&self) -> bool {
        self.producer.is_some()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.is_up() && self.open < self.depth
    }

    pub(crate) fn submit(
        &mut self,
        job: Job,
        slot: Slot,
        now: Ns,
    ) -> Result<(), Box<Rejected>> {
        let Some(producer) = &mut self.producer else { return Ok(()) };
        producer.submit(job, slot)?;
        if self.open == 0 {
            self.busy_since = now;
        }
        self.open += 1;
        Ok(())
    }

    /// What it has to say by now.
    pub(crate) fn poll(&mut self) -> Result<Polled, Lost> {
        let Some(producer) = &mut self.producer else { return Ok(Polled::Nothing) };
        let polled = producer.poll(Duration::ZERO)?;
        match &polled {
            Polled::Completion(_) => self.open = self.open.saturating_sub(1),
            Polled::Extra => self.report.extra += 1,
            Polled::Nothing => {}
        }
        Ok(polled)
    }

    pub(crate) fn revoke(&mut self, job: JobId) -> Result<(), Lost> {
        self.producer.as_mut().map_or(Ok(()), |producer| producer.revoke(job))
    }

    /// It has answered a job that it worked for; how long: as it says, else as the host saw
    /// it, from the submission or the answer before, whichever was later.
    pub(crate) fn worked(&mut self, work_ns: Option<u64>, now: Ns) -> u64 {
        let seen_ns = now.since(self.busy_since);
        self.busy_since = now;
        work_ns.unwrap_or(seen_ns)
    }

    /// It has made a batch.
    pub(crate) fn made(&mut self, work_ns: u64) {
        self.n_failures = 0;
        self.work.n_batches += 1;
        self.work.total_ns += work_ns;
    }

    /// A job of its came to nothing; why it counts as lost, if now it does.
    pub(crate) fn failed(&mut self, why: String) -> Option<String> {
        self.n_failures += 1;
        let n = self.n_failures;
        let is_last = self.is_up() && n >= MOST_FAILURES;
        let line = format!("{n} jobs in a row came to nothing; the last: {why}");
        self.report.last_failure = Some(why);
        is_last.then_some(line)
    }

    /// It is lost.
    pub(crate) fn close(&mut self, why: String) {
        (self.producer, self.open) = (None, 0);
        self.report.lost = Some(why);
    }

    /// Whether it owes an answer, and may still be expected to give it.
    pub(crate) fn owes(&self, now: Ns) -> bool {
        self.open > 0 && !self.is_silent(now)
    }

    /// Whether it owes an answer for much longer than it takes for one.
    fn is_silent(&self, now: Ns) -> bool {
        let limit_ns = self.work.mean_ns().map_or(FIRST_ANSWER_NS, |mean| 4 * mean);
        self.open > 0 && now.since(self.busy_since) > limit_ns
    }

    /// The end of the epoch.
    pub(crate) fn end(self, now: Ns) -> LineReport {
        let (mean_ns, is_silent) = (self.work.mean_ns(), self.is_silent(now));
        LineReport { mean_ns, is_silent, ..self.report }
    }
}
