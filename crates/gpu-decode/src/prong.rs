//! The GPU as a producer: whole batches, from bytes on storage to samples in the job's slot.
//!
//! A job's bytes are read into page-locked memory of a *lane*, uploaded with their descriptions
//! in one copy, decoded, and the samples are copied to the job's slot. Two lanes: while the GPU works
//! on one, the other's bytes are read. What the GPU cannot do, and what it flagged, the host makes
//! here, into the same slot: an [`Outcome`] speaks of whole jobs, and a row in `bad` is lost to the run, so
//! a job with one CMYK image could be answered in no other way without losing it, or all of the GPU's
//! work on the others. Who takes jobs for this producer sees such rows as its time.
//!
//! It works when it is polled, on the thread of whoever polls, as transports do. Read `source.rs` for
//! where samples come from.
#![allow(unsafe_code, reason = "page-locks memory, and copies to and from a device")]

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::{Numerics, Size};
use bothends_gpu::GpuError;
use bothends_gpu::driver::{Address, Driver, EventId, StreamId};
use bothends_slots::{
    Completion, HostSlot, Job, JobId, Lost, Outcome, Polled, Producer, Rejected,
    Rejection, Ring, RingConfig, Slot,
};

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
pub struct GpuProng<S> {
    driver: Arc<dyn Driver>,
    source: S,
    config: ProngConfig,
    /// Dropped by hand, once the stream has passed.
    decoder: Option<GpuDecoder>,
    stream: StreamId,
    free: Vec<Lane>,
    waiting: VecDeque<(Job, HostSlot)>,
    under_way: VecDeque<UnderWay>,
    lost: Option<String>,
    counts: Counts,
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
    descriptions: Vec<u8>,
    /// Page-locked: the upload, and behind it what became of the crops.
    staging: HostSlot,
    input: Address,
    output: Address,
    done: EventId,
}

/// A job whose work is enqueued.
struct UnderWay {
    job: Job,
    slot: HostSlot,
    lane: Lane,
    /// Rows that the host makes.
    left: Vec<u32>,
    began: Instant,
}

impl<S> fmt::Debug for GpuProng<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_jobs = self.waiting.len() + self.under_way.len();
        write!(f, "GpuProng on {} with {n_jobs} jobs", self.driver.card().name)
    }
}

impl<S: Source> GpuProng<S> {
    /// Allocates and page-locks the lanes' memory. For set-up: it blocks.
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
        };
        for _ in 0..LANES {
            let lane = prong.lane()?;
            prong.free.push(lane);
        }
        Ok(prong)
    }

    /// Who made the samples so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
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
        Ok(Lane {
            batch: Batch::new(size, numerics, limits),
            descriptions: Vec::new(),
            staging,
            input: self.driver.allocate(limits.input_bytes as usize)?,
            output: self.driver.allocate(self.sample_bytes() * max_batch as usize)?,
            done: self.driver.create_event()?,
        })
    }

    /// Where the crops' status words go in a lane's memory.
    fn status_at(&self) -> usize {
        (self.config.limits.input_bytes as usize).next_multiple_of(64)
    }

    /// Whether the device has done what a lane waits for.
    fn is_done(&self, lane: &Lane) -> Result<bool, GpuError> {
        // SAFETY: the event is this driver's, and its lane is not given back.
        unsafe { self.driver.is_reached(lane.done) }
    }

    /// Reads a job's bytes and enqueues all work on them.
    fn begin(&mut self, job: Job, slot: HostSlot, lane: Lane) -> Result<(), GpuError> {
        let mut begun =
            UnderWay { job, slot, lane, left: Vec::new(), began: Instant::now() };
        let UnderWay { job, lane, left, .. } = &mut begun;
        lane.batch.clear();
        for (row, &sample) in (0..).zip(&job.samples) {
            let key = (job.epoch, sample);
            let described = self.source.describe(key, row, &mut lane.batch);
            let is_read = described.is_ok_and(|reading| {
                let to = &mut lane.staging[reading.at as usize..][..reading.len];
                self.source.read(&reading, to).is_ok()
            });
            if !is_read {
                left.push(row);
            }
        }
        let enqueued = self.enqueue(&mut begun);
        // Also behind what failed halfway: some of it may be on its way.
        // SAFETY: event and stream are this driver's.
        let recorded = unsafe { self.driver.record(begun.lane.done, self.stream) };
        // The slot is with those that are waited for before anything else becomes of it.
        self.under_way.push_back(begun);
        enqueued.and(recorded)
    }

    fn enqueue(&mut self, begun: &mut UnderWay) -> Result<(), GpuError> {
        let UnderWay { job, slot, lane, .. } = begun;
        let status_at = self.status_at();
        let sample_bytes = self.sample_bytes();
        let (upload, status) = lane.staging.split_at_mut(status_at);
        if lane.batch.is_empty() {
            return Ok(());
        }
        let upload = &mut upload[..lane.batch.input_bytes()];
        lane.batch.write_descriptions(upload, &mut lane.descriptions);
        let Some(decoder) = &mut self.decoder else { return Ok(()) };
        // SAFETY: the lane is not touched, nor given back, until its event is reached.
        unsafe { self.driver.upload(lane.input, upload, self.stream)? };
        // SAFETY: the input has the batch's bytes, the output room for every row.
        unsafe { decoder.decode(&lane.batch, lane.input, lane.output, self.stream)? };
        let from = decoder.status_at(&lane.batch);
        let status = &mut status[..4 * lane.batch.len()];
        // SAFETY: as above.
        unsafe { self.driver.download(status, from, self.stream)? };
        let samples = &mut slot[..job.samples.len() * sample_bytes];
        // SAFETY: the slot stays with the lane until the event is reached.
        unsafe { self.driver.download(samples, lane.output, self.stream) }
    }

    /// The answer to a job whose event is reached.
    fn finish(&mut self, done: UnderWay) -> Completion {
        let UnderWay { job, mut slot, lane, mut left, began } = done;
        let status_at = self.status_at();
        let status = &lane.staging[status_at..][..4 * lane.batch.len()];
        for (row, status) in lane.batch.rows().zip(status.as_chunks::<4>().0) {
            if !Status(u32::from_le_bytes(*status)).is_made() {
                left.push(row);
                self.counts.flagged += 1;
            }
        }
        left.sort_unstable();
        left.dedup();
        self.counts.host += left.len() as u64;
        self.counts.gpu += (job.samples.len() - left.len()) as u64;
        let sample_bytes = self.sample_bytes();
        let mut made = |row: &u32| {
            let row = *row as usize;
            let key: (EpochIdx, SampleId) = (job.epoch, job.samples[row]);
            let place = &mut slot[row * sample_bytes..][..sample_bytes];
            self.source.make(key, place).is_ok()
        };
        left.retain(|row| !made(row));
        self.free.push(lane);
        let work_ns = u64::try_from(began.elapsed().as_nanos()).ok();
        let outcome = Outcome::Made { bad: left };
        Completion { job: job.id, slot: slot.into_slot(), outcome, work_ns }
    }
}

