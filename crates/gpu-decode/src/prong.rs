//! The GPU as a producer: whole batches, from bytes on storage to samples in the job's slot.
//!
//! A job's bytes are read into pinned memory of a *lane*, uploaded with their descriptions
//! in one copy, and decoded: into the job's slot where that is memory of this GPU, else into the lane's, from
//! which the samples are copied to the slot. Two lanes: while the GPU works on one, the other's bytes
//! are read. What the GPU cannot do, and what it flagged, the host makes here, for the same
//! slot: an [`Outcome`] speaks of whole jobs, and a row in `bad` is lost to the run, so a job
//! with one CMYK image could be answered in no other way without losing it, or all of the GPU's work on
//! the others. Who takes jobs for this producer sees such rows as its time.
//!
//! It works when it is polled, on the thread of whoever polls, as transports do: sample by sample, so
//! that a poll ends at its timeout, or a little later where it reads (`readings.rs`). Read `source.rs` for
//! where samples come from, `prong/lane.rs` for what a job has on its way.
#![allow(unsafe_code, reason = "copies to and from a device, and launches kernels there")]

mod lane;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_gpu::GpuError;
use bothends_gpu::driver::{Address, Driver};
use bothends_gpu::owners::{Gpu, Stream};
use bothends_ops::Damage;
use bothends_slots::{
    Completion, Damaged, Job, JobId, Lost, Outcome, Polled, Producer, Rejected,
    Rejection, Slot,
};

pub use self::lane::ProngConfig;
use self::lane::{Lane, Stage, Target, UnderWay};
use crate::{GpuDecoder, Source, Status};

/// Jobs that are taken at a time, and lanes.
const LANES: usize = 2;

/// What a GPU takes for a batch lies far below; what takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long to sleep between two looks at the GPU.
const NAP: Duration = Duration::from_micros(50);

/// The GPU as a producer.
///
/// A slot of device memory ([`Slot::device_address`]) must be of the same GPU, and whoever submits it
/// vouches that no enqueued work uses it any more; it comes back when the device is done with it.
pub struct GpuProng<S> {
    /// Nobody else's: its memory, and the stream that all work is enqueued on.
    gpu: Gpu,
    stream: Stream,
    source: S,
    config: ProngConfig,
    patience: Duration,
    /// `None` once it has been left alone.
    decoder: Option<GpuDecoder>,
    free: Vec<Lane>,
    waiting: VecDeque<(Job, Target)>,
    under_way: VecDeque<UnderWay>,
    lost: Option<String>,
    /// False once the device may use memory of a job that nobody waits for any more.
    is_safe: bool,
    counts: Counts,
    kernel_time: Duration,
}

/// Who made the samples of a [`GpuProng`] so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// The GPU.
    pub gpu: u64,
    /// The host, bad ones included: without a kernel, unread, or flagged.
    pub host: u64,
    /// Of these, those that the GPU flagged.
    pub flagged: u64,
}

impl<S> fmt::Debug for GpuProng<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_jobs = self.n_jobs();
        write!(f, "GpuProng on {} with {n_jobs} jobs", self.gpu.driver().card().name)
    }
}

impl<S: Source> GpuProng<S> {
    /// Allocates and pins the lanes' memory. For set-up: it blocks.
    ///
    /// # Errors
    /// As of [`Driver::allocate`], [`Driver::register`] and [`GpuDecoder::new`].
    pub fn new(
        driver: Arc<dyn Driver>,
        source: S,
        config: ProngConfig,
    ) -> Result<Self, GpuError> {
        let decoder = GpuDecoder::new(Arc::clone(&driver), config.limits.scratch_bytes)?;
        let gpu = Gpu::new(driver)?;
        let lanes = (0..LANES).map(|_| Lane::new(&gpu, &config));
        let free = lanes.collect::<Result<_, _>>()?;
        Ok(Self {
            stream: gpu.upload_stream(),
            gpu,
            source,
            config,
            patience: PATIENCE,
            decoder: Some(decoder),
            free,
            waiting: VecDeque::new(),
            under_way: VecDeque::new(),
            lost: None,
            is_safe: true,
            counts: Counts::default(),
            kernel_time: Duration::ZERO,
        })
    }

