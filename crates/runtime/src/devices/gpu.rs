//! A GPU of this machine as a device: what is opened for it, and what it says of itself.
//!
//! `gpu_decode`'s producer makes the batches, on the thread of any device (`devices/thread.rs`). There
//! is no session to agree on, since it reads the run's own table, files and side index. A GPU that is
//! lost is not opened again: its context is spoilt for the whole process.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::{Decision, Recipe, Size};
use bothends_core::sample::Encoding;
use bothends_csd::{
    Capabilities, CsdError, DeviceStats, PROTOCOL_VERSION, Session, Transport,
};
use bothends_gpu::driver::{Card, Driver};
use bothends_gpu_decode::{GpuProng, Limits, ProngConfig, TableSource};
use bothends_io::{ReaderConfig, open_reader};
use bothends_slots::{Job, JobId, Lost, Polled, Producer, Rejected, Slot};

use crate::config::gpus::Gpus;
use crate::read::source::Source;

/// Jobs that it takes at a time: the bytes of one are read while the other is decoded.
const N_JOBS: u32 = 2;

/// Bytes of a lane's upload for each sample of a batch. A crop of a photograph takes 111 kB of a
/// store and 82 kB of a JPEG; larger ones borrow from smaller ones, and what does not fit is
/// made on the host.
const INPUT_BYTES: u32 = 256 << 10;

/// Memory of the kernels for each sample: a mean crop has 4,000 blocks, which take 0.5 MB as
/// coefficients, and about as much as samples and between the passes.
const SCRATCH_BYTES: u64 = 2 << 20;

/// The least of both, enough for a small batch of large photographs.
const LEAST_BYTES: u32 = 32 << 20;

/// The most of both: bytes of the upload are counted in 31 bits, and most of the device's memory
/// is the training's.
const MOST_INPUT_BYTES: u32 = 512 << 20;
const MOST_SCRATCH_PART: u64 = 8;

/// Samples by which it is seen whether a recipe has kernels; one with optional steps has them
/// for some samples only.
const PROBES: u64 = 64;
const PROBED: Size = Size { height: 375, width: 500 };

/// How a run's GPU is opened.
#[derive(Debug, Clone)]
pub(crate) struct GpuReach {
    pub(crate) ordinal: u32,
    pub(crate) gpus: Gpus,
    pub(crate) reader: ReaderConfig,
    /// Bytes of one of its uploads, of which there are as many as [`N_JOBS`].
    pub(crate) input_bytes: u32,
    /// Bytes that it has read from storage, for whoever adds them up.
    pub(crate) read_bytes: Arc<AtomicU64>,
}

/// The fewest bytes of an upload, however little a limit leaves: there is always one.
const FEWEST_INPUT_BYTES: u32 = 64 << 10;

/// Bytes that so many GPUs pin for uploads of batches of so many samples, where nothing limits them.
pub(crate) fn wanted_uploads(batch_size: u32, n_gpus: u32) -> usize {
    let input = batch_size.saturating_mul(INPUT_BYTES);
    let input = input.clamp(LEAST_BYTES, MOST_INPUT_BYTES) as usize;
    input.saturating_mul((N_JOBS * n_gpus) as usize)
}

/// Bytes of one upload where so many GPUs pin so much. What does not fit is made on the host.
pub(crate) fn input_bytes(uploads: usize, n_gpus: u32) -> u32 {
    let each = uploads.checked_div((N_JOBS * n_gpus) as usize).unwrap_or(0);
    u32::try_from(each).unwrap_or(u32::MAX).clamp(FEWEST_INPUT_BYTES, MOST_INPUT_BYTES)
}

impl GpuReach {
    /// Opens the GPU, its reader and its memory. Blocks as long as the driver takes, 60 s at most.
    ///
    /// # Errors
    /// [`CsdError::Driver`] of a GPU that cannot be used, [`CsdError::SessionRefused`] for data or a
    /// recipe of which it could make nothing.
    pub(crate) fn open(
        &self,
        source: &Source,
        recipe: &Recipe,
        batch_size: u32,
    ) -> Result<GpuDevice, CsdError> {
        let size = size(source, recipe)?;
        let driver = self.gpus.open(self.ordinal).map_err(of_driver)?;
        let reader = open_reader(&self.reader).map_err(of_driver)?;
        let config = ProngConfig {
            size,
            numerics: recipe.numerics(),
            max_batch: batch_size,
            limits: Limits {
                input_bytes: self.input_bytes,
                scratch_bytes: scratch_bytes(batch_size, driver.card()),
            },
        };
        let prong = GpuProng::new(Arc::clone(&driver), source.for_gpu(reader), config);
        let prong = prong.map_err(of_driver)?;
        Ok(GpuDevice { driver, prong, read_bytes: Arc::clone(&self.read_bytes), jobs: 0 })
    }
}

fn of_driver(error: impl Error + Send + Sync + 'static) -> CsdError {
    CsdError::Driver(Box::new(error))
}