impl<S> GpuProng<S> {
    fn sample_bytes(&self) -> usize {
        let Size { height, width } = self.config.size;
        3 * height as usize * width as usize
    }

    /// Waits until no memory of a job is written to any more; false where the GPU does not say so
    /// in time. Memory that is not safe to reuse is left alone for good.
    fn settle(&mut self) -> bool {
        let mut is_safe = true;
        for done in std::mem::take(&mut self.under_way) {
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
        // SAFETY: created in `lane`, destroyed once.
        unsafe { self.driver.destroy_event(lane.done) };
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
    fn impossible(&self, job: &Job, slot: &HostSlot) -> Option<String> {
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
        if let Err(lost) = self.check() {
            return Err(Box::new(Rejected { job, slot, why: Rejection::Lost(lost) }));
        }
        if self.waiting.len() + self.under_way.len() >= LANES {
            return Err(Box::new(Rejected { job, slot, why: Rejection::Full }));
        }
        let slot = match slot.host() {
            Ok(slot) => slot,
            Err(slot) => {
                let why = format!("a slot of {} memory, not the host's", slot.kind());
                let why = Rejection::Impossible(why);
                return Err(Box::new(Rejected { job, slot, why }));
            }
        };
        if let Some(why) = self.impossible(&job, &slot) {
            let (slot, why) = (slot.into_slot(), Rejection::Impossible(why));
            return Err(Box::new(Rejected { job, slot, why }));
        }
        self.waiting.push_back((job, slot));
        Ok(())
    }

    fn poll(&mut self, timeout: Duration) -> Result<Polled, Lost> {
        self.check()?;
        let began = Instant::now();
        loop {
            while !self.waiting.is_empty()
                && let Some(lane) = self.free.pop()
            {
                let Some((job, slot)) = self.waiting.pop_front() else { break };
                self.begin(job, slot, lane).map_err(|error| self.lose(&error))?;
            }
            let done = match self.under_way.front() {
                Some(oldest) => self.is_done(&oldest.lane),
                None => Ok(false),
            };
            if done.map_err(|error| self.lose(&error))?
                && let Some(oldest) = self.under_way.pop_front()
            {
                return Ok(Polled::Completion(self.finish(oldest)));
            }
            let left = timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ok(Polled::Nothing);
            }
            std::thread::sleep(if self.under_way.is_empty() {
                left
            } else {
                left.min(NAP)
            });
        }
    }

    /// A job is read and enqueued at once or waits for a lane for microseconds: all are made.
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