    /// The same with another time after which what the GPU has not completed is taken to hang; otherwise 60 s.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Continues every job as far as possible until then; returns the answer to one that is finished.
    fn step(&mut self, until: Instant) -> Result<Option<Completion>, GpuError> {
        while !self.waiting.is_empty()
            && let Some(lane) = self.free.pop()
        {
            let Some(job) = self.waiting.pop_front() else { break };
            self.under_way.push_back(UnderWay::new(job, lane));
        }
        for nth in 0..self.under_way.len() {
            let Some(mut at) = self.under_way.remove(nth) else { break };
            let done = self.go_on(&mut at, until);
            if matches!(done, Ok(true)) {
                return Ok(Some(self.answer(at)));
            }
            // Also after an error: its memory may be with the device.
            self.under_way.insert(nth, at);
            done?;
        }
        Ok(None)
    }

    /// Continues one job; true if it is finished.
    fn go_on(&mut self, at: &mut UnderWay, until: Instant) -> Result<bool, GpuError> {
        loop {
            match at.stage {
                Stage::Reading(row) if row < at.job.samples.len() => {
                    self.read(at, row);
                    at.turn_to(Stage::Reading(row + 1));
                }
                Stage::Reading(_) => {
                    at.turn_to(Stage::Decoding);
                    let enqueued = self.enqueue(at);
                    // Also behind what failed halfway: some of it may be on its way.
                    let recorded = at.lane.record(&self.stream);
                    enqueued.and(recorded)?;
                }
                Stage::Decoding => {
                    if !self.is_done(at)? {
                        return Ok(false);
                    }
                    self.judge(at);
                    at.turn_to(Stage::Mending);
                }
                Stage::Mending if at.left.is_empty() && at.made.is_empty() => {
                    return Ok(true);
                }
                Stage::Mending => self.mend(at)?,
                Stage::Uploading => {
                    if !self.is_done(at)? {
                        return Ok(false);
                    }
                    at.made.clear();
                    at.turn_to(Stage::Mending);
                }
            }
            if Instant::now() >= until {
                return Ok(false);
            }
        }
    }

    /// Whether the device has done what it was told for a job.
    fn is_done(&self, at: &UnderWay) -> Result<bool, GpuError> {
        let is_done = at.lane.is_done()?;
        if !is_done && at.since.elapsed() >= self.patience {
            let seconds = self.patience.as_secs();
            return Err(GpuError::Late { what: "a batch", seconds });
        }
        Ok(is_done)
    }

    /// Describes a sample, and reads the bytes of several once they are enough; one that the GPU does
    /// not make is left to the host.
    fn read(&mut self, at: &mut UnderWay, nth: usize) {
        let UnderWay { job, lane, left, .. } = at;
        let row = u32::try_from(nth).unwrap_or(u32::MAX);
        let key = (job.epoch, job.samples[nth]);
        match self.source.describe(key, row, &mut lane.batch) {
            Ok(reading) => lane.readings.add(row, reading),
            Err(_) => left.push(row),
        }
        if lane.readings.are_enough() || nth + 1 == job.samples.len() {
            left.extend(lane.readings.read(&mut self.source, &mut lane.staging));
        }
    }

    fn enqueue(&mut self, at: &mut UnderWay) -> Result<(), GpuError> {
        let UnderWay { job, target, lane, .. } = at;
        let status_at = self.config.status_at();
        let sample_bytes = self.config.sample_bytes();
        let (driver, stream) = (self.gpu.driver(), self.stream.id());
        let (upload, status) = lane.staging.split_at_mut(status_at);
        if lane.batch.is_empty() {
            return Ok(());
        }
        let upload = &mut upload[..lane.batch.input_bytes()];
        lane.batch.write_descriptions(upload);
        let Some(decoder) = &mut self.decoder else { return Ok(()) };
        let output = match target {
            Target::Host(_) => lane.output.address(),
            Target::Device(_, address) => *address,
        };
        let input = lane.input.address();
        // SAFETY: the lane is not touched, nor given back, until its event is reached.
        unsafe { driver.upload(input, upload, stream)? };
        lane.kernels[0].record_on(&self.stream)?;
        // SAFETY: the input has the batch's bytes, the output room for every row.
        unsafe { decoder.decode(&lane.batch, input, output, stream)? };
        lane.kernels[1].record_on(&self.stream)?;
        let from = decoder.status_at(&lane.batch);
        let status = &mut status[..4 * lane.batch.len()];
        // SAFETY: the lane is not touched until its event is reached.
        unsafe { driver.download(status, from, stream)? };
        let Target::Host(slot) = target else { return Ok(()) };
        let samples = &mut slot[..job.samples.len() * sample_bytes];
        // SAFETY: the slot stays with the lane until the event is reached.
        unsafe { driver.download(samples, lane.output.address(), stream) }
    }