/// The size of the run's samples, where there are kernels for any of them.
fn size(source: &Source, recipe: &Recipe) -> Result<Size, CsdError> {
    let refuse = |reason: &str| CsdError::SessionRefused { reason: reason.to_owned() };
    if source.table.encoding() != Encoding::Image {
        return Err(refuse(
            "its kernels decode JPEGs and stores, and the data are neither",
        ));
    }
    let [shape] = source.pipeline.views().shapes() else {
        return Err(refuse("its kernels make one view of a sample, and the recipe more"));
    };
    let size = Size { height: shape.height, width: shape.width };
    let mut decision = Decision::default();
    let mut has_kernels = |sample: u64| {
        let key = source.key(EpochIdx(0), SampleId(sample));
        let crop = source.pipeline.only_crop_of(key, PROBED, &mut decision);
        crop.is_ok_and(|crop| crop.is_some())
    };
    if (0..PROBES).any(&mut has_kernels) {
        return Ok(size);
    }
    let name = recipe.name();
    Err(refuse(&format!(
        "its kernels crop, resize and flip, and the recipe {name} does more to every sample \
         before the cut"
    )))
}

/// The kernels' memory on the device, by what batches take.
fn scratch_bytes(batch_size: u32, card: &Card) -> u64 {
    let most_scratch = (card.memory_bytes / MOST_SCRATCH_PART).max(LEAST_BYTES.into());
    let scratch = u64::from(batch_size).saturating_mul(SCRATCH_BYTES);
    scratch.clamp(LEAST_BYTES.into(), most_scratch)
}

/// A GPU that is open.
#[derive(Debug)]
pub(crate) struct GpuDevice {
    driver: Arc<dyn Driver>,
    prong: GpuProng<TableSource>,
    read_bytes: Arc<AtomicU64>,
    /// Answered so far.
    jobs: u64,
}

impl GpuDevice {
    /// Whoever else works on the same GPU goes through this driver.
    pub(crate) fn driver(&self) -> Arc<dyn Driver> {
        Arc::clone(&self.driver)
    }
}

impl Producer for GpuDevice {
    fn submit(&mut self, job: Job, slot: Slot) -> Result<(), Box<Rejected>> {
        self.prong.submit(job, slot)
    }

    fn poll(&mut self, timeout: Duration) -> Result<Polled, Lost> {
        let polled = self.prong.poll(timeout);
        self.jobs += u64::from(matches!(polled, Ok(Polled::Completion(_))));
        let read_bytes = self.prong.source().reader.bytes_read();
        self.read_bytes.store(read_bytes, Ordering::Relaxed);
        polled
    }

    fn revoke(&mut self, job: JobId) -> Result<(), Lost> {
        self.prong.revoke(job)
    }

    fn abandon(&mut self) -> Result<(), Lost> {
        self.prong.abandon()
    }
}

impl Transport for GpuDevice {
    fn hello(&mut self) -> Result<Capabilities, CsdError> {
        let card = self.driver.card();
        Ok(Capabilities {
            protocol_version: PROTOCOL_VERSION,
            name: card.name.clone(),
            // Twins and fakes have no compute capability.
            emulated: card.capability == (0, 0),
            ops: Vec::new(),
            slots: N_JOBS,
            max_batch_bytes: u64::MAX,
            features: Vec::new(),
        })
    }

    fn open(&mut self, _: &Session) -> Result<(), CsdError> {
        Ok(())
    }

    fn stats(&mut self) -> Result<DeviceStats, CsdError> {
        let counts = self.prong.counts();
        let kernel_seconds = self.prong.kernel_time().as_secs_f64();
        Ok(DeviceStats {
            jobs: self.jobs,
            samples: counts.gpu + counts.host,
            queued: self.prong.n_jobs(),
            media_read_bytes: self.prong.source().reader.bytes_read(),
            busy_seconds: kernel_seconds,
            kernel_seconds: Some(kernel_seconds),
            ..DeviceStats::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_grows_with_the_batch_and_leaves_most_of_the_card() {
        let card = |gib: u64| Card {
            ordinal: 0,
            name: "a card".to_owned(),
            driver: "none".to_owned(),
            capability: (9, 0),
            n_multiprocessors: 132,
            memory_bytes: gib << 30,
            numa_node: None,
        };
        let of = |batch_size, gib| {
            let uploads = wanted_uploads(batch_size, 3);
            let scratch = scratch_bytes(batch_size, &card(gib));
            (input_bytes(uploads, 3) >> 20, scratch >> 20)
        };
        assert_eq!(of(1, 80), (32, 32));
        assert_eq!(of(256, 80), (64, 512));
        assert_eq!(of(1024, 80), (256, 2048));
        assert_eq!(of(u32::MAX, 8), (512, 1024));
        assert_eq!(input_bytes(1 << 20, 2), 256 << 10, "what a limit leaves");
    }
}
