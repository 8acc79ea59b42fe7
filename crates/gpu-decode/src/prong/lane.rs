//! What a job on its way has: the memory of a lane, and how far it is.
//!
//! Everything owns what the driver gave for it, so that a set-up that fails halfway leaves nothing. It decides
//! nothing; `prong.rs` moves jobs on.

use std::time::{Duration, Instant};

use bothends_core::recipe::{Numerics, Size};
use bothends_gpu::GpuError;
use bothends_gpu::driver::Address;
use bothends_gpu::kinds::PageLocked;
use bothends_gpu::owners::{DeviceBuffer, Event, Gpu, Stream, TimedEvent};
use bothends_slots::{Damaged, HostSlot, Job, Ring, RingConfig, Slot};

use crate::readings::Readings;
use crate::{Batch, Limits};

/// What a [`GpuProng`](crate::GpuProng) is made for.
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

impl ProngConfig {
    pub(super) fn sample_bytes(&self) -> usize {
        let Size { height, width } = self.size;
        3 * height as usize * width as usize
    }

    /// Where the crops' status words go in a lane's pinned memory.
    pub(super) fn status_at(&self) -> usize {
        let input_bytes = self.limits.input_bytes as usize;
        // A sample of the host's has room there, too.
        input_bytes.max(self.sample_bytes()).next_multiple_of(64)
    }
}

/// Memory of one batch on its way.
pub(super) struct Lane {
    pub(super) batch: Batch,
    pub(super) readings: Readings,
    /// Pinned: the upload, later samples that the host made for a device slot; behind it what
    /// became of the crops.
    pub(super) staging: HostSlot,
    pub(super) input: DeviceBuffer,
    pub(super) output: DeviceBuffer,
    /// The end of what the device was told to do for it last; `None` where nothing says when that is.
    pub(super) done: Option<Event>,
    /// Round the kernels.
    pub(super) kernels: [TimedEvent; 2],
}

impl Lane {
    /// Allocates and pins its memory. For set-up: it blocks.
    pub(super) fn new(gpu: &Gpu, config: &ProngConfig) -> Result<Self, GpuError> {
        let ProngConfig { size, numerics, limits, max_batch } = *config;
        let bytes = config.status_at() + 4 * max_batch as usize;
        let ring = RingConfig { n_slots: 1, slot_bytes: bytes };
        let ring = Ring::of(&PageLocked::of(gpu), ring)?;
        let staging = ring.take(Duration::ZERO).and_then(|slot| slot.host().ok());
        let output_bytes = config.sample_bytes() * max_batch as usize;
        Ok(Self {
            batch: Batch::new(size, numerics, limits),
            readings: Readings::default(),
            staging: staging.ok_or(GpuError::OutOfMemory { bytes })?,
            input: gpu.allocate(limits.input_bytes as usize)?,
            output: gpu.allocate(output_bytes)?,
            done: None,
            kernels: [gpu.timed_event()?, gpu.timed_event()?],
        })
    }

    /// Notes the end of what is enqueued for it.
    pub(super) fn record(&mut self, stream: &Stream) -> Result<(), GpuError> {
        // An earlier end would say too early that the device is done.
        self.done = None;
        self.done = Some(stream.record()?);
        Ok(())
    }

    /// Whether the device has done what the lane waits for.
    pub(super) fn is_done(&self) -> Result<bool, GpuError> {
        self.done.as_ref().map_or(Ok(false), Event::is_reached)
    }

    /// Waits for that; why it is not certain that the device uses the lane's memory no more.
    pub(super) fn wait(&self, limit: Duration) -> Result<(), String> {
        let unknown = || "nothing says when its work on a batch ends".to_owned();
        let done = self.done.as_ref().ok_or_else(unknown)?;
        done.wait(limit).map_err(|error| error.to_string())
    }
}

/// Where a job's samples go.
pub(super) enum Target {
    Host(HostSlot),
    Device(Slot, Address),
}

impl Target {
    pub(super) fn into_slot(self) -> Slot {
        match self {
            Self::Host(slot) => slot.into_slot(),
            Self::Device(slot, _) => slot,
        }
    }
}

/// A job that has a lane.
pub(super) struct UnderWay {
    pub(super) job: Job,
    pub(super) target: Target,
    pub(super) lane: Lane,
    pub(super) stage: Stage,
    /// Since when the stage is this one.
    pub(super) since: Instant,
    /// Rows that the host makes, rising once they are judged, and those that it could not.
    pub(super) left: Vec<u32>,
    pub(super) bad: Vec<u32>,
    /// Rows that the host has made in spite of damage.
    pub(super) damaged: Vec<Damaged>,
    /// Rows that the host has made for a device slot, in the order in which they lie in the lane.
    pub(super) made: Vec<u32>,
    pub(super) began: Instant,
}

impl UnderWay {
    pub(super) fn new((job, target): (Job, Target), mut lane: Lane) -> Self {
        lane.batch.clear();
        // A job that was abandoned leaves some.
        lane.readings.clear();
        let began = Instant::now();
        Self {
            job,
            target,
            lane,
            stage: Stage::Reading(0),
            since: began,
            left: Vec::new(),
            bad: Vec::new(),
            damaged: Vec::new(),
            made: Vec::new(),
            began,
        }
    }

    pub(super) fn turn_to(&mut self, stage: Stage) {
        (self.stage, self.since) = (stage, Instant::now());
    }
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
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
    pub(super) fn is_with_device(self) -> bool {
        matches!(self, Self::Decoding | Self::Uploading)
    }
}