    /// Looks at what became of the crops: rows that the GPU has flagged are left to the host.
    fn judge(&mut self, at: &mut UnderWay) {
        let UnderWay { job, lane, left, .. } = at;
        let status_at = self.config.status_at();
        let status = &lane.staging[status_at..][..4 * lane.batch.len()];
        for (row, status) in lane.batch.rows().zip(status.as_chunks::<4>().0) {
            if !Status(u32::from_le_bytes(*status)).is_made() {
                left.push(row);
                self.counts.flagged += 1;
            }
        }
        left.sort_unstable();
        // One that could not be read is in the batch all the same.
        left.dedup();
        self.counts.host += left.len() as u64;
        self.counts.gpu += (job.samples.len() - left.len()) as u64;
        if !lane.batch.is_empty() {
            let [from, to] = &lane.kernels;
            // A figure that cannot be had is no reason to lose the batch.
            self.kernel_time += from.until(to).unwrap_or_default();
        }
    }

    /// Makes the next row on the host, or sends those that are made to the device.
    fn mend(&mut self, at: &mut UnderWay) -> Result<(), GpuError> {
        let sample_bytes = self.config.sample_bytes();
        let most = self.config.status_at() / sample_bytes.max(1);
        let UnderWay { job, target, left, bad, damaged, made, .. } = at;
        let next = left.last().copied().filter(|_| made.len() < most);
        let Some(row) = next else {
            return self.send_made(at);
        };
        left.pop();
        let key: (EpochIdx, SampleId) = (job.epoch, job.samples[row as usize]);
        let (bytes, nth) = match target {
            Target::Host(slot) => (&mut slot[..], row as usize),
            Target::Device(..) => (&mut at.lane.staging[..], made.len()),
        };
        let place = &mut bytes[nth * sample_bytes..][..sample_bytes];
        let Ok(damage) = self.source.make(key, place) else {
            bad.push(row);
            return Ok(());
        };
        let what = damage.map(|Damage { format, what }| format!("{format}: {what}"));
        damaged.extend(what.map(|what| Damaged { row, what: Some(what) }));
        if matches!(target, Target::Device(..)) {
            made.push(row);
        }
        Ok(())
    }

    /// Sends what the host has made for a slot of the device to its rows there.
    fn send_made(&self, at: &mut UnderWay) -> Result<(), GpuError> {
        let Target::Device(_, address) = at.target else { return Ok(()) };
        at.turn_to(Stage::Uploading);
        let sample_bytes = self.config.sample_bytes();
        let sent = at.made.iter().enumerate().try_for_each(|(nth, row)| {
            let from = &at.lane.staging[nth * sample_bytes..][..sample_bytes];
            let to = address.after(*row as usize * sample_bytes);
            // SAFETY: the lane is not touched until its event is reached, and the row lies
            // in the job's slot, which is with it.
            unsafe { self.gpu.driver().upload(to, from, self.stream.id()) }
        });
        let recorded = at.lane.record(&self.stream);
        sent.and(recorded)
    }

    /// The answer to a job that is made.
    fn answer(&mut self, made: UnderWay) -> Completion {
        let UnderWay { job, target, lane, mut bad, mut damaged, began, .. } = made;
        self.free.push(lane);
        bad.sort_unstable();
        damaged.sort_unstable_by_key(|it| it.row);
        let work_ns = u64::try_from(began.elapsed().as_nanos()).ok();
        let outcome = Outcome::Made { bad, damaged };
        let slot = target.into_slot();
        Completion { job: job.id, slot, outcome, work_ns, lateness_ns: Some(0) }
    }
}

impl<S> GpuProng<S> {
    /// Who made the samples so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// How long kernels ran so far, by the device's clock; copies are not in it.
    #[must_use]
    pub fn kernel_time(&self) -> Duration {
        self.kernel_time
    }

    /// Jobs that are not answered.
    #[must_use]
    pub fn n_jobs(&self) -> u32 {
        let n = self.waiting.len() + self.under_way.len();
        u32::try_from(n).unwrap_or(u32::MAX)
    }

