//! Where a run's GPUs come from: NVIDIA's driver, or one that the caller brings.
//!
//! It opens a GPU and does nothing with it: as a producer it is `devices/gpu.rs`'s.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bothends_gpu::GpuError;
use bothends_gpu::driver::Driver;
use bothends_gpu::driver::cuda::Cuda;
use bothends_gpu::kernels::PTX;

/// The GPUs of a run.
#[derive(Debug, Clone, Default)]
pub enum Gpus {
    /// Those of this machine, through NVIDIA's driver, which is loaded when one is asked for.
    #[default]
    Installed,
    /// This driver whichever is asked for: a twin in tests, or what another library has opened.
    Given(Arc<dyn Driver>),
}

/// The GPUs that somebody in this process has open, by ordinal.
static OPEN: Mutex<BTreeMap<u32, Weak<Cuda>>> = Mutex::new(BTreeMap::new());

impl Gpus {
    /// The GPU of that number with the kernels of this release; everybody who asks for the same
    /// one gets the same driver. Blocks as [`Cuda::open`] does, for 60 s at most.
    ///
    /// # Errors
    /// [`GpuError::Unavailable`], which names what is missing.
    pub(crate) fn open(&self, ordinal: u32) -> Result<Arc<dyn Driver>, GpuError> {
        match self {
            Self::Given(driver) => Ok(Arc::clone(driver)),
            Self::Installed => Ok(installed(ordinal)?),
        }
    }
}

fn installed(ordinal: u32) -> Result<Arc<Cuda>, GpuError> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    // A process that was forked off must open its own.
    let known = open.get(&ordinal).and_then(Weak::upgrade);
    if let Some(known) = known.filter(|known| known.is_of_this_process()) {
        return Ok(known);
    }
    let opened = Arc::new(Cuda::open(ordinal, PTX)?);
    open.insert(ordinal, Arc::downgrade(&opened));
    Ok(opened)
}
