//! What the host remembers of its submissions: how many are out, and which completion
//! answers which.
//!
//! On its way a job carries a serial number of the transport in place of the caller's
//! [`JobId`], so that a completion of an earlier session can never pass for one of this
//! session whose caller began to count anew. Serves every transport.

use std::collections::{HashMap, VecDeque};

use crate::job::{Completion, Job, JobId, Outcome, Payload, Session};
use crate::wire::{MAX_JOB_SAMPLES, session_fits};
use crate::{CsdError, Refused};

/// So many answered or revoked jobs are remembered, to name a late or repeated completion.
const MAX_REMEMBERED: usize = 1024;

/// The submissions of one transport.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    slots: usize,
    terms: Option<SessionTerms>,
    largest_payload_bytes: u64,
    next_serial: u64,
    outstanding: HashMap<u64, Submission>,
    remembered: VecDeque<(u64, Submission)>,
}

#[derive(Debug, Clone, Copy)]
struct SessionTerms {
    sample_bytes: u64,
    max_batch: usize,
}

#[derive(Debug, Clone, Copy)]
struct Submission {
    job: JobId,
    n_samples: u64,
    payload_bytes: u64,
}

impl Credits {
    /// Takes the number of jobs that may be out.
    pub(crate) fn allow(&mut self, slots: u32) {
        self.slots = slots as usize;
    }

    /// Most completions that an honest device can have under way: each job's, and one
    /// repetition of it.
    pub(crate) fn max_waiting(&self) -> usize {
        self.slots.saturating_mul(2)
    }

    /// Checks a session before it is offered to the device, and forgets the one before.
    pub(crate) fn begin(&mut self, session: &Session) -> Result<(), CsdError> {
        let refused =
            |reason: &str| CsdError::SessionRefused { reason: reason.to_owned() };
        if self.slots == 0 {
            return Err(refused("no device has said hello, or it has no job slot"));
        }
        if session.max_batch > MAX_JOB_SAMPLES {
            return Err(refused("a job may have at most 65536 samples"));
        }
        if !session_fits(session) {
            return Err(refused("the recipe or the data set is too large to be sent"));
        }
        self.terms = None;
        self.outstanding.clear();
        self.remembered.clear();
        Ok(())
    }

    /// The device took the session.
    pub(crate) fn begun(&mut self, session: &Session) {
        let sample_bytes = u64::from(session.sample_bytes);
        let largest_bytes = sample_bytes * u64::from(session.max_batch);
        self.largest_payload_bytes = self.largest_payload_bytes.max(largest_bytes);
        self.terms =
            Some(SessionTerms { sample_bytes, max_batch: session.max_batch as usize });
    }

    /// Gives the job a slot and the serial number under which it travels.
    pub(crate) fn issue(&mut self, mut job: Job) -> Result<Job, Box<Refused>> {
        match self.admits(&job) {
            Err(source) => Err(Box::new(Refused { job, source })),
            Ok(terms) => {
                let serial = self.next_serial;
                self.next_serial += 1;
                let n_samples = job.samples.len() as u64;
                let payload_bytes = n_samples * terms.sample_bytes;
                let submission = Submission { job: job.id, n_samples, payload_bytes };
                self.outstanding.insert(serial, submission);
                job.id = JobId(serial);
                Ok(job)
            }
        }
    }

    fn admits(&self, job: &Job) -> Result<SessionTerms, CsdError> {
        let refused =
            |reason: &str| CsdError::SessionRefused { reason: reason.to_owned() };
        let terms = self.terms.ok_or_else(|| refused("no session is open"))?;
        if job.samples.len() > terms.max_batch {
            return Err(refused(
                "the job has more samples than the session's largest batch",
            ));
        }
        if self.outstanding.len() >= self.slots {
            return Err(CsdError::Full);
        }
        Ok(terms)
    }

    /// Takes a serial back that did not leave; the job gets its own id again.
    pub(crate) fn withdraw(&mut self, mut job: Job, source: CsdError) -> Box<Refused> {
        if let Some(submission) = self.outstanding.remove(&job.id.0) {
            job.id = submission.job;
        }
        Box::new(Refused { job, source })
    }

    /// The job is not wanted: its slot is free again. Its serial, if it is out.
    pub(crate) fn revoke(&mut self, job: JobId) -> Option<JobId> {
        let serial =
            self.outstanding.iter().find(|(_, it)| it.job == job).map(|(s, _)| *s)?;
        self.answer(serial);
        Some(JobId(serial))
    }

