//! What the host remembers about its submissions: how many are out, with which slots, and which answer
//! belongs to which.
//!
//! On the wire a job carries a serial number of the transport instead of the caller's [`JobId`]. An
//! answer from an earlier session can therefore never be taken for one of this session, even if the
//! caller restarted its count. All transports use this.

use std::collections::HashMap;

use bothends_core::recipe::{Op, Recipe};
use bothends_slots::{
    Completion, Damaged, HostSlot, Job, JobId, Lost, Outcome, Polled, Rejected,
    Rejection, Slot,
};

use crate::words::job::{Answer, Capabilities, Ending, PROTOCOL_VERSION, Session};
use crate::words::wire::{MAX_JOB_SAMPLES, session_fits};
use crate::{CsdError, Refused};

/// The submissions of one transport.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    slots: usize,
    /// The device, as it has presented itself.
    device: Option<Capabilities>,
    terms: Option<SessionTerms>,
    largest_payload_bytes: u64,
    next_serial: u64,
    /// The first of this session.
    first_serial: u64,
    outstanding: HashMap<u64, Submission>,
}

#[derive(Debug, Clone, Copy)]
struct SessionTerms {
    sample_bytes: u64,
    max_batch: usize,
}

/// A job that is under way, with its slot.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) job: Job,
    /// `None` while it is lent to a device that fills it itself.
    slot: Option<HostSlot>,
    /// What a whole answer brings.
    pub(crate) payload_bytes: usize,
    pub(crate) is_revoked: bool,
}

/// Whoever lends a slot puts it back before the submission ends.
const COMES_BACK: &str = "a slot that was lent comes back with its job";

impl Submission {
    fn reject(self, why: Rejection) -> Box<Rejected> {
        let slot = self.slot.expect(COMES_BACK).into_slot();
        Box::new(Rejected { job: self.job, slot, why })
    }

    /// With the slot that was lent.
    pub(crate) fn with_slot(self, slot: HostSlot) -> Self {
        Self { slot: Some(slot), ..self }
    }

    /// Ends as the device says. `bring` brings a payload into its place and tells its XXH3-64;
    /// it is the job's result if the bytes are those that the device made.
    pub(crate) fn complete(
        self,
        answer: Answer,
        bring: impl FnOnce(&mut [u8]) -> Result<Result<u64, String>, CsdError>,
    ) -> Result<Polled, CsdError> {
        let Self { job, slot, payload_bytes, is_revoked } = self;
        let mut slot = slot.expect(COMES_BACK);
        let Answer { ending, lateness_ns, .. } = answer;
        let outcome = match ending {
            Ending::Failed { .. } if is_revoked => Outcome::NotBegun,
            Ending::Failed { reason } => Outcome::Failed { reason },
            Ending::Done { checksum, bad, damaged, .. } => {
                match bring(&mut slot[..payload_bytes])? {
                    Err(reason) => Outcome::Failed { reason },
                    Ok(hash) if hash == checksum => {
                        // Which damage it is does not travel.
                        let of = |row| Damaged { row, what: None };
                        let damaged = damaged.into_iter().map(of).collect();
                        Outcome::Made { bad, damaged }
                    }
                    Ok(_) => {
                        let reason = "its bytes do not match their checksum".to_owned();
                        Outcome::Failed { reason }
                    }
                }
            }
        };
        let slot = slot.into_slot();
        let (job, work_ns) = (job.id, None);
        let lateness_ns = Some(lateness_ns);
        let completion = Completion { job, slot, outcome, work_ns, lateness_ns };
        Ok(Polled::Completion(completion))
    }
}

/// What a device's answer is an answer to.
#[derive(Debug)]
pub(crate) enum Redeemed {
    /// A job that is under way.
    Job(Submission),
    /// One of this session that is not: answered before, or abandoned.
    Again,
    /// None of this session.
    Foreign,
}

impl Credits {
    /// Takes the number of jobs that may be out, of a device that speaks our version.
    pub(crate) fn allow(&mut self, device: &Capabilities) -> Result<(), CsdError> {
        let (ours, theirs) = (PROTOCOL_VERSION, device.protocol_version);
        if theirs != ours {
            return Err(CsdError::Version { ours, theirs });
        }
        self.slots = device.slots as usize;
        self.device = Some(device.clone());
        Ok(())
    }

