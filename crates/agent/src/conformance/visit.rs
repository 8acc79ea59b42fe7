//! A host's visit to a device under test: a connection, what the device said of itself, and the
//! steps that checks are made of. No step takes longer than [`PATIENCE`].

use std::time::{Duration, Instant};

use bothends_csd::{Capabilities, CsdError, Session, Transport};
use bothends_slots::{Completion, Job, Outcome, Polled, Ring, RingConfig, Slot};

use super::exercise::{Exercise, MAX_BATCH};
use super::fault::{Checked, broken, ensure, not_applicable};

/// No job of an exercise takes longer; what does, hangs.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to a device, with the data set that it is asked for.
pub(super) struct Visit<'a> {
    pub(super) device: &'a mut dyn Transport,
    pub(super) exercise: &'a Exercise,
    pub(super) capabilities: Capabilities,
}

impl<'a> Visit<'a> {
    /// Greets the device.
    pub(super) fn new(
        device: &'a mut dyn Transport,
        exercise: &'a Exercise,
    ) -> Checked<Self> {
        let capabilities = device.hello()?;
        Ok(Self { device, exercise, capabilities })
    }

    /// The same device, asked for another data set.
    pub(super) fn with<'b>(&'b mut self, exercise: &'b Exercise) -> Visit<'b> {
        let capabilities = self.capabilities.clone();
        Visit { device: self.device, exercise, capabilities }
    }

    /// Opens the exercise's session.
    pub(super) fn open(&mut self) -> Checked {
        Ok(self.device.open(&self.exercise.session())?)
    }

    /// The same, where a device that has said that it cannot is not held to anything.
    pub(super) fn open_if_it_can(&mut self) -> Checked {
        let names = self.exercise.recipe().names_before_cut();
        if let Some(op) = names.iter().find(|op| !self.has(op)) {
            return not_applicable(format!("it has no op `{op}`"));
        }
        match self.device.open(&self.exercise.session()) {
            Err(CsdError::SessionRefused { reason }) => {
                not_applicable(format!("it says: {reason}"))
            }
            opened => Ok(opened?),
        }
    }

    fn has(&self, op: &str) -> bool {
        self.capabilities.ops.iter().any(|has| has == op)
    }

    /// The device's reason not to open a session.
    pub(super) fn refusal(&mut self, session: &Session) -> Checked<String> {
        match self.device.open(session) {
            Err(CsdError::SessionRefused { reason }) => {
                ensure((!reason.trim().is_empty()).then_some(()), || {
                    "it refuses the session without a reason".to_owned()
                })?;
                Ok(reason)
            }
            Err(error) => Err(error.into()),
            Ok(()) => broken("it opens the session"),
        }
    }

    /// Hands a job over, with a slot of its own.
    pub(super) fn submit(&mut self, job: Job) -> Checked {
        let submitted = self.device.submit(job, slot(self.exercise));
        submitted.or_else(|rejected| {
            broken(format!("it does not accept a job: {}", rejected.why))
        })
    }

    /// The answer to one of the jobs that were submitted.
    pub(super) fn answer(&mut self) -> Checked<Completion> {
        answer(self.device)
    }

    fn complete(&mut self, job: Job) -> Checked<Completion> {
        let id = job.id;
        self.submit(job)?;
        let completion = self.answer()?;
        ensure((completion.job == id).then_some(()), || {
            format!("it answers job {} where {} was submitted", completion.job.0, id.0)
        })?;
        Ok(completion)
    }

    /// The bytes of a job, and its bad rows.
    pub(super) fn done(&mut self, job: Job) -> Checked<(Vec<u8>, Vec<u32>)> {
        let (id, n_samples) = (job.id.0, job.samples.len());
        let expected = self.exercise.damaged(&job);
        let completion = self.complete(job)?;
        let made = check_damaged(&completion.outcome, &expected)
            .and_then(|()| self.made(completion, n_samples));
        made.map_err(|fault| fault.of(&format!("job {id}: ")))
    }

    /// The bytes of a job that is answered, and its bad rows.
    pub(super) fn made(
        &self,
        completion: Completion,
        n_samples: usize,
    ) -> Checked<(Vec<u8>, Vec<u32>)> {
        let Completion { slot, outcome, .. } = completion;
        let Outcome::Made { bad, .. } = outcome else {
            return broken(format!("it fails: {}", words(&outcome)));
        };
        let slot = slot.host().or_else(|_| broken("the slot is not the host's"))?;
        Ok((slot[..n_samples * self.exercise.sample_bytes()].to_vec(), bad))
    }

    /// Why a job failed.
    pub(super) fn failure(&mut self, job: Job) -> Checked<String> {
        match self.complete(job)?.outcome {
            Outcome::Failed { reason } => Ok(reason),
            Outcome::Made { .. } => broken("it says that the job is done"),
            Outcome::NotBegun => broken("it says that the job was not begun"),
        }
    }

    /// Makes a job and compares every byte with what `ops` makes.
    pub(super) fn compare(&mut self, job: Job) -> Checked {
        let id = job.id.0;
        let expected = self.exercise.expected(&job);
        let made = self.done(job)?;
        same(&made, &expected, self.exercise.sample_bytes())
            .map_err(|fault| fault.of(&format!("job {id}: ")))
    }
}

/// Whether a job's answer names the rows that it made in spite of damage, and no others.
fn check_damaged(outcome: &Outcome, expected: &[u32]) -> Checked {
    let Outcome::Made { damaged, .. } = outcome else { return Ok(()) };
    let rows: Vec<u32> = damaged.iter().map(|it| it.row).collect();
    same_damaged(&rows, expected)
}

/// As [`same`], of the rows that were made in spite of damage.
pub(super) fn same_damaged(rows: &[u32], expected: &[u32]) -> Checked {
    match rows == expected {
        true => Ok(()),
        false => broken(format!("its damaged rows are {rows:?}, not {expected:?}")),
    }
}

/// The answer to one of the jobs that were submitted to a device.
pub(super) fn answer(device: &mut dyn Transport) -> Checked<Completion> {
    let ends = Instant::now() + PATIENCE;
    while Instant::now() < ends {
        match device.poll(Duration::from_millis(100))? {
            Polled::Completion(completion) => return Ok(completion),
            Polled::Extra => return broken("it answers a job twice"),
            Polled::Nothing => {}
        }
    }
    broken(format!("it answers no job within {PATIENCE:.0?}"))
}

/// Whether two results are the same; else the first place where they differ.
pub(super) fn same(
    (bytes, bad): &(Vec<u8>, Vec<u32>),
    (expected, expected_bad): &(Vec<u8>, Vec<u32>),
    sample_bytes: usize,
) -> Checked {
    if bad != expected_bad {
        return broken(format!("its bad rows are {bad:?}, not {expected_bad:?}"));
    }
    let Some(at) = bytes.iter().zip(expected).position(|(a, b)| a != b) else {
        return Ok(());
    };
    broken(format!(
        "byte {} of row {} is {}, not {}",
        at % sample_bytes,
        at / sample_bytes,
        bytes[at],
        expected[at]
    ))
}

/// What became of a job, for people.
pub(super) fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Made { .. } => "it is made".to_owned(),
        Outcome::Failed { reason } => reason.clone(),
        Outcome::NotBegun => "it was not begun".to_owned(),
    }
}

/// A slot for one job of an exercise.
pub(super) fn slot(exercise: &Exercise) -> Slot {
    let slot_bytes = MAX_BATCH as usize * exercise.sample_bytes();
    let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes }).expect("memory");
    ring.take(Duration::ZERO).expect("a free slot")
}
