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
//! where samples come from.
#![allow(unsafe_code, reason = "pins memory, and copies to and from a device")]

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::{Numerics, Size};
use bothends_gpu::GpuError;
use bothends_gpu::driver::{Address, Driver, EventId, StreamId};
use bothends_ops::Damage;
use bothends_slots::{
    Completion, Damaged, HostSlot, Job, JobId, Lost, Outcome, Polled, Producer, Rejected,
    Rejection, Ring, RingConfig, Slot,
};

use crate::readings::Readings;
use crate::{Batch, GpuDecoder, Limits, Source, Status};

/// Jobs that are taken at a time, and lanes.
const LANES: usize = 2;

/// What a GPU takes for a batch lies far below; what takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long to sleep between two looks at the GPU.
const NAP: Duration = Duration::from_micros(50);

/// What a [`GpuProng`] is made for.
#[derive(Debug, Clone, Copy)]
pub struct ProngConfig {
    /// Rows and columns of samples at the cut.
    pub size: Size,
    /// The recipe's numerics.
    pub numerics: Numerics,
    /// Most samples of a job.
    pub max_batch: u32,
    /// Memory of a lane on the GPU, and scratch memory of the decoder.
    pub limits: Limits,
}

/// The GPU as a producer.
///
/// A slot of device memory ([`Slot::device_address`]) must be of the same GPU, and whoever submits it
/// vouches that no enqueued work uses it any more; it comes back when the device is done with it.
pub struct GpuProng<S> {
    driver: Arc<dyn Driver>,
    source: S,
    config: ProngConfig,
    /// Dropped by hand, once the stream has passed.
    decoder: Option<GpuDecoder>,
    stream: StreamId,
    free: Vec<Lane>,
    waiting: VecDeque<(Job, Target)>,
    under_way: VecDeque<UnderWay>,
    lost: Option<String>,
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

/// Memory of one batch on its way.
struct Lane {
    batch: Batch,
    readings: Readings,
    /// Pinned: the upload, later samples that the host made for a device slot; behind it what
    /// became of the crops.
    staging: HostSlot,
    input: Address,
    output: Address,
    done: EventId,
    /// Round the kernels.
    kernels: [EventId; 2],
}

/// Where a job's samples go.
enum Target {
    Host(HostSlot),
    Device(Slot, Address),
}

impl Target {
    fn into_slot(self) -> Slot {
        match self {
            Self::Host(slot) => slot.into_slot(),
            Self::Device(slot, _) => slot,
        }
    }
}

/// A job that has a lane.
struct UnderWay {
    job: Job,
    target: Target,
    lane: Lane,
    stage: Stage,
    /// Rows that the host makes, rising once they are judged, and those that it could not.
    left: Vec<u32>,
    bad: Vec<u32>,
    /// Rows that the host has made in spite of damage.
    damaged: Vec<Damaged>,
    /// Rows that the host has made for a device slot, in the order in which they lie in the lane.
    made: Vec<u32>,
    began: Instant,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// So many of its samples are described, and the bytes of most of them read.
    Reading(usize),
    /// All of the device's work on it is enqueued.
    Decoding,
    /// The host makes what is left; the device does nothing for it.
    Mending,
    /// The device copies what the host has made.
    Uploading,
}

impl Stage {
    /// Whether the device may read or write the job's memory.
    fn is_with_device(self) -> bool {
        matches!(self, Self::Decoding | Self::Uploading)
    }
}

impl<S> fmt::Debug for GpuProng<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_jobs = self.n_jobs();
        write!(f, "GpuProng on {} with {n_jobs} jobs", self.driver.card().name)
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
        let stream = driver.create_stream()?;
        let mut prong = Self {
            driver,
            source,
            config,
            decoder: Some(decoder),
            stream,
            free: Vec::new(),
            waiting: VecDeque::new(),
            under_way: VecDeque::new(),
            lost: None,
            counts: Counts::default(),
            kernel_time: Duration::ZERO,
        };
        for _ in 0..LANES {
            let lane = prong.lane()?;
            prong.free.push(lane);
        }
        Ok(prong)
    }

    fn lane(&self) -> Result<Lane, GpuError> {
        let ProngConfig { size, numerics, limits, max_batch } = self.config;
        let bytes = self.status_at() + 4 * max_batch as usize;
        let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes: bytes });
        let slot = ring.ok().and_then(|ring| ring.take(Duration::ZERO));
        let staging = slot.and_then(|slot| slot.host().ok());
        let staging = staging.ok_or(GpuError::OutOfMemory { bytes })?;
        // SAFETY: the lane keeps the memory until it has ended this, in `give_back`.
        unsafe { self.driver.register(staging.base(), staging.len())? };
        let timed = || self.driver.create_timed_event();
        Ok(Lane {
            batch: Batch::new(size, numerics, limits),
            readings: Readings::default(),
            staging,
            input: self.driver.allocate(limits.input_bytes as usize)?,
            output: self.driver.allocate(self.sample_bytes() * max_batch as usize)?,
            done: self.driver.create_event()?,
            kernels: [timed()?, timed()?],
        })
    }

    /// Whether the device has done what a lane waits for.
    fn is_done(&self, lane: &Lane) -> Result<bool, GpuError> {
        // SAFETY: the event is this driver's, and its lane is not given back.
        unsafe { self.driver.is_reached(lane.done) }
    }

    /// An event after all that is enqueued for a lane.
    fn record(&self, lane: &Lane) -> Result<(), GpuError> {
        // SAFETY: event and stream are this driver's.
        unsafe { self.driver.record(lane.done, self.stream) }
    }

    /// Continues every job as far as possible until then; returns the answer to one that is finished.
    fn step(&mut self, until: Instant) -> Result<Option<Completion>, GpuError> {
        while !self.waiting.is_empty()
            && let Some(mut lane) = self.free.pop()
        {
            let Some((job, target)) = self.waiting.pop_front() else { break };
            lane.batch.clear();
            // A job that was abandoned leaves some.
            lane.readings.clear();
            self.under_way.push_back(UnderWay {
                job,
                target,
                lane,
                stage: Stage::Reading(0),
                left: Vec::new(),
                bad: Vec::new(),
                damaged: Vec::new(),
                made: Vec::new(),
                began: Instant::now(),
            });
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
                    at.stage = Stage::Reading(row + 1);
                }
                Stage::Reading(_) => {
                    at.stage = Stage::Decoding;
                    let enqueued = self.enqueue(at);
                    // Also behind what failed halfway: some of it may be on its way.
                    let recorded = self.record(&at.lane);
                    enqueued.and(recorded)?;
                }
                Stage::Decoding => {
                    if !self.is_done(&at.lane)? {
                        return Ok(false);
                    }
                    self.judge(at);
                    at.stage = Stage::Mending;
                }
                Stage::Mending if at.left.is_empty() && at.made.is_empty() => {
                    return Ok(true);
                }
                Stage::Mending => self.mend(at)?,
                Stage::Uploading => {
                    if !self.is_done(&at.lane)? {
                        return Ok(false);
                    }
                    at.made.clear();
                    at.stage = Stage::Mending;
                }
            }
            if Instant::now() >= until {
                return Ok(false);
            }
        }
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
        let status_at = self.status_at();
        let sample_bytes = self.sample_bytes();
        let (upload, status) = lane.staging.split_at_mut(status_at);
        if lane.batch.is_empty() {
            return Ok(());
        }
        let upload = &mut upload[..lane.batch.input_bytes()];
        lane.batch.write_descriptions(upload);
        let Some(decoder) = &mut self.decoder else { return Ok(()) };
        let output = match target {
            Target::Host(_) => lane.output,
            Target::Device(_, address) => *address,
        };
        // SAFETY: the lane is not touched, nor given back, until its event is reached.
        unsafe { self.driver.upload(lane.input, upload, self.stream)? };
        // SAFETY: event and stream are this driver's, here and below.
        unsafe { self.driver.record(lane.kernels[0], self.stream)? };
        // SAFETY: the input has the batch's bytes, the output room for every row.
        unsafe { decoder.decode(&lane.batch, lane.input, output, self.stream)? };
        // SAFETY: as above.
        unsafe { self.driver.record(lane.kernels[1], self.stream)? };
        let from = decoder.status_at(&lane.batch);
        let status = &mut status[..4 * lane.batch.len()];
        // SAFETY: the lane is not touched until its event is reached.
        unsafe { self.driver.download(status, from, self.stream)? };
        let Target::Host(slot) = target else { return Ok(()) };
        let samples = &mut slot[..job.samples.len() * sample_bytes];
        // SAFETY: the slot stays with the lane until the event is reached.
        unsafe { self.driver.download(samples, lane.output, self.stream) }
    }

    /// Looks at what became of the crops: rows that the GPU has flagged are left to the host.
    fn judge(&mut self, at: &mut UnderWay) {
        let UnderWay { job, lane, left, .. } = at;
        let status_at = self.status_at();
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
            let [from, to] = lane.kernels;
            // SAFETY: both are recorded before the event that was reached. A figure that cannot be
            // had is no reason to lose the batch.
            let took = unsafe { self.driver.elapsed(from, to) };
            self.kernel_time += took.unwrap_or_default();
        }
    }

    /// Makes the next row on the host, or sends those that are made to the device.
    fn mend(&mut self, at: &mut UnderWay) -> Result<(), GpuError> {
        let sample_bytes = self.sample_bytes();
        let most = self.status_at() / sample_bytes.max(1);
        let UnderWay { job, target, lane, left, bad, damaged, made, stage, .. } = at;
        let next = left.last().copied().filter(|_| made.len() < most);
        let Some(row) = next else {
            let Target::Device(_, address) = target else { return Ok(()) };
            *stage = Stage::Uploading;
            let sent = made.iter().enumerate().try_for_each(|(nth, row)| {
                let from = &lane.staging[nth * sample_bytes..][..sample_bytes];
                let to = address.after(*row as usize * sample_bytes);
                // SAFETY: the lane is not touched until its event is reached, and the row lies
                // in the job's slot, which is with it.
                unsafe { self.driver.upload(to, from, self.stream) }
            });
            let recorded = self.record(lane);
            return sent.and(recorded);
        };
        left.pop();
        let key: (EpochIdx, SampleId) = (job.epoch, job.samples[row as usize]);
        let (bytes, nth) = match target {
            Target::Host(slot) => (&mut slot[..], row as usize),
            Target::Device(..) => (&mut lane.staging[..], made.len()),
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

    fn sample_bytes(&self) -> usize {
        let Size { height, width } = self.config.size;
        3 * height as usize * width as usize
    }

    /// Where the crops' status words go in a lane's memory.
    fn status_at(&self) -> usize {
        let input_bytes = self.config.limits.input_bytes as usize;
        // A sample of the host's has room there, too.
        input_bytes.max(self.sample_bytes()).next_multiple_of(64)
    }

    /// Waits until no memory of a job is used any more; false where the GPU does not say so
    /// in time. Memory that is not safe to reuse is left alone for good.
    fn settle(&mut self) -> bool {
        let mut is_safe = true;
        for done in std::mem::take(&mut self.under_way) {
            if !done.stage.is_with_device() {
                self.free.push(done.lane);
                continue;
            }
            // SAFETY: the event is this driver's.
            let waited = unsafe { self.driver.wait_for(done.lane.done, PATIENCE) };
            let unsure =
                waited.err().filter(|error| matches!(error, GpuError::Late { .. }));
            if let Some(error) = unsure {
                self.lost.get_or_insert_with(|| error.to_string());
                is_safe = false;
                leak(done);
            } else {
                self.free.push(done.lane);
            }
        }
        is_safe
    }

    fn give_back(&self, lane: Lane) {
        // SAFETY: registered in `lane`, and the stream has passed all work on it.
        unsafe { self.driver.unregister(lane.staging.base()) };
        for address in [lane.input, lane.output] {
            // SAFETY: allocated in `lane`, freed once, and the stream has passed its work.
            unsafe { self.driver.free(address) };
        }
        let [first, second] = lane.kernels;
        for event in [lane.done, first, second] {
            // SAFETY: created in `lane`, destroyed once.
            unsafe { self.driver.destroy_event(event) };
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
        self.settle();
        Lost(why.into())
    }

    /// Why a job is none that can be done here.
    fn impossible(&self, job: &Job, slot: &Slot) -> Option<String> {
        let (n, most) = (job.samples.len(), self.config.max_batch as usize);
        let need = n * self.sample_bytes();
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
        self.settle();
        self.check()
    }
}

impl<S> Drop for GpuProng<S> {
    fn drop(&mut self) {
        self.waiting.clear();
        let is_safe = self.settle();
        for lane in std::mem::take(&mut self.free) {
            self.give_back(lane);
        }
        match self.decoder.take() {
            Some(decoder) if !is_safe => leak(decoder),
            Some(_) | None => {}
        }
        // SAFETY: created in `new`, destroyed once; what is enqueued still runs.
        unsafe { self.driver.destroy_stream(self.stream) };
    }
}
