//! Steps on whole images between the resize and the finish, on the GPU: one launch a batch, each
//! image with its own steps.
//!
//! The kernel is `kernels/adjust.cuh`, its meaning that of the crate `ops`, bit for bit.
//! [`can_run`] says which steps it has; a sample with another step is made on the host, which is
//! no error. Nothing here draws a number (a recipe's `decide` has) or owns device memory.
#![allow(unsafe_code, reason = "launches a kernel on memory that is known by address")]

mod steps;

use std::ffi::c_void;

use bothends_core::recipe::step::Step;
use bothends_core::tensor::SampleShape;

use crate::GpuError;
use crate::driver::{Address, Driver, KernelId, Launch, StreamId};

pub use steps::{AdjustDescription, AdjustRow, can_run, ends_elsewhere};

/// Threads of a block, which works on one image.
const THREADS: u32 = 512;

/// Launches steps on images of one shape.
#[derive(Debug)]
pub struct Adjuster {
    shape: SampleShape,
    kernel: KernelId,
}

/// Where a batch's images are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdjustBatch {
    /// What the rows' offsets count from.
    pub images: Address,
    /// Bytes from an image's place to its second one, which steps that do not work in place
    /// write to; where [`ends_elsewhere`] says so, the result is there.
    pub other: u64,
    /// The description, on the device.
    pub description: Address,
}

impl Adjuster {
    /// For images of this shape. May block in the driver: for set-up.
    ///
    /// # Errors
    /// [`GpuError::Driver`], also for other than one or three channels.
    pub fn new(driver: &dyn Driver, shape: SampleShape) -> Result<Self, GpuError> {
        let kernel = match shape.channels {
            1 => driver.kernel(c"adjust_1")?,
            3 => driver.kernel(c"adjust_3")?,
            n => {
                let why = format!("no kernel for images of {n} channels");
                return Err(GpuError::Driver { call: "adjust", why });
            }
        };
        Ok(Self { shape, kernel })
    }

    /// Whether all of a sample's steps can be done here.
    #[must_use]
    pub fn can_run_all(&self, steps: &[Step]) -> bool {
        steps.iter().all(|step| can_run(step, self.shape))
    }

    /// Describes what is done to the images of `rows` in the first bytes of `into`, which go to
    /// the device, to a multiple of 8. Does not allocate. `None` where `into` is too short
    /// ([`AdjustDescription::bytes`]), or a step cannot be done here.
    pub fn describe(
        &self,
        rows: &[AdjustRow<'_>],
        into: &mut [u8],
    ) -> Option<AdjustDescription> {
        steps::write(self.shape, rows, into)
    }

    /// Enqueues the steps of a batch of `description`. Does not block.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    ///
    /// # Safety
    /// The description and both places of every row's image lie in device memory of this
    /// driver where `batch` says, until `stream` has passed this; no two places overlap.
    pub unsafe fn launch(
        &self,
        driver: &dyn Driver,
        description: &AdjustDescription,
        batch: &AdjustBatch,
        stream: StreamId,
    ) -> Result<(), GpuError> {
        if description.n_rows() == 0 || self.shape.is_empty() {
            return Ok(());
        }
        let [steps, weights] =
            description.parts().map(|at| batch.description.after(at).0);
        let arguments = Arguments {
            images: batch.images.0,
            other: batch.other,
            rows: batch.description.0,
            steps,
            weights,
            height: self.shape.height,
            width: self.shape.width,
        };
        let launch = Launch {
            grid: [description.n_rows(), 1, 1],
            block: THREADS,
            shared_bytes: 0,
        };
        let arguments: [*const c_void; 1] = [(&raw const arguments).cast()];
        // SAFETY: the kernel takes one `Arguments`, and stays in the memory that the caller
        // vouches for: `describe` let no step pass that does not.
        unsafe { driver.launch(self.kernel, launch, stream, &arguments) }
    }
}

/// `AdjustArguments` of `kernels/adjust.cuh`.
#[repr(C)]
#[derive(Debug)]
struct Arguments {
    images: u64,
    other: u64,
    rows: u64,
    steps: u64,
    weights: u64,
    height: u32,
    width: u32,
}

const _: () = assert!(size_of::<Arguments>() == 48);
