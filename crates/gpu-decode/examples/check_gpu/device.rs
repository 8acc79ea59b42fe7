//! The GPU for checks: memory that is freed, work that is waited for, time between two events.
//!
//! Everything enqueued by what is here has run when the call returns, so buffers need only be borrowed.
#![allow(
    unsafe_code,
    reason = "enqueues work on memory that is borrowed until it has run"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bothends_gpu::GpuError;
use bothends_gpu::driver::{Address, Driver, StreamId};
use bothends_gpu::finish::describe::Description;
use bothends_gpu::finish::{FinishBatch, Finisher};
use bothends_gpu::kinds::PageLocked;
use bothends_gpu::owners::{ConsumerStream, DeviceBuffer, Gpu, Stream};
use bothends_gpu::staging::DeviceBatch;
use bothends_gpu_decode::{Batch, GpuDecoder, Status};
use bothends_slots::{HostSlot, Ring, RingConfig};

use crate::Failed;

/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The GPU, with a stream of its own.
#[derive(Debug)]
pub struct Device {
    pub driver: Arc<dyn Driver>,
    pub gpu: Gpu,
    stream: Stream,
}

/// A batch that is decoded again and again, on a stream of its own.
pub struct Lane {
    stream: Stream,
    decoder: GpuDecoder,
    input: DeviceBuffer,
    output: DeviceBuffer,
}

impl Device {
    pub fn new(driver: Arc<dyn Driver>) -> Result<Self, GpuError> {
        let gpu = Gpu::new(Arc::clone(&driver))?;
        let stream = gpu.stream()?;
        Ok(Self { driver, gpu, stream })
    }

    /// Pinned memory.
    pub fn page_locked(&self, bytes: usize) -> Result<HostSlot, Failed> {
        let ring = self.page_locked_ring(1, bytes)?;
        let slot = ring.take(Duration::ZERO).ok_or("no slot")?;
        slot.host().map_err(|_| "a slot that is not the host's".into())
    }

    pub fn page_locked_ring(&self, n: u32, bytes: usize) -> Result<Ring, Failed> {
        let config = RingConfig { n_slots: n, slot_bytes: bytes };
        Ok(Ring::of(&PageLocked::of(&self.gpu), config)?)
    }

    /// Waits for what is enqueued on a stream.
    fn finish(stream: &Stream) -> Result<(), GpuError> {
        stream.record()?.wait(PATIENCE)
    }

    /// The device's time for what `enqueue` enqueues.
    fn time(
        &self,
        enqueue: impl FnOnce(StreamId) -> Result<(), GpuError>,
    ) -> Result<Duration, GpuError> {
        let driver = &self.driver;
        let events = [driver.create_timed_event()?, driver.create_timed_event()?];
        // SAFETY: event and stream are alive, here and below.
        unsafe { driver.record(events[0], self.stream.id()) }?;
        let enqueued = enqueue(self.stream.id());
        // SAFETY: as above.
        unsafe { driver.record(events[1], self.stream.id()) }?;
        let waited = Self::finish(&self.stream);
        enqueued.and(waited)?;
        // SAFETY: both are reached.
        let took = unsafe { driver.elapsed(events[0], events[1]) };
        for event in events {
            // SAFETY: made above, and the stream has passed them.
            unsafe { driver.destroy_event(event) };
        }
        took
    }

    /// Copies bytes to the device, and waits.
    pub fn upload(&self, to: Address, from: &[u8]) -> Result<Duration, GpuError> {
        // SAFETY: both are borrowed or alive until it has run.
        self.time(|stream| unsafe { self.driver.upload(to, from, stream) })
    }

    /// Copies bytes from the device, and waits.
    pub fn download(&self, to: &mut [u8], from: Address) -> Result<Duration, GpuError> {
        // SAFETY: as above.
        self.time(|stream| unsafe { self.driver.download(to, from, stream) })
    }

    /// Bytes read and written in a second by copies within the device.
    pub fn copy_rate(&self, bytes: usize, n: u32) -> Result<f64, GpuError> {
        let [from, to] = [self.gpu.allocate(bytes)?, self.gpu.allocate(bytes)?];
        let copies = |stream| {
            (0..n).try_for_each(|_| {
                // SAFETY: both live until the work has run.
                unsafe { self.driver.copy(to.address(), from.address(), bytes, stream) }
            })
        };
        self.time(copies)?;
        let took = self.time(copies)?;
        Ok(2.0 * bytes as f64 * f64::from(n) / took.as_secs_f64())
    }

    /// Bytes a second of plain copies out of pinned memory, and the longest call.
    pub fn plain_upload_rate(
        &self,
        from: &[u8],
        n: u32,
    ) -> Result<(f64, Duration), GpuError> {
        let to = self.gpu.allocate(from.len())?;
        let mut longest = Duration::ZERO;
        let took = self.time(|stream| {
            (0..n).try_for_each(|_| {
                let began = Instant::now();
                // SAFETY: `to` lives, and `from` is borrowed, until the work has run.
                let done = unsafe { self.driver.upload(to.address(), from, stream) };
                longest = longest.max(began.elapsed());
                done
            })
        })?;
        Ok((from.len() as f64 * f64::from(n) / took.as_secs_f64(), longest))
    }