    /// Gives a completion its caller's job id; `None` when it answers nothing of this
    /// session.
    pub(crate) fn redeem(
        &mut self,
        answer: Completion,
    ) -> Result<Option<Completion>, CsdError> {
        let malformed = |what| Err(CsdError::Malformed { what });
        let submission = self.answer(answer.job.0);
        if let Outcome::Done { payload, bad, .. } = &answer.outcome {
            let (Payload::Inline { len } | Payload::Extent { len, .. }) = payload;
            if *len > self.largest_payload_bytes {
                return malformed("a result longer than any job asked for");
            }
            if submission.is_some_and(|it| *len != it.payload_bytes) {
                return malformed("a result that is not as long as its job");
            }
            let last_bad = bad.last().map(|bad| u64::from(bad.slot));
            if submission
                .is_some_and(|it| last_bad.is_some_and(|slot| slot >= it.n_samples))
            {
                return malformed("a bad slot beyond the job's samples");
            }
        }
        Ok(submission.map(|it| Completion { job: it.job, ..answer }))
    }

    fn answer(&mut self, serial: u64) -> Option<Submission> {
        let Some(submission) = self.outstanding.remove(&serial) else {
            return self.remembered.iter().find(|(s, _)| *s == serial).map(|(_, it)| *it);
        };
        if self.remembered.len() == MAX_REMEMBERED {
            self.remembered.pop_front();
        }
        self.remembered.push_back((serial, submission));
        Some(submission)
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};

    use super::*;

    fn session() -> Session {
        Session {
            recipe: String::new(),
            recipe_hash: 0,
            seed: 0,
            sample_bytes: 3,
            max_batch: 4,
            manifest: Vec::new(),
        }
    }

    fn job(id: u64, n_samples: u64) -> Job {
        Job {
            id: JobId(id),
            epoch: EpochIdx(0),
            batch: BatchIdx(0),
            samples: (0..n_samples).map(SampleId).collect(),
        }
    }

    fn done(serial: JobId, len: u64) -> Completion {
        let payload = Payload::Inline { len };
        Completion {
            job: serial,
            outcome: Outcome::Done { payload, checksum: 0, bad: Vec::new() },
            device_ns: 0,
            lateness_ns: 0,
        }
    }

    fn open() -> Credits {
        let mut credits = Credits::default();
        credits.allow(2);
        credits.begin(&session()).unwrap();
        credits.begun(&session());
        credits
    }

    #[test]
    fn slots_are_counted_and_a_refused_job_comes_back_as_it_was() {
        let mut credits = open();
        let serial = credits.issue(job(7, 1)).unwrap().id;
        credits.issue(job(8, 1)).unwrap();
        let refused = credits.issue(job(9, 1)).unwrap_err();
        assert!(matches!(refused.source, CsdError::Full));
        assert_eq!(refused.job, job(9, 1));
        assert_eq!(credits.redeem(done(serial, 3)).unwrap().unwrap().job, JobId(7));
        assert!(credits.issue(job(9, 1)).is_ok());
    }

    #[test]
    fn a_repeated_or_revoked_completion_keeps_its_name() {
        let mut credits = open();
        let serial = credits.issue(job(7, 2)).unwrap().id;
        assert_eq!(credits.revoke(JobId(7)), Some(serial));
        assert_eq!(credits.revoke(JobId(7)), None);
        for _ in 0..2 {
            assert_eq!(credits.redeem(done(serial, 6)).unwrap().unwrap().job, JobId(7));
        }
    }

    #[test]
    fn a_completion_of_the_session_before_answers_nothing() {
        let mut credits = open();
        let old = credits.issue(job(1, 2)).unwrap().id;
        credits.begin(&session()).unwrap();
        credits.begun(&session());
        let new = credits.issue(job(1, 2)).unwrap().id;
        assert!(credits.redeem(done(old, 6)).unwrap().is_none());
        assert_eq!(credits.redeem(done(new, 6)).unwrap().unwrap().job, JobId(1));
    }

    #[test]
    fn a_result_of_the_wrong_length_is_malformed() {
        let mut credits = open();
        let serial = credits.issue(job(1, 2)).unwrap().id;
        assert!(matches!(
            credits.redeem(done(serial, 5)),
            Err(CsdError::Malformed { .. })
        ));
        assert!(matches!(
            credits.redeem(done(JobId(99), 13)),
            Err(CsdError::Malformed { .. })
        ));
    }

    #[test]
    fn nothing_is_issued_without_a_session_or_beyond_its_batch() {
        let mut credits = Credits::default();
        assert!(credits.begin(&session()).is_err());
        credits.allow(2);
        assert!(credits.issue(job(1, 1)).is_err());
        let too_large = open().issue(job(1, 5)).unwrap_err();
        assert!(matches!(too_large.source, CsdError::SessionRefused { .. }));
    }
}