    /// Most answers that an honest device can have under way: each job's, and one
    /// repetition of it.
    pub(crate) fn max_waiting(&self) -> usize {
        self.slots.saturating_mul(2)
    }

    /// Jobs that are under way.
    pub(crate) fn n_outstanding(&self) -> usize {
        self.outstanding.len()
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
        if let Some(device) = &self.device {
            suits(device, session).map_err(|reason| refused(&reason))?;
        }
        self.terms = None;
        self.outstanding.clear();
        self.first_serial = self.next_serial;
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

    /// Takes a job and its slot into account; the job as it is to travel, under a serial
    /// number.
    pub(crate) fn issue(&mut self, job: Job, slot: Slot) -> Result<Job, Box<Rejected>> {
        let payload_bytes = match self.admits(&job, &slot) {
            Ok(payload_bytes) => payload_bytes,
            Err(why) => return Err(Box::new(Rejected { job, slot, why })),
        };
        let slot = match slot.host() {
            Ok(slot) => slot,
            Err(slot) => {
                let kind = slot.kind();
                let why = format!("the host cannot write results into {kind} memory");
                let why = Rejection::Impossible(why);
                return Err(Box::new(Rejected { job, slot, why }));
            }
        };
        let serial = self.next_serial;
        self.next_serial += 1;
        let travelling = Job { id: JobId(serial), ..job.clone() };
        let slot = Some(slot);
        let submission = Submission { job, slot, payload_bytes, is_revoked: false };
        self.outstanding.insert(serial, submission);
        Ok(travelling)
    }

    /// The bytes that its answer will have, if the job may be issued.
    fn admits(&self, job: &Job, slot: &Slot) -> Result<usize, Rejection> {
        let impossible = |why: &str| Rejection::Impossible(why.to_owned());
        let terms = self.terms.ok_or_else(|| impossible("no session is open"))?;
        if job.samples.len() > terms.max_batch {
            return Err(impossible(
                "the job has more samples than the session's largest batch",
            ));
        }
        if self.outstanding.len() >= self.slots {
            return Err(Rejection::Full);
        }
        let bytes = job.samples.len() as u64 * terms.sample_bytes;
        usize::try_from(bytes)
            .ok()
            .filter(|bytes| *bytes <= slot.len())
            .ok_or_else(|| impossible("the job's samples do not fit into its slot"))
    }

    /// The bytes that the answer to a job has, if it is out.
    pub(crate) fn payload_bytes(&self, serial: JobId) -> Option<u64> {
        self.outstanding.get(&serial.0).map(|it| it.payload_bytes as u64)
    }

    /// The slot of a job that was just issued, for a device that fills it itself.
    pub(crate) fn lend(&mut self, serial: JobId) -> Option<HostSlot> {
        self.outstanding.get_mut(&serial.0)?.slot.take()
    }

    /// As [`Self::withdraw`], of a job whose slot was lent.
    pub(crate) fn withdraw_lent(&mut self, back: Refused) -> Box<Rejected> {
        if let Some(submission) = self.outstanding.get_mut(&back.job.id.0) {
            submission.slot = Some(back.slot);
        }
        self.withdraw(back.job.id, back.source)
    }

    /// Takes a job back that did not leave.
    pub(crate) fn withdraw(&mut self, serial: JobId, error: CsdError) -> Box<Rejected> {
        let submission = self.outstanding.remove(&serial.0);
        let submission = submission.expect("what was just issued is outstanding");
        let why = if matches!(error, CsdError::Full) {
            Rejection::Full
        } else if matches!(error, CsdError::Place { .. }) {
            Rejection::Impossible(error.to_string())
        } else {
            Rejection::Lost(lost(error))
        };
        submission.reject(why)
    }

    /// The job is not wanted. Its serial, if it is out and this is news.
    pub(crate) fn revoke(&mut self, job: JobId) -> Option<JobId> {
        let mut outstanding = self.outstanding.iter_mut();
        let (serial, submission) = outstanding.find(|(_, it)| it.job.id == job)?;
        let is_news = !std::mem::replace(&mut submission.is_revoked, true);
        is_news.then_some(JobId(*serial))
    }

    /// Nobody waits for what is out. The serials of the jobs that the device need not make.
    pub(crate) fn abandon(&mut self) -> Vec<JobId> {
        let gone = self.outstanding.drain().filter(|(_, it)| !it.is_revoked);
        gone.map(|(serial, _)| JobId(serial)).collect()
    }

    /// As [`Self::abandon`]; the serials of all jobs, those that were revoked before included.
    pub(crate) fn forget(&mut self) -> Vec<JobId> {
        self.outstanding.drain().map(|(serial, _)| JobId(serial)).collect()
    }

    /// Passes a result on; where the device is lost, so are its jobs.
    pub(crate) fn watch<T>(&mut self, result: Result<T, CsdError>) -> Result<T, Lost> {
        result.map_err(|error| {
            self.abandon();
            lost(error)
        })
    }

    /// What an answer of another session is good for: nothing, if its payload can be dropped.
    ///
    /// # Errors
    /// As [`Self::redeem`].
    pub(crate) fn foreign(&self, answer: &Answer) -> Result<Redeemed, CsdError> {
        self.bounded(&answer.ending)?;
        Ok(Redeemed::Foreign)
    }

    fn bounded(&self, ending: &Ending) -> Result<(), CsdError> {
        if let Ending::Done { len, .. } = ending
            && *len > self.largest_payload_bytes
        {
            let what = "a result longer than any job asked for";
            return Err(CsdError::Malformed { what });
        }
        Ok(())
    }

    /// The job that this answers.
    ///
    /// # Errors
    /// [`CsdError::Malformed`] for an answer that no honest device gives.
    pub(crate) fn redeem(&mut self, answer: &Answer) -> Result<Redeemed, CsdError> {
        let malformed = |what| Err(CsdError::Malformed { what });
        let serial = answer.job.0;
        self.bounded(&answer.ending)?;
        let Some(submission) = self.outstanding.remove(&serial) else {
            let is_ours = (self.first_serial..self.next_serial).contains(&serial);
            return Ok(if is_ours { Redeemed::Again } else { Redeemed::Foreign });
        };
        if let Ending::Done { len, bad, damaged, .. } = &answer.ending {
            if *len != submission.payload_bytes as u64 {
                return malformed("a result that is not as long as its job");
            }
            let n_samples = submission.job.samples.len();
            if bad.last().is_some_and(|row| *row as usize >= n_samples) {
                return malformed("a bad row beyond the job's samples");
            }
            if damaged.last().is_some_and(|row| *row as usize >= n_samples) {
                return malformed("a damaged row beyond the job's samples");
            }
        }
        Ok(Redeemed::Job(submission))
    }
}

/// Whether the device can do what the session asks for, as far as it has said what it can.
fn suits(device: &Capabilities, session: &Session) -> Result<(), String> {
    // What cannot be read here is the device's to refuse.
    let recipe = Recipe::from_json(&session.recipe).ok();
    let cut = recipe.iter().flat_map(Recipe::before_cut);
    let lacks = |name: &&str| !device.ops.iter().any(|op| op == name);
    if let Some(op) = cut.map(Op::name).find(lacks) {
        return Err(format!(
            "it has no op `{op}`; give it the host's release, or leave that op to the host"
        ));
    }
    let batch_bytes = u64::from(session.sample_bytes) * u64::from(session.max_batch);
    if batch_bytes > device.max_batch_bytes {
        let most = device.max_batch_bytes;
        return Err(format!(
            "a batch takes {batch_bytes} bytes and the device makes at most {most}; use a \
             smaller batch size, or give the device more memory"
        ));
    }
    Ok(())
}

/// A transport's error as a producer's.
fn lost(error: CsdError) -> Lost {
    Lost(Box::new(error))
}

/// What is said of a job that comes to a lost device.
pub(crate) fn refuse(job: Job, slot: Slot, error: CsdError) -> Box<Rejected> {
    Box::new(Rejected { job, slot, why: Rejection::Lost(lost(error)) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
    use bothends_slots::{Ring, RingConfig};

    use super::*;
    use crate::{Serve, conformance};

    fn session() -> Session {
        Session { max_batch: 4, ..conformance::session(3) }
    }

    fn job(id: u64, n_samples: u64) -> Job {
        Job {
            id: JobId(id),
            epoch: EpochIdx(0),
            batch: BatchIdx(0),
            samples: (0..n_samples).map(SampleId).collect(),
            need_ns: 0,
        }
    }

    fn slot(slot_bytes: usize) -> Slot {
        let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes }).unwrap();
        ring.take(Duration::ZERO).unwrap()
    }

    fn done(serial: JobId, len: u64) -> Answer {
        let ending =
            Ending::Done { len, checksum: 0, bad: Vec::new(), damaged: Vec::new() };
        Answer { job: serial, ending, device_ns: 0, lateness_ns: 0 }
    }

    fn device() -> Capabilities {
        Capabilities { slots: 2, ..conformance::EchoServe::default().hello() }
    }

    fn open() -> Credits {
        let mut credits = Credits::default();
        credits.allow(&device()).unwrap();
        credits.begin(&session()).unwrap();
        credits.begun(&session());
        credits
    }

    fn job_of(redeemed: Result<Redeemed, CsdError>) -> Option<JobId> {
        match redeemed.unwrap() {
            Redeemed::Job(submission) => Some(submission.job.id),
            Redeemed::Again | Redeemed::Foreign => None,
        }
    }

    #[test]
    fn slots_are_counted_and_a_rejected_job_comes_back_as_it_was() {
        let mut credits = open();
        let serial = credits.issue(job(7, 1), slot(12)).unwrap().id;
        credits.issue(job(8, 1), slot(12)).unwrap();
        let rejected = credits.issue(job(9, 1), slot(12)).unwrap_err();
        assert!(matches!(rejected.why, Rejection::Full));
        assert_eq!(rejected.job, job(9, 1));
        assert_eq!(job_of(credits.redeem(&done(serial, 3))), Some(JobId(7)));
        assert!(credits.issue(job(9, 1), slot(12)).is_ok());
    }

    #[test]
    fn a_repeated_or_abandoned_answer_is_again_and_never_a_job() {
        let mut credits = open();
        let serial = credits.issue(job(7, 2), slot(12)).unwrap().id;
        assert_eq!(credits.revoke(JobId(7)), Some(serial));
        assert_eq!(credits.revoke(JobId(7)), None, "once is enough");
        assert_eq!(job_of(credits.redeem(&done(serial, 6))), Some(JobId(7)));
        let again = credits.redeem(&done(serial, 6)).unwrap();
        assert!(matches!(again, Redeemed::Again), "{again:?}");
        let serial = credits.issue(job(8, 2), slot(12)).unwrap().id;
        assert_eq!(credits.abandon(), [serial]);
        let again = credits.redeem(&done(serial, 6)).unwrap();
        assert!(matches!(again, Redeemed::Again), "{again:?}");
    }

    #[test]
    fn an_answer_of_the_session_before_is_foreign() {
        let mut credits = open();
        let old = credits.issue(job(1, 2), slot(12)).unwrap().id;
        credits.begin(&session()).unwrap();
        credits.begun(&session());
        let new = credits.issue(job(1, 2), slot(12)).unwrap().id;
        for serial in [old, JobId(99)] {
            let foreign = credits.redeem(&done(serial, 6)).unwrap();
            assert!(matches!(foreign, Redeemed::Foreign), "{foreign:?}");
        }
        assert_eq!(job_of(credits.redeem(&done(new, 6))), Some(JobId(1)));
    }

    #[test]
    fn a_result_of_the_wrong_length_is_malformed() {
        let mut credits = open();
        let serial = credits.issue(job(1, 2), slot(12)).unwrap().id;
        for answer in [done(serial, 5), done(JobId(99), 13)] {
            let redeemed = credits.redeem(&answer);
            assert!(matches!(redeemed, Err(CsdError::Malformed { .. })), "{redeemed:?}");
        }
    }

    #[test]
    fn nothing_is_issued_without_a_session_or_beyond_its_batch_or_slot() {
        let mut credits = Credits::default();
        assert!(credits.begin(&session()).is_err());
        credits.allow(&device()).unwrap();
        let is_impossible = |issued: Result<Job, Box<Rejected>>| {
            matches!(issued.unwrap_err().why, Rejection::Impossible(_))
        };
        assert!(is_impossible(credits.issue(job(1, 1), slot(12))), "no session");
        assert!(is_impossible(open().issue(job(1, 5), slot(99))), "too many samples");
        assert!(is_impossible(open().issue(job(1, 4), slot(11))), "too small a slot");
    }
}