    /// The device's time for so many launches of a finish.
    pub fn time_finish(
        &self,
        finisher: &Finisher,
        (description, batch): (&Description, &FinishBatch),
        n: u32,
    ) -> Result<Duration, GpuError> {
        self.time(|stream| {
            (0..n).try_for_each(|_| {
                // SAFETY: the caller holds the batch's memory, which is as long as the plan says.
                unsafe { finisher.launch(&*self.driver, description, batch, stream) }
            })
        })
    }

    /// A stream that batches are lent to: the device's own, which outlives them.
    pub fn consumer(&self) -> ConsumerStream {
        // SAFETY: the stream lives as long as this value, which outlives the batches of a check.
        unsafe { ConsumerStream::of_handle(self.stream.id().0) }
    }

    /// Has a slow consumer look at a batch: copies within the device first, then one to `to`.
    /// Enqueues only; `to` is read after [`Self::settle`].
    pub fn consume(
        &self,
        batch: &mut DeviceBatch,
        to: &mut [u8],
        slow: (&DeviceBuffer, &DeviceBuffer),
    ) -> Result<(), GpuError> {
        batch.lend(self.consumer())?;
        let (from, into) = (slow.0.address(), slow.1.address());
        let stream = self.stream.id();
        // SAFETY: the caller keeps all of it until `settle`.
        unsafe { self.driver.copy(into, from, slow.0.len(), stream) }?;
        // SAFETY: as above.
        unsafe { self.driver.download(to, batch.address(), stream) }
    }

    /// Waits for all that consumers were given.
    pub fn settle(&self) -> Result<(), GpuError> {
        Self::finish(&self.stream)
    }

    /// A lane for batches like this one, whose input is uploaded.
    pub fn lane(
        &self,
        batch: &Batch,
        (upload, sample_bytes): (&[u8], usize),
    ) -> Result<Lane, GpuError> {
        let driver = Arc::clone(&self.driver);
        let lane = Lane {
            stream: self.gpu.stream()?,
            decoder: GpuDecoder::new(driver, batch.scratch_bytes())?,
            input: self.gpu.allocate(upload.len())?,
            output: self.gpu.allocate(sample_bytes * batch.len().max(1))?,
        };
        self.upload(lane.input.address(), upload)?;
        Ok(lane)
    }

    /// Enqueues decoding, behind an upload where there is one.
    fn enqueue(
        &self,
        lane: &mut Lane,
        (batch, upload): (&Batch, Option<&[u8]>),
    ) -> Result<(), GpuError> {
        let Lane { stream, decoder, input, output } = lane;
        if let Some(upload) = upload {
            // SAFETY: borrowed until the lane's stream is waited for, in `decode` and `rate`.
            unsafe { self.driver.upload(input.address(), upload, stream.id()) }?;
        }
        // SAFETY: the lane was made for this batch, and its buffers live.
        unsafe { decoder.decode(batch, input.address(), output.address(), stream.id()) }
    }

    /// The samples of a batch, and what became of each.
    pub fn decode(
        &self,
        lane: &mut Lane,
        batch: &Batch,
    ) -> Result<(Vec<u8>, Vec<Status>), GpuError> {
        let enqueued = self.enqueue(lane, (batch, None));
        Self::finish(&lane.stream)?;
        enqueued?;
        let mut samples = vec![0; lane.output.len()];
        self.download(&mut samples, lane.output.address())?;
        let mut status = vec![0; 4 * batch.len()];
        self.download(&mut status, lane.decoder.status_at(batch))?;
        let status = status.as_chunks::<4>().0.iter();
        let status = status.map(|word| Status(u32::from_le_bytes(*word))).collect();
        Ok((samples, status))
    }

    /// Crops a second, of so many batches dealt to the lanes in turn, each behind its upload where
    /// there is one.
    pub fn rate(
        &self,
        lanes: &mut [Lane],
        (batch, upload): (&Batch, Option<&[u8]>),
        n: u32,
    ) -> Result<f64, GpuError> {
        let mut run = |n: u32| -> Result<Duration, GpuError> {
            let began = Instant::now();
            for nth in 0..n as usize {
                let lane = nth % lanes.len();
                self.enqueue(&mut lanes[lane], (batch, upload))?;
            }
            for lane in &*lanes {
                Self::finish(&lane.stream)?;
            }
            Ok(began.elapsed())
        };
        run(n.min(4))?;
        let took = run(n)?;
        Ok(batch.len() as f64 * f64::from(n) / took.as_secs_f64())
    }
}
