//! Deliberate faults: a device that dies, stalls, slows down, lies or repeats itself.
//!
//! [`Faulty`] wraps any [`Serve`] and corrupts its answers; the device inside knows nothing of it. Which
//! batches are affected depends only on the seed and the job. `fault/spec.rs` defines how faults are
//! written.
//!
//! `P%` of die, stall and throttle is a fraction of the device's jobs in an epoch. Jobs say which epoch they
//! are of, and the count begins again with each and with each session: what struck in an epoch, or while a
//! host measured the device, strikes in the next one at the same point. A device that has died stays dead,
//! and `slow-start` counts from the device's start. The count is held against the batches that are expected
//! of the device in an epoch. A host does not announce that number, so it is half of the batches of one pass
//! over the session's data set: the share of a device that is as fast as its host.
//! [`FaultConfig::expected_batches`] sets it explicitly. 0 % strikes at the first job.
//!
//! A device that is slower (throttle, slow-start) is busy for as long as its jobs take. One that is silent
//! (stall, die) or whose answers are on their way (late) is not working on them. Energy is the device's own;
//! faults do not change it.

mod spec;

use std::time::{Duration, Instant};

use bothends_agent::epoch_batches;
use bothends_core::ids::EpochIdx;
use bothends_core::philox::{philox4x32_10, words};
use bothends_csd::{
    Capabilities, CsdError, Declined, DeviceStats, FaultCount, Finished, Inquiry, Job,
    JobId, RecordDigest, Refused, Serve, Session,
};

use bothends_slots::{HostSlot, Ring, RingConfig};
use twox_hash::XxHash3_64;

pub use spec::{Fault, FaultError, Percent};

/// Jobs that `slow-start` slows down, and times their own time that they take.
const SLOW_START_JOBS: u64 = 10;
const SLOW_START_FACTOR: f64 = 2.0;

/// Times its own time after which a late job is answered.
const LATE_FACTOR: f64 = 5.0;

/// What shall go wrong.
#[derive(Debug, Clone)]
pub struct FaultConfig {
    /// In any order; the same kind may stand there more than once.
    pub faults: Vec<Fault>,
    /// Batches that this device is expected to make in an epoch, where that is known.
    pub expected_batches: Option<u64>,
    /// Seed of the faults that strike at random.
    pub seed: u64,
    /// What death is. A process ends itself here; if this returns, the device is silent from
    /// then on.
    pub on_death: fn(),
}

/// A device with faults.
#[derive(Debug)]
pub struct Faulty<S> {
    inner: S,
    config: FaultConfig,
    n_slots: usize,
    /// Jobs of one epoch: what `P%` is a part of.
    n_expected: u64,
    /// Jobs taken since the start.
    n_submitted: u64,
    /// The two epochs of the session's latest jobs, one of which may be prefetched, and their jobs taken so far.
    epochs: [(EpochIdx, u64); 2],
    /// Jobs taken and not answered.
    open: Vec<OpenJob>,
    /// Answers that wait for their time.
    held: Vec<Held>,
    /// When a slowed device is free for the next job.
    free_at: Instant,
    /// How much longer it has worked on the jobs that it has answered than the device inside.
    longer: Duration,
    /// How often each fault has struck.
    struck: Vec<u64>,
    /// The most jobs of one epoch that it has taken.
    most_of_epoch: u64,
    is_dead: bool,
    stalled_until: Instant,
}

/// Of measurements nothing is counted.
const NO_EPOCHS: [(EpochIdx, u64); 2] = [(EpochIdx::MEASURED, 0); 2];

/// A job inside.
#[derive(Debug, Clone, Copy)]
struct OpenJob {
    id: JobId,
    /// Times its own time that the device is busy with it; `None` of one that is spared all faults.
    slowness: Option<f64>,
}

/// An answer that waits for its time.
#[derive(Debug)]
struct Held {
    /// When a slowed device begins the job.
    begun: Instant,
    due: Instant,
    /// What a slowed device needs for the job besides its own time.
    longer: Duration,
    finished: Finished,
}

