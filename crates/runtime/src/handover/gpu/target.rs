//! A GPU that batches can be delivered to.
//!
//! It opens the GPU and says what is known of it. It delivers nothing (`gpu/feed.rs`).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bothends_gpu::GpuError;
use bothends_gpu::driver::cuda::Cuda;
use bothends_gpu::driver::{Card, Driver};
use bothends_gpu::kernels;
use bothends_gpu::owners::{ConsumerStream, Gpu};
use bothends_gpu::path::{Guard, Report};

use crate::config::gpus::Opened;
use crate::error::RuntimeError;
use crate::handover::batch::Batch;

/// A GPU that batches can be delivered to ([`crate::Loader::begin_on`]), or that host memory is pinned
/// for ([`crate::Loader::pin_memory`]). Cloning gives another handle on the same one; several loaders may
/// share it.
#[derive(Debug, Clone)]
pub struct GpuTarget(Arc<Target>);

#[derive(Debug)]
struct Target {
    name: String,
    gpu: Gpu,
    /// How long work on it may take.
    patience: Duration,
    /// Whether it might be read into from a drive.
    is_cuda: bool,
}

/// How long the device may keep memory that batches wait for, if nobody says otherwise: far longer than a step of
/// training, which is what such memory waits for. What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The GPUs that are open: they stay so, as they do with PyTorch. What one loader leaves for the device to be done
/// with, the next one frees.
static OPEN: Opened<GpuTarget> = Opened::new();

impl GpuTarget {
    /// NVIDIA's GPU number `index` of those that `CUDA_VISIBLE_DEVICES` shows, through the driver that
    /// is installed. Its context is the primary one, which PyTorch, JAX and CuPy use as well. Opened once
    /// per process, for good. Blocks
    /// while the driver initialises: a third of a second, a second more the first time that a machine
    /// sees the kernels, 60 s at most.
    ///
    /// # Errors
    /// [`RuntimeError::Gpu`], in one line: what is missing, and what helps.
    pub fn cuda(index: u32) -> Result<Self, RuntimeError> {
        let name = format!("cuda:{index}");
        // A driver that hangs holds up those that want the same, no longer than itself.
        OPEN.at(index, |open| {
            if let Some(target) = open {
                return Ok(target.clone());
            }
            let gpu =
                Cuda::open(index, kernels::PTX).and_then(|it| Gpu::new(Arc::new(it)));
            match gpu {
                Ok(gpu) => {
                    let (patience, is_cuda) = (PATIENCE, true);
                    let target = Self(Arc::new(Target { name, gpu, patience, is_cuda }));
                    Ok(open.insert(target).clone())
                }
                Err(why) => Err(RuntimeError::Gpu { gpu: name, why }),
            }
        })
    }

    /// A GPU behind a driver of the caller's: another vendor's, or one for tests
    /// (`bothends_gpu::driver::fake`, `bothends_gpu::twin`).
    ///
    /// # Errors
    /// [`RuntimeError::Gpu`].
    pub fn over(driver: Arc<dyn Driver>) -> Result<Self, RuntimeError> {
        Self::over_within(driver, PATIENCE)
    }

    /// The same with another time, otherwise 60 s, after which a device that keeps the memory of batches is
    /// taken to hang.
    ///
    /// # Errors
    /// As [`Self::over`].
    pub fn over_within(
        driver: Arc<dyn Driver>,
        patience: Duration,
    ) -> Result<Self, RuntimeError> {
        let name = driver.card().name.clone();
        match Gpu::new(driver) {
            Ok(gpu) => Ok(Self(Arc::new(Target { name, gpu, patience, is_cuda: false }))),
            Err(why) => Err(RuntimeError::Gpu { gpu: name, why }),
        }
    }

    /// Its name: `cuda:0`, or what the caller's driver calls its card.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The device, for people and for decisions.
    #[must_use]
    pub fn card(&self) -> &Card {
        self.0.gpu.driver().card()
    }

    /// DLPack's type and number of the device: `kDLCUDA`, and which.
    #[must_use]
    pub fn dlpack(&self) -> (i32, i32) {
        (2, i32::try_from(self.card().ordinal).unwrap_or(0))
    }