    /// Where its samples come from.
    #[must_use]
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Waits until no memory of a job is used any more, until then at most. Where that is not certain the memory
    /// is left alone for good, after an error as well: it says nothing about what is still under way.
    fn settle(&mut self, until: Instant) {
        for at in std::mem::take(&mut self.under_way) {
            let left = until.saturating_duration_since(Instant::now());
            let is_with_device = at.stage.is_with_device();
            let waited = if is_with_device { at.lane.wait(left) } else { Ok(()) };
            match waited {
                Ok(()) => self.free.push(at.lane),
                Err(why) => {
                    self.lost.get_or_insert(why);
                    self.is_safe = false;
                    leak(at);
                }
            }
        }
    }

    fn check(&self) -> Result<(), Lost> {
        match &self.lost {
            Some(why) => Err(Lost(why.clone().into())),
            None => Ok(()),
        }
    }

    fn lose(&mut self, error: &GpuError) -> Lost {
        let why = error.to_string();
        self.lost.get_or_insert_with(|| why.clone());
        self.waiting.clear();
        // What was waited for all that time is not waited for again.
        let is_late = matches!(error, GpuError::Late { .. });
        let patience = if is_late { Duration::ZERO } else { self.patience };
        self.settle(Instant::now() + patience);
        Lost(why.into())
    }

    /// Why a job is none that can be done here.
    fn impossible(&self, job: &Job, slot: &Slot) -> Option<String> {
        let (n, most) = (job.samples.len(), self.config.max_batch as usize);
        let need = n * self.config.sample_bytes();
        if n > most {
            Some(format!("a job of {n} samples, where the GPU was set up for {most}"))
        } else if slot.len() < need {
            Some(format!("a slot of {} bytes for a job of {need}", slot.len()))
        } else {
            None
        }
    }
}

/// Forgets what has memory that a device may still write to.
#[expect(clippy::mem_forget, reason = "a device that hangs may write to it at any time")]
fn leak<T>(held: T) {
    std::mem::forget(held);
}

impl<S: Source> Producer for GpuProng<S> {
    fn submit(&mut self, job: Job, slot: Slot) -> Result<(), Box<Rejected>> {
        let reject = |job, slot, why| Err(Box::new(Rejected { job, slot, why }));
        if let Err(lost) = self.check() {
            return reject(job, slot, Rejection::Lost(lost));
        }
        if self.waiting.len() + self.under_way.len() >= LANES {
            return reject(job, slot, Rejection::Full);
        }
        if let Some(why) = self.impossible(&job, &slot) {
            return reject(job, slot, Rejection::Impossible(why));
        }
        let target = match (slot.device_address(), slot.host()) {
            (_, Ok(slot)) => Target::Host(slot),
            (Some(address), Err(slot)) => Target::Device(slot, Address(address)),
            (None, Err(slot)) => {
                let why = format!("a slot of {} memory, at no address", slot.kind());
                return reject(job, slot, Rejection::Impossible(why));
            }
        };
        self.waiting.push_back((job, target));
        Ok(())
    }

    fn poll(&mut self, timeout: Duration) -> Result<Polled, Lost> {
        self.check()?;
        let until = Instant::now() + timeout;
        loop {
            let answered = self.step(until).map_err(|error| self.lose(&error))?;
            if let Some(completion) = answered {
                return Ok(Polled::Completion(completion));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Polled::Nothing);
            }
            let is_idle = self.under_way.is_empty();
            std::thread::sleep(if is_idle { left } else { left.min(NAP) });
        }
    }

    /// A job has a lane at once, or waits for one as long as another is made: all are made.
    fn revoke(&mut self, _: JobId) -> Result<(), Lost> {
        self.check()
    }

    fn abandon(&mut self) -> Result<(), Lost> {
        self.check()?;
        self.waiting.clear();
        self.settle(Instant::now() + self.patience);
        self.check()
    }
}

impl<S> Drop for GpuProng<S> {
    fn drop(&mut self) {
        self.waiting.clear();
        self.settle(Instant::now() + self.patience);
        if !self.is_safe {
            // To free or unpin memory is to wait for the device, and what was enqueued may use all of it.
            let lanes = std::mem::take(&mut self.free);
            leak((lanes, self.decoder.take(), self.gpu.clone()));
        }
    }
}