/// Which chance is drawn: a word of the generator's counter.
#[derive(Debug, Clone, Copy)]
enum Draw {
    Corrupt = 1,
    Duplicate = 2,
    Late = 3,
    Lie = 4,
}

impl<S: Serve> Faulty<S> {
    /// `inner`, spoilt as `config` says.
    pub fn new(mut inner: S, config: FaultConfig) -> Self {
        let n_slots = inner.hello().slots as usize;
        let now = Instant::now();
        Self {
            inner,
            n_slots,
            n_expected: config.expected_batches.unwrap_or(0),
            struck: vec![0; config.faults.len()],
            most_of_epoch: 0,
            config,
            n_submitted: 0,
            epochs: NO_EPOCHS,
            open: Vec::new(),
            held: Vec::new(),
            free_at: now,
            longer: Duration::ZERO,
            is_dead: false,
            stalled_until: now,
        }
    }

    /// Jobs of that epoch that it has taken in this session.
    fn n_of(&self, epoch: EpochIdx) -> u64 {
        self.epochs.iter().find(|(known, _)| *known == epoch).map_or(0, |(_, n)| *n)
    }

    /// Lets die and stall strike when job `number` of an epoch comes.
    fn strike(&mut self, number: u64) {
        for (fault, struck) in self.config.faults.iter().zip(&mut self.struck) {
            if let Fault::Die { at } = *fault
                && at.of(self.n_expected) <= number
            {
                *struck += u64::from(!self.is_dead);
                self.is_dead = true;
            }
            if let Fault::Stall { at, pause } = *fault
                && at.of(self.n_expected) == number
            {
                *struck += 1;
                self.stalled_until = self.stalled_until.max(Instant::now() + pause);
            }
        }
        if self.is_dead {
            (self.config.on_death)();
        }
    }

    /// Times its own time that the device is busy with the next job, which is job `number` of its epoch.
    fn slowness(&mut self, number: u64) -> f64 {
        let mut slowness = 1.0;
        for (fault, struck) in self.config.faults.iter().zip(&mut self.struck) {
            if let Fault::Throttle { at, factor } = *fault
                && at.of(self.n_expected) <= number
            {
                *struck += 1;
                slowness *= factor;
            }
            if *fault == Fault::SlowStart && self.n_submitted < SLOW_START_JOBS {
                *struck += 1;
                slowness *= SLOW_START_FACTOR;
            }
        }
        slowness
    }

    /// Whether it refuses its jobs; the next one is refused.
    fn refuses(&mut self) -> bool {
        let faults = self.config.faults.iter().zip(&mut self.struck);
        let mut refusals = faults.filter(|(fault, _)| **fault == Fault::Refuse);
        refusals.next().map(|(_, struck)| *struck += 1).is_some()
    }

    /// Whether a fault that strikes at random strikes that job.
    fn strikes(&self, draw: Draw, job: JobId) -> bool {
        let word = self.word(draw, job);
        self.config.faults.iter().any(|fault| fault.covers(draw, word))
    }

    /// As [`Self::strikes`], of an answer that is spoilt by it.
    fn is_spoilt(&mut self, draw: Draw, job: JobId) -> bool {
        let word = self.word(draw, job);
        for (fault, struck) in self.config.faults.iter().zip(&mut self.struck) {
            *struck += u64::from(fault.covers(draw, word));
        }
        self.strikes(draw, job)
    }

    /// What is drawn for that job.
    fn word(&self, draw: Draw, job: JobId) -> u32 {
        let [job_lo, job_hi] = words(job.0);
        let counter = [job_lo, job_hi, draw as u32, 0];
        let [word, ..] = philox4x32_10(counter, words(self.config.seed));
        word
    }

    /// What has become of each fault.
    fn counts(&self) -> Vec<FaultCount> {
        let faults = self.config.faults.iter().zip(&self.struck);
        let count = |(fault, struck): (&Fault, &u64)| FaultCount {
            fault: fault.to_string(),
            struck: *struck,
            after: fault.point().map(|at| at.of(self.n_expected)),
            begun: self.most_of_epoch,
        };
        faults.map(count).collect()
    }