    /// Keeps a batch in pinned host memory until the device has passed what is enqueued on `stream`
    /// now: a copy out of it that another library has enqueued. Its slot goes back in a later [`Self::sweep`].
    /// Does not block.
    ///
    /// # Errors
    /// [`RuntimeError::Gpu`]; the batch is then kept for good.
    pub fn keep_until(
        &self,
        stream: ConsumerStream,
        mut batch: Batch,
    ) -> Result<(), RuntimeError> {
        let returning = batch.release.is_with_device().clone();
        let kept = self.0.gpu.keep_until(stream, Box::new(batch));
        kept.map_err(|why| {
            returning.has_one_less();
            self.failed(why)
        })
    }

    /// Keeps a batch in pinned memory, and what it is part of, until the device has passed everything that any
    /// library of this process has enqueued on it by the next [`Self::sweep`]: copies of code that we do not know
    /// may read it. Calls no driver. Of use where [`Self::can_tell_idle`]. A [`crate::GpuBatch`] has
    /// `release_when_idle` for that, which counts it as given back.
    pub fn keep_until_idle(&self, mut batch: impl AsMut<Batch> + Send + 'static) {
        batch.as_mut().release.is_with_device();
        self.0.gpu.keep_until_idle(Box::new(batch));
    }

    /// Whether the driver can tell when the device has passed everything: NVIDIA's since CUDA 12.5.
    ///
    /// # Errors
    /// [`RuntimeError::Gpu`] with the reason.
    pub fn can_tell_idle(&self) -> Result<(), RuntimeError> {
        let gpu = &self.0.gpu;
        gpu.can_record_all().map_err(|error| {
            if gpu.driver().records_all() {
                // It can, and not now: as while a graph is captured.
                return self.failed(error);
            }
            let why = format!(
                "its driver cannot tell when all work is done ({error}); update it to one for \
                 CUDA 12.5 or newer"
            );
            self.failed(GpuError::Unavailable { why })
        })
    }

    /// Whether it has the call for that, which may fail all the same. Calls no driver, so no graph that another
    /// thread captures meanwhile minds it.
    #[must_use]
    pub fn has_idle(&self) -> bool {
        self.0.gpu.driver().records_all()
    }

    /// Gives back what [`Self::keep_until`] and [`Self::keep_until_idle`] keep and the device is done with, and frees device memory that
    /// nobody has any more. Does not block; returns how much is still kept.
    pub fn sweep(&self) -> usize {
        self.0.gpu.sweep()
    }

    /// Waits until the device is done with all memory that was given up, `limit` at most for each piece, and frees
    /// it. For the end of a program; what it does not free, the end of the process does.
    ///
    /// # Errors
    /// [`RuntimeError::Gpu`] of a device that hangs.
    pub fn shut_down(&self, limit: Duration) -> Result<(), RuntimeError> {
        self.0.gpu.shut_down(limit).map_err(|why| self.failed(why))
    }

    /// The GPU, for what uploads to it.
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How long it may keep memory that batches wait for.
    pub(crate) fn patience(&self) -> Duration {
        self.0.patience
    }

    /// It has kept it for longer.
    pub(crate) fn is_late(&self) -> RuntimeError {
        let seconds = self.0.patience.as_secs();
        self.failed(GpuError::Late { what: "its work on earlier batches", seconds })
    }

    pub(crate) fn failed(&self, why: GpuError) -> RuntimeError {
        RuntimeError::Gpu { gpu: self.name().to_owned(), why }
    }

    /// The way from `data` to it, where slots were pinned or, for a reason, were not. Does not open cuFile, which
    /// nothing reads through and whose threads would stay: `doctor` does.
    pub(crate) fn path_from(&self, data: &Path, pinned: Result<(), String>) -> Report {
        Report::of(Ok(()), pinned, || {
            if !self.0.is_cuda {
                return Err("cuFile serves NVIDIA's GPUs only".to_owned());
            }
            let guard = Guard::of_system(Ok(()), &[]);
            let checked = Guard { data: Some(data.to_owned()), ..guard }.check();
            let unused = || "reading through cuFile is not built yet".to_owned();
            Err(checked.err().unwrap_or_else(unused))
        })
    }
}