    /// Spoils an answer and puts it where it waits for its time.
    fn spoil(&mut self, slowness: f64, mut finished: Finished) {
        let now = Instant::now();
        let own = Duration::from_nanos(finished.device_ns);
        let mut begun = now;
        let mut due = now;
        let mut longer = Duration::ZERO;
        if slowness > 1.0 {
            // A slowed device still does one job after the other.
            begun = now.checked_sub(own).unwrap_or(now).max(self.free_at);
            self.free_at = begun + own.mul_f64(slowness);
            due = due.max(self.free_at);
            longer = own.mul_f64(slowness - 1.0);
        }
        if self.is_spoilt(Draw::Late, finished.job) {
            due += own.mul_f64(LATE_FACTOR - 1.0);
        }
        let held_ns = u64::try_from((due - now).as_nanos()).unwrap_or(u64::MAX);
        finished.device_ns = finished.device_ns.saturating_add(held_ns);
        if self.is_spoilt(Draw::Lie, finished.job) {
            lie(&mut finished);
        }
        if self.is_spoilt(Draw::Corrupt, finished.job) {
            corrupt(&mut finished);
        }
        let again = match self.is_spoilt(Draw::Duplicate, finished.job) {
            true => duplicate(&finished),
            false => None,
        };
        // The job's own slot goes with the first answer.
        self.held.push(Held { begun, due, longer, finished });
        let longer = Duration::ZERO;
        self.held.extend(again.map(|finished| Held { begun, due, longer, finished }));
    }

    /// Puts an answer where the next `poll` finds it.
    fn hold(&mut self, finished: Finished) {
        let now = Instant::now();
        self.held.push(Held { begun: now, due: now, longer: Duration::ZERO, finished });
    }

    /// Takes out the held answer whose time has come first.
    fn release(&mut self) -> Option<Finished> {
        let now = Instant::now();
        let due = self.held.iter().enumerate().filter(|(_, held)| held.due <= now);
        let (held_idx, _) = due.min_by_key(|(i, held)| (held.due, *i))?;
        let Held { longer, finished, .. } = self.held.remove(held_idx);
        self.longer += longer;
        self.open.retain(|open| open.id != finished.job);
        Some(finished)
    }

    /// Forgets all jobs; what has struck has struck.
    fn forget(&mut self) {
        self.open.clear();
        self.held.clear();
    }
}

impl Fault {
    /// Whether it is of the kind that is drawn, and the word is among those that it strikes by.
    fn covers(self, draw: Draw, word: u32) -> bool {
        match (draw, self) {
            (Draw::Corrupt, Self::Corrupt { chance })
            | (Draw::Lie, Self::Lie { chance })
            | (Draw::Duplicate, Self::Duplicate { chance })
            | (Draw::Late, Self::Late { chance }) => chance.covers(word),
            _ => false,
        }
    }
}

/// Flips the byte in the middle, after the checksum was taken.
fn corrupt(finished: &mut Finished) {
    let Ok(product) = &finished.result else { return };
    if let Some(byte) = finished.slot[..product.len].get_mut(product.len / 2) {
        *byte = !*byte;
    }
}

/// Flips a bit in the middle and takes the checksum of that.
fn lie(finished: &mut Finished) {
    let Ok(product) = &mut finished.result else { return };
    let bytes = &mut finished.slot[..product.len];
    if let Some(byte) = bytes.get_mut(product.len / 2) {
        *byte ^= 1;
    }
    product.checksum = XxHash3_64::oneshot(bytes);
}

/// The same answer in a slot of its own; `None` where there is no memory for it.
fn duplicate(finished: &Finished) -> Option<Finished> {
    let slot_bytes = finished.slot.len();
    let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes }).ok()?;
    let mut slot = ring.take(Duration::ZERO)?.host().ok()?;
    slot.copy_from_slice(&finished.slot);
    let Finished { job, ref result, device_ns, lateness_ns, .. } = *finished;
    Some(Finished { job, slot, result: result.clone(), device_ns, lateness_ns })
}

impl<S: Serve> Serve for Faulty<S> {
    fn hello(&mut self) -> Capabilities {
        self.inner.hello()
    }

    fn open(&mut self, session: Session) -> Result<(), Declined> {
        self.forget();
        self.epochs = NO_EPOCHS;
        if self.config.expected_batches.is_none() {
            self.n_expected = epoch_batches(&session).unwrap_or(0) / 2;
        }
        self.inner.open(session)
    }

    fn submit(&mut self, job: Job, slot: HostSlot) -> Result<(), Box<Refused>> {
        if self.open.len() >= self.n_slots {
            return Err(Box::new(Refused { job, slot, source: CsdError::Full }));
        }
        let epoch = job.epoch;
        if epoch == EpochIdx::MEASURED && !self.is_dead {
            // What a device does without its faults is what they are seen by.
            let spared = OpenJob { id: job.id, slowness: None };
            self.inner.submit(job, slot)?;
            self.open.push(spared);
            return Ok(());
        }
        let number = self.n_of(epoch);
        self.strike(number);
        if self.is_dead {
            return Ok(());
        }
        let (id, slowness) = (job.id, self.slowness(number));
        if self.refuses() {
            let result = Err("this device has the fault `refuse`".to_owned());
            self.hold(Finished { job: id, slot, result, device_ns: 0, lateness_ns: 0 });
        } else {
            self.inner.submit(job, slot)?;
        }
        self.n_submitted += 1;
        if self.epochs[1].0 == epoch {
            self.epochs.swap(0, 1);
        } else if self.epochs[0].0 != epoch {
            self.epochs[1] = self.epochs[0];
        }
        self.epochs[0] = (epoch, number + 1);
        self.most_of_epoch = self.most_of_epoch.max(number + 1);
        self.open.push(OpenJob { id, slowness: Some(slowness) });
        Ok(())
    }

    fn poll(&mut self, timeout: Duration) -> Option<Finished> {
        let deadline = Instant::now() + timeout;
        let silent = self.stalled_until.saturating_duration_since(Instant::now());
        if self.is_dead || !silent.is_zero() {
            // Nothing can come meanwhile; the caller looks after its link between polls.
            std::thread::sleep(if self.is_dead { timeout } else { silent.min(timeout) });
            return None;
        }
        loop {
            if let Some(finished) = self.release() {
                return Some(finished);
            }
            let next_due = self.held.iter().map(|held| held.due).min();
            let until = next_due.map_or(deadline, |due| due.min(deadline));
            match self.inner.poll(until.saturating_duration_since(Instant::now())) {
                Some(finished) => {
                    let open = self.open.iter().find(|open| open.id == finished.job);
                    match (open.map(|open| open.slowness), &finished.result) {
                        (Some(Some(slowness)), Ok(_)) => self.spoil(slowness, finished),
                        // What was not made cannot be spoilt.
                        (Some(None), Ok(_)) | (Some(_), Err(_)) => self.hold(finished),
                        // Of an earlier session.
                        (None, _) => {}
                    }
                }
                None if Instant::now() >= deadline => return self.release(),
                None => {}
            }
        }
    }

    fn revoke(&mut self, job: JobId) {
        let now = Instant::now();
        if let Some(held) = self.held.iter_mut().find(|held| held.finished.job == job)
            && held.begun > now
        {
            // The slowed device has not begun it.
            if held.due == self.free_at {
                self.free_at = held.begun;
            }
            held.due = now;
            held.longer = Duration::ZERO;
            held.finished.device_ns = 0;
            held.finished.result = Err("revoked before it was begun".to_owned());
        }
        self.inner.revoke(job);
    }

    fn forget(&mut self, job: JobId) {
        self.open.retain(|open| open.id != job);
        self.held.retain(|held| held.finished.job != job);
        self.inner.forget(job);
    }

    fn attest(&mut self, inquiry: &Inquiry) -> Result<Vec<Option<RecordDigest>>, String> {
        self.inner.attest(inquiry)
    }

    fn stats(&mut self) -> DeviceStats {
        let mut stats = self.inner.stats();
        stats.busy_seconds += self.longer.as_secs_f64();
        stats.faults = self.counts();
        stats
    }

    fn close(&mut self) {
        self.forget();
        self.inner.close();
    }
}

#[cfg(test)]
mod tests;
